"""Roles and ratios, and the errors that name a parameter and say what to declare."""

import pytest
import torch
from planning_zoo import (
    VOCABULARY,
    ConvNeXt,
    MLPBlock,
    NestedBlock,
    PostNormBlock,
    ResidualMLP,
    ResNet,
    Tower,
    Transformer,
    UnfoldableBlock,
    images,
    tokens,
    tower,
    vectors,
)
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import (
    DeclaredRole,
    NotUnderstood,
    TraceError,
    UnrelatedModels,
    Where,
    anatomy,
)
from depthmup.rules import Kind, Ratios, Role


def places(make, inputs, target=(32, 8), base=(8, 2), **options):
    result = anatomy(make(*target), make(*base), example_inputs=inputs, **options)
    return {p.name: p for p in result.places}


def role(place):
    return place.role.kind, place.role.in_branch, place.role.last


def test_residual_mlp():
    result = places(ResidualMLP, vectors())
    at = {name: (role(p), p.ratios) for name, p in result.items()}
    deep = {"depth": 4.0}
    assert at["inp.weight"] == ((Kind.INPUT, False, False), Ratios(fan_out=4))
    assert at["inp.bias"] == ((Kind.VECTOR, False, False), Ratios(fan_out=4))
    assert at["blocks.5.norm.weight"] == ((Kind.VECTOR, True, False), Ratios(fan_out=4, **deep))
    hidden = Ratios(fan_in=4, fan_out=4, **deep)
    assert at["blocks.5.up.weight"] == ((Kind.HIDDEN, True, False), hidden)
    assert at["blocks.5.down.weight"] == ((Kind.HIDDEN, True, True), hidden)
    assert at["blocks.5.down.bias"] == ((Kind.VECTOR, True, True), Ratios(fan_out=4, **deep))
    assert at["out.weight"] == ((Kind.READOUT, False, False), Ratios(fan_in=4))
    assert at["out.bias"] == ((Kind.VECTOR, False, False), Ratios())


def test_equal_width_leaves_kinds_to_the_place():
    result = places(ResidualMLP, vectors(), target=(8, 8))
    kinds = {n: result[n].role.kind for n in ("inp.weight", "blocks.0.up.weight", "out.weight")}
    assert list(kinds.values()) == [Kind.INPUT, Kind.HIDDEN, Kind.READOUT]
    assert all(p.ratios in (Ratios(), Ratios(depth=4)) for p in result.values())


def test_tied_embedding_is_one_readout():
    result = places(lambda w, d: Transformer(w, d, tied=True), tokens())
    tied = result["tokens.weight"]
    assert tied.role == Role(kind=Kind.READOUT, tied=True)
    assert tied.ratios == Ratios(fan_in=4)
    assert tied.names == ("tokens.weight", "head.weight")
    assert result["positions"].role.kind is Kind.VECTOR


def test_convolutions_count_their_kernel_and_depthwise_ones_do_not_grow_in_fan_in():
    result = places(ConvNeXt, images())
    assert result["stem.weight"].ratios == Ratios(fan_out=4)
    depthwise = result["stages.1.3.dwconv.weight"]
    assert (depthwise.role.kind, depthwise.ratios) == (Kind.INPUT, Ratios(fan_out=4, depth=4))
    assert result["stages.1.3.gamma"].role.last
    assert result["down.1.weight"].role == Role(kind=Kind.HIDDEN)


def test_resnet_blocks_are_matched_by_proportion():
    """Base stages of two blocks: the first changes the channels, the others keep them."""
    result = places(ResNet, images())
    assert result["layer2.0.conv1.weight"].base_name == "layer2.0.conv1.weight"
    assert result["layer2.7.conv1.weight"].base_name == "layer2.1.conv1.weight"
    assert result["layer2.7.conv1.weight"].ratios == Ratios(fan_in=4, fan_out=4, depth=4)
    assert not result["layer2.0.down.0.weight"].role.in_branch
    assert result["layer2.7.bn2.weight"].role.last
    with pytest.raises(UnrelatedModels, match=r"layer\d.1 has no counterpart|several"):
        places(ResNet, images(), base=(8, 1))


def test_blocks_of_one_class_are_matched_by_proportion():
    def make(width, pattern):
        blocks = (MLPBlock(width, k * width) for k in pattern)
        return nn.Sequential(nn.Linear(6, width), *blocks, nn.Linear(width, 2))

    result = anatomy(make(16, (2, 5, 2, 5)), make(8, (2, 5)), example_inputs=vectors()).places
    bases = {p.name: p.base_name for p in result}
    assert [bases[f"{i}.up.weight"] for i in (1, 2, 3, 4)] == [
        f"{i}.up.weight" for i in (1, 2, 1, 2)
    ]
    assert {p.ratios.fan_out for p in result if ".up." in p.name} == {2}
    with pytest.raises(UnrelatedModels, match="could correspond to several"):
        anatomy(make(16, (2, 5, 3)), make(8, (2, 5)), example_inputs=vectors())


def test_nested_branches_multiply_their_ratios():
    result = places(tower(NestedBlock), vectors())
    assert result["blocks.0.adapter_out.weight"].ratios.depth == 4
    assert len(result["blocks.0.adapter_out.weight"].branches) == 2
    # From four fixed to a growing number, from a growing number to four.
    assert result["blocks.0.adapter_out.weight"].role.kind is Kind.INPUT
    narrow = result["blocks.0.adapter_in.weight"]
    assert (narrow.role.kind, narrow.ratios.fan_in, narrow.ratios.fan_out) == (Kind.HIDDEN, 4, 1)
    assert narrow.role.narrows


def test_what_leads_to_a_fixed_size_narrows_unless_that_is_larger_or_has_a_norm_of_its_own():
    def make(width, size, norm):
        inner = nn.Linear(width, size), norm(size), nn.Linear(size, width)
        return nn.Sequential(nn.Linear(6, width), *inner, nn.Linear(width, 2))

    for size, norm, expected in (
        (4, nn.Identity, True), (64, nn.Identity, False), (4, nn.LayerNorm, False),
    ):  # fmt: skip
        places = anatomy(
            make(32, size, norm), make(16, size, norm), example_inputs=vectors()
        ).places
        assert [p.role.narrows for p in places if p.name == "1.weight"] == [expected]


class Bottleneck(nn.Module):
    """A stream through four numbers, normalized by themselves or not."""

    def __init__(self, width, norm):
        super().__init__()
        self.before, self.down = nn.LayerNorm(width), nn.Linear(width, 4, bias=False)
        self.norm, self.up = norm(4), nn.Linear(4, width, bias=False)

    def forward(self, x):
        return x + self.up(F.relu(self.norm(self.down(self.before(x)))))


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(("norm", "expected"), [(nn.Identity, True), (nn.LayerNorm, False)])
def test_a_norm_of_its_own_is_seen_in_any_number_of_blocks(blocks, norm, expected):
    def make(width):
        inner = (Bottleneck(width, norm) for _ in range(blocks))
        return nn.Sequential(nn.Linear(6, width), *inner, nn.LayerNorm(width), nn.Linear(width, 2))

    places = anatomy(make(32), make(16), example_inputs=vectors()).places
    assert [p.role.narrows for p in places if p.name == "1.down.weight"] == [expected]


def test_layers_tied_across_depth_are_shared():
    result = places(tower(MLPBlock, shared=True), vectors())
    up = result["blocks.0.up.weight"]
    assert up.role.shared
    assert up.ratios.depth == 4
    assert not places(tower(MLPBlock, shared=True), vectors(), target=(32, 2))[
        "blocks.0.up.weight"
    ].role.shared


def test_experts_grouped_queries_and_shared_gains():
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.heads, kv = width // 4, width // 8
            self.q, self.k = nn.Linear(width, width), nn.Linear(width, 4 * kv)
            self.gain = nn.Parameter(torch.ones(4))
            self.router = nn.Linear(width, 3, bias=False)
            self.experts = nn.Parameter(torch.randn(3, width, width))

        def forward(self, x):
            b, t, n = x.shape
            q = F.normalize(self.q(x).view(b, t, -1, 4), dim=-1) * self.gain
            k = self.k(x).view(b, t, -1, 4).repeat_interleave(2, 2)
            weights = self.router((q * k).reshape(b, t, n)).softmax(-1)
            y = torch.einsum("btn,enm->betm", x, self.experts)
            return x + torch.einsum("bte,betm->btm", weights, y)

    class Net(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, width)
            self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

        def forward(self, ids):
            x = self.embed(ids)
            for block in self.blocks:
                x = block(x)
            return x

    result = places(Net, tokens())
    experts = result["blocks.0.experts"]
    assert (experts.role.kind, experts.role.last) == (Kind.HIDDEN, True)
    assert experts.ratios == Ratios(fan_in=4, fan_out=4, depth=4)
    assert result["blocks.0.router.weight"].ratios == Ratios(fan_in=4, depth=4)
    assert result["blocks.0.router.weight"].role.kind is Kind.HIDDEN
    assert result["blocks.0.gain"].ratios == Ratios(depth=4)
    assert result["blocks.0.k.weight"].ratios == Ratios(fan_in=4, fan_out=4, depth=4)


@pytest.mark.parametrize("scaled", ["queries", "keys", "logits"])
@pytest.mark.parametrize("fused", [True, False])
def test_growing_heads_scale_the_logits(fused, scaled):
    class Separate(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
            self.proj = nn.Linear(width, width)

        def forward(self, x):
            b, t, n = x.shape
            q, k, v = (
                y.view(b, t, self.heads, -1).transpose(1, 2)
                for y in (self.q(x), *self.kv(x).split(n, -1))
            )
            scale = q.shape[-1] ** -0.5
            q, k = (q * scale if scaled == "queries" else q), (k * scale if scaled == "keys" else k)
            logits = q @ k.transpose(-1, -2)
            y = (logits * scale if scaled == "logits" else logits).softmax(-1) @ v
            return self.proj(y.transpose(1, 2).reshape(b, t, n))

    def make(width, depth):
        model = Transformer(width, depth, head=width // 2)
        if not fused:
            for block in model.blocks:
                block.attention = Separate(width, 2)
        return model

    plan = depthmup.plan(make(32, 2), base=make(8, 2), example_inputs=tokens(), own_init="fan_in")
    result = [m for m in plan.multipliers if m.where is Where.LOGITS]
    if fused:  # queries are a third of what one matrix gives
        assert [(m.hooks[0].module, m.hooks[0].part) for m in result] == [
            (f"blocks.{i}.attention.qkv", ((0, 32),)) for i in range(2)
        ]
    else:
        assert [m.folds for m in result] == [
            (f"blocks.{i}.attention.q.bias", f"blocks.{i}.attention.q.weight") for i in range(2)
        ]
    # 1/sqrt(16) becomes sqrt(4)/16: half of it.
    assert [m.value for m in result] == approx([0.5, 0.5])


def test_a_models_own_forward_scale_is_not_counted_twice():
    """Embeddings times sqrt(width), logits times width^-1/2, as in Gemma and T5."""

    class Scaled(Transformer):
        def forward(self, ids):
            x = self.tokens(ids) * self.norm.weight.shape[0] ** 0.5
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x) * self.norm.weight.shape[0] ** -0.5)

    def make(width, depth):
        model = Scaled(width, depth, tied=True)
        del model.positions
        return model

    plan = depthmup.plan(make(32, 2), base=make(8, 2), example_inputs=tokens(), own_init="fixed")
    result = {m.where: m for m in plan.multipliers}
    assert result[Where.READOUT].value == approx(1 / 4 * 4**0.5)
    assert result[Where.INPUT].value == approx(4**-0.5)


class TestErrors:
    def test_missing_inputs(self):
        with pytest.raises(ValueError, match="Expected example_inputs"):
            anatomy(ResidualMLP(8, 2), ResidualMLP(4, 2))

    def test_control_flow_on_data(self):
        class Branching(ResidualMLP):
            def forward(self, x):
                return super().forward(x) if x.sum() > 0 else x

        with torch.device("meta"):
            model, base = Branching(8, 2), Branching(4, 2)
        with pytest.raises(TraceError, match=r"Branching could not be followed.*branches="):
            anatomy(model, base, example_inputs=vectors())
        # On tensors that have values it is followed, and nothing of the model is changed.
        model, base = Branching(8, 2), Branching(4, 2)
        state = {k: v.clone() for k, v in model.state_dict().items()}
        followed = anatomy(model, base, example_inputs=vectors() + 1)
        plain = anatomy(ResidualMLP(8, 2), ResidualMLP(4, 2), example_inputs=vectors())
        assert followed.places == plain.places
        assert any("values of its inputs" in note for note in followed.notes)
        assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())

    def test_unrelated_base(self):
        with pytest.raises(UnrelatedModels, match="exists only in the"):
            anatomy(ResidualMLP(8, 2), Tower(MLPBlock, 8, 2), example_inputs=vectors())
        with pytest.raises(UnrelatedModels, match="no counterpart"):
            anatomy(Tower(MLPBlock, 8, 4), Tower(PostNormBlock, 8, 2), example_inputs=vectors())

    def test_the_same_parts_put_together_differently(self):
        class Block(MLPBlock):
            residual = True

            def forward(self, x):
                return super().forward(x) if self.residual else super().forward(x) - x

        model, base = Tower(Block, 8, 2), Tower(Block, 8, 2)
        for block in base.blocks:
            block.residual = False
            block.forward = lambda x, b=block: b.down(b.up(b.norm(x)).relu())
        with pytest.raises(UnrelatedModels, match="has no counterpart in the base"):
            anatomy(model, base, example_inputs=vectors())

    def test_wider_here_and_narrower_there_is_said(self):
        def make(width, hidden):
            return nn.Sequential(nn.Linear(6, width), MLPBlock(width, hidden), nn.Linear(width, 2))

        result = anatomy(make(16, 8), make(8, 32), example_inputs=vectors())
        assert any("narrower in some dimensions" in note for note in result.notes)
        up = next(p for p in result.places if p.name == "1.up.weight")
        assert up.ratios == Ratios(fan_in=2, fan_out=1 / 4)

    def test_unused_parameter(self):
        def make(width):
            model = Tower(MLPBlock, width, 2)
            model.spare = nn.Linear(width, width)
            return model

        result = anatomy(make(8), make(4), example_inputs=vectors())
        spare = next(p for p in result.places if p.name == "spare.weight")
        assert (spare.role.kind, spare.ratios) == (Kind.HIDDEN, Ratios(fan_in=2, fan_out=2))
        assert any("spare.weight and 1 more have no influence" in note for note in result.notes)
        result = anatomy(make(8), make(4), example_inputs=vectors(), roles={
            "spare.weight": "hidden", "spare.bias": Kind.VECTOR,
        })  # fmt: skip
        spare = next(p for p in result.places if p.name == "spare.weight")
        assert (spare.role.kind, spare.ratios) == (Kind.HIDDEN, Ratios(fan_in=2, fan_out=2))

    def test_unused_inside_a_branch_takes_the_plan_of_its_neighbours(self):
        def make(width, depth):
            model = Tower(MLPBlock, width, depth)
            for block in model.blocks:
                block.spare = nn.Linear(width, width)
            return model

        plan = depthmup.plan(make(16, 8), base=make(8, 2), example_inputs=vectors())
        for kind in ("weight", "bias"):
            idle, used = (plan[f"blocks.3.{part}.{kind}"] for part in ("spare", "up"))
            assert idle.ratios.depth == used.ratios.depth == 4
            assert idle.lr == used.lr
            assert idle.branches == used.branches != ()

    def test_an_unused_vector_for_each_head_lies_in_the_branch_of_its_block(self):
        """XLNet's r_s_bias: two dimensions, of which one grows."""

        def make(width, depth):
            model = Tower(MLPBlock, width, depth)
            for block in model.blocks:
                block.by_head = nn.Parameter(torch.zeros(width // 4, 4))
            return model

        result = anatomy(make(16, 8), make(8, 2), example_inputs=vectors())
        idle, used = (
            next(p for p in result.places if p.name == f"blocks.3.{name}")
            for name in ("by_head", "up.bias")
        )
        assert (idle.role, idle.ratios, idle.branches) == (used.role, used.ratios, used.branches)

    @pytest.mark.parametrize("name", ["experts.{}", "expert_{}"])
    def test_an_expert_that_the_inputs_skip_beside_used_ones_is_refused(self, name):
        """It would miss the factor of its branch, which is folded into those that are used."""

        class Block(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.experts = nn.ModuleList() if "." in name else nn.Module()
                for i in range(3):
                    expert = nn.Sequential(nn.Linear(width, width), nn.ReLU())
                    self.experts.add_module(str(i) if "." in name else name.format(i), expert)

            def forward(self, x):
                return x + next(self.experts.children())(x)

        models = [tower(Block)(*size) for size in ((16, 8), (8, 2))]
        with pytest.raises(NotUnderstood, match=r"has no influence.*Pass inputs that use it"):
            anatomy(*models, example_inputs=vectors())

    def test_an_unused_matrix_without_a_module_is_refused(self):
        def make(width):
            model = Tower(MLPBlock, width, 2)
            model.spare = nn.Parameter(torch.zeros(width, width))
            return model

        with pytest.raises(NotUnderstood, match=r"spare has no influence.*freeze or remove"):
            anatomy(make(8), make(4), example_inputs=vectors())

    def test_unused_and_frozen_is_left_alone(self):
        def make(width):
            model = Tower(MLPBlock, width, 2)
            model.spare = nn.Linear(width, width).requires_grad_(False)
            return model

        model = make(8)
        plan = depthmup.plan(model, base=make(4), example_inputs=vectors(), own_init="fan_in")
        spare = plan["spare.weight"]
        assert (spare.init, spare.lr, spare.epsilon, spare.decay) == (1, 1, 1, 1)
        plan.initialize(model)
        assert plan.param_groups(model, lr=1e-3)

    def test_a_vocabulary_is_not_a_width(self):
        def make(width, rows):
            return nn.Sequential(nn.Embedding(rows, width), nn.Linear(width, 4))

        with pytest.raises(NotUnderstood, match=r"rows of 0.weight differs"):
            anatomy(make(8, 64), make(4, 32), example_inputs=tokens())
        declared = {"0.weight": DeclaredRole(kind=Kind.INPUT, fan_out=(1,))}
        result = anatomy(make(8, 64), make(4, 32), example_inputs=tokens(), roles=declared)
        assert result.places[0].ratios == Ratios(fan_out=2)

    @pytest.mark.parametrize(
        ("role", "message"),
        [
            ("hiden", r"roles\['0\.weight'\] to be input, hidden, readout, vector.*'hiden'"),
            (DeclaredRole(kind="middle"), r"roles\['0\.weight'\] to be input.*'middle'"),
            (DeclaredRole(kind=Kind.INPUT, fan_out=(2,)), r"axes of \[8, 6\], from 0 to 1"),
        ],
    )
    def test_a_role_that_is_none(self, role, message):
        def make(width):
            return nn.Sequential(nn.Linear(6, width), nn.Linear(width, 4))

        with pytest.raises(ValueError, match=message):
            anatomy(make(8), make(4), example_inputs=vectors(), roles={"0.weight": role})

    def test_a_hidden_matrix_has_the_axes_that_its_product_shows(self):
        class Pairs(nn.Module):
            def __init__(self, width, batched):
                super().__init__()
                self.first = nn.Linear(6, width)
                self.pairs = nn.Bilinear(width, width, 3)
                self.across = nn.Parameter(torch.zeros(width, 2))
                self.odd = nn.Parameter(torch.ones(width, 2, width)) if batched else None

            def forward(self, x):
                x = self.first(x)
                odd = 1 if self.odd is None else self.odd.exp().sum()
                return self.pairs(x, x), x @ self.across * odd

        def ratios(batched, *hidden):
            models = (Pairs(8, batched), Pairs(4, batched))
            roles = dict.fromkeys(hidden, "hidden")
            read = anatomy(*models, example_inputs=vectors(), roles=roles)
            return {p.name: p.ratios for p in read.places}

        of = ratios(False, "pairs.weight", "across")
        assert (of["pairs.weight"], of["across"]) == (Ratios(fan_in=4), Ratios(fan_in=2))
        with pytest.raises(NotUnderstood, match=r"odd was declared hidden.*Name its axes"):
            ratios(True, "odd")

    def test_a_role_and_a_branch_may_be_a_text(self):
        """A kind of ``DeclaredRole``, and one pattern by itself."""
        sizes = MLPBlock, (8, 4), (4, 2)
        model, base = (Tower(sizes[0], *size) for size in sizes[1:])
        role = {"inp.weight": DeclaredRole(kind="input", fan_out=(0,))}
        first, second = (
            anatomy(model, base, example_inputs=vectors(), branches=branches, roles=role)
            for branches in ("blocks.*", ["blocks.*"])
        )
        assert first == second
        assert next(p for p in first.places if p.name == "inp.weight").role.kind is Kind.INPUT

    def test_unknown_use(self):
        def make(width):
            model = nn.Sequential(nn.Linear(6, width), nn.Linear(width, width))
            torch.nn.utils.parametrizations.orthogonal(model[1])
            return model

        with pytest.raises(NotUnderstood, match=r"1\.parametrizations.*plan the plain layer"):
            anatomy(make(8), make(4), example_inputs=vectors())

    def test_tied_in_one_model_only(self):
        with pytest.raises(UnrelatedModels, match="Tie both or neither"):
            anatomy(Transformer(16, 2, tied=True), Transformer(8, 2), example_inputs=tokens())
        with pytest.raises(UnrelatedModels, match="Tie both or neither"):
            anatomy(Transformer(16, 2), Transformer(8, 2, tied=True), example_inputs=tokens())

    def test_deeper_without_residual_branches(self):
        def make(depth):
            return nn.Sequential(*(nn.Linear(6, 6) for _ in range(depth)))

        with pytest.raises(NotUnderstood, match="no residual addition was found"):
            anatomy(make(4), make(2), example_inputs=vectors())

    @pytest.mark.parametrize("how", ["gain", "addcmul"])
    def test_blocks_beside_the_branches_that_were_found(self, how):
        """Half the blocks add plainly; the other additions are not understood."""

        class Half(Tower):
            def __init__(self, depth):
                super().__init__(lambda w: nn.Linear(w, w), 8, depth)
                self.others = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
                self.gain = torch.linspace(0.5, 1, 8)

            def forward(self, x):
                x = self.inp(x)
                for block, other in zip(self.blocks, self.others, strict=True):
                    x = x + block(x).relu()
                    y = other(x).relu()
                    x = x * self.gain + y if how == "gain" else torch.addcmul(x, y, self.gain)
                return self.out(x)

        if how == "addcmul":  # x + y gain, one addition
            anatomy(Half(4), Half(2), example_inputs=vectors())
            return
        with pytest.raises(NotUnderstood, match=r"repeats others\.\*\.weight more often.*outside"):
            anatomy(Half(4), Half(2), example_inputs=vectors())
        result = anatomy(
            Half(4), Half(2), example_inputs=vectors(), roles={"others.*.weight": "hidden"}
        )
        assert {p.name for p in result.places if not p.role.in_branch} >= {"others.3.weight"}
        half = {"branches": {"blocks.*": ()}}
        declared = anatomy(Half(4), Half(2), example_inputs=vectors(), **half)
        assert any("repeats others.*.weight more often" in note for note in declared.notes)
        both = {"branches": {"blocks.*": (), "others.*": ()}}
        assert not anatomy(Half(4), Half(2), example_inputs=vectors(), **both).notes
        assert not anatomy(Half(4), Half(4), example_inputs=vectors()).notes

    def test_a_multiplier_that_has_no_place(self):
        class Block(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.linear = nn.Linear(width, width)
                self.other = nn.Linear(width, width)

            def forward(self, x):  # two branches in one module: its output does not tell them apart
                x = x + torch.tanh(self.linear(x))
                return x + torch.tanh(self.other(x))

        class WithBranch(Block):
            def __init__(self, width):
                super().__init__(width)
                self.branch = depthmup.Branch()
                self.second = depthmup.Branch()

            def forward(self, x):
                x = x + self.branch(torch.tanh(self.linear(x)))
                return x + self.second(torch.tanh(self.other(x)))

        with pytest.raises(NotUnderstood, match=r"branch at blocks\..*depthmup\.Branch"):
            depthmup.plan(Tower(Block, 8, 4), base=Tower(Block, 8, 2), example_inputs=vectors())
        plan = depthmup.plan(
            Tower(WithBranch, 8, 4), base=Tower(WithBranch, 8, 2), example_inputs=vectors()
        )
        assert [m.hooks[0].module for m in plan.multipliers] == [
            f"blocks.{i}.{name}" for i in range(4) for name in ("branch", "second")
        ]
        assert WithBranch(8).state_dict().keys() == Block(8).state_dict().keys()


class TestHints:
    class Opaque(Tower):
        """Cannot be traced."""

        def forward(self, x):
            return super().forward(x) if x.sum().item() != 1e9 else x

    def make(self, width, depth):
        return self.Opaque(UnfoldableBlock, width, depth)

    def test_declared_branches_stand_in_for_the_trace(self):
        traced = depthmup.plan(
            Tower(UnfoldableBlock, 16, 8), base=Tower(UnfoldableBlock, 8, 2), own_init="fan_in",
            example_inputs=vectors(),
        )  # fmt: skip
        with torch.device("meta"):
            model, base = self.make(16, 8), self.make(8, 2)
        hinted = depthmup.plan(
            model, base=base, own_init="fan_in", example_inputs=vectors(),
            branches={"blocks.*.act": ("blocks.*.norm", "blocks.*.linear")},
        )  # fmt: skip
        assert any("could not be followed" in note for note in hinted.notes)
        for p, q in zip(traced.prescriptions, hinted.prescriptions, strict=True):
            assert (p.name, p.role, p.ratios) == (q.name, q.role, q.ratios)
            assert (p.init, p.lr, p.epsilon, p.decay) == (q.init, q.lr, q.epsilon, q.decay)
        assert [(m.hooks, m.value) for m in traced.multipliers] == [
            (m.hooks, m.value) for m in hinted.multipliers
        ]

    def test_branches_that_were_not_declared_beside_others_are_named(self):
        """What is declared stands in place of all that is seen: of two kinds, name both."""
        plan = depthmup.plan(
            Transformer(32, 4), Transformer(8, 2), example_inputs=tokens(), own_init="fan_in",
            branches={"blocks.*.attention": ("blocks.*.norm1",)},
        )  # fmt: skip
        assert plan["blocks.0.mlp.0.weight"].ratios.depth == 1
        (note,) = (note for note in plan.notes if "not declared" in note)
        assert "blocks.*.mlp.*.weight lie in" in note
        assert "outputs are added (blocks.*.mlp)" in note

    def test_branches_by_a_function_or_in_the_model(self):
        def is_branch(name, module):
            return isinstance(module, nn.Tanh)

        result = anatomy(self.make(8, 4), self.make(8, 2), branches=is_branch)
        assert [s.label for s in result.sites] == [f"blocks.{i}.act" for i in range(4)]

    def test_patterns_that_match_nothing(self):
        with pytest.raises(ValueError, match="No module matches the branch pattern 'layers"):
            anatomy(self.make(8, 4), self.make(8, 2), branches={"layers.*": ()})
        with pytest.raises(ValueError, match="names no module or parameter"):
            anatomy(self.make(8, 4), self.make(8, 2), branches={"blocks.*.act": ("blocks.*.x",)})
        with pytest.raises(ValueError, match="may not lie inside one another"):
            anatomy(self.make(8, 4), self.make(8, 2), branches=["blocks.*", "blocks.*.act"])


def test_a_matrix_that_is_first_and_between_is_planned_where_depth_alone_grows():
    """TabICL's projection of inducing points: both kinds have the laws of ratio 1."""

    class Twice(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.shared, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
            self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))

        def forward(self, x):
            x = self.shared(self.shared(x).relu())
            for block in self.blocks:
                x = x + block(x.relu())
            return self.head(x)

    plan = depthmup.plan(Twice(6), Twice(2), example_inputs=torch.zeros(2, 8), scheme="completep")
    shared = plan["shared.weight"]
    assert (shared.role.kind, shared.init, shared.lr) == (Kind.HIDDEN, 1, 1)
