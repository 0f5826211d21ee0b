"""Two spellings of the same numbers have the same factors."""

import pytest
import torch
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
FACTORS = ("init", "lr", "epsilon", "decay", "folded")


def factors(make, target=(64, 6), base=(16, 2), **options):
    torch.manual_seed(0)
    plan = depthmup.plan(
        make(*target), make(*base), scheme="completep", example_inputs=X, own_init="fan_in",
        **options,
    )  # fmt: skip
    return {p.name: tuple(getattr(p, f) for f in FACTORS) for p in plan.prescriptions}, plan


def network(block, depth=None):
    def make(width, number):
        layers = (block(width, i) for i in range(depth or number))
        return nn.Sequential(nn.Linear(8, width), *layers, nn.LayerNorm(width), nn.Linear(width, 4))

    return make


class Residual(nn.Module):
    """x + f(x), written by ``add``."""

    def __init__(self, width, index, add):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), *linears(width)
        self.gain, self.index, self.add = nn.Parameter(torch.ones(width)), index, add

    def forward(self, x):
        f = self.down(torch.tanh(self.up(self.norm(x))))
        return self.add(x, self.gain, f, self.index + 2)


def linears(width):
    return nn.Linear(width, 2 * width), nn.Linear(2 * width, width)


ADDITIONS = {
    "addcmul": (lambda x, g, f, i: torch.addcmul(x, g, f), lambda x, g, f, i: x + g * f),
    "addcmul of a number": (
        lambda x, g, f, i: torch.addcmul(x, g, f, value=0.5), lambda x, g, f, i: x + 0.5 * (g * f)
    ),
    "arithmetic mean": (
        lambda x, g, f, i: x * ((i - 1) / i) + g * f / i, lambda x, g, f, i: x + g * f
    ),
    "running mean": (
        lambda x, g, f, i: (g * f) * i**-0.5 + x * ((i - 1) / i) ** 0.5,
        lambda x, g, f, i: x + g * f,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADDITIONS)
def test_additions(name):
    one, other = (
        factors(network(lambda w, i, add=add: Residual(w, i, add)))[0] for add in ADDITIONS[name]
    )
    assert one.keys() == other.keys()
    for key in one:
        assert one[key] == approx(other[key], rel=1e-6), key


def test_a_stream_that_forgets_is_no_running_mean():
    """x/2 + f: later layers count more; nothing telescopes, and a note says so."""
    add = lambda x, g, f, i: x / 2 + g * f  # noqa: E731
    _, plan = factors(network(lambda w, i: Residual(w, i, add)))
    assert any("is itself multiplied by 0.5" in note for note in plan.notes)


class Gated(nn.Module):
    """A branch that is gated by shares of one over the width."""

    def __init__(self, width, index, shares):
        super().__init__()
        self.norm, self.gate, self.value = nn.LayerNorm(width), *squares(width)
        self.shares = shares

    def forward(self, x):
        y = self.norm(x)
        return x + self.value(y) * self.shares(self.gate(y))


def squares(width):
    return nn.Linear(width, width), nn.Linear(width, width)


class Memory(nn.Module):
    """Slots that are read by shares of one: as many as the network is wide."""

    def __init__(self, width, index, shares):
        super().__init__()
        self.norm, self.keys = nn.LayerNorm(width), nn.Linear(width, width, bias=False)
        self.values, self.shares = nn.Linear(width, width, bias=False), shares

    def forward(self, x):
        return x + self.values(self.shares(self.keys(self.norm(x))))


SHARES = {
    "softmax": lambda z: z.softmax(-1),
    "exp": lambda z: z.exp() / z.exp().sum(-1, keepdim=True),
    "sigmoid": lambda z: z.sigmoid() / z.sigmoid().sum(-1, keepdim=True),
    "L1": lambda z: F.normalize(z.abs(), p=1, dim=-1),
    "square": lambda z: z.square() / z.square().sum(-1, keepdim=True),
    "softplus": lambda z: F.softplus(z) / F.softplus(z).sum(-1, keepdim=True),
}


@pytest.mark.parametrize("block", [Gated, Memory])
@pytest.mark.parametrize("name", SHARES)
def test_shares_of_one_are_as_small_whatever_makes_them(block, name):
    """n of them multiply, or are read: the factor n is that of a softmax."""

    def one(width, index):
        return block(width, index, SHARES[name])

    got, plan = factors(network(one, depth=2), (64, 2), (16, 2))
    expected, _ = factors(
        network(lambda w, i: block(w, i, SHARES["softmax"]), depth=2), (64, 2), (16, 2)
    )
    assert got == expected
    assert plan.proof.startswith("Proven")
    read = "1.value.weight" if block is Gated else "1.values.weight"
    assert plan[read].folded == approx(4)  # 64 / 16


class Routed(nn.Module):
    """Two of four experts, whose weights are divided by their sum or not."""

    def __init__(self, width, index, squash, renormalized):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, 4, bias=False)
        self.up, self.down = (nn.Parameter(torch.randn(4, width, width)) for _ in range(2))
        self.squash, self.renormalized = squash, renormalized

    def forward(self, x):
        y = self.norm(x)
        weights, chosen = self.squash(self.router(y)).topk(2, -1)
        if self.renormalized:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-9)
        out = torch.zeros_like(x)
        for e in range(4):
            where, nth = torch.where(chosen == e)
            made = torch.relu(y[where] @ self.up[e]) @ self.down[e]
            out.index_add_(0, where, made * weights[where, nth, None])
        return x + out


@pytest.mark.parametrize("squash", [torch.sigmoid, lambda z: z.softmax(-1)])
def test_a_router_narrows_whatever_its_weights_are_divided_by(squash):
    starts = [
        factors(network(lambda w, i, r=r: Routed(w, i, squash, r), depth=2), (64, 2), (16, 2))[0][
            "1.router.weight"
        ]
        for r in (False, True)
    ]
    assert starts[0] == starts[1]
    assert starts[0][0] == approx(1 / 4)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, by):
        size = weight.abs().mean() if by == "mean" else weight.abs().amax() / 127
        return (weight / size.clamp(min=1e-5)).round().clamp(-127, 127) * size

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Rounded(nn.Linear):
    by = ""

    def forward(self, x):
        weight = Straight.apply(self.weight, self.by) if self.by else self.weight
        return F.linear(x, weight, self.bias)


@pytest.mark.parametrize("by", ["mean", "largest"])
def test_weights_that_are_rounded_in_units_of_their_size(by):
    def block(kind):
        class Block(nn.Module):
            def __init__(self, width, index):
                super().__init__()
                self.norm, self.up, self.down = (
                    nn.LayerNorm(width), kind(width, width), kind(width, width)
                )  # fmt: skip

            def forward(self, x):
                return x + self.down(torch.relu(self.up(self.norm(x))))

        return Block

    rounded = type("Rounded", (Rounded,), {"by": by})
    assert factors(network(block(rounded)))[0] == factors(network(block(Rounded)))[0]


class Heads(nn.Module):
    """Every head has a matrix of its own, and the sum over heads stands apart or in the product."""

    def __init__(self, width, index, apart):
        super().__init__()
        self.norm, self.value = nn.LayerNorm(width), nn.Linear(width, width)
        self.out = nn.Parameter(torch.randn(width // 8, 8, width) / width**0.5)
        self.apart = apart

    def forward(self, x):
        heads = torch.tanh(self.value(self.norm(x))).unflatten(-1, (-1, 8))
        if self.apart:
            return x + torch.matmul(heads.transpose(0, 1), self.out).sum(0)
        return x + torch.einsum("bhk,hkd->bd", heads, self.out)


def test_a_sum_over_heads_in_a_line_of_its_own():
    one, other = (
        factors(network(lambda w, i, a=apart: Heads(w, i, a), depth=2), (128, 2), (32, 2))
        for apart in (True, False)
    )
    assert one[0] == other[0]
    assert not any("no weight on them" in note for note in one[1].notes)


@pytest.mark.parametrize("key", ["block{}_mlp", "layer_{}_of_net", "b{}"])
def test_keys_that_count_layers(key):
    """A dictionary of blocks is a list of them, by order, wherever the number stands."""

    class Net(nn.Module):
        def __init__(self, width, depth, held):
            super().__init__()
            blocks = [Residual(width, i, lambda x, g, f, i: x + g * f) for i in range(depth)]
            self.inp, self.out = nn.Linear(8, width), nn.Linear(width, 4)
            self.blocks = held(blocks)

        def forward(self, x):
            x = self.inp(x)
            blocks = self.blocks
            for block in blocks.values() if isinstance(blocks, nn.ModuleDict) else blocks:
                x = block(x)
            return self.out(x)

    def named(blocks):
        return nn.ModuleDict({key.format(i): b for i, b in enumerate(blocks)})

    one, other = (
        factors(lambda w, d, held=held: Net(w, d, held))[0] for held in (named, nn.ModuleList)
    )
    assert [*one.values()] == [*other.values()]
