"""Further architectures, chosen before any result was seen and tried while the zoo was mended.

Packages: vit-pytorch (1.26.11), x-transformers (2.31.10), rtdl-revisiting-models (0.0.2), mambapy
(1.2.0) and others of one model each; transformers and timm as in ``architectures``.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.zoo.architectures import HEAD, IDS, PIXELS, built
from tests.zoo.case import Case

_IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
_FRAMES = torch.randn(2, 3, 4, 32, 32, generator=torch.Generator().manual_seed(0))
_NUMBERS = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
_CATEGORIES = torch.zeros(4, 3, dtype=torch.long)
_SEQUENCE = torch.randn(2, 8, 12, generator=torch.Generator().manual_seed(0))

# Files of vit_pytorch whose last class takes the arguments of a plain ViT, and what else it takes.
_VIT: dict[str, tuple[str, dict[str, Any]]] = {
    "deepvit": ("DeepViT", {}),
    "cait": ("CaiT", {"cls_depth": 2}),
    "xcit": ("XCiT", {"cls_depth": 2}),
    "parallel_vit": ("ViT", {}),
    "rvt": ("RvT", {}),
    "local_vit": ("LocalViT", {}),
    "vit_for_small_dataset": ("ViT", {}),
    "simple_vit_with_qk_norm": ("SimpleViT", {}),
    "simple_vit_with_register_tokens": ("SimpleViT", {}),
    "simple_vit_with_value_residual": ("SimpleViT", {}),
    "simple_vit_with_fft": ("SimpleViT", {"freq_patch_size": 8}),
    "simple_vit_with_hyper_connections": ("SimpleViT", {"num_residual_streams": 2}),
    "normalized_vit": ("nViT", {}),
    "jumbo_vit": ("JumboViT", {}),
    "vit_with_patch_merger": ("ViT", {}),
    "simple_uvit": ("SimpleUViT", {}),
    "vit_with_keel_post_ln": ("ViT", {}),
    "simple_vit_attn_residual": ("SimpleViTAttnResidual", {}),
    "simple_vit_orthog_residual_update": ("SimpleViT", {}),
    "simple_vit_with_relative_proj_pos_bias": ("SimpleViT", {}),
    "simple_vit_with_sparse_gating": ("SimpleViTWithSparseGating", {}),
    "simple_vit_with_specialized_cls": ("SimpleViT", {}),
    "vit_with_decorr": ("ViT", {}),
    "vit_5": ("ViT", {}),
    "simple_flash_attn_vit": ("SimpleViT", {}),
    "vit_detpool": ("ViTDetPool", {}),
}
# Options of x_transformers.Decoder beside a plain one.
_X: dict[str, dict[str, Any]] = {
    "plain": {},
    "rotary, RMSNorm, gated": {"rotary_pos_emb": True, "use_rmsnorm": True, "ff_glu": True},
    "qk norm": {"attn_qk_norm": True},
    "sandwich norm": {"sandwich_norm": True},
    "post norm": {"pre_norm": False},
    "macaron": {"macaron": True},
    "gated residuals": {"gate_residual": True},
    "scaled residuals": {"scale_residual": True},
    "shifted tokens": {"shift_tokens": 1},
    "memory tokens": {"attn_num_mem_kv": 4},
    "T5 bias": {"rel_pos_bias": True},
    "ALiBi": {"alibi_pos_bias": True},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "gated values": {"attn_gate_values": True},
    "squared ReLU": {"ff_relu_squared": True},
    "one key": {"attn_one_kv_head": True},
    "ScaleNorm": {"use_scalenorm": True},
    "adaptive gates": {"attn_gate_value_heads": True},
    "residual attention": {"residual_attn": True},
    "resiDual": {"resi_dual": True, "pre_norm": False},
    "layer scale": {"use_layerscale": True},
    "forgetting": {"attn_data_dependent_alibi": True},
    "hyper connections": {"num_residual_streams": 2},
    "value residual": {"add_value_residual": True},
}
_DECODERS = """
Bamba FalconH1 Lfm2Moe Qwen3Next KimiLinear Dots1 FlexOlmo Afmoe Glm4Moe MiniMax HunYuanMoEV1
GraniteMoeHybrid Ernie4_5_Moe
"""
_ENCODERS = "BigBird Longformer Luke RoCBert Yoso LayoutLM"
_TRANSFORMERS: dict[str, tuple[str, dict[str, torch.Tensor]]] = {
    **{name: (f"{name}ForCausalLM", {"input_ids": IDS}) for name in _DECODERS.split()},
    **{name: (f"{name}ForMaskedLM", {"input_ids": IDS}) for name in _ENCODERS.split()},
    "XLNet": ("XLNetLMHeadModel", {"input_ids": IDS}),
    "T5Gemma": ("T5GemmaForConditionalGeneration", {"input_ids": IDS, "decoder_input_ids": IDS}),
    "NllbMoe": ("NllbMoeForConditionalGeneration", {"input_ids": IDS, "decoder_input_ids": IDS}),
    "FSMT": ("FSMTForConditionalGeneration", {"input_ids": IDS, "decoder_input_ids": IDS}),
    "PegasusX": ("PegasusXForConditionalGeneration", {"input_ids": IDS, "decoder_input_ids": IDS}),
}


def _vit(file: str) -> Case:
    kind, more = _VIT[file]

    def make(width: int, depth: int) -> nn.Module:
        made = getattr(importlib.import_module(f"vit_pytorch.{file}"), kind)
        return made(
            image_size=32, patch_size=8, num_classes=10, dim=width, depth=depth,
            heads=width // HEAD, mlp_dim=2 * width, dim_head=HEAD, **more,
        )  # fmt: skip

    return Case(package="vit-pytorch", name=file, make=make, inputs=(_IMAGES,))


def _x(name: str) -> Case:
    def make(width: int, depth: int) -> nn.Module:
        x = importlib.import_module("x_transformers")
        layers = x.Decoder(
            dim=width, depth=depth, heads=width // HEAD, attn_dim_head=HEAD, **_X[name]
        )
        return x.TransformerWrapper(num_tokens=64, max_seq_len=8, attn_layers=layers)

    return Case(package="x-transformers", name=name, make=make, inputs=(IDS,))


def _of_transformers(name: str) -> Case:
    kind, inputs = _TRANSFORMERS[name]
    return Case(
        package="transformers",
        name=name,
        make=lambda width, depth: built(kind, width, depth),
        inputs=inputs,
    )


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


_SMALL = {"num_classes": 10}
_OTHERS: dict[str, tuple[str, Callable[[int, int], nn.Module], tuple[torch.Tensor, ...]]] = {
    "rtdl MLP": (
        "rtdl",
        lambda w, d: _imported("rtdl_revisiting_models", "MLP")(
            d_in=6, d_out=2, n_blocks=2, d_block=w, dropout=0.0
        ),
        (_NUMBERS,),
    ),
    "rtdl ResNet": (
        "rtdl",
        lambda w, d: _imported("rtdl_revisiting_models", "ResNet")(
            d_in=6, d_out=2, n_blocks=d, d_block=w, d_hidden=None, d_hidden_multiplier=2.0,
            dropout1=0.0, dropout2=0.0,
        ),
        (_NUMBERS,),
    ),
    "rtdl FT-Transformer": (
        "rtdl",
        lambda w, d: _imported("rtdl_revisiting_models", "FTTransformer")(
            n_cont_features=6, cat_cardinalities=[4, 4, 4], d_out=2, n_blocks=d, d_block=w,
            attention_n_heads=w // HEAD, attention_dropout=0.0, ffn_d_hidden=None,
            ffn_d_hidden_multiplier=2.0, ffn_dropout=0.0, residual_dropout=0.0,
        ),
        (_NUMBERS, _CATEGORIES),
    ),
    "TabTransformer": (
        "tab-transformer-pytorch",
        lambda w, d: _imported("tab_transformer_pytorch", "TabTransformer")(
            categories=(4, 4, 4), num_continuous=6, dim=w, depth=d, heads=w // HEAD, dim_head=HEAD,
            dim_out=2, mlp_act=nn.ReLU(),
        ),
        (_CATEGORIES, _NUMBERS),
    ),
    "FT-Transformer": (
        "tab-transformer-pytorch",
        lambda w, d: _imported("tab_transformer_pytorch", "FTTransformer")(
            categories=(4, 4, 4), num_continuous=6, dim=w, depth=d, heads=w // HEAD, dim_head=HEAD,
            dim_out=2,
        ),
        (_CATEGORIES, _NUMBERS),
    ),
    "Perceiver": (
        "perceiver-pytorch",
        lambda w, d: _imported("perceiver_pytorch", "Perceiver")(
            num_freq_bands=2, max_freq=4.0, depth=d, num_latents=8, latent_dim=w, cross_heads=1,
            latent_heads=w // HEAD, cross_dim_head=HEAD, latent_dim_head=HEAD, num_classes=10,
            input_channels=3,
        ),
        (PIXELS.permute(0, 2, 3, 1),),
    ),
    "Perceiver IO": (
        "perceiver-pytorch",
        lambda w, d: _imported("perceiver_pytorch", "PerceiverLM")(
            num_tokens=64, max_seq_len=8, depth=d, dim=w,
            num_latents=8, latent_dim=w, cross_heads=1, latent_heads=w // HEAD,
            cross_dim_head=HEAD, latent_dim_head=HEAD,
        ),
        (IDS,),
    ),
    "linear attention": (
        "linear-attention-transformer",
        lambda w, d: _imported("linear_attention_transformer", "LinearAttentionTransformerLM")(
            num_tokens=64, dim=w, heads=w // HEAD, depth=d, max_seq_len=8, causal=True
        ),
        (IDS,),
    ),
    "Performer": (
        "performer-pytorch",
        lambda w, d: _imported("performer_pytorch", "PerformerLM")(
            num_tokens=64, max_seq_len=8, dim=w, depth=d, heads=w // HEAD, dim_head=HEAD
        ),
        (IDS,),
    ),
    "Conformer": (
        "conformer",
        lambda w, d: nn.Sequential(
            nn.Linear(12, w),
            _imported("conformer", "Conformer")(
                dim=w, depth=d, heads=w // HEAD, dim_head=HEAD, conv_kernel_size=3
            ),
            nn.Linear(w, 5),
        ),
        (_SEQUENCE,),
    ),
    "Mamba": (
        "mambapy",
        lambda w, d: nn.Sequential(
            nn.Embedding(64, w),
            _imported("mambapy.mamba", "Mamba")(
                _imported("mambapy.mamba", "MambaConfig")(d_model=w, n_layers=d, pscan=False)
            ),
            nn.Linear(w, 64),
        ),
        (IDS,),
    ),
    "minGRU": (
        "minGRU-pytorch",
        lambda w, d: _imported("minGRU_pytorch.minLM", "minLM")(num_tokens=64, dim=w, depth=d),
        (IDS,),
    ),
    "ConViT": (
        "timm",
        lambda w, d: _imported("timm.models.convit", "ConVit")(
            img_size=32, patch_size=8, embed_dim=w, depth=d, num_heads=w // HEAD,
            local_up_to_layer=1, **_SMALL,
        ),
        (PIXELS,),
    ),
    "Visformer": (
        "timm",
        lambda w, d: _imported("timm.models.visformer", "Visformer")(
            img_size=32, patch_size=8, init_channels=w // 4, embed_dim=w, depth=(d, d, d),
            num_heads=w // HEAD, **_SMALL,
        ),
        (PIXELS,),
    ),
    "RepViT": (
        "timm",
        lambda w, d: _imported("timm.models.repvit", "RepVit")(
            embed_dim=(w, 2 * w), depth=(d, d), **_SMALL
        ),
        (PIXELS,),
    ),
    "InceptionNeXt": (
        "timm",
        lambda w, d: _imported("timm.models.inception_next", "MetaNeXt")(
            depths=(d,) * 4, dims=(w,) * 4, **_SMALL
        ),
        (PIXELS,),
    ),
    "FastViT": (
        "timm",
        lambda w, d: _imported("timm.models.fastvit", "FastVit")(
            layers=(d,) * 4, embed_dims=(w,) * 4, **_SMALL
        ),
        (PIXELS,),
    ),
    "SHViT": (
        "timm",
        lambda w, d: _imported("timm.models.shvit", "SHViT")(
            embed_dim=(w, w, w), partial_dim=(w // 4,) * 3, depth=(d, d, d), **_SMALL
        ),
        (torch.randn(2, 3, 64, 64),),
    ),
    "NesT": (
        "timm",
        lambda w, d: _imported("timm.models.nest", "Nest")(
            img_size=32, patch_size=2, num_levels=2, embed_dims=(w, 2 * w),
            num_heads=(w // HEAD, w // HEAD), depths=(d, d), **_SMALL,
        ),
        (PIXELS,),
    ),
    "TinyViT": (
        "timm",
        lambda w, d: _imported("timm.models.tiny_vit", "TinyVit")(
            embed_dims=(w,) * 4, depths=(d,) * 4, num_heads=(w // HEAD,) * 4,
            window_sizes=(2,) * 4, **_SMALL,
        ),
        (torch.randn(2, 3, 64, 64),),
    ),
    "DLA": (
        "timm",
        lambda w, d: _imported("timm.models.dla", "DLA")(
            levels=(1, 1, 1, 2, 2, 1), channels=(w,) * 6,
            block=_imported("timm.models.dla", "DlaBasic"), **_SMALL,
        ),
        (torch.randn(2, 3, 64, 64),),
    ),
    "Res2Net": (
        "timm",
        lambda w, d: _imported("timm.models.resnet", "ResNet")(
            block=_imported("timm.models.res2net", "Bottle2neck"), layers=(d,) * 4,
            channels=(w, 2 * w, 4 * w, 8 * w), base_width=26, block_args={"scale": 4}, **_SMALL,
        ),
        (PIXELS,),
    ),
}  # fmt: skip


def further() -> Iterator[Case]:
    """The architectures that were tried while the library was mended."""
    yield from map(_vit, _VIT)
    yield from map(_x, _X)
    yield from map(_of_transformers, _TRANSFORMERS)
    for name, (package, make, inputs) in _OTHERS.items():
        yield Case(package=package, name=name, make=make, inputs=inputs)
