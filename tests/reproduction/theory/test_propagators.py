"""Gamma(p, q), Proposition 4.4, and the erratum to Theorem 4.1's kernel."""

import math

import flat
import numpy as np
import pytest

from depthmup import limits
from reproduction.theory.propagators import propagators, proposition_residual


@pytest.fixture
def trained(make_steps):
    def train(a=1.0, lr=0.6, **options):
        steps = make_steps(0, count=3, batch=2, d_in=3, d_out=2)
        return flat.linear(
            steps, depth=math.inf, lr=lr, multiplier=a, history=True, tol=1e-13, **options
        )

    return train


@pytest.mark.parametrize("a", [1.0, 0.7])
def test_proposition_4_4_holds(trained, a):
    residual = proposition_residual(trained(a), lr=0.6, multiplier=a)
    assert set(residual) == {"Gamma_0", "Gamma_1", "U and V", "C_0", "C_1"}
    assert max(residual.values()) <= 1e-12


def test_the_residual_notices(trained):
    """A learning rate 1 % off, or one covariance moved by 1e-6, shows in the equations it is in."""
    wrong = proposition_residual(trained(), lr=0.606)
    assert min(wrong["Gamma_0"], wrong["Gamma_1"], wrong["U and V"]) > 1e-4
    s = trained()
    s.history.x[3, 2, 1] += 1e-6
    assert proposition_residual(s, lr=0.6)["C_0"] > 1e-7
    assert proposition_residual(s, lr=0.6)["Gamma_0"] > 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 0.5}, "momentum"),
        ({"lr": [0.6, 0.5, 0.4]}, "schedule"),
        ({"lr_input": 0.3}, "trained U"),
        ({"lr_readout": 0.3}, "trained V"),
        ({"alpha": "3/4", "gamma": "1/4"}, "alpha=3/4, gamma=1/4"),
    ],
)
def test_the_residual_is_refused_where_the_equations_are_others(trained, options, message):
    with pytest.raises(ValueError, match=f"Proposition 4.4 is about .*{message}"):
        proposition_residual(trained(**options), lr=0.6)


def test_the_residual_of_a_nonlinear_network_is_refused(make_steps):
    solution = limits.nonlinear(
        make_steps(0, count=2, batch=1, d_in=2), activation="erf", lr=0.6, tol=1e-6, history=True
    )
    with pytest.raises(ValueError, match="activation erf"):
        proposition_residual(solution, lr=0.6)


def test_only_like_to_like_at_one_time_jumps(trained):
    g = propagators(trained())
    onto = np.arange(len(g.points))
    jump = g.above[:, :, onto, onto] - g.below[:, :, onto, onto]
    eye = np.eye(jump.shape[-1])
    for i in (0, 1):
        for j in (0, 1):
            sign = 0 if i != j else 1 - 2 * i  # x jumps going up, d going down
            assert np.abs(jump[i, j] - sign * eye).max() < 1e-12


def test_nothing_answers_before_it_is_asked(trained):
    """Gamma is causal in time: zero where the source belongs to a later step than what moves."""
    g = propagators(trained())
    earlier = np.triu(np.ones((6, 6)), 1).astype(bool)
    for branch in (g.above, g.below):
        assert np.abs(branch[..., earlier]).max() < 1e-13
        assert np.abs(branch[0, 1][..., 2:, :2]).max() > 1e-3


def test_at_picks_the_side(trained):
    g = propagators(trained())
    assert np.array_equal(g.at(0, 0, 5, 2), g.above[0, 0, 5, 2])
    assert np.array_equal(g.at(0, 0, 2, 5), g.below[0, 0, 2, 5])


def test_outputs_are_the_coefficients_on_v(trained):
    s = trained()
    g = propagators(s)
    assert np.allclose(g.on_v[0][-1], np.concatenate(s.outputs), rtol=0, atol=1e-13)


def test_the_kernel_is_the_forward_one(trained):
    """Theorem 4.1 prints C_{t,s,1}(1), which is chi chi^T; <x|x> at the last layer is C_{t,s,0}(1).

    Decided by the known value at initialization: |x_0|^2 = e |xi_0|^2.
    """
    s = trained()
    first = s.history.inputs[:2]
    assert np.allclose(s.kernel[:2, :2], math.e * first @ first.T, rtol=1e-12)
    assert np.array_equal(s.kernel, s.history.x[-1])
    printed = s.history.d[-1]
    assert np.allclose(printed, s.history.chi @ s.history.chi.T, rtol=0, atol=1e-14)
    assert np.abs(printed[:2, :2] - math.e * first @ first.T).max() > 0.1


def test_finite_depth_kernel_needs_one_more_step(make_steps):
    """At finite depth even C_{t,s,0}(1) is <x^{L-1}|x^{L-1}>: off by a factor 1 + 1/L."""
    s = flat.linear(make_steps(0), depth=8, lr=0.5, history=True)
    first = s.history.inputs[:2]
    gram = first @ first.T
    assert np.allclose(s.kernel[:2, :2], (1 + 1 / 8) ** 8 * gram, rtol=1e-13)
    assert np.allclose(s.history.x[-2][:2, :2], (1 + 1 / 8) ** 7 * gram, rtol=1e-13)


def test_the_sum_over_past_steps_starts_at_zero(reference):
    """Section 4.2 prints a sum from s = 1; without s = 0 the first update has no effect on f_1."""
    s = flat.linear(reference[:2], depth=16, lr=1.0)
    assert s.outputs[1][0, 0] == pytest.approx(-((1 + 1 / 16) ** 15) * 0.25, rel=1e-13)


def test_propagators_need_an_infinitely_deep_history(make_steps):
    steps = make_steps(0)
    for s in (
        flat.linear(steps, depth=math.inf, lr=0.1),
        flat.linear(steps, depth=4, lr=0.1, history=True),
    ):
        with pytest.raises(ValueError, match="history=True"):
            propagators(s)
