"""Learning-rate schedules, stretched over a run: a linear warm-up, then constant or a decay."""

import math
from collections.abc import Callable

from depthmup.records import Cell

SHAPES: dict[str, Callable[[float], float]] = {
    "constant": lambda left: 1.0,
    "linear": lambda left: left,
    "cosine": lambda left: 0.5 - 0.5 * math.cos(math.pi * left),
}
"""The learning rate's factor after the warm-up, by the fraction of that part that is left."""


def schedule(name: str, warmup: float) -> Callable[[float], float]:
    """The learning rate's factor at a fraction of training: a linear warm-up, then as named."""
    if not isinstance(name, str) or name not in SHAPES:
        raise ValueError(f"Expected schedule to be one of {', '.join(SHAPES)}; got {name!r}.")
    if not isinstance(warmup, int | float) or not 0 <= warmup < 1:
        raise ValueError(f"Expected warmup to be a fraction of training in [0, 1); got {warmup!r}.")

    def factor(at: float) -> float:
        return at / warmup if at < warmup else SHAPES[name]((1 - at) / (1 - warmup))

    return factor


def rate_factors(name: str, warmup: float, steps: int) -> list[float]:
    """The learning rate's factor of every step, taken in the middle of the step."""
    rate = schedule(name, warmup)
    # At its start the first step of a warm-up would have rate 0, at its end the last of a decay.
    return [rate((step + 0.5) / steps) for step in range(steps)]


def factors_of(cell: Cell) -> list[float]:
    """The learning rate's factor of every step of a cell."""
    return rate_factors(cell.optimizer.schedule, cell.optimizer.warmup, cell.steps)
