"""Measured exponents: what a few steps do to a network, over depths 4 to 256.

With branches multiplied by L^-alpha and in-branch updates of size L^-gamma, the change of the
residual stream scales as L^(1 - alpha - gamma), and what an update of a branch's first matrix does
to its own pre-activations as L^-gamma. Only in-branch weights train; the data are fixed.
"""

import pytest
import torch
from planning_zoo import slope, traced
from pytest import approx
from torch import nn

import depthmup
from depthmup.rules import scheme as scheme_named

WIDTH = 128
DEPTHS = (4, 16, 64, 256)
# Large enough to move the loss, small enough that the response is linear in it.
RATES = {"sgd": 0.1, "adamw": 5e-4, "muon": 2e-2}
# The slopes over 64-fold depth of single runs scatter by 0.03 (standard deviation over seeds), and
# corrections of relative order 1/L at L = 4 bias them by up to 0.06.
TOLERANCE = 0.15


@pytest.fixture(autouse=True)
def newton_schulz_in_single_precision(monkeypatch):
    """In bfloat16 they take a CPU twenty times as long, and differ by rounding alone."""
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.float)


class OneMatrix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        nn.init.normal_(self.first.weight, std=0.3 * width**-0.5)

    def forward(self, x):
        return x + self.first(x.relu())


class TwoMatrices(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, std=0.3 * width**-0.5)

    def forward(self, x):
        return x + self.second(self.first(x).relu())


class Network(nn.Module):
    def __init__(self, block, depth):
        super().__init__()
        self.inp = nn.Linear(16, WIDTH, bias=False)
        self.blocks = nn.Sequential(*(block(WIDTH) for _ in range(depth)))
        self.out = nn.Linear(WIDTH, 1, bias=False)
        nn.init.normal_(self.inp.weight, std=0.25)
        nn.init.normal_(self.out.weight, std=1 / WIDTH)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


def rms(x):
    return x.square().mean().sqrt().item()


def optimizers(plan, model, name, lr, spoil):
    if name == "muon":
        groups = plan.muon_groups(model, lr=lr, adamw_lr=0.0).muon
        built = torch.optim.Muon(groups)
    elif name == "sgd":
        groups = plan.param_groups(model, lr=lr)
        built = torch.optim.SGD(groups)
    else:
        groups = plan.param_groups(model, lr=lr, eps=1e-30)
        built = torch.optim.AdamW(groups)
    for group in built.param_groups:
        group["lr"] *= spoil
        assert group["lr"] == approx(lr * spoil * group["lr_factor"])
    return built


def observe(model, stream_at, inner, run):
    """The stream's end and the inputs of the first matrices in branches."""
    seen = {}
    handles = [
        stream_at.register_forward_pre_hook(lambda m, args: seen.update(stream=args[0].detach()))
    ]
    for i, layer in enumerate(inner):
        handles.append(
            layer.register_forward_pre_hook(lambda m, args, i=i: seen.update({i: args[0].detach()}))
        )
    run()
    for handle in handles:
        handle.remove()
    return seen


def changes(model, stream_at, inner, loss, optimizer, steps=3):
    """How far the stream moves, and the first matrices' own pre-activations (their mean)."""
    before = observe(model, stream_at, inner, loss)
    weights = [layer.weight.detach().clone() for layer in inner]
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    after = observe(model, stream_at, inner, loss)
    moved = [
        rms((layer.weight.detach() - w) @ before[i].flatten(0, -2).T)
        for i, (layer, w) in enumerate(zip(inner, weights, strict=True))
    ]
    return rms(after["stream"] - before["stream"]), sum(moved) / len(moved)


X = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))


def mlp_slopes(block, scheme, optimizer, *, spoil=lambda r: 1.0):
    y = torch.ones(2, 1)
    stream, inner = [], []
    for depth in DEPTHS:
        torch.manual_seed(1)
        base, model = Network(block, DEPTHS[0]), Network(block, depth)
        plan = depthmup.plan(
            model, base=base, scheme=scheme, optimizer=optimizer, example_inputs=X,
            own_init="fixed", folding=False, proof="off",  # this test measures it
            options=traced(Network, (block, depth), (block, DEPTHS[0]), X),
        )  # fmt: skip
        plan.initialize(model)
        model.inp.requires_grad_(False)
        model.out.requires_grad_(False)
        built = optimizers(plan, model, optimizer, RATES[optimizer], spoil(depth / DEPTHS[0]))
        moved = changes(
            model,
            model.out,
            [b.first for b in model.blocks],
            lambda model=model: (model(X) - y).square().mean(),
            built,
        )
        stream.append(moved[0])
        inner.append(moved[1])
    return slope(DEPTHS, stream), slope(DEPTHS, inner)


def predicted(scheme):
    result = scheme_named(scheme)
    return float(1 - result.alpha - result.gamma), float(-result.gamma)


# In this order a slice, the first of every three, has each scheme and each optimizer.
PAIRS = [
    (scheme, [*RATES][(i + j) % 3])
    for i, scheme in enumerate(("depth-mup", "completep", "3/4,1/4"))
    for j in range(3)
]


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "optimizer"), PAIRS)
@pytest.mark.parametrize("block", [OneMatrix, TwoMatrices])
def test_residual_mlp(block, scheme, optimizer):
    assert mlp_slopes(block, scheme, optimizer) == approx(predicted(scheme), abs=TOLERANCE)


@pytest.mark.long
def test_an_unstable_pair_grows_as_predicted():
    """(1/2, 0): the stream moves by L^(1/2). Muon's updates have one size, so no saturation."""
    assert mlp_slopes(OneMatrix, "block-multiplier", "muon") == approx((0.5, 0.0), abs=TOLERANCE)


@pytest.mark.long
@pytest.mark.parametrize("optimizer", RATES)
def test_a_wrong_rule_is_caught(optimizer):
    """One factor off by r^(1/2): the slopes are no longer those of the scheme."""
    result = mlp_slopes(OneMatrix, "depth-mup", optimizer, spoil=lambda r: r**-0.5)
    assert result != approx(predicted("depth-mup"), abs=TOLERANCE)


def llama(depth):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=32, intermediate_size=64, num_hidden_layers=depth,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False, initializer_range=0.1,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    nn.init.normal_(model.model.embed_tokens.weight)
    return model


IDS = torch.arange(8)[None] % 7


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("scheme", ["depth-mup", "completep"])
def test_small_llama(scheme, optimizer):
    depths, stream, inner = DEPTHS[:3], [], []
    for depth in depths:
        model, base = llama(depth), llama(depths[0])
        plan = depthmup.plan(
            model, base=base, scheme=scheme, optimizer=optimizer, own_init="fixed",
            example_inputs=IDS, folding=False, proof="off",
            options=traced(llama, (depth,), depths[:1], IDS),
        )  # fmt: skip
        plan.initialize(model)
        for part in (model.model.embed_tokens, model.model.norm, model.lm_head):
            part.requires_grad_(False)
        moved = changes(
            model,
            model.model.norm,
            [layer.mlp.up_proj for layer in model.model.layers],
            lambda model=model: model(input_ids=IDS, labels=IDS).loss,
            optimizers(plan, model, optimizer, RATES[optimizer], 1.0),
        )
        stream.append(moved[0])
        inner.append(moved[1])
    result = slope(depths, stream), slope(depths, inner)
    assert result == approx(predicted(scheme), abs=TOLERANCE)
