"""Feature diversity and the depth exponents of every regime."""

import math
from fractions import Fraction

import flat
import numpy as np
import pytest

from depthmup import limits, rules
from reproduction.theory.diversity import feature_diversity
from reproduction.theory.regimes import depth_exponents

EPS = [1 / 32, 1 / 16, 1 / 8, 1 / 4]


def slopes(distances):
    return np.diff(np.log2(distances), axis=0)


def test_at_initialization_it_is_a_random_walk(reference):
    """|x(p + eps) - x(p)|^2 = (e^eps - 1) e^p |xi|^2; at finite depth powers of 1 + 1/L."""
    s = flat.linear(reference, depth=math.inf, lr=1.0, history=True)
    got = feature_diversity(s, EPS)[:, 0] ** 2
    assert np.allclose(got, np.expm1(EPS) * math.exp(0.25), rtol=1e-12)
    s = flat.linear(reference, depth=32, lr=1.0, history=True)
    got = feature_diversity(s, EPS)[:, 0] ** 2
    growth = (1 + 1 / 32) ** (32 * np.array(EPS)) - 1
    assert np.allclose(got, growth * (1 + 1 / 32) ** 8, rtol=1e-12)


@pytest.mark.parametrize(
    ("alpha", "step", "expected"),
    [
        ("1/2", 1, [0.54, 0.58, 0.66]),
        ("1/2", 2, [0.490, 0.481, 0.466]),
        (1, 1, [1.0, 1.0, 1.0]),
    ],
)
def test_known_slopes(reference, alpha, step, expected):
    s = flat.linear(
        reference, depth=math.inf, lr=1.0, alpha=alpha, gamma=1 - Fraction(alpha), history=True
    )
    got = slopes(feature_diversity(s, EPS))[:, step]
    assert np.allclose(got, expected, rtol=0, atol=0.006)


def test_the_exponent_at_small_eps(reference):
    near = [2.0**-k for k in range(14, 10, -1)]
    s = flat.linear(reference, depth=math.inf, lr=1.0, history=True)
    assert np.allclose(slopes(feature_diversity(s, near)), 0.5, atol=1e-3)
    s = flat.linear(reference, depth=math.inf, lr=1.0, alpha=1, gamma=0, history=True)
    got = slopes(feature_diversity(s, near))[:, 1:]
    assert np.allclose(got, 1.0, atol=1e-3)


@pytest.mark.parametrize("extra", [{}, {"lr_input": 0.2, "lr_readout": 0.1}])
def test_finite_depth_approaches_infinite_depth(reference, extra):
    exact = feature_diversity(
        flat.linear(reference, depth=math.inf, lr=1.0, history=True, **extra), EPS
    )
    gaps = []
    for depth in (64, 128, 256, 512):
        s = flat.linear(reference, depth=depth, lr=1.0, history=True, **extra)
        gaps.append(np.abs(feature_diversity(s, EPS) - exact).max())
    assert np.allclose(np.diff(np.log2(gaps)), -1.0, atol=0.05)


def test_diversity_of_wide_networks(make_steps):
    """The mean square distance between two depths of simulated networks, after three steps."""
    steps, width, depth, lr = make_steps(8, count=3, batch=1, d_out=1), 500, 8, 1.0
    samples = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        u, v = rng.normal(size=(width, 3)), rng.normal(size=(width, 1))
        w = rng.normal(size=(depth, width, width)) / np.sqrt(width)
        rows = []
        for step in steps:
            x = [step.inputs @ u.T]
            for weight in w:
                x.append(x[-1] + x[-1] @ weight.T / np.sqrt(depth))
            rows.append([np.mean((x[2 + k] - x[2]) ** 2) for k in (2, 4)])
            d = step.loss.gradient(x[-1] @ v / width) @ v.T
            for layer in range(depth - 1, -1, -1):
                before = d @ w[layer]
                w[layer] -= lr / np.sqrt(depth) / width * d.T @ x[layer]
                d = d + before / np.sqrt(depth)
        samples.append(rows)
    mean, error = np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / 4
    s = flat.linear(steps, depth=depth, lr=lr, history=True)
    exact = feature_diversity(s, [0.25, 0.5], at=0.25) ** 2
    z = (mean - exact.T) / np.maximum(error, 2 / width)
    assert np.abs(z).max() < 4.5
    without_update = flat.linear(steps, depth=depth, lr=0.0, history=True)
    wrong = feature_diversity(without_update, [0.25, 0.5], at=0.25) ** 2
    assert np.abs((mean - wrong.T) / error).max() > 4.5


def test_nonlinear_diversity(make_steps):
    """For the identity it is the linear one; at initialization abs is more diverse than relu."""
    steps = make_steps(4)
    one = limits.nonlinear(steps, activation="identity", lr=0.7, tol=1e-11, history=True)
    other = flat.linear(steps, depth=math.inf, lr=0.7, tol=1e-11, history=True)
    got, exact = (feature_diversity(s, EPS) for s in (one, other))
    assert np.abs(got - exact).max() < 1e-9
    for activation, rate in (("abs", 1 - 2 / np.pi), ("relu", 0.5 - 0.5 / np.pi)):
        s = limits.nonlinear(steps, activation=activation, lr=0.7, history=True)
        first = (steps[0].inputs ** 2).sum(1)
        growth = np.expm1(rate * np.array(EPS)) * np.exp(rate / 4)
        found = feature_diversity(s, EPS)[:, :2] ** 2
        assert np.allclose(found, growth[:, None] * first, rtol=1e-9)


@pytest.mark.long
def test_nonlinear_diversity_of_wide_networks(make_steps):
    """Mean square distance between two depths of simulated sin networks after two updates."""
    steps, width, lr, samples = make_steps(8, count=3, batch=1, d_out=1), 256, 3.0, {}
    for depth in (8, 64):
        samples[depth] = []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            u, v = rng.normal(size=(width, 3)), rng.normal(size=(width, 1))
            w = rng.normal(size=(depth, width, width)) / np.sqrt(width)
            for step in steps:
                x, hidden = [step.inputs @ u.T], []
                for weight in w:
                    hidden.append(np.sin(x[-1] @ weight.T))
                    x.append(x[-1] + (hidden[-1] - hidden[-1].mean()) / np.sqrt(depth))
                if step is steps[-1]:
                    break
                d = step.loss.gradient(x[-1] @ v / width) @ v.T
                for layer in range(depth - 1, -1, -1):
                    g = np.cos(x[layer] @ w[layer].T) * (d - d.mean())
                    before = g @ w[layer]
                    w[layer] -= lr / np.sqrt(depth) / width * g.T @ x[layer]
                    d = d + before / np.sqrt(depth)
            samples[depth].append(np.mean((x[depth // 2] - x[depth // 4]) ** 2))
    exact = limits.nonlinear(steps, activation="sin", lr=lr, history=True)
    limit = feature_diversity(exact, [0.25])[0, 2] ** 2
    frozen = limits.nonlinear(steps, activation="sin", lr=0.0, history=True)
    untrained = feature_diversity(frozen, [0.25])[0, 2] ** 2
    mean = {depth: np.mean(values) for depth, values in samples.items()}
    error = np.std(samples[64], ddof=1) / np.sqrt(12)
    assert abs(mean[8] - limit) > 0.05  # of 0.20
    # From depth 8 to 64 a deviation of order L^-1/2 to L^-1 falls by 2.8 to 8.
    assert abs(mean[64] - limit) < abs(mean[8] - limit) / 2.8 + 3 * error
    assert mean[64] - untrained > 5 * error
    assert limit - untrained > 0.08


def test_preactivations_of_wide_networks(make_steps):
    """E h^2 of every layer after two updates; what feeds back through W_0 is a visible part."""
    from reproduction.theory.regimes import _preactivations

    steps, width, depth, lr = make_steps(8, count=3, batch=1, d_out=1), 500, 3, 0.8
    samples = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        u, v = rng.normal(size=(width, 3)), rng.normal(size=(width, 1))
        w = rng.normal(size=(depth, width, width)) / np.sqrt(width)
        for step in steps:
            x, h = [step.inputs @ u.T], []
            for weight in w:
                h.append(x[-1] @ weight.T)
                x.append(x[-1] + h[-1] / np.sqrt(depth))
            d = step.loss.gradient(x[-1] @ v / width) @ v.T
            for layer in range(depth - 1, -1, -1):
                before = d @ w[layer]
                w[layer] -= lr / np.sqrt(depth) / width * d.T @ x[layer]
                d = d + before / np.sqrt(depth)
        samples.append([np.mean(layer**2) for layer in h])
    mean, error = np.mean(samples, axis=0), np.std(samples, axis=0, ddof=1) / 4
    s = flat.linear(steps, depth=depth, lr=lr, history=True)
    exact = _preactivations(s, 1 / np.sqrt(depth))[:, 2]
    assert np.abs((mean - exact) / np.maximum(error, 2 / width)).max() < 4.5
    plain = s.history.x[:-1, 2, 2]
    noise_free = np.einsum("li,lij,lj->l", s.history.m[:, 2], s.history.d[1:], s.history.m[:, 2])
    without = plain + depth * noise_free
    assert np.abs((mean - without) / error).max() > 4.5


def check(alpha, gamma, tolerance=0.02):
    """Every statement of the claims about one point against its computed exponents."""
    claimed = rules.regime(alpha, gamma)
    found = depth_exponents(alpha, gamma)
    assert found.stable_at_init == claimed.stable_at_init
    assert found.stable_in_training == claimed.stable_in_training
    if not claimed.stable_at_init:
        return
    assert found.nontrivial == claimed.nontrivial
    assert found.f_1 == pytest.approx(float(1 - alpha - gamma), abs=tolerance)
    assert found.x_1 == pytest.approx(float(1 - alpha - gamma), abs=tolerance)
    assert (found.x_1 >= -found.margin) == (alpha + gamma <= 1)
    assert found.x_0 == pytest.approx(0, abs=0.01)
    if claimed.faithful is not None:
        assert found.faithful == claimed.faithful
        assert found.h_1 == pytest.approx(max(0.0, -float(gamma)), abs=tolerance)
        assert found.layerwise_linear == claimed.layerwise_linear
        assert found.linearization == pytest.approx(-float(gamma), abs=0.01)
        assert found.kappa == pytest.approx(float(claimed.kappa), abs=0.02)
    else:
        assert math.isnan(found.kappa)


@pytest.mark.long
@pytest.mark.parametrize("gamma", ["-1/2", "0", "1/4", "1/2", "1"])
@pytest.mark.parametrize("alpha", ["1/4", "1/2", "3/4", "1", "3/2"])
def test_computed_regimes_are_the_claimed_ones(alpha, gamma):
    check(Fraction(alpha), Fraction(gamma))


@pytest.mark.long(slice=False)
def test_computed_regimes_on_a_finer_grid():
    for i in range(2, 13):
        for j in range(6 - i, 11 - i):  # within 1/4 of the line alpha + gamma = 1
            # h_1^2 is 1 + const L^(-2 gamma): at gamma = -1/8 that leaves 0.05 of an exponent.
            check(Fraction(i, 8), Fraction(j, 8), tolerance=0.06)


def test_exponents_tell_points_of_the_line_apart():
    muon = depth_exponents("1/2", "1/2")
    ode = depth_exponents(1, 0)
    assert muon.layerwise_linear
    assert not ode.layerwise_linear
    assert muon.kappa > 0.45 > 0.05 > ode.kappa


def test_depths_must_double():
    with pytest.raises(ValueError, match="each twice the last"):
        depth_exponents("1/2", "1/2", depths=[16, 32, 48, 64])


@pytest.mark.parametrize("lr", [0.0, -1.0, math.nan, math.inf])
def test_exponents_of_a_step_need_one(lr):
    with pytest.raises(ValueError, match="lr must be positive and finite"):
        depth_exponents("1/2", "1/2", lr=lr)


def test_exponents_that_cannot_be_computed_are_none():
    """Nothing moves at all: no exponent says that training is unstable."""
    for options in ({"multiplier": 0.0}, {"multiplier": 1e-200}):
        with pytest.raises(ValueError, match=r"exponents of f_1.* are not numbers"):
            depth_exponents("1/2", "1/2", depths=(8, 16, 32, 64), **options)
    assert depth_exponents("1/2", 60, depths=(8, 16, 32, 64)).region == "trivial"


def test_diversity_arguments(make_steps):
    s = limits.linear(make_steps(0), depth=8, lr=0.5, history=True)
    with pytest.raises(ValueError, match="multiples of 1/8"):
        feature_diversity(s, [0.1])
    for eps in ([0.9], [], [0.125, -0.125], [0.0]):
        with pytest.raises(ValueError, match="at < at"):
            feature_diversity(s, eps)
    kinked = limits.nonlinear(
        make_steps(0, count=1) * 2, activation="relu", lr=0.5, tol=1e-4, history=True
    )
    with pytest.raises(ValueError, match="graded panels"):
        feature_diversity(kinked, [0.1])
    with pytest.raises(ValueError, match="history=True"):
        feature_diversity(limits.linear(make_steps(0), depth=8, lr=0.5), [0.5])
