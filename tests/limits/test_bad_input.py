"""Wrong input raises at once and says what to do; what diverges or stays coarse is a result."""

import math

import numpy as np
import pytest

from depthmup import limits
from depthmup.limits.gaussian import resolve


def step(inputs=((1.0,),), targets=((0.5,),)):
    return limits.Step(inputs, limits.mse(targets))


GOOD = step()
FEW = limits.Sobol(points=64, scrambles=2)


@pytest.mark.parametrize("solve", [limits.linear, limits.nonlinear])
def test_mismatched_steps(solve):
    options = {"depth": math.inf, "lr": 1.0}
    if solve is limits.nonlinear:
        options["activation"] = "erf"
    with pytest.raises(ValueError, match=r"steps\[1\] has d_in=2"):
        solve([GOOD, step([[1.0, 2.0]])], **options)
    with pytest.raises(ValueError, match=r"steps\[1\] has d_out=2"):
        solve([GOOD, step(targets=[[1.0, 2.0]])], **options)
    with pytest.raises(ValueError, match="at least one step"):
        solve([], **options)
    with pytest.raises(TypeError, match=r"a list of limits\.Step, .* got 10"):
        solve(10, **options)
    with pytest.raises(TypeError, match=r"not a limits\.Step"):
        solve([([[1.0]], [[1.0]])], **options)
    with pytest.raises(ValueError, match="held_out has d_in=3"):
        solve([GOOD], held_out=[[1.0, 2.0, 3.0]], **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: step([[math.nan]]), r"inputs must be finite; got nan at index \(0, 0\)"),
        (lambda: step([[1.0]], [[math.inf]]), "targets must be finite"),
        (lambda: step([1.0]), r"shape \(batch, d_in\).*got shape \(1,\)"),
        (lambda: step(np.zeros((0, 3))), "neither empty"),
        (lambda: step([[1.0], [2.0]]), "2 rows but the loss is for 1"),
        (lambda: limits.cross_entropy([0, 4], classes=4), r"range\(4\)"),
        (lambda: limits.cross_entropy([0.5], classes=4), "integer labels"),
    ],
)
def test_bad_data(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("loss", [lambda f: f.sum(), None, 3.0])
def test_a_loss_without_gradient(loss):
    with pytest.raises(TypeError, match="gradient"):
        limits.Step([[1.0]], loss)


def test_a_gradient_of_the_wrong_shape():
    loss = limits.Loss(value=lambda f: 0.0, gradient=lambda f: f.sum(axis=1), shape=(1, 1))
    for solve in (
        lambda steps: limits.linear(steps, depth=3, lr=1.0),
        lambda steps: limits.nonlinear(steps, activation="erf", lr=1.0),
    ):
        with pytest.raises(ValueError, match=r"shape of the outputs, \(1, 1\); got \(1,\)"):
            solve([limits.Step([[1.0]], loss)] * 2)


@pytest.mark.parametrize("depth", [0, -1, 3.5, math.nan, -math.inf])
def test_impossible_depths(depth):
    with pytest.raises(ValueError, match=r"positive integer or math\.inf"):
        limits.linear([GOOD], depth=depth, lr=1.0)


@pytest.mark.parametrize("depth", ["64", None, True])
def test_depths_that_are_no_numbers(depth):
    with pytest.raises(TypeError, match=r"positive integer or math\.inf"):
        limits.linear([GOOD], depth=depth, lr=1.0)


def test_whole_floats_are_depths():
    assert len(limits.linear([GOOD], depth=4.0, lr=1.0).positions) == 5


@pytest.mark.parametrize(
    ("alpha", "gamma", "message"),
    [
        ("1/4", "3/4", r"explodes like exp\(a\^2 L\^\(1/2\)\)"),
        ("1/2", "1/4", r"L\^\(1/4\), which is divergent"),
        ("1/2", "3/4", r"trivial.*L\^\(-1/4\)"),
        ("5/4", "-1/4", r"unfaithful: preactivations grow like L\^\(1/4\)"),
    ],
)
def test_no_infinite_depth_limit(alpha, gamma, message):
    for solve in (
        lambda **k: limits.linear([GOOD], depth=math.inf, lr=1.0, **k),
        lambda **k: limits.nonlinear([GOOD], activation="erf", lr=1.0, **k),
    ):
        with pytest.raises(ValueError, match=message):
            solve(alpha=alpha, gamma=gamma)
    assert limits.linear([GOOD], depth=4, lr=1.0, alpha=alpha, gamma=gamma).status.ok


def test_nonlinear_restrictions():
    with pytest.raises(ValueError, match="one of identity, erf, sin"):
        limits.nonlinear([GOOD], activation="swish", lr=1.0)
    with pytest.raises(ValueError, match="alpha=1"):
        limits.nonlinear([GOOD], activation="erf", lr=1.0, alpha=1, gamma=0)
    with pytest.raises(ValueError, match=r"history is for depth=math\.inf"):
        limits.nonlinear([GOOD], activation="erf", lr=1.0, depth=8, history=True)
    with pytest.raises(ValueError, match="particles are for a finite depth"):
        limits.nonlinear([GOOD], activation="erf", lr=1.0, particles=limits.Particles())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": [1.0, 2.0]}, r"lr must be one number or one per step, shape \(1,\)"),
        ({"lr": math.nan}, "lr must be finite"),
        ({"lr": 1.0, "optimizer": limits.SGD(momentum=1.0)}, r"momentum must lie in \[0, 1\)"),
        ({"lr": 1.0, "optimizer": limits.SGD(decay=0.1)}, "linear networks is not .* with decay"),
        ({"lr": 1.0, "optimizer": limits.SGD(lr_second=1.0)}, "with lr_second: leave it out"),
        ({"lr": 1.0, "multiplier": math.inf}, "multiplier must be finite"),
        ({"lr": 1.0, "alpha": "half"}, "alpha"),
        ({"lr": 1.0, "tol": 0.0}, "tol must be positive"),
        ({"lr": 1.0, "method": "exact"}, "'imbedding' or 'continuum'"),
        ({"lr": 1.0, "method": "recursion"}, "'imbedding' or 'continuum'"),
        ({"lr": 1.0, "method": "imbedding", "depth": math.inf}, "leave method out"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        limits.linear([GOOD], **({"depth": 4} | options))


@pytest.mark.parametrize("name", ["lr_second", "lr_input", "lr_readout", "decay"])
def test_what_a_nonlinear_limit_has_no_equations_for_is_refused(name):
    """Every field of an optimizer is used or refused: none is passed over in silence."""
    with pytest.raises(ValueError, match=f"is not derived with {name}: leave it out"):
        limits.nonlinear([GOOD], activation="erf", lr=1.0, optimizer=limits.SGD(**{name: 0.1}))


@pytest.mark.parametrize("activation", ["relu", "abs"])
def test_collinear_inputs_with_too_tight_a_tolerance(reference, activation):
    s = limits.nonlinear(reference, activation=activation, lr=1.0, tol=1e-15)
    assert s.status.kind == "unresolved"
    assert "collinear" in s.status.message
    assert np.isfinite(np.ravel(s.outputs)).all()
    assert 0 < s.error_estimate < 1e-9


def test_variances_beyond_any_grid_are_an_explosion():
    """The grid of a quadrature would take terabytes: the solve ends, and says why."""
    targets = ([[2.0, 1.0]], [[3.0]]), ([[-1.5, 2.0]], [[-3.0]]), ([[1.7, 1.0]], [[-1.0]])
    steps = [limits.Step(inputs, limits.mse(target)) for inputs, target in targets]
    for lr in (1.0, 30.0):
        s = limits.nonlinear(steps, activation="gelu", lr=lr, multiplier=2)
        assert s.status.kind == "exploded"
        assert "Lower the learning rate" in s.status.message
    single = resolve("tanh").single(np.array([1.0, 1e9]))
    assert np.isfinite(single.variance[0])
    assert np.isnan(single.variance[1])


def test_values_that_hold_arrays_are_compared_by_identity(make_steps):
    """Entrywise comparison of arrays has no truth value; a step can be in a set or a cache."""
    steps = make_steps(0)
    assert len({*steps, steps[0]}) == 3
    s = limits.linear(steps, depth=2, lr=0.1)
    assert s in [s]
    assert s != limits.linear(steps, depth=2, lr=0.1)


@pytest.mark.parametrize(
    ("inputs", "came"),
    [
        (np.array([[1.0 + 2.0j]]), "complex"),
        ([["a"]], "could not convert"),
        ([[1.0, 2.0], [1.0]], "inhomogeneous"),
    ],
)
def test_what_is_no_matrix_of_real_numbers(inputs, came):
    with pytest.raises(ValueError, match=rf"Expected inputs to be real numbers.*{came}"):
        step(inputs)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (lambda **k: limits.nonlinear([GOOD], depth=2, particles=FEW, **k), "Particles"),
        (lambda **k: limits.mean_ode([GOOD], neurons=limits.Particles(), **k), "Neurons"),
    ],
)
def test_averages_of_another_kind(given, kind):
    """They were passed over, and the default ones taken."""
    with pytest.raises(TypeError, match=rf"averages to be limits\.{kind}"):
        given(activation="erf", lr=1.0)


@pytest.mark.parametrize(
    "scales",
    [
        {"multiplier": 1e200},
        {"multiplier": 1e200, "depth": math.inf},
        {"alpha": -300, "depth": 64},
        {"gamma": -300, "depth": 64},
    ],
)
def test_factors_beyond_floating_point(scales):
    with pytest.raises(ValueError, match=r"below 1e100; got multiplier="):
        limits.linear([GOOD], **({"depth": 4, "lr": 1.0} | scales))


def test_a_zero_input_has_no_norm():
    normed = {"activation": "tanh", "lr": 1.0, "branch": limits.Branch(rms_norm=True)}
    with pytest.raises(ValueError, match=r"Input 1 is zero.*leave it out"):
        limits.two_matrix([step([[1.0], [0.0]], [[1.0], [1.0]])], depth=4, **normed)
    with pytest.raises(ValueError, match=r"Input 1 is zero"):
        limits.mean_ode([GOOD], held_out=[[0.0]], **normed)


def test_a_loss_is_one_finite_number():
    several = limits.Loss(value=lambda f: f, gradient=lambda f: f, shape=(1, 1))
    with pytest.raises(ValueError, match=r"loss.*one number; got shape \(1, 1\)"):
        limits.linear([limits.Step([[1.0]], several)], depth=2, lr=1.0)
    overflowing = limits.Loss(value=lambda f: math.inf, gradient=lambda f: f, shape=(1, 1))
    s = limits.linear([limits.Step([[1.0]], overflowing)], depth=2, lr=1.0)
    assert s.status.kind == "exploded"


@pytest.mark.parametrize("activation", ["identity", "erf", "tanh"])
def test_what_exploded_has_no_error(activation):
    loss = limits.Loss(value=lambda f: 1.0, gradient=lambda f: f * math.nan, shape=(1, 1))
    steps = [limits.Step([[1.0]], loss)] * 2
    s = limits.nonlinear(steps, activation=activation, lr=1.0)
    assert s.status.kind == "exploded"
    assert math.isnan(s.error_estimate)


def test_more_vectors_than_particles():
    few = limits.Particles(count=256, populations=2)
    ode = {"depth": math.inf, "alpha": 1, "gamma": 0, "activation": "tanh", "lr": 0.1}
    with pytest.raises(ValueError, match=r"Gaussians .* more than 256 particles"):
        limits.sign_sgd([GOOD] * 65, particles=few, **ode)


def test_moments_that_no_quadrature_sees_are_an_explosion():
    """E exp(z)^2 comes from 2 sigma^2, beyond the grid: it was too low, without a word."""
    exponential = limits.smooth(np.exp, np.exp, np.exp, np.exp, name="exp")
    near, far = exponential.single(np.array([1.0, 9.0])).variance
    assert near == pytest.approx(math.exp(2) - math.e, rel=1e-9)
    assert math.isnan(far)


def test_a_rule_has_two_points():
    with pytest.raises(ValueError, match="degree of at least 1; got 0"):
        limits.rule(0)


@pytest.mark.parametrize(
    "solve",
    [
        lambda: limits.linear([GOOD] * 40, depth=10**6, lr=1.0),
        lambda: limits.two_matrix([GOOD] * 40, depth=10**6, lr=1.0),
        lambda: limits.linear([GOOD] * 3000, depth=math.inf, lr=1.0),
        lambda: limits.nonlinear([GOOD] * 4000, activation="erf", lr=1.0),
        lambda: limits.mean_ode(
            [GOOD], activation="erf", lr=1.0, neurons=limits.Sobol(points=2**26, scrambles=2)
        ),
    ],
)
def test_more_memory_than_there_is(monkeypatch, solve):
    """The system killed the process, as zeros take no memory until they are used."""
    monkeypatch.setattr(
        "depthmup.limits.averages.gaussian_sobol", lambda d, n, rng: np.empty((n, d))
    )
    with pytest.raises(ValueError, match=r"would need .* GiB"):
        solve()


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ((np.tanh, np.tanh, np.tanh, np.tanh), r"phi' to be the derivative of phi, .* got"),
        ((np.sin, np.cos, np.sin, np.cos), "phi'' to be the derivative of phi'"),
        ((np.abs, np.sign, np.zeros_like, np.zeros_like), r"phi'' .* at z = 0; .* kink"),
        ((math.tanh,) * 4, "phi of an activation to take arrays entry by entry"),
    ],
)
def test_functions_that_are_no_derivatives(functions, message):
    """The limit of another network, without a word."""
    with pytest.raises(ValueError, match=message):
        limits.smooth(*functions)


def test_a_derivative_may_be_a_constant():
    one, other = (
        limits.nonlinear([GOOD] * 2, activation=limits.smooth(*phi), lr=0.5).outputs[1]
        for phi in (
            (np.positive, lambda z: 1.0, lambda z: 0.0, lambda z: 0.0),
            (np.positive, np.ones_like, np.zeros_like, np.zeros_like),
        )
    )
    assert np.isfinite(one).all()
    assert np.array_equal(one, other)


def test_rates_of_a_kernel():
    for wrong in ({"lr_input": -5.0}, {"lr": math.nan}, {"branch": math.inf}):
        with pytest.raises(ValueError, match=r"finite, and the rates not negative; got"):
            limits.kernel([[1.0]], **({"depth": 2, "branch": 0.5} | wrong))


def test_one_depth_has_no_drift():
    found = limits.optimal_rate([[1.0]], depths=(4, 4), base_depth=4)
    assert math.isnan(found.drift)
