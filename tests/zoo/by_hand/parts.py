"""Parts and inputs that the architectures written by hand have in common."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH = 64, 8
RANDOM = torch.Generator().manual_seed(0)
IDS = torch.randint(3, VOCABULARY, (2, LENGTH), generator=RANDOM)
XS = torch.randn(4, 8, generator=RANDOM)
IMG = torch.randn(2, 3, 16, 16, generator=RANDOM)
LAT = torch.randn(2, 4, 8, 8, generator=RANDOM)
TIMES, LABELS = torch.rand(2, generator=RANDOM), torch.tensor([1, 2])
NODES, POINTS = torch.randn(6, 5, generator=RANDOM), torch.rand(16, 2, generator=RANDOM)
SOURCES, TARGETS = torch.tensor([0, 1, 2, 3, 4, 5, 0, 2]), torch.tensor([1, 2, 3, 4, 5, 0, 3, 5])
PAIRS = tuple(torch.randint(0, VOCABULARY, (4,), generator=RANDOM) for _ in range(2))
BY_HAND: dict[str, tuple[Callable[[int, int], nn.Module], Any]] = {}


def architecture(inputs: Any) -> Callable[[Any], Any]:
    """Register a factory of (width, depth) with the arguments of one call."""

    def register(make: Callable[[int, int], nn.Module]) -> Callable[[int, int], nn.Module]:
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        BY_HAND[make.__name__.replace("_", " ")] = make, arguments
        return make

    return register


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class MLP(nn.Module):
    def __init__(self, width, act=F.gelu):
        super().__init__()
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        self.act = act

    def forward(self, x):
        return self.down(self.act(self.up(x)))


def heads(t, size=8):
    b, length, width = t.shape
    return t.view(b, length, width // size, size).transpose(1, 2)


def unheads(t):
    b, h, length, size = t.shape
    return t.transpose(1, 2).reshape(b, length, h * size)


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()


class Block(nn.Module):
    def __init__(self, width, mixer):
        super().__init__()
        self.n1 = RMSNorm(width)
        self.mix = mixer
        self.n2 = RMSNorm(width)
        self.mlp = MLP(width)

    def forward(self, x):
        x = x + self.mix(self.n1(x))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, width, depth, mixer, tied=False, block=Block):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(block(width, mixer(width)) for _ in range(depth))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


class Attn(nn.Module):
    def __init__(self, width, size=8):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.size = size

    def forward(self, x):
        q, k, v = (heads(length(x), self.size) for length in (self.q, self.k, self.v))
        return self.o(unheads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class Res(nn.Module):
    """residual tower over vectors with function step(x, f, i)"""

    def __init__(self, width, depth, step, extra=None, branch=MLP):
        super().__init__()
        self.i = nn.Linear(8, width)
        self.b = nn.ModuleList(branch(width) for _ in range(depth))
        self.o = nn.Linear(width, 3)
        self.step = step
        self.e = nn.ModuleList(extra(width) for _ in range(depth)) if extra else [None] * depth

    def forward(self, x):
        x = self.i(x)
        for _i, (b, e) in enumerate(zip(self.b, self.e, strict=False)):
            x = self.step(x, b, e)
        return self.o(x)
