"""CompleteP's limit as a mean ODE: known digits, convergence, gradients, closed forms."""

import math

import flat
import numpy as np
import pytest
from work import calls

from depthmup import limits
from depthmup.limits.gaussian import resolve
from depthmup.limits.methods import mean_ode
from depthmup.limits.numerics.chebyshev import rule
from depthmup.limits.training import train

COMPLETEP = {"depth": math.inf, "block_depth": 2, "alpha": 1, "gamma": 0}


def test_known_digits_of_sin(reference):
    """Ten digits of an independent implementation, which agree for 24 and 28 nodes."""
    s = flat.mean_ode(
        reference[:4], activation="sin", lr=0.3, neurons=limits.Hermite(order=24), tol=1e-8
    )
    expected = [-0.0868688694, -0.0448455759, -0.1670810534]
    assert s.status.ok
    assert np.abs(np.ravel(s.outputs)[1:] - expected).max() < 2e-10
    assert s.error_estimate < 1e-9


def test_erf(reference):
    """Gauss-Hermite rules converge slowly for erf: the known values have about five digits."""
    s = flat.mean_ode(
        reference[:4], activation="erf", lr=0.3, neurons=limits.Hermite(order=20), tol=1e-5
    )
    assert np.abs(np.ravel(s.outputs)[1:] - [-0.09740, -0.05313, -0.17748]).max() < 2e-5


def test_tanh(reference):
    """Three scrambles of 2^17 points gave these to 3e-5."""
    neurons = limits.Sobol(points=2**14, scrambles=4)
    s = flat.mean_ode(reference, activation="tanh", lr=1.0, neurons=neurons)
    expected = [-0.25848, -0.13452, -0.30443, 0.21930]
    assert np.abs(np.ravel(s.outputs)[1:] - expected).max() < s.error_estimate + 4e-5
    assert s.error_estimate < 3e-4


def test_trained_input_and_readout(reference):
    """By an independent implementation of the linear equations, and by deep linear networks."""
    options = {"activation": "identity", "lr": 0.3, "lr_input": 0.3, "lr_readout": 0.4}
    s = flat.mean_ode(reference, tol=1e-11, **options)
    finite = [
        flat.two_matrix(reference, depth=depth, alpha=1, gamma=0, **options)
        for depth in (256, 512, 1024)
    ]
    values = [np.ravel(f.outputs) for f in finite]
    once = 2 * values[1] - values[0], 2 * values[2] - values[1]
    romberg = (4 * once[1] - once[0]) / 3
    # What is left is of order L^-3 of the smallest depth.
    assert np.abs(np.ravel(s.outputs) - romberg).max() < 1e-6


def outputs_at(degree, steps, activation, points, weights, **options):
    """The network of one fixed set of neurons and points in depth; its outputs and tail."""
    asked = limits.problem(steps, activation=activation, tol=1e-12, **COMPLETEP, **options)
    s = train(mean_ode.MeanField(asked, np.eye(asked.d_in), rule(degree), points, weights))
    return np.ravel(s.outputs), s.error_estimate


def test_convergence_in_depth_is_spectral(reference):
    points, weights = next(limits.Sobol(points=512).samples(4))
    degrees = [4, 6, 8, 10]
    solved = [outputs_at(d, reference, "tanh", points, weights, lr=1.0) for d in (*degrees, 24)]
    exact = solved[-1][0]
    errors = [np.abs(f - exact).max() for f, _ in solved[:-1]]
    ratios = np.array(errors[:-1]) / errors[1:]
    assert (ratios > 15).all(), errors  # two points more
    assert errors[-1] < 1e-10
    for (_, estimate), error in zip(solved, errors, strict=False):
        assert estimate > error  # the estimate is of the coefficients not kept


def test_euler_steps_would_converge_as_one_over_depth(reference):
    """The same neurons stepped through L layers, by plain loops: an independent implementation."""
    points, weights = next(limits.Sobol(points=256).samples(4))
    exact, _ = outputs_at(20, reference, "tanh", points, weights, lr=1.0)
    depths, errors = [16, 32, 64, 128], []
    for depth in depths:
        w1 = np.tile(points[:, :2], (depth, 1, 1))
        w2 = np.tile(points[:, 2:], (depth, 1, 1))
        outputs = []
        for step in reference:
            x, stream = np.array([step.inputs[0, 0], 0.0]), []
            for layer in range(depth):
                stream.append(x)
                x = x + (weights * np.tanh(w1[layer] @ x)) @ w2[layer] / depth
            outputs.append(x[1])
            y = np.array([0.0, step.loss.gradient(x[1:][None])[0, 0]])
            for layer in range(depth - 1, -1, -1):
                h, x = np.tanh(w1[layer] @ stream[layer]), stream[layer]
                e = (1 - h**2) * (w2[layer] @ y)
                below = y + (weights * e) @ w1[layer] / depth
                w1[layer] -= np.outer(e, x)
                w2[layer] -= np.outer(h, y)
                y = below
        errors.append(np.abs(np.array(outputs) - exact).max())
    slopes = np.diff(np.log2(errors))
    assert 2 * slopes[-1] - slopes[-2] == pytest.approx(-1, abs=0.03)


@pytest.mark.parametrize("activation", ["sin", "tanh", "gelu"])
@pytest.mark.parametrize("norm", [False, True])
def test_backward_is_the_gradient_of_forward(make_steps, activation, norm):
    """chi_r . df_r/dxi_r = (E^T Y(0))_r, by central differences of the same neurons' outputs."""
    steps = make_steps(5, count=2)
    branch = limits.Branch(multiplier=1.2, width_ratio=1.5, rms_norm=norm)
    asked = limits.problem(
        steps, activation=activation, branch=branch, lr=0.4, tol=1e-12, **COMPLETEP
    )
    neurons = next(limits.Sobol(points=256).samples(10))
    network = mean_ode.MeanField(asked, np.eye(3), rule(20), *neurons)
    xi, step_size = steps[0].inputs[:1], 1e-5
    _, jacobian, settled = network.rise(xi)
    assert settled
    chi = np.array([[0.7, -0.4]])
    y = network.fall(chi, jacobian)
    eye = step_size * np.eye(3)
    moved = [network.rise(rows)[0][-1] @ network.readout for rows in (xi + eye, xi - eye)]
    slope = (moved[0] - moved[1]) @ chi[0] / (2 * step_size)
    # Of second order: step_size^2 times a third derivative, and rounding over step_size.
    assert np.abs(slope - y[0, 0] @ network.input).max() < 1e-8


@pytest.mark.parametrize("activation", ["sin", "cos"])
def test_small_learning_rates_have_a_closed_form(activation):
    """f_1 -> -a^2 chi_0 (lr C_10 V1 + lr_2 rho k0): expectations at the initial Gaussians."""
    steps = [limits.Step([[x]], limits.mse([[y]])) for x, y in ((1.0, 0.5), (-0.5, 1.0))]
    a, lr, second, ratio = 1.3, 2e-4, 3e-4, 2.0
    phi = resolve(activation)
    one = [np.array(v) for v in (1.0, -0.5, 0.25)]
    pair, means = phi.pair(*one), [float(phi.single(one[i]).mean) for i in (0, 2)]
    k0 = float(pair.k0) + means[0] * means[1]
    expected = a**2 * 0.5 * (lr * -0.5 * float(pair.v1) + second * ratio * k0)
    s = flat.mean_ode(
        steps,
        activation=activation,
        lr=lr,
        lr_second=second,
        width_ratio=ratio,
        multiplier=a,
        neurons=limits.Hermite(order=16),
    )
    # The next order in the learning rates, times a constant of order one.
    assert s.outputs[1][0, 0] == pytest.approx(expected, rel=3e-3)


def test_more_inputs_than_directions(make_steps):
    """Only what inputs span matters: a rotation into more dimensions changes nothing."""
    steps = make_steps(2, count=3, batch=1, d_in=2, d_out=1)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 7)))[0][:2]
    wide = [limits.Step(s.inputs @ turn, s.loss) for s in steps]
    options = {"activation": "identity", "lr": 0.5, "lr_input": 0.2, "tol": 1e-10}
    one, other = flat.mean_ode(steps, **options), flat.mean_ode(wide, **options)
    assert np.abs(np.subtract(one.outputs, other.outputs)).max() < 1e-12
    assert np.abs(one.kernel - other.kernel).max() < 1e-12


COMMON = {"activation": "sin", "alpha": 1, "gamma": 0}
FEATURES = {
    "norm": {"lr": 0.6, "rms_norm": True},
    "decay": {"lr": 0.6, "decay": 0.4},
    "momentum": {"lr": [0.5, 0.3, 0.4], "momentum": 0.6},
    "trained U and V": {"lr": 0.4, "lr_input": 0.3, "lr_readout": 0.4},
    "all": {
        "lr": [0.5, 0.3, 0.4],
        "lr_second": 0.6,
        "width_ratio": 1.5,
        "rms_norm": True,
        "decay": 0.3,
        "momentum": 0.3,
        "lr_input": 0.3,
        "lr_readout": 0.4,
    },
}


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_finite_networks_approach_it(feature):
    """Each feature is in two derivations that share nothing; the distance falls as 1/L."""
    steps = [
        limits.Step([[x]], limits.mse([[y]]))
        for x, y in zip((0.5, -0.25, 0.4), (0.5, 1.0, -0.75), strict=True)
    ]
    options = COMMON | FEATURES[feature]
    limit = flat.two_matrix(
        steps, depth=math.inf, neurons=limits.Hermite(order=16), tol=1e-4, **options
    )
    assert limit.status.ok
    depths, errors = [4, 8, 16], []
    for depth in depths:
        s = flat.two_matrix(steps, depth=depth, neurons=limits.Hermite(order=11), **options)
        errors.append(np.abs(np.subtract(s.outputs, limit.outputs)).max())
        assert errors[-1] > 20 * max(s.error_estimate, limit.error_estimate)
    slopes = np.diff(np.log2(errors))
    assert 2 * slopes[1] - slopes[0] == pytest.approx(-1, abs=0.06)
    plain = flat.two_matrix(
        steps, depth=math.inf, neurons=limits.Hermite(order=8), tol=1.0, lr=0.6, **COMMON
    )
    assert np.abs(np.subtract(plain.outputs, limit.outputs)).max() > 1e-2


def test_relu_is_what_deep_networks_approach(reference):
    """Kinks are no obstacle to Newton's method; 2 f(64) - f(32) is 1/L^2 away."""
    options = {"activation": "relu", "lr": 0.5, "lr_second": 0.8, "width_ratio": 2.0}
    neurons = limits.Sobol(points=2**13)
    limit = flat.mean_ode(reference, neurons=neurons, tol=5e-3, **options)
    assert limit.status.ok
    shallow, deep = (
        flat.two_matrix(
            reference, depth=depth, alpha=1, gamma=0, neurons=neurons, tol=1.0, **options
        )
        for depth in (16, 32)
    )
    extrapolated = 2 * np.ravel(deep.outputs) - np.ravel(shallow.outputs)
    margin = limit.error_estimate + 2 * deep.error_estimate + shallow.error_estimate
    assert np.abs(extrapolated - np.ravel(limit.outputs)).max() < margin + 1e-3
    # Unextrapolated, the distance is well above these errors.
    assert np.abs(np.ravel(shallow.outputs) - np.ravel(limit.outputs)).max() > 2 * margin


def test_too_few_neurons_are_said_to_be(reference):
    s = flat.mean_ode(reference, activation="tanh", lr=1.0, neurons=limits.Sobol(points=64))
    assert s.status.kind == "unresolved"
    assert "neurons with more points" in s.status.message


def test_too_few_points_in_depth_are_said_to_be(reference, monkeypatch):
    monkeypatch.setattr(mean_ode, "_DEGREES", (4,))
    s = flat.mean_ode(reference, activation="identity", lr=1.0, multiplier=1.2, tol=1e-12)
    assert s.status.kind == "unresolved"
    assert "Chebyshev points" in s.status.message
    assert s.error_estimate > 1e-12


@pytest.mark.parametrize("repeats", [2, 3])
def test_no_stability_is_a_result(reference, repeats):
    """Neurons that overflow leave a matrix that cannot be solved with, up or down."""
    few = limits.Sobol(points=128)
    s = flat.mean_ode(reference * repeats, activation="relu", lr=1e90, neurons=few)
    assert s.status.kind == "exploded"
    assert np.isnan(s.outputs[-1]).all()


@pytest.mark.long
def test_calls_grow_as_minibatches_do():
    rng = np.random.default_rng(0)
    steps = [
        limits.Step(rng.normal(size=(2, 4)) / 2, limits.mse(rng.normal(size=(2, 1))))
        for _ in range(30)
    ]
    ten, thirty = (
        calls(lambda t=t: flat.mean_ode(steps[:t], activation="tanh", lr=0.5, tol=0.1))
        for t in (10, 30)
    )
    assert thirty[1] < 3.3 * ten[1]
    assert thirty[0].status.ok
