"""Nonlinear networks of infinite depth: digits, the exact gradient identity, simulation, errata."""

import math
from functools import partial

import flat
import numpy as np
import pytest
from wide_networks import gradient_gap

from depthmup import limits
from reproduction.theory.printed import printed_nonlinear

# Values of an independent implementation, to all digits printed.
F_ERF = [0, -0.2671860067239, -0.2084400967059, -0.4319664299888, 0.1956152452974]


def outputs(solution):
    return np.concatenate([f.ravel() for f in solution.outputs])


def test_known_digits(reference):
    s = flat.nonlinear(reference, activation="erf", lr=1.0)
    assert s.status.ok
    assert np.abs(outputs(s) - F_ERF).max() < 0.6e-13 + s.error_estimate


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": "3/4", "gamma": "1/4"},
        {"momentum": 0.4, "lr": [0.5, 0.2, 0.3], "multiplier": 0.8},
    ],
)
def test_identity_is_the_linear_network(make_steps, options):
    steps, held_out = make_steps(2, batch=3, d_in=4), np.eye(4)
    options = {"lr": 0.7, "tol": 1e-12, "held_out": held_out, "history": True} | options
    one = flat.nonlinear(steps, activation="identity", **options)
    other = flat.linear(steps, depth=math.inf, **options)
    assert np.abs(outputs(one) - outputs(other)).max() < 1e-12
    assert np.abs(one.held_out - other.held_out).max() < 1e-11
    assert np.abs(one.kernel - other.kernel).max() < 1e-11
    for name in ("x", "d", "xd", "p", "q", "m", "n"):
        ours, theirs = getattr(one.history, name), getattr(other.history, name)
        for end in (0, -1):  # the two may sit on different grids
            assert np.abs(ours[end] - theirs[end]).max() < 1e-10, name


def gap(steps, activation, row=0, solve=limits.nonlinear, **options):
    options = {"activation": activation, "lr": 0.7, "tol": 1e-9} | options
    return gradient_gap(partial(solve, steps, **options), steps, row=row)


LONG = pytest.mark.long(slice=False)
CLOSED = ["identity", "erf", "sin", "cos", "relu", "abs"]
SHIFTED = limits.smooth(
    lambda z: np.tanh(z + 1),
    lambda z: 1 - np.tanh(z + 1) ** 2,
    lambda z: -2 * np.tanh(z + 1) * (1 - np.tanh(z + 1) ** 2),
    lambda z: (1 - np.tanh(z + 1) ** 2) * (6 * np.tanh(z + 1) ** 2 - 2),
)


@pytest.mark.parametrize("power", ["1/2", "3/4"])
@pytest.mark.parametrize("activation", CLOSED)
def test_backward_is_the_gradient_of_forward(make_steps, activation, power):
    """<= 1e-7: rounding 1e-14 / h, and the solver's tolerance of 1e-9 through 1/h-free terms."""
    steps = make_steps(3, batch=2, d_in=3, d_out=2)
    gamma = {"1/2": "1/2", "3/4": "1/4"}[power]
    assert gap(steps, activation, alpha=power, gamma=gamma) < 1e-7


@pytest.mark.parametrize(
    "activation",
    ["tanh", *(pytest.param(a, marks=LONG) for a in ("gelu", "softplus", SHIFTED))],
)
def test_backward_is_the_gradient_of_forward_by_quadrature(make_steps, activation):
    steps = make_steps(3, count=2, batch=2, d_in=2, d_out=1)
    assert gap(steps, activation, row=1) < 1e-7


@pytest.mark.long
@pytest.mark.parametrize("activation", CLOSED)
def test_definition_e1_as_printed_is_not_a_gradient(make_steps, activation):
    """The erratum's proof: as printed, the backward equation fails the identity at order one."""
    steps = make_steps(3, batch=2, d_in=3, d_out=2)
    assert gap(steps, activation, solve=printed_nonlinear) > 0.02
    assert gap(steps, activation) < 1e-7


@pytest.mark.parametrize("activation", CLOSED)
def test_f32_as_printed_is_not_a_gradient(make_steps, activation):
    """F.3.2 (1/2 < alpha < 1) lacks terms in higher derivatives of phi; the identity has none."""
    steps = make_steps(3, batch=2, d_in=3, d_out=2)
    printed = gap(steps, activation, solve=printed_nonlinear, alpha="3/4", gamma="1/4")
    assert printed < 1e-7 if activation == "identity" else printed > 1e-3


def test_where_the_printed_definition_goes_wrong(make_steps):
    """With phi the identity its covariance of d is right, so the second output is; its responses
    are not, so the third is not. With any other phi the covariance is wrong already."""
    steps = make_steps(3, count=3)

    def gaps(activation):
        one, other = (
            solve(steps, activation=activation, lr=0.7)
            for solve in (limits.nonlinear, printed_nonlinear)
        )
        return [np.abs(one.outputs[t] - other.outputs[t]).max() for t in (1, 2)]

    first, second = gaps("identity")
    assert first < 1e-12
    assert second > 1e-3
    assert gaps("erf")[0] > 1e-3


def test_many_held_out_rows_are_solved_in_parts(make_steps):
    steps, rows = make_steps(0), np.random.default_rng(0).normal(size=(150, 3))
    many, few = (
        flat.nonlinear(steps, activation="erf", lr=0.5, held_out=r).held_out
        for r in (rows, rows[[0, 70, 149]])
    )
    assert many.shape == (4, 150, 2)
    assert np.abs(many[:, [0, 70, 149]] - few).max() < 1e-9


@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_collinear_inputs(reference, activation):
    """Scalar inputs: log-singular at p = 0, solved on graded panels, and the estimate holds."""
    fine = flat.nonlinear(reference, activation=activation, lr=1.0, tol=5e-12)
    assert fine.status.ok
    for tol in (1e-5, 1e-8):
        s = flat.nonlinear(reference, activation=activation, lr=1.0, tol=tol)
        assert s.status.ok
        assert np.abs(outputs(s) - outputs(fine)).max() <= s.error_estimate + 1e-11 <= tol + 1e-11


@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_collinear_is_the_limit_of_nearly_collinear(make_steps, activation):
    """Full-batch training (repeated samples) is where inputs that are only close tend to."""
    steps = make_steps(6, count=1, batch=2, d_in=3, d_out=1) * 3
    exact = flat.nonlinear(steps, activation=activation, lr=1.0, tol=1e-9)
    assert exact.status.ok
    rng, gaps = np.random.default_rng(0), []
    away = [rng.normal(size=(2, 3)) for _ in steps]
    for size in (0.1, 0.05, 0.025):
        near = [limits.Step(s.inputs + size * a, s.loss) for s, a in zip(steps, away, strict=True)]
        s = flat.nonlinear(near, activation=activation, lr=1.0, tol=1e-7)
        gaps.append(np.abs(outputs(s) - outputs(exact)).max())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.4 * gaps[0]  # about first order


def test_smooth_activations_take_repeated_inputs(make_steps):
    steps = make_steps(6, count=1, batch=2) * 3
    s = flat.nonlinear(steps, activation="erf", lr=1.0)
    assert s.status.ok
    assert len(s.positions) <= 31  # one panel
    assert (np.diff(s.losses) < 0).all()


def test_positively_homogeneous_initialization(make_steps):
    """For abs, |x|^2 grows like exp(a^2 (1 - 2/pi) p); for relu, with 1/2 - 1/(2 pi)."""
    steps = make_steps(0)
    for activation, rate in (("abs", 1 - 2 / np.pi), ("relu", 0.5 - 0.5 / np.pi)):
        s = flat.nonlinear(steps, activation=activation, lr=0.5, multiplier=1.3)
        squares = s.rms[0] ** 2
        expected = np.exp(1.3**2 * rate * s.positions)[:, None] * squares[0]
        assert np.allclose(squares, expected, rtol=1e-11)


SIMULATED = {  # problems where the printed and the corrected limit are far apart
    "relu": (lambda z: np.maximum(z, 0), lambda z: (z > 0).astype(float), 6, 1.0, 1.0),
    "abs": (np.abs, np.sign, 18, 1.5, 1.3),
    "cos": (np.cos, lambda z: -np.sin(z), 12, 1.5, 1.3),
}


@pytest.mark.long(slice=False)
@pytest.mark.parametrize("activation", SIMULATED)
def test_deviation_of_finite_networks_falls_with_depth(make_steps, simulated, activation):
    phi, slope, seed, lr, multiplier = SIMULATED[activation]
    steps = make_steps(seed, count=4, batch=1, d_in=2, d_out=1)
    options = {"lr": lr, "multiplier": multiplier}
    limit, printed = (
        outputs(solve(steps, activation=activation, **options))
        for solve in (limits.nonlinear, printed_nonlinear)
    )
    worst = np.abs(limit - printed).argmax()
    means, errors = [], []
    for depth in (4, 16, 64):
        runs = [
            simulated(steps, width=256, depth=depth, seed=s, phi=phi, slope=slope, **options)[0]
            for s in range(20)
        ]
        runs = np.array(runs)[:, worst, 0]
        means.append(runs.mean())
        errors.append(runs.std(ddof=1) / np.sqrt(len(runs)))
    gaps = np.abs(np.array(means) - limit[worst])
    # From depth 4 to 64 a deviation of order L^-1/2 to L^-1 falls by 4 to 16.
    assert gaps[2] < gaps[0] / 2.5 + 2 * errors[2]
    assert gaps[0] > 4 * errors[0]
    if activation == "relu":  # its two limits are closer than networks of depth 64 are to either
        return
    # What is printed is not where it is going.
    assert abs(means[2] - printed[worst]) > 4 * errors[2]
    assert abs(means[2] - printed[worst]) > 1.5 * gaps[2]
