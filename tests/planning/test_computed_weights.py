"""Weights that are computed from several parameters, and what only looks like them."""

import pytest
import torch
from planning_zoo import Tower, vectors
from torch import nn
from torch.nn import functional as F

from depthmup.planning import NotUnderstood, anatomy
from depthmup.rules import Kind


class Computed(nn.Module):
    """A branch whose first weight is made from ``weight`` and from other parameters."""

    def __init__(self, width, how):
        super().__init__()
        self.how = how
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.gain = nn.Parameter(torch.ones(width, 1))
        self.out = nn.Linear(width, width)
        if how in ("sum", "collected"):
            self.gain = nn.Parameter(torch.randn(width, width) / width**0.5)

    def forward(self, x):
        if self.how == "gain":
            y = F.linear(x, self.weight * self.gain)
        elif self.how == "gain, transposed":
            y = x @ (self.weight.t() * self.gain.t()).reshape(x.shape[1], -1)
        elif self.how == "sum":
            y = F.linear(x, self.weight + self.gain)
        elif self.how == "collected":
            y = F.linear(x, torch.cat([self.weight, self.gain]))[:, : x.shape[1]]
        else:
            kernel = F.batch_norm(
                self.weight[None], None, None, weight=self.gain[:, 0], training=True
            )
            y = F.conv1d(x[:, :, None], kernel[0, :, :, None])[:, :, 0]
        return x + self.out(y.relu())


@pytest.mark.parametrize("how", ["gain", "gain, transposed", "sum", "collected", "standardized"])
@pytest.mark.parametrize(("target", "base"), [((8, 4), (8, 2)), ((32, 2), (8, 2))])
def test_a_weight_made_from_several_parameters_is_refused(how, target, base):
    def make(width, depth):
        return Tower(lambda w: Computed(w, how), width, depth)

    with pytest.raises(NotUnderstood, match=r"blocks\.0\.weight is used by .*fan-in from fan-out"):
        anatomy(make(*target), make(*base), example_inputs=vectors())
    gain = "hidden" if how in ("sum", "collected") else "vector"
    roles = {"blocks.*.weight": "hidden", "blocks.*.gain": gain}
    declared = anatomy(make(*target), make(*base), example_inputs=vectors(), roles=roles)
    assert {p.role.kind for p in declared.places if p.name.endswith(".weight")} >= {Kind.HIDDEN}


def test_a_computed_readout_is_refused():
    """One axis grows, as in a gain."""

    class Head(Tower):
        def __init__(self, width):
            super().__init__(lambda w: nn.Linear(w, w), width, 0)
            self.gain = nn.Parameter(torch.ones(2, 1))

        def forward(self, x):
            return F.linear(self.inp(x).relu(), self.out.weight * self.gain, self.out.bias)

    with pytest.raises(NotUnderstood, match=r"out\.weight is used by mul"):
        anatomy(Head(32), Head(8), example_inputs=vectors())


def test_gains_and_learned_inputs_are_vectors():
    """Queries with a norm and positions of their own, which matrices then act on."""

    class Queries(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.norm = nn.Linear(6, width), nn.LayerNorm(width)
            self.queries = nn.Parameter(torch.randn(1, 4, width))
            self.positions = nn.Parameter(torch.randn(1, 4, width))
            self.q, self.out = nn.Linear(width, width), nn.Linear(width, 2)

        def forward(self, x):
            keys = self.inp(x)[None]
            queries = self.q(self.norm(self.queries + self.positions))
            return self.out((queries @ keys.transpose(1, 2)).softmax(-1) @ keys)

    result = anatomy(Queries(32), Queries(8), example_inputs=vectors())
    at = {p.name: p.role.kind for p in result.places}
    for name in ("queries", "positions", "norm.weight", "norm.bias"):
        assert at[name] is Kind.VECTOR
    assert at["q.weight"] is Kind.HIDDEN
