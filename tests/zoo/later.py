"""Thirty-two further architectures, of classes never tried before, chosen before any result.

Classes of transformers (5.23) and timm (1.0.31) that no other list has, and two small packages:
gateloop-transformer (0.2.5) and product-key-memory (0.3.0).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from tests.zoo.architectures import HEAD, IDS, PIXELS, settings
from tests.zoo.case import Case
from tests.zoo.fresh import _drawn, _of

_Inputs = tuple[Any, ...] | Mapping[str, Any]
_WORDS: _Inputs = {"input_ids": IDS}
_BOTH: _Inputs = {"input_ids": IDS, "decoder_input_ids": IDS}
_VIDEO: _Inputs = {"pixel_values": _drawn(2, 4, 3, 32, 32)}
_SQUARES = _drawn(2, 3, 64, 64)
_FEW = {"num_classes": 10}

_DECODERS = """
MiniMaxM2 ExaoneMoe OlmoHybrid MiMoV2Flash Cohere2Moe GlmMoeDsa SolarOpen Ministral3 GPTNeoXJapanese
"""
_OTHERS: dict[str, tuple[str, _Inputs]] = {
    "Canine": ("CanineForTokenClassification", _WORDS),
    "IBert": ("IBertForMaskedLM", _WORDS),
    "Mra": ("MraForMaskedLM", _WORDS),
    "Data2VecText": ("Data2VecTextForMaskedLM", _WORDS),
    "XLM": ("XLMWithLMHeadModel", _WORDS),
    "Splinter": ("SplinterForQuestionAnswering", _WORDS),
    "BigBirdPegasus": ("BigBirdPegasusForConditionalGeneration", _BOTH),
    "Mvp": ("MvpForConditionalGeneration", _BOTH),
    "VideoMAE": ("VideoMAEForVideoClassification", _VIDEO),
    "Vivit": ("VivitForVideoClassification", _VIDEO),
    "DINOv3": ("DINOv3ViTModel", {"pixel_values": PIXELS}),
    "AST": ("ASTForAudioClassification", {"input_values": _drawn(2, 32, 32)}),
    "WavLM": ("WavLMForCTC", {"input_values": _drawn(2, 400)}),
    "PatchTSMixer": ("PatchTSMixerForPrediction", {"past_values": _drawn(2, 16, 3)}),
}


def _own(name: str, w: int, d: int) -> dict[str, Any]:
    """What a class needs beside the common settings."""
    heads = w // HEAD
    experts = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "num_experts_per_tok": 2}
    latent = {
        "q_lora_rank": w // 2, "kv_lora_rank": w // 2, "qk_rope_head_dim": HEAD // 2,
        "qk_nope_head_dim": HEAD // 2, "v_head_dim": HEAD, "num_key_value_heads": heads,
    }  # fmt: skip
    needs: dict[str, dict[str, Any]] = {
        "MiniMaxM2": {"head_dim": HEAD, "rotary_dim": HEAD // 2},
        "ExaoneMoe": experts | {"layer_types": ["full_attention"] * d, "head_dim": HEAD}
        | {"mlp_layer_types": ["sparse"] * d, "is_moe_layer": [True] * d},
        "OlmoHybrid": {"layer_types": (["linear_attention", "full_attention"] * d)[:d]}
        | {"linear_num_key_heads": heads, "linear_num_value_heads": heads}
        | {"linear_key_head_dim": HEAD, "linear_value_head_dim": HEAD},
        "MiMoV2Flash": {"head_dim": HEAD, "v_head_dim": HEAD, "num_key_value_heads": heads // 2}
        | {"layer_types": (["sliding_attention", "full_attention"] * d)[:d]}
        | {"mlp_layer_types": ["sparse"] * d, "n_group": 1, "topk_group": 1},
        "Cohere2Moe": {"layer_types": ["full_attention"] * d, "head_dim": HEAD},
        "GlmMoeDsa": latent | experts | {"index_n_heads": 2, "index_head_dim": HEAD}
        | {"index_topk": 4, "mlp_layer_types": ["sparse"] * d, "head_dim": HEAD // 2},
        "SolarOpen": experts | {"head_dim": HEAD},
        "Ministral3": {"head_dim": HEAD},
        "Canine": {"num_hash_buckets": 64, "local_transformer_stride": 4, "downsampling_rate": 2}
        | {"num_hash_functions": 2, "upsampling_kernel_size": 2},
        "IBert": {"quant_mode": False},
        "Mra": {"block_per_row": 1},
        "Data2VecText": {"max_position_embeddings": 64},
        "XLM": {"n_words": 64, "n_heads": heads, "n_layers": d, "emb_dim": w}
        | {"max_position_embeddings": 64},
        "BigBirdPegasus": {"attention_type": "original_full"},
        "VideoMAE": {"num_frames": 4, "image_size": 32, "patch_size": 8, "tubelet_size": 2},
        "Vivit": {"num_frames": 4, "image_size": 32, "tubelet_size": [2, 8, 8]},
        "DINOv3": {"image_size": 32, "patch_size": 8},
        "AST": {"patch_size": 8, "max_length": 32, "num_mel_bins": 32, "time_stride": 8}
        | {"frequency_stride": 8},
        "WavLM": {"conv_dim": [w] * 2, "conv_kernel": [10, 3], "conv_stride": [5, 2]}
        | {"num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4}
        | {"num_conv_pos_embedding_groups": 4, "feat_extract_norm": "layer", "vocab_size": 64},
        "PatchTSMixer": {"context_length": 16, "patch_length": 4, "patch_stride": 4}
        | {"num_input_channels": 3, "prediction_length": 4, "d_model": w, "num_layers": d},
    }  # fmt: skip
    return needs.get(name, {})


def _of_transformers(name: str, kind: str, inputs: _Inputs) -> Case:
    def make(w: int, d: int) -> nn.Module:
        import transformers

        config = getattr(transformers, kind).config_class
        known = config().to_dict() | dict.fromkeys(config.attribute_map or {})
        common = {k: v for k, v in settings(w, d).items() if k in known}
        common = {
            k: v for k, v in common.items() if isinstance(v, list) == isinstance(known[k], list)
        }
        return getattr(transformers, kind)(config(**(common | _own(name, w, d))))

    return Case(package="transformers", name=name, make=make, inputs=inputs)


def _volo(w: int, d: int) -> nn.Module:
    return _of(
        "timm.models.volo.VOLO", layers=[d, d, d, d], img_size=64, embed_dims=[w] * 4,
        num_heads=[w // HEAD] * 4, use_aux_head=False, stem_hidden_dim=16, **_FEW,
    )  # fmt: skip


def _xcit(w: int, d: int) -> nn.Module:
    return _of(
        "timm.models.xcit.Xcit", img_size=32, patch_size=8, embed_dim=w, depth=d,
        num_heads=w // HEAD, **_FEW,
    )  # fmt: skip


def _eva(w: int, d: int) -> nn.Module:
    return _of(
        "timm.models.eva.Eva", img_size=32, patch_size=8, embed_dim=w, depth=d,
        num_heads=w // HEAD, swiglu_mlp=True, scale_mlp=True, use_rot_pos_emb=True, **_FEW,
    )  # fmt: skip


def _gcvit(w: int, d: int) -> nn.Module:
    return _of(
        "timm.models.gcvit.GlobalContextVit", img_size=64, embed_dim=w, depths=(d, d),
        num_heads=(w // HEAD, 2 * w // HEAD), window_ratio=(8, 16), **_FEW,
    )  # fmt: skip


def _tnt(w: int, d: int) -> nn.Module:
    return _of(
        "timm.models.tnt.TNT", img_size=32, patch_size=8, embed_dim=w, inner_dim=w // 2, depth=d,
        num_heads_inner=w // 2 // HEAD, num_heads_outer=w // HEAD, **_FEW,
    )  # fmt: skip


def _crossvit(w: int, d: int) -> nn.Module:
    return _of(
        "timm.models.crossvit.CrossVit", img_size=32, patch_size=(8, 16), embed_dim=(w, 2 * w),
        depth=((d, d, 0), (d, d, 0)), num_heads=(w // HEAD, 2 * w // HEAD), **_FEW,
    )  # fmt: skip


def _nfnet(w: int, d: int) -> nn.Module:
    cfg = _of(
        "timm.models.nfnet.NfCfg", depths=(d,) * 4, channels=(w, 2 * w, 2 * w, 4 * w), stem_chs=w
    )
    return _of("timm.models.nfnet.NormFreeNet", cfg=cfg, **_FEW)


class _Remembering(nn.Module):
    """Blocks whose second branch is a memory of product keys."""

    def __init__(self, w: int, d: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(64, w), nn.Linear(w, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for _ in range(d))
        self.memories = nn.ModuleList(
            _of("product_key_memory.PKM", dim=w, heads=2, num_keys=8, topk=4, dim_head=w // 2)
            for _ in range(d)
        )

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for norm, memory in zip(self.norms, self.memories, strict=True):
            x = x + memory(norm(x))
        return self.head(x)  # type: ignore[no-any-return]


def _gateloop(w: int, d: int) -> nn.Module:
    return _of(
        "gateloop_transformer.Transformer", dim=w, num_tokens=64, depth=d, dim_head=HEAD,
        heads=w // HEAD, checkpoint_gate_looped_attn=False,
    )  # fmt: skip


_BY_CLASS = {
    "VOLO": ("timm", _volo, (_SQUARES,)),
    "XCiT": ("timm", _xcit, (PIXELS,)),
    "Eva": ("timm", _eva, (PIXELS,)),
    "GCViT": ("timm", _gcvit, (_SQUARES,)),
    "TNT": ("timm", _tnt, (PIXELS,)),
    "CrossViT": ("timm", _crossvit, (PIXELS,)),
    "NFNet": ("timm", _nfnet, (PIXELS,)),
    "GateLoop": ("gateloop-transformer", _gateloop, (IDS,)),
    "product keys": ("product-key-memory", _Remembering, (IDS,)),
}


def later() -> Iterator[Case]:
    """The architectures, in the order in which they were chosen."""
    for name in _DECODERS.split():
        yield _of_transformers(name, f"{name}ForCausalLM", _WORDS)
    for name, (kind, inputs) in _OTHERS.items():
        yield _of_transformers(name, kind, inputs)
    for name, (package, make, inputs) in _BY_CLASS.items():
        yield Case(package=package, name=name, make=make, inputs=inputs)
