"""Sharpness: dense eigenvalues, the infinitely wide kernel, finite differences of gradients."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from depthmup.diagnostics import GaussNewton, sharpness
from depthmup.diagnostics.sharpness import lanczos
from depthmup.limits import Block, kernel
from depthmup.models import ResidualMLP, Transformer, TransformerConfig


def small_net(seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    return net, torch.randn(6, 3, dtype=torch.float64), torch.randint(4, (6,))


def dense(net, x, y, rates):
    """D^1/2 J^T H J D^1/2 with the Hessian of cross-entropy written out."""
    names = [n for n, p in net.named_parameters() if p.requires_grad]
    flat = torch.cat([net.get_parameter(n).detach().flatten() for n in names])

    def outputs(vector):
        parts = torch.split(vector, [net.get_parameter(n).numel() for n in names])
        weights = {
            n: part.reshape(net.get_parameter(n).shape)
            for n, part in zip(names, parts, strict=True)
        }
        return functional_call(net, weights, (x,))

    jacobian = torch.autograd.functional.jacobian(outputs, flat)  # (batch, classes, P)
    p = outputs(flat).softmax(-1)
    hessian = (torch.diag_embed(p) - p[:, :, None] * p[:, None, :]) / len(x)
    root = torch.cat(
        [
            torch.as_tensor(rates.get(n, 1.0)).double().expand(net.get_parameter(n).shape).flatten()
            for n in names
        ]
    ).sqrt()
    scaled = jacobian * root
    return torch.einsum("bip,bij,bjq->pq", scaled, hessian, scaled)


@pytest.mark.parametrize(
    "rates", [{}, {"0.weight": 0.2, "2.bias": 7.0}, {"2.weight": torch.rand(4, 5)}]
)
@pytest.mark.parametrize("frozen", [(), ("0.weight", "0.bias")])
def test_eigenvalue_of_the_dense_matrix(rates, frozen):
    net, x, y = small_net()
    for name in frozen:
        net.get_parameter(name).requires_grad_(False)
    expected = torch.linalg.eigvalsh(dense(net, x, y, rates))[-1].item()
    result = sharpness(net, [(x, y)], loss=F.cross_entropy, rates=rates, tolerance=1e-9)
    assert result.value == pytest.approx(expected, rel=1e-9)
    assert result.loss == pytest.approx(F.cross_entropy(net(x), y).item())
    rough = sharpness(net, [(x, y)], loss=F.cross_entropy, rates=rates, tolerance=0.05)
    assert rough.products < result.products
    assert abs(rough.value - expected) <= rough.error * rough.value


def test_batches_are_averaged():
    net, x, y = small_net()
    whole = sharpness(net, [(x, y)], loss=F.cross_entropy, tolerance=1e-9)
    halves = [(x[:3], y[:3]), (x[3:], y[3:])]
    parts = sharpness(net, halves, loss=F.cross_entropy, tolerance=1e-9)
    assert parts.value == pytest.approx(whole.value, rel=1e-9)
    assert sharpness(net, halves[:1], loss=F.cross_entropy).value != pytest.approx(whole.value)


def test_products_are_differences_of_gradients():
    """Where the residuals are zero, the Gauss-Newton matrix is the Hessian."""
    net, x, _ = small_net()
    targets = net(x).detach()

    def loss(f, y):
        return 0.5 * (f - y).square().sum()

    product = GaussNewton.of(net, x, targets, loss)
    generator = torch.Generator().manual_seed(1)
    vector = {
        n: torch.randn(p.shape, generator=generator).double() for n, p in net.named_parameters()
    }
    image = product(vector)

    def gradient(step):
        weights = {n: p.detach() + step * vector[n] for n, p in net.named_parameters()}
        weights = {n: w.requires_grad_() for n, w in weights.items()}
        value = loss(functional_call(net, weights, (x,)), targets)
        return dict(zip(weights, torch.autograd.grad(value, list(weights.values())), strict=True))

    above, below = gradient(1e-5), gradient(-1e-5)
    for name, result in image.items():
        torch.testing.assert_close(result, (above[name] - below[name]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_products_of_a_transformer():
    """Attention, RMSNorm and embeddings: J v by differences of outputs, and G is symmetric."""
    torch.manual_seed(0)
    config = TransformerConfig(vocabulary=11, width=16, depth=2, head_size=8, norm="rms")
    model = Transformer(config).double()
    x, y = torch.randint(11, (2, 6)), torch.randint(11, (2, 6))

    def loss(f, y):
        return F.cross_entropy(f.flatten(0, -2), y.flatten())

    product = GaussNewton.of(model, x, y, loss)
    vector = {n: torch.randn_like(p) for n, p in product.parameters.items()}

    def outputs(step):
        weights = {n: p.detach() + step * vector[n] for n, p in product.parameters.items()}
        return functional_call(model, weights, (x,))

    pushed = product.forward(vector)
    expected = (outputs(1e-5) - outputs(-1e-5)) / 2e-5
    torch.testing.assert_close(pushed, expected, rtol=1e-6, atol=1e-7)
    image, other = product(vector), {n: torch.randn_like(v) for n, v in vector.items()}
    one = sum((image[n] * other[n]).sum() for n in vector)
    two = sum((product(other)[n] * vector[n]).sum() for n in vector)
    torch.testing.assert_close(one, two)


@pytest.mark.long
def test_wide_networks_have_the_sharpness_of_the_kernel():
    """lambda_max(Theta)/N of the infinitely wide network, to an error that falls with width."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(5, 3)) / math.sqrt(3)
    data = [(torch.tensor(inputs, dtype=torch.float32), torch.zeros(5, 1))]
    expected = kernel(inputs, depth=4, branch=0.5, block=Block(activation="relu")).largest
    ratios, runs = {}, 40
    for width in (32, 512):
        values = []
        for seed in range(runs):
            torch.manual_seed(seed)
            model = ResidualMLP(
                inputs=3, width=width, depth=4, outputs=1, multiplier=0.5, activation_name="relu"
            )
            for name, p in model.named_parameters():
                std = {"input.weight": 1.0, "readout.weight": 1 / width}.get(name, width**-0.5)
                nn.init.normal_(p, std=std)
                p.requires_grad_(name.startswith("branches"))
            result = sharpness(model, data, loss=lambda f, y: 0.5 * (f - y).square().sum() / len(y))
            values.append(result.value / expected)
        ratios[width] = np.mean(values), np.std(values, ddof=1) / math.sqrt(runs)
    mean, error = ratios[512]
    assert abs(mean - 1) < 3.6 * error  # Student's t with 39 degrees of freedom: 0.1 %
    # Expected: a quarter. Variances of two samples of 40 differ by a factor of 2.8 once in 1000.
    assert error < ratios[32][1] / 2


def test_lanczos_finds_what_power_iteration_would_take_thousands_of_steps_for():
    """Two eigenvalues a thousandth apart, of a matrix that is known."""
    values = torch.cat([torch.linspace(0, 0.9, 200), torch.tensor([0.999, 1.0])]).double()
    value, error, products = lanczos(
        lambda v: {"w": values * v["w"]},
        {"w": torch.zeros(202, dtype=torch.float64)},
        tolerance=1e-3,
        generator=torch.Generator().manual_seed(0),
    )
    assert value == pytest.approx(1.0, abs=1.5e-3)
    assert products <= 30
    assert error <= 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda net: net.requires_grad_(False), "requires_grad=False"),
        (lambda net: net[0].weight.data.fill_(math.nan), "finite loss"),
    ],
)
def test_networks_that_cannot_be_trained(change, message):
    net, x, y = small_net()
    change(net)
    with pytest.raises(ValueError, match=message):
        sharpness(net, [(x, y)], loss=F.cross_entropy)


def test_losses_without_curvature():
    net, x, y = small_net()
    with pytest.raises(ValueError, match="curved loss"):
        sharpness(net, [(x, y)], loss=lambda f, y: f.sum())
    with pytest.raises(ValueError, match="at least one batch"):
        sharpness(net, [], loss=F.cross_entropy)
