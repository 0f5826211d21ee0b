"""A law of sizes: log-linear, whose slopes may walk at random and whose axes may interact.

    y(size) = c + sum_a s_a x_a + sum_{a<b} s_ab x_a x_b + residuals,   x_a = log2(size_a / base_a)

Only axes that were varied have a slope. Three things make a prediction wrong, and its interval
holds them all:

- **seeds**: the scatter of the law between seeds, by the jackknife with Student's t;
- **what the fit of each size misses**, of known standard error (``statistics.optimum``);
- **residuals** of the sizes themselves about a straight law, which more seeds do not cure. They are
  a *scatter*, independent at each size, standard deviation tau; a *random walk* of each slope, a
  Brownian motion in log2 size with standard deviation lambda after one octave: bends, whose error
  grows with the distance as extrapolation errors do; and *interactions* s_ab of standard deviation
  iota, which sizes on arms that meet at the base do not show at all, and which walk at random as
  slopes do, with standard deviation iota after one octave of either axis.

Given tau, lambda and iota the prediction is the best linear one (universal kriging; with the random
walk alone a cubic smoothing spline, continued): the last slopes count more than the first. None of
the three is known. All are learned from the measured residuals, as far as these exceed the values'
own errors, and averaged over with half-normal priors. With few sizes the priors decide much.

The generalized covariance of the random walk is |x - x'|^3 / 12, valid for errors that leave the
straight law itself out, as those of predictions do. An interaction is zero on the arms, so that
its random walk begins there: twice integrated Brownian motion, min^2 (3 max - min) / 6, times the
other axis (a smoothing spline's analysis of variance).

*Source:* Wahba, Spline Models for Observational Data (1990), Section 1; Cressie, Statistics for
Spatial Data (1993), Section 3.4; Gu, Smoothing Spline ANOVA Models (2013), Section 2.4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

import numpy as np

from depthmup.records import Estimate
from depthmup.statistics.intervals import Array, Index, jackknife_error

Size: TypeAlias = Mapping[str, float]
"""Values by axis, such as ``{"width": 64, "depth": 8}``."""

CONFIDENCE = 0.9
"""Of predictions."""

SCATTER, RANDOM_WALK, INTERACTION = 0.05, 0.1, 0.07
"""Scales of the half-normal priors of tau, lambda and iota, in octaves of learning rate.

Slopes that were measured change by 0.1 to 0.2 from one doubling to the next. Of 17 optima that the
scales had not been set on, intervals held 59% with 0.05 for the random walk, and 94% with 0.1
(docs/calibration.md).
Interactions of width and depth were measured from -0.04 to -0.10 octaves per doubling squared.
"""

DRAWS = 4_000
"""Their quantiles scatter by about 2%."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """A fitted law.

    Attributes:
        base: values of the axes from which distances are counted.
        sizes: where it was measured.
        values: what was measured there, (sizes,).
        without: the same without each seed, (seeds, sizes).
        groups: of seeds trained at the same sizes (``Curves.groups``).
        known: standard errors of the values that seeds do not show, (sizes,).
        scale: multiplies the priors' scales, for what is not measured in octaves of learning rate.
        stream: numbers the draws: laws of different numbers err independently.
    """

    base: Size
    sizes: tuple[Size, ...]
    values: Array
    without: Array
    groups: Sequence[Index]
    known: Array
    scale: float = 1.0
    stream: int = 0

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes that were varied."""
        return tuple(a for a in self.base if len({size[a] for size in self.sizes}) > 1)

    @cached_property
    def freedom(self) -> int:
        """Sizes beyond those that fix the coefficients, interactions among them."""
        terms = [self.design(self.sizes), self.products(self.sizes)]
        return len(self.sizes) - int(np.linalg.matrix_rank(np.column_stack(terms)))

    def distances(self, sizes: Sequence[Size]) -> Array:
        """log2 of sizes over the base's, (sizes, axes that vary)."""
        rows = [[math.log2(size[a] / self.base[a]) for a in self.axes] for size in sizes]
        return np.reshape(np.array(rows, float), (len(sizes), len(self.axes)))

    def products(self, sizes: Sequence[Size]) -> Array:
        """x_a x_b for each pair of axes, (sizes, pairs)."""
        x = self.distances(sizes)
        pairs = list(combinations(range(len(self.axes)), 2))
        return np.reshape(np.array([x[:, a] * x[:, b] for a, b in pairs]).T, (len(x), len(pairs)))

    def design(self, sizes: Sequence[Size]) -> Array:
        """1 and the distances, (sizes, 1 + axes)."""
        return np.column_stack([np.ones(len(sizes)), self.distances(sizes)])

    @cached_property
    def inverse(self) -> Array:
        """Coefficients from values: least squares."""
        return np.asarray(np.linalg.pinv(self.design(self.sizes)), float)

    def weights(self, size: Size) -> Array:
        """w with straight law(size) = w . values."""
        return np.asarray(self.design([size])[0] @ self.inverse, float)

    def reaches(self, size: Size) -> bool:
        """Whether the sizes determine the straight law there: w . design = design of the size."""
        fixed = all(size[a] == self.sizes[0][a] for a in self.base if a not in self.axes)
        reproduced = self.weights(size) @ self.design(self.sizes)
        return fixed and bool(np.allclose(reproduced, self.design([size])[0], atol=1e-6))

    @property
    def residuals(self) -> Array:
        """Values less the straight law."""
        return np.asarray(self.values - self.design(self.sizes) @ (self.inverse @ self.values))

    @property
    def fit_error(self) -> float:
        """Root mean square residual per degree of freedom."""
        if self.freedom < 1:
            return math.nan
        return float(np.linalg.norm(self.residuals) / math.sqrt(self.freedom))

    def seed_error(self, weights: Array) -> tuple[float, float]:
        """Standard error between seeds, and its freedom, of weights . values."""
        if not len(self.without):
            return 0.0, math.inf
        error, freedom = jackknife_error(self.without @ weights, self.groups)
        return float(error), float(freedom)

    @cached_property
    def contrasts(self) -> Array:
        """A basis of what no straight law fits, (sizes, contrasts)."""
        design = self.design(self.sizes)
        return np.asarray(np.linalg.svd(design)[0][:, np.linalg.matrix_rank(design) :], float)

    @cached_property
    def noise(self) -> Array:
        """Covariance of the residuals in the contrasts that the values' own errors make."""
        free = self.contrasts
        known = free.T @ np.diag(self.known**2) @ free
        if not len(self.without) or not free.shape[1]:
            return np.asarray(known)
        variances = [self.seed_error(free[:, i])[0] ** 2 for i in range(free.shape[1])]
        # Few seeds show no covariances: the mean variance stands for all.
        return np.asarray(known + np.eye(free.shape[1]) * float(np.mean(variances)))

    @cached_property
    def unknowns(self) -> "_Unknowns":
        """Draws of all that is unknown: quadrature with a fixed seed, not measurement."""
        rng = np.random.default_rng(self.stream)
        grid, weight = _posterior(self)
        picks = rng.choice(len(weight), DRAWS, p=weight)
        _, freedom = self.seed_error(np.full(len(self.sizes), 1 / len(self.sizes)))
        return _Unknowns(
            grid=grid,
            picks=picks,
            normal=rng.standard_normal(DRAWS),
            student=rng.standard_t(min(freedom, 1e6), DRAWS),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unknowns:
    """A grid of (tau, lambda, iota)^2 and draws from it, and of standard errors."""

    grid: Array  # (points, 3)
    picks: Index
    normal: Array
    student: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A prediction and draws of what the truth may be, equally likely."""

    value: float
    draws: Array

    def estimate(self, unit: str = "", confidence: float = CONFIDENCE) -> Estimate:
        """The interval around the value that holds this share of the draws.

        Args:
            unit: of the value.
            confidence: the share of the draws.
        """
        half = float(np.quantile(np.abs(self.draws - self.value), confidence))
        return Estimate(value=self.value, low=self.value - half, high=self.value + half, unit=unit)

    def shifted(self, by: float, error: float, stream: int) -> "Prediction":
        """The prediction of this plus something of known value and standard error.

        Args:
            by: the value that is added.
            error: its standard error.
            stream: numbers the draws: additions of different numbers err independently.
        """
        normal = np.random.default_rng([stream, 1]).standard_normal(len(self.draws))
        return Prediction(value=self.value + by, draws=self.draws + by + error * normal)


def predict(law: Law, size: Size, *, minus: Size | None = None) -> Prediction:
    """The law at a size (less that at another one), with draws of the truth.

    The straight law's error there is e = w . residuals(sizes) - residual(size), and of it the
    residuals r tell cov(e, r) var(r)^-1 r.

    Args:
        law: the fitted law.
        size: where to predict.
        minus: predict the difference from the law there.

    Returns:
        The value and draws around it.

    Example:
        >>> sizes = tuple({"depth": d} for d in (8, 16, 32, 64))
        >>> law = Law(base={"depth": 8}, sizes=sizes, values=np.array([0.0, 0.1, 0.2, 0.3]),
        ...     without=np.zeros((0, 4)), groups=[], known=np.full(4, 0.02))
        >>> round(predict(law, {"depth": 256}).value, 2)
        0.5
    """
    weights = law.weights(size) - (law.weights(minus) if minus else 0.0)
    nodes = [*law.sizes, size, *([minus] if minus else [])]
    signs = np.concatenate([weights, [-1.0], [1.0] * (minus is not None)])
    count, free, u = len(law.sizes), law.contrasts, law.unknowns
    parts = _covariances(law, nodes)
    known = np.zeros((len(nodes), len(nodes)))
    known[np.arange(count), np.arange(count)] = law.known**2
    # For each part: its covariance with the residuals, and its variance, of the error.
    with_residual = np.stack([free.T @ (part @ signs)[:count] for part in parts])
    variance = np.array([signs @ part @ signs for part in parts])
    points, inverse = np.unique(u.picks, return_inverse=True)
    grid = u.grid[points]
    shared = grid @ with_residual + free.T @ (known @ signs)[:count]
    residual = free.T @ law.values
    known_part = np.zeros(len(points))
    left = grid @ variance + signs @ known @ signs
    if free.shape[1]:
        solved = np.concatenate(
            [
                np.linalg.solve(_totals(law, grid[part]), shared[part][..., None])[..., 0]
                for part in _parts(len(grid), len(residual))
            ]
        )
        known_part = solved @ residual
        left = left - (solved * shared).sum(-1)
    straight = float(weights @ law.values)
    error, _ = law.seed_error(weights)
    spread = np.sqrt(np.maximum(left, 0.0))[inverse] * u.normal + error * u.student
    draws = straight - known_part[inverse] + spread
    return Prediction(value=straight - float(known_part[inverse].mean()), draws=draws)


def _covariances(law: Law, nodes: Sequence[Size]) -> list[Array]:
    """Of residuals at nodes for unit tau, lambda and iota."""
    x, products = law.distances(nodes), law.products(nodes)
    scatter = np.array([[float(a == b) for b in nodes] for a in nodes])
    walk = (np.abs(x[:, None] - x[None]) ** 3 / 12).sum(-1)
    return [scatter, walk, products @ products.T + _walk_of_products(x)]


def _walk_of_products(x: Array) -> Array:
    """Covariance of interactions that walk at random from the arms: W_a x_b + x_a W_b, W unit."""
    near, far = (pick(abs(x)[:, None], abs(x)[None]) for pick in (np.minimum, np.maximum))
    same_side = x[:, None] * x[None] > 0
    walks = np.where(same_side, near**2 * (3 * far - near) / 6, 0.0)
    lines = x[:, None] * x[None]
    pairs = combinations(range(x.shape[1]), 2)
    zero = np.zeros((len(x), len(x)))
    return np.asarray(
        sum((walks[..., a] * lines[..., b] + lines[..., a] * walks[..., b] for a, b in pairs), zero)
    )


def _totals(law: Law, grid: Array) -> Array:
    """Covariances of the residuals in the contrasts, (points, contrasts, contrasts)."""
    free = law.contrasts
    parts = np.stack([free.T @ part @ free for part in _covariances(law, law.sizes)])
    return np.asarray(law.noise + np.einsum("gp,pij->gij", grid, parts))


def _parts(points: int, contrasts: int) -> list[slice]:
    """Parts of a grid whose covariances take some 64 MB together, however many sizes there are."""
    step = max(1, 2**23 // max(contrasts, 1) ** 2)
    return [slice(start, start + step) for start in range(0, points, step)]


def _posterior(law: Law) -> tuple[Array, Array]:
    """A grid of squared (tau, lambda, iota) and its posterior weights, from the residuals."""
    steps = np.exp(np.linspace(-4, 2.5, 21))
    together = law.products(law.sizes).shape[1] > 0
    scales = law.scale * np.array([SCATTER, RANDOM_WALK, INTERACTION])
    last = steps[::2] if together else np.zeros(1)
    mesh = np.stack(np.meshgrid(steps, steps, last, indexing="ij"), -1).reshape(-1, 3)
    # Half-normal densities on a logarithmic grid.
    log = np.log(mesh[:, :2]).sum(-1) - 0.5 * (mesh**2).sum(-1)
    log = log + (np.log(mesh[:, 2]) if together else 0.0)
    grid = (mesh * scales) ** 2
    residual = law.contrasts.T @ law.values
    if len(residual):
        for part in _parts(len(grid), len(residual)):
            total = _totals(law, grid[part])
            right = np.broadcast_to(residual[:, None], (len(total), len(residual), 1))
            solved = np.linalg.solve(total, right)[..., 0]
            log[part] -= 0.5 * (np.linalg.slogdet(total)[1] + residual @ solved.T)
    weight = np.exp(log - log.max())
    return grid, weight / weight.sum()
