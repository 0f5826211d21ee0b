"""The kernel at initialization: closed forms, the limits' first step, and wide networks."""

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from depthmup import limits
from depthmup.limits import Block, kernel
from depthmup.limits.gaussian import resolve
from depthmup.limits.kernel import moments
from depthmup.models import ResidualMLP

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(4, 3)) / np.sqrt(3)


@pytest.mark.parametrize("depth", [1, 2, 7])
@pytest.mark.parametrize(("block_depth", "rates"), [(1, ()), (1, (0.3,)), (2, ()), (2, (0.5, 1.6))])
def test_linear_networks_have_a_closed_form(depth, block_depth, rates):
    c, lr = 0.4, 1.7
    block = Block(block_depth=block_depth, rates=rates)
    found = kernel(INPUTS, depth=depth, block=block, branch=c, lr=lr)
    gram = INPUTS @ INPUTS.T
    total = sum(rates) if rates else block_depth
    expected = lr * total * depth * c**2 * (1 + c**2) ** (depth - 1) * gram
    np.testing.assert_allclose(found.tangent, expected, rtol=1e-13)
    np.testing.assert_allclose(found.stream, (1 + c**2) ** depth * gram, rtol=1e-13)


@pytest.mark.parametrize("rates", [{}, {"lr_input": 0.3, "lr_readout": 0.2}])
def test_first_step_of_a_linear_network(rates, make_steps):
    """f_1 = -lr Theta chi, to first order where U and V are trained too: Richardson's exact."""
    (step,) = make_steps(1, count=1, batch=3)
    chi = step.loss.gradient(np.zeros((3, 2)))
    found = kernel(step.inputs, depth=5, branch=0.6 * 5**-0.75, lr=5**0.25, **rates)

    def moved(lr):
        scaled = {name: lr * rate for name, rate in rates.items()}
        solution = limits.linear(
            [step], depth=5, lr=lr, multiplier=0.6, alpha="3/4", gamma="1/2",
            held_out=step.inputs, optimizer=limits.SGD(**scaled),
        )  # fmt: skip
        return solution.held_out[-1] / lr

    first = (8 * moved(1e-3) - 6 * moved(2e-3) + moved(4e-3)) / 3
    np.testing.assert_allclose(first, -found.tangent @ chi, rtol=1e-7)


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("activation", ["erf", "sin", "relu", "abs", "tanh", "gelu"])
def test_first_step_of_the_infinitely_deep_network(activation, make_steps):
    """The kernel goes to the first update of ``limits.nonlinear``; errors are a series in 1/L."""
    (step,) = make_steps(2, count=1, batch=3, d_out=1)
    chi, lr = step.loss.gradient(np.zeros((3, 1))), 1e-3

    def moved(rate):
        solution = limits.nonlinear([step], activation=activation, lr=rate, held_out=step.inputs)
        return solution.held_out[-1] / rate

    expected = 2 * moved(lr) - moved(2 * lr)  # what is left is of order lr^2
    block = Block(activation=activation)
    values = [
        kernel(step.inputs, depth=depth, block=block, branch=depth**-0.5).tangent @ chi
        for depth in (16, 32, 64)
    ]
    once = [2 * b - a for a, b in pairwise(values)]
    romberg = (4 * once[1] - once[0]) / 3
    np.testing.assert_allclose(-romberg, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    assert np.abs(values[0] + expected).max() > 1e-2 * np.abs(expected).max()


class TwoMatrices(nn.Module):
    """x + c W2 phi(W1 x), the network of the limits, which the built-in one is not."""

    def __init__(self, inputs, width, depth, multiplier, ratio, phi):
        super().__init__()
        self.input = nn.Linear(inputs, width, bias=False)
        self.up = nn.ModuleList(nn.Linear(width, ratio * width, bias=False) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(ratio * width, width, bias=False) for _ in range(depth))
        self.readout = nn.Linear(width, 1, bias=False)
        self.multiplier, self.phi = multiplier, phi

    def forward(self, x):
        x = self.input(x)
        for up, down in zip(self.up, self.down, strict=True):
            x = x + self.multiplier * down(self.phi(up(x)))
        return self.readout(x)


def tangent(model, inputs, width, seed):
    """Theta of one network: products of the gradients of its output by all hidden matrices."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            std = {"input.weight": 1.0, "readout.weight": 1 / width}.get(name, p.shape[1] ** -0.5)
            p.copy_(torch.randn(p.shape, generator=generator) * std)
    hidden = [p for n, p in model.named_parameters() if n not in ("input.weight", "readout.weight")]
    rows = []
    for x in torch.tensor(inputs, dtype=torch.float32):
        gradients = torch.autograd.grad(model(x[None]).sum(), hidden)
        rows.append(torch.cat([g.flatten() for g in gradients]).double())
    stacked = torch.stack(rows)
    return (stacked @ stacked.T).numpy()


NETWORKS = {
    "post relu": ({}, Block(activation="relu")),
    "post relu, its mean left": (
        {"mean_subtraction": False},
        Block(activation="relu", mean_subtraction=False),
    ),
    "post abs, LayerNorm": (
        {"activation_name": "abs", "layer_norm": True},
        Block(activation="abs", layer_norm=True),
    ),
    "relu twice": (
        {"block_depth": 2},
        Block(activation="relu", block_depth=2, nonlinearity="post"),
    ),
    "pre relu twice": (
        {"block_depth": 2, "nonlinearity": "pre"},
        Block(activation="relu", block_depth=2, nonlinearity="pre"),
    ),
    "tanh between two": ("tanh", Block(activation="tanh", block_depth=2, rates=(1.0, 2.0))),
    "relu between two": ("relu", Block(activation="relu", block_depth=2, rates=(1.0, 2.0))),
}


@pytest.mark.long(of="networks")
@pytest.mark.parametrize("name", NETWORKS)
def test_wide_networks_agree(name):
    """Means over seeds within their standard errors; other branches are rejected by far.

    The bias of a finite width is of order 1/n: beside it the entries' standard errors, a few
    percent, are large.
    """
    options, block = NETWORKS[name]
    width, depth, c, runs = 384, 3, 0.7, 20
    if isinstance(options, str):
        model = TwoMatrices(3, width, depth, c, 2, getattr(torch, options))
    else:
        model = ResidualMLP(
            inputs=3, width=width, depth=depth, outputs=1, multiplier=c,
            **{"activation_name": "relu", **options},
        )  # fmt: skip
    samples = np.array([tangent(model, INPUTS, width, seed) for seed in range(runs)])
    error = samples.std(axis=0, ddof=1) / math.sqrt(runs)

    def distance(one):
        found = kernel(INPUTS, depth=depth, block=one, branch=c).tangent
        return np.abs((samples.mean(axis=0) - found) / error).max()

    assert distance(block) < 4.5  # of ten entries; Student's t with 19 degrees of freedom: 0.2 %
    others = [other for key, (_, other) in NETWORKS.items() if key != name]
    assert min(distance(other) for other in others) > 6  # by chance: 1e-4


def test_interpolated_moments_are_those_of_quadrature():
    """Inputs of one norm take the short way; of different ones, the long one."""
    x = RNG.normal(size=(6, 4))
    x *= 1.3 / np.linalg.norm(x, axis=1, keepdims=True)
    x[1] = x[0]  # a repeated input: correlation one
    x[2] = -x[0]
    for name in ("tanh", "gelu", "softplus"):
        phi, covariance = resolve(name), x @ x.T
        short, slope, _ = moments(phi, covariance)
        variance = np.diag(covariance)
        pair = phi.pair(variance[:, None], covariance, variance[None, :])
        np.testing.assert_allclose(short, pair.k0, atol=1e-8)
        np.testing.assert_allclose(slope, pair.v1, atol=1e-8)
        uneven = np.diag([1, 1, 1, 1, 1, 0.5])
        long, long_slope, _ = moments(phi, uneven @ covariance @ uneven)
        np.testing.assert_allclose(long[:5, :5], short[:5, :5], atol=1e-8)
        np.testing.assert_allclose(long_slope[:5, :5], slope[:5, :5], atol=1e-8)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("cos", np.cos),
        ("relu", lambda z: np.maximum(z, 0)),
        ("abs", np.abs),
        ("gelu", lambda z: z * 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))),
        ("softplus", lambda z: np.logaddexp(0, z)),
        ("tanh", np.tanh),
    ],
)
def test_means(name, function):
    variance = np.array([0.3, 1.0, 2.5])
    u = np.linspace(-9, 9, 200_001)
    weight = np.exp(-(u**2) / 2)
    weight /= weight.sum()
    expected = function(np.sqrt(variance)[:, None] * u) @ weight
    _, _, means = moments(resolve(name), np.diag(variance))
    np.testing.assert_allclose(means, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"block_depth": 0}, "at least one matrix"),
        ({"nonlinearity": "around"}, "'post'"),
        ({"block_depth": 2, "rates": (1.0,)}, "each of 2 matrices"),
        ({"rates": (-1.0,)}, "not negative"),
        ({"activation": "swich"}, "activation must be one of"),
    ],
)
def test_branches_that_are_none(options, message):
    with pytest.raises(ValueError, match=message):
        Block(**options)


@pytest.mark.parametrize("form", [{"block_depth": 2}, {"mean_subtraction": False}])
def test_an_activation_of_ones_own_has_the_mean_that_quadrature_gives(form):
    """The cosine by its derivatives, against the closed forms; its mean is not zero."""
    own = limits.smooth(np.cos, lambda z: -np.sin(z), lambda z: -np.cos(z), np.sin, "own")
    one, other = (
        kernel(INPUTS, depth=3, block=Block(activation=phi, **form), branch=0.5)
        for phi in (own, "cos")
    )
    np.testing.assert_allclose(one.tangent, other.tangent, rtol=1e-8)
    np.testing.assert_allclose(one.stream, other.stream, rtol=1e-8)


@pytest.mark.parametrize("depth", [0, 2.5, math.inf])
def test_depths_that_are_none(depth):
    with pytest.raises(ValueError, match="positive integer"):
        kernel(INPUTS, depth=depth, branch=0.5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_inputs_of_zero_stay_zero(activation):
    """Their correlation is 0 / 0, which said of a network that cannot learn that it explodes."""
    found = kernel(np.zeros((3, 2)), depth=2, block=Block(activation=activation), branch=0.5)
    assert not found.tangent.any()
    assert found.largest == 0


def test_whole_numbers_of_numpy_are_depths():
    assert kernel([[1.0]], depth=np.int64(3), branch=0.5).largest == (
        kernel([[1.0]], depth=3, branch=0.5).largest
    )


def test_memory_does_not_grow_with_depth():
    """100,000 layers of 30 inputs took 1.4 GB: two matrices were kept of each."""
    tracemalloc.start()
    kernel(np.eye(30), depth=3000, branch=1e-3)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3000 * 30 * 30 * 8
