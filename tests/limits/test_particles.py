"""Particles: one matrix per block at finite depth, and signSGD, against what is exact."""

import itertools
import math

import flat
import numpy as np
import pytest
from wide_networks import RELU, TANH, deviations

from depthmup import limits
from depthmup.limits.methods import particles
from depthmup.limits.training import train

COMPLETEP = {"alpha": 1, "gamma": 0}


def gap(solution, expected):
    return np.abs(np.concatenate(solution.outputs).ravel() - np.ravel(expected)).max()


@pytest.mark.parametrize(
    "options", [{}, COMPLETEP, {"momentum": 0.5, "lr": [0.3, 0.2, 0.4]}, {"alpha": 0.4}]
)
def test_linear_networks_come_out_exactly(make_steps, options):
    """A linear network asks for second moments alone, which orthonormal Gaussians have exactly."""
    steps = make_steps(2, count=3, batch=2, d_in=2, d_out=2)
    held_out = np.ones((2, 2))
    options = {"lr": 0.5, "depth": 5, "held_out": held_out} | options
    exact = flat.linear(steps, **options)
    few = limits.Particles(count=4096, populations=4)
    s = flat.nonlinear(steps, activation="identity", particles=few, **options)
    assert s.status.ok
    for name in ("outputs", "held_out", "kernel", "rms"):
        left, right = np.array(getattr(s, name)), np.array(getattr(exact, name))
        assert np.abs(left - right).max() < 1e-11, name
    assert s.error_estimate < 1e-11


def test_two_matrices_come_out_as_by_quasi_monte_carlo(reference):
    """SGD through the code of signSGD, whose stream is Gaussian: an independent solver has it."""
    exact = flat.two_matrix(
        reference,
        activation="tanh",
        depth=4,
        lr=0.5,
        lr_second=0.8,
        width_ratio=2.0,
        neurons=limits.Sobol(points=2**13, scrambles=4),
    )
    asked = limits.problem(
        reference,
        activation="tanh",
        depth=4,
        lr=0.5,
        block_depth=2,
        branch=limits.Branch(width_ratio=2.0),
        optimizer=limits.SGD(lr_second=0.8),
    )
    few = limits.Particles(count=2**13, populations=4)
    runs = [train(particles.TwoMatrix(asked, few, seed)) for seed in few.seeds()]
    value, error = few.estimate(np.array([np.ravel(s.outputs) for s in runs]))
    assert np.abs(value - np.ravel(exact.outputs)).max() < 1.5 * (error + exact.error_estimate)
    assert error < 3e-3


# Means of an independent implementation with more noise: (depth, f_1 to f_4, standard error).
ONE_MATRIX = [
    (4, [-0.1823, -0.1014, -0.3146, 0.1979], 0.001),
    (8, [-0.1914, -0.1262, -0.3385, 0.2027], 0.0017),
]


@pytest.mark.parametrize(("depth", "expected", "error"), ONE_MATRIX)
def test_known_values_of_one_matrix(reference, depth, expected, error):
    s = flat.nonlinear(reference, activation="tanh", depth=depth, lr=1.0)
    assert gap(s, [0.0, *expected]) < s.error_estimate + 2.5 * error
    assert s.status.ok


def test_one_matrix_approaches_infinite_depth(make_steps):
    """As 1/L, to the limit that the equations in p give."""
    steps = make_steps(3, count=3, batch=1, d_in=2, d_out=1)
    options = {"activation": "erf", "lr": 1.0, "multiplier": 1.2}
    limit = np.ravel(flat.nonlinear(steps, **options).outputs)
    more = limits.Particles(count=2**13, populations=8)
    shallow, deep = (
        flat.nonlinear(steps, depth=depth, particles=more, **options) for depth in (4, 16)
    )
    assert np.abs(np.ravel(shallow.outputs) - limit).max() > 3 * shallow.error_estimate
    # b/L + c/L^2: what 4 and 16 layers extrapolate to is c/64 away.
    extrapolated = (4 * np.ravel(deep.outputs) - np.ravel(shallow.outputs)) / 3
    margin = 2 * (deep.error_estimate + shallow.error_estimate)
    assert np.abs(extrapolated - limit).max() < margin + 2e-3


def test_the_error_falls_as_one_over_the_root(reference):
    errors = []
    for count in (2**10, 2**12, 2**14):
        more = limits.Particles(count=count, populations=12)
        s = flat.nonlinear(reference, activation="tanh", depth=3, lr=1.0, particles=more, tol=1.0)
        errors.append(s.error_estimate)
    # Of 12 populations a standard deviation is known to 20 %, and the largest of five to less.
    slope = np.log2(errors[-1] / errors[0]) / 4
    assert slope == pytest.approx(-0.5, abs=0.25)


def at_infinite_width(solution):
    return np.concatenate(solution.outputs).ravel(), solution.error_estimate


class WithoutResponses(particles.OneMatrix):
    """G01 = G10 = 0."""

    def response(self, values, z, lower, i, size, by=None):
        return np.zeros((len(values), size))


@pytest.mark.long(of="networks")
@pytest.mark.parametrize(("activation", "functions"), [("tanh", TANH), ("relu", RELU)])
@pytest.mark.parametrize("exponents", [{}, COMPLETEP], ids=["depth-mup", "completep"])
def test_wide_networks_of_one_matrix_agree(
    make_steps, simulated, activation, functions, exponents, monkeypatch
):
    steps, width = make_steps(6, count=4, batch=2, d_in=3, d_out=1), 256
    options = {"lr": 1.0, "depth": 4, "multiplier": 1.2} | exponents
    networks = [
        simulated(steps, width=width, seed=seed, orthonormal=True, **functions, **options)[0]
        for seed in range(48)
    ]
    runs = np.array(networks)[..., 0]
    few = limits.Particles(count=2**13, populations=4)
    s = flat.nonlinear(steps, activation=activation, particles=few, **options)
    assert deviations(runs, at_infinite_width(s), width).max() < 4
    wrong = flat.nonlinear(steps, activation=activation, particles=few, **(options | {"lr": 2.0}))
    assert deviations(runs, at_infinite_width(wrong), width).max() > 4
    if not exponents:
        monkeypatch.setattr(particles, "OneMatrix", WithoutResponses)
        wrong = flat.nonlinear(steps, activation=activation, particles=few, **options)
        assert deviations(runs, at_infinite_width(wrong), width).max() > 4


# Particles of an independent implementation; standard errors below .002.
SIGN = [
    (2, 8, COMPLETEP, [-0.2695, 0.0296, -0.2266, -0.0142], 0.001),
    (2, 16, COMPLETEP, [-0.2664, 0.0307, -0.2211, -0.0143], 0.001),
    (2, 4, {}, [-0.3147, 0.0274, -0.2917, -0.0089], 0.0017),
    (1, 4, {}, [-0.1558, 0.0050, -0.1661, -0.0049], 0.0017),
    (1, 8, {}, [-0.1581, 0.0017, -0.1746, -0.0013], 0.0024),
]


@pytest.mark.long
@pytest.mark.parametrize(("blocks", "depth", "exponents", "expected", "error"), SIGN)
def test_known_values_of_sign_sgd(reference, blocks, depth, exponents, expected, error):
    s = flat.sign_sgd(
        reference, activation="tanh", depth=depth, lr=0.5, block_depth=blocks, **exponents
    )
    assert gap(s, [0.0, *expected]) < s.error_estimate + 2.5 * error
    assert s.status.ok


SIGN_CASES = {
    "two matrices": {"width_ratio": 2.0, "lr_second": 0.3},
    "two matrices, completep": {"width_ratio": 1.5} | COMPLETEP,
    "one matrix": {"block_depth": 1},
    "one matrix, schedule": {"block_depth": 1, "lr": [0.6, 0.2, 0.4, 0.1, 0.1]},
}


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("case", SIGN_CASES)
def test_wide_networks_under_sign_sgd_agree(reference, simulated, simulated_two_matrix, case):
    """Every entry of a gradient is replaced by its sign: no factors, no theory."""
    options, width = {"lr": 0.5, "depth": 4} | SIGN_CASES[case], 192
    network = dict(options)
    train = simulated_two_matrix if network.pop("block_depth", 2) == 2 else simulated
    runs = [
        np.ravel(train(reference, width=width, seed=seed, entry=np.sign, **TANH, **network)[:5])
        if train is simulated_two_matrix
        else train(reference, width=width, seed=seed, entry=np.sign, **TANH, **network)[0][:, 0]
        for seed in range(48)
    ]
    runs = np.array(runs)
    few = limits.Particles(count=2**13, populations=4)
    s = flat.sign_sgd(reference, activation="tanh", particles=few, tol=1.0, **options)
    # Signs of small entries make the bias larger than that of SGD: about 2/n at this width.
    assert deviations(runs, at_infinite_width(s), width / 2).max() < 4
    wrong = options | {"lr": np.multiply(1.7, options["lr"])}
    s = flat.sign_sgd(reference, activation="tanh", particles=few, tol=1.0, **wrong)
    assert deviations(runs, at_infinite_width(s), width / 2).max() > 4


def test_sign_sgd_approaches_infinite_depth(reference):
    few = limits.Particles(count=2**13, populations=4)
    options = {"activation": "tanh", "lr": 0.5, "particles": few} | COMPLETEP
    limit = flat.sign_sgd(reference, depth=math.inf, **options)
    assert limit.status.ok
    assert gap(limit, [0.0, -0.2616, 0.0296, -0.2168, -0.0122]) < 1.5e-3  # 64 Euler steps
    gaps, errors = [], []
    for depth in (4, 16):
        s = flat.sign_sgd(reference, depth=depth, **options)
        gaps.append(gap(s, np.ravel(limit.outputs)))
        errors.append(s.error_estimate + limit.error_estimate)
    # A quarter, up to errors of both and a correction of order 1/L^2.
    assert gaps[1] < 0.35 * gaps[0] + errors[1]
    assert gaps[0] > 4 * errors[0]


def test_sizes_at_infinite_depth_are_extrapolated_as_outputs_are(reference, monkeypatch):
    few = limits.Particles(count=1024, populations=2)
    sizes = []
    for layers in ((4, 8, 16), (8, 16, 32), (16, 32, 64)):
        monkeypatch.setattr(particles, "_LAYERS", layers)
        options = {"activation": "tanh", "lr": 0.5, "particles": few} | COMPLETEP
        s = flat.sign_sgd(reference[:3], depth=math.inf, **options)
        sizes.append(np.array([rms[:: (len(rms) - 1) // 8, 0] for rms in s.rms])[1:, 1:])
    first, second = (np.abs(b - a).max() for a, b in itertools.pairwise(sizes))
    # Doubled layers leave a quarter of an error c/L^2, and half of an error b/L.
    assert second < first / 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_depth": 3}, "block_depth is 1 or 2"),
        ({"block_depth": 1, "width_ratio": 2.0}, "of blocks with two matrices"),
        ({"rms_norm": True}, "not derived with rms_norm"),
        ({"depth": math.inf}, "alpha=1, gamma=0 alone"),
        ({"depth": math.inf, "block_depth": 1} | COMPLETEP, "alpha=1, gamma=0 alone"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"depth": 512, "particles": limits.Particles(count=512)}, "larger count"),
    ],
)
def test_bad_options(options, message):
    steps = [limits.Step([[1.0]], limits.mse([[0.5]]))]
    with pytest.raises(ValueError, match=message):
        flat.sign_sgd(steps, activation="tanh", **({"depth": 4, "lr": 0.5} | options))


def test_bad_particles_and_batches(make_steps):
    with pytest.raises(ValueError, match="sign of a sum is not a product"):
        flat.sign_sgd(make_steps(0), activation="tanh", depth=4, lr=0.5)
    with pytest.raises(ValueError, match="power of two"):
        limits.Particles(count=1000)
    with pytest.raises(ValueError, match="at least 2"):
        limits.Particles(populations=1)
