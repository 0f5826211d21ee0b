"""Declared branches in place of a trace: what must come out as if the model had been followed."""

import pytest
import torch
from planning_zoo import MLPBlock, ResidualMLP, Tower, Transformer, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, anatomy
from depthmup.rules import Kind, Ratios

BRANCHES = {"blocks.*": ()}


def factors(prescription):
    p = prescription
    return p.init, p.lr, p.epsilon, p.decay


class Branches(Tower):
    """Blocks that return their branch; the tower adds it."""

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


@pytest.mark.parametrize("scheme", ["completep", "mup", "depth-mup"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "muon"])
def test_a_readouts_multiplier_moves_into_its_weight(scheme, optimizer):
    options = {"scheme": scheme, "optimizer": optimizer, "own_init": "fan_in"}
    model, base = ResidualMLP(32, 2), ResidualMLP(8, 2)
    traced = depthmup.plan(model, base=base, example_inputs=vectors(), **options)
    declared = depthmup.plan(model, base=base, branches=BRANCHES, **options)
    assert factors(declared["out.weight"]) == approx(factors(traced["out.weight"]), rel=1e-12)
    assert declared["out.weight"].init == approx(1 / 4)
    assert not [m for m in declared.multipliers if m.where != "branch"]


def test_a_tied_readout_without_a_trace_is_refused():
    """The weight is the embedding too, so only a place in the forward pass can carry 1/width."""
    options = {
        "branches": {"blocks.*.attention": (), "blocks.*.mlp": ()},
        "roles": {"positions": "vector"},
        "own_init": "fixed",
    }
    base = Transformer(8, 2, tied=True)
    with pytest.raises(NotUnderstood, match=r"tokens\.weight = head\.weight.* multiplied by 0\.25"):
        depthmup.plan(Transformer(32, 2, tied=True), base=base, **options)


class ScaledHead(ResidualMLP):
    """The readout's weight is computed from two parameters."""

    def __init__(self, width, depth):
        super().__init__(width, depth)
        self.scale = nn.Parameter(torch.ones(2, 1))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.out.weight * self.scale, self.out.bias)


@pytest.mark.parametrize("scheme", ["completep", "depth-mup"])
def test_a_declared_readout_whose_product_is_not_seen(scheme):
    plan = depthmup.plan(
        ScaledHead(32, 2), base=ScaledHead(8, 2), scheme=scheme, own_init="fan_in",
        example_inputs=vectors(), roles={"out.weight": "readout", "scale": "vector"},
    )  # fmt: skip
    assert plan["out.weight"].init == plan["out.weight"].lr == approx(1 / 4)


def test_what_a_trace_would_have_seen_is_a_note():
    plan = depthmup.plan(
        ResidualMLP(32, 2), base=ResidualMLP(8, 2), branches=BRANCHES, own_init="fan_in"
    )
    assert "attention logits take no factor" in plan.notes[0]


class LowRank(nn.Module):
    """A factor from the growing width to a fixed rank, in the middle of the network."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into, self.back = nn.Linear(width, 3), nn.Linear(3, width)

    def forward(self, x):
        return self.back(self.into(self.norm(x)))


def test_growing_to_fixed_inside_a_declared_branch_is_hidden():
    model, base = Branches(LowRank, 32, 4), Branches(LowRank, 8, 2)
    traced = anatomy(model, base, example_inputs=vectors())
    declared = anatomy(model, base, branches=BRANCHES)
    kinds = [{p.name: p.role.kind for p in result.places} for result in (traced, declared)]
    assert kinds[0] == kinds[1]
    assert kinds[1]["blocks.3.into.weight"] is Kind.HIDDEN
    assert kinds[1]["out.weight"] is Kind.READOUT


class Backbone(nn.Module):
    """No head behind the last block; ``inner`` may grow while the stream does not."""

    def __init__(self, width, depth, inner=16):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList(MLPBlock(width, inner) for _ in range(depth))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return x


def test_the_last_block_of_a_backbone_is_like_the_others():
    deeper = anatomy(Backbone(8, 6), Backbone(8, 2), example_inputs=vectors())
    inner = anatomy(Backbone(8, 2, inner=64), Backbone(8, 2), example_inputs=vectors())
    for result, ratios in ((deeper, Ratios(depth=3)), (inner, Ratios(fan_in=4))):
        down = [p for p in result.places if p.name.endswith("down.weight")]
        assert {p.role.kind for p in down} == {Kind.HIDDEN}
        assert {p.ratios for p in down} == {ratios}


def test_the_end_of_a_network_inside_a_global_skip_is_a_readout():
    class Skip(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.up, self.down = nn.Linear(6, width), nn.Linear(width, 6)

        def forward(self, x):
            return x + self.down(self.up(x).relu())

    result = anatomy(Skip(32), Skip(8), example_inputs=vectors())
    assert {p.name: p.role.kind for p in result.places}["down.weight"] is Kind.READOUT
