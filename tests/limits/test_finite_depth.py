"""Linear networks of finite depth: closed forms, known digits, two algorithms, simulation."""

import math
import tracemalloc
from fractions import Fraction

import flat
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from depthmup import limits
from reproduction.theory.recursion import recursion

# Values of an independent implementation, to all digits printed.
F_16 = [0, -0.6206890582039, -0.2614375963104, -0.3699501157548, 0.3382872257157]
F_64 = [0, -0.6639618344776, -0.2308307024321, -0.3233133948051, 0.3400597877344]
RMS_16 = [1.62417009496, 1.12152514652, 0.774116851446, 0.754382545816, 1.05534811508]


def by_the_paper(steps, **options):
    """The paper's recursion, which shares no equation with the library's solver."""
    return recursion(limits.problem(steps, **flat.grouped(options, flat.SGD, flat.BRANCH)))


@pytest.mark.parametrize("solve", [flat.linear, by_the_paper])
@pytest.mark.parametrize(("depth", "expected"), [(16, F_16), (64, F_64)])
def test_known_digits(reference, solve, depth, expected):
    s = solve(reference, depth=depth, lr=1.0)
    assert np.abs(np.ravel(s.outputs) - expected).max() < 0.6e-13
    if depth == 16:
        top = [rms[-1, 0] for rms in s.rms]
        assert np.abs(np.array(top) - RMS_16).max() < 0.6e-11


@given(
    depth=st.integers(1, 40),
    a=st.floats(0.2, 1.5),
    lr=st.floats(0.01, 1.0),
    alpha=st.sampled_from(["1/4", "1/2", "3/4", "1"]),
    gamma=st.sampled_from(["0", "1/4", "1/2"]),
    data=st.lists(st.floats(-1, 1), min_size=5, max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_first_step_has_a_closed_form(depth, a, lr, alpha, gamma, data):
    """f_1 = -lr c k L (1 + c^2)^(L-1) (xi_1 . xi_0) chi_0, |x_0^l|^2 = (1 + c^2)^l |xi_0|^2."""
    first, second = np.array(data[:2]), np.array(data[2:4])
    steps = [
        limits.Step(first[None], limits.mse([[data[4]]])),
        limits.Step(second[None], limits.mse([[0.0]])),
    ]
    s = flat.linear(steps, depth=depth, lr=lr, multiplier=a, alpha=alpha, gamma=gamma)
    power_alpha, power_gamma = float(Fraction(alpha)), float(Fraction(gamma))
    c2 = a**2 * depth ** (-2 * power_alpha)
    drift = a**2 * depth ** (1 - power_alpha - power_gamma)
    chi = -data[4]
    f_1 = -lr * drift * (1 + c2) ** (depth - 1) * (first @ second) * chi
    squares = (1 + c2) ** np.arange(depth + 1) * (first @ first)
    scale = lr * drift * (1 + c2) ** depth
    # Rounding: a few units in the last place per layer.
    assert abs(s.outputs[1][0, 0] - f_1) < 1e-14 * depth * max(1.0, scale)
    assert np.allclose(s.rms[0][:, 0] ** 2, squares, rtol=1e-14 * depth, atol=1e-15)


CASES = {
    "plain": {},
    "alpha=1, gamma=0": {"alpha": 1, "gamma": 0},
    "alpha=3/4": {"alpha": 0.75, "gamma": 0.25},
    "off the line": {"alpha": 0.4, "gamma": 0.7},
    "schedule and momentum": {"momentum": 0.5, "lr": [0.3, 0.2, 0.1, 0.3]},
    "trained U": {"lr_input": 0.1},
    "trained V": {"lr_readout": 0.2},
    "everything": {
        "lr_input": [0.1, 0.0, 0.2, 0.1],
        "lr_readout": 0.2,
        "momentum": 0.3,
        "multiplier": 1.3,
    },
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("depth", [1, 2, 9])
def test_both_algorithms_agree(make_steps, case, depth):
    steps = make_steps(1, count=4, batch=3, d_in=4, d_out=2, entropy=True)
    held_out = np.random.default_rng(2).normal(size=(2, 4))
    options = {"lr": 0.3, "multiplier": 0.8, "held_out": held_out} | CASES[case]
    one = flat.linear(steps, depth=depth, **options)
    other = by_the_paper(steps, depth=depth, **options)
    for name in ("outputs", "rms", "held_out", "kernel"):
        left, right = np.array(getattr(one, name)), np.array(getattr(other, name))
        assert np.isfinite(left).all()
        assert np.abs(left - right).max() < 1e-12 * max(1.0, np.abs(right).max()), name
    assert one.status.ok
    assert one.error_estimate < 1e-13
    # Different problems must differ, or this test compares nothing.
    plain = flat.linear(steps, depth=depth, lr=0.3, multiplier=0.8, held_out=held_out)
    same = not CASES[case] or (depth == 1 and "alpha" in CASES[case])  # 1^-alpha is 1
    assert same == np.allclose(plain.outputs, one.outputs, rtol=0, atol=1e-4)


def test_the_history_is_what_it_says(make_steps):
    """x = P d + sources below; <x|d> at the bottom is the inputs' Gram matrix times Q^T."""
    s = flat.linear(make_steps(3), depth=6, lr=0.5, history=True)
    h = s.history
    assert np.allclose(h.xd[0], h.x[0] @ h.q[0].T, rtol=0, atol=1e-13)
    assert np.allclose(h.xd[-1], h.p[-1] @ h.d[-1], rtol=0, atol=1e-13)
    assert np.allclose(h.d[-1], h.chi @ h.chi.T, rtol=0, atol=1e-14)
    assert np.allclose(h.x[0], h.inputs @ h.inputs.T, rtol=0, atol=1e-14)
    for array in (h.x, h.d):
        assert np.allclose(array, array.transpose(0, 2, 1), rtol=0, atol=1e-13)
        assert np.linalg.eigvalsh(array).min() > -1e-12


def _average(simulated, steps, width, seeds, **options):
    runs = [simulated(steps, width=width, seed=seed, **options) for seed in range(seeds)]
    outputs = np.array([np.concatenate([r[0].ravel(), np.ravel(r[1])]) for r in runs])
    return outputs.mean(axis=0), outputs.std(axis=0, ddof=1) / np.sqrt(seeds)


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("case", CASES)
def test_wide_networks_agree(make_steps, simulated, case):
    """The mean over random networks is the limit, within its own error and a bias of order 1/n."""
    steps = make_steps(1, count=4, batch=2, d_in=3, d_out=1)
    held_out, width, seeds = np.ones((1, 3)), 400, 24
    options = {"lr": 0.6, "multiplier": 0.9, "held_out": held_out} | CASES[case]
    mean, error = _average(simulated, steps, width, seeds, depth=4, **options)

    def limit(**changed):
        s = flat.linear(steps, depth=4, **(options | changed))
        return np.concatenate([np.ravel(s.outputs), np.ravel(s.held_out)])

    z = (mean - limit()) / np.maximum(error, 2.0 / width)
    assert np.abs(z).max() < 4.5, z
    # Power: the same comparison rejects a learning rate, or a rate of U or V, 20 % too large.
    wrong = {
        k: np.multiply(1.4, options[k]) for k in ("lr", "lr_input", "lr_readout") if k in options
    }
    for name, value in wrong.items():
        z = (mean - limit(**{name: value})) / np.maximum(error, 2.0 / width)
        assert np.abs(z).max() > 4.5, name


@pytest.mark.long(of="networks")
def test_error_falls_as_one_over_root_width(reference, simulated):
    limit = np.ravel(flat.linear(reference, depth=4, lr=1.0).outputs)
    widths, seeds = 2 ** np.arange(6, 10), [96, 96, 64, 48]
    errors = []
    for width, count in zip(widths, seeds, strict=True):
        runs = [simulated(reference, width=width, depth=4, seed=s, lr=1.0)[0] for s in range(count)]
        errors.append(np.sqrt(np.mean((np.array(runs)[..., 0] - limit) ** 2)))
    # Outputs of one run are correlated: count a run as one sample. The log of an RMS over k of them
    # has standard deviation 1/sqrt(2k), at most 0.1 here; the slope's is at most
    # 0.1 / (sqrt(5) log 2) = 0.066, and 0.2 is three of them.
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.2)


def test_memory_is_linear_in_depth_and_square_in_vectors(make_steps):
    def peak(depth, count):
        steps = make_steps(0, count=count, batch=4, d_out=1)
        tracemalloc.start()
        flat.linear(steps, depth=depth, lr=0.1)
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return high

    # No one asks for the last step's update, so only the vectors of earlier steps are held.
    base = peak(64, 7)
    assert peak(256, 7) / base < 4.4
    assert peak(64, 13) / base < 4.4
    # About 25 stacks of (depth, N, N) doubles, at N = 24; nothing of order depth^2.
    assert base < 40 * 8 * 64 * 24**2
    one = peak(64, 1)
    assert one < 0.1 * base


@pytest.mark.parametrize("depth", [32, math.inf])
def test_many_held_out_rows_are_solved_in_parts(make_steps, depth):
    """Each row is its own problem: alone or among many it comes out the same, in little memory."""
    steps, rows = make_steps(0, count=4, batch=4), np.random.default_rng(0).normal(size=(1000, 3))

    def peak(held_out):
        tracemalloc.start()
        s = flat.linear(steps, depth=depth, lr=0.5, held_out=held_out)
        high = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return s, high

    many, most = peak(rows)
    few, least = peak(rows[[0, 500, 999]])
    assert np.abs(many.held_out[:, [0, 500, 999]] - few.held_out).max() < 1e-12
    # All rows' states at every depth would be 1000 * 33 * 48 doubles, 13 MB; at infinite depth,
    # with the solver's basis, 1000 * 17 * 48 * 61 doubles, 400 MB.
    assert most - least < (10 if depth == 32 else 64) * 2**20


def test_what_is_returned_as_ok_is_finite(reference):
    """Whichever step is the last, overflow in it is noticed."""
    seen = set()
    for count in range(1, 12):
        steps = (reference * 3)[:count]
        s = flat.linear(steps, depth=12, lr=1e60, alpha=0, gamma=0)
        assert s.status.ok == np.isfinite(np.ravel(s.outputs)).all()
        assert s.status.ok == np.isfinite(s.kernel).all() or s.kernel.shape[0] < count
        seen.add(s.status.ok)
    assert seen == {True, False}


def test_weights_of_past_updates_by_hand():
    from depthmup.limits.sgd import update_weights

    got = update_weights(np.array([1.0, 0.5, 0.25]), momentum=0.5)
    # Heavy ball by hand: speed s at tau carries momentum^(tau-s) of gradient s.
    assert np.allclose(got[1], [1, 0, 0])
    assert np.allclose(got[2], [1 + 0.5 * 0.5, 0.5, 0])
    assert np.allclose(got[3], [1 + 0.25 + 0.25 * 0.25, 0.5 + 0.25 * 0.5, 0.25])


def test_custom_loss(reference):
    square = limits.Loss(
        value=lambda f: float(0.5 * np.sum((f - 0.3) ** 2)),
        gradient=lambda f: f - 0.3,
        shape=(1, 1),
    )
    ours = [limits.Step(step.inputs, square) for step in reference]
    theirs = [limits.Step(step.inputs, limits.mse([[0.3]])) for step in reference]
    one, other = (flat.linear(steps, depth=5, lr=1.0) for steps in (ours, theirs))
    assert np.array_equal(np.ravel(one.outputs), np.ravel(other.outputs))
    cubic = limits.Loss(
        value=lambda f: float(np.sum(f**3 - f) / 3), gradient=lambda f: f**2 - 1 / 3, shape=(1, 1)
    )
    changed = flat.linear([limits.Step(step.inputs, cubic) for step in reference], depth=5, lr=1.0)
    assert np.abs(np.ravel(changed.outputs) - np.ravel(one.outputs)).max() > 1e-2


def test_gradients_of_the_losses():
    rng = np.random.default_rng(0)
    f = rng.normal(size=(3, 4))
    for loss in (
        limits.mse(rng.normal(size=(3, 4))),
        limits.cross_entropy([0, 3, 1], classes=4),
    ):
        for index in np.ndindex(f.shape):
            step = np.zeros_like(f)
            step[index] = 1e-5
            slope = (loss.value(f + step) - loss.value(f - step)) / 2e-5
            assert loss.gradient(f)[index] == pytest.approx(slope, abs=1e-9)
