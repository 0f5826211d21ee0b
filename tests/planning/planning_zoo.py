"""Small models written as people write them, and how to train them."""

import math
from functools import cache

import torch
from torch import nn
from torch.nn import functional as F

import depthmup
from depthmup import tracing

VOCABULARY, POSITIONS = 32, 16


class MLPBlock(nn.Module):
    def __init__(self, width, hidden=None):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden or 2 * width)
        self.down = nn.Linear(hidden or 2 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class ResidualMLP(nn.Module):
    """Vector in, two numbers out; pre-norm blocks of two matrices."""

    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList(MLPBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


class MirroredSkips(ResidualMLP):
    """A U of residual blocks: each of the upper half reads what its mirror image gave as well.

    Of an even number, one in the middle reads x + x. ``how``: "alone", or "after a gain" or a
    number that multiplies the skip.
    """

    def __init__(self, width, depth, how="alone"):
        super().__init__(width, depth)
        gains = {"after a gain": nn.Parameter(torch.ones(())), "after a number": 0.5}
        self.gain = gains.get(how)

    def forward(self, x):
        x, skips, half = self.inp(x), [], len(self.blocks) // 2
        for i, block in enumerate(self.blocks):
            if i >= len(self.blocks) - half:
                skip = skips.pop()
                x = x + (skip if self.gain is None else self.gain * skip)
            x = block(x)
            if i < half:
                skips.append(x)
        return self.out(self.norm(x))


class InjectedLoops(ResidualMLP):
    """The same blocks twice over, from zeros; what was put in is added before each round."""

    def forward(self, x):
        given = self.inp(x)
        x = torch.zeros_like(given)
        for _ in range(2):
            x = x + given
            for block in self.blocks:
                x = block(x)
        return self.out(self.norm(x))


class CosineClassifier(ResidualMLP):
    """Cosines with a prototype of each class, and a learned temperature."""

    def __init__(self, width, depth):
        super().__init__(width, depth)
        self.out = nn.Linear(width, 5, bias=False)
        self.temperature = nn.Parameter(torch.tensor(10.0))

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        prototypes = F.normalize(self.out.weight, dim=1)
        return self.temperature * F.linear(F.normalize(x, dim=-1), prototypes)


class BilinearReadout(ResidualMLP):
    """Three numbers of every pair of coordinates."""

    def __init__(self, width, depth):
        super().__init__(width, depth)
        self.out = nn.Bilinear(width, width, 3)

    def forward(self, x):
        first = x = self.inp(x)
        for block in self.blocks:
            x = block(x)
        return self.out(torch.tanh(first), self.norm(x))


class Unrolled(nn.Module):
    """One cell over and over, which reads what was put in as well: h + tanh(W h + u)."""

    def __init__(self, width, depth):
        super().__init__()
        self.first, self.cell = nn.Linear(6, width), nn.Linear(width, width)
        self.act, self.out, self.depth = nn.Tanh(), nn.Linear(width, 2), depth

    def forward(self, x):
        given = self.first(x)
        h = torch.tanh(given)
        for _ in range(self.depth):
            h = h + self.act(self.cell(h) + given)
        return self.out(h)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in self.qkv(x).split(width, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """GPT-2-like: fused QKV, learned positions, optionally a tied readout."""

    def __init__(self, width, depth, tied=False, head=8):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.randn(1, POSITIONS, width) * 0.02)
        self.blocks = nn.ModuleList(TransformerBlock(width, width // head) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            nn.init.normal_(self.tokens.weight, std=0.5)
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class ValueEmbeddings(nn.Module):
    """Every layer adds the same second embedding of the tokens to its values."""

    def __init__(self, width, depth):
        super().__init__()
        self.tokens, self.second = (nn.Embedding(VOCABULARY, width) for _ in range(2))
        self.blocks = nn.ModuleList(MLPBlock(width, width) for _ in range(depth))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x, second = self.tokens(tokens), self.second(tokens)
        for block in self.blocks:
            x = x + block.down(F.relu(block.up(block.norm(x)) + second))
        return self.head(x)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class SwiGLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GatedBlock(nn.Module):
    """A learned gain on the branch (LayerScale), and dropout."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.mlp = RMSNorm(width), SwiGLU(width)
        self.gain = nn.Parameter(torch.full((width,), 0.1))
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return x + self.drop(self.gain * self.mlp(self.norm(x)))


class SandwichBlock(nn.Module):
    """A norm at the end of the branch, as in Gemma 2 and OLMo 2."""

    def __init__(self, width):
        super().__init__()
        self.mlp, self.norm = SwiGLU(width), RMSNorm(width)

    def forward(self, x):
        return x + self.norm(self.mlp(x))


class UnfoldableBlock(nn.Module):
    """A nonlinearity at the end of the branch: no parameter can carry the multiplier."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.linear, self.act = nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh()

    def forward(self, x):
        return x + self.act(self.linear(self.norm(x)))


class OrthogonalBlock(nn.Module):
    """Adds what of its update is normal to the stream, computed in double precision."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        update, unit = self.linear(self.norm(x).tanh()).double(), F.normalize(x.double(), dim=-1)
        along = (update * unit).sum(-1, keepdim=True) * unit
        along, normal = along.to(x.dtype), (update - along).to(x.dtype)
        return x + normal


class InPlaceBlock(nn.Module):
    """In-place addition of half a branch, alpha=0.5 in ``add_``."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        y = self.linear(self.norm(x)).relu_()
        return x.clone().add_(y, alpha=0.5)


class ParallelBlock(nn.Module):
    """Attention and MLP side by side, written as two additions from the same point."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.one, self.two = nn.Linear(width, width), SwiGLU(width)

    def forward(self, x):
        normed = self.norm(x)
        return x + self.one(normed) + self.two(normed)


class NestedBlock(nn.Module):
    """A branch with a residual adapter inside."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.main = nn.Linear(width, width)
        self.adapter_in = nn.Linear(width, 4)
        self.adapter_out = nn.Linear(4, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        y = self.main(self.norm(x))
        y = y + self.adapter_out(self.adapter_in(y).relu())
        return x + self.out(y)


class OneDropoutBlock(nn.Module):
    """One dropout module serves two branches; the second ends in a nonlinearity."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.one, self.two = nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        x = x + self.drop(self.one(self.norm1(x)))
        return x + self.drop(torch.tanh(self.two(self.norm2(x))))


class PostNormBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.down(self.up(x).relu()))


class Tower(nn.Module):
    """Any block, between an input and an output layer."""

    def __init__(self, block, width, depth, *, shared=False):
        super().__init__()
        self.inp = nn.Linear(6, width)
        count = 1 if shared else depth
        self.blocks = nn.ModuleList(block(width) for _ in range(count))
        self.depth = depth
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        x = self.inp(x)
        for i in range(self.depth):
            x = self.blocks[i % len(self.blocks)](x)
        return self.out(x)


class ConvBlock(nn.Module):
    """Post-activation block of a ResNet, with a projection where the shape changes."""

    def __init__(self, c_in, c_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or c_in != c_out:
            self.down = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += x if self.down is None else self.down(x)
        return self.relu(out)


class ResNet(nn.Module):
    """As torchvision writes it: stages, in-place additions, projection shortcuts."""

    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        self.layer1 = self._stage(width, width, 1, depth)
        self.layer2 = self._stage(width, 2 * width, 2, depth)
        self.fc = nn.Linear(2 * width, 10)

    @staticmethod
    def _stage(c_in, c_out, stride, depth):
        blocks = [ConvBlock(c_in, c_out, stride)]
        blocks += [ConvBlock(c_out, c_out) for _ in range(depth - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))


class ConvNeXtBlock(nn.Module):
    """As timm writes it: depthwise convolution, layer scale, stochastic depth."""

    def __init__(self, width, drop=0.5):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.pw1, self.pw2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(1e-2 * torch.ones(width))
        self.drop = drop

    def forward(self, x):
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = (self.gamma * self.pw2(F.gelu(self.pw1(y)))).permute(0, 3, 1, 2)
        if self.training and self.drop:
            y = y * y.new_empty(y.shape[0], 1, 1, 1).bernoulli_(1 - self.drop) / (1 - self.drop)
        return x + y


class ConvNeXt(nn.Module):
    def __init__(self, width, depth, drop=0.5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(*(ConvNeXtBlock(c, drop) for _ in range(depth)))
            for c in (width, 2 * width)
        )
        self.down = nn.Sequential(nn.BatchNorm2d(width), nn.Conv2d(width, 2 * width, 2, 2))
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x):
        x = self.down(self.stages[0](self.stem(x)))
        return self.head(self.stages[1](x).mean((2, 3)))


def tower(block, **options):
    return lambda width, depth: Tower(block, width, depth, **options)


@cache
def facts(make, size, inputs):
    return tracing.read(make(*size), inputs)


def traced(make, target, base, inputs, **options):
    """Options of plans whose networks are traced once in a session, whatever is planned of them."""
    return depthmup.PlanOptions(
        facts=(facts(make, target, inputs), facts(make, base, inputs)), **options
    )


@cache
def vectors(n=4):
    return torch.zeros(n, 6)


@cache
def tokens(n=2, length=8):
    return torch.zeros(n, length, dtype=torch.long)


@cache
def images(n=2):
    return torch.zeros(n, 3, 8, 8)


def batches(inputs, outputs, steps, dtype=torch.float64, seed=1):
    """Random batches of the inputs' and outputs' shapes."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        if inputs.is_floating_point():
            x = torch.randn(inputs.shape, generator=generator, dtype=dtype)
        else:
            x = torch.randint(VOCABULARY, inputs.shape, generator=generator)
        yield x, torch.randn(outputs, generator=generator, dtype=dtype)


def train(model, optimizers, data, clip=None):
    """Mean squared error; returns the loss of every step."""
    losses = []
    for x, y in data:
        loss = (model(x) - y).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            clip(model)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def both_forms(planned, inputs):
    """Outputs after three steps of AdamW with folded and with explicit multipliers.

    ``planned(folding)`` gives a model in double precision, the same each time, and its plan.
    """
    outputs = []
    for folding in (True, False):
        model, plan = planned(folding)
        plan.initialize(model)
        groups = plan.param_groups(model, lr=1e-2, eps=1e-4, weight_decay=0.1)
        optimizer = torch.optim.AdamW(groups)
        for _ in range(3):
            optimizer.zero_grad()
            (model(inputs) - 1).square().sum().backward()
            optimizer.step()
        outputs.append(model(inputs).detach())
    return outputs


def slope(sizes, values):
    """Least-squares slope of log(values) against log(sizes)."""
    x = [math.log(s) for s in sizes]
    y = [math.log(v) for v in values]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True)) / sum(
        (a - mx) ** 2 for a in x
    )
