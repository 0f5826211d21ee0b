"""Finite networks approach the limits, and the measurement would notice if they did not."""

import math

import numpy as np
import pytest
import torch
from wide_networks import random_steps

from depthmup import limits
from reproduction.probes import agreement


def draw(stream, *shape):
    """What networks of seed 5 draw their matrices from."""
    generator = torch.Generator().manual_seed(5 * 100_003 + stream)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("activation", ["identity", "tanh", "abs"])
def test_factored_training_is_autograd_training(activation):
    """The same network with explicit weights, torch's backward and torch's SGD."""
    steps, width, depth, lr, a = random_steps(0), 24, 4, 0.7, 0.9
    blocks = agreement.Blocks(activation=activation, lr=lr, multiplier=a)
    result = agreement.train_factored(
        steps, blocks, width=width, depth=depth, seed=5, dtype=torch.float64
    )

    u, v = draw(0, width, 3), draw(1, width, 2)
    weights = [
        (draw(2 + k, width, width) / math.sqrt(width)).requires_grad_() for k in range(depth)
    ]
    # Depth-muP is plain SGD: dloss/dW carries a / (n sqrt(L)) already.
    optimizer = torch.optim.SGD(weights, lr=lr)
    expected = []
    for step in steps:
        x = torch.tensor(step.inputs) @ u.T
        for w in weights:
            out = x @ w.T
            if activation != "identity":
                out = getattr(torch, activation)(out)
                out = out - out.mean(1, keepdim=True)
            x = x + a / math.sqrt(depth) * out
        f = x @ v / width
        expected.append(f.detach().numpy())
        optimizer.zero_grad()
        f.backward(torch.tensor(step.loss.gradient(f.detach().numpy())))
        optimizer.step()
    assert np.abs(result.outputs - np.concatenate(expected)).max() < 1e-12


@pytest.mark.parametrize("activation", ["identity", "tanh", "relu"])
def test_factored_training_of_two_matrices_is_autograd_training(activation):
    steps, width, hidden, depth, a = random_steps(0), 24, 36, 4, 0.9
    blocks = agreement.Blocks(
        activation=activation,
        block_depth=2,
        lr=0.7,
        lr_second=0.4,
        alpha=1,
        gamma=0,
        multiplier=a,
        width_ratio=1.5,
    )
    result = agreement.train_factored(
        steps, blocks, width=width, depth=depth, seed=5, dtype=torch.float64
    )

    u, v = draw(0, width, 3), draw(1, width, 2)
    first = [(draw(2 + 2 * k, hidden, width) / math.sqrt(width)) for k in range(depth)]
    second = [(draw(3 + 2 * k, width, hidden) / math.sqrt(hidden)) for k in range(depth)]
    for w in (*first, *second):
        w.requires_grad_()
    # CompleteP is SGD with the rate times L: dloss/dW carries a / (n L).
    optimizer = torch.optim.SGD(
        [{"params": first, "lr": 0.7 * depth}, {"params": second, "lr": 0.4 * depth}], lr=1.0
    )
    expected = []
    for step in steps:
        x = torch.tensor(step.inputs) @ u.T
        for w1, w2 in zip(first, second, strict=True):
            h = x @ w1.T
            x = (
                x
                + a
                / depth
                * (h if activation == "identity" else getattr(torch, activation)(h))
                @ w2.T
            )
        f = x @ v / width
        expected.append(f.detach().numpy())
        optimizer.zero_grad()
        f.backward(torch.tensor(step.loss.gradient(f.detach().numpy())))
        optimizer.step()
    assert np.abs(result.outputs - np.concatenate(expected)).max() < 1e-12


def test_signs_of_gradients_are_those_of_their_factors():
    """Against the sign of autograd's gradient; a minibatch is refused."""
    steps, width, depth = random_steps(0, batch=1), 16, 3
    blocks = agreement.Blocks(activation="tanh", block_depth=2, lr=0.4, sign=True)
    options = {"width": width, "depth": depth, "seed": 5, "dtype": torch.float64}
    result = agreement.train_factored(steps, blocks, **options)

    u, v = draw(0, width, 3), draw(1, width, 2)
    weights = [
        (draw(2 + k, width, width) / math.sqrt(width)).requires_grad_() for k in range(2 * depth)
    ]
    expected = []
    for step in steps:
        x = torch.tensor(step.inputs) @ u.T
        for w1, w2 in zip(weights[::2], weights[1::2], strict=True):
            x = x + depth**-0.5 * torch.tanh(x @ w1.T) @ w2.T
        f = x @ v / width
        expected.append(f.detach().numpy())
        gradients = torch.autograd.grad(
            f, weights, torch.tensor(step.loss.gradient(f.detach().numpy()))
        )
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                w -= 0.4 * depth**-0.5 / width * g.sign()
    assert np.abs(result.outputs - np.concatenate(expected)).max() < 1e-12
    with pytest.raises(ValueError, match="one sample per step"):
        agreement.train_factored(random_steps(0, batch=2), blocks, **options)


def test_one_step_taken_again_is_trained_again():
    """The same object as every step, as in full-batch training."""
    (step,) = random_steps(0, count=1)
    twin = limits.Step(step.inputs, step.loss)
    blocks, options = agreement.Blocks(lr=0.5), {"width": 16, "depth": 2, "seed": 1}
    again = agreement.train_factored([step] * 3, blocks, **options).outputs
    np.testing.assert_array_equal(
        again, agreement.train_factored([step, twin, step], blocks, **options).outputs
    )
    assert len(again) == 3 * len(step.inputs)


def test_what_does_not_fit_is_drawn_again():
    steps = random_steps(0)
    blocks, options = agreement.Blocks(lr=0.5), {"width": 32, "depth": 5, "seed": 1}
    layer = 32 * 32 * 4
    runs = [agreement.train_factored(steps, blocks, memory=m * layer, **options) for m in (0, 2, 5)]
    for run in runs[1:]:
        assert np.array_equal(run.outputs, runs[0].outputs)
        assert np.array_equal(run.rms, runs[0].rms)


def test_error_falls_as_one_over_root_width():
    result = agreement.agreement_with_width(
        random_steps(0), agreement.Blocks(lr=0.5), widths=[64, 128, 256, 512], depth=8, runs=24
    )
    for side in (result.outputs, result.rms):
        assert side.slope.low <= -0.5 <= side.slope.high, side
        assert side.slope.high - side.slope.low < 0.4
        assert side.agrees
        assert side.errors[0] > 2 * side.errors[-1]


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("activation", ["identity", "tanh"])
@pytest.mark.parametrize(
    "exponents", [{}, {"alpha": 1, "gamma": 0}], ids=["depth-mup", "completep"]
)
def test_two_matrices_approach_infinite_width(activation, exponents):
    result = agreement.agreement_with_width(
        random_steps(0),
        agreement.Blocks(
            lr=0.5,
            lr_second=0.3,
            width_ratio=1.5,
            activation=activation,
            block_depth=2,
            **exponents,
        ),
        widths=[64, 128, 256, 512],
        depth=4,
        runs=24,
    )
    for side in (result.outputs, result.rms):
        assert side.agrees, side
        assert side.slope.high - side.slope.low < 0.4
        assert side.errors[0] > 2 * side.errors[-1]


@pytest.mark.long(of="networks")
@pytest.mark.parametrize(
    "exponents", [{}, {"alpha": 1, "gamma": 0}], ids=["depth-mup", "completep"]
)
def test_two_matrices_approach_infinite_depth(exponents):
    blocks = agreement.Blocks(lr=0.5, lr_second=0.3, block_depth=2, **exponents)
    result = agreement.agreement_with_depth(random_steps(0), blocks, depths=[64, 128, 256, 512])
    assert result.agrees
    assert result.slope.value == pytest.approx(-1, abs=0.03)
    scalar = [
        limits.Step([[x]], limits.mse([[y]])) for x, y in ((0.5, 0.5), (-0.25, 1.0), (0.4, -0.75))
    ]
    result = agreement.agreement_with_depth(
        scalar,
        agreement.Blocks(lr=0.5, block_depth=2, activation="sin", **exponents),
        depths=[8, 16, 32],
        neurons=limits.Hermite(order=10),
    )
    assert result.slope.value == pytest.approx(-1, abs=0.1)


def test_blocks_that_do_not_exist():
    with pytest.raises(ValueError, match="block_depth is 1 or 2"):
        agreement.Blocks(block_depth=3)
    with pytest.raises(ValueError, match="of blocks with two matrices"):
        agreement.Blocks(width_ratio=2.0)


def test_a_wrong_limit_is_noticed(monkeypatch):
    """Against the limit of another learning rate the error stops falling."""
    right = limits.problem

    def wrong(steps, *, lr, **options):
        return right(steps, lr=1.6 * lr, **options)

    monkeypatch.setattr(limits, "problem", wrong)
    result = agreement.agreement_with_width(
        random_steps(0), agreement.Blocks(lr=0.5), widths=[64, 128, 256, 512], depth=8, runs=24
    )
    assert not result.outputs.agrees


def test_infinite_width_approaches_infinite_depth():
    blocks = agreement.Blocks(lr=0.5)
    result = agreement.agreement_with_depth(
        random_steps(0), blocks, depths=[64, 128, 256, 512, 1024]
    )
    assert result.agrees
    assert result.slope.value == pytest.approx(-1, abs=0.03)


def test_slope_of_made_up_errors():
    rng = np.random.default_rng(0)
    sizes = [100, 200, 400, 800]
    scale = np.array(sizes, dtype=float)[:, None] ** -1.0
    falling = [
        agreement.approach(sizes, scale * rng.chisquare(4, size=(4, 50)), expected=-0.5)
        for _ in range(40)
    ]
    # A 95 % interval misses 2 of 40 on average, and 7 or more once in 200 such tests.
    assert sum(not result.agrees for result in falling) < 7
    assert np.mean([result.slope.value for result in falling]) == pytest.approx(-0.5, abs=0.02)
    flat = agreement.approach(sizes, rng.chisquare(4, size=(4, 50)), expected=-0.5)
    assert not flat.agrees


def test_the_next_order_is_part_of_the_interval():
    """Mean squares a/n - 40 a/n^2, as trained networks have them: a plain slope refutes -1/2."""
    rng = np.random.default_rng(0)
    sizes = np.array([128, 256, 512, 1024, 2048])
    mean = (1 / sizes - 40 / sizes**2)[:, None]
    samples = [mean * rng.chisquare(40, size=(5, 12)) for _ in range(40)]
    plain, corrected = (
        [agreement.approach(sizes, s, expected=-0.5, next_order=order) for s in samples]
        for order in (False, True)
    )
    assert sum(result.agrees for result in plain) < 20
    assert sum(not result.agrees for result in corrected) < 7  # as above
    assert all(result.slope.high - result.slope.low < 0.4 for result in corrected)
    flat = agreement.approach(
        sizes, rng.chisquare(40, size=(5, 12)), expected=-0.5, next_order=True
    )
    assert not flat.agrees
    with pytest.raises(ValueError, match="at least four sizes"):
        agreement.approach(sizes[:3], samples[0][:3], expected=-0.5, next_order=True)


def test_one_run_has_no_interval():
    with pytest.raises(ValueError, match="at least two runs"):
        agreement.agreement_with_width(random_steps(0), widths=[8, 16], depth=2, runs=1)


def test_only_linear_networks_have_an_exact_limit_at_finite_depth():
    with pytest.raises(ValueError, match="for linear networks only"):
        agreement.agreement_with_depth(
            random_steps(0), agreement.Blocks(activation="relu"), depths=[2, 4]
        )
    with pytest.raises(ValueError, match="identity or one of"):
        agreement.Blocks(activation="swish")
