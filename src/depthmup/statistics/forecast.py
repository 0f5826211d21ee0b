"""What the posterior says of a target: its optimum, the cost of any rate there, and the verdict.

The minimum at the target has the law's distribution, its scatter included (``posterior.law``). The
valley there is that of the runs, grown to the target by its own trends. Excess losses are read from
draws of both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from depthmup.posterior import Posterior
from depthmup.posterior.intervals import Array, around, student
from depthmup.posterior.law import Size
from depthmup.posterior.valley import SHARED, rise
from depthmup.records import LEARNING_RATE, Estimate, Tuned
from depthmup.records.certificate import AxisSlope, BandPoint, Metrics
from depthmup.records.finding import verdict_of, verdict_of_all
from depthmup.statistics.directions import Directions
from depthmup.statistics.minimum import Minima

CONFIDENCE = 0.9
"""Of predictions."""

FARTHEST = 16
"""How many times the largest size measured a target may be, along each axis."""

DRAWS = 1_000
"""Their quantiles scatter by about 2% of a deviation."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """The posterior of some sizes, asked for a target."""

    found: Minima
    where: Directions
    target: Size

    @property
    def posterior(self) -> Posterior:
        return self.found.posterior

    def _places(self, sizes: Sequence[Size]) -> Array:
        return self.where.doublings(sizes)

    def optimum(self, size: Size, unit: str = "") -> Estimate:
        """The minimum at a size that was not trained."""
        row = np.ones((1, 1))
        there = self.posterior.of_law(row, self._places([size]), scatter=True)
        return there.estimate(CONFIDENCE, unit)

    @cached_property
    def handed_on(self) -> float:
        """The log2 rate that the base would hand on: its optimum, as measured or by the law."""
        for size, value in zip(self.where.sizes, self.found.at, strict=True):
            if dict(size) == dict(self.where.base):
                return float(value)
        return self.optimum(self.where.base).value

    def excess(self, size: Size) -> Callable[[Array], Array]:
        """Quantiles (5%, 50%, 95%) of the fraction by which a rate exceeds the best loss there."""
        place = self._places([size])
        rng = np.random.default_rng(0)
        there = self.posterior.of_law(np.ones((1, 1)), place, scatter=True)
        best = there.quantiles(rng.permutation((np.arange(DRAWS) + 0.5) / DRAWS))
        mean, covariance = self.posterior.mode.fit.shape[0], self.posterior.shape_covariance
        root = np.linalg.cholesky(covariance + 1e-12 * np.eye(len(covariance)))
        shapes = mean + rng.standard_normal((DRAWS, len(mean))) @ root.T
        beyond = self._diverged

        def of(log2_rates: Array) -> Array:
            u = np.asarray(log2_rates, float)[None, None] - best[:, None, None]
            with np.errstate(over="ignore"):
                draws = np.expm1(rise(u, shapes, place).height[:, 0])
            draws = np.where(u[:, 0] >= beyond, math.inf, draws)
            tail = (1 - CONFIDENCE) / 2
            # Between a finite and an infinite draw there is nothing.
            return np.asarray(
                np.quantile(draws, [tail, 0.5, 1 - tail], axis=0, method="inverted_cdf")
            )

        return of

    @cached_property
    def _diverged(self) -> float:
        """Octaves above the minimum from which on training diverges at every size, if so."""
        fitted = self.found.fitted
        x, y = fitted.curves.log2_lrs, fitted.log_losses
        above = np.isposinf(y) & (x > self.found.at[:, None])
        first = np.where(above, x - self.found.at[:, None], math.inf).min(-1)
        return float(first.max())

    def slope(self, axes: Sequence[str]) -> AxisSlope:
        """The law's mean slope from base to target along an axis, or along axes in step.

        Where the target is no larger than the base, that to the largest size, or to the smallest.
        The slope may depend on the other axes: it is the mean of that at the base's and that at the
        target's, so that the changes along all axes add up to that from the base to the target.
        """
        axis, base, sizes = axes[0], self.where.base, self.where.sizes
        ends = (self.target, *(pick(sizes, key=lambda size: size[axis]) for pick in (max, min)))
        to = next(size for size in ends if size[axis] != base[axis])
        doublings = math.log2(to[axis] / base[axis])
        places: list[Size] = []
        for others in (base, self.target):
            places += [{**others, **{a: to[a] for a in axes}}]
            places += [{**others, **{a: base[a] for a in axes}}]
        row = np.array([[1.0, -1.0, 1.0, -1.0]]) / 2 / doublings
        law = self.posterior.of_law(row, self._places(places), scatter=False)
        return AxisSlope(
            axis=axis,
            estimate=law.estimate(CONFIDENCE, f"per doubling of {axis}"),
            together=tuple(axes[1:]),
        )

    @cached_property
    def slopes(self) -> tuple[AxisSlope, ...]:
        """The law's slope along each axis; axes in step have one."""
        firsts = {axes[0]: axes for axes in self.where.in_step}
        others = {axis for axes in self.where.in_step for axis in axes[1:]}
        return tuple(
            self.slope(firsts.get(axis, (axis,))) for axis in self.where.axes if axis not in others
        )

    @property
    def best_loss(self) -> Estimate:
        """The loss at the target's optimum, by the law of levels."""
        sizes = self.where.sizes
        frontier = self.found.frontier(range(len(sizes)), self._places(sizes))
        row = np.append(np.zeros(len(sizes)), 1.0)[None]
        log = frontier.course.of(row, self._places([self.target]))
        return log.estimate(CONFIDENCE).exp()

    @property
    def fit_error(self) -> float:
        """Root mean square residual of a straight law per degree of freedom."""
        if self.where.freedom < 1:
            return math.nan
        straight, at = self.where.straight, self.found.at
        residuals = at - straight @ (np.linalg.pinv(straight, rcond=1e-10) @ at)
        return float(np.linalg.norm(residuals) / math.sqrt(self.where.freedom))

    @property
    def robustness(self) -> tuple[AxisSlope, ...]:
        """log2 of how steep valleys are, per doubling of each axis."""
        rows = []
        for number, axis in enumerate(self.where.axes):
            at = SHARED + number
            value = float(self.posterior.mode.fit.shape[0, at]) / math.log(2)
            error = math.sqrt(float(self.posterior.shape_covariance[at, at])) / math.log(2)
            estimate = around(value, float(student(math.inf, CONFIDENCE)) * error)
            rows.append(AxisSlope(axis=axis, estimate=estimate))
        return tuple(rows)

    @property
    def horizon(self) -> Size:
        """Sixteen times the largest size measured along every axis varied, where that is known."""
        sizes, axes = self.where.sizes, self.where.axes
        far = {
            axis: FARTHEST * max(size[axis] for size in sizes) if axis in axes else sizes[0][axis]
            for axis in self.where.base
        }
        return far if self.where.reaches(far) else self.target

    def band(self) -> tuple[BandPoint, ...]:
        """The law from the base to the target along the straight line of log sizes.

        ``at`` is the fraction of the way from base to target.
        """
        ways, base = np.linspace(0, 1, 33), self.where.base
        sizes = [{a: base[a] * (self.target[a] / base[a]) ** float(w) for a in base} for w in ways]
        law = self.posterior.of_law(np.eye(len(ways)), self._places(sizes), scatter=True)
        return tuple(
            BandPoint(at=float(w), value=float(v), low=float(a), high=float(b))
            for w, a, v, b in zip(ways, *law.interval(CONFIDENCE), strict=True)
        )


def conclude(
    found: Minima,
    where: Directions,
    target: Size,
    tolerance: float,
    tuned: Tuned = LEARNING_RATE,
) -> dict[str, Any]:
    """Everything that an issued certificate says."""
    forecast = Forecast(found=found, where=where, target=target)
    predicted = forecast.optimum(target, f"log2 {tuned.name} at the base")
    handed_on = forecast.handed_on
    # An octave and a half beyond both rates: the curve's walls are in view on either side.
    low, high = min(predicted.low, handed_on) - 1.5, max(predicted.high, handed_on) + 1.5
    rates = np.linspace(low, high, 61)
    curve = forecast.excess(target)(np.array([predicted.value, handed_on, *rates])).T
    penalty, regret, *points = (
        Estimate(value=float(v), low=float(a), high=float(b), unit="of the loss")
        for a, v, b in curve
    )
    far = forecast.excess(forecast.horizon)(np.array([handed_on]))[:, 0]
    return {
        "slopes": forecast.slopes,
        "predicted": predicted,
        "penalty": penalty,
        "base_regret": regret,
        "best_loss": forecast.best_loss,
        "metrics": Metrics(
            fit_error=forecast.fit_error,
            robustness=forecast.robustness,
            horizon_penalty=Estimate(
                low=float(far[0]), value=float(far[1]), high=float(far[2]), unit="of the loss"
            ),
        ),
        "verdict": verdict_of_all(
            verdict_of(slope.estimate, -tolerance, tolerance) for slope in forecast.slopes
        ),
        "law": forecast.band(),
        "penalty_curve": tuple(
            BandPoint(at=float(k), value=p.value, low=p.low, high=p.high)
            for k, p in zip(rates, points, strict=True)
        ),
    }
