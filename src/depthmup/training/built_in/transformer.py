"""A pre-norm decoder: embeddings, L layers of attention and MLP, a readout.

Shapes: B sequences, T tokens each, n = width, H query heads and G <= H key-value heads of size d,
n = H d.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

Norm = Literal["layer", "rms", "none"]
Positions = Literal["rotary", "learned"]
Hidden = Literal["gelu", "swiglu"]
Turn = tuple[Tensor, Tensor] | None  # cos and sin of rotary positions, each (T, d/2)

_EPS = 1e-6  # of every norm


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerConfig:
    """The sizes of a transformer and what it is built of.

    Args:
        vocabulary: number of tokens.
        width: of the residual stream; a multiple of ``head_size``.
        depth: layers, of two residual branches each.
        head_size: of each attention head. A wider network has more heads of the same size; for as
            many heads of a larger size, make it proportional to the width.
        group_size: query heads that share one key-value head.
        expansion: inner width of the MLP, as a multiple of the width.
        norm: before each branch and before the readout: LayerNorm (gain and bias), RMSNorm (gain),
            or none.
        qk_norm: RMSNorm of every query and key, with gains that all heads share.
        positions: rotations of queries and keys, or a learned vector for each position.
        length: number of positions that can be learned; rotary positions have no bound.
        mlp: W2 gelu(W1 x), or W2 (silu(W3 x) * W1 x).
        tied: the readout is the embedding.
        attention_scale: of query-key products; 1/sqrt(head_size) if None.
    """

    vocabulary: int
    width: int
    depth: int
    head_size: int = 16
    group_size: int = 1
    expansion: int = 4
    norm: Norm = "rms"
    qk_norm: bool = False
    positions: Positions = "rotary"
    length: int = 256
    mlp: Hidden = "gelu"
    tied: bool = False
    attention_scale: float | None = None

    def __post_init__(self) -> None:
        sizes = ("vocabulary", "width", "depth", "head_size", "group_size", "expansion", "length")
        for name in sizes:
            if getattr(self, name) < 1:
                raise ValueError(
                    f"Every size must be at least 1; got {name}={getattr(self, name)}."
                )
        if self.width % (self.head_size * self.group_size):
            raise ValueError(
                f"Expected a width that is a multiple of head_size * group_size = "
                f"{self.head_size} * {self.group_size}; got {self.width}."
            )
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(
                f"Rotary positions turn pairs of entries: expected an even head_size; got "
                f"{self.head_size}."
            )
        if self.attention_scale is not None and not 0 < self.attention_scale < math.inf:
            raise ValueError(
                f"Expected a positive attention_scale, or None; got {self.attention_scale}."
            )
        for name, kinds in (("norm", Norm), ("positions", Positions), ("mlp", Hidden)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(
                    f"Expected {name} to be one of {', '.join(get_args(kinds))}; got "
                    f"{getattr(self, name)!r}."
                )


def _norm(config: TransformerConfig) -> nn.Module:
    """u = (x - mean) / std * gain + bias;  u = x / rms * gain;  or u = x."""
    if config.norm == "layer":
        return nn.LayerNorm(config.width, eps=_EPS)
    return nn.RMSNorm(config.width, eps=_EPS) if config.norm == "rms" else nn.Identity()


def _bare(kind: type[nn.Module], rows: int, columns: int, **options: bool) -> Any:
    """A layer without values; ``Transformer.initialize`` draws them from its generator."""
    return skip_init(kind, rows, columns, device=torch.get_default_device(), **options)


def _linear(fan_in: int, fan_out: int) -> Any:
    return _bare(nn.Linear, fan_in, fan_out, bias=False)


def rotation(length: int, size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of t * 10000^(-2i / size), each (T, d/2): one frequency for each pair of entries.

    *Source:* RoFormer (arXiv 2104.09864) Equation 15.
    """
    # Half precision tells whole numbers apart up to 2048, bfloat16 up to 256: positions go on.
    precise = torch.promote_types(like.dtype, torch.float32)
    pairs = torch.arange(0, size, 2, device=like.device, dtype=precise)
    t = torch.arange(length, device=like.device, dtype=precise)
    angles = t[:, None] * 10_000 ** (-pairs / size)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (i, i + d/2) of x, (B, heads, T, d), by angles of cos and sin, (T, d/2).

    The product of a vector turned at t and one turned at s depends on t - s alone. The paper pairs
    neighbours; halves, as in Llama, are the same but for the order of rows in W_q and W_k.
    """
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], -1)


class Attention(nn.Module):
    """y = W_o softmax(scale * q k^T) v, in each head; token t sees tokens up to t."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        shared = config.width // config.group_size  # G d
        self.query = _linear(config.width, config.width)
        self.key = _linear(config.width, shared)
        self.value = _linear(config.width, shared)
        self.output = _linear(config.width, config.width)
        size, normed = config.head_size, config.qk_norm
        self.query_norm = nn.RMSNorm(size, eps=_EPS) if normed else nn.Identity()
        self.key_norm = nn.RMSNorm(size, eps=_EPS) if normed else nn.Identity()
        self.config = config

    def forward(self, x: Tensor, turn: Turn) -> Tensor:
        """(B, T, n) -> (B, T, n); ``turn`` is None where positions are learned."""

        def heads(u: Tensor) -> Tensor:  # (B, T, H d) -> (B, H, T, d)
            result: Tensor = u.unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)
            return result

        q = self.query_norm(heads(self.query(x)))
        k = self.key_norm(heads(self.key(x)))
        v = heads(self.value(x))
        if turn is not None:
            q, k = rotate(q, *turn), rotate(k, *turn)
        scale, grouped = self.config.attention_scale, self.config.group_size > 1
        y = functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=grouped
        )
        out: Tensor = self.output(y.transpose(1, 2).flatten(-2))
        return out


class MLP(nn.Module):
    """y = W2 gelu(W1 x), or y = W2 (silu(W3 x) * W1 x)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        inner = config.expansion * config.width
        self.up = _linear(config.width, inner)
        self.gate = _linear(config.width, inner) if config.mlp == "swiglu" else None
        self.down = _linear(inner, config.width)

    def forward(self, x: Tensor) -> Tensor:
        u = self.up(x)
        u = functional.gelu(u) if self.gate is None else functional.silu(self.gate(x)) * u
        out: Tensor = self.down(u)
        return out


class DecoderLayer(nn.Module):
    """x <- x + attention(norm(x));  x <- x + mlp(norm(x))."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention_norm, self.attention = _norm(config), Attention(config)
        self.mlp_norm, self.mlp = _norm(config), MLP(config)

    def forward(self, x: Tensor, turn: Turn) -> Tensor:
        """(B, T, n) -> (B, T, n); ``turn`` is None where positions are learned."""
        x = x + self.attention(self.attention_norm(x), turn)
        out: Tensor = x + self.mlp(self.mlp_norm(x))
        return out


class Transformer(nn.Module):
    """x^0 = embed(tokens);  L layers of two branches;  logits = W norm(x^L).

    It knows no exponent. Tokens are (B, T) integers, logits (B, T, vocabulary).

    Example:
        >>> config = TransformerConfig(vocabulary=256, width=64, depth=4)
        >>> model = Transformer(config, generator=torch.Generator().manual_seed(0))
        >>> model(torch.zeros(2, 8, dtype=torch.long)).shape
        torch.Size([2, 8, 256])

    *Source:* GPT-2 (Radford et al. 2019) for the order of norms; RMSNorm arXiv 1910.07467, rotary
    positions 2104.09864, SwiGLU 2002.05202, grouped queries 2305.13245, QK-norm 2302.05442.
    """

    def __init__(
        self, config: TransformerConfig, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.tokens = _bare(nn.Embedding, config.vocabulary, config.width)
        learned = config.positions == "learned"
        self.positions = _bare(nn.Embedding, config.length, config.width) if learned else None
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.depth))
        self.norm = _norm(config)
        self.readout = _linear(config.width, config.vocabulary)
        if config.tied:
            self.readout.weight = self.tokens.weight
        self.initialize(generator or torch.default_generator)

    @torch.no_grad()
    def initialize(self, generator: torch.Generator) -> None:
        """Matrices from N(0, 1/fan-in), embeddings from N(0, 1), or N(0, 1/width) where tied.

        Every layer has random numbers of its own, so that the first layers of a deeper network
        equal the shallow one's.
        """
        for part in (self.tokens, self.positions, self.readout, self.norm, *self.layers):
            # Drawn for a part that is missing, too: all others keep their numbers.
            seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
            own = torch.Generator("cpu").manual_seed(seed)
            for module in part.modules() if part is not None else ():
                if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                    module.reset_parameters()
                elif isinstance(module, (nn.Linear, nn.Embedding)):
                    rows, columns = module.weight.shape
                    table = isinstance(module, nn.Embedding) and not self.config.tied
                    std = 1.0 if table else columns**-0.5
                    # On the CPU whatever the device: generators of devices give other numbers for
                    # one seed.
                    drawn = torch.randn(rows, columns, generator=own, device="cpu")
                    module.weight.copy_(drawn * std)

    def forward(self, tokens: Tensor) -> Tensor:
        length, config = tokens.shape[-1], self.config
        # Rotary positions enter in attention, learned ones are added to the stream.
        x, turn = self.tokens(tokens), None
        if self.positions is None:
            turn = rotation(length, config.head_size, like=x)
        elif length <= config.length:
            x = x + self.positions(torch.arange(length, device=tokens.device))
        else:
            raise ValueError(
                f"Expected at most {config.length} tokens, as many positions were learned; got "
                f"{length}. Make the network with length={length}, or with rotary positions."
            )
        for layer in self.layers:
            x = layer(x, turn)
        logits: Tensor = self.readout(self.norm(x))
        return logits
