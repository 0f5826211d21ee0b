"""A law of sizes, log-linear with a slope that may wander, and what it predicts elsewhere.

    y(size) = c + s_w log2(width / base) + s_d log2(depth / base) + departures

Only dimensions that were varied have a slope. Two things make a prediction wrong, and its interval
holds both:

- **seeds**: the scatter of the law between seeds, by the jackknife with Student's t;
- **departures** of the sizes themselves from a straight law, which more seeds do not cure. They
  are a *wobble*, independent at each size, standard deviation tau (a parabola through grid points
  misses the optimum a little, and differently at each size), and a *wander* of the slope, a
  Brownian motion in log2 size with standard deviation lambda after one octave: bends, whose error
  grows with the distance as extrapolation errors do.

Given tau and lambda the prediction is the best linear one (universal kriging; with the wander alone
a cubic smoothing spline, continued): the last slopes count more than the first. Neither is known.
Both are learned from the residuals, as far as these exceed the scatter of seeds, and averaged over
with half-normal priors. With few sizes the priors decide much.

The generalized covariance of the wander is |x - x'|^3 / 12, valid for errors that leave the
straight law itself out, as those of predictions do.

*Source:* Wahba, Spline Models for Observational Data (1990), Section 1; Cressie, Statistics for
Spatial Data (1993), Section 3.4.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from depthmup.records import Estimate

Array = NDArray[np.float64]
Size = tuple[int, int]
AXES = ("width", "depth")
CONFIDENCE = 0.9
WOBBLE, WANDER = 0.05, 0.1
"""Scales of the half-normal priors of tau and lambda, in octaves of learning rate.

Slopes that were measured change by 0.1 to 0.2 from one doubling to the next; at 0.05 for the wander
intervals held 59% of 17 optima that they had not been set on, at 0.1 94% (docs/calibration.md).
"""
DRAWS = 4_000
"""Their quantiles scatter by about 2%."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A fitted law. ``values`` (sizes) and ``without`` (seeds, sizes) leaving out each seed.

    ``scale`` multiplies the priors' scales, for what is not measured in octaves of learning rate.
    ``stream`` numbers the draws: laws of different numbers err independently.
    """

    base: Size
    sizes: tuple[Size, ...]
    axes: tuple[str, ...]
    values: Array
    without: Array
    scale: float = 1.0
    stream: int = 0

    @cached_property
    def freedom(self) -> int:
        """Sizes beyond those that fix the coefficients."""
        return len(self.sizes) - int(np.linalg.matrix_rank(self.design(self.sizes)))

    def distances(self, sizes: Sequence[Size]) -> Array:
        """log2 of sizes over the base's, (sizes, dimensions that vary)."""
        found = np.log2(np.asarray(sizes, float) / np.asarray(self.base, float))
        return found[:, [AXES.index(a) for a in self.axes]]

    def design(self, sizes: Sequence[Size]) -> Array:
        return np.column_stack([np.ones(len(sizes)), self.distances(sizes)])

    @cached_property
    def inverse(self) -> Array:
        """Coefficients from values: least squares."""
        return np.asarray(np.linalg.pinv(self.design(self.sizes)), float)

    def weights(self, size: Size) -> Array:
        """w with law(size) = w . values."""
        found: Array = self.design([size])[0] @ self.inverse
        return found

    def reaches(self, size: Size) -> bool:
        """Whether the sizes determine the law there: w . design = design of the size."""
        held = [
            size[i] == self.base[i] or axis in self.axes or size[i] == self.sizes[0][i]
            for i, axis in enumerate(AXES)
        ]
        fits = self.weights(size) @ self.design(self.sizes)
        return all(held) and bool(np.allclose(fits, self.design([size])[0], atol=1e-6))

    @property
    def residuals(self) -> Array:
        found: Array = self.values - self.design(self.sizes) @ (self.inverse @ self.values)
        return found

    @property
    def fit_error(self) -> float:
        """Root mean square residual per degree of freedom."""
        if self.freedom < 1:
            return math.nan
        return float(np.linalg.norm(self.residuals) / math.sqrt(self.freedom))

    @cached_property
    def free(self) -> Array:
        """A basis of what no straight law fits, (sizes, freedom), in which wander is diagonal."""
        design = self.design(self.sizes)
        basis = np.linalg.svd(design)[0][:, np.linalg.matrix_rank(design) :]
        wander = basis.T @ _spline(self, self.sizes, self.sizes) @ basis
        return np.asarray(basis @ np.linalg.eigh(wander)[1], float)

    @cached_property
    def noise(self) -> float:
        """The variance of the residuals between seeds: the jackknife's, per degree of freedom."""
        deviation = (self.without - self.without.mean(0)) @ self.free
        seeds = len(self.without)
        return (seeds - 1) / seeds * float(np.sum(deviation**2)) / max(self.freedom, 1)

    @cached_property
    def unknowns(self) -> "_Unknowns":
        """Draws of all that is unknown: quadrature with a fixed seed, not measurement."""
        rng = np.random.default_rng(self.stream)
        tau, lam, weight = _departures(self)
        picked = rng.choice(len(weight), DRAWS, p=weight)
        return _Unknowns(
            tau=tau[picked],
            lam=lam[picked],
            normal=rng.standard_normal(DRAWS),
            student=rng.standard_t(len(self.without) - 1, DRAWS),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unknowns:
    """Draws of wobble, wander, and of the standard errors of departures and of seeds."""

    tau: Array
    lam: Array
    normal: Array
    student: Array


def fit(
    statistic: Callable[[Array], Array],
    losses: Array,
    sizes: Sequence[Size],
    base: Size,
    *,
    scale: float = 1.0,
    stream: int = 0,
) -> Law:
    """The law of a statistic that turns losses (sizes, rates, seeds) into values (sizes).

    Example:
        >>> sizes = [(64, 8), (64, 16), (64, 32)]
        >>> law = fit(lambda some: some.mean((1, 2)), np.ones((3, 5, 2)), sizes, (64, 8))
        >>> law.axes, law.freedom
        (('depth',), 1)
    """
    varied = tuple(a for i, a in enumerate(AXES) if len({size[i] for size in sizes}) > 1)
    seeds = losses.shape[-1]
    return Law(
        base=base,
        sizes=tuple(sizes),
        axes=varied,
        values=statistic(losses),
        without=np.array([statistic(np.delete(losses, s, axis=-1)) for s in range(seeds)])
        if seeds > 1
        else np.empty((0, len(sizes))),
        scale=scale,
        stream=stream,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A prediction and draws of what the truth may be, equally likely."""

    value: float
    draws: Array

    def estimate(self, unit: str = "", confidence: float = CONFIDENCE) -> Estimate:
        half = float(np.quantile(np.abs(self.draws - self.value), confidence))
        return Estimate(value=self.value, low=self.value - half, high=self.value + half, unit=unit)


def predict(law: Law, size: Size, *, minus: Size | None = None) -> Prediction:
    """The law at a size (less that at another one), with draws of the truth.

    The straight law's error there is e = w . departures(sizes) - departure(size), and of it the
    residuals r tell cov(e, r) var(r)^-1 r.
    """
    weights = law.weights(size) - (law.weights(minus) if minus else 0.0)
    nodes = [*law.sizes, size, *([minus] if minus else [])]
    c = np.concatenate([weights, [-1.0], [1.0] * (minus is not None)])
    same = np.array([[a == b for b in nodes] for a in nodes], float)
    spline = _spline(law, nodes, nodes)
    count, u = len(law.sizes), law.unknowns
    tau, lam = u.tau[:, None] ** 2, u.lam[:, None] ** 2
    residual, total = law.free.T @ law.values, _variance(law, tau, lam)
    shared = tau * (law.free.T @ (same @ c)[:count]) + lam * (law.free.T @ (spline @ c)[:count])
    known = (shared / total) @ residual
    unknown = (tau * (c @ same @ c) + lam * (c @ spline @ c))[:, 0] - (shared**2 / total).sum(-1)
    seeds = len(law.without)
    within = law.without @ weights
    error = math.sqrt((seeds - 1) / seeds * float(np.sum((within - within.mean()) ** 2)))
    straight = float(weights @ law.values)
    draws = straight - known + np.sqrt(np.maximum(unknown, 0.0)) * u.normal + error * u.student
    return Prediction(value=straight - float(known.mean()), draws=draws)


def _spline(law: Law, rows: Sequence[Size], columns: Sequence[Size]) -> Array:
    """The generalized covariance of the wander, of variance 1 after one octave."""
    x, y = law.distances(rows), law.distances(columns)
    found: Array = (np.abs(x[:, None] - y[None]) ** 3 / 12).sum(-1)
    return found


def _variance(law: Law, tau_squared: Array, lam_squared: Array) -> Array:
    """Variances of the residuals in the basis ``free``, (..., freedom)."""
    wander = np.diag(law.free.T @ _spline(law, law.sizes, law.sizes) @ law.free)
    found: Array = law.noise + tau_squared + lam_squared * np.maximum(wander, 0.0)
    return found


def _departures(law: Law) -> tuple[Array, Array, Array]:
    """A grid of (tau, lambda) and its posterior weights, from the residuals of the law."""
    steps = np.exp(np.linspace(-4, 2.5, 27))
    wobble, wander = law.scale * WOBBLE, law.scale * WANDER
    tau, lam = (g.ravel() for g in np.meshgrid(wobble * steps, wander * steps))
    # Half-normal densities on a logarithmic grid.
    prior = np.log(tau * lam) - 0.5 * ((tau / wobble) ** 2 + (lam / wander) ** 2)
    variance = _variance(law, tau[:, None] ** 2, lam[:, None] ** 2)
    residual = law.free.T @ law.values
    log = prior - 0.5 * (np.log(variance) + residual**2 / variance).sum(-1)
    weight = np.exp(log - log.max())
    return tau, lam, weight / weight.sum()
