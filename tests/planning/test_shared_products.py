"""What carries a product's multiplier: what both operands pass, or what several products read."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood

A, B = torch.arange(12), torch.arange(12, 24)


class Triplets(nn.Module):
    """One encoder of anchors, positives and negatives: three calls, two products."""

    def __init__(self, width):
        super().__init__()
        self.table, self.out = nn.Embedding(24, width), nn.Linear(width, width, bias=False)

    def forward(self, a, b):
        anchor, good, bad = (self.out(self.table(i)) for i in (a, b, b.flip(0)))
        return (anchor * good).sum(-1) - (anchor * bad).sum(-1)


class Bilinear(nn.Module):
    """e(a) W e(b) of one table: the product passes the table twice."""

    def __init__(self, width):
        super().__init__()
        self.table = nn.Embedding(24, width)

    def forward(self, a, b):
        return self.table(a) @ self.table(b).transpose(-1, -2)


class Also(nn.Module):
    """The query's module feeds a readout as well."""

    def __init__(self, width, apart):
        super().__init__()
        self.table, self.query = nn.Embedding(24, width), nn.Linear(width, width)
        self.keys, self.read = nn.Embedding(24, width), nn.Linear(width, 4)
        self.apart = depthmup.Branch() if apart else lambda x: x

    def forward(self, a, b):
        q = self.query(self.table(a))
        return (self.apart(q) * F.relu(self.keys(b) + self.query(self.keys(b)))).sum(-1), self.read(
            q
        )


def of(make, **options):
    torch.manual_seed(0)
    return depthmup.plan(make(64), make(16), scheme="completep", example_inputs=(A, B), **options)


@pytest.mark.parametrize("folding", [True, False])
def test_a_table_that_both_operands_read_carries_the_root(folding):
    """<e, e'> / n: 1 / sqrt(n) on the table, once for each operand."""
    plan = of(Bilinear, folding=folding)
    (factor,) = plan.multipliers
    assert factor.value == pytest.approx(1 / 2)
    assert factor.times == 2


def grown(make, size):
    """By how much scores start, and change in three steps, at 16 times the width."""
    torch.manual_seed(0)
    model = make(size)
    groups = [{"params": list(model.parameters())}]
    if size != 32:
        plan = depthmup.plan(model, make(32), scheme="completep", example_inputs=(A, B))
        plan.initialize(model)
        groups = plan.param_groups(model, lr=1e-3, eps=1e-12)
    optimizer = torch.optim.AdamW(groups, lr=1e-3, eps=1e-12)
    before = model(A, B).detach()
    for _ in range(3):
        optimizer.zero_grad()
        (model(A, B) * torch.linspace(-1, 1, before.shape[-1])).mean().backward()
        optimizer.step()
    return float((model(A, B).detach() - before).square().mean().sqrt())


@pytest.mark.parametrize("make", [Triplets, Bilinear])
def test_scores_move_alike_at_every_width(make):
    slope = math.log(grown(make, 512) / grown(make, 32)) / math.log(16)
    assert abs(slope) < 0.3


def test_the_way_out_that_is_named_is_one():
    """A product whose operands feed something else is refused; a module of its own carries it."""
    with pytest.raises(NotUnderstood, match=r"depthmup\.Branch\(\)"):
        of(lambda width: Also(width, apart=False), proof="off")
    plan = of(lambda width: Also(width, apart=True))
    assert plan.proof.startswith("Proven")
