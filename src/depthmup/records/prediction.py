"""Where SGD's best learning rate is predicted to move, from networks at initialization."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from depthmup.records.finding import Estimate, change, change_span
from depthmup.records.study import Axis, plural


@dataclass(frozen=True, kw_only=True, slots=True)
class SharpnessAt:
    """One size: ``curvature`` lambda_max(D^1/2 G D^1/2) per unit of the base's learning rate, and
    ``octaves``, log2 of the predicted best learning rate over the base's; intervals over seeds.

    Attributes:
        size: by axis.
    """

    size: Mapping[Axis, int]
    curvature: Estimate
    octaves: Estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisPrediction:
    """The sizes along one axis, and the drift in octaves of learning rate per doubling.

    Attributes:
        axis: that grows.
        sizes: the base first.
        drift: with its interval over seeds.
    """

    axis: Axis
    sizes: tuple[SharpnessAt, ...]
    drift: Estimate


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """How the best learning rate of a model is predicted to move under a scheme's plan.

    ``tolerance``: octaves per doubling within which it counts as staying.

    Attributes:
        title: the model and the scheme in words.
        scheme, optimizer: by their names.
        base: by axis.
        axes: one for each axis that was asked for.
        seeds: networks of each size.
        confidence: of every interval.
        notes: what a reader should know beyond the numbers.
        seconds: that it took.
    """

    title: str
    scheme: str
    optimizer: str
    base: Mapping[Axis, int]
    axes: tuple[AxisPrediction, ...]
    seeds: int
    confidence: float
    tolerance: float
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    def drift(self, axis: Axis) -> Estimate:
        """The drift along an axis.

        Raises:
            KeyError: no sizes along it were asked for.
        """
        for along in self.axes:
            if along.axis == axis:
                return along.drift
        raise KeyError(f"No sizes along {axis} were asked for: give {plural(axis)}=(...).")

    def moves(self, axis: Axis) -> bool | None:
        """Whether the drift lies outside the tolerance; None where the interval holds both."""
        stays = self.drift(axis).within(-self.tolerance, self.tolerance)
        return None if stays is None else not stays


def direction(prediction: Prediction, axis: Axis) -> str:
    """Whether the best learning rate is predicted to move along an axis."""
    drift = prediction.drift(axis)
    if not math.isfinite(drift.value):
        return f"Along {axis} nothing is predicted: a network explodes at initialization"
    moved = f"moves {'up' if drift.value > 0 else 'down'}"
    way = {True: moved, False: "stays", None: "may stay or move"}[prediction.moves(axis)]
    return f"Along {axis} the best learning rate {way}"


def sentence(prediction: Prediction, axis: Axis) -> str:
    """What is predicted along an axis, in one sentence.

    Args:
        prediction: of a network's optimum.
        axis: width or depth.

    Returns:
        The sentence.

    Example:
        >>> from depthmup.records import AxisPrediction, Estimate, Prediction
        >>> octaves = Estimate(value=-0.5, low=-0.6, high=-0.4)
        >>> along = AxisPrediction(axis="depth", sizes=(), drift=octaves)
        >>> forecast = Prediction(title="mine", scheme="SP", optimizer="sgd", seeds=4,
        ...     base={"width": 64, "depth": 4}, axes=(along,), confidence=0.95, tolerance=0.15)
        >>> print(sentence(forecast, "depth").split(",")[0])
        Along depth the best learning rate moves down: −29% per doubling
    """
    drift, what = prediction.drift(axis), direction(prediction, axis)
    if not math.isfinite(drift.value):
        return f"{what}."
    return (
        f"{what}: {change(drift.value)} per doubling, "
        f"{prediction.confidence:.0%} interval over seeds {change_span(drift.low, drift.high)}."
    )
