"""Blocks with two matrices: known digits, closed forms, two algorithms, limits of depth."""

import math
from fractions import Fraction
from functools import partial

import flat
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wide_networks import gradient_gap
from work import calls

from depthmup import limits
from depthmup.limits.averages import Quadratic
from depthmup.limits.methods.blocks import solve_blocks

COMPLETEP = {"alpha": 1, "gamma": 0}
UNEQUAL = {"lr": 0.5, "lr_second": 0.8, "width_ratio": 2.0}
PLAIN = {"lr": 1.0}

# f_1 to f_4 of the reference problem, by an independent implementation of the exact equations.
LINEAR = [
    (4, PLAIN | COMPLETEP, [-0.599731445312, -0.106843059033, -0.263981678233, 0.258384193595]),
    (16, PLAIN | COMPLETEP, [-0.530111681764, -0.117742022901, -0.214655047806, 0.245053831983]),
    (64, PLAIN | COMPLETEP, [-0.50774892362, -0.119423228774, -0.207784047482, 0.24229833571]),
    (math.inf, PLAIN | COMPLETEP, [-0.5, -0.119775532379, -0.206136671303, 0.241521464944]),
    (4, PLAIN, [-0.9765625, -0.051962261567, -0.393350367927, 0.285149459261]),
    (16, PLAIN, [-1.241378116408, 0.055237345071, -0.308646714817, 0.186436241494]),
    (64, PLAIN, [-1.327923668955, 0.058191292718, -0.236729971471, 0.179506908202]),
    (4, UNEQUAL | COMPLETEP, [-0.629718017578, -0.166758411026, -0.274866110089, 0.292957116492]),
    (math.inf, UNEQUAL | COMPLETEP, [-0.525, -0.141182789505, -0.211073954674, 0.26015019648]),
    (4, UNEQUAL, [-1.025390625, -0.000488761537, -0.313722954404, 0.280613723044]),
    (16, UNEQUAL, [-1.303447022228, 0.067604313657, -0.283491384941, 0.181102399684]),
]


@pytest.mark.parametrize(("depth", "options", "expected"), LINEAR)
def test_known_digits_of_linear_networks(reference, depth, options, expected):
    s = flat.two_matrix(reference, depth=depth, tol=1e-11, **options)
    assert s.status.ok
    assert np.abs(np.ravel(s.outputs)[1:] - expected).max() < 0.6e-12
    assert s.error_estimate < 1e-11


def test_linear_depth_mup_at_infinite_depth(reference):
    """Romberg extrapolation of the exact recursion gives 7e-7; the equations give all digits."""
    s = flat.two_matrix(reference, depth=math.inf, lr=1.0)
    romberg = [-1.359140913785, 0.056868304733, -0.211036422655, 0.173850636299]
    assert np.abs(np.ravel(s.outputs)[1:] - romberg).max() < 7e-7
    assert s.outputs[1][0, 0] == pytest.approx(-math.e / 2, abs=1e-12)


@given(
    depth=st.integers(1, 40),
    a=st.floats(0.2, 1.5),
    rates=st.tuples(st.floats(0.01, 1.0), st.floats(0.0, 1.0)),
    ratio=st.floats(0.25, 4.0),
    alpha=st.sampled_from(["1/4", "1/2", "3/4", "1"]),
    gamma=st.sampled_from(["0", "1/4", "1/2"]),
    data=st.lists(st.floats(-1, 1), min_size=5, max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_first_step_has_a_closed_form(depth, a, rates, ratio, alpha, gamma, data):
    """f_1 = -c k L (1 + c^2)^(L-1) (lr + rho lr_2) (xi_1 . xi_0) chi_0, |x_0^l|^2 = (1 + c^2)^l."""
    first, second = np.array(data[:2]), np.array(data[2:4])
    steps = [
        limits.Step(first[None], limits.mse([[data[4]]])),
        limits.Step(second[None], limits.mse([[0.0]])),
    ]
    s = flat.two_matrix(
        steps,
        depth=depth,
        lr=rates[0],
        lr_second=rates[1],
        width_ratio=ratio,
        multiplier=a,
        alpha=alpha,
        gamma=gamma,
    )
    power_alpha, power_gamma = float(Fraction(alpha)), float(Fraction(gamma))
    c2 = a**2 * depth ** (-2 * power_alpha)
    drift = a**2 * depth ** (1 - power_alpha - power_gamma) * (rates[0] + ratio * rates[1])
    f_1 = drift * (1 + c2) ** (depth - 1) * (first @ second) * data[4]
    squares = (1 + c2) ** np.arange(depth + 1) * (first @ first)
    scale = drift * (1 + c2) ** depth
    assert abs(s.outputs[1][0, 0] - f_1) < 1e-14 * depth * max(1.0, scale)
    assert np.allclose(s.rms[0][:, 0] ** 2, squares, rtol=1e-14 * depth, atol=1e-15)


CASES = {
    "plain": {},
    "completep": COMPLETEP,
    "off the line": {"alpha": 0.4, "gamma": 0.7},
    "schedule and momentum": {"momentum": 0.5, "lr": [0.3, 0.2, 0.1, 0.3]},
    "trained U": {"lr_input": 0.1},
    "trained V": {"lr_readout": 0.2},
    "everything": {
        "lr_input": [0.1, 0.0, 0.2, 0.1],
        "lr_second": [0.5, 0.1, 0.0, 0.4],
        "lr_readout": 0.2,
        "momentum": 0.3,
        "multiplier": 1.3,
        "width_ratio": 0.6,
    },
}


def averaged(steps, *, depth, **options):
    """The same network by the other algorithm: averages over neurons, exact for linear ones."""
    settings = flat.grouped(options, flat.SGD, flat.BRANCH)
    asked = limits.problem(steps, depth=depth, block_depth=2, tol=1.0, history=True, **settings)
    return solve_blocks(asked, Quadratic())


def returns(history):
    return history.p @ history.d, history.q @ history.x


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("depth", [1, 2, 9])
def test_both_algorithms_agree(make_steps, case, depth):
    """Transfer matrices of (P, C, K) against dense P, Q, R, S with neurons that are averaged."""
    steps = make_steps(1, count=4, batch=3, d_in=4, d_out=2, entropy=True)
    held_out = np.random.default_rng(2).normal(size=(2, 4))
    options = {"lr": 0.3, "multiplier": 0.8, "held_out": held_out} | CASES[case]
    one = flat.two_matrix(steps, depth=depth, history=True, **options)
    other = averaged(steps, depth=depth, **options)
    for name in ("outputs", "rms", "held_out", "kernel", "losses"):
        left, right = np.array(getattr(one, name)), np.array(getattr(other, name))
        assert np.isfinite(left).all()
        assert np.abs(left - right).max() < 1e-12 * max(1.0, np.abs(right).max()), name
    for name in ("x", "d", "xd", "fresh_x", "fresh_d"):
        left, right = getattr(one.history, name), getattr(other.history, name)
        assert np.abs(left - right).max() < 1e-11 * max(1.0, np.abs(right).max()), name
    # More samples in a batch than outputs make d's dependent: P is one of many, P <d|d> is not.
    for left, right in zip(returns(one.history), returns(other.history), strict=True):
        assert np.abs(left - right).max() < 1e-11 * max(1.0, np.abs(right).max())
    plain = flat.two_matrix(steps, depth=depth, lr=0.3, multiplier=0.8)
    same = not CASES[case] or (depth == 1 and "alpha" in CASES[case])  # 1^-alpha is 1
    assert same == np.allclose(plain.outputs, one.outputs, rtol=0, atol=1e-4)


def local_slopes(depths, errors):
    return np.diff(np.log(errors)) / np.diff(np.log(depths))


def first_order(depths, errors):
    """The order of errors b/L + c/L^2 + ..., and how far it still moves: no noise, no fit."""
    local = local_slopes(depths, errors)
    extrapolated = 2 * local[1:] - local[:-1]
    return extrapolated[-1], abs(extrapolated[-1] - extrapolated[-2])


@pytest.mark.parametrize("exponents", [{}, COMPLETEP], ids=["depth-mup", "completep"])
@pytest.mark.parametrize("extra", [{}, {"momentum": 0.4}, {"lr_input": 0.3, "lr_readout": 0.4}])
def test_linear_networks_approach_infinite_depth(make_steps, exponents, extra):
    steps, depths = make_steps(3, count=4), [32, 64, 128, 256, 512]
    options = {"lr": 0.4, "lr_second": 0.3, "width_ratio": 1.5} | exponents | extra
    limit = flat.two_matrix(steps, depth=math.inf, **options)
    assert limit.status.ok
    errors = [
        np.abs(np.subtract(flat.two_matrix(steps, depth=d, **options).outputs, limit.outputs))
        for d in depths
    ]
    order, margin = first_order(depths, [e.max() for e in errors])
    assert order == pytest.approx(-1, abs=max(0.02, margin))
    assert margin < 0.05


def test_linear_networks_with_a_norm_approach_the_mean_ode(make_steps):
    """Exact on both sides, by equations that share nothing; with minibatches and decay."""
    steps, depths = make_steps(3, count=3), [16, 32, 64, 128]
    options = {"lr": 0.4, "lr_second": 0.3, "width_ratio": 1.5, "rms_norm": True, "decay": 0.3}
    limit = flat.two_matrix(steps, depth=math.inf, **options, **COMPLETEP)
    assert limit.status.ok
    assert limit.error_estimate < 1e-9
    errors = [
        np.abs(
            np.subtract(
                flat.two_matrix(steps, depth=d, **options, **COMPLETEP).outputs, limit.outputs
            )
        ).max()
        for d in depths
    ]
    order, margin = first_order(depths, errors)
    assert order == pytest.approx(-1, abs=max(0.02, margin))
    assert margin < 0.05


@pytest.mark.long
@pytest.mark.parametrize("activation", ["identity", "sin"])
def test_between_the_exponents_the_noise_dies_out_slowly(three_steps, activation):
    """The initial weights' noise is of rate L^(1 - 2 alpha), and so is the distance."""
    options = {"lr": 0.5, "lr_second": 0.4, "width_ratio": 1.5, "activation": activation}
    options |= {"alpha": "3/4", "gamma": "1/4"}
    limit = flat.two_matrix(three_steps, depth=math.inf, **options)
    neurons = {} if activation == "identity" else {"neurons": limits.Hermite(order=8), "tol": 1e-4}
    depths, errors = [16, 64, 256], []
    for depth in depths:
        s = flat.two_matrix(three_steps, depth=depth, **options, **neurons)
        errors.append(np.abs(np.subtract(s.outputs, limit.outputs)).max())
    assert local_slopes(depths, errors) == pytest.approx([-0.5, -0.5], abs=0.03)


def test_what_would_not_fit_into_memory_is_refused(make_steps):
    neurons = limits.Sobol(points=2**16)
    with pytest.raises(ValueError, match="would need 80 GiB"):
        flat.two_matrix(
            make_steps(0, count=21, batch=2), depth=2048, lr=1.0, activation="tanh", neurons=neurons
        )
    with pytest.raises(ValueError, match="smaller count"):
        limits.nonlinear(
            make_steps(0, count=10),
            depth=512,
            lr=1.0,
            activation="tanh",
            particles=limits.Particles(count=2**17),
        )


def test_a_second_matrix_adds_to_the_rate_only_at_infinite_depth(make_steps):
    """There W2 W1 moves by the sum of what both move; at finite depth their product counts."""
    steps = make_steps(0)
    one = limits.linear(steps, depth=math.inf, lr=0.4 + 1.5 * 0.3)
    two = flat.two_matrix(steps, depth=math.inf, lr=0.4, lr_second=0.3, width_ratio=1.5)
    assert np.abs(np.subtract(one.outputs, two.outputs)).max() < 1e-12
    finite = limits.linear(steps, depth=8, lr=0.4 + 1.5 * 0.3)
    other = flat.two_matrix(steps, depth=8, lr=0.4, lr_second=0.3, width_ratio=1.5)
    assert np.abs(np.subtract(finite.outputs, other.outputs)).max() > 1e-3


def test_depth_mup_with_erf(reference):
    s = flat.two_matrix(reference, activation="erf", depth=math.inf, lr=1.0)
    romberg = [-0.476939962, -0.318442440, -0.503467562, 0.207913683]  # to 3e-7
    assert np.abs(np.ravel(s.outputs)[1:] - romberg).max() < 3e-7
    assert s.status.ok


@pytest.mark.long
@pytest.mark.parametrize("activation", ["erf", "sin", "cos", "relu", "abs", "tanh"])
@pytest.mark.parametrize("power", ["1/2", "3/4"])
def test_the_infinite_backward_pass_is_the_gradient_of_the_forward(make_steps, activation, power):
    """Rounding over h, and the tolerance of 1e-9: what the second matrix adds is in both."""
    if activation == "tanh" and power == "3/4":
        pytest.skip("by quadrature, one exponent is enough")
    steps = make_steps(3, count=2, batch=2, d_in=2, d_out=2)
    options = {
        "activation": activation,
        "alpha": power,
        "gamma": {"1/2": "1/2", "3/4": "1/4"}[power],
    }
    solve = partial(flat.two_matrix, steps, depth=math.inf, **options, **UNEQUAL)
    assert gradient_gap(solve, steps) < 1e-7


@pytest.mark.parametrize("norm", [False, True])
def test_the_averaged_backward_pass_is_the_gradient_of_the_forward(norm):
    """At finite depth, with Stein's lemma under a product rule: up to what the rule leaves."""
    steps = [limits.Step([[x]], limits.mse([[y]])) for x, y in ((0.5, 0.5), (-0.25, 1.0))]
    solve = partial(flat.two_matrix, steps, depth=3, activation="sin", rms_norm=norm, **UNEQUAL)
    gaps = [
        gradient_gap(partial(solve, neurons=limits.Hermite(order=order)), steps, h=1e-3)
        for order in (8, 12)
    ]
    assert gaps[1] < 2e-5
    assert gaps[1] < 0.2 * gaps[0] or gaps[0] < 1e-7


FIELDS = {"xi": (0.5, -0.25, 0.4), "y": (0.5, 1.0, -0.75)}


@pytest.fixture
def three_steps():
    """Three scalar samples: a neuron has five Gaussian fields, few enough for a product rule."""
    pairs = zip(FIELDS["xi"], FIELDS["y"], strict=True)
    return [limits.Step([[x]], limits.mse([[y]])) for x, y in pairs]


@pytest.mark.parametrize(
    ("exponents", "expected"),
    [(COMPLETEP, [-0.1235399052, -0.036267666]), ({}, [-0.1778748863, -0.07647437843])],
)
def test_known_digits_at_finite_depth(three_steps, exponents, expected):
    s = flat.two_matrix(
        three_steps,
        activation="sin",
        depth=4,
        neurons=limits.Hermite(order=14),
        **PLAIN,
        **exponents,
    )
    # The reference, with 14 nodes per dimension too, has f_2 to 1e-9: ...666049, ...666114.
    assert np.abs(np.ravel(s.outputs)[1:] - expected).max() < 2e-9
    assert s.error_estimate < 1e-8


@pytest.mark.long
@pytest.mark.parametrize("exponents", [{}, COMPLETEP], ids=["depth-mup", "completep"])
@pytest.mark.parametrize("extra", [{}, UNEQUAL | {"momentum": 0.3}])
def test_nonlinear_networks_approach_infinite_depth(three_steps, exponents, extra):
    """No noise on either side: one solver averages five fields, the other has no fields at all."""
    options = {"activation": "sin", "lr": 0.5} | extra | exponents
    neurons = limits.Hermite(order=8)
    at_one = {"neurons": limits.Hermite(order=16), "tol": 1e-6} if exponents else {}
    limit = flat.two_matrix(three_steps, depth=math.inf, **options, **at_one)
    assert limit.status.ok
    depths = [4, 8, 16, 32]
    errors = []
    for depth in depths:
        s = flat.two_matrix(three_steps, depth=depth, neurons=neurons, **options)
        errors.append(np.abs(np.subtract(s.outputs, limit.outputs)).max())
        assert errors[-1] > 20 * s.error_estimate
    order, margin = first_order(depths, errors)
    assert order == pytest.approx(-1, abs=max(0.03, margin))
    assert margin < 0.1


TANH = [
    (8, COMPLETEP, [-0.26974, -0.14543, -0.32021, 0.22005], 2e-4),
    (16, COMPLETEP, [-0.26452, -0.14006, -0.31236, 0.21959], 2e-4),
    (64, COMPLETEP, [-0.26008, -0.13590, -0.30639, 0.21938], 3e-5),
    (4, {}, [-0.3427, -0.2485, -0.4565, 0.2141], 2e-4),
    (8, {}, [-0.36092, -0.26396, -0.46574, 0.21303], 4e-5),
]


@pytest.mark.parametrize(("depth", "exponents", "expected", "error"), TANH)
def test_quasi_monte_carlo_meets_known_values(reference, depth, exponents, expected, error):
    s = flat.two_matrix(
        reference,
        activation="tanh",
        depth=depth,
        lr=1.0,
        neurons=limits.Sobol(points=2**13, scrambles=6),
        **exponents,
    )
    # Two standard errors of the reference, and half a unit of its last digit.
    assert np.abs(np.ravel(s.outputs)[1:] - expected).max() < s.error_estimate + 2 * error + 5e-5
    assert 1e-6 < s.error_estimate < 2e-3


def test_the_spread_over_scrambles_is_the_error(three_steps):
    """95 % intervals hold the value of a product rule in about 95 % of cases."""
    options = {"activation": "sin", "depth": 4, "lr": 1.0}
    exact = flat.two_matrix(three_steps, neurons=limits.Hermite(order=12), **options).outputs
    inside = 0
    for seed in range(40):
        neurons = limits.Sobol(points=256, scrambles=4, seed=seed)
        s = flat.two_matrix(three_steps, neurons=neurons, **options)
        inside += np.abs(np.subtract(s.outputs, exact)).max() <= s.error_estimate
    # Of 40 intervals 38 hold on average, and 33 or fewer once in 80 such tests; the bias of a
    # function of averages, of order 1/points, may cost one or two.
    assert inside >= 32


def test_unresolved_averages_are_said_to_be(reference):
    s = flat.two_matrix(
        reference, activation="relu", depth=4, lr=1.0, neurons=limits.Sobol(points=64)
    )
    assert s.status.kind == "unresolved"
    assert "more points" in s.status.message
    assert s.error_estimate > 1e-3
    assert np.isfinite(np.ravel(s.outputs)).all()


def test_repeated_samples_need_no_gaussian_of_their_own(three_steps):
    """Collinear inputs make covariances singular at the first block: pivots are zero there."""
    doubled = [three_steps[0], three_steps[0], three_steps[2]]
    nearly = [three_steps[0], limits.Step([[0.5 + 1e-5]], limits.mse([[0.5]])), three_steps[2]]
    options = {"activation": "tanh", "depth": 4, "lr": 1.0, "neurons": limits.Hermite(order=10)}
    one, other = (flat.two_matrix(s, **options).outputs for s in (doubled, nearly))
    assert np.abs(np.subtract(one, other)).max() < 1e-4


@pytest.mark.parametrize("norm", [False, True])
def test_linear_neurons_need_no_sampling(reference, norm):
    """Averages of linear neurons are of quadratic functions: one point per axis is exact."""
    optimizer = limits.SGD(lr_second=0.8, decay=0.2)
    branch = limits.Branch(width_ratio=2.0, rms_norm=norm)
    common = {"lr": 0.5, "branch": branch, "optimizer": optimizer}
    asked = limits.problem(reference, depth=4, block_depth=2, tol=1.0, **common)
    exact, sampled = (
        solve_blocks(asked, neurons) for neurons in (Quadratic(), limits.Sobol(points=2**12))
    )
    assert exact.error_estimate == 0
    assert sampled.error_estimate > 1e-5
    gap = np.abs(np.subtract(exact.outputs, sampled.outputs)).max()
    assert gap < 2 * sampled.error_estimate
    public = limits.two_matrix(reference, depth=4, **common)
    assert np.abs(np.subtract(exact.outputs, public.outputs)).max() < 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width_ratio": 0.0}, "width_ratio is the hidden width"),
        ({"decay": -0.1}, "decay must be finite and not negative"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"neurons": limits.Sobol()}, "nothing for `neurons` to do"),
        ({"depth": math.inf, "rms_norm": True}, "not derived with rms_norm"),
        ({"depth": math.inf, "decay": 0.1}, "not derived with decay"),
        ({"depth": math.inf, "activation": "erf", "lr_input": 0.1}, "with lr_input"),
        ({"depth": math.inf, "activation": "erf", "lr_readout": 0.1}, "with lr_readout"),
        ({"depth": math.inf, "alpha": "1/4", "gamma": "3/4"}, "explodes"),
        ({"depth": math.inf, "history": True} | COMPLETEP, "no covariances to keep"),
        ({"lr_second": [1.0, 2.0]}, "lr_second must be one number or one per step"),
    ],
)
def test_bad_options(options, message):
    steps = [limits.Step([[1.0]], limits.mse([[0.5]]))]
    with pytest.raises(ValueError, match=message):
        flat.two_matrix(steps, **({"depth": 4, "lr": 1.0} | options))


def test_a_product_rule_that_would_not_fit(reference):
    with pytest.raises(ValueError, match="in each of 9 dimensions is too large"):
        flat.two_matrix(
            reference, depth=4, lr=1.0, activation="tanh", neurons=limits.Hermite(order=12)
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: limits.Sobol(points=1000), "power of two"),
        (lambda: limits.Sobol(scrambles=1), "at least 2"),
        (lambda: limits.Hermite(order=4), r"in 6\.\.100"),
    ],
)
def test_bad_neurons(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.long
def test_a_deep_linear_network_takes_few_calls_for_a_layer():
    rng = np.random.default_rng(0)
    steps = [
        limits.Step(rng.normal(size=(1, 3)), limits.mse(rng.normal(size=(1, 1)))) for _ in range(10)
    ]
    # 42 for all ten steps with types checked: a loop over vectors would take hundreds.
    _, count = calls(lambda: flat.two_matrix(steps, depth=512, lr=0.5))
    assert count < 100 * 512
