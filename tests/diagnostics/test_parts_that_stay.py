"""Parts that do not grow with the rest: a tower of fixed depth, heads of several fixed sizes."""

import torch
from torch import nn
from torch.nn import functional as F

from depthmup.diagnostics import as_is, check
from depthmup.model import Model
from depthmup.records import Outcome


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.up, self.down = (nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())


class Towered(nn.Module):
    """A tower of two blocks, whose output a matrix carries over to as many as the depth."""

    def __init__(self, width, depth, factor=1.0):
        super().__init__()
        self.inp, self.head = nn.Linear(6, width, bias=False), nn.Linear(width, 8, bias=False)
        self.tower = nn.ModuleList(Block(width) for _ in range(2))
        self.over = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width, bias=False))
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        for block in self.tower:
            block.down.weight.data *= factor

    def forward(self, x):
        x = self.inp(x)
        for block in self.tower:
            x = block(x)
        x = self.over(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(generator):
    return torch.randn(16, 6, generator=generator), torch.randint(8, (16,), generator=generator)


def depth_alone(make, **options):
    return check(
        Model(make=make, batch=batch), scheme="completep", widths=48, depths=(2, 4, 8), seeds=3,
        steps=2, **options,
    )  # fmt: skip


def of_tower(found):
    return {
        (e.module.removesuffix(".weight"), e.observable): e
        for e in found.exponents
        if e.module.startswith("tower") and e.axis == "depth"
    }


def test_a_tower_of_fixed_depth_keeps_its_branches():
    """They are planned by r = 1; a prediction of 1/L, the depth of the rest, would fail them."""
    found = depth_alone(Towered)
    assert found.outcome is Outcome.PASS
    assert {e.outcome for e in of_tower(found).values()} <= {Outcome.PASS, Outcome.SHOWN}
    branch = of_tower(found)["tower.*.down", "branch output"]
    assert branch.expected == "0"
    assert "as many branches at every depth" in branch.why
    rest = {e.module: e.expected for e in found.exponents if e.observable == "branch output"}
    assert rest["blocks.*.down"] == "-1"
    # The stream is looked at among the blocks alone: half of a shallow network is its tower.
    assert not any("branches at depths" in note for note in found.notes)


def test_a_tower_that_is_scaled_by_the_depth_of_the_rest_fails():
    found = depth_alone(lambda w, d: Towered(w, d, factor=2 / d), prepare=as_is)
    assert of_tower(found)["tower.*.down", "branch output"].outcome is Outcome.FAIL


class Group(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        return x + self.out(self.blocks(x))


class Grouped(nn.Module):
    """Four groups, each a branch in which there are as many blocks as the depth (SwinIR)."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.head = nn.Linear(6, width, bias=False), nn.Linear(width, 8, bias=False)
        self.groups = nn.Sequential(*(Group(width, depth) for _ in range(4)))

    def forward(self, x):
        return self.head(self.groups(self.inp(x)))


def test_layers_inside_of_branches_are_a_depth():
    """The stream on which their groups lie has four branches at every depth."""
    found = depth_alone(Grouped)
    assert found.outcome is Outcome.PASS


class Many(nn.Module):
    """As many groups as the depth, of three blocks each: more than a shallow network has groups."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.head = nn.Linear(6, width, bias=False), nn.Linear(width, 8, bias=False)
        self.groups = nn.Sequential(*(Group(width, 3) for _ in range(depth)))

    def forward(self, x):
        return self.head(self.groups(self.inp(x)))


def test_the_stream_is_looked_at_among_what_grows():
    """Not within the first group of the shallow network (SwinIR: -0.56 along the width, not 0)."""
    found = depth_alone(Many)
    assert found.outcome is Outcome.PASS
    assert not any("branches at depths" in note for note in found.notes)


class Narrowing(nn.Module):
    """Layers, a matrix to as many coordinates at every width, and two more layers of these."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.narrow = nn.Linear(width, 24, bias=False)
        self.behind, self.last = nn.Linear(24, 24), nn.Linear(24, 8)
        nn.init.zeros_(self.behind.bias)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.last(self.behind(self.narrow(x).relu()).relu())


def test_biases_behind_what_narrows_are_judged_as_they_are():
    """What they are added to starts as n^-1/2; relative to it SwinIR's grew by n^+0.42."""
    found = check(
        Model(make=Narrowing, batch=batch), scheme="completep", widths=(32, 64, 128), depths=2,
        seeds=3, steps=1,
    )  # fmt: skip
    [bias] = [
        e for e in found.exponents if e.module == "behind.bias" and e.observable == "update effect"
    ]
    assert (bias.outcome, bias.expected) == (Outcome.PASS, "0")
    assert abs(bias.estimate.value) < 0.05


class LowRank(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.down = nn.LayerNorm(width), nn.Linear(width, 8, bias=False)
        self.up = nn.Linear(8, width, bias=False)

    def forward(self, x):
        return x + self.up(self.down(self.norm(x)).relu())


def test_what_passes_below_a_bound_is_said_to_be_below():
    """Behind a matrix to 8 coordinates branches start as n^-1/2, and 0 is the most expected."""

    def make(width, depth):
        blocks = (LowRank(width) for _ in range(depth))
        return nn.Sequential(nn.Linear(6, width), *blocks, nn.LayerNorm(width), nn.Linear(width, 8))

    found = check(
        Model(make=make, batch=batch), scheme="completep", widths=(32, 64, 128), depths=2,
        seeds=3, steps=1,
    )  # fmt: skip
    [branch] = [e for e in found.exponents if e.observable == "branch output"]
    assert (branch.outcome, branch.expected) == (Outcome.PASS, "0")
    assert branch.estimate.value < -0.35
    assert any("upper bound there, and *.up: branch output lies below" in n for n in found.notes)


class Attention(nn.Module):
    def __init__(self, width, head):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(width), head
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        y = self.norm(x)
        made = (of(y).unflatten(-1, (-1, self.head)) for of in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(*(of.transpose(1, 2) for of in made))
        return x + self.out(attended.transpose(1, 2).flatten(2))


class Attending(nn.Module):
    """Two attentions, whose heads have 4 and 8 coordinates at every width."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.readout = nn.Linear(6, width), nn.Linear(width, 8)
        self.layers = nn.ModuleList(
            nn.ModuleList(Attention(width, head) for head in (4, 8)) for _ in range(depth)
        )

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            for attention in layer:
                x = attention(x)
        return self.readout(x.mean(1))


def test_heads_of_two_sizes_do_not_grow():
    """Their logits stay as they are along the width; those of heads that grow shrink."""

    def tokens(generator):
        return torch.randn(8, 5, 6, generator=generator), torch.arange(8)

    found = check(
        Model(make=Attending, batch=tokens), scheme="completep", widths=(16, 32, 64), depths=2,
        seeds=3, steps=1,
    )  # fmt: skip
    logits = [e for e in found.exponents if e.observable == "attention logits"]
    assert {e.expected for e in logits} == {"0"}
    assert {e.outcome for e in logits} == {Outcome.PASS}
