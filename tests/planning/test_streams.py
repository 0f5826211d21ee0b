"""What counts as depth: streams that begin with learned tokens, and what the plan says of r."""

import pytest
import torch
from planning_zoo import MirroredSkips, MLPBlock, PostNormBlock, ResidualMLP, Tower, tower, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import NotUnderstood, Where, anatomy, plan
from depthmup.rules import Ratios


class Cross(nn.Module):
    """Queries from one stream, keys and values from another."""

    def __init__(self, width):
        super().__init__()
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, memory):
        k, v = self.kv(memory).chunk(2, -1)
        q, k, v = (t[:, None] for t in (self.q(x), k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v)[:, 0])


class ClassAttention(nn.Module):
    """CaiT: a class token joins after the trunk, with two blocks of its own at every depth."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.trunk = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.attend = nn.ModuleList(Cross(width) for _ in range(2))
        self.mlps = nn.ModuleList(MLPBlock(width) for _ in range(2))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.inp(x)
        for block in self.trunk:
            x = block(x)
        token = self.token.expand(len(x), -1, -1)
        for attend, mlp in zip(self.attend, self.mlps, strict=True):
            token = token + attend(token, torch.cat([token, x], 1))
            token = mlp(token)
        return self.head(token[:, 0])


class Queries(nn.Module):
    """DETR: the decoder's stream begins with zeros, or with the learned queries."""

    def __init__(self, width, depth, zeros):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.encoder = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.queries = nn.Parameter(torch.randn(4, width))
        self.attend = nn.ModuleList(Cross(width) for _ in range(depth))
        self.cross = nn.ModuleList(Cross(width) for _ in range(depth))
        self.head, self.zeros = nn.Linear(width, 3), zeros

    def forward(self, x):
        memory = self.inp(x)
        for block in self.encoder:
            memory = block(memory)
        queries = self.queries[None].expand(len(x), -1, -1)
        y = torch.zeros_like(queries) if self.zeros else queries
        for attend, cross in zip(self.attend, self.cross, strict=True):
            places = y + queries if self.zeros else y
            y = y + attend(places, places)
            places = y + queries if self.zeros else y
            y = y + cross(places, memory)
        return self.head(y)


def sequences():
    return torch.zeros(2, 5, 6)


def test_a_class_token_has_a_stream_of_its_own():
    """Six layers against two are three times as deep, whatever the class blocks add."""
    result = anatomy(ClassAttention(32, 6), ClassAttention(8, 2), example_inputs=sequences())
    at = {p.name: p for p in result.places}
    assert at["trunk.5.up.weight"].ratios.depth == 3
    assert at["attend.1.out.weight"].role.in_branch
    assert at["attend.1.out.weight"].ratios == Ratios(fan_in=4, fan_out=4)
    assert sorted((d.additions, d.base_additions, d.ratio) for d in result.depths) == [
        (4, 4, 1.0),
        (6, 2, 3.0),
    ]


@pytest.mark.parametrize("zeros", [True, False])
def test_streams_that_begin_with_learned_queries_or_zeros(zeros):
    def make(width, depth):
        return Queries(width, depth, zeros)

    result = anatomy(make(32, 6), make(8, 2), example_inputs=sequences())
    at = {p.name: p for p in result.places}
    for name in ("encoder.5.up.weight", "attend.5.out.weight", "cross.0.kv.weight"):
        assert at[name].role.in_branch, name
        assert at[name].ratios.depth == 3, name
    assert sorted((d.additions, d.base_additions) for d in result.depths) == [(6, 2), (12, 4)]


def test_the_plan_says_what_it_counted():
    plan = depthmup.plan(ResidualMLP(16, 8), base=ResidualMLP(8, 2), example_inputs=vectors())
    assert "8 residual additions on the stream of blocks.*, 2 in the base; r = 4." in str(plan)


@pytest.mark.parametrize(("depth", "notes"), [(2, 0), (4, 1)])
def test_a_norm_after_the_additions_is_noted_where_depth_grows(depth, notes):
    """Once of streams of one kind: two towers of blocks that start alike."""

    class Towers(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.towers = nn.ModuleList(Tower(PostNormBlock, width, depth) for _ in range(2))

        def forward(self, x):
            return sum(tower(x) for tower in self.towers)

    plan = depthmup.plan(
        Towers(16, depth), Towers(8, 2), example_inputs=vectors(), own_init="fan_in"
    )
    assert sum("post-norm" in note for note in plan.notes) == notes


@pytest.mark.parametrize(("depth", "notes"), [(4, 0), (8, 1)])
def test_skips_are_noted_where_their_number_grows(depth, notes):
    """What comes back adds up with depth, beside what branches add."""
    models = (MirroredSkips(8, of, "after a number") for of in (depth, 4))
    plan = depthmup.plan(*models, example_inputs=vectors(), own_init="fan_in")
    assert sum("again in 4 places, and in 2 of the base" in note for note in plan.notes) == notes


class MixingBlock(nn.Module):
    """Weighs a tensor of its own branch twice."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        y = self.norm(x)
        return x + self.linear(y + 0.5 * y)


def test_what_a_branch_mixes_inside_is_no_skip():
    models = (Tower(MixingBlock, 8, depth) for depth in (8, 4))
    plan = depthmup.plan(*models, example_inputs=vectors(), own_init="fan_in")
    assert not any("are added to it again" in note for note in plan.notes)


class LongSkip(nn.Module):
    """As EDSR has it: the blocks, and a last layer, are themselves one branch."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.out = nn.Linear(6, width), nn.Linear(width, 2)
        self.blocks = nn.Sequential(
            *(MLPBlock(width) for _ in range(depth)), nn.Linear(width, width)
        )

    def forward(self, x):
        x = self.inp(x)
        return self.out(x + self.blocks(x))


def test_the_plan_says_what_it_counted_inside_of_a_branch():
    plan = depthmup.plan(LongSkip(16, 6), LongSkip(8, 2), example_inputs=vectors())
    said = " ".join(str(plan).split())
    assert "6 residual additions on the stream of blocks.*, 2 in the base; r = 3." in said
    assert "1 residual addition on the stream of blocks, 1 in the base; r = 1." in said


def test_depth_may_be_declared():
    options = {"example_inputs": vectors(), "scheme": "completep"}
    plan = depthmup.plan(ResidualMLP(16, 8), base=ResidualMLP(8, 2), depth=3, **options)
    assert plan["blocks.0.up.weight"].ratios.depth == 3
    branches = [m.value for m in plan.multipliers if m.where is Where.BRANCH]
    assert branches == approx([1 / 3] * 8)
    assert "r = 3, as declared" in " ".join(str(plan).split())
    with pytest.raises(ValueError, match="Expected depth"):
        depthmup.plan(ResidualMLP(16, 8), base=ResidualMLP(8, 2), depth=0, **options)


def test_a_sum_that_starts_from_zero_is_a_sum():
    """Python's ``sum`` over parallel parts of a branch begins with the number 0."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

        def forward(self, x):
            return x + sum(part(x.relu()) for part in self.parts)

    plan = depthmup.plan(tower(Block)(16, 8), base=tower(Block)(8, 2), example_inputs=vectors())
    assert plan["blocks.0.parts.2.weight"].folded == 0.5


def test_a_mask_token_that_the_example_leaves_out_is_a_note():
    def make(width):
        model = Tower(MLPBlock, width, 2)
        model.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        return model

    result = anatomy(make(32), make(8), example_inputs=vectors())
    token = next(p for p in result.places if p.name == "mask_token")
    assert token.ratios == Ratios(fan_out=4)
    assert any("mask_token has no influence" in note for note in result.notes)
    frozen = make(32)
    frozen.mask_token.requires_grad_(False)
    assert not anatomy(frozen, make(8), example_inputs=vectors()).notes


def test_patterns_that_match_nothing_are_refused():
    models = {"base": ResidualMLP(8, 2), "example_inputs": vectors()}
    with pytest.raises(ValueError, match=r"No parameter matches 'outs\.weight' of roles"):
        depthmup.plan(ResidualMLP(16, 2), roles={"outs.weight": "hidden"}, **models)
    with pytest.raises(ValueError, match=r"No parameter matches 'outs\.weight' of own_init"):
        depthmup.plan(ResidualMLP(16, 2), own_init={"outs.weight": "fixed"}, **models)


def test_an_init_declared_for_one_parameter_leaves_the_others_measured():
    torch.manual_seed(0)
    model, base = ResidualMLP(64, 2), ResidualMLP(16, 2)
    plan = depthmup.plan(
        model, base=base, example_inputs=vectors(), own_init={"out.weight": "fan_in"}
    )
    measured = depthmup.plan(model, base=base, example_inputs=vectors())
    for name in ("blocks.0.up.weight", "inp.bias", "norm.weight"):
        assert plan.own_laws[name] == measured.own_laws[name]
    before = model.blocks[0].up.weight.detach().clone()
    plan.initialize(model)
    factor = plan["blocks.0.up.weight"].init / plan.own_laws["blocks.0.up.weight"].ratio
    torch.testing.assert_close(model.blocks[0].up.weight.detach(), before * factor)


class EachLayer(nn.Module):
    """Something on the stream in every layer: a gain, a bias, or a number of one list."""

    def __init__(self, width, depth, how):
        super().__init__()
        self.inp, self.out, self.how = nn.Linear(6, width), nn.Linear(width, 2), how
        self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.gains = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(depth))
        self.lambdas = nn.Parameter(torch.ones(depth))

    def forward(self, x):
        x = self.inp(x)
        for i, block in enumerate(self.blocks):
            if self.how == "gain":
                x = x * self.gains[i]
            elif self.how == "bias":
                x = x + self.gains[i]
            elif self.how == "list":
                x = x * self.lambdas[i]
            elif self.how == "shared":
                x = x + self.gains[0]
            x = block(x)
        return self.out(x)


def each_layer(how):
    """The factory of networks in which something acts on the stream in every layer."""

    def make(width, depth):
        model = EachLayer(width, depth, how)
        if how == "shared":  # one vector, which every layer adds
            model.gains = model.gains[:1]
        if how == "list":
            del model.gains
        else:
            del model.lambdas
        return model

    return make


@pytest.mark.parametrize("how", ["gain", "bias", "list"])
def test_what_acts_on_the_stream_in_every_layer_learns_at_one_over_depth(how):
    """Its effects add up over depth without a branch's multiplier: r^-(alpha + gamma)."""
    make = each_layer(how)
    result = anatomy(make(32, 6), make(8, 2), example_inputs=vectors())
    assert not result.notes
    at = {p.name: p for p in result.places}
    acting = [p for name, p in at.items() if name.startswith(("gains", "lambdas"))]
    assert {(p.role.on_stream, p.ratios.depth) for p in acting} == {(True, 3)}
    if how == "list":  # as many numbers as layers: their number is no width
        assert at["lambdas"].ratios == Ratios(depth=3)
    assert at["blocks.5.up.weight"].ratios.depth == 3
    for scheme in ("depth-mup", "completep", "ode"):
        made = plan(make(32, 6), make(8, 2), scheme=scheme, example_inputs=vectors(), proof="off")
        rates = {p.lr for p in made.prescriptions if p.name.startswith(("gains", "lambdas"))}
        assert sorted(rates) == [approx(1 / 3)]
    same = anatomy(make(32, 2), make(8, 2), example_inputs=vectors())
    assert not any(p.role.on_stream for p in same.places)


@pytest.mark.parametrize("base", [2, 3])
def test_what_all_layers_share_sums_their_gradients(base):
    """Adam's rate is r^-1, SGD's r^-2, and epsilon r, as the gradient."""
    make, ratio = each_layer("shared"), 12 / base
    for optimizer, lr in (("adam", 1 / ratio), ("sgd", 1 / ratio**2)):
        made = plan(
            make(32, 12),
            make(32, base),
            scheme="depth-mup",
            optimizer=optimizer,
            example_inputs=vectors(),
            proof="off",
        )
        own = made["gains.0"]
        assert (own.role.on_stream, own.role.shared, own.ratios.depth) == (True, True, ratio)
        assert own.lr == approx(lr)
        if optimizer == "adam":
            assert own.epsilon == approx(ratio)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("how", ["gain", "bias", "list", "shared"])
def test_what_acts_on_the_stream_adds_up_to_the_same_at_all_depths(how, optimizer):
    """Its own training alone, all else still: the outputs change by as much at depth 64 as at 4.

    Without the rule they change 16 times as much, which is what effects that add up do.
    """
    make, x, y = each_layer(how), torch.randn(32, 6), torch.randn(32, 2)
    changes = []
    for depth in (4, 64):
        torch.manual_seed(0)
        model = make(16, depth)
        made = plan(
            model,
            make(16, 4),
            scheme="depth-mup",
            optimizer=optimizer,
            example_inputs=x,
            proof="off",
        )
        made.initialize(model)
        groups = made.param_groups(model, lr=1e-4)
        moving = {p for n, p in model.named_parameters() if n.startswith(("gains", "lambdas"))}
        for group in groups:
            group["params"] = [p for p in group["params"] if p in moving]
        kind = torch.optim.Adam if optimizer == "adam" else torch.optim.SGD
        trained = kind([group for group in groups if group["params"]], lr=1e-4)
        before = model(x)
        (model(x) * y).mean().backward()
        trained.step()
        changes.append(float((model(x) - before).detach().square().mean().sqrt()))
    # To first order the same, but for the network's own difference between depths.
    assert 0.5 < changes[1] / changes[0] < 2


class WithPositions(nn.Module):
    """WavLM: one branch of positions, then blocks, of which every first half reads one table."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.positions = nn.Linear(6, width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn(5, width))
        self.mixes = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.mlps = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.inp(x)
        x = x + self.positions(x)
        for mix, mlp in zip(self.mixes, self.mlps, strict=True):
            x = mlp(x + mix(torch.relu(x + self.table)))
        return self.head(x)


def test_a_table_of_all_branches_of_a_kind_is_shared_beside_branches_of_another_kind():
    """Three times as many read it in a stream that is 13/5 as deep; it was refused."""
    found = anatomy(WithPositions(32, 6), WithPositions(8, 2), example_inputs=torch.zeros(2, 5, 6))
    (table,) = (p for p in found.places if p.name == "table")
    assert table.role.shared
    assert table.role.in_branch
    assert table.ratios.depth == approx(13 / 5)


class TwoNorms(nn.Module):
    """A block whose norm of the class token is its own."""

    def __init__(self, width):
        super().__init__()
        self.of_token, self.of_rest = nn.LayerNorm(width), nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        token, rest = x.split((1, x.shape[1] - 1), dim=1)
        return self.linear(torch.cat([self.of_token(token), self.of_rest(rest)], 1).tanh())


class Special(nn.Module):
    """A class token that the first block reads beside the stream, not out of it."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.blocks = nn.ModuleList(TwoNorms(width) for _ in range(depth))

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), self.inp(x)], 1)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x[:, 0])


SEQUENCE = torch.randn(2, 3, 6)


def test_a_class_token_that_the_first_block_reads_apart_takes_declared_branches():
    models = Special(64, 6), Special(16, 2)
    with pytest.raises(depthmup.planning.UnrelatedModels, match=r"learned tokens.*declare"):
        depthmup.plan(*models, scheme="completep", example_inputs=SEQUENCE)
    plan = depthmup.plan(
        *models, scheme="completep", example_inputs=SEQUENCE, branches={"blocks.*": ()}
    )
    assert {p.ratios.depth for p in plan.prescriptions if p.name.startswith("blocks")} == {3}
    assert plan["token"].ratios.depth == 1
    branches = [m for m in plan.multipliers if m.where is Where.BRANCH]
    assert [m.value for m in branches] == [approx(1 / 3)] * 6


class Pair(nn.Module):
    """One block of two streams (local and global tokens), of which it returns both branches."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x, y):
        x, y = self.norm(x), self.norm(y)
        return self.out((x + y).tanh()), self.out((x - y).tanh())


class TwoStreams(nn.Module):
    """The last block's second stream is not read: its weights serve one branch, others two."""

    def __init__(self, width, depth):
        super().__init__()
        self.left, self.right = nn.Linear(6, width), nn.Linear(6, width)
        self.blocks = nn.ModuleList(Pair(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x, y = self.left(x), self.right(x)
        for block in self.blocks:
            dx, dy = block(x, y)
            x, y = x + dx, y + dy
        return self.head(x)


def two_streams(branches=None):
    return depthmup.plan(
        TwoStreams(64, 6), TwoStreams(16, 2), scheme="completep", example_inputs=vectors(),
        branches=branches,
    )  # fmt: skip


def test_a_block_of_two_streams_is_declared_by_what_gives_each_branch():
    with pytest.raises(NotUnderstood, match=r"same pattern.*declare"):
        two_streams()
    plan = two_streams({"blocks.*.out": ("blocks.*.norm",)})
    assert {p.ratios.depth for p in plan.prescriptions if p.name.startswith("blocks")} == {3}


def test_a_declared_module_that_returns_two_branches_is_refused():
    """Its multiplier would be on the first alone, and the second stream grow with depth."""
    with pytest.raises(NotUnderstood, match=r"blocks\.0 is declared to be a branch"):
        two_streams({"blocks.*": ()})
