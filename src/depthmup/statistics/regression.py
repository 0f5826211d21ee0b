"""Optima against sizes by least squares: any design of sizes, any combination, with its interval.

Optima are the minima k_i of one valley (``statistics.valley``), with the covariances N of noise and
L of what data leave open of their shape. A combination ``sum_i w_i k_i`` has the half-width

    o^2 = t_f^2 w'N w + (1.96)^2 w'L w + t_{4+S-1}^2 e^2,

how points scatter about the valleys, with f degrees of freedom, and what seeds have of their own;
widened by how sizes scatter about their law, tau^2 w'R w, over the posterior of tau
(``statistics.scatter``).

Seeds may have optima of their own, which scatter by j from size to size beyond noise, pooled over
the sizes; and slopes of their own. Few seeds hardly show these: so what the jackknife J of the
combination shows of S seeds beyond noise is moderated by a usual standard deviation s,

    e^2 = (4 (j^2 |w|^2 + s^2 |w X|^2 / S) + (S - 1) max(0, J^2 - w'N w)) / (4 + S - 1),

X the design. One seed shows neither: then e is s |w X|, of an s that is twice as large.

*Source:* moderated variances: Smyth (2004), Statistical Applications in Genetics and Molecular
Biology 3:3; degrees of freedom: Satterthwaite (1946), Biometrics Bulletin 2:110-114.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.intervals import CONFIDENCE, Array, Numbers, around, student
from depthmup.statistics.optimum import Optima
from depthmup.statistics.scatter import ALIKE, USUAL, Scatter, scatter_of
from depthmup.statistics.valley import valley_of
from depthmup.statistics.valley_errors import Valley

PRIOR_FREEDOM = 4
"""Weight, in degrees of freedom, of pooled scatter beside that of the few numbers at hand."""

OWN_SLOPE, OWN_SLOPE_OF_ONE = 0.012, 0.024
"""Octaves per doubling by which the slopes of seeds scatter, of several and of one alone.

In eleven real sweeps of 8 or 24 seeds, 0.02 to 0.04 where five sizes were measured, which noise
explains. Of 70 sweeps of four seeds at three or four sizes they scatter by 0.03 to 0.05, most of it
from size to size, of transformers by 0.15: the scatter of sizes covers what is missing here.
"""

LAW_SCATTER = 0.1
"""Octaves by which optima scatter about a law of sizes, for their weights in it."""

UNEVEN = 0.1
"""Octaves by which the spacings of grids differ from which on their sizes are weighted."""


def uneven(fitted: Optima) -> bool:
    """Whether sizes of one experiment count unequally: on grids that differ, some known less well.

    On one grid weights by a divergence beside some optima gain nothing, and cost coverage.
    """
    grids = fitted.curves.log2_lrs
    if np.allclose(grids, grids[:1], rtol=0, atol=1e-6, equal_nan=True):
        return False
    return float(np.ptp(fitted.spacing)) > UNEVEN or bool(fitted.wall.any())


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """Coefficients of a design, ``optima ~ design @ coefficients``.

    Attributes:
        fitted: the optima, over (..., sizes).
        design: (sizes, terms).
        weighted: whether sizes count by the inverse of their variance plus 0.1^2, so that one whose
            grid is coarse, or that has a divergence beside its optimum, does not blur the others;
            0.1 octaves is how far the optima of sizes scatter about a law.
        lenient: whether the scatter of sizes is taken where the seeds' is unknown, because leaving
            out one of them leaves nothing to measure.
        bend: a column along which the law may bend, (sizes,): what it explains is no scatter.
        doublings: of the sizes along their axes, (sizes, axes), with which the valley may turn; the
            design's columns that vary unless given.
        places: the same along every axis, as near sizes scatter alike; the doublings unless given.
        usual: octaves by which sizes commonly scatter about such a law.
    """

    fitted: Optima
    design: Array
    weighted: bool = False
    lenient: bool = False
    bend: Array | None = None
    doublings: Array | None = None
    places: Array | None = None
    usual: float = USUAL

    @cached_property
    def valley(self) -> Valley:
        """The minima and their errors."""
        return valley_of(self.fitted, self._positions)

    @property
    def _positions(self) -> Array:
        if self.doublings is not None:
            return self.doublings
        return np.asarray(self.design[:, np.ptp(self.design, axis=0) > 0])

    @property
    def rank(self) -> int:
        return int(np.linalg.matrix_rank(self.design))

    @property
    def freedom(self) -> int:
        """Sizes beyond those that fix the coefficients."""
        return len(self.design) - self.rank

    @cached_property
    def rows(self) -> Array:
        """Weights of the optima in each coefficient, (terms, sizes)."""
        if not self.weighted:
            return np.asarray(np.linalg.pinv(self.design), float)
        root = np.sqrt(self.shares)
        return np.asarray(np.linalg.pinv(self.design * root[:, None]) * root, float)

    @cached_property
    def shares(self) -> Array:
        """Weights of sizes in a weighted law, (..., sizes)."""
        own = np.einsum("...ii->...i", self.valley.noise + self.valley.left)
        return np.asarray(1 / (own + LAW_SCATTER**2))

    @property
    def coefficients(self) -> Array:
        """Least squares, (..., terms)."""
        return np.asarray(self.valley.minimum @ self.rows.T)

    @property
    def residuals(self) -> Array:
        """Optima less the law, (..., sizes)."""
        return np.asarray(self.valley.minimum - self.coefficients @ self.design.T)

    def value(self, weights: Array) -> Array:
        """``weights . optima``, (...,)."""
        return np.asarray(self.valley.minimum @ weights)

    def half(
        self,
        weights: Array,
        confidence: float = CONFIDENCE,
        *,
        of_seeds: float | None = None,
        planned: int | None = None,
    ) -> Array:
        """Half-width of the interval of ``weights . optima``, seeds at a level of their own.

        With as many seeds as are ``planned``.
        """
        parts = np.hypot(
            self.seeds_part(weights, of_seeds or confidence, planned=planned),
            self.shape_part(weights, confidence),
        )
        return self.widened(parts, weights, confidence)

    def widened(
        self, others: Array, weights: Array, confidence: float = CONFIDENCE, *, left: float = 1.0
    ) -> Array:
        """A half-width of ``weights . optima`` with the scatter of sizes about their law.

        As it would be if only the part ``left`` of the optima's errors were.
        """
        spread = np.einsum("...i,ij,...j->...", weights, self.alike, weights)
        scatter = self.scatter if left == 1 else self._scatter(left)
        return scatter.half(np.asarray(others, float), spread, confidence)

    def seeds_part(
        self, weights: Array, confidence: float = CONFIDENCE, *, planned: int | None = None
    ) -> Array:
        """What noise and seeds leave of a half-width, or so many of them would, (...,)."""
        seeds = self.fitted.curves.fewest_seeds
        planned = planned or seeds
        noise = _of(weights, self.valley.noise) * seeds / planned
        half = student(self.valley.freedom * planned / seeds, confidence) * np.sqrt(noise)
        slopes = float(((weights @ self.design) ** 2).sum())
        of_one = student(math.inf, confidence) * OWN_SLOPE_OF_ONE * math.sqrt(slopes)
        if seeds < 2:
            return np.asarray(np.hypot(half, of_one))
        error, freedom = self.fitted.seed_error(self._without @ weights)
        beyond = np.maximum(error**2 - noise * planned / seeds, 0.0)
        prior = self.jitter**2 * (weights**2).sum() + OWN_SLOPE**2 * slopes / seeds
        freedom = freedom * (planned - 1) / (seeds - 1)
        total = PRIOR_FREEDOM + freedom
        own = (PRIOR_FREEDOM * prior + freedom * beyond) / total * seeds / planned
        of_seeds = student(total, confidence) * np.sqrt(own)
        if self.lenient:
            of_seeds = np.where(np.isfinite(of_seeds), of_seeds, of_one)
        return np.asarray(np.hypot(half, of_seeds))

    @property
    def _without(self) -> Array:
        """Minima without each seed, (..., seeds, sizes)."""
        return np.asarray(np.swapaxes(self.valley.without, -1, -2))

    @cached_property
    def jitter(self) -> Array:
        """By how much seeds' optima scatter from size to size beyond noise, (...,)."""
        sizes = len(self.design)
        if self.fitted.curves.fewest_seeds < 2 or sizes < 2:
            return np.zeros(self.fitted.centre.shape[:-1])
        # What all sizes of a seed share moves no contrast.
        apart = np.eye(sizes) - 1 / sizes
        error, _ = self.fitted.seed_error(np.swapaxes(self._without @ apart, -1, -2))
        noise = ((apart @ self.valley.noise) * apart).sum((-2, -1))
        return np.asarray(np.sqrt(np.maximum((error**2).sum(-1) - noise, 0.0) / (sizes - 1)))

    def shape_part(self, weights: Array, confidence: float = CONFIDENCE) -> Array:
        """What data leave open of the valleys' shape, of a half-width, (...,)."""
        left = np.maximum(_of(weights, self.valley.left), 0.0)
        # Of the place of all minima alike, powers of two sides miss a part.
        alike = abs(float(weights.sum())) * self.valley.alike
        return np.asarray(student(math.inf, confidence) * np.hypot(np.sqrt(left), alike))

    @cached_property
    def scatter(self) -> Scatter:
        """How sizes scatter about the law, beyond their own errors."""
        return self._scatter(1.0)

    def _scatter(self, left: float) -> Scatter:
        jitter = np.where(np.isfinite(self.jitter), self.jitter, 0.0)[..., None, None]
        known = self.valley.noise + self.valley.left + jitter**2 * np.eye(len(self.design))
        # Of one or two residuals a bend would take what sizes scatter.
        bend = self.bend if self.freedom > 2 else None
        return scatter_of(
            left * self.residuals, self.apart, left**2 * known, self.alike, bend, self.usual
        )

    @property
    def apart(self) -> Array:
        """1 - H, of the optima in the residuals, (..., sizes, sizes)."""
        of_fit = np.einsum("nt,...tm->...nm", self.design, self.rows)
        return np.asarray(np.eye(len(self.design)) - of_fit)

    @cached_property
    def alike(self) -> Array:
        """R, by which the scatter of two sizes agrees, (sizes, sizes)."""
        at = self._positions if self.places is None else self.places
        return np.asarray(ALIKE ** np.abs(at[:, None] - at[None]).sum(-1))

    def estimate(self, term: int, *, scale: float = 1.0, unit: str = "") -> Estimate:
        """One coefficient of one experiment, times a scale, with its 95% interval.

        Unknown where the sizes do not determine it.

        Example:
            >>> from depthmup.statistics import Curves, optima
            >>> rates = np.arange(-6.0, 2.0)
            >>> losses = [np.exp(0.1 * (rates - best) ** 2)[:, None] for best in (-2, -2.5, -3)]
            >>> line = Regression(fitted=optima(Curves.of(rates, losses)),
            ...     design=np.column_stack([np.ones(3), [0, 1, 2]]))
            >>> round(line.estimate(1).value, 2)
            -0.5
        """
        columns = self.design.shape[1]
        if not -columns <= term < columns:
            raise ValueError(f"Expected one of the design's {columns} columns; got another index.")
        row = self.rows[term]
        if not np.allclose(row @ self.design, np.eye(columns)[term], atol=1e-6):
            return replace(UNKNOWN, unit=unit)
        return around(scale * self.value(row), abs(scale) * self.half(row), unit)


def line_of(positions: Numbers, fitted: Optima) -> Regression:
    """The straight line through optima, centred, so that its second row is the slope's weights."""
    x = np.asarray(positions, float)
    x = x - x.mean()
    return Regression(
        fitted=fitted,
        design=np.column_stack([np.ones(len(x)), x]),
        bend=x**2,
        doublings=x[:, None],
    )


def _of(weights: Array, covariance: Array) -> Array:
    """The variance of a combination."""
    return np.asarray(np.einsum("i,...ij,j->...", weights, covariance, weights))
