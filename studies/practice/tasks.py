"""What is learned: four small tasks, of which batches are drawn by a generator."""

import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from depthmup.data import Dataset, digits, with_label_noise

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
def _digits(label_noise: float) -> Dataset:
    return digits(label_noise=label_noise)


def _digits_batch(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    of_batch = _drawn(_digits(0.1), generator, count)
    return of_batch.inputs, of_batch.labels


def _drawn(data: Dataset, generator: torch.Generator, count: int) -> Dataset:
    drawn = torch.randint(len(data.inputs), (count,), generator=generator)
    return replace(data, inputs=data.inputs[drawn], labels=data.labels[drawn])


def _renoised_batch(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """The digits, whose wrong labels are drawn anew for every batch: there are none to learn."""
    of_batch = _drawn(_digits(0.0), generator, count)
    noisy = with_label_noise(of_batch, 0.1, generator)
    return noisy.inputs, noisy.labels


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
    "renoised": Task(inputs=64, outputs=10, batch=_renoised_batch),
    "text": Task(tokens=256, outputs=256, batch=_text_batch),
    "teacher": Task(inputs=16, outputs=4, classes=False, batch=_teacher_batch),
}
