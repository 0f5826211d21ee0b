"""Losses of many networks, read from their device: each reading waits for it."""

import math
import time

import torch
from torch import Tensor

EVERY = 32
"""Steps of a GPU between two readings, so that an end is noticed late; of the CPU it is one."""

SECONDS = 1.0
"""After which slow steps are read sooner, so that their progress is seen."""


class Readings:
    """Takes the losses of every step, (members,), and gives those of several steps at once.

    The first step is read at once: it shows which members failed before training.
    """

    def __init__(self, members: int, *, steps: int, device: torch.device) -> None:
        every = EVERY if device.type == "cuda" else 1
        self._rows = torch.empty(every, members, device=device)
        self._steps, self._first, self._read = steps, 0, -math.inf

    def __call__(self, step: int, losses: Tensor) -> list[tuple[int, list[float]]]:
        """The steps since the last reading with all members' losses; none before it is due."""
        count = step - self._first + 1
        self._rows[count - 1].copy_(losses)
        if 0 < step < self._steps - 1 and count < len(self._rows) and not self._overdue():
            return []
        values: list[list[float]] = self._rows[:count].tolist()
        first, self._first, self._read = self._first, step + 1, time.monotonic()
        return list(enumerate(values, first))

    def _overdue(self) -> bool:
        return time.monotonic() - self._read > SECONDS
