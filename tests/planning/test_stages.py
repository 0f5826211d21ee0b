"""Streams of several stages: each that grows on its own has its own depth ratio."""

import pytest
import torch
from planning_zoo import ConvBlock, MLPBlock, ResidualMLP, Tower, images, tokens, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, anatomy


class Stages(nn.Module):
    """A convolutional network whose stages have the depths given."""

    def __init__(self, width, depths, project):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages, self.down = nn.ModuleList(), nn.ModuleList()
        for i, depth in enumerate(depths):
            c_in, c = (width if project and i else width * 2**i), width * 2**i
            rest = (ConvBlock(c, c) for _ in range(depth - 1))
            self.stages.append(nn.Sequential(ConvBlock(c_in, c), *rest))
            between = nn.Identity() if project or not i else nn.Conv2d(width, c, 2, 2)
            self.down.append(between)
        self.head = nn.Linear(width * 2 ** (len(depths) - 1), 5)

    def forward(self, x):
        x = self.stem(x)
        for down, stage in zip(self.down, self.stages, strict=True):
            x = stage(down(x))
        return self.head(x.mean((2, 3)))


class Seeing(nn.Module):
    """A vision tower that stays as it is gives a language model its first tokens."""

    def __init__(self, width, depth):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.vision = nn.ModuleList(MLPBlock(width) for _ in range(2))
        self.norm, self.project = nn.LayerNorm(width), nn.Linear(width, width)
        self.embed = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, 16)

    def forward(self, pixels, ids):
        seen = self.patches(pixels).flatten(2).transpose(1, 2)
        for block in self.vision:
            seen = block(seen)
        x = torch.cat([self.project(self.norm(seen)), self.embed(ids)], 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Heads(nn.Module):
    """Further tokens are predicted by one addition each, behind the last norm."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.further = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.head = nn.Linear(width, 16, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return torch.stack([self.head(x + F.silu(linear(x))) for linear in self.further])


class U(nn.Module):
    """Layers above, a whole network below that is added once, and layers above again."""

    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.left, self.bottom, self.right = (
            nn.ModuleList(ConvBlock(k * width, k * width) for _ in range(depth)) for k in (1, 2, 1)
        )
        self.down = nn.Conv2d(width, 2 * width, 2, 2)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.left:
            x = block(x)
        y = self.down(x)
        for block in self.bottom:
            y = block(y)
        x = x + self.up(y)
        for block in self.right:
            x = block(x)
        return self.head(x)


def depth_ratios(make, size, base, inputs):
    """The ratio of every parameter inside of branches, by the first part of its name."""
    places = anatomy(make(*size), make(*base), example_inputs=inputs).places
    return {p.name: p.ratios.depth for p in places if p.role.in_branch}, places


@pytest.mark.parametrize("project", [False, True], ids=["convolution", "shortcut"])
def test_one_stage_made_deeper(project):
    model, base = (Stages(8, depths, project) for depths in ((2, 6), (2, 2)))
    found = anatomy(model, base, example_inputs=images())
    assert [depth.ratio for depth in found.depths] == [1, 3]
    assert len({depth.label for depth in found.depths}) == 2
    for p in found.places:
        if p.role.in_branch:
            assert p.ratios.depth == (3 if p.name.startswith("stages.1") else 1), p.name


def test_stages_that_grow_alike_are_one_stream():
    model, base = (Stages(8, depths, False) for depths in ((6, 3), (2, 1)))
    [depth] = anatomy(model, base, example_inputs=images()).depths
    assert (depth.additions, depth.base_additions) == (9, 3)


def test_another_number_of_stages_is_one_ratio():
    """Stages that are themselves repeated have no counterparts one by one."""

    def make(depth):
        layers = (Tower(MLPBlock, 6, 2) for _ in range(depth))
        towers = [m for tower in layers for m in (*tower.blocks, nn.Linear(6, 6))]
        return nn.Sequential(*towers)

    roles = {"*.weight": "hidden", "*.bias": "vector"}
    found = anatomy(make(4), make(2), example_inputs=vectors(), roles=roles)
    assert [depth.ratio for depth in found.depths] == [2]


def test_a_vision_tower_that_stays_takes_no_depth_factor():
    inputs = (images(), tokens())
    ratios, _ = depth_ratios(Seeing, (8, 6), (8, 2), inputs)
    assert {r for name, r in ratios.items() if name.startswith("vision")} == {1}
    assert {r for name, r in ratios.items() if name.startswith("blocks")} == {3}


def test_additions_behind_the_last_norm_take_no_depth_factor():
    ratios, _ = depth_ratios(Heads, (8, 6), (8, 2), tokens())
    assert {r for name, r in ratios.items() if name.startswith("further")} == {1}
    assert {r for name, r in ratios.items() if name.startswith("blocks")} == {3}


def test_a_network_below_that_is_added_once():
    ratios, places = depth_ratios(U, (8, 6), (8, 2), images())
    for side in ("left", "bottom", "right"):
        assert {r for name, r in ratios.items() if name.startswith(side)} == {3}, side
    assert next(p for p in places if p.name == "up.weight").ratios.depth == 1


@pytest.mark.parametrize("scheme", ["depth-mup", "completep"])
def test_the_output_stays_as_large_as_one_stage_grows(scheme):
    """At the start, mean over seeds: each stage adds up to what it is in the base."""

    def size(depths):
        outputs = []
        for seed in range(6):
            torch.manual_seed(seed)
            model, base = Plain(64, depths), Plain(64, (2, 2))
            plan = depthmup.plan(model, base=base, scheme=scheme, example_inputs=vectors())
            plan.initialize(model)
            outputs.append(model(torch.randn(32, 6)).square().mean().item())
        return sum(outputs) / len(outputs)

    deeper, base = size((2, 16)), size((2, 2))
    # The second stage begins at 1 and adds two branches of 1 in the base, sixteen of 1/8 or 1/64 in
    # the model. Six networks of 64 units scatter by a tenth; one ratio of 4.5 for both stages would
    # give 1.52 and 0.60 of the base.
    expected = 1.0 if scheme == "depth-mup" else (1 + 16 / 64) / (1 + 2)
    assert deeper / base == approx(expected, rel=0.25)


class Plain(nn.Module):
    """Two stages of branches that normalize what they read, and a matrix between."""

    def __init__(self, width, depths):
        super().__init__()
        self.width = width
        self.inp, self.mid = nn.Linear(6, width), nn.Linear(width, width, bias=False)
        self.first, self.second = (
            nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(d)) for d in depths
        )
        for linear in (self.mid, *self.first, *self.second):
            nn.init.normal_(linear.weight, std=width**-0.5)

    def forward(self, x):
        x = F.layer_norm(self.inp(x), (self.width,))
        for linear in self.first:
            x = x + linear(F.layer_norm(x, (self.width,)))
        x = F.layer_norm(self.mid(x), (self.width,))
        for linear in self.second:
            x = x + linear(F.layer_norm(x, (self.width,)))
        return x


def test_layers_with_the_same_weights_are_not_for_alpha_below_one():
    def make(width, depth):
        return Tower(MLPBlock, width, depth, shared=True)

    def planned(scheme):
        return depthmup.plan(
            make(8, 6), base=make(8, 2), scheme=scheme, example_inputs=vectors()
        ).notes

    assert any("same weights in every layer" in note for note in planned("depth-mup"))
    assert not any("same weights" in note for note in planned("completep"))
    own = depthmup.plan(
        ResidualMLP(8, 6), base=ResidualMLP(8, 2), scheme="depth-mup", example_inputs=vectors()
    )
    assert not any("same weights" in note for note in own.notes)


def test_layers_of_one_shared_matrix_take_alpha_one_by_default():
    class Layer(nn.Linear):
        def __init__(self, width):
            super().__init__(width, width)

        def forward(self, x):
            return x + super().forward(x.tanh())

    model, base = (Tower(Layer, 8, depth, shared=True) for depth in (6, 2))
    assert depthmup.plan(model, base=base, example_inputs=vectors()).scheme == "completep"


class FirstValues(nn.Module):
    """Later layers add the first layer's values to their own."""

    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(16, width)
        self.value, self.out = (
            nn.ModuleList(nn.Linear(width, width) for _ in range(depth)) for _ in range(2)
        )
        self.mix = nn.ParameterList(nn.Parameter(torch.tensor(0.5)) for _ in range(depth))
        self.mlps = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, 16)

    def forward(self, ids):
        x, first = self.embed(ids), None
        for value, out, mix, mlp in zip(self.value, self.out, self.mix, self.mlps, strict=True):
            v = value(F.layer_norm(x, x.shape[-1:]))
            first = v if first is None else first
            x = mlp(x + out((mix * v + (1 - mix) * first).cumsum(1).tanh()))
        return self.head(x)


def test_values_of_the_first_layer_are_no_stream():
    [depth] = anatomy(FirstValues(8, 6), FirstValues(8, 2), example_inputs=tokens()).depths
    assert (depth.additions, depth.base_additions) == (12, 4)


class Pyramid(nn.Module):
    """The outputs of two stages, projected to one size and added."""

    def __init__(self, width, depth):
        super().__init__()
        self.body = Stages(width, (depth, depth), False)
        self.lateral = nn.ModuleList(nn.Conv2d(c, 4, 1) for c in (width, 2 * width))
        self.out = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        first = self.body.stages[0](self.body.stem(x))
        second = self.body.stages[1](self.body.down[1](first))
        top = F.interpolate(self.lateral[1](second), scale_factor=2)
        return self.out(top + self.lateral[0](first)), self.body.head(second.mean((2, 3)))


def test_stages_that_meet_in_a_pyramid_are_no_branches_of_it():
    ratios, places = depth_ratios(Pyramid, (8, 6), (8, 2), images())
    assert set(ratios.values()) == {3}
    assert not any(p.role.in_branch for p in places if p.name.startswith("lateral"))


class OneTable(nn.Module):
    """Embeddings of every layer in one table, and a projection for all layers in one matrix."""

    def __init__(self, width, depth, size=4):
        super().__init__()
        self.embed, self.table = nn.Embedding(16, width), nn.Embedding(16, depth * size)
        self.project = nn.Linear(width, depth * size, bias=False)
        self.gain = nn.Parameter(torch.ones(size))
        self.gates = nn.ModuleList(nn.Linear(width, size) for _ in range(depth))
        self.outs = nn.ModuleList(nn.Linear(size, width) for _ in range(depth))
        self.head, self.size = nn.Linear(width, 16), size

    def forward(self, ids):
        x, shape = self.embed(ids), (*ids.shape, len(self.gates), self.size)
        each = self.table(ids).view(shape) + self.gain * self.project(x).view(shape)
        for i, (gate, out) in enumerate(zip(self.gates, self.outs, strict=True)):
            x = x + out(gate(x).sigmoid() * each[..., i, :])
        return self.head(x)


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_tables_of_all_layers_in_one_are_as_many_tables(optimizer):
    """Rates, epsilons and scales are those of a table for each layer, which is the same model."""
    plan = depthmup.plan(
        OneTable(32, 6), base=OneTable(8, 2), scheme="depth-mup", optimizer=optimizer,
        example_inputs=tokens(),
    )  # fmt: skip
    for name, kind in (("table.weight", "input"), ("project.weight", "hidden")):
        p = plan[name]
        assert (str(p.role.kind), p.role.shared) == (kind, False), name
        assert (p.ratios.fan_out, p.ratios.depth) == (1, 3), name
    # What all layers multiply by is one vector for all of them.
    assert plan["gain"].ratios.fan_out == 1


class Gated(nn.Module):
    """A highway layer, with a gate on the stream or as a residual branch."""

    def __init__(self, width, branch):
        super().__init__()
        self.f, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.branch = depthmup.Branch() if branch else None

    def forward(self, x):
        t, f = self.gate(x).sigmoid(), self.f(x).tanh()
        if self.branch is None:
            return (1 - t) * x + t * f
        return x + self.branch(t * (f - x))


def test_a_gate_on_the_stream_is_refused_with_the_way_out():
    def planned(branch):
        model, base = (
            Tower(lambda width: Gated(width, branch), width, depth)
            for width, depth in ((32, 6), (8, 2))
        )
        return depthmup.plan(model, base=base, scheme="completep", example_inputs=vectors())

    with pytest.raises(NotUnderstood, match=r"x \+ self\.branch\(t \* \(f\(x\) - x\)\)"):
        planned(False)
    plan = planned(True)
    assert [depth.ratio for depth in plan.depths] == [3]
    assert [m.value for m in plan.multipliers if m.where == "branch"] == [approx(1 / 3)] * 6
    assert plan["blocks.0.gate.weight"].ratios.depth == 3
