"""Slopes on log-log axes, with intervals over seeds and tests that allow for many at once."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from depthmup.records import Estimate

Array: TypeAlias = NDArray[np.float64]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Slope:
    """An exponent, its standard error and the degrees of freedom behind it."""

    value: float
    error: float
    freedom: int

    def estimate(self, confidence: float = 0.95) -> Estimate:
        """The exponent with Student's interval."""
        half = float(stats.t.ppf((1 + confidence) / 2, self.freedom)) * self.error
        return Estimate(value=self.value, low=self.value - half, high=self.value + half)

    def p_outside(self, expected: float, margin: float) -> float:
        """p-value of the hypothesis that the true exponent lies within ``expected +- margin``."""
        excess = abs(self.value - expected) - margin
        if self.error == 0:
            return 1.0 if excess <= 0 else 0.0
        return float(stats.t.sf(excess / self.error, self.freedom))


def log_slopes(
    sizes: Sequence[tuple[float, ...]], values: Sequence[float], seeds: Sequence[int]
) -> tuple[Slope, ...]:
    """Exponents of ``value = c(seed) * size_1**b_1 * size_2**b_2 * ...``, by least squares on logs.

    ``sizes[i]`` are the sizes of the i-th measurement, ``values[i]`` what was measured, with
    ``seeds[i]``. Seeds share data and, as far as sizes allow, weights, so each has a constant of
    its own. The error of a slope is the larger of two estimates: that of the residuals, which
    have many degrees of freedom but assume that measurements scatter independently, and that of
    the scatter of the seeds' own slopes, which assumes nothing but is rough with few seeds.
    A size that does not vary has no slope and gives none.

    Raises:
        ValueError: values that are not positive and finite, or too few of them.

    Example:
        >>> sizes = [(2.0,), (4.0,), (8.0,)] * 2
        >>> found, = log_slopes(sizes, [4.0, 16.0, 64.1] * 2, [0] * 3 + [1] * 3)
        >>> round(found.value, 3)
        2.001
    """
    x = np.log(np.asarray(sizes, dtype=float))
    values_ = np.asarray(values, dtype=float)
    if not (np.isfinite(values_).all() and (values_ > 0).all()):
        raise ValueError(f"Logarithms need positive finite values; got {list(values)}.")
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
    scatter = float(residual @ residual) / freedom
    errors = np.sqrt(scatter * np.diag(inverse))
    own = [_own(x[of == s], y[of == s]) for s in range(len(names))]
    if len(names) > 1 and all(o is not None for o in own):
        between = np.std(np.array(own), axis=0, ddof=1) / math.sqrt(len(names))
        errors = np.maximum(errors, between)
    return tuple(
        Slope(value=float(v), error=float(e), freedom=freedom)
        for v, e in zip(b, errors, strict=True)
    )


def _centred(a: Array, of: Array, groups: int) -> Array:
    result = a.copy()
    for g in range(groups):
        result[of == g] -= a[of == g].mean(axis=0)
    return result


def _own(x: Array, y: Array) -> Array | None:
    """The slopes of one seed alone; None if its sizes do not fix them."""
    xc = x - x.mean(axis=0)
    if np.linalg.matrix_rank(xc) < x.shape[1]:
        return None
    return np.asarray(np.linalg.lstsq(xc, y - y.mean(), rcond=None)[0])


def local_slopes(sizes: Sequence[float], values: Sequence[float]) -> list[float]:
    """Slopes between consecutive sizes on log-log axes.

    Example:
        >>> local_slopes([1, 2, 4], [1, 2, 8])
        [1.0, 2.0]
    """
    return [
        math.log(v2 / v1) / math.log(s2 / s1)
        for (s1, v1), (s2, v2) in zip(
            zip(sizes, values, strict=True),
            zip(sizes[1:], values[1:], strict=True),
            strict=False,
        )
    ]


def holm(p_values: Mapping[_Key, float], *, level: float = 0.05) -> set[_Key]:
    """The hypotheses that Holm's procedure rejects: at most ``level`` chance of any wrong one.

    Sorted p-values are compared with level/m, level/(m-1), ... until one is not below. Holds under
    any dependence between the tests, which here share networks.

    Example:
        >>> sorted(holm({"a": 0.001, "b": 0.03, "c": 0.04}))
        ['a']

    *Source:* Holm (1979), Scandinavian Journal of Statistics 6:65-70.
    """
    rejected: set[_Key] = set()
    remaining = len(p_values)
    for key, p in sorted(p_values.items(), key=lambda item: item[1]):
        if p > level / remaining:
            break
        rejected.add(key)
        remaining -= 1
    return rejected
