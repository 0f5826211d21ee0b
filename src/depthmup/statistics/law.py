"""A law of sizes: its slope along each axis changes with size, and axes may interact.

    y(size) = c + sum_a int_0^{x_a} s_a(t) dt + sum_{a<b} s_ab x_a x_b + scatter,
    x_a = log2(size_a / base_a)

Each slope s_a is a stationary Gaussian process of mean 0 and standard deviation sigma, whose
correlation over d doublings is exp(-d / ell) (Ornstein and Uhlenbeck's). Along the sizes measured
it follows the data; beyond them it returns to 0 over ell doublings, more along width and depth
(``OF_AXES``). So the law bends, and the prediction lies between the nearest size's value and the
straight line: near the line where the sizes show one slope for many doublings, near the size where
they do not. Three things make it wrong, and its interval holds them all:

- **seeds**: the scatter of the law between seeds, by the jackknife with Student's t;
- **what the fit of the valleys misses**, of known covariance (``statistics.valley``);
- **the law itself**: what slopes do between and beyond the sizes; a *scatter* of each size about
  the law, standard deviation tau; and *interactions* s_ab of standard deviation iota, which sizes
  on arms that meet at the base do not show at all, and which walk at random as sizes grow, with
  standard deviation iota after one octave of either axis.

Given sigma, ell, tau and iota the prediction is the best linear one (kriging with an unknown mean).
None of the four is known. All are learned from the values, as far as these exceed their own errors,
and averaged over with priors. With few sizes the priors decide much.

The covariance of an integrated slope is that of Brownian motion with drift that forgets: with
g(d) = 2 ell^2 (d / ell - 1 + exp(-d / ell)), the variance of its increment over d doublings,
cov = sigma^2 (g(|x|) + g(|x'|) - g(|x - x'|)) / 2. An interaction is zero on the arms, so that
its random walk begins there: twice integrated Brownian motion, min^2 (3 max - min) / 6, times the
other axis (a smoothing spline's analysis of variance).

*Source:* Cressie, Statistics for Spatial Data (1993), Section 3.4, for kriging; Uhlenbeck and
Ornstein (1930), Physical Review 36:823-841, for g; Gu, Smoothing Spline ANOVA Models (2013),
Section 2.4, for interactions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from depthmup.records import Estimate
from depthmup.statistics.intervals import Array, Index, jackknife_error
from depthmup.statistics.table import confounded

Size: TypeAlias = Mapping[str, float]
"""Values by axis, such as ``{"width": 64, "depth": 8}``."""

CONFIDENCE = 0.9
"""Of predictions."""

SLOPE, MEMORY, SCATTER, INTERACTION = 0.25, 1.0, 0.04, 0.07
"""Priors of sigma, ell, tau and iota, in octaves of learning rate and doublings: medians of the
first two, ``SPREADS`` in their logarithms, and scales of half-normal ones.

They were set on one public table, of 1,911 runs with one seed. On two others the 90% intervals of
73 predictions, up to two doublings ahead, held 96%, with a root mean square error of 0.34 octaves,
against 0.40 of the nearest size's own optimum (docs/studies/statistics.md).
Interactions of width and depth were measured from -0.04 to -0.10 octaves per doubling squared.
"""

SPREADS, TAILS = (0.6, 0.4), 3.0
"""Of log sigma and log ell about their medians: a normal standard deviation, and a scale of
Student's t of so many degrees of freedom, as some laws are straight over many doublings."""

OF_AXES = {"width": (1.6, 32.0), "depth": (1.0, 4.0)}
"""How many times as steep laws are along an axis, and as long their slopes are remembered.

Along width theory has powers: of 0 where a scheme transfers, of -1 of hidden matrices under the
standard parametrization. On networks trained here wrong schemes drift on at the same slope, which
bends along depth; batches, tokens and ranks of public tables do not.
"""

STILL, STILL_SPREAD, STANDING = 0.05, 0.5, 0.2
"""Median of sigma where a law stands still, as under a parametrization that transfers; the standard
deviation of its logarithm; and the share of such laws."""

ROUNDED = 0.25
"""Doublings by which a size may lie beside the line of axes in step. Slopes apart from each other
move its optimum by ``SLOPE`` times as much, which the interval holds."""

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
        known: covariance of the values' errors that seeds do not show, (sizes, sizes).
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
    def in_step(self) -> list[tuple[str, ...]]:
        """Sets of axes that grew together: sizes show one slope of all in a set."""
        values = np.array([[size[a] for a in self.axes] for size in self.sizes], float)
        return confounded(values, self.axes)

    @cached_property
    def freedom(self) -> int:
        """Sizes beyond those that fix the coefficients, interactions among them."""
        return len(self.sizes) - int(np.linalg.matrix_rank(self.terms))

    @cached_property
    def of_axes(self) -> Array:
        """How steep each axis is, and how long its slopes are remembered, (2, axes)."""
        return np.reshape([OF_AXES.get(axis.lower(), (1.0, 1.0)) for axis in self.axes], (-1, 2)).T

    def distances(self, sizes: Sequence[Size]) -> Array:
        """log2 of sizes over the base's, (sizes, axes that vary)."""
        rows = [[math.log2(size[a] / self.base[a]) for a in self.axes] for size in sizes]
        return np.reshape(np.array(rows, float), (len(sizes), len(self.axes)))

    def products(self, sizes: Sequence[Size]) -> Array:
        """x_a x_b for each pair of axes, (sizes, pairs)."""
        return _products(self.distances(sizes))

    def design(self, sizes: Sequence[Size]) -> Array:
        """1 and the distances, (sizes, 1 + axes)."""
        return np.column_stack([np.ones(len(sizes)), self.distances(sizes)])

    @cached_property
    def straight(self) -> Array:
        """The design of the sizes measured.

        Where they leave none to spare, those of axes in step stand on one line through the base.
        """
        x, column = self.distances(self.sizes), {a: i for i, a in enumerate(self.axes)}
        whole = np.column_stack([np.ones(len(x)), x, _products(x)])
        for first, *others in self.in_step if np.linalg.matrix_rank(whole) == len(x) else ():
            along = x[:, column[first]]
            for axis in others:
                x[:, column[axis]] = along * (along @ x[:, column[axis]] / (along @ along))
        return np.column_stack([np.ones(len(x)), x])

    @cached_property
    def terms(self) -> Array:
        """The same with the products of axes, but of those that stand on one line."""
        x = self.straight[:, 1:]
        rank = np.linalg.matrix_rank
        kept = [i for i in range(x.shape[1]) if rank(x[:, : i + 1]) > rank(x[:, :i])]
        return np.column_stack([self.straight, _products(x[:, kept])])

    @cached_property
    def inverse(self) -> Array:
        """Coefficients from values: least squares."""
        return np.asarray(np.linalg.pinv(self.straight, rcond=1e-10), float)

    def weights(self, size: Size) -> Array:
        """w with straight law(size) = w . values."""
        return np.asarray(self.design([size])[0] @ self.inverse, float)

    def reaches(self, size: Size) -> bool:
        """Whether the sizes determine the straight law there: w . design = design of the size.

        Beside the line of axes in step it may lie as far as whole numbers of layers and heads do.
        """
        fixed = all(size[a] == self.sizes[0][a] for a in self.base if a not in self.axes)
        off = self.weights(size) @ self.straight - self.design([size])[0]
        return fixed and bool(np.linalg.norm(off) <= (ROUNDED if self.in_step else 1e-6))

    @property
    def residuals(self) -> Array:
        """Values less the straight law."""
        return np.asarray(self.values - self.straight @ (self.inverse @ self.values))

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
        """A basis of differences between sizes, (sizes, sizes - 1)."""
        return np.asarray(np.linalg.svd(np.ones((len(self.sizes), 1)))[0][:, 1:], float)

    @cached_property
    def of_seeds(self) -> float:
        """Variance of one size's value between seeds, the mean over contrasts."""
        free = self.contrasts
        if not len(self.without) or not free.shape[1]:
            return 0.0
        # Few seeds show no covariances: the mean variance stands for all.
        return float(np.mean([self.seed_error(column)[0] ** 2 for column in free.T]))

    @cached_property
    def unknowns(self) -> tuple[Array, Array, Index, Array, Array]:
        """Draws of all that is unknown: quadrature with a fixed seed, not measurement.

        Points (sigma^2, ell, tau^2, iota^2), the inverse covariance of the differences between
        sizes at each, and draws: of points, and of a normal and of Student's standard error.
        """
        rng = np.random.default_rng(self.stream)
        grid, weight = _posterior(self)
        picks, inverse = np.unique(rng.choice(len(weight), DRAWS, p=weight), return_inverse=True)
        _, freedom = self.seed_error(np.full(len(self.sizes), 1 / len(self.sizes)))
        precision = np.asarray(np.linalg.inv(_totals(self, grid[picks])), float)
        normal, t = rng.standard_normal(DRAWS), rng.standard_t(min(freedom, 1e6), DRAWS)
        return grid[picks], precision, inverse, normal, t


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """A prediction and draws of what the truth may be, equally likely."""

    value: float
    draws: Array

    def estimate(self, unit: str = "", confidence: float = CONFIDENCE) -> Estimate:
        """The interval around the value that holds this share of the draws."""
        half = float(np.quantile(np.abs(self.draws - self.value), confidence))
        return Estimate(value=self.value, low=self.value - half, high=self.value + half, unit=unit)

    def blurred(self, error: float, stream: int) -> "Predicted":
        """The same with an error of its own; those of other streams are independent of it."""
        normal = np.random.default_rng([stream, 1]).standard_normal(len(self.draws))
        return Predicted(value=self.value, draws=self.draws + error * normal)


def _products(x: Array) -> Array:
    """x_a x_b for each pair of columns, (sizes, pairs)."""
    pairs = list(combinations(range(x.shape[1]), 2))
    return np.reshape(np.array([x[:, a] * x[:, b] for a, b in pairs]).T, (len(x), len(pairs)))


def predict(law: Law, size: Size, *, minus: Size | None = None) -> Predicted:
    """The law at a size (less that at another one), with draws of the truth.

    The mean of the values errs by e = mean - y(size), and of it the values' differences r tell
    cov(e, r) var(r)^-1 r.
    """
    count, free = len(law.sizes), law.contrasts
    grid, precision, picks, normal, student = law.unknowns
    mean = np.full(count, 0.0 if minus else 1 / count)
    signs = np.concatenate([mean, [-1.0], [1.0] * (minus is not None)])
    own = np.zeros((len(signs), len(signs)))
    own[:count, :count] = law.known + law.of_seeds * np.eye(count)
    covariance = _covariance(law, [*law.sizes, size, *([minus] if minus else [])])
    # Of the error: its covariance with the differences, and its variance.
    shared = covariance(grid, lambda part: (part @ signs)[:count] @ free)
    shared = shared + (own @ signs)[:count] @ free
    variance = covariance(grid, lambda part: signs @ part @ signs) + float(signs @ own @ signs)
    gains = np.einsum("pij,pj->pi", precision, shared)
    weights = mean - gains @ free.T
    variance = variance - (gains * shared).sum(-1)
    # Of seeds, the jackknife and Student's t say more than a variance that counts as known.
    left = np.maximum(variance - law.of_seeds * (weights**2).sum(-1), 0.0)
    values = weights @ law.values
    shares = np.bincount(picks) / len(picks)
    error, _ = law.seed_error(shares @ weights)
    spread = np.sqrt(left)[picks] * normal + error * student
    return Predicted(value=float(shares @ values), draws=values[picks] + spread)


def _covariance(
    law: Law, nodes: Sequence[Size]
) -> Callable[[Array, Callable[[Array], Any]], Array]:
    """Linear functionals of the covariance of nodes, given the points of a grid."""
    x, pairs = law.distances(nodes), law.products(nodes)
    scatter = np.array([[float(a == b) for b in nodes] for a in nodes])
    products = pairs @ pairs.T + _walk_of_products(x)

    def of(grid: Array, functional: Callable[[Array], Any]) -> Array:
        """A functional at every point, (points, ...): of parts for unit sigma, tau and iota."""
        lengths, which = np.unique(grid[:, 1], return_inverse=True)
        steep, memory = law.of_axes
        slopes = np.stack([functional(_integrated(x, steep, ell * memory)) for ell in lengths])
        others = [np.asarray(functional(part)) for part in (scatter, products)]
        sigma, tau, iota = (
            grid[:, column].reshape(-1, *[1] * others[0].ndim) for column in (0, 2, 3)
        )
        return np.asarray(sigma * slopes[which] + tau * others[0] + iota * others[1])

    return of


def _integrated(x: Array, steep: Array, ell: Array) -> Array:
    """Covariance of slopes, integrated from the base and summed over axes.

    ``steep`` is the standard deviation of each axis' slope, ``ell`` over what it is forgotten.
    """

    def variance(distance: Array) -> Array:
        """Of an increment: g of the head of this file, without cancellation where d << ell."""
        ratio = distance / ell
        small = ratio**2 / 2 - ratio**3 / 6
        return np.asarray(
            2 * (steep * ell) ** 2 * np.where(ratio < 1e-3, small, np.expm1(-ratio) + ratio)
        )

    here = variance(np.abs(x))
    return np.asarray(
        (here[:, None] + here[None] - variance(np.abs(x[:, None] - x[None]))).sum(-1) / 2
    )


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
    """Covariances of the differences between sizes, (points, contrasts, contrasts)."""
    free = law.contrasts
    own = free.T @ (law.known + law.of_seeds * np.eye(len(law.sizes))) @ free
    covariance = _covariance(law, law.sizes)
    return np.asarray(own + covariance(grid, lambda part: free.T @ part @ free))


def _slices(points: int, contrasts: int) -> list[slice]:
    """Parts of a grid whose covariances take some 64 MB together, however many sizes there are."""
    step = max(1, 2**23 // max(contrasts, 1) ** 2)
    return [slice(start, start + step) for start in range(0, points, step)]


def _posterior(law: Law) -> tuple[Array, Array]:
    """A grid of (sigma^2, ell, tau^2, iota^2) and its posterior weights, from the differences."""
    together = law.products(law.sizes).shape[1] > 0
    slopes = SLOPE * np.exp(np.linspace(-3.0, 3.0, 13))
    lengths = MEMORY * 2.0 ** np.arange(-2, 6)
    scatters = SCATTER * np.exp(np.linspace(-2.5, 1.5, 7))
    products = INTERACTION * (np.exp(np.linspace(-4, 2.5, 11)) if together else np.zeros(1))
    mesh = np.stack(np.meshgrid(slopes, lengths, scatters, products, indexing="ij"), -1).reshape(
        -1, 4
    )
    # Densities of the logarithms; half-normal ones on a logarithmic grid.
    moves = np.exp(-0.5 * (np.log(mesh[:, 0] / SLOPE) / SPREADS[0]) ** 2) / SPREADS[0]
    still = np.exp(-0.5 * (np.log(mesh[:, 0] / STILL) / STILL_SPREAD) ** 2) / STILL_SPREAD
    log = np.log((1 - STANDING) * moves + STANDING * still)
    log -= (TAILS + 1) / 2 * np.log1p((np.log(mesh[:, 1] / MEMORY) / SPREADS[1]) ** 2 / TAILS)
    log += np.log(mesh[:, 2]) - 0.5 * (mesh[:, 2] / SCATTER) ** 2
    if together:
        log += np.log(mesh[:, 3]) - 0.5 * (mesh[:, 3] / INTERACTION) ** 2
    grid = mesh * [law.scale, 1.0, law.scale, law.scale]
    grid[:, [0, 2, 3]] **= 2
    differences = law.contrasts.T @ law.values
    if len(differences):
        for part in _slices(len(grid), len(differences)):
            total = _totals(law, grid[part])
            right = np.broadcast_to(differences[:, None], (len(total), len(differences), 1))
            solved = np.linalg.solve(total, right)[..., 0]
            log[part] -= 0.5 * (np.linalg.slogdet(total)[1] + differences @ solved.T)
    weight = np.exp(log - log.max())
    return grid, weight / weight.sum()
