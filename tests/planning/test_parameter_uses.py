"""Parameters used in ways that look like another: what a role must not be mistaken for."""

import pytest
import torch
from planning_zoo import Tower, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, anatomy
from depthmup.rules import Kind, Ratios

IDS = torch.zeros(4, dtype=torch.long)


def places(make, inputs, target=(64,), base=(16,), **options):
    result = anatomy(make(*target), make(*base), example_inputs=inputs, **options)
    return {p.name: p for p in result.places}


class Experts(nn.Module):
    """Matrices picked by an index, then multiplied with a batch of vectors."""

    def __init__(self, width, how):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
        self.experts = nn.Parameter(torch.randn(5, width, 2 * width) / width**0.5)
        self.down, self.how = nn.Linear(2 * width, width), how

    def forward(self, x, ids):
        h = self.inp(x)
        by_index = self.how == "index"
        weights = self.experts[ids] if by_index else self.experts.index_select(0, ids)
        y = torch.einsum("bn,bnm->bm", h, weights)
        return self.out(self.down(y.relu()))


@pytest.mark.parametrize("how", ["index", "index_select"])
def test_matrices_picked_by_an_index_are_matrices(how):
    experts = places(lambda w: Experts(w, how), (vectors(), IDS))["experts"]
    assert (experts.role.kind, experts.ratios) == (Kind.HIDDEN, Ratios(fan_in=4, fan_out=4))


def test_relation_matrices_in_the_rows_of_a_table_are_refused():
    class Relations(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
            self.relations = nn.Embedding(5, width * width)

        def forward(self, x, ids):
            h = self.inp(x)
            matrices = self.relations(ids).view(len(ids), h.shape[1], h.shape[1])
            return self.out(torch.bmm(h[:, None], matrices)[:, 0])

    with pytest.raises(NotUnderstood, match=r"relations\.weight"):
        places(Relations, (vectors(), IDS))


def test_an_embedding_is_still_one():
    """Rows that are looked up, also where a product of activations reads them."""

    class Rows(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.table, self.key = nn.Embedding(7, width), nn.Linear(6, width)

        def forward(self, ids, x):
            return self.table(ids) @ self.key(x).t()

    table = places(Rows, (IDS, vectors()))["table.weight"]
    assert (table.role.kind, table.ratios) == (Kind.INPUT, Ratios(fan_out=4))


@pytest.mark.parametrize("how", ["sum", "mean", "all"])
def test_a_vector_that_is_summed_over_is_a_readout(how):
    class Head(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.v = nn.Linear(6, width), nn.Parameter(torch.randn(width))

        def forward(self, x):
            h = self.inp(x).relu() * self.v
            if how == "mean":
                return h.mean(-1, keepdim=True)
            return h.sum(-1) if how == "sum" else h.sum()

    result = places(Head, vectors())["v"]
    assert (result.role.kind, result.ratios) == (Kind.READOUT, Ratios(fan_in=4))
    plan = depthmup.plan(Head(64), base=Head(16), example_inputs=vectors(), own_init="fixed")
    # A readout starts as 1/m; a mean brings 1/m of its own, which counts once.
    assert plan["v"].init == approx(1.0 if how == "mean" else 0.25)


def test_a_gain_is_still_a_vector():
    class Gained(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
            self.gain = nn.Parameter(torch.ones(width))

        def forward(self, x):
            h = self.inp(x)[:, None].expand(-1, 3, -1) * self.gain
            return self.out(h.mean(1))

    assert places(Gained, vectors())["gain"].role.kind is Kind.VECTOR


@pytest.mark.parametrize("norm", ["unit length", "by hand", "layer norm", "none"])
def test_an_output_that_is_normalized_has_no_readout(norm):
    """CLIP's projection: its size does not matter, so it may not begin near zero."""

    class Projected(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 5, bias=False)
            self.norm = nn.LayerNorm(5)

        def forward(self, x):
            y = self.out(self.inp(x).relu())
            if norm == "unit length":
                y = F.normalize(y, dim=-1)
            elif norm == "by hand":
                y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True))
            return self.norm(y) if norm == "layer norm" else y * self.norm.weight + self.norm.bias

    result = places(Projected, vectors())["out.weight"]
    assert result.role.kind is (Kind.READOUT if norm == "none" else Kind.HIDDEN)
    assert result.ratios == Ratios(fan_in=4)


@pytest.mark.parametrize("bend", [F.softplus, torch.exp, torch.square, lambda w: w.softmax(-1)])
def test_a_weight_behind_a_nonlinearity_is_refused(bend):
    """Its entries have a mean: sums over them grow with the fan-in, not with its root."""

    class Positive(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
            self.weight = nn.Parameter(torch.randn(width, width) / width)

        def forward(self, x):
            return self.out(F.linear(self.inp(x), bend(self.weight)))

    with pytest.raises(NotUnderstood, match=r"weight .*after a nonlinearity"):
        places(Positive, vectors())
    declared = places(Positive, vectors(), roles={"weight": "hidden"})
    assert declared["weight"].role.kind is Kind.HIDDEN


class Stack(nn.Module):
    """All layers in one parameter of each kind."""

    def __init__(self, width, depth, iterate=False):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
        self.weights = nn.Parameter(torch.randn(depth, width, width) / width**0.5)
        self.gains = nn.Parameter(torch.ones(depth, width))
        self.lambdas = nn.Parameter(torch.ones(depth))
        self.iterate = iterate

    def forward(self, x):
        x = self.inp(x)
        layers = zip(self.weights, self.gains, self.lambdas, strict=True)
        if not self.iterate:
            parts = (self.weights, self.gains, self.lambdas)
            layers = (tuple(part[i] for part in parts) for i in range(len(self.weights)))
        for weight, gain, scalar in layers:
            x = x + (gain * F.linear(x, weight).relu()) * scalar
        return self.out(x)


@pytest.mark.parametrize("iterate", [False, True])
def test_layers_stacked_in_one_parameter_are_not_shared(iterate):
    """Each branch has a slice of its own: gradients are not summed over layers."""
    result = places(lambda w, d: Stack(w, d, iterate), vectors(), target=(64, 8), base=(16, 2))
    weights = result["weights"]
    assert (weights.role.kind, weights.role.shared) == (Kind.HIDDEN, False)
    assert weights.ratios == Ratios(fan_in=4, fan_out=4, depth=4)
    assert result["gains"].ratios == Ratios(fan_out=4, depth=4)
    assert result["lambdas"].ratios == Ratios(depth=4)
    assert not result["lambdas"].role.shared


def test_a_parameter_of_all_layers_is_shared():
    class Shared(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x):
            return x + self.linear(x).relu()

    result = places(
        lambda w, d: Tower(Shared, w, d, shared=True),
        vectors(), target=(64, 8), base=(16, 2),
    )  # fmt: skip
    assert result["blocks.0.linear.weight"].role.shared


@pytest.mark.parametrize("returned", ["as it is", "in a distribution"])
def test_deviations_of_a_policy_are_a_vector(returned):
    """Returned beside the means, or checked for its sign: no unused layer, and no spline."""

    class Policy(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.mean = nn.Linear(6, width), nn.Linear(width, 3)
            self.logs = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            mean, spread = self.mean(self.first(x).tanh()), self.logs.exp()
            if returned == "as it is":
                return mean, spread.expand_as(mean)
            return torch.distributions.Normal(mean, spread)

    plan = depthmup.plan(Policy(64), Policy(16), example_inputs=torch.zeros(2, 6), scheme="mup")
    assert (plan["logs"].role.kind, plan["logs"].lr) == (Kind.VECTOR, 1)
    idle = [note for note in plan.notes if "no influence" in note]
    assert len(idle) == (returned == "in a distribution")
