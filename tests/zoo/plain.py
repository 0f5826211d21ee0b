"""Twenty plain torch models as people write them, with default initialization.

Each has the scheme that suits its blocks; ``studies.plain`` plans and checks them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES, WORDS, LENGTH, FEATURES = 8, 32, 8, 6


def vectors(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(16, FEATURES, generator=generator),
        torch.randint(CLASSES, (16,), generator=generator),
    )


def tokens(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    shape = (4, LENGTH)
    return tuple(torch.randint(WORDS, shape, generator=generator) for _ in range(2))  # type: ignore


def one_label(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    words = torch.randint(WORDS, (16, LENGTH), generator=generator)
    return words, torch.randint(CLASSES, (16,), generator=generator)


def images(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(16, 3, 8, 8, generator=generator),
        torch.randint(CLASSES, (16,), generator=generator),
    )


def sequences(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(16, FEATURES, 16, generator=generator),
        torch.randint(CLASSES, (16,), generator=generator),
    )


class Tower(nn.Module):
    """Any block between an input and an output layer."""

    def __init__(
        self,
        start: nn.Module,
        blocks: list[nn.Module],
        end: nn.Module,
        pool: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.start, self.end, self.pool = start, end, pool
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for block in self.blocks:
            x = block(x)
        return self.end(x if self.pool is None else self.pool(x))


class Residual(nn.Module):
    """x + branch(x)."""

    def __init__(self, *branch: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def classifier(width: int, *, norm: bool = True, outputs: int = CLASSES) -> nn.Module:
    readout = nn.Linear(width, outputs)
    return nn.Sequential(nn.LayerNorm(width), readout) if norm else readout


def mlp(block: Callable[[int], nn.Module], *, norm: bool = True) -> Callable[[int, int], nn.Module]:
    def make(width: int, depth: int) -> nn.Module:
        blocks = [block(width) for _ in range(depth)]
        return Tower(nn.Linear(FEATURES, width), blocks, classifier(width, norm=norm))

    return make


def one_matrix(width: int) -> nn.Module:
    """With the nonlinearity last, whose mean is positive, branches would add up in one direction:
    the stream grows as depth^1/2 under Depth-muP, and the check fails."""
    return Residual(nn.ReLU(), nn.Linear(width, width))


def two_matrices(width: int) -> nn.Module:
    return Residual(
        nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
    )


def with_dropout(width: int) -> nn.Module:
    return Residual(
        nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(0.1),
        nn.Linear(width, width), nn.Dropout(0.1),
    )  # fmt: skip


def bottleneck(width: int) -> nn.Module:
    return Residual(
        nn.LayerNorm(width), nn.Linear(width, width // 4), nn.ReLU(), nn.Linear(width // 4, width)
    )


class Gated(nn.Module):
    """SwiGLU behind torch's RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class LayerScale(nn.Module):
    """A learned gain at the end of each branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gain = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * self.down(F.gelu(self.up(self.norm(x))))


class Functional(nn.Module):
    """Bare parameters and ``F.linear``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(2 * width, width))
        self.second = nn.Parameter(torch.empty(width, 2 * width))
        nn.init.kaiming_uniform_(self.first, a=math.sqrt(5))
        nn.init.kaiming_uniform_(self.second, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, x.shape[-1:])
        return x + F.linear(F.relu(F.linear(y, self.first)), self.second)


class Attention(nn.Module):
    def __init__(self, width: int, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = width // 8, fused
        if fused:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).split(width, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, *, fused: bool = False, parallel: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.parallel = Attention(width, fused=fused), parallel
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.parallel:
            return x + self.attention(self.norm1(x)) + self.mlp(self.norm2(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Words(nn.Module):
    def __init__(self, width: int, *, learned: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, width)
        self.positions = nn.Embedding(LENGTH, width) if learned else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.tokens(x)
        if self.positions is None:
            return y
        return y + self.positions(torch.arange(x.shape[1], device=x.device))


def language(
    block: Callable[[int], nn.Module], *, tied: bool = False
) -> Callable[[int, int], nn.Module]:
    def make(width: int, depth: int) -> nn.Module:
        end = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False))
        model = Tower(Words(width), [block(width) for _ in range(depth)], end)
        if tied:
            end[1].weight = model.start.tokens.weight  # type: ignore[union-attr]
        return model

    return make


def encoder_layer(width: int) -> nn.Module:
    return nn.TransformerEncoderLayer(
        width, max(width // 8, 1), 2 * width, dropout=0.0, batch_first=True, norm_first=True
    )


class OwnAttention(nn.Module):
    """nn.MultiheadAttention, as its documentation calls it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, width // 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.attention(y, y, y, need_weights=False)[0]


class Mixer(nn.Module):
    """MLP-Mixer: tokens of a fixed number are mixed by one branch, channels by another."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(LENGTH, 16), nn.GELU(), nn.Linear(16, LENGTH))
        self.along = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


def mixer(width: int, depth: int) -> nn.Module:
    blocks: list[nn.Module] = [Mixer(width) for _ in range(depth)]
    words = Words(width, learned=False)
    return Tower(words, blocks, classifier(width), lambda x: x.mean(1))


class Bag(nn.Module):
    """The mean of the words' embeddings."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.words(x).mean(1)


def bag_of_words(width: int, depth: int) -> nn.Module:
    return Tower(Bag(width), [two_matrices(width) for _ in range(depth)], classifier(width))


class Patches(nn.Module):
    """Patches, a class token, and positions that start at 0.02."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 2, 2)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 17, width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(y), -1, -1), y], 1) + self.positions


def vit(width: int, depth: int) -> nn.Module:
    blocks: list[nn.Module] = [Layer(width) for _ in range(depth)]
    return Tower(Patches(width), blocks, classifier(width), lambda x: x[:, 0])


def conv_norm(width: int) -> nn.Module:
    return Residual(
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
    )  # fmt: skip


def conv_group(width: int) -> nn.Module:
    return Residual(
        nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1),
    )  # fmt: skip


class ConvNeXt(nn.Module):
    """Depthwise convolution, then an MLP along channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


def convolutional(block: Callable[[int], nn.Module]) -> Callable[[int, int], nn.Module]:
    def make(width: int, depth: int) -> nn.Module:
        blocks = [block(width) for _ in range(depth)]
        start = nn.Conv2d(3, width, 3, padding=1)
        return Tower(start, blocks, nn.Linear(width, CLASSES), lambda x: x.mean((2, 3)))

    return make


def dilated(width: int, depth: int) -> nn.Module:
    """One-dimensional convolutions with growing gaps."""
    blocks: list[nn.Module] = [
        Residual(
            nn.Conv1d(width, width, 3, padding=2 ** (i % 3), dilation=2 ** (i % 3)), nn.ReLU(),
            nn.Conv1d(width, width, 1),
        )
        for i in range(depth)
    ]  # fmt: skip
    start = nn.Conv1d(FEATURES, width, 1)
    return Tower(start, blocks, nn.Linear(width, CLASSES), lambda x: x.mean(2))


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A model, its data, and the scheme that suits its blocks."""

    make: Callable[[int, int], nn.Module]
    batch: Callable[[torch.Generator], tuple[Any, Any]] = vectors
    scheme: str = "completep"


PLAIN = {
    "mlp, one matrix": Plain(make=mlp(one_matrix, norm=False), scheme="depth-mup"),
    "mlp, two matrices": Plain(make=mlp(two_matrices)),
    "mlp, dropout": Plain(make=mlp(with_dropout)),
    "mlp, bottleneck": Plain(make=mlp(bottleneck)),
    "mlp, gated": Plain(make=mlp(Gated)),
    "mlp, layer scale": Plain(make=mlp(LayerScale)),
    "mlp, functional": Plain(make=mlp(Functional)),
    "gpt": Plain(make=language(Layer), batch=tokens),
    "gpt, fused qkv": Plain(make=language(lambda w: Layer(w, fused=True)), batch=tokens),
    "gpt, parallel": Plain(make=language(lambda w: Layer(w, parallel=True)), batch=tokens),
    "gpt, tied": Plain(make=language(Layer, tied=True), batch=tokens),
    "nn.TransformerEncoderLayer": Plain(make=language(encoder_layer), batch=tokens),
    "nn.MultiheadAttention": Plain(make=language(OwnAttention), batch=tokens),
    "mlp-mixer": Plain(make=mixer, batch=one_label),
    "bag of words": Plain(make=bag_of_words, batch=one_label),
    "vit": Plain(make=vit, batch=images),
    "resnet, batch norm": Plain(make=convolutional(conv_norm), batch=images),
    "resnet, group norm": Plain(make=convolutional(conv_group), batch=images),
    "convnext": Plain(make=convolutional(ConvNeXt), batch=images),
    "dilated convolutions": Plain(make=dilated, batch=sequences),
}
