"""Handwritten digits: 1797 real 8x8 images that come with this package."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch

from depthmup.training.built_in.dataset import Dataset, with_label_noise


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
