"""Architectures of packages that no other list has, chosen before any result, after the proof.

lucidrains' MEGABYTE-pytorch (0.3.6), simple-hierarchical-transformer (0.4.0), block-recurrent-
transformer-pytorch (0.4.4), recurrent-memory-transformer-pytorch (0.7.0), h-transformer-1d (0.1.9),
infini-transformer-pytorch (0.2.1), charformer-pytorch (0.0.4), res-mlp-pytorch (0.0.6), sinkhorn-
transformer (0.11.4), uniformer-pytorch (0.0.4), graph-transformer-pytorch (0.1.1), axial-attention
(0.6.1), feedback-transformer-pytorch (0.0.11), FLASH-pytorch (0.1.9), gated-state-spaces-pytorch
(0.1.0), token-shift-gpt (0.0.2), nystrom-attention (0.0.14), stam-pytorch (0.0.4), rela-transformer
(0.0.7), siren-pytorch (0.1.7), soft-moe-pytorch (0.1.9), PEER-pytorch (0.2.2), point-transformer-
pytorch (0.1.5), glom-pytorch (0.0.14).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.architectures import HEAD
from tests.zoo.case import Case
from tests.zoo.fresh import _drawn, _of

_WORDS = 32
_IDS = torch.randint(1, _WORDS, (4, 16), generator=torch.Generator().manual_seed(0))
_TOKENS, _POINTS = _drawn(3, 16, 6), (_drawn(3, 8, 6), _drawn(3, 8, 3))
_Block = Callable[[int], nn.Module]

# Language models with num_tokens, dim, depth, heads, dim_head, and what else they take.
_LANGUAGE: dict[str, dict[str, Any]] = {
    "simple_hierarchical_transformer.HierarchicalTransformer": {"seq_len": 16, "window_sizes": 16},
    "block_recurrent_transformer_pytorch.BlockRecurrentTransformer": {
        "max_seq_len": 16, "block_width": 8,
    },
    "recurrent_memory_transformer_pytorch.RecurrentMemoryTransformer": {
        "num_memory_tokens": 4, "seq_len": 16,
    },
    "h_transformer_1d.HTransformer1D": {"max_seq_len": 16, "block_size": 4, "causal": True},
    "infini_transformer_pytorch.InfiniTransformer": {},
    "feedback_transformer_pytorch.FeedbackTransformer": {"mem_len": 8, "seq_len": 4},
    "rela_transformer.ReLATransformer": {"max_seq_len": 16},
}  # fmt: skip
# And those without heads.
_HEADLESS: dict[str, dict[str, Any]] = {
    "flash_pytorch.FLASHTransformer": {"group_size": 8, "query_key_dim": 8, "causal": True},
    "gated_state_spaces_pytorch.GatedStateSpacesLM": {"dss_kernel_N": 8},
    "token_shift_gpt.TokenShiftGPT": {"max_seq_len": 16},
}


class _Stack(nn.Module):
    """x + block(norm(x)) around a layer that a package exports."""

    def __init__(self, w: int, d: int, block: _Block) -> None:
        super().__init__()
        self.inp, self.out = nn.Linear(6, w), nn.Linear(w, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(d))
        self.blocks = nn.ModuleList(block(w) for _ in range(d))

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        x = self.inp(x)
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x), *more)
        return self.out(x)  # type: ignore[no-any-return]


class _Between(nn.Module):
    """A first layer, what a package exports, and a last one; of several outputs the first."""

    def __init__(self, first: nn.Module, inside: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.first, self.inside, self.last = first, inside, last

    def forward(self, x: Tensor, *more: Tensor) -> Tensor:
        x = self.inside(self.first(x), *more)
        return self.last(x[0] if isinstance(x, tuple) else x)  # type: ignore[no-any-return]


def _language(path: str, *, headed: bool) -> Callable[[int, int], nn.Module]:
    def make(w: int, d: int) -> nn.Module:
        heads = {"heads": w // HEAD, "dim_head": HEAD} if headed else {}
        more = (_LANGUAGE if headed else _HEADLESS)[path]
        if path.endswith("GatedStateSpacesLM"):
            more = {**more, "dss_kernel_H": w}
        return _of(path, num_tokens=_WORDS, dim=w, depth=d, **heads, **more)  # type: ignore[no-any-return]

    return make


def _megabyte(w: int, d: int) -> nn.Module:
    return _of(
        "MEGABYTE_pytorch.MEGABYTE", num_tokens=_WORDS, dim=(w, w), depth=(d, d),
        max_seq_len=(4, 4), dim_head=HEAD, heads=w // HEAD,
    )  # fmt: skip


def _charformer(w: int, d: int) -> nn.Module:
    gbst = _of(
        "charformer_pytorch.GBST", num_tokens=_WORDS, dim=w, max_block_size=4, downsample_factor=4
    )
    return _Between(nn.Identity(), gbst, nn.Linear(w, 8))


def _res_mlp(w: int, d: int) -> nn.Module:
    return _of("res_mlp_pytorch.ResMLP", image_size=32, patch_size=8, dim=w, depth=d, num_classes=8)


def _sinkhorn(w: int, d: int) -> nn.Module:
    return _of(
        "sinkhorn_transformer.SinkhornTransformerLM", num_tokens=_WORDS, dim=w, max_seq_len=16,
        depth=d, heads=w // HEAD, bucket_size=4, causal=True,
    )  # fmt: skip


def _uniformer(w: int, d: int) -> nn.Module:
    return _of(
        "uniformer_pytorch.Uniformer", num_classes=8, dims=(w, 2 * w), depths=(d, d),
        mhsa_types=("l", "g"), dim_head=HEAD,
    )  # fmt: skip


class _Graph(nn.Module):
    def __init__(self, w: int, d: int) -> None:
        super().__init__()
        self.nodes, self.edges, self.out = nn.Linear(6, w), nn.Linear(5, w), nn.Linear(w, 4)
        self.inside = _of(
            "graph_transformer_pytorch.GraphTransformer", dim=w, depth=d, dim_head=HEAD,
            heads=w // HEAD, edge_dim=w, with_feedforwards=True,
        )  # fmt: skip

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        return self.out(self.inside(self.nodes(nodes), self.edges(edges))[0])  # type: ignore[no-any-return]


def _axial(w: int, d: int) -> nn.Module:
    inside = _of(
        "axial_attention.AxialImageTransformer", dim=w, depth=d, heads=w // HEAD, dim_heads=HEAD,
        reversible=False, axial_pos_emb_shape=(4, 4),
    )  # fmt: skip
    return _Between(nn.Conv2d(3, w, 1), inside, nn.Conv2d(w, 4, 1))


def _nystrom(w: int, d: int) -> nn.Module:
    inside = _of(
        "nystrom_attention.Nystromformer", dim=w, depth=d, dim_head=HEAD, heads=w // HEAD,
        num_landmarks=4, attn_values_residual_conv_kernel=3,
    )  # fmt: skip
    return _Between(nn.Linear(6, w), inside, nn.Linear(w, 4))


def _stam(w: int, d: int) -> nn.Module:
    of = {f"{part}_{key}": n for part in ("space", "time") for key, n in {
        "depth": d, "heads": w // HEAD, "mlp_dim": 2 * w, "dim_head": HEAD}.items()}  # fmt: skip
    return _of("stam_pytorch.STAM", dim=w, image_size=16, patch_size=8, num_frames=4,
               num_classes=8, **of)  # fmt: skip


def _siren(w: int, d: int) -> nn.Module:
    return _of("siren_pytorch.SirenNet", dim_in=2, dim_hidden=w, dim_out=3, num_layers=d)


def _stacked(path: str, **more: Any) -> Callable[[int, int], nn.Module]:
    return lambda w, d: _Stack(w, d, lambda n: _of(path, dim=n, **more))


def _glom(w: int, d: int) -> nn.Module:
    glom = _of("glom_pytorch.Glom", dim=w, levels=3, image_size=16, patch_size=8)
    return nn.Sequential(glom, nn.Linear(w, 4))


_PEER = {"heads": 2, "num_experts": 64, "num_experts_per_head": 4, "dim_key": 8}
_OTHERS: dict[str, tuple[Callable[[int, int], nn.Module], tuple[Tensor, ...]]] = {
    "MEGABYTE": (_megabyte, (_IDS,)),
    "Charformer": (_charformer, (_IDS,)),
    "ResMLP": (_res_mlp, (_drawn(4, 3, 32, 32),)),
    "Sinkhorn": (_sinkhorn, (_IDS,)),
    "Uniformer": (_uniformer, (_drawn(2, 3, 4, 32, 32),)),
    "GraphTransformer": (_Graph, (_drawn(3, 7, 6), _drawn(3, 7, 7, 5))),
    "axial attention": (_axial, (_drawn(4, 3, 4, 4),)),
    "Nystromformer by hand": (_nystrom, (_TOKENS,)),
    "STAM": (_stam, (_drawn(3, 4, 3, 16, 16),)),
    "SIREN": (_siren, (_drawn(32, 2),)),
    "soft mixture": (_stacked("soft_moe_pytorch.SoftMoE", seq_len=16, num_experts=4), (_TOKENS,)),
    "PEER": (_stacked("PEER_pytorch.PEER", **_PEER), (_TOKENS,)),
    "point transformer": (
        _stacked(
            "point_transformer_pytorch.PointTransformerLayer",
            pos_mlp_hidden_dim=16, attn_mlp_hidden_mult=2,
        ),
        _POINTS,
    ),
    "GLOM": (_glom, (_drawn(3, 3, 16, 16),)),
}  # fmt: skip


def unseen() -> Iterator[Case]:
    """Of forty that were chosen those that could be built here and run."""
    for headed, paths in ((True, _LANGUAGE), (False, _HEADLESS)):
        for path in paths:
            package, name = path.split(".")
            yield Case(
                package=package, name=name, make=_language(path, headed=headed), inputs=(_IDS,)
            )
    for name, (make, inputs) in _OTHERS.items():
        yield Case(package="lucidrains", name=name, make=make, inputs=inputs)
