"""A law of sizes, log-linear, and what it predicts where nothing was measured.

    y(size) = c + s_w log2(width / base) + s_d log2(depth / base) + departures

Only dimensions that were varied have a slope. Coefficients are least squares. Two things make a
prediction wrong, and its interval holds both:

- **seeds**: the scatter of the fit between seeds, by the jackknife with Student's t;
- **departures** of the sizes themselves from the law, which more seeds do not cure. They are a
  *wobble*, independent at each size, standard deviation tau (a parabola through grid points misses
  the optimum a little, and differently at each size), and a *wander* of the slope, a Brownian
  motion in log2 size with standard deviation lambda after one octave: bends that grow with the
  distance, as extrapolation errors do. Neither is known; both are learned from the residuals, as
  far as these exceed the scatter of seeds, and averaged over with half-Cauchy priors of scale 0.05
  octaves. With few sizes the prior decides; with residuals well above it, they do.

The generalized covariance of the wander is |x - x'|^3 / 12 (a cubic spline), valid for errors that
leave the law itself out, as those of predictions do.
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
DEPARTURE = 0.05
"""Scale of the priors of wobble and wander, octaves: half of all departures are expected below."""
DRAWS = 4_000
"""Their quantiles scatter by about 2%."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A fitted law. ``values`` (sizes) and ``without`` (seeds, sizes) leaving out each seed.

    ``stream`` numbers the draws: laws of different numbers err independently.
    """

    base: Size
    sizes: tuple[Size, ...]
    axes: tuple[str, ...]
    values: Array
    without: Array
    scale: float = DEPARTURE
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

    def at(self, size: Size) -> float:
        return float(self.weights(size) @ self.values)

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
    def errors(self) -> "_Errors":
        """Draws of what is unknown: quadrature with a fixed seed, not measurement."""
        rng = np.random.default_rng(self.stream)
        tau, lam, weight = _departures(self)
        picked = rng.choice(len(weight), DRAWS, p=weight)
        return _Errors(
            tau=tau[picked],
            lam=lam[picked],
            normal=rng.standard_normal(DRAWS),
            student=rng.standard_t(len(self.without) - 1, DRAWS),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Errors:
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
    scale: float = DEPARTURE,
    stream: int = 0,
) -> Law:
    """The law of a statistic that turns losses (sizes, rates, seeds) into values (sizes).

    Example:
        >>> sizes = [(64, 8), (64, 16), (64, 32)]
        >>> law = fit(lambda some: some.mean((1, 2)), np.array([[[1., 1.]], [[2., 2.]],
        ...     [[3., 3.]]]), sizes, (64, 8))
        >>> law.axes, round(law.at((64, 64)), 9)
        (('depth',), 4.0)
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
    """The law at a size (less that at another one), with draws of the truth."""
    weights = law.weights(size) - (law.weights(minus) if minus else 0.0)
    value = float(weights @ law.values)
    seeds = len(law.without)
    within = law.without @ weights
    error = math.sqrt((seeds - 1) / seeds * float(np.sum((within - within.mean()) ** 2)))
    # Errors: sum_i w_i (departure at size i) - (departure at the target) + (that at the other).
    nodes = [*law.sizes, size, *([minus] if minus else [])]
    c = np.concatenate([weights, [-1.0], [1.0] * (minus is not None)])
    same = np.array([[a == b for b in nodes] for a in nodes], float)
    wobble, wander = max(c @ same @ c, 0.0), max(c @ _spline(law, nodes) @ c, 0.0)
    e = law.errors
    departures = np.sqrt(e.tau**2 * wobble + e.lam**2 * wander) * e.normal
    return Prediction(value=value, draws=value + departures + error * e.student)


def _spline(law: Law, nodes: Sequence[Size]) -> Array:
    x = law.distances(nodes)
    found: Array = (np.abs(x[:, None] - x[None]) ** 3 / 12).sum(-1)
    return found


def _departures(law: Law) -> tuple[Array, Array, Array]:
    """A grid of (tau, lambda) and its posterior weights, from the residuals of the law."""
    steps = np.exp(np.linspace(-6, 6, 25))
    tau, lam = (g.ravel() for g in np.meshgrid(law.scale * steps, law.scale * steps))
    # Half-Cauchy densities on a logarithmic grid.
    prior = np.log(tau) + np.log(lam) - np.log1p((tau / law.scale) ** 2)
    prior -= np.log1p((lam / law.scale) ** 2)
    x = law.design(law.sizes)
    rank = int(np.linalg.matrix_rank(x))
    free = np.linalg.svd(x)[0][:, rank:]  # a basis of what no law can fit
    residual = free.T @ law.values
    deviation = (law.without - law.without.mean(0)) @ free
    seeds = len(law.without)
    noise = (seeds - 1) / seeds * float(np.sum(deviation**2)) / max(free.shape[1], 1)
    wander = free.T @ _spline(law, law.sizes) @ free
    # Eigenvectors of the wander are shared by all (tau, lambda).
    values, vectors = np.linalg.eigh(wander)
    variance = noise + tau[:, None] ** 2 + lam[:, None] ** 2 * np.maximum(values, 0.0)
    turned = (vectors.T @ residual) ** 2
    log = prior - 0.5 * (np.log(variance) + turned / variance).sum(-1)
    weight = np.exp(log - log.max())
    return tau, lam, weight / weight.sum()
