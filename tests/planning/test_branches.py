"""Residual branches found in the dataflow, on models written in every common way."""

import pytest
import torch
from planning_zoo import (
    ConvNeXt,
    GatedBlock,
    InPlaceBlock,
    MLPBlock,
    NestedBlock,
    ParallelBlock,
    PostNormBlock,
    ResidualMLP,
    ResNet,
    SandwichBlock,
    Tower,
    Transformer,
    images,
    tokens,
    tower,
    vectors,
)
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup.planning import find_branches, find_uses, trace


def read(model, *inputs):
    graph = trace(model, inputs if len(inputs) > 1 else inputs[0])
    usage = find_uses(graph)
    return graph, usage, find_branches(graph, usage)


def owned(usage, branch):
    """Parameters used in a branch, on its path or feeding it from the side."""
    nodes = branch.path | branch.feeders
    return {name for name, uses in usage.uses.items() if any(u.node in nodes for u in uses)}


def parameters_under(model, *prefixes):
    return {
        n for n, _ in model.named_parameters() if n.startswith(tuple(p + "." for p in prefixes))
    }


@pytest.mark.parametrize(
    "block", [MLPBlock, GatedBlock, SandwichBlock, InPlaceBlock], ids=lambda b: b.__name__
)
def test_each_block_is_one_branch_with_all_its_parameters(block):
    model = Tower(block, 8, 3)
    _, usage, result = read(model, vectors())
    assert [b.label.split(".")[1] for b in result.branches] == ["0", "1", "2"]
    assert [s.depth for s in result.streams] == [3]
    for i, branch in enumerate(result.branches):
        assert owned(usage, branch) == parameters_under(model, f"blocks.{i}")


def test_transformer_attention_and_mlp():
    model = Transformer(16, 2)
    _, usage, result = read(model, tokens())
    expected = [
        parameters_under(model, f"blocks.{i}.{norm}", f"blocks.{i}.{part}")
        for i in range(2)
        for norm, part in (("norm1", "attention"), ("norm2", "mlp"))
    ]
    assert [owned(usage, b) for b in result.branches] == expected
    assert result.streams[0].depth == 4
    assert not result.streams[0].normalized


def test_parallel_branches_written_as_two_additions():
    """x + one(norm(x)) + two(norm(x)): both read the stream at x."""
    model = Tower(ParallelBlock, 8, 2)
    _, usage, result = read(model, vectors())
    assert len(result.branches) == 4
    assert result.streams[0].depth == 4
    first, second = result.branches[:2]
    assert first.origin == second.origin
    assert owned(usage, first) == parameters_under(model, "blocks.0.one", "blocks.0.norm")
    assert owned(usage, second) == parameters_under(model, "blocks.0.two", "blocks.0.norm")


def test_nested_branches_count_along_their_own_stream():
    model = Tower(NestedBlock, 8, 3)
    _, usage, result = read(model, vectors())
    outer = [b for b in result.branches if not b.parents]
    inner = [b for b in result.branches if b.parents]
    assert len(outer) == len(inner) == 3
    assert sorted(s.depth for s in result.streams) == [1, 1, 1, 3]
    assert owned(usage, inner[0]) == parameters_under(
        model, "blocks.0.adapter_in", "blocks.0.adapter_out"
    )
    assert owned(usage, outer[0]) == parameters_under(model, "blocks.0")


def test_post_norm_is_noticed():
    _, usage, result = read(Tower(PostNormBlock, 8, 3), vectors())
    assert [(s.depth, s.normalized) for s in result.streams] == [(3, True)]
    assert owned(usage, result.branches[1]) == {
        f"blocks.1.{part}.{kind}" for part in ("up", "down") for kind in ("weight", "bias")
    }


def test_resnet_with_projection_shortcuts_and_in_place_additions():
    model = ResNet(8, 2)
    _, usage, result = read(model, images())
    assert [s.depth for s in result.streams] == [4]
    for branch, prefix in zip(
        result.branches, ("layer1.0", "layer1.1", "layer2.0", "layer2.1"), strict=True
    ):
        parts = [f"{prefix}.{part}" for part in ("conv1", "bn1", "conv2", "bn2")]
        assert owned(usage, branch) == parameters_under(model, *parts)


@pytest.mark.parametrize("training", [True, False])
def test_convnext_with_stages_and_stochastic_depth(training):
    model = ConvNeXt(8, 2).train(training)
    _, usage, result = read(model, images())
    assert [s.depth for s in result.streams] == [4]
    assert owned(usage, result.branches[3]) == parameters_under(model, "stages.1.1")
    assert model.training is training


def test_layers_shared_between_positions():
    _, usage, result = read(Tower(MLPBlock, 8, 5, shared=True), vectors())
    assert result.streams[0].depth == 5
    assert len(usage.uses["blocks.0.up.weight"]) == 5
    assert all(owned(usage, b) == owned(usage, result.branches[0]) for b in result.branches)


class EncoderDecoder(nn.Module):
    """The decoder reads the encoder's normed output in every layer."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.encoder = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.key = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.decoder = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        memory = self.inp(x)
        for block in self.encoder:
            memory = block(memory)
        memory, y = self.norm(memory), self.inp(x)
        for key, layer in zip(self.key, self.decoder, strict=True):
            y = y + layer(y * key(memory).sigmoid())
        return self.out(y)


def test_encoder_and_decoder_are_two_streams():
    _, usage, result = read(EncoderDecoder(8, 3), vectors())
    assert sorted(s.depth for s in result.streams) == [3, 3]
    assert {"key.1.weight", "key.1.bias", "decoder.1.weight"} <= owned(usage, result.branches[4])
    assert "encoder.2.up.weight" not in owned(usage, result.branches[4])


class NoResiduals(nn.Module):
    """Additions that are none: positions, biases, gates, rotations, low-rank factors, highways."""

    def __init__(self, width):
        super().__init__()
        self.embed, self.positions = nn.Embedding(32, width), nn.Embedding(16, width)
        self.linear, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        self.a, self.b = nn.Linear(width, 2), nn.Linear(2, 2 * width)
        self.wide = nn.Linear(width, 2 * width)
        self.bias = nn.Parameter(torch.zeros(2 * width))

    def forward(self, ids):
        x = self.embed(ids) + self.positions(torch.arange(ids.shape[1]))
        x = x + 0.044715 * x.pow(3)  # no parameters on the path
        t = torch.sigmoid(self.gate(x))
        x = t * self.linear(x) + (1 - t) * x.tanh()
        half = x.shape[-1] // 2
        x = x * 0.5 + torch.cat((-x[..., half:], x[..., :half]), -1) * 0.5
        x = self.wide(x) + self.b(self.a(x)) + self.bias
        return F.log_softmax(x, -1)


def test_other_additions_are_not_residual():
    _, _, result = read(NoResiduals(8), tokens())
    assert result.branches == ()


def test_in_place_addition_to_a_view():
    """x changes although only a view of it was written to."""

    class Block(MLPBlock):
        def forward(self, x):
            y = self.down(self.up(self.norm(x)).relu())
            x = x.clone()
            x.view(-1).add_(y.view(-1))
            return x

    _, usage, result = read(Tower(Block, 8, 3), vectors())
    assert [s.depth for s in result.streams] == [3]
    assert owned(usage, result.branches[1]) == {
        n for n, _ in Tower(Block, 8, 3).named_parameters() if n.startswith("blocks.1.")
    }


def test_a_whole_network_inside_a_global_skip():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Tower(MLPBlock, 8, 3)
            self.back = nn.Linear(2, 6)

        def forward(self, x):
            return x + self.back(self.net(x))

    _, _, result = read(Skip(), vectors())
    assert sorted(s.depth for s in result.streams) == [1, 3]
    assert sum(not b.parents for b in result.branches) == 1


def test_wrapped_and_meta_models_are_read_alike():
    plain = read(ResidualMLP(8, 2), vectors())[2]
    with torch.device("meta"):
        meta = ResidualMLP(8, 2)
    compiled = torch.compile(ResidualMLP(8, 2))
    for model in (meta, compiled):
        assert [b.label for b in read(model, vectors())[2].branches] == [
            b.label for b in plain.branches
        ]


def test_tracing_leaves_no_trace():
    model = ResNet(8, 1)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    read(model, images())
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("make", [tower(MLPBlock), ResidualMLP])
def test_twice_the_depth_is_twice_the_branches(make):
    assert [read(make(8, d), vectors())[2].streams[0].depth for d in (2, 4, 8)] == [2, 4, 8]


def test_a_branch_without_modules_is_true():
    """``if self.branch:`` must not skip what marks an addition."""
    assert depthmup.Branch()


class Widening(nn.Module):
    """A residual block whose shortcut has no weights: fewer places, more channels."""

    def __init__(self, into, out, shortcut):
        super().__init__()
        stride = 1 + (into != out)
        self.one = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.shortcut = shortcut if into != out else None

    def forward(self, x):
        kept = x if self.shortcut is None else self.shortcut(x)
        return kept + self.two(self.one(x).relu())


def padded(x):
    return F.pad(x, (0, 0, 0, 0, 0, x.shape[1]))


def beside_zeros(x):
    x = F.avg_pool2d(x, 2)
    return torch.cat([x, torch.zeros_like(x)], 1)


SHORTCUTS = {
    "every second place": lambda x: padded(x[:, :, ::2, ::2]),
    "mean of places": lambda x: padded(F.avg_pool2d(x, 2)),
    "largest of places": lambda x: padded(F.max_pool2d(x, 2)),
    "beside zeros": beside_zeros,
}


@pytest.mark.parametrize("shortcut", SHORTCUTS.values(), ids=SHORTCUTS)
def test_a_shortcut_without_weights_is_the_stream(shortcut):
    """Residual networks for CIFAR: three times the blocks are three times the depth."""

    def make(width, depth):
        sizes = [width] * depth + [2 * width] * depth
        pairs = zip([width, *sizes], sizes, strict=False)
        blocks = nn.Sequential(*(Widening(*pair, shortcut) for pair in pairs))
        ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 3)
        return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), blocks, *ends)

    plan = depthmup.plan(make(32, 6), base=make(8, 2), example_inputs=images(), scheme="depth-mup")
    blocks = [p for p in plan.prescriptions if p.name.startswith("1.")]
    assert {(p.role.in_branch, p.ratios.depth) for p in blocks} == {(True, 3)}


class MixedValues(nn.Module):
    """Values, cut out of one matrix with keys, drawn towards those of the first layer by a gate."""

    def __init__(self, width):
        super().__init__()
        self.kv, self.gate = nn.Linear(width, 2 * width), nn.Linear(width, 1)
        self.out = nn.Linear(width, width)

    def forward(self, x, first):
        keys, values = self.kv(x).chunk(2, -1)
        if first is not None:
            values = values.lerp(first, self.gate(x).sigmoid())
        return x + self.out(keys.softmax(-1) * values), values if first is None else first


def test_the_values_of_the_first_layer_are_no_stream():
    class Mixing(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.blocks = nn.ModuleList(MixedValues(8) for _ in range(depth))

        def forward(self, x):
            first = None
            for block in self.blocks:
                x, first = block(x, first)
            return x

    _, _, result = read(Mixing(4), torch.zeros(2, 8))
    assert [b.label for b in result.branches] == [f"blocks.{i}" for i in range(4)]
    assert [s.depth for s in result.streams] == [4]
