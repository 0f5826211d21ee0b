"""Octaves as text, and what a table of predicted and measured drifts comes to."""

import math
from collections.abc import Sequence

import numpy as np

from depthmup.records import Estimate
from depthmup.statistics import TOLERANCE


def slope(sizes: Sequence[int], octaves: Sequence[float]) -> float:
    """Octaves per doubling of the size."""
    x = np.log2(sizes) - np.mean(np.log2(sizes))
    return float(x @ np.array(octaves) / (x @ x))


def number(value: float) -> str:
    text = f"{value:+.2f}".replace("-", "−")
    return "0" if text[1:] == "0.00" else text


def octaves(estimates: Sequence[Estimate]) -> str:
    return " ".join(
        number(e.value) if e.low == e.high else f"{number(e.value)}±{e.high - e.value:.2f}"
        for e in estimates
    )


def header(*names: str) -> str:
    return "\n".join(
        ["| " + " | ".join(names) + " |", "| " + " | ".join("---" for _ in names) + " |"]
    )


def verdict(drifts: Sequence[tuple[float, float]]) -> str:
    """How far predicted drifts are off, beside predicting none, and how many signs are right."""
    predicted, measured = np.array(drifts).T
    rms, none = (math.sqrt(np.mean(np.square(x))) for x in (predicted - measured, measured))
    same = np.sum(direction(predicted) == direction(measured))
    return (
        f"error {rms:.2f} octaves per doubling, root mean square ({none:.2f} if nothing moved); "
        f"down, stays or up right in {same} of {len(drifts)}"
    )


def direction(drifts: np.ndarray) -> np.ndarray:
    """-1, 0 or 1, as the library's default tolerance has it."""
    return np.sign(drifts) * (np.abs(drifts) > TOLERANCE)
