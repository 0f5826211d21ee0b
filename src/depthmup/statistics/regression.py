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

import numpy as np

from depthmup.records import Estimate
from depthmup.statistics.intervals import CONFIDENCE, Array, around, student
from depthmup.statistics.optimum import Optima

PRIOR_FREEDOM = 4
"""Weight, in degrees of freedom, of the scatter within curves beside that about the law."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Regression:
    """Coefficients of a design, ``optima ~ design @ coefficients``.

    Attributes:
        fitted: the optima, over (..., sizes).
        design: (sizes, terms).
    """

    fitted: Optima
    design: Array

    @property
    def rank(self) -> int:
        return int(np.linalg.matrix_rank(self.design))

    @property
    def freedom(self) -> int:
        """Sizes beyond those that fix the coefficients."""
        return len(self.design) - self.rank

    @property
    def rows(self) -> Array:
        """Weights of the optima in each coefficient, (terms, sizes)."""
        return np.asarray(np.linalg.pinv(self.design), float)

    @property
    def coefficients(self) -> Array:
        """Least squares, (..., terms)."""
        return np.asarray(self.fitted.centre @ self.rows.T)

    @property
    def residuals(self) -> Array:
        """Optima less the law, (..., sizes)."""
        return np.asarray(self.fitted.centre - self.coefficients @ self.design.T)

    def half(self, weights: Array, confidence: float = CONFIDENCE) -> Array:
        """Half-width of the interval of ``weights . optima``, (...,)."""
        if self.fitted.curves.fewest_seeds < 2:
            return self._from_sizes(weights, confidence)
        without = np.einsum("...ns,n->...s", self.fitted.centre_without, weights)
        error, freedom = self.fitted.seed_error(without)
        misfit = np.sqrt((weights**2 * self.fitted.misfit**2).sum(-1))
        return np.hypot(
            student(freedom, confidence) * error, float(student(math.inf, confidence)) * misfit
        )

    def _from_sizes(self, weights: Array, confidence: float) -> Array:
        """The half-width from the scatter of sizes, for one seed."""
        within = self.fitted.scatter**2 + self.fitted.misfit**2
        mean = within.mean(-1)
        freedom = PRIOR_FREEDOM + self.freedom
        about = (self.residuals**2).sum(-1)
        variance = (PRIOR_FREEDOM * mean + about) / freedom
        share = (weights**2 * within).sum(-1) / np.where(mean > 0, mean, 1.0)
        spread = np.maximum(float(weights @ weights), share)
        return np.asarray(student(freedom, confidence) * np.sqrt(variance * spread))

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
        row = self.rows[term]
        determined = np.allclose(row @ self.design, np.eye(self.design.shape[1])[term], atol=1e-6)
        if not determined:
            return Estimate(value=math.nan, low=math.nan, high=math.nan, unit=unit)
        value = float(self.fitted.centre @ row)
        return around(scale * value, abs(scale) * float(self.half(row)), unit)
