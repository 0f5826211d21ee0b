"""Constants that a model multiplies by, in every way that they are written."""

import pytest
import torch
from planning_zoo import VOCABULARY, MLPBlock, ResidualMLP, tokens, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import Where

HEADS = 4


class Attention(nn.Module):
    """Attention written out; ``how`` is what stands between the product and the softmax."""

    def __init__(self, width, how):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width)
        self.v, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.how, self.root = how, (width // HEADS) ** 0.5
        self.register_buffer("scale", torch.tensor(self.root))
        if how == "learned":
            self.temperature = nn.Parameter(torch.tensor(1 / self.root))
        if how == "learned and constant":
            self.temperature = nn.Parameter(torch.ones(()))

    def logits(self, q, k):
        if self.how == "buffer on queries":
            return (q / self.scale) @ k.transpose(-1, -2)
        product = q @ k.transpose(-1, -2)
        scaled = product / self.root
        if self.how == "buffer":
            return product / self.scale
        if self.how == "inverse buffer":
            return product * self.scale.to(q.dtype).reciprocal()
        if self.how == "tensor":
            return product * torch.rsqrt(torch.tensor(float(q.shape[-1])))
        if self.how == "soft cap":
            return torch.tanh(scaled / 30) * 30
        if self.how == "clamp":
            return scaled.clamp(-50, 50)
        if self.how == "shift":
            return scaled - scaled.amax(-1, keepdim=True)
        if self.how == "learned":
            return product * self.temperature
        if self.how == "learned and constant":
            return product * (self.temperature / self.root)
        return scaled

    def forward(self, x):
        batch, length, width = x.shape
        normed = self.norm(x)
        q, k, v = (
            linear(normed).view(batch, length, HEADS, -1).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        y = self.logits(q, k).softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Model(nn.Module):
    def __init__(self, width, attention="number", embedding="none"):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Attention(width, attention) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.embedding, self.root = embedding, width**0.5
        self.register_buffer("scale", torch.tensor([self.root]))

    def forward(self, ids):
        x = self.tokens(ids)
        if self.embedding == "number":
            x = x * self.root
        elif self.embedding == "buffer":
            x = x * self.scale
        elif self.embedding == "tensor":
            x = torch.tensor(x.shape[-1] ** 0.5, dtype=torch.bfloat16).to(x.dtype) * x
        elif self.embedding == "computed":
            x = x / torch.pow(torch.tensor(self.root) * self.root, -0.5)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def planned(target=(64,), base=(16,), **options):
    return depthmup.plan(
        Model(*target, **options), base=Model(*base, **options), example_inputs=tokens(),
        own_init="fan_in",
        scheme="depth-mup",
    )  # fmt: skip


@pytest.mark.parametrize("how", ["number", "buffer", "tensor", "computed"])
def test_an_embeddings_scale_is_undone_however_it_is_held(how):
    plan = planned(embedding=how)
    result = [m for m in plan.multipliers if m.where is Where.INPUT]
    assert [m.value for m in result] == [approx(0.5)]
    assert plan["tokens.weight"].init == approx(0.5)
    assert not [m for m in planned().multipliers if m.where is Where.INPUT]


@pytest.mark.parametrize(
    "how",
    [
        "number",
        "buffer",
        "inverse buffer",
        "tensor",
        "buffer on queries",
        "soft cap",
        "clamp",
        "shift",
    ],
)
def test_attention_logits_follow_the_head_size_however_they_are_scaled(how):
    plan = planned(attention=how)
    result = [m for m in plan.multipliers if m.where is Where.LOGITS]
    assert [m.value for m in result] == [approx(0.5)] * 2
    assert not plan.notes


class Learned(Attention):
    """A learned temperature on plain products, as people hold it."""

    def __init__(self, width, how):
        super().__init__(width, "number")
        root = torch.tensor(self.root)
        self.held = how
        start = {
            "one number": 1 / root,
            "divisor": root,
            "logarithm": -root.log(),
            "of each head": (-root.log()).expand(HEADS, 1, 1).clone(),
            "the same at every size": torch.tensor(0.3),
            "one beside a constant": torch.ones(()),
        }[how]
        self.temperature = nn.Parameter(start)

    def logits(self, q, k):
        product = q @ k.transpose(-1, -2)
        match self.held:
            case "divisor":
                return product / self.temperature
            case "logarithm" | "of each head":
                return product * self.temperature.exp().clamp(max=100)
            case "one beside a constant":
                return product * (self.temperature / self.root)
        return product * self.temperature


LEARNED = (
    "one number",
    "divisor",
    "logarithm",
    "of each head",
    "the same at every size",
    "one beside a constant",
)


@pytest.mark.long
@pytest.mark.parametrize("own_init", [None, "fan_in"])
@pytest.mark.parametrize("how", LEARNED)
def test_logits_with_a_learned_temperature_follow_the_head_size(how, own_init):
    """What multiplies the product at the start is 1/ratio times the base's, however it is held:
    the factor on the queries, the model's own constant, and the temperature together."""

    def make(width):
        torch.manual_seed(0)
        model = Model(width)
        model.blocks = nn.ModuleList(Learned(width, how) for _ in range(2))
        return model

    def coefficient(model):
        """Of each head: the logits of unit vectors."""
        unit = torch.zeros(1, HEADS, 1, 2).index_fill(-1, torch.tensor([0]), 1.0)
        with torch.no_grad():
            return model.blocks[0].logits(unit, unit).flatten()

    model, base = make(64), make(16)
    plan = depthmup.plan(
        model, base=base, example_inputs=tokens(), scheme="depth-mup", own_init=own_init
    )
    plan.initialize(model)
    factors = [m.value for m in plan.multipliers if m.where is Where.LOGITS]
    assert factors[0] * coefficient(model) == approx(coefficient(base) / 4)
    assert plan["blocks.0.temperature"].lr == 1
    assert not plan.notes


def test_a_temperature_whose_start_in_the_base_is_unknown_is_a_note():
    with torch.device("meta"):
        base = Model(16, "learned")
    plan = depthmup.plan(
        Model(64, "learned"), base=base, example_inputs=tokens(), own_init="fan_in",
        scheme="depth-mup",
    )  # fmt: skip
    assert len(plan.notes) == 1
    assert "blocks.*.temperature multiplies a product of activations" in plan.notes[0]


def test_a_tied_embedding_that_scales_its_own_output():
    """The multiplier goes behind the scale, onto the module that holds it."""

    class Scaled(nn.Embedding):
        def __init__(self, rows, width):
            super().__init__(rows, width)
            self.register_buffer("scale", torch.tensor(width**0.5), persistent=False)

        def forward(self, ids):
            return super().forward(ids) * self.scale

    def make(width):
        model = Model(width)
        model.tokens = Scaled(VOCABULARY, width)
        model.head.weight = model.tokens.weight
        return model

    plan = depthmup.plan(make(64), base=make(16), example_inputs=tokens())
    result = next(m for m in plan.multipliers if m.where is Where.INPUT)
    assert result.value == approx(0.5)
    assert [hook.module for hook in result.hooks] == ["tokens"]
    model = make(64)
    with torch.no_grad():
        before = model.tokens(tokens())
        plan.initialize(model)
        assert torch.allclose(model.tokens(tokens()), before / 2)


def test_a_buffers_value_is_that_of_each_model():
    """What a buffer holds counts, not how it is computed."""
    base, model = Model(16, embedding="buffer"), Model(64, embedding="buffer")
    model.scale.copy_(base.scale)
    plan = depthmup.plan(model, base=base, example_inputs=tokens(), own_init="fan_in")
    assert not [m for m in plan.multipliers if m.where is Where.INPUT]


class Scaled(nn.Module):
    """A branch of two matrices, the first of which has a constant that follows its fan-in."""

    def __init__(self, width, how, layers):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.how, self.scale, self.layers = how, width**-0.5, layers

    def branch(self, x):
        up, s = self.up, self.scale
        if self.how == "weight":
            return F.linear(x, up.weight * s, up.bias)
        if self.how == "both":
            return F.linear(x, up.weight, up.bias) * s
        if self.how == "before":
            return F.linear(x * s, up.weight, up.bias)
        return up(x)

    def forward(self, x):
        y = self.down(torch.relu(self.branch(x)))
        if self.how == "alpha":
            return torch.add(x, y, alpha=1.4 / self.layers**0.5)
        if self.how == "root":
            return x + y * (1.4 / self.layers**0.5)
        if self.how == "root of a nonlinearity":
            return x + torch.tanh(y) * (1.4 / self.layers**0.5)
        if self.how == "Euler":
            return x + y / self.layers
        if self.how == "stream":
            return (x + y) * self.layers**-0.5
        return x + y


class Scales(nn.Module):
    def __init__(self, width, depth, how):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList(Scaled(width, how, depth) for _ in range(depth))
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def scales(how, scheme, target=(64, 8), base=(16, 2), **options):
    return depthmup.plan(
        Scales(*target, how), base=Scales(*base, how), scheme=scheme,
        example_inputs=vectors(), **options,
    )  # fmt: skip


@pytest.mark.parametrize("folding", [True, False])
@pytest.mark.parametrize("how", ["weight", "both", "before"])
def test_a_hidden_matrix_with_its_own_constant_is_not_scaled_twice(how, folding):
    """W s with s = 1/sqrt(fan-in) and W of fixed size, as in NTK form and StyleGAN.

    What acts is V = s W, which must start as m^-1/2 and learn at 1/m: W at 1 and at m^-1/2.
    """
    plan = scales(how, "mup", folding=folding)
    up = plan["blocks.3.up.weight"]
    assert (up.init, up.lr, up.epsilon) == (approx(1.0), approx(0.5), approx(0.125))
    bias = plan["blocks.3.up.bias"]
    assert (bias.init, bias.lr) == ((2.0, 2.0) if how == "both" else (1.0, 1.0))
    assert plan["blocks.3.down.weight"].init == approx(0.5)
    assert not plan.notes
    untouched = scales(how, "sp", folding=folding)
    assert untouched["blocks.3.up.weight"].init == scales("none", "sp")["blocks.3.up.weight"].init


@pytest.mark.parametrize(
    ("how", "scheme", "value"),
    [
        ("root", "depth-mup", None),
        ("root", "completep", 0.5),
        ("alpha", "depth-mup", None),
        ("alpha", "completep", 0.5),
        ("Euler", "completep", None),
        ("Euler", "depth-mup", 2.0),
        ("root", "sp", None),
        ("root", "mup", None),
        ("none", "depth-mup", 0.5),
    ],
)
def test_a_branch_multiplier_of_the_models_own_counts_once(how, scheme, value):
    plan = scales(how, scheme)
    branches = [m for m in plan.multipliers if m.where is Where.BRANCH]
    assert [m.value for m in branches] == ([approx(value)] * 8 if value else [])


def test_a_branch_multiplier_behind_a_nonlinearity_counts_once():
    """Its own 1/sqrt(L) stays, and what the whole block adds is multiplied by the rest."""
    plan = scales("root of a nonlinearity", "completep")
    branches = [m for m in plan.multipliers if m.where is Where.BRANCH]
    assert [m.value for m in branches] == [approx(0.5)] * 8
    assert {m.hooks[0].side for m in branches} == {"addition"}
    assert not scales("root of a nonlinearity", "depth-mup").multipliers


def test_a_constant_on_the_stream_that_follows_depth_is_a_note():
    """The next branch adds to what it multiplies: it is no constant of the matrix that reads it."""
    plan = scales("stream", "completep")
    assert any("multiplies by a number that follows its size at blocks.*" in n for n in plan.notes)
    assert plan["blocks.3.up.weight"].folded == 1
    assert not scales("stream", "completep", target=(64, 2)).notes


class ChannelNorm(nn.Module):
    """A norm over channels by a length, between two convolutions and a shift of its own."""

    def __init__(self, width, depth, root):
        super().__init__()
        self.inp, self.out = nn.Conv1d(6, width, 1), nn.Conv1d(width, 3, 1)
        self.gain, self.root = nn.Parameter(torch.ones(1, width, 1)), root

    def forward(self, x):
        x = F.normalize(self.inp(x[..., None]), dim=1) * self.gain * 2.0
        x = x * x.shape[1] ** 0.5 if self.root else x * x.shape[1]
        return self.out((x * (x.detach().sigmoid() + 1)).relu())[..., 0]


@pytest.mark.parametrize("root", [True, False])
def test_a_length_and_the_root_that_undoes_it_are_one_number(root):
    """x / |x| * sqrt(n) has entries of order one at every n; x / |x| * n has not, and no rule."""
    plan = depthmup.plan(
        ChannelNorm(64, 1, root), base=ChannelNorm(16, 1, root), example_inputs=vectors()
    )
    assert any("follows its size" in note for note in plan.notes) is not root


class Uniform(MLPBlock):
    """Constants that are held in every entry of a tensor."""

    def __init__(self, width, depth, how):
        super().__init__(width)
        self.depth, self.how = depth, how
        self.register_buffer("one", torch.full((1,), depth**-0.5))
        self.register_buffer("each", torch.full((width,), depth**-0.5))

    def forward(self, x):
        y = F.relu(self.up(self.norm(x)))
        if self.how == "on the weight":
            weight = self.down.weight * self.each.new_full((1,), self.down.in_features**-0.5)
            return x + F.linear(y, weight)
        y = self.down(y)
        match self.how:
            case "buffer":
                return x + y * self.each
            case "made on the way":
                return x + y * torch.full((1,), self.depth**-0.5)
            case "computed on the way":
                return x + y * torch.ones(y.shape[-1]).mul(self.depth).rsqrt()
        return x + y


def blocks_of(block):
    """Vectors in, two numbers out, through these blocks, each made from width and depth."""

    def make(width, depth):
        model = ResidualMLP(width, 0)
        model.blocks = nn.ModuleList(block(width, depth) for _ in range(depth))
        return model

    return make


def planned_blocks(block, **options):
    make = blocks_of(block)
    return depthmup.plan(
        make(64, 8), base=make(16, 2), example_inputs=vectors(), scheme="depth-mup", **options
    )


@pytest.mark.parametrize("how", ["buffer", "made on the way", "computed on the way"])
def test_a_branch_multiplier_held_in_a_tensor_counts_once(how):
    plan = planned_blocks(lambda w, d: Uniform(w, d, how))
    assert plan["blocks.0.down.weight"].folded == approx(1)
    assert planned_blocks(lambda w, d: Uniform(w, d, "none"))["blocks.0.down.weight"].folded == (
        approx(0.5)
    )


def test_a_weights_own_scale_held_in_a_tensor_counts_once():
    """W / sqrt(2n), four times as wide: the matrix carries 2, and 1/2 of its branch."""

    def block(width, depth):
        made = Uniform(width, depth, "on the weight")
        made.down.bias = None
        return made

    assert planned_blocks(block)["blocks.0.down.weight"].folded == approx(1)


class OnStream(MLPBlock):
    """DeepNorm's block, with or without its norm, and a sum that is scaled as a whole."""

    def __init__(self, width, depth, how):
        super().__init__(width)
        self.how, self.alpha = how, (2 * depth) ** 0.25
        if how not in ("DeepNorm", "as a branch multiplier"):
            self.norm = nn.Identity()

    def forward(self, x):
        y = self.down(F.relu(self.up(x)))
        match self.how:
            case "DeepNorm":
                return self.norm(x * self.alpha + y)
            case "as a branch multiplier":
                return self.norm(x + y / self.alpha)
            case "whole sum":
                return (x + y) * 0.5**0.5
            case "stream":
                return 0.9 * x + y
            case "counted twice":
                return x + (x + y)
        return sum([x, y])


def test_a_number_on_the_stream_is_one_over_a_branch_multiplier():
    """A norm undoes the common factor of alpha x + f and x + f / alpha."""
    plans = [
        planned_blocks(lambda w, d, how=how: OnStream(w, d, how))
        for how in ("DeepNorm", "as a branch multiplier")
    ]
    values = [m.value for m in plans[0].multipliers if m.where is Where.BRANCH]
    assert values == approx([0.5 * 4**0.25] * 8)
    assert values == approx([m.value for m in plans[1].multipliers if m.where is Where.BRANCH])
    assert [note.split(" is ")[0] for note in plans[0].notes] == ["The stream of blocks.0"]
    assert "post-norm" in plans[0].notes[0]


@pytest.mark.parametrize(
    ("how", "number"), [("whole sum", "0.7071"), ("stream", "0.9"), ("counted twice", "2")]
)
def test_a_number_on_the_stream_is_a_note(how, number):
    plan = planned_blocks(lambda w, d: OnStream(w, d, how))
    (note,) = plan.notes
    assert f"is itself multiplied by {number} from one addition to the next" in note
    assert not planned_blocks(lambda w, d: OnStream(w, d, "sum")).notes
    assert (
        planned_blocks(lambda w, d: OnStream(w, d, "sum"))["blocks.0.up.weight"].ratios.depth == 4
    )
