"""Scikit-learn's handwritten digits: 1797 real 8x8 images that come with the package."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """``inputs`` (examples, features), ``labels`` (examples,) in 0 .. classes - 1."""

    inputs: Tensor
    labels: Tensor
    classes: int

    def batches(self, steps: int, batch_size: int, generator: torch.Generator) -> Tensor:
        """Indices of every step's examples, drawn with replacement: (steps, batch_size)."""
        return torch.randint(len(self.labels), (steps, batch_size), generator=generator)


def digits(*, label_noise: float = 0.3, generator: torch.Generator | None = None) -> Dataset:
    """The digits, with a fraction of the labels drawn anew.

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
    (UCI), as ``sklearn.datasets.load_digits`` ships it.
    """
    if not (math.isfinite(label_noise) and 0 <= label_noise <= 1):
        raise ValueError(f"Expected label_noise to be a fraction in [0, 1]; got {label_noise!r}.")
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    inputs = torch.from_numpy(images)
    inputs = inputs - inputs.mean(0)
    inputs = inputs / inputs.square().mean(1, keepdim=True).sqrt()
    true, classes = torch.from_numpy(labels).long(), 10
    generator = generator or torch.Generator().manual_seed(0)
    redrawn = torch.rand(len(true), generator=generator) < label_noise
    drawn = torch.randint(classes, (len(true),), generator=generator)
    return Dataset(inputs=inputs.float(), labels=torch.where(redrawn, drawn, true), classes=classes)
