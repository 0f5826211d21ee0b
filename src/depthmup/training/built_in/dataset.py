"""Data sets of examples and classes, how batches are drawn from them, and the digits."""

import gzip
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """``inputs`` (examples, features), ``labels`` (examples,) in 0 .. classes - 1."""

    inputs: Tensor
    labels: Tensor
    classes: int

    def batches(self, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
        """Indices of every step's examples, drawn with replacement: (steps, batch_size).

        Args:
            steps: of training.
            batch_size: examples of each.
            generator: source of the order.
        """
        return torch.randint(len(self.labels), (steps, batch_size), generator=generator)

    def epochs(self, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
        """Indices of every step's examples, each drawn once per epoch: (steps, batch_size).

        The epochs' shuffled orders follow each other without a gap, so a batch may lie across the
        border of two: E epochs of N examples are floor(E N / batch_size) steps, none left out.

        Args:
            steps: of training.
            batch_size: examples of each.
            generator: source of the order.
        """
        examples, wanted = len(self.labels), steps * batch_size
        # As many whole epochs as the steps begin; the last one is cut.
        shuffled = [
            torch.randperm(examples, generator=generator) for _ in range(-(-wanted // examples))
        ]
        return torch.cat(shuffled)[:wanted].reshape(steps, batch_size)


def with_label_noise(data: Dataset, fraction: float, generator: torch.Generator) -> Dataset:
    """The data set with a fraction of its labels resampled.

    Args:
        data: with clean labels.
        fraction: expected, of labels replaced by a uniformly drawn class (perhaps the same one).
        generator: source of the noise.

    Raises:
        ValueError: the fraction is not in [0, 1].
    """
    if not (math.isfinite(fraction) and 0 <= fraction <= 1):
        raise ValueError(f"Expected label_noise to be a fraction in [0, 1]; got {fraction!r}.")
    redrawn = torch.rand(len(data.labels), generator=generator) < fraction
    # For every label, replaced or not: a larger fraction of one seed replaces the same ones and
    # more.
    drawn = torch.randint(data.classes, (len(data.labels),), generator=generator)
    return replace(data, labels=torch.where(redrawn, drawn, data.labels))


def digits(*, label_noise: float = 0.3, generator: torch.Generator | None = None) -> Dataset:
    """The digits, with a fraction of the labels resampled.

    The mean over examples is subtracted from each feature, and each example is scaled to mean
    square one. Label noise keeps the task from being solved: with clean labels the late loss
    goes to zero at every depth, and capacity no longer matters.

    Args:
        label_noise: expected fraction of labels replaced by a uniformly drawn class.
        generator: source of the label noise; by default one of seed 0, so that the data set is
            the same in every run.

    Raises:
        ValueError: the label noise is not in [0, 1].

    Example:
        >>> digits().inputs.shape, digits().classes
        (torch.Size([1797, 64]), 10)

    *Source:* the test set of Alpaydin and Kaynak, "Optical recognition of handwritten digits"
    (UCI, doi 10.24432/C50P49, CC BY 4.0), the same as in ``sklearn.datasets.load_digits``.
    """
    images, labels = _shipped()
    inputs = torch.from_numpy(images)
    inputs = inputs - inputs.mean(0)
    # Scaled last: centring would take the mean square of one from the examples again.
    inputs = inputs / inputs.square().mean(1, keepdim=True).sqrt()
    clean = Dataset(inputs=inputs.float(), labels=torch.from_numpy(labels).long(), classes=10)
    return with_label_noise(clean, label_noise, generator or torch.Generator().manual_seed(0))


def _shipped() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Pixels (examples, features) and labels (examples,)."""
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt", encoding="ascii") as lines:
        table = np.loadtxt(lines, delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)
