"""Gaussian expectations: closed forms against derivatives of k0, quadrature and Monte Carlo."""

import math

import numpy as np
import pytest

from depthmup import limits
from depthmup.limits.gaussian import ACTIVATIONS, resolve, uncentred

FUNCTIONS = {
    "identity": lambda z: z,
    "erf": lambda z: np.vectorize(__import__("math").erf)(z),
    "sin": np.sin,
    "cos": np.cos,
    "relu": lambda z: np.maximum(z, 0),
    "abs": np.abs,
    "tanh": np.tanh,
    "gelu": lambda z: z * 0.5 * (1 + np.vectorize(__import__("math").erf)(z / np.sqrt(2))),
    "softplus": lambda z: np.log1p(np.exp(z)),
}
# Moderate, nearly collinear, negatively correlated, large variance.
POINTS = [(1.0, 0.3, 0.7), (1.2, 1.0, 0.9), (0.8, -0.5, 1.5), (5.0, 1.0, 6.0)]


def pair(name, a, b, c):
    return resolve(name).pair(*(np.array(value) for value in (a, b, c)))


def test_every_activation_is_tested():
    assert set(FUNCTIONS) == set(ACTIVATIONS)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_are_derivatives_of_k0(name, point):
    a, b, c = point
    h = 1e-4

    def k0(a, b, c):
        return float(pair(name, a, b, c).k0)

    here = pair(name, a, b, c)
    db = (k0(a, b + h, c) - k0(a, b - h, c)) / (2 * h)
    dbb = (k0(a, b + h, c) - 2 * k0(a, b, c) + k0(a, b - h, c)) / h**2
    da = (k0(a + h, b, c) - k0(a - h, b, c)) / (2 * h)
    dab = (
        k0(a + h, b + h, c) - k0(a + h, b - h, c) - k0(a - h, b + h, c) + k0(a - h, b - h, c)
    ) / (4 * h**2)
    # Second differences: truncation h^2 times a fourth derivative (up to about 50 for relu and abs
    # near collinearity), rounding 1e-16 / h^2.
    got = np.array([here.v1, here.k2, here.k11 / 2, here.k31 / 2])
    assert np.allclose(got, [db, dbb, da, dab], rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_variances_do_not_overflow(name):
    """cosh overflows above 710; what it is multiplied by makes the product finite."""
    large = pair(name, 2000.0, 1999.0, 2000.0)
    # z - z' has variance 2 and z + z' one of 7998, whose cosine averages out: e^-1 / 2.
    assert large.k0 == pytest.approx(math.exp(-1) / 2, rel=1e-12)
    assert large.v1 == pytest.approx(math.exp(-1) / 2, rel=1e-12)


def test_small_variances_lose_no_digits():
    small = 1e-9
    cosine = resolve("cos").single(np.array(small))
    assert cosine.variance == pytest.approx(small**2 / 2, rel=2 * small)  # (1 - e^-A)^2 / 2
    assert pair("cos", small, small / 2, small).k0 == pytest.approx(small**2 / 8, rel=2 * small)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_k0_by_brute_force(name):
    """A trapezoid rule on a square grid of both entries, which assumes no structure at all."""
    a, b, c = 1.3, -0.4, 0.8
    u = np.linspace(-8, 8, 1601)
    inverse = np.linalg.inv([[a, b], [b, c]])
    x, y = u[:, None], u
    density = np.exp(
        -0.5 * (inverse[0, 0] * x**2 + 2 * inverse[0, 1] * x * y + inverse[1, 1] * y**2)
    )
    density /= density.sum()
    phi = FUNCTIONS[name](u)
    covariance = phi @ density @ phi - (density.sum(1) @ phi) * (density.sum(0) @ phi)
    # Kinks cost the trapezoid rule h^2 / 12 with h = 0.01.
    assert pair(name, a, b, c).k0 == pytest.approx(covariance, abs=2e-5)


@pytest.mark.parametrize("variance", [0.7, 4.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_singles_by_brute_force(name, variance):
    z = np.linspace(-9, 9, 200_001) * np.sqrt(variance)
    weight = np.exp(-(z**2) / (2 * variance))
    weight /= weight.sum()
    phi = FUNCTIONS[name](z)
    slope = np.gradient(phi, z)
    single = resolve(name).single(np.array(variance))
    assert single.variance == pytest.approx(weight @ phi**2 - (weight @ phi) ** 2, abs=1e-6)
    assert single.v1 == pytest.approx(weight @ slope**2, abs=1e-4)  # np.gradient at a kink
    assert single.mean_slope == pytest.approx(weight @ slope, abs=1e-4)
    h = 1e-4
    above, below = (resolve(name).single(np.array(variance + s)).variance for s in (h, -h))
    assert single.vp == pytest.approx((above - below) / (2 * h), abs=1e-7)


def test_quadrature_reproduces_closed_forms():
    sine = limits.smooth(np.sin, np.cos, lambda z: -np.sin(z), lambda z: -np.cos(z))
    for a, b, c in POINTS:
        point = np.array(a), np.array(b), np.array(c)
        ours, closed = sine.pair(*point), resolve("sin").pair(*point)
        for name in ("k0", "v1", "k2", "k11", "k31"):
            assert getattr(ours, name) == pytest.approx(float(getattr(closed, name)), abs=1e-13)


def test_gauss_hermite_would_not_do():
    """Why the trapezoid rule: 60 Gauss-Hermite nodes miss E tanh'^2 at variance 6 by 1e-4."""
    exact = float(resolve("tanh").single(np.array(6.0)).v1)
    z = np.linspace(-9, 9, 4001) * np.sqrt(6)
    weight = np.exp(-(z**2) / 12)
    slope = 1 - np.tanh(z) ** 2
    assert exact == pytest.approx(weight @ slope**2 / weight.sum(), abs=1e-14)
    nodes, hermite = np.polynomial.hermite_e.hermegauss(60)
    slope = 1 - np.tanh(nodes * np.sqrt(6)) ** 2
    assert abs(hermite @ slope**2 / hermite.sum() - exact) > 1e-5


@pytest.mark.parametrize("name", ["relu", "abs"])
def test_collinear_pairs_are_finite(name):
    here = pair(name, 1.0, 1.0, 1.0)
    assert np.isfinite([here.k0, here.v1, here.k2, here.k11, here.k31]).all()
    single = resolve(name).single(np.array(1.0))
    assert here.k0 == pytest.approx(float(single.variance), abs=1e-12)
    assert here.v1 == pytest.approx(float(single.v1), abs=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_plain_moments_by_brute_force(name):
    """E phi, E phi'' = 2 dE phi/dA, and the uncentred k0, k11 and vp that follow from them."""
    a, b, c, h = 1.3, -0.4, 0.8, 1e-4
    phi = resolve(name)
    u = np.linspace(-9, 9, 200_001)
    weight = np.exp(-(u**2) / 2)
    weight /= weight.sum()

    def mean(variance):
        return float(weight @ FUNCTIONS[name](np.sqrt(variance) * u))

    def square(variance):
        return float(weight @ FUNCTIONS[name](np.sqrt(variance) * u) ** 2)

    one, other = phi.single(np.array(a)), phi.single(np.array(c))
    assert float(one.mean) == pytest.approx(mean(a), abs=1e-7)
    curvature = (mean(a + h) - mean(a - h)) / h
    assert float(one.mean_curvature) == pytest.approx(curvature, abs=1e-6)
    plain = uncentred(phi)
    centred, moments = pair(name, a, b, c), plain.pair(*(np.array(v) for v in (a, b, c)))
    assert float(moments.k0) == pytest.approx(float(centred.k0) + mean(a) * mean(c), abs=1e-7)
    k0 = [float(plain.pair(*(np.array(v) for v in (a + d, b, c))).k0) for d in (h, -h)]
    assert float(moments.k11) == pytest.approx((k0[0] - k0[1]) / h, abs=1e-6)
    single = plain.single(np.array(a))
    assert float(single.variance) == pytest.approx(square(a), abs=1e-7)
    slope = (square(a + h) - square(a - h)) / (2 * h)
    assert float(single.vp) == pytest.approx(slope, abs=1e-6)
    assert float(other.mean) == pytest.approx(mean(c), abs=1e-7)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_and_its_slope_are_those_of_the_expectations(name):
    phi, z, h = resolve(name), np.array([-1.7, -0.3, 0.4, 2.2]), 1e-6
    assert np.allclose(phi.function(z), FUNCTIONS[name](z), rtol=0, atol=1e-12)
    slope = (phi.function(z + h) - phi.function(z - h)) / (2 * h)
    assert np.allclose(phi.slope(z), slope, rtol=0, atol=1e-8)
