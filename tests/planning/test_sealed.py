"""What twenty-five models of new fields showed, each kind as one small program."""

import pytest
import torch
from torch import nn

import depthmup
from depthmup.rules import Kind

G = torch.Generator().manual_seed(0)
X = torch.randn(16, 8, generator=G)
NODES, EDGES = torch.randn(9, 5, generator=G), torch.randn(24, 3, generator=G)
ENDS = tuple(torch.randint(0, 9, (24,), generator=G) for _ in range(2))


def planned(make, inputs, base=(16, 2), target=(64, 6), **options):
    sizes = [dict(zip(("width", "depth"), size, strict=True)) for size in (base, target)]
    given = {"scheme": "completep", "optimizer": "adamw"} | options
    return depthmup.plan(
        lambda width, depth: make(width, depth), base=sizes[0], target=sizes[1],
        example_inputs=inputs, **given,
    )  # fmt: skip


class Mesh(nn.Module):
    """Nodes and edges have a stream each; their network's answer is added to what was put in."""

    def __init__(self, width, depth):
        super().__init__()
        self.v, self.e, self.out = nn.Linear(5, width), nn.Linear(3, width), nn.Linear(width, 5)
        self.edge = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.node = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))

    def forward(self, x, a, send, receive):
        v, e = self.v(x), self.e(a)
        for edge, node in zip(self.edge, self.node, strict=True):
            e = e + edge(torch.cat([e, v[send]], -1).tanh())
            total = torch.zeros_like(v).index_add(0, receive, e)
            v = v + node(torch.cat([v, total], -1).tanh())
        return x + self.out(v)


def test_two_streams_inside_of_one_branch_have_their_depth():
    """The first layer's edges, made from nothing that the answer is added to, were left out."""
    plan = planned(Mesh, (NODES, EDGES, *ENDS))
    assert {
        p.ratios.depth for n in ("edge", "node") for p in plan.prescriptions if n in p.name
    } == {3}
    assert plan.proof.startswith("Proven")


class Shortcut(nn.Module):
    """Two matrices beside one; where the answer is as wide as the base, no shapes change there."""

    def __init__(self, width, out):
        super().__init__()
        self.inp, self.up = nn.Linear(8, width), nn.Linear(width, width)
        self.down, self.skip = nn.Linear(width, out), nn.Linear(width, out)
        self.norm, self.head = nn.LayerNorm(out), nn.Linear(out, 3)

    def forward(self, x):
        x = torch.relu(self.inp(x))
        return self.head(self.norm(self.down(torch.relu(self.up(x))) + self.skip(x)))


@pytest.mark.parametrize("out", [32, 33])
def test_a_shortcut_to_a_size_that_the_base_happens_to_have(out):
    plan = depthmup.plan(
        lambda width: Shortcut(width, out), base={"width": 32}, target={"width": 128},
        scheme="mup", optimizer="adamw", example_inputs=X,
    )  # fmt: skip
    # The norm behind their sum undoes the size of both: they start as hidden matrices do.
    for name in ("down.weight", "skip.weight"):
        assert (plan[name].role.kind, plan[name].role.narrows) == (Kind.HIDDEN, False)
        assert (plan[name].init, plan[name].lr) == (0.5, 0.25)
    assert plan.proof.startswith("Proven")


class Answering(nn.Module):
    """Layers, and a residual block with a matrix as its shortcut that gives the output."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(8, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.up, self.down, self.skip = (
            nn.Linear(width, 2 * width), nn.Linear(2 * width, 3), nn.Linear(width, 3),
        )  # fmt: skip

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            x = x + layer(x.tanh())
        return self.down(torch.relu(self.up(x))) + self.skip(x)


def test_what_gives_the_output_is_a_readout_at_any_depth():
    """Along the width alone the last block counted as one of several that end alike."""
    for target in ((64, 2), (64, 6)):
        plan = planned(Answering, X, target=target)
        assert {plan[n].role.kind for n in ("down.weight", "skip.weight")} == {Kind.READOUT}
        assert plan.proof.startswith("Proven")


class Crossed(nn.Module):
    """Two streams that read each other by the same matrices, one call for each."""

    def __init__(self, width):
        super().__init__()
        self.key, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, y):
        return x + self.out(torch.tanh(x + self.key(y))), y + self.out(torch.tanh(y + self.key(x)))


class TwoStreams(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.x, self.y, self.head = nn.Linear(8, width), nn.Linear(8, width), nn.Linear(width, 3)
        self.layers = nn.ModuleList(Crossed(width) for _ in range(depth))

    def forward(self, x, y):
        x, y = self.x(x), self.y(y)
        for layer in self.layers:
            x, y = layer(x, y)
        return self.head(x + y)


def test_a_matrix_that_reads_both_streams_lies_in_the_branches_of_both():
    plan = planned(TwoStreams, (X, X.flip(0)))
    keys = [p for p in plan.prescriptions if p.name.endswith("key.weight")]
    assert {(p.role.in_branch, p.ratios.depth) for p in keys} == {(True, 3)}
    assert {(p.role.last, p.ratios.depth) for p in keys} == {(False, 3)}
    branches = [m.label for m in plan.multipliers if m.label != "head.weight"]
    assert branches == [f"layers.{i}.out" for i in range(6)]
    assert plan.proof.startswith("Proven")


class Monarch(nn.Module):
    """Two block-diagonal matrices, of the second of which the number of blocks grows."""

    def __init__(self, width, blocks=4):
        super().__init__()
        n = width // blocks
        self.left = nn.Parameter(torch.randn(blocks, n, n) * n**-0.5)
        self.right = nn.Parameter(torch.randn(n, blocks, blocks) * blocks**-0.5)

    def forward(self, x):
        y = torch.einsum("nbi,bij->nbj", x.unflatten(-1, (len(self.left), -1)), self.left)
        return torch.einsum("nbj,jbc->ncj", y, self.right).flatten(-2)


def test_blocks_of_which_the_number_grows_have_a_fixed_fan_in():
    def make(width, depth):
        return nn.Sequential(nn.Linear(8, width), Monarch(width), nn.ReLU(), nn.Linear(width, 3))

    plan = planned(make, X, target=(64, 2))
    assert (plan["1.left"].init, plan["1.left"].lr) == (0.5, 0.25)
    assert (plan["1.right"].init, plan["1.right"].lr) == (1, 1)
    assert plan.proof.startswith("Proven")
