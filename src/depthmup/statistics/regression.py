"""Optima against sizes by least squares: any design of sizes, any combination, with its interval.

A combination ``sum_i w_i k_i`` of the optima k_i has the variance

    (t_{4+S-1} s)^2 + (1.96)^2 sum_i w_i^2 misfit_i^2
    + (t_{2+n-p} tau)^2 sum_i w_i^2 + (1.96)^2 (error of the shape)^2:

what seeds scatter; what the fit of each optimum misses; how n sizes scatter about their law of p
terms beyond both, which neither cures; and how far their valleys change shape. A law that bends
smoothly is no scatter: where sizes are left to tell, a bend is one of the p terms. With v_i the
variance of the first two,

    tau^2 = max(0, |residuals|^2 - sum_i (1 - h_ii) v_i) / (n - p),   h the hat matrix.

Few seeds hardly show how they scatter: Student's t of one degree of freedom is 12.7. So the error e
of the combination, a jackknife over S seeds, is moderated by those e_i of the single optima, pooled
over the n sizes, and by the slopes that seeds have of their own, of standard deviation o:

    s^2 = (4 (max(sum_i w_i^2 e_i^2, mean_i e_i^2 sum_i w_i^2) + o^2 |w X|^2 / S) + (S - 1) e^2)
          / (4 + S - 1),   X the design.

The *shape*: an optimum is the minimum of its valley, centre plus offset (``statistics.asymmetry``).
Centres are sharp and offsets are not, so that a combination is that of the centres, plus what that
of the offsets, d with standard error e, says beyond doubt. Valleys mostly keep their shape; where
they do not, it may change fast. So of d the prior is a mixture of two normal ones, of standard
deviations ``KEEPS`` and ``TURNS``, and its posterior's mean and variance are what is added.

With one seed the first part is unknown. What is left is how the optima scatter about their law,
moderated by how points scatter about their curves: with v_i = scatter_i^2 + misfit_i^2 and n - p
degrees of freedom about the law,

    s^2 = max((4 mean_i v_i + |residuals|^2) / (4 + n - p), |residuals|^2 / (n - p)),
    variance = s^2 max(sum_i w_i^2, sum_i w_i^2 v_i / mean_i v_i),

with Student's t of 4 + n - p degrees of freedom, plus (1.96 o |w X|)^2. The maximum allows for
sizes whose grid is coarser than the others'.

*Source:* moderated variances: Smyth (2004), Statistical Applications in Genetics and Molecular
Biology 3:3.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from depthmup.records import UNKNOWN, Estimate
from depthmup.statistics.intervals import CONFIDENCE, Array, Numbers, around, student
from depthmup.statistics.optimum import Optima

PRIOR_FREEDOM = 4
"""Weight, in degrees of freedom, of pooled scatter beside that of the few numbers at hand."""

SCATTER_FREEDOM = 2
"""The same, of what is known of sizes' scatter about a law, for Student's t."""

KEEPS, TURNS, TURNING = 0.02, 0.25, 0.2
"""Octaves per doubling by which offsets change where valleys keep their shape, and where they turn,
and the share of valleys that turn. In 84 arms of two public tables offsets changed by 0.02 octaves
per doubling beyond their errors, and by up to 0.26 in valleys made to turn. A share of one in ten
covers 77% of the latter on grids of an octave, two in ten 89."""

OFFSET_SCATTER = 0.2
"""Spacings of the grid by which offsets scatter from size to size, as a prior of weight
``PRIOR_FREEDOM``. Simulated valleys that keep their shape: 0.01 to 0.3."""

OWN_SLOPE = 0.03
"""Octaves per doubling by which the slopes of seeds may scatter beyond what their optima do.

In twelve real sweeps with all their seeds it was 0.013 at most where five sizes were measured, and
most often nothing. Simulated verdicts hold up to 0.08.
"""

LAW_SCATTER = 0.1
"""Octaves by which optima scatter about a law of sizes, for their weights in it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """Coefficients of a design, ``optima ~ design @ coefficients``.

    Attributes:
        fitted: the optima, over (..., sizes).
        design: (sizes, terms).
        weighted: whether sizes count by the inverse of ``misfit^2 + 0.1^2``, so that a size whose
            grid is coarse, or that has a divergence beside its optimum, does not blur the others;
            0.1 octaves is how far the optima of sizes scatter about a law.
        lenient: whether the scatter of sizes is taken where the seeds' is unknown, because leaving
            out one of them leaves nothing to measure.
        bend: a column along which the law may bend, (sizes,): what it explains is no scatter.
    """

    fitted: Optima
    design: Array
    weighted: bool = False
    lenient: bool = False
    bend: Array | None = None

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

    @property
    def shares(self) -> Array:
        """Weights of sizes in a weighted law, (..., sizes)."""
        return np.asarray(1 / (self.fitted.misfit**2 + LAW_SCATTER**2))

    @property
    def coefficients(self) -> Array:
        """Least squares, (..., terms)."""
        return np.asarray(self.fitted.centre @ self.rows.T)

    @property
    def residuals(self) -> Array:
        """Optima less the law, (..., sizes)."""
        return np.asarray(self.fitted.centre - self.coefficients @ self.design.T)

    def value(self, weights: Array) -> Array:
        """``weights . optima`` for weights that sum to zero, such as a slope's, (...,)."""
        return np.asarray(self.fitted.centre @ weights + self.shape(weights)[0])

    def half(
        self, weights: Array, confidence: float = CONFIDENCE, *, of_seeds: float | None = None
    ) -> Array:
        """Half-width of the interval of ``weights . optima``, seeds at a level of their own."""
        centres = self._of_centres(weights, confidence, of_seeds or confidence)
        return np.hypot(centres, self.shape_part(weights, confidence))

    def _of_centres(self, weights: Array, confidence: float, of_seeds: float) -> Array:
        if self.fitted.curves.fewest_seeds < 2:
            return self._from_sizes(weights, confidence)
        parts = np.hypot(self.seeds_part(weights, of_seeds), self.misfit_part(weights))
        half = np.hypot(parts, self.scatter_part(weights, confidence))
        if not self.lenient:
            return np.asarray(half)
        return np.where(np.isfinite(half), half, self._from_sizes(weights, confidence))

    def seeds_part(
        self, weights: Array, confidence: float = CONFIDENCE, *, planned: int | None = None
    ) -> Array:
        """What seeds leave of a half-width, or so many of them would, (...,)."""
        seeds = self.fitted.curves.fewest_seeds
        planned = planned or seeds
        without = self.fitted.centre_without
        error, freedom = self.fitted.seed_error(np.einsum("...ns,n->...s", without, weights))
        sizes = len(weights)
        if abs(weights.sum()) < 1e-9:  # What all sizes of a seed share moves no contrast.
            without = math.sqrt(sizes / (sizes - 1)) * (without - without.mean(-2, keepdims=True))
        single, _ = self.fitted.seed_error(without)
        alike = (single**2).mean(-1) * (weights**2).sum()
        prior = np.maximum((weights**2 * single**2).sum(-1), alike) + self._own(weights) / seeds
        scale = (planned - 1) / max(seeds - 1, 1)
        freedom, total = freedom * scale, PRIOR_FREEDOM + freedom * scale
        variance = (PRIOR_FREEDOM * prior + freedom * error**2) / total * seeds / planned
        return np.asarray(student(total, confidence) * np.sqrt(variance))

    def _own(self, weights: Array) -> float:
        """Variance that the slopes of one seed's own give a combination."""
        return float(OWN_SLOPE**2 * ((weights @ self.design) ** 2).sum())

    def misfit_part(self, weights: Array) -> Array:
        """What the fits of the optima leave of a half-width, (...,)."""
        spread = np.sqrt((weights**2 * self.fitted.misfit**2).sum(-1))
        return np.asarray(float(student(math.inf)) * spread)

    @cached_property
    def scatter(self) -> Array:
        """tau, how sizes scatter about the law beyond their own errors, (...,); 0 if none is left.

        *Source:* the moment estimate of DerSimonian and Laird (1986), Controlled Clinical Trials
        7:177-188, for least squares.
        """
        bent = self._bent
        if bent.freedom < 1:
            return np.zeros(self.fitted.centre.shape[:-1])
        error, _ = self.fitted.seed_error(self.fitted.centre_without)
        # Few seeds do not show by how much the sizes' errors differ: their mean stands for all.
        own = (error**2).mean(-1, keepdims=True) + self.fitted.misfit**2
        hat = np.einsum("nt,...tn->...n", bent.design, bent.rows)
        beyond = (bent.residuals**2).sum(-1) - ((1 - hat) * own).sum(-1)
        return np.asarray(np.sqrt(np.maximum(beyond, 0.0) / bent.freedom))

    @cached_property
    def _bent(self) -> "Regression":
        """The law that may bend, where sizes are left to show a scatter about it."""
        if self.bend is None:
            return self
        design = np.column_stack([self.design, self.bend])
        bent = replace(self, design=design, bend=None)
        # One degree of freedom would hardly show a scatter.
        return bent if bent.freedom > 1 else self

    def scatter_part(self, weights: Array, confidence: float = CONFIDENCE) -> Array:
        """What the scatter of sizes about their law adds to a half-width, in quadrature, (...,)."""
        t = float(student(SCATTER_FREEDOM + self._bent.freedom, confidence))
        spread = np.sqrt((np.asarray(weights) ** 2).sum(-1))
        return np.asarray(np.nan_to_num(t * self.scatter * spread))

    def shape(self, weights: Array) -> tuple[Array, Array]:
        """What changing shapes add to ``weights . centres``: the mean and the variance, (...,)."""
        offset = self.fitted.sides.offset
        known = np.asarray(np.isfinite(offset).all(-1))
        offset = np.where(known[..., None], offset, 0.0)
        # Weights that do not sum to zero are of levels, whose offset is the asymmetry.
        contrast = weights - weights.mean(-1, keepdims=True)
        law = np.einsum("...n,...tn,mt->...m", offset, self.rows, self.design)
        prior = (OFFSET_SCATTER * self.fitted.spacing) ** 2
        scatter = PRIOR_FREEDOM * prior.mean(-1) + ((offset - law) ** 2).sum(-1)
        freedom = PRIOR_FREEDOM + self.freedom
        error = scatter / freedom * (contrast**2).sum(-1)
        moved = (offset * contrast).sum(-1)
        parts = []
        for share, deviation in ((1 - TURNING, KEEPS), (TURNING, TURNS)):
            total = deviation**2 + error
            density = (
                share * (1 + moved**2 / total / freedom) ** (-(freedom + 1) / 2) / np.sqrt(total)
            )
            gain = deviation**2 / total
            parts.append((density, gain * moved, gain * error))
        density, means, variances = (np.stack(part) for part in zip(*parts, strict=True))
        density = density / density.sum(0)
        mean = (density * means).sum(0)
        variance = (density * (variances + means**2)).sum(0) - mean**2
        # Where some valley has no sides nothing is seen of their change, and little is expected.
        return np.where(known, mean, 0.0), np.where(known, variance, KEEPS**2)

    def shape_part(self, weights: Array, confidence: float = CONFIDENCE) -> Array:
        """What changing shapes add to a half-width, in quadrature, (...,)."""
        return np.asarray(float(student(math.inf, confidence)) * np.sqrt(self.shape(weights)[1]))

    def _from_sizes(self, weights: Array, confidence: float) -> Array:
        """The half-width from the scatter of sizes, for one seed."""
        within = self.fitted.scatter**2 + self.fitted.misfit**2
        freedom = PRIOR_FREEDOM + self.freedom
        if self.weighted:
            # Of variances proportional to 1 / share: all in units of a size of share 1.
            share = self.shares / self.shares.mean(-1, keepdims=True)
            prior, about = (share * within).mean(-1), (share * self.residuals**2).sum(-1)
            spread = (weights**2 / share).sum(-1)
        else:
            prior, about = within.mean(-1), (self.residuals**2).sum(-1)
            of_sizes = (weights**2 * within).sum(-1) / np.where(prior > 0, prior, 1.0)
            # A size with a coarse grid may carry the slope: its error must not be averaged away.
            spread = np.maximum(float(weights @ weights), of_sizes)
        variance = (PRIOR_FREEDOM * prior + about) / freedom
        if self.freedom:
            # Sizes that scatter more than their curves explain are not moderated by these.
            variance = np.maximum(variance, about / self.freedom)
        half = student(freedom, confidence) * np.sqrt(variance * spread)
        own = float(student(math.inf, confidence)) * math.sqrt(self._own(weights))
        return np.asarray(np.hypot(half, own))

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
    return Regression(fitted=fitted, design=np.column_stack([np.ones(len(x)), x]), bend=x**2)
