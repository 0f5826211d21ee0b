"""Slopes on log-log axes, with intervals over seeds and tests that allow for many at once.

A slope b is measured by S seeds. What seed s shows is ``b + u_s + e_s``: ``e_s`` from the scatter
of its measurements about its own line, ``u_s`` because every seed, with its own weights and data,
has a slope of its own. So the variance of the mean, ``V = (var u + var e) / S``, has two estimates:

- from the residuals of every seed about its own line: many degrees of freedom, but ``var e`` alone;
- from the scatter of the S slopes: both parts, but with S - 1 degrees of freedom, two or so.

Of one slope, all that can be had is an interval as wide as either asks (``Slope.estimate``). Of the
many slopes of one check, ``moderated`` finds how much larger V is than the residuals say, and how
far this differs between slopes, so that few seeds are enough.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from depthmup.posterior.distributions import polygamma
from depthmup.posterior.intervals import Array, Index, Numbers, around, p_beyond, student
from depthmup.records import Estimate

# Confidence of the seeds' own interval, which counts where it is wider than the residuals'.
SEEDS_CONFIDENCE = 0.9
# Fewer slopes than this do not say how variances are distributed among them.
ENOUGH = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Slope:
    """An exponent and its standard errors, each with its degrees of freedom.

    ``error`` is that of the residuals, ``scatter`` that of the seeds' own slopes; ``repeats`` is
    their number less one, 0 where there is no scatter to speak of: one seed, or moderated slopes,
    whose ``error`` has it all.

    Attributes:
        value: of the exponent.
        freedom: degrees of freedom of ``error``.
    """

    value: float
    error: float
    freedom: float
    scatter: float = 0.0
    repeats: int = 0

    def estimate(self, confidence: float = 0.95) -> Estimate:
        """The exponent with Student's interval: that of the residuals, or of the seeds if wider.

        Where seeds share their slope the interval covers it with ``confidence`` or more. Whatever
        the seeds' own slopes, it covers it with 90% (or ``confidence``, if less) or more, as the
        seeds' interval alone is exact at that level.
        """
        half = float(student(self.freedom, confidence)) * self.error
        if self.repeats:
            of_seeds = min(confidence, SEEDS_CONFIDENCE)
            half = max(half, float(student(self.repeats, of_seeds)) * self.scatter)
        return around(self.value, half)

    def p_outside(self, expected: float, margin: float) -> float:
        """p-value of the hypothesis that the true exponent lies within ``expected +- margin``.

        Args:
            expected: the exponent of the hypothesis.
            margin: how far from it the true one may lie.
        """
        excess = abs(self.value - expected) - margin
        p = p_beyond(excess, self.error, self.freedom)
        return max(p, p_beyond(excess, self.scatter, self.repeats)) if self.repeats else p


def log_slopes(
    sizes: Sequence[tuple[float, ...]], values: Numbers, seeds: Sequence[int] | Index
) -> tuple[Slope, ...]:
    """Exponents of ``value = c(seed) * size_1**b_1 * size_2**b_2 * ...``, by least squares on logs.

    ``sizes[i]`` are the sizes of the i-th measurement, ``values[i]`` what was measured, with
    ``seeds[i]``. Seeds share data and, as far as sizes allow, weights, so each has a constant of
    its own. A size that does not vary has no slope and gives none.

    Args:
        sizes: of every measurement, one value for each axis.
        values: what was measured, positive.
        seeds: of every measurement.

    Returns:
        One slope for each axis that varies.

    Raises:
        ValueError: values that are not positive and finite, or too few of them.

    Example:
        >>> sizes = [(2.0,), (4.0,), (8.0,)] * 2
        >>> slope, = log_slopes(sizes, [4.0, 16.0, 64.1] * 2, [0] * 3 + [1] * 3)
        >>> round(slope.value, 3)
        2.001

    *Source:* least squares with a constant for each seed; intervals by Student (1908),
    Biometrika 6:1-25.
    """
    x = np.log(np.asarray(sizes, dtype=float))
    values_ = np.asarray(values, dtype=float)
    if not (np.isfinite(values_).all() and (values_ > 0).all()):
        raise ValueError(f"Logarithms need positive finite values; got {list(values)}.")
    if values_.ndim != 1 or not len(values_) == len(x) == len(seeds):
        raise ValueError(
            f"Expected one size and one seed for every value; got {len(x)} sizes and {len(seeds)} "
            f"seeds for values of shape {values_.shape}."
        )
    y = np.log(values_)
    x = x[:, np.ptp(x, axis=0) > 0]
    names = sorted(set(seeds))
    of = np.array([names.index(s) for s in seeds])
    count, slopes = x.shape
    freedom = count - len(names) - slopes
    if freedom < 1 or slopes == 0:
        raise ValueError(
            f"{count} measurements of {len(names)} seeds cannot fix {slopes} slopes and their "
            "errors: measure at three sizes or more, with two seeds or more."
        )
    within_x, within_y = _centred(x, of, len(names)), _centred(y[:, None], of, len(names))[:, 0]
    inverse = np.linalg.inv(within_x.T @ within_x)
    b = inverse @ within_x.T @ within_y
    residual = within_y - within_x @ b
    scatter, repeats = np.zeros(slopes), 0
    own = [_own(within_x[of == s], within_y[of == s]) for s in range(len(names))]
    if len(names) > 1 and all(o is not None for o in own):
        scatter = np.std(np.array(own), axis=0, ddof=1) / math.sqrt(len(names))
        repeats = len(names) - 1
        if (left := count - len(names) * (1 + slopes)) >= 1:
            freedom = left
            residual = within_y - np.sum(within_x * np.array(own)[of], axis=1)
    errors = np.sqrt(float(residual @ residual) / freedom * np.diag(inverse))
    return tuple(
        Slope(value=float(v), error=float(e), freedom=freedom, scatter=float(s), repeats=repeats)
        for v, e, s in zip(b, errors, scatter, strict=True)
    )


def moderated(slopes: Sequence[Slope]) -> tuple[Slope, ...]:
    """The slopes of one check, with errors that borrow strength from each other.

    The variances V_i of slopes are taken to be ``phi * d0 / chi2(d0)`` times what their residuals
    say; phi and d0 follow from the mean and the variance of ``log(scatter_i^2 / error_i^2)``. Then

        V_i = (d0 phi error_i^2 + (S - 1) scatter_i^2) / (d0 + S - 1)    with d0 + S - 1 degrees

    of freedom. If all slopes are alike, d0 is large: V_i is phi times what the residuals say. If
    they are not, d0 is small and each has to show its own scatter. How unequal they are is known
    badly from tens of slopes: the variance of the logarithms is taken one standard error larger
    than found, as slopes that pass for alike by chance would be trusted too much. V_i is never
    taken below what the residuals say, nor its degrees of freedom above theirs. Fewer than 12
    slopes are left as they are.

    Args:
        slopes: of one check, each with its own error.

    Returns:
        The same slopes with moderated errors.

    Example:
        >>> slopes = [Slope(value=0.0, error=0.1, freedom=2.0)]
        >>> moderated(slopes) == tuple(slopes)  # one tells nothing of others
        True

    *Source:* Smyth (2004), Statistical Applications in Genetics and Molecular Biology 3:3, Sections
    4 and 6.2, but for that standard error and a prior variance that is proportional to that of the
    residuals.
    """
    usable = [s for s in slopes if s.repeats and s.error > 1e-9 and s.scatter > 0]
    if len(usable) < ENOUGH:
        return tuple(slopes)
    logs = np.array([2 * math.log(s.scatter / s.error) for s in usable])
    repeats = np.array([s.repeats for s in usable])
    freedoms = np.array([s.freedom for s in usable])
    logs = logs - _log_mean(repeats) + _log_mean(freedoms)
    # Cumulants of log(chi2): what the logarithms show where all slopes are alike.
    second, fourth = (
        float(np.mean(polygamma(n, repeats / 2) + polygamma(n, freedoms / 2))) for n in (1, 3)
    )
    error = math.sqrt(fourth / len(logs) + 2 * second**2 / (len(logs) - 1))
    between = float(logs.var(ddof=1)) - second + error
    d0 = 2 * _inverse_trigamma(between) if between > 0 else math.inf
    log_phi = float(logs.mean()) + (float(_log_mean(np.array(d0))) if d0 < math.inf else 0.0)
    phi = math.exp(max(log_phi, 0.0))
    return tuple(_moderated(s, phi, d0) for s in slopes)


def _moderated(s: Slope, phi: float, d0: float) -> Slope:
    if not s.repeats:
        return s
    weight = 1.0 if d0 == math.inf else d0 / (d0 + s.repeats)
    variance = weight * phi * s.error**2 + (1 - weight) * s.scatter**2
    return Slope(
        value=s.value,
        error=max(math.sqrt(variance), s.error),
        freedom=min(d0 + s.repeats, s.freedom),
    )


def _log_mean(freedom: Array) -> Array:
    """The mean of log(chi2(d) / d)."""
    return np.asarray(polygamma(0, freedom / 2) - np.log(freedom / 2))


def _inverse_trigamma(y: float) -> float:
    """By Newton's method on 1 / trigamma, which is convex and nearly linear (limma's)."""
    x, step = 0.5 + 1 / y, math.inf
    while abs(step) > 1e-12 * x:
        trigamma = float(polygamma(1, np.array(x)))
        step = trigamma * (1 - trigamma / y) / float(polygamma(2, np.array(x)))
        x += step
    return x


def _centred(a: Array, of: Index, groups: int) -> Array:
    result = a.copy()
    for g in range(groups):
        result[of == g] -= a[of == g].mean(axis=0)
    return result


def _own(x: Array, y: Array) -> Array | None:
    """The slopes of one seed alone, centred; None if its sizes do not fix them."""
    slopes, _, rank, _ = np.linalg.lstsq(x, y, rcond=None)
    return np.asarray(slopes) if rank == x.shape[1] else None


def local_slopes(sizes: Sequence[float], values: Sequence[float]) -> list[float]:
    """Slopes between consecutive sizes on log-log axes.

    Args:
        sizes: increasing.
        values: positive, one for each size.

    Returns:
        One slope for each step from size to size.

    Example:
        >>> local_slopes([1, 2, 4], [1, 2, 8])
        [1.0, 2.0]

    Raises:
        ValueError: sizes or values that are not positive, or a size twice in a row.
    """
    if not all(number > 0 for number in (*sizes, *values)):
        raise ValueError(f"Expected positive sizes and values; got {sizes} and {values}.")
    if any(s1 == s2 for s1, s2 in pairwise(sizes)):
        raise ValueError(f"Expected sizes that differ from one to the next; got {sizes}.")
    return [
        math.log(v2 / v1) / math.log(s2 / s1)
        for (s1, v1), (s2, v2) in zip(
            zip(sizes, values, strict=True),
            zip(sizes[1:], values[1:], strict=True),
            strict=False,
        )
    ]
