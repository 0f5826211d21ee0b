"""What every method keeps, whatever its equations: one table of networks, invariants over all."""

import math
from dataclasses import replace
from functools import partial

import flat
import numpy as np
import pytest
from wide_networks import gradient_gap

from depthmup import limits

COMPLETEP = {"alpha": 1, "gamma": 0}
TWO = {"block_depth": 2, "lr_second": 0.4, "width_ratio": 2.0}
NEURONS = limits.Sobol(points=256, scrambles=4)
PARTICLES = limits.Particles(count=512, populations=8)

# Settings of a network, and what it samples; the method that its equations need is the comment's.
NETWORKS = {
    "linear": ({"depth": 7, "lr_readout": 0.3}, None),  # layers
    "linear, infinite": ({"depth": math.inf, "momentum": 0.3}, None),  # continuum
    "linear, ODE": ({"depth": math.inf} | COMPLETEP, None),
    "erf": ({"depth": math.inf, "activation": "erf"}, None),  # nonlinear
    "tanh": ({"depth": 3, "activation": "tanh"}, PARTICLES),  # particles
    "two, linear": ({"depth": 6, "lr_readout": 0.3} | TWO, None),  # two_matrix_layers
    "two, linear, infinite": ({"depth": math.inf} | TWO, None),
    "two, sin, infinite": ({"depth": math.inf, "activation": "sin"} | TWO, None),
    "two, relu": ({"depth": 3, "activation": "relu", "decay": 0.2} | TWO, NEURONS),  # blocks
    "two, norm": ({"depth": 3, "rms_norm": True} | TWO, None),
    "completep": ({"depth": math.inf, "activation": "tanh"} | TWO | COMPLETEP, NEURONS),  # mean_ode
    "completep, linear": ({"depth": math.inf} | TWO | COMPLETEP, None),
    "sign": ({"depth": 3, "activation": "tanh", "sign": True}, PARTICLES),
    "two, sign": ({"depth": 3, "activation": "tanh", "sign": True} | TWO, PARTICLES),
}
WITHOUT_HISTORY = ("tanh", "completep", "completep, linear", "sign", "two, sign")


def solved(name, steps, **more):
    settings, averages = NETWORKS[name]
    settings = {"lr": 0.5, "tol": 0.5 if averages else 1e-9} | settings | more
    asked = limits.problem(steps, **flat.grouped(settings, flat.SGD, flat.BRANCH))
    return limits.solve(asked, averages)


@pytest.fixture
def steps_of(make_steps):
    """Minibatches of two, but for what is sampled: there a vector's Gaussians are its own."""

    def steps(name, **options):
        return make_steps(4, **({"batch": 1 if NETWORKS[name][1] else 2} | options))

    return steps


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes(steps_of, name):
    steps = steps_of(name)
    batch, history = len(steps[0].inputs), name not in WITHOUT_HISTORY
    s = solved(name, steps, held_out=np.ones((4, 3)), history=history)
    depths, vectors = len(s.positions), 3 * batch
    assert [f.shape for f in s.outputs] == [(batch, 2)] * 3
    assert [r.shape for r in s.rms] == [(depths, batch)] * 3
    assert s.losses.shape == (3,)
    assert s.kernel.shape == (vectors, vectors)
    assert s.held_out.shape == (4, 4, 2)
    assert s.positions[0] == 0
    assert s.positions[-1] == 1
    assert s.losses[1] == steps[1].loss.value(s.outputs[1])
    # Of populations, the mean of squares is not the square of the mean.
    rtol = 1e-3 if NETWORKS[name][1] else 1e-9
    assert np.allclose(np.diag(s.kernel), np.ravel([r[-1] ** 2 for r in s.rms]), rtol=rtol)
    if not s.problem.infinite:
        assert np.array_equal(s.positions, np.arange(depths) / s.problem.layers)
    assert (s.history is not None) == history
    if history:
        h, layers = s.history, depths - (not s.problem.infinite)
        assert h.x.shape == h.q.shape == h.fresh_x.shape == (depths, vectors, vectors)
        assert h.m.shape == h.n.shape == (layers, vectors, vectors)
        assert np.allclose(h.x[0], h.inputs @ h.inputs.T, rtol=0, atol=1e-12)
        if "lr_readout" not in s.problem.optimizer.used:
            # Of scrambles, the mean of products is not the product of means.
            atol = 1e-3 if NETWORKS[name][1] else 1e-12
            assert np.allclose(h.d[-1], h.chi @ h.chi.T, rtol=0, atol=atol)


@pytest.mark.parametrize("name", NETWORKS)
def test_held_out_inputs_are_what_a_batch_would_see(steps_of, name):
    """A held-out row equal to a training row has its output; and it does not disturb training."""
    steps = steps_of(name)
    batch = len(steps[2].inputs)
    s = solved(name, steps, held_out=np.concatenate([steps[2].inputs, np.full((1, 3), 2.0)]))
    closed = name in ("linear", "two, linear")  # layer by layer, with no tolerance to meet
    # Newton's method stops a little above rounding.
    atol = 1e-14 if closed else 1e-6 if "completep" in name else 1e-12
    assert np.allclose(s.held_out[2][:batch], s.outputs[2], rtol=0, atol=atol)
    without, longer = solved(name, steps), solved(name, [*steps, steps[2]])
    margin = 1e-14 if closed else 1e-8 + 2 * (s.error_estimate + longer.error_estimate)
    if closed:
        assert np.array_equal(np.array(without.outputs), np.array(s.outputs))
    assert np.abs(np.subtract(without.outputs, s.outputs)).max() < margin
    # The last entry is after the last update: repeat training with one more step.
    assert np.abs(s.held_out[3][:batch] - longer.outputs[3]).max() < margin
    assert np.abs(s.held_out[3] - s.held_out[2]).max() > 1e-3


@pytest.mark.parametrize("name", NETWORKS)
def test_an_explosion_is_a_result(reference, name):
    settings = NETWORKS[name][0]
    unstable = {} if settings["depth"] == math.inf else {"alpha": 0, "gamma": 0}
    if settings.get("activation") == "tanh":  # which is bounded
        unstable["activation"] = "relu"
    s = solved(
        name, reference * 3, lr=1e90, **({"decay": 0.0} if "decay" in settings else {}), **unstable
    )
    assert s.status.kind == "exploded"
    assert s.status.step >= 1
    assert f"step {s.status.step}" in s.status.message
    assert np.isfinite(s.outputs[s.status.step - 1]).all()
    assert np.isnan(s.outputs[-1]).all()
    assert len(s.outputs) == len(s.rms) == len(s.losses) == 15


# Averages by Sobol points leave more: test_two_matrix.py has a product rule.
EXACT = [name for name, (_, averages) in NETWORKS.items() if averages is None]


@pytest.mark.parametrize("name", [name for name in EXACT if name not in WITHOUT_HISTORY])
def test_backward_is_the_gradient_of_forward(make_steps, name):
    steps = make_steps(5)
    # In a linear network f is quadratic at most in a held-out row: only rounding is left.
    margin = 1e-10 if name in ("linear", "two, linear") else 1e-7
    assert gradient_gap(partial(solved, name, steps, tol=1e-10), steps) < margin


DOORS = {
    "linear": flat.linear,
    "linear, infinite": flat.linear,
    "erf": flat.nonlinear,
    "tanh": flat.nonlinear,
    "two, linear": flat.two_matrix,
    "two, relu": flat.two_matrix,
    "completep": flat.two_matrix,
    "two, sign": flat.sign_sgd,
}


@pytest.mark.parametrize("name", DOORS)
def test_the_named_functions_are_the_one_door(steps_of, name):
    steps, (settings, averages) = steps_of(name), NETWORKS[name]
    rest = {"lr": 0.5, "tol": 0.5 if averages else 1e-9} | settings
    for gone in {"block_depth", "sign"} & rest.keys():
        rest.pop(gone)
    if averages is not None:
        rest["neurons" if averages is NEURONS else "particles"] = averages
    one, other = solved(name, steps), DOORS[name](steps, **rest)
    assert np.array_equal(np.array(one.outputs), np.array(other.outputs))
    assert one.error_estimate == other.error_estimate


def test_averages_of_another_kind_are_refused(reference):
    asked = limits.problem(reference, depth=3, lr=0.5, activation="tanh")
    assert asked.averages is limits.Particles
    with pytest.raises(TypeError, match=r"Expected this limit's averages to be limits\.Particles"):
        limits.solve(asked, limits.Sobol())
    with pytest.raises(ValueError, match="no averages over neurons"):
        limits.solve(replace(asked, depth=math.inf), limits.Sobol())


REPEATED = {
    "two, norm": (NETWORKS["two, norm"], 1e-12),  # nothing is sampled
    # Three of its error, which is 1e-3; the outputs were off by 0.007.
    "two, tanh": (({"depth": 3, "activation": "tanh"} | TWO, limits.Sobol(points=2048)), 0.003),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_sample_repeated_in_its_minibatch_is_one_of_its_weight(reference, name):
    """The mean over two equal samples is one: what a sample makes of its own field is kept.

    Its Gaussian is that of the other.
    """
    (settings, averages), margin = REPEATED[name]
    once = reference[:3]
    twice = [
        limits.Step(np.repeat(s.inputs, 2, axis=0), limits.mse(np.repeat(y, 2)[:, None]))
        for s, y in zip(once, (0.5, 1.0, -0.75), strict=True)
    ]
    settings = {"lr": 1.0, "tol": 0.5} | settings
    settings = flat.grouped(settings, flat.SGD, flat.BRANCH)
    one, two = (
        limits.solve(limits.problem(steps, **settings), averages) for steps in (once, twice)
    )
    outputs = np.array(two.outputs)
    assert np.allclose(outputs[:, 0], outputs[:, 1], rtol=0, atol=1e-12)
    assert np.abs(outputs[:, 0] - np.array(one.outputs)[:, 0]).max() < margin


def test_the_history_of_samples_is_their_mean(reference):
    """As outputs are: it was that of the last scramble."""
    settings = {"depth": 2, "lr": 1.0, "activation": "tanh", "block_depth": 2, "history": True}
    asked = limits.problem(reference[:3], **settings, tol=1.0)
    whole = limits.solve(asked, limits.Sobol(points=64, scrambles=2))
    assert np.allclose(whole.history.x[-1], whole.kernel, rtol=0, atol=1e-14)
    chi = [s.loss.gradient(f) for s, f in zip(asked.steps, whole.outputs, strict=True)]
    assert np.allclose(whole.history.chi, np.concatenate(chi), rtol=0, atol=1e-14)
