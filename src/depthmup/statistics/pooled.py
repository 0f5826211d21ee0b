"""One law from curves of few points each, or of one: all sizes share the shape of their valley.

    log loss = level(size) + c (x - k(size))^2,    k(size) = a + sum_a b_a s_a,

x the log2 rate, s_a log2 of a size over the base's. Multiplied out, what depends on the size alone
goes into its level, and the rest is linear:

    log loss = level(size) + c x^2 + d_0 x + sum_a d_a s_a x,    a = -d_0 / 2c,   b_a = -d_a / 2c.

Least squares with tricube weights around the law's own optima, until they stay. No size needs a
curve of its own: two rates say on which side the optimum lies, and the level of each size is free.
Where most sizes have a single run, as in a random search, the level is a surface: a polynomial of
second degree in s. (The posterior frees every level, so single runs tell it nothing.)

Errors are those of the residuals, by the delta method, with Student's t. A second fit adds z^3,
s_a z^2 and s_a z^3, z = x - k(size): valleys that are lopsided, sharpen and turn with size. It
scatters more, so an exponent b moves towards its b' only as far as the two differ by more than
their errors:

    b + w (b' - b),   w = t / (t + v),   t = max(TURN^2, (b' - b)^2 - v),   v = var b' - var b,

and the correction itself is among the errors, since a cubic is not the valley either.

*Source:* tricube weights: Cleveland (1979), Journal of the American Statistical Association
74:829-836.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement

import numpy as np

from depthmup.posterior.intervals import Array, Index, around, student
from depthmup.records import UNKNOWN, Estimate

REACH = 3.0
"""Octaves that the weights reach: sparse rates lie farther from their optimum than a grid's."""

TURN = 0.03
"""Octaves per doubling by which the minimum of turning valleys commonly leaves their centre."""

# Where the weights of runs at the taper's end keep moving, the last fit stands.
PASSES = 20
# Below it Student's factor is above 2.8 and the residual variance is hardly known.
LEAST_FREEDOM = 4.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooled:
    """The law's coefficients.

    Attributes:
        constant: the best log2 rate at the base.
        exponents: b_a, in the order of the axes; unknown where the runs do not determine one.
        curvature: c, log loss per octave squared.
        levels: log loss at the optimum, of every run's size.
        scatter: standard deviation of the residuals.
        freedom: weighted runs beyond the coefficients.
    """

    constant: Estimate
    exponents: tuple[Estimate, ...]
    curvature: float
    levels: Array
    scatter: float
    freedom: float


def pooled_law(
    positions: Array,
    size: Index,
    log2_rate: Array,
    log_loss: Array,
    *,
    surface: bool = False,
    near: Array | None = None,
) -> Pooled | None:
    """The law of optima from runs of sizes whose curves are too sparse for optima of their own.

    With a ``surface`` levels are smooth in size; otherwise each size has one. Weights are at first
    around the rates ``near``, one for each run, or one everywhere.
    """
    if not (0 < len(log2_rate) == len(log_loss) == len(size) and size.max() < len(positions)):
        raise ValueError(
            f"Expected runs, each with a rate, a loss and one of {len(positions)} sizes; got "
            f"{len(log2_rate)} rates, {len(log_loss)} losses and {len(size)} sizes of runs."
        )
    # Counted from their mean, so that x and x^2 are not nearly parallel.
    origin = float(np.mean(log2_rate))
    x = log2_rate - origin
    ones = np.ones((len(x), 1))
    lines = np.column_stack([ones, positions[size]])
    middle = positions[size] - positions[size].mean(0)
    level = partial(_surface, second_degree(middle)) if surface else partial(_own, size)
    # Powers of x: at first of it alone, then of its distance from the law's optima.
    design = np.column_stack([x**2, x[:, None] * lines])
    weight = ones[:, 0] if near is None else tricube((log2_rate - near) / REACH)
    fit = None
    for _ in range(PASSES):
        fit = _fit(design, level, log_loss, weight)
        if fit is None or not fit.slopes[0] > 0:
            return None
        centre = -(lines @ fit.slopes[1:]) / (2 * fit.slopes[0])
        moved = tricube((x - centre) / REACH)
        if np.abs(moved - weight).max() < 1e-6:
            break
        weight = moved
    assert fit is not None
    if fit.freedom < LEAST_FREEDOM:
        return None
    law, error = fit.optima(lines.shape[1])
    turned = _turned(x, lines, middle, law, level, log_loss)
    if turned is not None:
        law, error = _corrected(law, error, *turned)
    else:
        error[1:] = np.hypot(error[1:], TURN)
    half = student(fit.freedom) * error
    known = fit.determined[-lines.shape[1] :]
    shift = np.eye(len(law))[0] * origin
    estimates = [
        around(b, h) if k else UNKNOWN for b, h, k in zip(law + shift, half, known, strict=True)
    ]
    z = x - lines @ law
    return Pooled(
        constant=estimates[0],
        exponents=tuple(estimates[1:]),
        curvature=float(fit.slopes[0]),
        levels=log_loss - fit.residual - fit.slopes[0] * z**2,
        scatter=fit.scatter,
        freedom=fit.freedom,
    )


def tricube(distance: Array) -> Array:
    """(1 - |distance|^3)^3: 1 at the centre, 0 from distance 1 on."""
    return np.asarray((1 - np.minimum(np.abs(distance), 1.0) ** 3) ** 3)


Level = Callable[[Array, Array], tuple[Array, Array]]
"""From weights and columns to the columns less their levels, and every run's leverage on them."""


def _own(size: Index, weight: Array, columns: Array) -> tuple[Array, Array]:
    count = int(size.max()) + 1
    total = np.bincount(size, weights=weight, minlength=count)
    total = np.where(total > 0, total, 1.0)
    sums = [np.bincount(size, weights=weight * c, minlength=count) / total for c in columns.T]
    return columns - np.stack(sums, 1)[size], weight / total[size]


def _surface(terms: Array, weight: Array, columns: Array) -> tuple[Array, Array]:
    root = np.sqrt(weight)[:, None]
    basis, sizes, _ = np.linalg.svd(terms * root, full_matrices=False)
    basis = basis[:, sizes > 1e-9 * sizes[0]]
    coefficients = np.linalg.lstsq(terms * root, columns * root, rcond=1e-9)[0]
    return columns - terms @ coefficients, (basis**2).sum(1)


def second_degree(positions: Array) -> Array:
    """1, positions, and products of two of them, (runs, terms)."""
    pairs = combinations_with_replacement(range(positions.shape[1]), 2)
    squares = [positions[:, a] * positions[:, b] for a, b in pairs]
    return np.column_stack([np.ones(len(positions)), positions, *squares])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fit:
    """Least squares: slopes within levels, which of them are determined, and what is left."""

    slopes: Array
    covariance: Array
    determined: Array
    residual: Array
    scatter: float
    freedom: float

    def optima(self, terms: int) -> tuple[Array, Array]:
        """-d / 2c of the last terms, and their errors to first order; c is the first slope."""
        c, d = self.slopes[0], self.slopes[-terms:]
        gradient = np.zeros((terms, len(self.slopes)))
        gradient[:, 0] = d / (2 * c**2)
        gradient[:, -terms:] -= np.eye(terms) / (2 * c)
        variance = np.einsum("ti,ij,tj->t", gradient, self.covariance, gradient)
        return -d / (2 * c), np.sqrt(np.maximum(variance, 0.0))


def _fit(design: Array, level: Level, values: Array, weight: Array) -> _Fit | None:
    within, of_level = level(weight, np.column_stack([design, values]))
    centred, y = within[:, :-1], within[:, -1]
    gram = centred.T @ (weight[:, None] * centred)
    scale = np.sqrt(np.maximum(np.diag(gram), 1e-300))
    inverse = np.linalg.pinv(gram / np.outer(scale, scale), rcond=1e-9) / np.outer(scale, scale)
    slopes = inverse @ (centred.T @ (weight * y))
    determined = np.abs(inverse @ gram - np.eye(len(slopes))).max(1) < 1e-5
    if not determined[0]:
        return None
    residual = y - centred @ slopes
    # A run alone in its size fits its level: it has no weight in what is left.
    freedom = float((weight * (1 - of_level)).sum()) - int(np.linalg.matrix_rank(gram))
    variance = float((weight * residual**2).sum()) / max(freedom, 1e-9)
    middle = centred.T @ ((weight**2)[:, None] * centred)
    return _Fit(
        slopes=slopes,
        covariance=variance * inverse @ middle @ inverse,
        determined=determined,
        residual=residual,
        scatter=math.sqrt(variance),
        freedom=freedom,
    )


def _turned(
    x: Array, lines: Array, middle: Array, law: Array, level: Level, log_loss: Array
) -> tuple[Array, Array] | None:
    """The law and its errors where valleys are lopsided, sharpen and turn; None if undetermined."""
    fit = None
    for _ in range(PASSES):
        z = (x - lines @ law)[:, None]
        shape = [z**2, middle * z**2, z**3, middle * z**3]
        fit = _fit(np.column_stack([*shape, lines * z]), level, log_loss, tricube(z[:, 0] / REACH))
        if fit is None or not fit.slopes[0] > 0 or fit.freedom < LEAST_FREEDOM:
            return None
        step, error = fit.optima(lines.shape[1])
        law = law + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-5:
            return law, error
    return None


def _corrected(law: Array, error: Array, turned: Array, of_turned: Array) -> tuple[Array, Array]:
    """The law moved towards that of turning valleys, as at the head of this file."""
    apart, excess = turned - law, np.maximum(of_turned**2 - error**2, 1e-12)
    spread = np.maximum(TURN**2, apart**2 - excess)
    share = spread / (spread + excess)
    moved = share * apart
    return law + moved, np.sqrt(error**2 + share * excess + moved**2)
