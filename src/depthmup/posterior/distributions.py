"""The normal distribution and Student's, for which `scipy.special` takes a third of a second."""

import math
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP = 256
END = 9
"""Points of the normal distribution's table per deviation, and where it ends: at 1e-19."""

BLOCK = 8192
"""Numbers whose places and values stay in cache together."""

NODES = 64
STEPS = 100

FAR = 16
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def normal_below(x: Array) -> Array:
    """Phi(x), the probability of less, to 4e-16: Taylor's series from the nearest of 4609 points.

    What follows the fourth power is at most (1/512)^5 / 120 times the density's fourth derivative.
    """
    x = np.asarray(x, float)
    flat, value = x.ravel(), np.empty(x.size)
    *lower, highest = _series()
    for start in range(0, x.size, BLOCK):
        at = np.clip(flat[start : start + BLOCK], -END, END) * STEP
        nearest = np.rint(at)
        away = (at - nearest) / STEP
        index = nearest.astype(np.intp) + END * STEP
        part = highest.take(index)
        for coefficient in reversed(lower):
            part *= away
            part += coefficient.take(index)
        value[start : start + BLOCK] = part
    return value.reshape(x.shape)


def normal_density(x: Array) -> Array:
    """phi(x)."""
    far = np.clip(x, -4 * END, 4 * END)
    return np.asarray(_PEAK * np.exp(-0.5 * far * far))


_PEAK = 1 / math.sqrt(2 * math.pi)


@cache
def _series() -> tuple[Array, ...]:
    """Coefficients of powers of a step from every point, from the constant on."""
    x = np.arange(-END * STEP, END * STEP + 1) / STEP
    below = np.array([0.5 * math.erfc(-at * math.sqrt(0.5)) for at in x])
    density = normal_density(x)
    return below, density, -x * density / 2, (x**2 - 1) * density / 6, (3 * x - x**3) * density / 24


def student_half_width(freedom: Array, confidence: float) -> Array:
    """t with P(-t < T < t) = confidence, to 1e-12 for freedoms from 1/2 to 1e9.

    With t = sqrt(nu) sinh(w), P = 2 c (integral of cosh(w)^-nu from 0), smooth and concave in w, so
    that Newton's steps from 0 never pass the solution.

    *Source:* Student (1908), Biometrika 6:1-25.
    """
    # One by one, so that no value depends, in its last digit, on those beside it.
    each = np.vectorize(lambda nu: _half_width(float(nu), confidence), otypes=[float])
    return np.asarray(each(freedom), float)


@lru_cache(maxsize=4096)
def _half_width(freedom: float, confidence: float) -> float:
    nu, w = np.asarray(freedom), np.zeros(())
    for _ in range(STEPS):
        step = (confidence / 2 - _between(w, nu)) / (_at_zero(nu) * _density(w, nu))
        w = w + step
        if np.abs(step) <= 1e-14 * w:
            break
    return float(np.sqrt(nu) * np.sinh(w))


def student_above(t: float, freedom: float) -> float:
    """P(T > t), to 1e-12."""
    nu = np.asarray(freedom, float)
    # Beyond the second there is less than that.
    w = min(math.asinh(abs(t) / math.sqrt(freedom)), math.acosh(math.exp(40 / freedom)))
    between = float(_between(np.asarray(w), nu))
    return max(0.5 - between, 0.0) if t > 0 else 0.5 + between


def _between(w: Array, nu: Array) -> Array:
    """The probability between 0 and w."""
    points, weights = _gauss()
    return np.asarray(_at_zero(nu) * (_density(w[..., None] * points, nu[..., None]) @ weights) * w)


def _density(w: Array, nu: Array) -> Array:
    # Not of cosh, whose distance from 1 is lost to rounding where freedoms are many.
    return np.asarray(np.exp(-0.5 * nu * np.log1p(np.sinh(w) ** 2)))


def _at_zero(nu: Array) -> Array:
    """Gamma(x + 1/2) / Gamma(x) / sqrt(pi) of half the freedom, x."""
    return np.asarray(np.vectorize(_ratio, otypes=[float])(nu / 2))


def _ratio(x: float) -> float:
    if x < 100:
        return math.exp(math.lgamma(x + 0.5) - math.lgamma(x)) / math.sqrt(math.pi)
    # lgamma loses digits of large numbers.
    last = 1 + 5 / (8 * x) * (1 - 21 / (160 * x))
    return math.sqrt(x / math.pi) * (1 - 1 / (8 * x) * (1 - 1 / (16 * x) * last))


def polygamma(order: int, x: Array) -> Array:
    """The derivative of this order of digamma, of positive numbers, to 1e-14 of its value.

    By psi_n(x) = psi_n(x + 1) - (-1)^n n! x^(-n-1) up to where Stirling's series is exact.

    *Source:* Abramowitz and Stegun (1964), 6.4.6 and 6.4.11.
    """
    sign, factorial = (-1) ** (order + 1), math.factorial(order)
    steps = np.arange(FAR) + np.asarray(x, float)[..., None]
    far = np.asarray(x, float) + FAR
    first = math.factorial(order - 1) / far**order if order else -np.log(far)
    series = first + factorial / (2 * far ** (order + 1))
    for k, number in enumerate(BERNOULLI, start=1):
        factor = math.factorial(2 * k + order - 1) / math.factorial(2 * k)
        series = series + number * factor / far ** (2 * k + order)
    return np.asarray(sign * (series + factorial * (steps ** -(order + 1.0)).sum(-1)))


@cache
def _gauss() -> tuple[Array, Array]:
    """Gauss-Legendre points and weights of [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return (points + 1) / 2, weights / 2
