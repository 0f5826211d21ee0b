"""Optima against sizes by least squares: any design of sizes, any combination, with its interval.

A combination ``sum_i w_i k_i`` of the optima k_i has the variance

    (t_{S-1} jackknife error over S seeds)^2 + (1.96)^2 sum_i w_i^2 misfit_i^2:

what seeds scatter, and what the fit of each optimum misses and more seeds do not cure. With one
seed the first part is unknown. What is left is how the optima scatter about their law, moderated by
how points scatter about their curves: with v_i = scatter_i^2 + misfit_i^2 and n - p degrees of
freedom about the law,

    s^2 = (4 mean_i v_i + |residuals|^2) / (4 + n - p),
    variance = s^2 max(sum_i w_i^2, sum_i w_i^2 v_i / mean_i v_i),

with Student's t of 4 + n - p degrees of freedom. The maximum allows for sizes whose grid is coarser
than the others'. It cannot see a shift that all runs of the one seed share along the sizes.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.records import Estimate
from depthmup.statistics.intervals import CONFIDENCE, Array, around, student
from depthmup.statistics.optimum import Optima

PRIOR_FREEDOM = 4
"""Weight, in degrees of freedom, of the scatter within curves beside that about the law."""


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
    """

    fitted: Optima
    design: Array
    weighted: bool = False
    lenient: bool = False

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

    def half(self, weights: Array, confidence: float = CONFIDENCE) -> Array:
        """Half-width of the interval of ``weights . optima``, (...,).

        Args:
            weights: one for each size.
            confidence: of the interval.
        """
        if self.fitted.curves.fewest_seeds < 2:
            return self._from_sizes(weights, confidence)
        without = np.einsum("...ns,n->...s", self.fitted.centre_without, weights)
        error, freedom = self.fitted.seed_error(without)
        misfit = np.sqrt((weights**2 * self.fitted.misfit**2).sum(-1))
        half = np.hypot(
            student(freedom, confidence) * error, float(student(math.inf, confidence)) * misfit
        )
        if not self.lenient:
            return np.asarray(half)
        return np.where(np.isfinite(half), half, self._from_sizes(weights, confidence))

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
        return np.asarray(student(freedom, confidence) * np.sqrt(variance * spread))

    def estimate(self, term: int, *, scale: float = 1.0, unit: str = "") -> Estimate:
        """One coefficient of one experiment, times a scale, with its 95% interval.

        Unknown where the sizes do not determine it.

        Args:
            term: index of the design's column.
            scale: multiplies the coefficient.
            unit: of the result.

        Raises:
            ValueError: the design has no such column.

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
        determined = np.allclose(row @ self.design, np.eye(self.design.shape[1])[term], atol=1e-6)
        if not determined:
            return Estimate(value=math.nan, low=math.nan, high=math.nan, unit=unit)
        value = float(self.fitted.centre @ row)
        return around(scale * value, abs(scale) * float(self.half(row)), unit)
