"""What every data set of examples and classes is, and how batches are drawn from it."""

import math
from dataclasses import dataclass, replace

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
