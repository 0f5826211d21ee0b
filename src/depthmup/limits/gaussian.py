"""Gaussian expectations of an activation: all that an infinitely wide layer knows of it.

For centered Gaussian (z, z') with variances A, C and covariance b,

    k0  = Cov(phi(z), phi(z'))            V1  = E phi'(z) phi'(z')          = dk0/db
    k2  = E phi''(z) phi''(z')  = d2k0/db2
    k11 = E phi''(z) (phi(z') - E phi)    = 2 dk0/dA
    k31 = E phi'''(z) phi'(z')            = 2 d2k0/db dA
    vp  = dVar[phi(z)]/dA = E phi'' (phi - E phi) + E phi'^2

Where phi is not smooth (relu, abs) the derivatives of k0 are the definition. Closed forms where
they exist, otherwise the trapezoid rule, which converges geometrically for analytic phi; at the
variances that occur (up to about 6), Gauss-Hermite rules with 60 to 100 nodes do not.

*Source:* k0 and V1 uncentred: of erf Williams, "Computing with infinite networks" (1996); of relu,
and so of abs, Cho and Saul, "Kernel methods for deep learning" (2009). The rest is differentiated.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from scipy import special

from depthmup.limits.step import Array

Function = Callable[[Array], Array]
_PI = np.pi


@dataclass(frozen=True)
class Joint:
    """Expectations of two correlated entries; the names are those of the module's head."""

    k0: Array
    v1: Array
    k2: Array
    k11: Array
    k31: Array


@dataclass(frozen=True)
class Marginal:
    """Expectations of one entry: Var phi, E phi'^2, ``vp``, E phi', E phi and E phi''.

    E phi'' is 2 dE phi/dA, its definition where phi is not smooth.
    """

    variance: Array
    v1: Array
    vp: Array
    mean_slope: Array
    mean: Array
    mean_curvature: Array


@dataclass(frozen=True, kw_only=True)
class Activation:
    """A nonlinearity by its expectations: ``pair(A, b, C)`` and ``single(A)``, elementwise.

    ``function`` and ``slope`` are phi and phi' themselves, where averages over points need them.
    ``kinked``: phi is not smooth, so expectations are singular where two inputs are collinear.
    ``sampled``: pairs cost a quadrature each, so a solver should ask for few.

    Attributes:
        name: phi's.
    """

    name: str
    pair: Callable[[Array, Array, Array], Joint]
    single: Callable[[Array], Marginal]
    function: Function
    slope: Function
    kinked: bool = False
    sampled: bool = False


def smooth(
    function: Function, first: Function, second: Function, third: Function, name: str = "smooth"
) -> Activation:
    """Any smooth activation from phi and its first three derivatives, by quadrature.

    Expectations are nan at variances beyond 3236, for which a grid would not fit into memory, and
    where phi grows so fast that its square is not small at the grid's ends (exp beyond a variance
    of 2 or so): a solve that comes to them ends as exploded.

    Args:
        function: phi, elementwise.
        first: phi'.
        second: phi''.
        third: phi'''.
        name: for messages and solutions.

    Returns:
        The activation, with the Gaussian averages that limits need.

    Raises:
        ValueError: functions that do not take arrays, or that are not each the derivative of the
            one before.

    Example:
        >>> cube = smooth(lambda z: z**3, lambda z: 3 * z**2, lambda z: 6 * z, lambda z: 6.0)
        >>> round(float(cube.single(np.array(1.0)).variance), 9)  # E z^6
        15.0
    """

    _require_derivatives(function, first, second, third)
    function, first, second, third = map(_entrywise, (function, first, second, third))

    def pair(a: Array, b: Array, c: Array) -> Joint:
        """By quadrature, a pair of entries at a time: nan where a variance is too large."""
        a, b, c = np.broadcast_arrays(a, b, c)
        out = np.empty((5, *a.shape))
        # One pair of entries at a time: the grid is what is vectorized.
        for i in np.ndindex(a.shape):
            # Turned round, so that a variance of nan is caught too.
            if not max(a[i], c[i]) <= _LARGEST_VARIANCE:
                out[(slice(None), *i)] = np.nan
                continue
            # Rounded: the many variances of a solve share a few grids.
            u, weight = _trapezoid(round(float(np.maximum(a[i], c[i])), 1))
            root = np.sqrt(a[i])
            # z' is slope u and a part independent of z, whose variance rounding can put below 0.
            slope = b[i] / root if root > 0 else 0.0
            z = root * u
            other = slope * u[:, None] + np.sqrt(np.maximum(c[i] - slope**2, 0.0)) * u
            given = function(other) @ weight  # E[phi(z') | z]
            given_first, given_second = first(other) @ weight, second(other) @ weight
            left = weight * function(z)
            left_second = weight * second(z)
            mean = weight @ given
            out[(0, *i)] = left @ given - left.sum() * mean
            out[(1, *i)] = (weight * first(z)) @ given_first
            out[(2, *i)] = left_second @ given_second
            out[(3, *i)] = left_second @ given - left_second.sum() * mean
            out[(4, *i)] = (weight * third(z)) @ given_first
        return Joint(*out)

    def single(a: Array) -> Marginal:
        a = np.where(a <= _LARGEST_VARIANCE, a, np.nan)
        known = a[np.isfinite(a)]
        u, weight = _trapezoid(round(float(known.max()), 1) if known.size else 1.0)
        z = np.sqrt(a)[..., None] * u
        value, slope = function(z), first(z)
        deviation = value - (value @ weight)[..., None]
        square = slope**2 @ weight
        curvature = second(z)
        curved = (curvature * deviation) @ weight
        variance = deviation**2 @ weight
        edges = (deviation[..., [0, -1]] ** 2 * weight[[0, -1]]).max(axis=-1)
        return Marginal(
            variance=np.where(edges > _BEYOND * variance, np.nan, variance),
            v1=square,
            vp=curved + square,
            mean_slope=slope @ weight,
            mean=value @ weight,
            mean_curvature=curvature @ weight,
        )

    return Activation(
        name=name, pair=pair, single=single, function=function, slope=first, sampled=True
    )


def _entrywise(function: Function) -> Function:
    """The function, of which a constant may have been given as one number."""
    return lambda z: np.broadcast_to(np.asarray(function(z), dtype=np.float64), z.shape)


_DERIVATIVES = ("phi", "phi'", "phi''", "phi'''")


def _require_derivatives(*functions: Function) -> None:
    """Refuse functions that are not each the derivative of the one before, at a few places."""
    z, h = np.array([-1.3, -0.4, 0.0, 0.7, 1.1]), 1e-4
    values = []
    for name, function in zip(_DERIVATIVES, functions, strict=True):
        try:
            low, at, high = (_entrywise(function)(x) for x in (z - h, z, z + h))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Expected {name} of an activation to take arrays entry by entry; got {error}. Use "
                "NumPy's functions."
            ) from None
        values.append((name, at, (high - low) / (2 * h)))
    for (of, _, slope), (name, at, _) in pairwise(values):
        # Differences err by h^2 of a third derivative, at a kink by half of its jump.
        off = np.abs(at - slope) > 1e-3 * (1 + np.abs(slope))
        if off.any():
            i = int(np.argmax(off))
            raise ValueError(
                f"Expected {name} to be the derivative of {of}, which is {slope[i]:.4g} at "
                f"z = {z[i]:g}; got {at[i]:.4g}. What has a kink there is not smooth."
            )


_MOST_POINTS = 4096
"""A pair's grid has the square of it: 128 MiB, of which a handful are held at a time."""

_LARGEST_VARIANCE = (_MOST_POINTS / 72) ** 2

_BEYOND = 1e-9
"""The part of a variance that one point at the end of a grid may have: the tolerance of limits."""


@lru_cache(maxsize=64)
def _trapezoid(variance: float) -> tuple[Array, Array]:
    """Points and weights for expectations over a standard normal of functions of z = sqrt(var) u.

    8.6 standard deviations hold all but 1e-17 of the mass. The error is like
    exp(-2 pi distance / spacing), distance being that of the nearest pole in units of u: for tanh
    (pole at i pi/2) this spacing gives 1e-17 at any variance.
    """
    count = math.ceil(72 * math.sqrt(max(1.0, variance)))
    u = np.linspace(-8.6, 8.6, count)
    weight = np.exp(-(u**2) / 2)
    return u, weight / weight.sum()


def _identity() -> Activation:
    def pair(a: Array, b: Array, c: Array) -> Joint:
        """k0 = b and V1 = 1; all else is 0."""
        a, b, c = np.broadcast_arrays(a, b, c)
        zero = np.zeros_like(b)
        return Joint(b, np.ones_like(b), zero, zero, zero)

    def single(a: Array) -> Marginal:
        one, zero = np.ones_like(a), np.zeros_like(a)
        return Marginal(a, one, one, one, zero, zero)

    return Activation(
        name="identity", pair=pair, single=single, function=np.positive, slope=np.ones_like
    )


def _erf() -> Activation:
    def pair(a: Array, b: Array, c: Array) -> Joint:
        """k0 = 2/pi arcsin(2b / sqrt(p q)), with p = 1 + 2A and q = 1 + 2C."""
        p, q = 1 + 2 * a, 1 + 2 * c
        root = np.sqrt(p * q - 4 * b**2)
        return Joint(
            2 / _PI * np.arcsin(2 * b / np.sqrt(p * q)),
            4 / _PI / root,
            16 / _PI * b / root**3,
            -8 / _PI * b / (p * root),
            -8 / _PI * q / root**3,
        )

    def single(a: Array) -> Marginal:
        p, root = 1 + 2 * a, np.sqrt(1 + 4 * a)
        vp = 4 / _PI / (p * root)
        slope, zero = 2 / np.sqrt(_PI * p), np.zeros_like(a)
        return Marginal(2 / _PI * np.arcsin(2 * a / p), 4 / _PI / root, vp, slope, zero, zero)

    return Activation(
        name="erf",
        pair=pair,
        single=single,
        function=special.erf,
        slope=lambda z: 2 / math.sqrt(_PI) * np.exp(-(z**2)),
    )


def _damped(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """e sinh b, e cosh b and e (cosh b - 1) with e = exp(-(A + C) / 2)."""
    # As |b| <= (A + C) / 2 every exponent is at most 0: cosh alone overflows at variances above
    # 710. Written by expm1, the differences lose no digits at small b.
    top, size = np.exp(np.abs(b) - (a + c) / 2), np.abs(b)
    sinh = -np.sign(b) * top * np.expm1(-2 * size) / 2
    return sinh, top * (1 + np.exp(-2 * size)) / 2, top * np.expm1(-size) ** 2 / 2


def _sin() -> Activation:
    def pair(a: Array, b: Array, c: Array) -> Joint:
        """k0 = e sinh b and V1 = e cosh b, with e = exp(-(A + C) / 2)."""
        k0, v1, _ = _damped(a, b, c)
        return Joint(k0, v1, k0, -k0, -v1)

    def single(a: Array) -> Marginal:
        e2, zero = np.exp(-2 * a), np.zeros_like(a)
        return Marginal(-np.expm1(-2 * a) / 2, (1 + e2) / 2, e2, np.exp(-a / 2), zero, zero)

    return Activation(name="sin", pair=pair, single=single, function=np.sin, slope=np.cos)


def _cos() -> Activation:
    def pair(a: Array, b: Array, c: Array) -> Joint:
        """k0 = e (cosh b - 1) and V1 = e sinh b, with e = exp(-(A + C) / 2)."""
        v1, k2, k0 = _damped(a, b, c)
        return Joint(k0, v1, k2, -k0, -v1)

    def single(a: Array) -> Marginal:
        e, lost, mean = np.exp(-a), -np.expm1(-a), np.exp(-a / 2)
        slope = -np.expm1(-2 * a) / 2
        return Marginal(lost**2 / 2, slope, e * lost, np.zeros_like(a), mean, -mean)

    return Activation(
        name="cos", pair=pair, single=single, function=np.cos, slope=lambda z: -np.sin(z)
    )


def _gap(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """sqrt(AC), rho, and q = sqrt(AC - b^2), zero where that is rounding."""
    size = np.sqrt(a * c)
    square = a * c - b**2
    # A difference of two numbers of size AC: rounding is 1e-5 of it where it is 1e-11 AC.
    q = np.sqrt(np.where(square < 1e-11 * a * c, 0.0, square))
    return size, np.clip(b / np.where(size > 0, size, 1.0), -1.0, 1.0), q


def _over(numerator: Array | float, q: Array) -> Array:
    """numerator / q, and 0 where q = 0: k2 x_s + k31 x_r has a limit there, its parts do not."""
    return np.where(q > 0, numerator / np.where(q > 0, q, 1.0), 0.0)


def _relu() -> Activation:
    def pair(a: Array, b: Array, c: Array) -> Joint:
        """k0 = (q + b (pi - arccos rho) - sqrt(AC)) / (2 pi); q and rho as in ``_gap``."""
        a, b, c = np.broadcast_arrays(a, b, c)
        size, rho, q = _gap(a, b, c)
        away = _PI - np.arccos(rho)
        root = np.sqrt(np.where(a > 0, a, 1.0))
        return Joint(
            (q + b * away - size) / (2 * _PI),
            away / (2 * _PI),
            _over(1 / (2 * _PI), q),
            (q / root - np.sqrt(c)) / (2 * _PI * root),
            -_over(b / (2 * _PI * root**2), q),
        )

    def single(a: Array) -> Marginal:
        vp = np.full_like(a, 0.5 - 0.5 / _PI)
        half, deviation = np.full_like(a, 0.5), np.sqrt(a)
        density = _over(1 / math.sqrt(2 * _PI), deviation)
        return Marginal(a * vp, half, vp, half, deviation / math.sqrt(2 * _PI), density)

    return Activation(
        name="relu",
        pair=pair,
        single=single,
        function=lambda z: np.maximum(z, 0.0),
        slope=lambda z: np.where(z > 0, 1.0, 0.0),
        kinked=True,
    )


def _abs() -> Activation:
    def pair(a: Array, b: Array, c: Array) -> Joint:
        """k0 = 2/pi (q + b arcsin rho - sqrt(AC)); q and rho as in ``_gap``."""
        a, b, c = np.broadcast_arrays(a, b, c)
        size, rho, q = _gap(a, b, c)
        root = np.sqrt(np.where(a > 0, a, 1.0))
        return Joint(
            2 / _PI * (q + b * np.arcsin(rho) - size),
            2 / _PI * np.arcsin(rho),
            _over(2 / _PI, q),
            2 / _PI * (q / root - np.sqrt(c)) / root,
            -_over(2 / _PI * b / root**2, q),
        )

    def single(a: Array) -> Marginal:
        vp = np.full_like(a, 1 - 2 / _PI)
        zero, root = np.zeros_like(a), math.sqrt(2 / _PI)
        deviation = np.sqrt(a)
        return Marginal(a * vp, np.ones_like(a), vp, zero, root * deviation, _over(root, deviation))

    return Activation(
        name="abs", pair=pair, single=single, function=np.abs, slope=np.sign, kinked=True
    )


def _tanh() -> Activation:
    def first(z: Array) -> Array:
        return 1 - np.tanh(z) ** 2

    def second(z: Array) -> Array:
        t = np.tanh(z)
        return np.asarray(-2 * t * (1 - t**2))

    def third(z: Array) -> Array:
        t2 = np.tanh(z) ** 2
        return np.asarray((1 - t2) * (6 * t2 - 2))

    return smooth(np.tanh, first, second, third, "tanh")


def _gelu() -> Activation:
    def density(z: Array) -> Array:
        return np.asarray(np.exp(-(z**2) / 2) / np.sqrt(2 * _PI))

    return smooth(
        lambda z: z * special.ndtr(z),
        lambda z: special.ndtr(z) + z * density(z),
        lambda z: (2 - z**2) * density(z),
        lambda z: (z**3 - 4 * z) * density(z),
        "gelu",
    )


def _softplus() -> Activation:
    def second(z: Array) -> Array:
        s = special.expit(z)
        return np.asarray(s * (1 - s))

    return smooth(
        lambda z: np.logaddexp(0.0, z),
        special.expit,
        second,
        lambda z: second(z) * (1 - 2 * special.expit(z)),
        "softplus",
    )


ACTIVATIONS: dict[str, Callable[[], Activation]] = {
    "identity": _identity,
    "erf": _erf,
    "sin": _sin,
    "cos": _cos,
    "relu": _relu,
    "abs": _abs,
    "tanh": _tanh,
    "gelu": _gelu,
    "softplus": _softplus,
}


def uncentred(phi: Activation) -> Activation:
    """The same with plain moments: k0 = E phi phi', k11 = E phi'' phi', vp = dE phi^2/dA.

    A block with two matrices multiplies phi by random weights, which average away its mean; a
    block with one subtracts it.
    """

    def pair(a: Array, b: Array, c: Array) -> Joint:
        """Those of ``phi``, with the products of means that centring took off."""
        here, first, second = phi.pair(a, b, c), phi.single(a), phi.single(c)
        return replace(
            here,
            k0=here.k0 + first.mean * second.mean,
            k11=here.k11 + first.mean_curvature * second.mean,
        )

    def single(a: Array) -> Marginal:
        here = phi.single(a)
        return replace(
            here,
            variance=here.variance + here.mean**2,
            vp=here.vp + here.mean_curvature * here.mean,
        )

    return replace(phi, pair=pair, single=single)


def pairs_among(phi: Activation, cov: Float[Array, "*depths n n"]) -> tuple[Array, Array]:
    """k0 and V1 of entries with each other, from their covariances (..., N, N)."""
    own = np.arange(cov.shape[-1])
    square = cov[..., own, own]
    k0, v1 = np.empty((2, *cov.shape))
    # Every pair once, as both are symmetric. One entry has none, and is spared the quadrature.
    if len(own) > 1:
        first, second = np.triu_indices(len(own), 1)
        pair = phi.pair(square[..., first], cov[..., first, second], square[..., second])
        k0[..., first, second] = k0[..., second, first] = pair.k0
        v1[..., first, second] = v1[..., second, first] = pair.v1
    # An entry with itself: quadrature of a pair would take the root of a rounding error.
    single = phi.single(square)
    k0[..., own, own], v1[..., own, own] = single.variance, single.v1
    return k0, v1


def resolve(activation: str | Activation) -> Activation:
    """An activation by name, or as given.

    Args:
        activation: a name such as ``relu``, or an activation.

    Returns:
        The activation.

    Raises:
        ValueError: no activation has this name; lists those there are.

    Example:
        >>> resolve("relu").name
        'relu'
    """
    if isinstance(activation, Activation):
        return activation
    if activation not in ACTIVATIONS:
        near = difflib.get_close_matches(str(activation), ACTIVATIONS, n=1)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(
            f"activation must be one of {', '.join(ACTIVATIONS)}, or a limits.Activation made by "
            f"limits.smooth(phi, phi', phi'', phi'''); got {activation!r}." + meant
        )
    return ACTIVATIONS[activation]()
