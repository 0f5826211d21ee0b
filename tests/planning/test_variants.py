"""Variants of what people write, each of which was once planned wrongly and without a word."""

from itertools import pairwise

import pytest
import torch
from planning_zoo import VOCABULARY, MLPBlock, tokens, vectors
from pytest import approx
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.diagnostics import locate
from depthmup.planning import NotUnderstood, UnrelatedModels, Where, anatomy
from depthmup.planning.matching import Match
from depthmup.rules import Kind
from depthmup.tracing.trace import trace

HEADS = 2


class Attention(nn.Module):
    """Heads that grow; ``weights`` makes them from queries, keys and the stream."""

    def __init__(self, width, weights):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out, self.heat = nn.Linear(width, width), nn.Linear(width, HEADS)
        self.weights = weights

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            linear(x).view(batch, length, HEADS, -1).transpose(1, 2)
            for linear in (self.q, self.k, self.v)
        )
        heat = F.softplus(self.heat(x)).transpose(1, 2)[..., None]
        y = self.weights(q, k, heat).softmax(-1) @ v
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Language(nn.Module):
    def __init__(self, width, weights):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Attention(width, weights) for _ in range(2))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def language(weights):
    return depthmup.plan(
        Language(64, weights), base=Language(16, weights), example_inputs=tokens(),
        scheme="depth-mup",
    )  # fmt: skip


def differences(q, k):
    return q[..., :, None, :] - k[..., None, :, :]


def scaled_in_the_product(q, k, heat):
    flat = [t.flatten(0, 1) for t in (q, k)]
    start = torch.zeros(len(flat[0]), q.shape[-2], q.shape[-2])
    logits = torch.baddbmm(start, flat[0], flat[1].transpose(1, 2), alpha=q.shape[-1] ** -0.5)
    return logits.view(*q.shape[:2], *logits.shape[1:]) * heat


@pytest.mark.parametrize(
    ("weights", "value"),
    [
        (lambda q, k, heat: q @ k.transpose(-1, -2) * heat * q.shape[-1] ** -0.5, 0.5),
        (lambda q, k, heat: q @ k.transpose(-1, -2) * heat / q.shape[-1], None),
        (scaled_in_the_product, 0.5),
        (lambda q, k, heat: -differences(q, k).pow(2).mean(-1) * heat, None),
    ],
    ids=["root behind a temperature", "size behind a temperature", "alpha", "mean of squares"],
)
def test_logits_whose_scale_stands_elsewhere(weights, value):
    """Behind a temperature that is computed from the data, or inside of ``baddbmm``."""
    plan = language(weights)
    factors = [m.value for m in plan.multipliers if m.where is Where.LOGITS]
    assert factors == ([approx(value)] * 2 if value else [])
    assert not plan.notes


@pytest.mark.parametrize(
    "square", [torch.square, lambda d: d.pow(2), lambda d: d * d], ids=["square", "pow", "product"]
)
def test_distances_written_out_are_refused(square):
    with pytest.raises(NotUnderstood, match=r"distance between activations at blocks\.\*"):
        language(lambda q, k, heat: -square(differences(q, k)).sum(-1) * heat)


class Trunk(nn.Module):
    """Vectors in, blocks of two matrices, and whatever ``end`` makes of the stream."""

    def __init__(self, width, depth, end):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.head, self.end = nn.Linear(width, 8), end

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.end(self.head, x)


def trunk(end, **options):
    return depthmup.plan(
        Trunk(64, 2, end),
        base=Trunk(16, 2, end),
        example_inputs=vectors(),
        scheme="depth-mup",
        **options,
    )


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda head, x: head(x), Kind.READOUT),
        (lambda head, x: (y := head(x)) / (y * y).sum(-1, keepdim=True).sqrt(), Kind.HIDDEN),
        (lambda head, x: (y := head(x)) / y.abs().sum(-1, keepdim=True), Kind.HIDDEN),
        (lambda head, x: (y := head(x).exp()) / y.sum(-1, keepdim=True), Kind.READOUT),
    ],
    ids=["plain", "length", "sum of sizes", "softmax"],
)
def test_outputs_normalized_by_hand_are_no_readouts(end, kind):
    """They cannot begin near zero; what a softmax is taken of can."""
    assert trunk(end)["head.weight"].role.kind is kind


@pytest.mark.parametrize(
    ("end", "noted"),
    [
        (lambda head, x: head(x) + x.sum(-1, keepdim=True), True),
        (lambda head, x: head(x) + x.square().sum(-1, keepdim=True), True),
        (lambda head, x: head(x) + x.sum(-1, keepdim=True) / x.shape[-1], False),
        (lambda head, x: head(x / (x * x).sum(-1, keepdim=True).sqrt()), False),
        (lambda head, x: head(x).sum(-1), False),
    ],
    ids=["sum", "squares", "mean by hand", "norm by hand", "of a fixed number"],
)
def test_a_sum_of_ever_more_coordinates_is_a_note(end, noted):
    """The proof contradicts some of them, as it should, and not at every draw of the weights."""
    notes = trunk(end, proof="off").notes
    assert [("sums 4 times as many coordinates" in note) for note in notes] == [True] * noted


class Reversible(nn.Module):
    """Two streams, each of which the other's branches read; put together in one of three ways."""

    def __init__(self, width, depth, end):
        super().__init__()
        self.inp, self.head = nn.Linear(6, 2 * width), nn.Linear((1 + (end == "cat")) * width, 3)
        self.end = end
        self.f, self.g = (
            nn.ModuleList(
                nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())
                for _ in range(depth)
            )
            for _ in range(2)
        )

    def forward(self, x):
        one, two = self.inp(x).chunk(2, -1)
        for f, g in zip(self.f, self.g, strict=True):
            one = one + f(two)
            two = two + g(one)
            if self.end == "chunk":
                one, two = torch.cat([one, two], -1).chunk(2, -1)
            if self.end == "slice":
                both = torch.cat([one, two], -1)
                one, two = both[..., : one.shape[-1]], both[..., one.shape[-1] :]
        return self.head(torch.cat([one, two], -1) if self.end == "cat" else one + two)


@pytest.mark.parametrize("end", ["cat", "sum", "chunk", "slice"])
def test_reversible_streams_are_as_deep_as_their_layers(end):
    plan = depthmup.plan(
        Reversible(64, 8, end),
        base=Reversible(16, 2, end),
        example_inputs=vectors(),
        scheme="depth-mup",
    )
    for name in ("f.0.1.weight", "g.0.1.weight", "f.7.1.weight", "g.7.1.weight"):
        assert (plan[name].role.in_branch, plan[name].ratios.depth) == (True, 4), name
        assert plan[name].folded == approx(1 / 2), name
    assert not any("post-norm" in note for note in plan.notes)


def test_a_cut_that_takes_out_something_else_is_an_operation_of_its_own():
    """Every second coordinate has the shape of a part, and is none."""

    class Interleaved(Reversible):
        def forward(self, x):
            one, two = self.inp(x).chunk(2, -1)
            return self.head(torch.cat([one, two], -1)[..., ::2])

    graph = trace(Interleaved(16, 1, "sum"), vectors())
    assert "cat" in {
        graph.nodes[ref.node].op for n in graph.nodes if n.op == "slice" for ref in n.inputs
    }


class Mixed(nn.Module):
    """Blocks between which something else happens to the stream."""

    def __init__(self, width, depth, how):
        super().__init__()
        self.how = how
        self.inp, self.head = nn.Linear(6, width), nn.Linear(width, 3)
        self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        if how in ("lambdas", "start"):
            self.keep = nn.Parameter(torch.ones(depth)) if how == "lambdas" else [1] * depth
            self.start = nn.Parameter(torch.zeros(depth))
        if how == "FiLM":
            self.film = nn.ModuleList(nn.Linear(6, 2 * width) for _ in range(depth))
        if how == "modulated":
            self.condition = nn.Linear(6, width)
            self.modulate = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(depth))
        if how == "one norm":
            self.norm = nn.LayerNorm(width)
            for block in self.blocks:
                block.norm = nn.Identity()

    def forward(self, given):
        x = first = self.inp(given)
        for i, block in enumerate(self.blocks):
            if self.how in ("lambdas", "start"):
                x = self.keep[i] * x + self.start[i] * first
            if self.how == "FiLM":
                gain, bias = self.film[i](given).chunk(2, -1)
                x = x * (1 + gain) + bias
            if self.how == "modulated":
                gain, bias = self.modulate[i](F.silu(self.condition(given))).chunk(2, -1)
                y = F.layer_norm(x, x.shape[-1:]) * (1 + gain) + bias
                x = x + block.down(F.relu(block.up(block.norm(y))))
            elif self.how == "one norm":
                x = x + block.down(F.relu(block.up(self.norm(x))))
            else:
                x = block(x)
        if self.how == "one norm":
            x = self.norm(x)
        return self.head(x)


def mixed(how, **options):
    return anatomy(Mixed(64, 8, how), Mixed(16, 2, how), example_inputs=vectors(), **options)


@pytest.mark.parametrize("how", ["lambdas", "start"])
@pytest.mark.parametrize(("depth", "base"), [(8, 2), (2, 1), (6, 3)])
def test_what_is_put_in_is_no_stream(how, depth, base):
    """lam x + lam0 x0 or x + lam0 x0, as nanochat has it, where x0 is a projection of the input, is
    no residual addition."""
    plan = depthmup.plan(
        Mixed(64, depth, how), Mixed(16, base, how), example_inputs=vectors(), scheme="depth-mup"
    )
    values = {m.label: m.value for m in plan.multipliers}
    assert values == {f"blocks.{i}": approx((depth / base) ** -0.5) for i in range(depth)}
    assert plan["inp.weight"].role.in_branch is False
    assert plan[f"blocks.{depth - 1}.up.weight"].ratios.depth == depth / base
    for name in ("keep", "start") if how == "lambdas" else ("start",):
        assert (plan[name].role.on_stream, plan[name].ratios.depth) == (True, depth / base)
        assert plan[name].lr == approx(base / depth)


def test_a_shift_inside_of_a_branch_is_no_residual_addition():
    """A normalized stream times a gain, plus a shift, both from a condition (DiT, PixArt)."""
    result = mixed("modulated")
    assert [(d.additions, d.base_additions) for d in result.depths] == [(8, 2)]
    at = {p.name: p for p in result.places}
    assert at["modulate.7.weight"].ratios.depth == 4
    assert (at["condition.weight"].role.shared, at["condition.weight"].ratios.depth) == (True, 4)


class TwoStreams(nn.Module):
    """SD3: the second stream ends a layer early, and one condition serves both."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp, self.other, self.condition = (nn.Linear(6, width) for _ in range(3))
        self.one = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.two = nn.ModuleList(MLPBlock(width) for _ in range(depth - 1))
        self.head = nn.Linear(width, 3)

    def forward(self, given):
        condition = F.silu(self.condition(given))
        x, y = self.inp(given), self.other(given)
        for i, block in enumerate(self.one):
            x = x + block.down(F.relu(block.up(block.norm(x) * y)) * condition.repeat(1, 2))
            if i < len(self.two):
                two = self.two[i]
                y = y + two.down(F.relu(two.up(two.norm(y))) * condition.repeat(1, 2))
        return self.head(x)


def test_a_condition_of_two_streams_of_different_depth():
    result = anatomy(TwoStreams(64, 6), TwoStreams(16, 2), example_inputs=vectors())
    at = {p.name: p for p in result.places}
    assert at["one.5.up.weight"].ratios.depth == 3
    assert at["two.4.up.weight"].ratios.depth == 5
    condition = at["condition.weight"]
    assert (condition.role.shared, condition.ratios.depth) == (True, approx(11 / 3))


def test_film_between_blocks_is_refused_by_its_name():
    with pytest.raises(NotUnderstood, match=r"repeats film\.\*\.weight more often than the base"):
        mixed("FiLM")


def test_what_serves_every_branch_and_the_end_takes_the_branches_factor():
    result = mixed("one norm")
    norm = next(p for p in result.places if p.name == "norm.weight")
    assert (norm.role.in_branch, norm.role.shared, norm.ratios.depth) == (True, True, 4)
    assert any("norm.weight and 1 more serves every branch and what is outside" in n for n in
               result.notes)  # fmt: skip


def test_what_is_repeated_while_its_stream_is_not_is_refused():
    """Branches beside each other: of those that are added, the base has no counterpart."""

    class Parallel(nn.Module):
        """Every block adds to the input, and the results are added up elsewhere."""

        def __init__(self, width, depth):
            super().__init__()
            self.inp, self.head = nn.Linear(6, width), nn.Linear(width, 3)
            self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))

        def forward(self, x):
            x = self.inp(x)
            return self.head(torch.stack([block(x) for block in self.blocks]).mean(0))

    with pytest.raises(UnrelatedModels, match=r"branch blocks\.1 .* no counterpart in the base"):
        anatomy(Parallel(64, 8), Parallel(16, 2), example_inputs=vectors())


class Recurrent(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        self.rnn = kind(6, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers_on_the_cpu(kind):
    """From the input: fan-in fixed. From the layer below and from the step before: hidden."""
    x = torch.zeros(2, 5, 6)
    plan = depthmup.plan(
        Recurrent(64, kind), base=Recurrent(16, kind), example_inputs=x, scheme="mup"
    )
    roles = {p.name.removeprefix("rnn."): (str(p.role.kind), p.lr) for p in plan.prescriptions}
    assert roles["weight_ih_l0"] == ("input", 1)
    for name in ("weight_hh_l0", "weight_ih_l1", "weight_hh_l1"):
        assert roles[name] == ("hidden", 0.25), name
    assert {roles[f"bias_{n}_l{i}"] for n in ("ih", "hh") for i in (0, 1)} == {("vector", 1)}
    model = Recurrent(64, kind)
    plan.initialize(model)
    assert torch.isfinite(model(torch.randn(2, 5, 6))).all()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_inside_of_branches(kind):
    """What a GRU's step takes away from its state comes back: steps are neither depth nor notes."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm, self.rnn = nn.LayerNorm(width), kind(width, width, batch_first=True)
            self.out = nn.Linear(width, width)

        def forward(self, x):
            return x + self.out(self.rnn(self.norm(x))[0])

    def make(width, depth):
        blocks = (Block(width) for _ in range(depth))
        return nn.Sequential(nn.Linear(6, width), *blocks, nn.Linear(width, 3))

    x = torch.zeros(2, 5, 6)
    plan = depthmup.plan(make(64, 8), base=make(16, 2), example_inputs=x, scheme="depth-mup")
    assert plan["1.rnn.weight_hh_l0"].lr == approx(1 / 4 / 2)
    assert plan["1.out.weight"].folded == approx(1 / 2)
    assert plan.notes == ()
    assert locate(make(16, 2), x).branches == 2


class Resized(nn.Module):
    """A table of positions at another resolution, and a bias of which a third is set to zero."""

    def __init__(self, width):
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(1, width, 4, 4))
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.weight = nn.Parameter(torch.randn(3 * width, width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(3 * width))
        self.head = nn.Linear(3 * width, 5)

    def forward(self, images):
        x = self.patch(images)
        x = x + F.interpolate(self.positions, size=x.shape[-2:], mode="bicubic", antialias=True)
        bias = self.bias.clone()
        bias[len(bias) // 3 : 2 * len(bias) // 3].zero_()
        return self.head(F.relu(F.linear(x.flatten(2).mean(-1), self.weight, bias)))


def test_tables_that_are_resized_and_biases_that_are_cut():
    plan = depthmup.plan(
        Resized(64), base=Resized(16), example_inputs=torch.zeros(2, 3, 32, 32), scheme="mup"
    )
    assert [str(plan[n].role.kind) for n in ("positions", "bias", "weight")] == [
        "vector", "vector", "hidden",
    ]  # fmt: skip
    assert plan["positions"].ratios.fan_out == 4


def channels(width, depth):
    """MobileNet's flat sequence: in each stage a layer that widens, then some that do not."""
    sizes = [width] + [width] * depth + [2 * width] * depth + [4 * width]
    layers = [nn.Conv2d(a, b, 1) for a, b in pairwise(sizes)]
    return nn.ModuleList([nn.Conv2d(3, width, 3), *layers])


def test_flat_stages_are_matched_run_by_run():
    names = Match(channels(32, 4), channels(16, 2)).parameters
    source = {int(k.split(".")[0]): int(v.split(".")[0]) for k, v in names.items()}
    assert [source[i] for i in range(10)] == [0, 1, 1, 2, 2, 3, 4, 4, 4, 5]


def test_layers_that_read_all_before_them_are_refused_with_the_way_out():
    def dense(width, depth):
        return nn.Sequential(*(nn.Linear((i + 1) * width, width) for i in range(depth)))

    with pytest.raises(UnrelatedModels, match="Use a base of 6 such layers"):
        Match(dense(32, 6), dense(16, 2))


@pytest.mark.parametrize(
    ("branch", "scheme", "noted"),
    [
        (lambda linear, x: linear(x).relu(), "depth-mup", True),
        (lambda linear, x: F.gelu(linear(x)), "depth-mup", True),
        (lambda linear, x: linear(x).relu(), "completep", False),
        (lambda linear, x: linear(x).tanh(), "depth-mup", False),
        (lambda linear, x: linear(x.relu()), "depth-mup", False),
        (lambda linear, x: (y := linear(x).relu()) - y.mean(-1, keepdim=True), "depth-mup", False),
    ],
)
def test_branches_that_all_add_in_one_direction_are_a_note(branch, scheme, noted):
    """Means of L branches add up to L^(1 - alpha) instead of L^(1/2 - alpha)."""

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.linear, self.branch = nn.Linear(width, width), depthmup.Branch()

        def forward(self, x):
            return x + self.branch(branch(self.linear, x))

    def make(width, depth):
        blocks = (Block(width) for _ in range(depth))
        return nn.Sequential(nn.Linear(6, width), *blocks, nn.Linear(width, 3))

    plan = depthmup.plan(make(64, 8), base=make(16, 2), example_inputs=vectors(), scheme=scheme)
    assert any("whose mean is positive" in note for note in plan.notes) == noted


def test_a_bias_on_logits_that_layers_share_is_no_stream():
    """Made once, from positions and the input's mask; every later layer's logits follow from it."""

    class Layer(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

        def forward(self, x, bias):
            logits = self.q(x) @ self.k(x).transpose(-1, -2) / 8 + bias
            return x + self.out(logits.softmax(-1) @ self.v(x))

    class Model(nn.Module):
        def __init__(self, width, depth):
            super().__init__()
            self.tokens, self.bias = nn.Embedding(VOCABULARY, width), nn.Embedding(8, 1)
            self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
            self.head = nn.Linear(width, VOCABULARY)

        def forward(self, ids):
            places = torch.arange(ids.shape[1])
            bias = self.bias((places[:, None] - places).abs()).squeeze(-1)
            bias = bias + (ids == 0)[:, None] * -1e9
            x = self.tokens(ids)
            for layer in self.layers:
                x = layer(x, bias)
            return self.head(x)

    result = anatomy(Model(16, 6), Model(16, 2), example_inputs=torch.zeros(2, 8).long())
    assert [(d.additions, d.base_additions) for d in result.depths] == [(6, 2)]
