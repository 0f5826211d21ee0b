"""What is learned: three small tasks, of which batches are drawn by a generator."""

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from depthmup.data import digits

CONTEXT = 8


@dataclass(frozen=True, kw_only=True)
class Task:
    """Inputs are vectors, or ``tokens`` of a vocabulary; ``classes`` or numbers are predicted."""

    inputs: int = 0
    tokens: int = 0
    outputs: int
    classes: bool = True
    batch: Callable[[torch.Generator, int], tuple[Tensor, Tensor]]


@cache
def _digits() -> tuple[Tensor, Tensor]:
    data = digits(label_noise=0.1)
    return data.inputs, data.labels


def _digits_batch(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    inputs, labels = _digits()
    drawn = torch.randint(len(inputs), (count,), generator=generator)
    return inputs[drawn], labels[drawn]


@cache
def _text() -> Tensor:
    """Bytes of Python's own modules."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return torch.frombuffer(
        bytearray().join(file.read_bytes() for file in files), dtype=torch.uint8
    )


def _text_batch(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Bags of eight bytes, and the byte that follows."""
    text = _text()
    first = torch.randint(len(text) - CONTEXT - 1, (count, 1), generator=generator)
    drawn = text[first + torch.arange(CONTEXT + 1)].long()
    return drawn[:, :-1], drawn[:, -1]


@cache
def _teacher() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(16, 32, generator=generator) / 4
    return first, torch.randn(32, 4, generator=generator) / 32**0.5


def _teacher_batch(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """What a small random network makes of Gaussian inputs, with noise."""
    first, last = _teacher()
    inputs = torch.randn(count, 16, generator=generator)
    noise = 0.3 * torch.randn(count, 4, generator=generator)
    return inputs, (inputs @ first).relu() @ last + noise


TASKS = {
    "digits": Task(inputs=64, outputs=10, batch=_digits_batch),
    "text": Task(tokens=256, outputs=256, batch=_text_batch),
    "teacher": Task(inputs=16, outputs=4, classes=False, batch=_teacher_batch),
}
