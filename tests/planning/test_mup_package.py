"""Against microsoft/mup 1.0.0 at equal depth: weights, outputs and whole trajectories."""

import pytest
import torch
from planning_zoo import batches
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import recorded

mup = pytest.importorskip("mup", reason="pip install --no-deps mup==1.0.0")


class MLP(nn.Module):
    def __init__(self, width, readout=nn.Linear):
        super().__init__()
        self.one, self.two = nn.Linear(6, width), nn.Linear(width, width)
        self.three, self.out = nn.Linear(width, 2 * width), readout(2 * width, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.three(torch.tanh(self.two(torch.tanh(self.one(x)))))))


class Transformer(nn.Module):
    """Embeddings, norms, attention with a fixed head size, and a residual MLP."""

    def __init__(self, width, readout=nn.Linear):
        super().__init__()
        self.heads = width // 4
        self.tokens = nn.Embedding(16, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm, self.out = nn.LayerNorm(width), readout(width, 16)

    def forward(self, ids):
        x = self.tokens(ids)
        b, t, n = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(b, t, self.heads, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, n))
        x = x + self.down(torch.tanh(self.up(self.norm2(x))))
        return self.out(self.norm(x))


CASES = {
    "mlp": (MLP, torch.zeros(5, 6), (5, 3)),
    "transformer": (Transformer, torch.zeros(2, 6, dtype=torch.long), (2, 6, 16)),
}
BASE, TARGET = 16, 64


def readout(*size):
    return mup.MuReadout(*size)


def theirs(make):
    """The reference: its own readout, initialization and optimizers."""
    torch.manual_seed(0)
    model = make(TARGET, readout)
    mup.set_base_shapes(model, make(BASE, readout), delta=make(2 * BASE, readout))
    return model.double()


def ours(make, x, optimizer, **options):
    torch.manual_seed(0)
    model, drawn = recorded(lambda: make(TARGET))
    base, base_drawn = recorded(lambda: make(BASE))
    plan = depthmup.plan(
        model, base=base, scheme="mup", optimizer=optimizer, example_inputs=x,
        drawn=(drawn, base_drawn), **options,
    )  # fmt: skip
    plan.initialize(model)
    return plan, model.double()


@pytest.mark.parametrize("folding", [False, True], ids=["explicit", "folded"])
@pytest.mark.parametrize("name", CASES)
def test_initial_weights_and_outputs(name, folding):
    make, x, _ = CASES[name]
    reference = theirs(make)
    plan, model = ours(make, x, "sgd", folding=folding)
    for p in plan.prescriptions:
        torch.testing.assert_close(
            model.get_parameter(p.name) / p.folded, reference.get_parameter(p.name), rtol=1e-6,
            atol=0,
        )  # fmt: skip
    inputs, _ = next(batches(x, (1,), 1)) if x.is_floating_point() else (x + 3, None)
    torch.testing.assert_close(model(inputs), reference(inputs), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "reference_class"), [("sgd", mup.MuSGD), ("adamw", mup.MuAdamW)]
)
@pytest.mark.parametrize("name", CASES)
def test_learning_rates_and_decays(name, optimizer, reference_class):
    make, x, _ = CASES[name]
    reference = theirs(make)
    plan, model = ours(make, x, optimizer, folding=False)
    expected = settings(
        reference, reference_class(reference.parameters(), lr=1.0, weight_decay=0.1)
    )
    kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    result = settings(model, kind(plan.param_groups(model, lr=1.0, weight_decay=0.1)))
    assert result == {name: approx(values) for name, values in expected.items()}
    assert len({values[0] for values in result.values()}) == 2  # not all the same


def settings(model, optimizer):
    names = {id(p): name for name, p in model.named_parameters()}
    return {
        names[id(p)]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for p in group["params"]
    }


def test_the_documented_example():
    """Base 16 -> 64, lr 1, decay 0.1: hidden (1/4, 0.4) for AdamW, vectors (4, 0.025) for SGD."""
    plan, model = ours(MLP, CASES["mlp"][1], "adamw", folding=False)
    groups = settings(model, torch.optim.AdamW(plan.param_groups(model, lr=1.0, weight_decay=0.1)))
    assert groups["two.weight"] == approx((0.25, 0.4))
    assert groups["two.bias"] == groups["one.weight"] == groups["out.weight"] == (1.0, 0.1)
    plan, model = ours(MLP, CASES["mlp"][1], "sgd", folding=False)
    groups = settings(model, torch.optim.SGD(plan.param_groups(model, lr=1.0, weight_decay=0.1)))
    assert groups["two.weight"] == approx((1.0, 0.1))
    assert groups["two.bias"] == approx((4.0, 0.025))


@pytest.mark.parametrize("folding", [False, True], ids=["explicit", "folded"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("name", CASES)
def test_whole_trajectories(name, optimizer, folding):
    make, x, shape = CASES[name]
    reference = theirs(make)
    plan, model = ours(make, x, optimizer, folding=folding)
    # The reference does not scale epsilon, so it must not matter here.
    settings = {"lr": 0.02, "weight_decay": 0.1}
    settings |= {"momentum": 0.9} if optimizer == "sgd" else {"eps": 1e-30}
    mu = mup.MuSGD if optimizer == "sgd" else mup.MuAdamW
    plain = torch.optim.SGD if optimizer == "sgd" else torch.optim.AdamW
    one = plain(plan.param_groups(model, **settings))
    two = mu(reference.parameters(), **settings)
    for inputs, target in batches(x, shape, 10):
        inputs = inputs if inputs.is_floating_point() else inputs % 16
        losses = []
        for net, optimizer_ in ((model, one), (reference, two)):
            loss = (net(inputs) - target).square().mean()
            optimizer_.zero_grad()
            loss.backward()
            optimizer_.step()
            losses.append(loss.item())
        assert losses[0] == approx(losses[1], rel=1e-5)
