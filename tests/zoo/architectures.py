"""Architectures of the zoo: how to build each in any size, with random weights.

Those of transformers are built from their configurations; those of timm, torchvision and diffusers
by their classes; twenty plain ones are the models of ``tests.zoo.plain``; others are written by
hand (``tests.zoo.by_hand``). A package that is not installed is left out, and counted.
"""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.by_hand import BY_HAND
from tests.zoo.case import Case
from tests.zoo.plain import PLAIN

HEAD, VOCABULARY, LENGTH = 8, 64, 8
IDS = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
LATENTS = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0))
WORDS = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([1, 2])

DECODERS = """
Llama Mistral Qwen2 Qwen3 Gemma Gemma2 Gemma3 Phi Phi3 StableLm Olmo Olmo2 Olmo3 Cohere Cohere2
Glm Glm4 Granite Starcoder2 Helium Nemotron Arcee SmolLM3 Ministral Exaone4 SeedOss
HunYuanDenseV1 Apertus GPT2 GPTNeo GPTNeoX GPTJ CodeGen GPTBigCode OPT Bloom Falcon Mpt
Persimmon BioGpt XGLM CTRL OpenAIGPT DiffLlama BitNet NanoChat Mamba Mamba2 FalconMamba Rwkv
Mixtral Qwen2Moe Qwen3Moe Olmoe GraniteMoe GptOss DeepseekV2 DeepseekV3 MiniCPM3 Jamba
RecurrentGemma Lfm2 ModernBertDecoder Doge Cwm Ernie4_5 Jais2 Youtu VaultGemma GraniteMoeShared
JetMoe Phimoe Dbrx
"""
ENCODERS = """
Bert Roberta Electra DistilBert Albert DebertaV2 Deberta MPNet ConvBert Camembert XLMRoberta
RobertaPreLayerNorm RemBert RoFormer Esm ModernBert FNet MobileBert SqueezeBert Nystromformer
MegatronBert Ernie Xmod Funnel EuroBert NomicBert Flaubert
"""
SEQUENCES = """
T5 MT5 UMT5 Bart MBart Pegasus Marian BlenderbotSmall Blenderbot PLBart M2M100 LongT5
SwitchTransformers ProphetNet LED
"""
VISION = """
ViT DeiT Beit Dinov2 Dinov2WithRegisters Siglip CLIP ViTMSN Data2VecVision IJepa ConvNext
ConvNextV2 ResNet RegNet Swin Swinv2 PoolFormer Pvt PvtV2 Segformer MobileNetV1 MobileNetV2
EfficientNet Bit Levit Cvt FocalNet Hiera MobileViT MobileViTV2 SwiftFormer ImageGPT
"""


def settings(width: int, depth: int) -> dict[str, Any]:
    """What the configurations of transformers call width, depth and the rest."""
    heads, stages = width // HEAD, 4
    by_value: list[tuple[Any, str]] = [
        (
            width,
            "hidden_size d_model n_embd dim embedding_size attention_hidden_size emb_dim lru_width",
        ),
        (
            4 * width,
            "intermediate_size d_ff d_inner n_inner ffn_dim encoder_ffn_dim decoder_ffn_dim "
            "hidden_dim ffn_hidden_size moe_intermediate_size shared_expert_intermediate_size "
            "shared_intermediate_size block_ff_dim",
        ),
        (
            depth,
            "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
            "num_encoder_layers num_decoder_layers",
        ),
        (
            heads,
            "num_attention_heads n_head n_heads num_heads encoder_attention_heads "
            "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads",
        ),
        (max(heads // 2, 1), "num_key_value_heads"),
        (HEAD, "head_dim d_kv attention_head_size"),
        (VOCABULARY, "vocab_size max_position_embeddings n_positions"),
        (10, "num_labels"),
        (32, "image_size"),
        (False, "use_cache"),
        (0, "bos_token_id eos_token_id pad_token_id decoder_start_token_id"),
    ]
    named = {name: value for value, names in by_value for name in names.split()}
    named |= {"patch_size": 8, "state_size": 4, "type_vocab_size": 2}
    named |= {
        "num_local_experts": 4,
        "num_experts": 4,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
    }
    named["hidden_sizes"] = [width * 2**i for i in range(stages)]
    named["depths"] = [depth] * stages
    return named


def own_settings(class_name: str, width: int, depth: int) -> dict[str, Any]:
    """What single classes need beside ``settings``: the smallest model must have every kind of
    layer, and numbers that must agree with each other do."""
    heads, halves = width // HEAD, width // 2
    latent = {
        "num_key_value_heads": heads,
        "q_lora_rank": halves,
        "kv_lora_rank": halves,
        "qk_rope_head_dim": HEAD // 2,
        "qk_nope_head_dim": HEAD // 2,
        "v_head_dim": HEAD,
        "head_dim": HEAD // 2,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
    }
    vision = {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "image_size": 32,
        "patch_size": 8,
    }
    text = {
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": depth,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": HEAD,
        "vocab_size": VOCABULARY,
    }
    widths = [width] * 4
    stages = {"depths": [depth] * 4, "hidden_sizes": widths}
    convolutions = stages | {"num_stages": 4, "num_hidden_layers": 4}
    windows = {"embed_dim": width, "depths": [depth] * 2, "window_size": 4, "patch_size": 4}
    windows |= {"num_attention_heads": [heads, 2 * heads]}
    pyramid = {**stages, "num_attention_heads": [heads] * 4, "num_encoder_blocks": 4}
    by_name: dict[str, dict[str, Any]] = {
        "GPTNeo": {"attention_types": [[["global"], depth]]},
        "GPTJ": {"rotary_dim": HEAD // 2},
        "CodeGen": {"rotary_dim": HEAD // 2},
        "DiffLlama": {"num_key_value_heads": heads},
        "Mamba2": {"num_heads": 2 * heads, "head_dim": HEAD, "n_groups": 1},
        "DeepseekV2": latent,
        "DeepseekV3": latent,
        "MiniCPM3": latent,
        "Youtu": latent,
        "Jamba": {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
        },
        "Bamba": {"attn_layer_indices": [*range(1, depth, 2)], "mamba_n_heads": 2 * heads}
        | {"mamba_d_head": HEAD, "mamba_d_state": HEAD},
        "Lfm2Moe": {"layer_types": (["conv", "full_attention"] * depth)[:depth]}
        | {"num_dense_layers": 0},
        "Qwen3Next": {"layer_types": (["linear_attention", "full_attention"] * depth)[:depth]}
        | {"linear_key_head_dim": HEAD, "linear_value_head_dim": HEAD}
        | {"linear_num_key_heads": heads, "linear_num_value_heads": heads},
        "KimiLinear": {k: v for k, v in latent.items() if k != "q_lora_rank"}
        | {"layer_types": (["linear_attention", "full_attention"] * depth)[:depth]}
        | {"mlp_layer_types": ["sparse"] * depth},
        "Dots1": {"n_shared_experts": 1, "first_k_dense_replace": 0},
        "T5Gemma": {"encoder": text, "decoder": text},
        "NllbMoe": {"encoder_sparse_step": 1, "decoder_sparse_step": 1, "expert_capacity": 8},
        "RecurrentGemma": {"block_types": ["recurrent", "attention"]},
        "SwitchTransformers": {
            "num_sparse_encoder_layers": max(depth // 2, 1),
            "num_sparse_decoder_layers": max(depth // 2, 1),
        },
        "Xmod": {"default_language": "en_XX"},
        "Siglip": {"vision_config": vision},
        "CLIP": {"vision_config": vision},
        "ConvNext": convolutions,
        "ConvNextV2": convolutions,
        "Swin": windows,
        "Swinv2": windows,
        "Pvt": pyramid,
        "PvtV2": pyramid,
        "Segformer": pyramid,
        "Bit": {**stages, "embedding_size": width, "num_groups": 4},
    }
    endings = ("For", "LMHead", "WithLMHead")
    names = {class_name.split(ending)[0] for ending in endings if ending in class_name}
    return next((by_name[name] for name in names if name in by_name), {})


def built(class_name: str, width: int, depth: int) -> nn.Module:
    """A model of transformers of this size, with what its configuration knows of the settings."""
    import transformers

    kind = getattr(transformers, class_name)
    known = kind.config_class().to_dict() | dict.fromkeys(kind.config_class.attribute_map or {})
    chosen = {k: v for k, v in settings(width, depth).items() if k in known}
    for name, value in list(chosen.items()):
        if isinstance(known[name], list) != isinstance(value, list):
            del chosen[name]
        elif isinstance(value, list):
            chosen[name] = value[: len(known[name])]
    return kind(kind.config_class(**(chosen | own_settings(class_name, width, depth))))


def of_transformers() -> Iterator[Case]:
    """Language models, encoders, sequence-to-sequence and vision models of transformers."""
    import transformers

    both = {"input_ids": IDS, "decoder_input_ids": IDS}
    families = (
        (DECODERS, ("ForCausalLM", "LMHeadModel"), {"input_ids": IDS}),
        (ENCODERS, ("ForMaskedLM", "WithLMHeadModel"), {"input_ids": IDS}),
        (SEQUENCES, ("ForConditionalGeneration", "MTModel"), both),
        (VISION, ("ForImageClassification",), {"pixel_values": PIXELS}),
    )
    for names, endings, inputs in families:
        for name in names.split():
            classes = [name + e for e in endings if hasattr(transformers, name + e)]
            if classes:
                yield Case(
                    package="transformers",
                    name=name,
                    make=lambda w, d, kind=classes[0]: built(kind, w, d),
                    inputs=inputs,
                )


def of_timm() -> Iterator[Case]:
    """Vision models of timm: width is that of the first stage, depth that of every stage."""
    from timm.models import (
        beit,
        cait,
        convmixer,
        davit,
        deit,
        densenet,
        edgenext,
        efficientnet,
        eva,
        focalnet,
        hiera,
        levit,
        mambaout,
        mlp_mixer,
        mvitv2,
        naflexvit,
        pit,
        pvt_v2,
        sequencer,
        starnet,
        twins,
        xcit,
    )  # fmt: skip
    from timm.models import (
        convnext as cn,
    )
    from timm.models import (
        metaformer as mf,
    )
    from timm.models import (
        resnet as rn,
    )
    from timm.models import (
        swin_transformer as sw,
    )
    from timm.models import (
        swin_transformer_v2 as sw2,
    )
    from timm.models import (
        vision_transformer as V,
    )

    S: dict[str, Any] = {"img_size": 32, "num_classes": 10}
    makes: dict[str, Callable[[int, int], nn.Module]] = {
        "ViT": lambda w, d: V.VisionTransformer(
            patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, **S
        ),
        "ViT, qk norm, layer scale": lambda w, d: V.VisionTransformer(
            patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, qk_norm=True, init_values=0.1, **S
        ),
        "ViT, registers, mean": lambda w, d: V.VisionTransformer(
            patch_size=8,
            embed_dim=w,
            depth=d,
            num_heads=w // 8,
            reg_tokens=2,
            class_token=False,
            global_pool="avg",
            **S,
        ),
        "ViT, parallel": lambda w, d: V.VisionTransformer(
            patch_size=8,
            embed_dim=w,
            depth=d,
            num_heads=w // 8,
            block_fn=V.ParallelScalingBlock,
            **S,
        ),
        "ViT, map pool": lambda w, d: V.VisionTransformer(
            patch_size=8,
            embed_dim=w,
            depth=d,
            num_heads=w // 8,
            class_token=False,
            global_pool="map",
            **S,
        ),
        "ViT, post norm": lambda w, d: V.VisionTransformer(
            patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, block_fn=V.ResPostBlock, **S
        ),
        "ViT, heads grow": lambda w, d: V.VisionTransformer(
            patch_size=8, embed_dim=w, depth=d, num_heads=2, **S
        ),
        "DeiT distilled": lambda w, d: deit.VisionTransformerDistilled(
            patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, **S
        ),
        "BEiT": lambda w, d: beit.Beit(
            patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, init_values=0.1, **S
        ),
        "BEiT, relative bias": lambda w, d: beit.Beit(
            patch_size=8,
            embed_dim=w,
            depth=d,
            num_heads=w // 8,
            use_shared_rel_pos_bias=True,
            use_abs_pos_emb=False,
            **S,
        ),
        "EVA": lambda w, d: eva.Eva(patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, **S),
        "EVA02": lambda w, d: eva.Eva(
            patch_size=8,
            embed_dim=w,
            depth=d,
            num_heads=w // 8,
            qkv_fused=False,
            swiglu_mlp=True,
            scale_mlp=True,
            use_rot_pos_emb=True,
            **S,
        ),
        "CaiT": lambda w, d: cait.Cait(patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, **S),
        "XCiT": lambda w, d: xcit.Xcit(
            patch_size=8, embed_dim=w, depth=d, num_heads=w // 8, eta=1.0, **S
        ),
        "MLP-Mixer": lambda w, d: mlp_mixer.MlpMixer(
            patch_size=8, embed_dim=w, num_blocks=d, mlp_ratio=(2.0, 4.0), **S
        ),
        "gMLP": lambda w, d: mlp_mixer.MlpMixer(
            patch_size=8,
            embed_dim=w,
            num_blocks=d,
            block_layer=mlp_mixer.SpatialGatingBlock,
            mlp_ratio=4,
            mlp_layer=mlp_mixer.GatedMlp,
            **S,
        ),
        "ResMLP": lambda w, d: mlp_mixer.MlpMixer(
            patch_size=8,
            embed_dim=w,
            num_blocks=d,
            block_layer=mlp_mixer.ResBlock,
            norm_layer=mlp_mixer.Affine,
            mlp_ratio=4,
            **S,
        ),
        "ConvMixer": lambda w, d: convmixer.ConvMixer(
            dim=w, depth=d, kernel_size=3, patch_size=4, num_classes=10
        ),
        "Swin": lambda w, d: sw.SwinTransformer(
            patch_size=2, embed_dim=w, depths=(d, d), num_heads=(w // 8, w // 4), window_size=4, **S
        ),
        "Swin v2": lambda w, d: sw2.SwinTransformerV2(
            patch_size=2, embed_dim=w, depths=(d, d), num_heads=(w // 8, w // 4), window_size=4, **S
        ),
        "ConvNeXt": lambda w, d: cn.ConvNeXt(
            depths=(d, d, d, d), dims=(w, 2 * w, 2 * w, 2 * w), num_classes=10
        ),
        "ConvNeXt v2": lambda w, d: cn.ConvNeXt(
            depths=(d, d, d, d),
            dims=(w, 2 * w, 2 * w, 2 * w),
            use_grn=True,
            ls_init_value=None,
            num_classes=10,
        ),
        "PoolFormer": lambda w, d: mf.MetaFormer(
            depths=(d, d, d, d), dims=(w, w, 2 * w, 2 * w), token_mixers=mf.Pooling, num_classes=10
        ),
        "CAFormer": lambda w, d: mf.MetaFormer(
            depths=(d, d, d, d),
            dims=(w, 2 * w, 2 * w, 4 * w),
            token_mixers=[mf.SepConv] * 2 + [mf.Attention] * 2,
            norm_layers=[mf.LayerNorm2dNoBias] * 2 + [mf.LayerNormNoBias] * 2,
            head_dim=32,
            num_classes=10,
        ),
        "ResNet": lambda w, d: rn.ResNet(
            rn.BasicBlock,
            (d, d, d, d),
            channels=(w, 2 * w, 2 * w, 2 * w),
            stem_width=w,
            num_classes=10,
        ),
        "ResNet, bottleneck": lambda w, d: rn.ResNet(
            rn.Bottleneck, (d, d, d, d), channels=(2 * w, 2 * w, 4 * w, 4 * w), num_classes=10
        ),
        "PiT": lambda w, d: pit.PoolingVisionTransformer(
            img_size=32,
            patch_size=4,
            stride=4,
            base_dims=(8, 8, 8),
            depth=(d, d, d),
            heads=(w // 8, w // 4, w // 2),
            mlp_ratio=4,
            num_classes=10,
        ),
        "Twins": lambda w, d: twins.Twins(
            img_size=32,
            patch_size=4,
            num_classes=10,
            embed_dims=(w, w, w, w),
            num_heads=(w // 8,) * 4,
            mlp_ratios=(4,) * 4,
            depths=(d, d, d, d),
            sr_ratios=(8, 4, 2, 1),
            wss=None,
        ),
        "LeViT": lambda w, d: levit.Levit(
            img_size=32,
            num_classes=10,
            embed_dim=(w, w, w),
            key_dim=8,
            depth=(d, d, d),
            num_heads=(w // 8,) * 3,
        ),
        "Hiera": lambda w, d: hiera.Hiera(
            img_size=(32, 32),
            embed_dim=w,
            num_heads=w // 8,
            stages=(d, d),
            q_pool=1,
            num_classes=10,
        ),
        "Sequencer": lambda w, d: sequencer.Sequencer2d(
            img_size=32,
            num_classes=10,
            layers=(d, d, d, d),
            patch_sizes=(4, 1, 1, 1),
            embed_dims=(w,) * 4,
            hidden_sizes=(w // 4,) * 4,
            mlp_ratios=(3.0,) * 4,
        ),
        "DaViT": lambda w, d: davit.DaVit(
            depths=(d, d),
            embed_dims=(w, 2 * w),
            num_heads=(w // 8, w // 4),
            window_size=4,
            num_classes=10,
        ),
        "FocalNet": lambda w, d: focalnet.FocalNet(
            embed_dim=w, depths=(d, d, d, d), num_classes=10
        ),
        "PVT v2": lambda w, d: pvt_v2.PyramidVisionTransformerV2(
            depths=(d,) * 4, embed_dims=(w,) * 4, num_heads=(w // 8,) * 4, num_classes=10
        ),
        "StarNet": lambda w, d: starnet.StarNet(base_dim=w, depths=(d, d, d, d), num_classes=10),
        "DenseNet": lambda w, d: densenet.DenseNet(
            growth_rate=w // 2, block_config=(d, d), num_classes=10
        ),
        "MambaOut": lambda w, d: mambaout.MambaOut(
            depths=(d, d, d, d), dims=(w, 2 * w, 2 * w, 2 * w), num_classes=10
        ),
        "NaFlexViT": lambda w, d: naflexvit.NaFlexVit(
            naflexvit.NaFlexVitCfg(patch_size=8, embed_dim=w, depth=d, num_heads=w // 8),
            img_size=32,
            num_classes=10,
        ),
        "EdgeNeXt": lambda w, d: edgenext.EdgeNeXt(dims=(w,) * 4, depths=(d,) * 4, num_classes=10),
        "MViT v2": lambda w, d: mvitv2.MultiScaleVit(
            mvitv2.MultiScaleVitCfg(depths=(d, d), embed_dim=w, num_heads=w // 8),
            img_size=(32, 32),
            num_classes=10,
        ),
        "EfficientNet": lambda w, d: efficientnet._gen_efficientnet(
            "efficientnet_b0", channel_multiplier=w / 16, depth_multiplier=d, num_classes=10
        ),
        "MobileNetV2": lambda w, d: efficientnet._gen_mobilenet_v2(
            "mobilenetv2_100", channel_multiplier=w / 16, depth_multiplier=d, num_classes=10
        ),
    }
    for name, make in makes.items():
        yield Case(package="timm", name=name, make=make, inputs=(PIXELS,))


def of_torchvision() -> Iterator[Case]:
    """Vision models of torchvision."""
    from torchvision.models import (
        convnext as tvc,
    )  # fmt: skip
    from torchvision.models import (
        densenet as tvd,
    )
    from torchvision.models import (
        maxvit,
        mobilenetv2,
        shufflenetv2,
    )
    from torchvision.models import (
        resnet as tvr,
    )
    from torchvision.models import (
        swin_transformer as tvs,
    )
    from torchvision.models import (
        vision_transformer as tvv,
    )

    makes: dict[str, Callable[[int, int], nn.Module]] = {
        "ViT": lambda w, d: tvv.VisionTransformer(32, 8, d, w // 8, w, 4 * w, num_classes=10),
        "Swin": lambda w, d: tvs.SwinTransformer(
            [2, 2], w, [d, d], [w // 8, w // 4], [4, 4], num_classes=10
        ),
        "Swin v2": lambda w, d: tvs.SwinTransformer(
            [2, 2],
            w,
            [d, d],
            [w // 8, w // 4],
            [4, 4],
            num_classes=10,
            block=tvs.SwinTransformerBlockV2,
            downsample_layer=tvs.PatchMergingV2,
        ),
        "ConvNeXt": lambda w, d: tvc.ConvNeXt(
            [tvc.CNBlockConfig(w, 2 * w, d), tvc.CNBlockConfig(2 * w, None, d)], num_classes=10
        ),
        "ResNet, bottleneck": lambda w, d: tvr.ResNet(
            tvr.Bottleneck, [d] * 4, width_per_group=w, num_classes=10
        ),
        "MobileNetV2": lambda w, d: mobilenetv2.MobileNetV2(
            num_classes=10,
            width_mult=w / 16,
            inverted_residual_setting=[[1, 16, 1, 1], [6, 32, d, 2], [6, 64, d, 2]],
        ),
        "ShuffleNetV2": lambda w, d: shufflenetv2.ShuffleNetV2(
            [d, d, d], [w, 2 * w, 4 * w, 8 * w, 16 * w], num_classes=10
        ),
        "MaxViT": lambda w, d: maxvit.MaxVit(
            (32, 32), w, 4, [w, 2 * w], [d, d], 8, 0.0, num_classes=10
        ),
        "DenseNet": lambda w, d: tvd.DenseNet(
            growth_rate=w // 2, block_config=(d, d), num_init_features=w, num_classes=10
        ),
    }
    for name, make in makes.items():
        yield Case(package="torchvision", name=name, make=make, inputs=(PIXELS,))


def of_diffusers() -> Iterator[Case]:
    """Diffusion transformers, UNets and an autoencoder of diffusers."""
    import diffusers as df

    makes: dict[str, tuple[Callable[[int, int], nn.Module], dict[str, Tensor]]] = {
        "DiT": (
            lambda w, d: df.DiTTransformer2DModel(
                num_attention_heads=w // 8,
                attention_head_dim=8,
                in_channels=4,
                num_layers=d,
                sample_size=8,
                num_embeds_ada_norm=10,
                norm_num_groups=4,
            ),
            {"hidden_states": LATENTS, "timestep": LABELS, "class_labels": LABELS},
        ),
        "PixArt": (
            lambda w, d: df.PixArtTransformer2DModel(
                num_attention_heads=w // 8,
                attention_head_dim=8,
                in_channels=4,
                num_layers=d,
                sample_size=8,
                cross_attention_dim=w,
                caption_channels=16,
                norm_num_groups=4,
            ),
            {"hidden_states": LATENTS, "encoder_hidden_states": WORDS, "timestep": LABELS},
        ),
        "SD3": (
            lambda w, d: df.SD3Transformer2DModel(
                sample_size=8,
                in_channels=4,
                num_layers=d,
                attention_head_dim=8,
                num_attention_heads=w // 8,
                joint_attention_dim=16,
                caption_projection_dim=w,
                pooled_projection_dim=16,
                out_channels=4,
                pos_embed_max_size=8,
            ),
            {
                "hidden_states": LATENTS,
                "encoder_hidden_states": WORDS,
                "pooled_projections": torch.zeros(2, 16),
                "timestep": torch.zeros(2),
            },
        ),
        "Flux": (
            lambda w, d: df.FluxTransformer2DModel(
                in_channels=4,
                num_layers=d,
                num_single_layers=d,
                attention_head_dim=8,
                num_attention_heads=w // 8,
                joint_attention_dim=16,
                pooled_projection_dim=16,
                axes_dims_rope=(4, 2, 2),
            ),
            {
                "hidden_states": torch.zeros(2, 8, 4),
                "encoder_hidden_states": WORDS,
                "pooled_projections": torch.zeros(2, 16),
                "timestep": torch.zeros(2),
                "img_ids": torch.zeros(8, 3),
                "txt_ids": torch.zeros(5, 3),
            },
        ),
        "AuraFlow": (
            lambda w, d: df.AuraFlowTransformer2DModel(
                sample_size=8,
                patch_size=2,
                in_channels=4,
                num_mmdit_layers=d,
                num_single_dit_layers=d,
                attention_head_dim=8,
                num_attention_heads=w // 8,
                joint_attention_dim=16,
                caption_projection_dim=w,
                pos_embed_max_size=64,
            ),
            {"hidden_states": LATENTS, "encoder_hidden_states": WORDS, "timestep": torch.zeros(2)},
        ),
        "UNet2D": (
            lambda w, d: df.UNet2DModel(
                sample_size=8,
                in_channels=3,
                out_channels=3,
                layers_per_block=d,
                block_out_channels=(w, 2 * w),
                down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                up_block_types=("AttnUpBlock2D", "UpBlock2D"),
                norm_num_groups=4,
                attention_head_dim=8,
            ),
            {"sample": torch.zeros(2, 3, 8, 8), "timestep": torch.zeros(2)},
        ),
        "UNet2DCondition": (
            lambda w, d: df.UNet2DConditionModel(
                sample_size=8,
                in_channels=3,
                out_channels=3,
                layers_per_block=d,
                block_out_channels=(w, 2 * w),
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
                norm_num_groups=4,
                attention_head_dim=8,
                cross_attention_dim=16,
            ),
            {
                "sample": torch.zeros(2, 3, 8, 8),
                "timestep": torch.zeros(2),
                "encoder_hidden_states": WORDS,
            },
        ),
        "Prior": (
            lambda w, d: df.PriorTransformer(
                num_attention_heads=w // 8,
                attention_head_dim=8,
                num_layers=d,
                embedding_dim=16,
                num_embeddings=5,
                additional_embeddings=4,
            ),
            {
                "hidden_states": torch.zeros(2, 16),
                "timestep": torch.zeros(2),
                "proj_embedding": torch.zeros(2, 16),
                "encoder_hidden_states": WORDS,
            },
        ),
        "Wan": (
            lambda w, d: df.WanTransformer3DModel(
                patch_size=(1, 2, 2),
                num_attention_heads=w // 16,
                attention_head_dim=16,
                in_channels=4,
                out_channels=4,
                text_dim=16,
                freq_dim=16,
                ffn_dim=4 * w,
                num_layers=d,
                rope_max_seq_len=32,
            ),
            {
                "hidden_states": torch.zeros(2, 4, 1, 8, 8),
                "timestep": torch.zeros(2),
                "encoder_hidden_states": WORDS,
            },
        ),
        "Sana": (
            lambda w, d: df.SanaTransformer2DModel(
                in_channels=4,
                out_channels=4,
                num_attention_heads=w // 8,
                attention_head_dim=8,
                num_layers=d,
                num_cross_attention_heads=w // 8,
                cross_attention_head_dim=8,
                cross_attention_dim=w,
                caption_channels=16,
                sample_size=8,
            ),
            {"hidden_states": LATENTS, "timestep": torch.zeros(2), "encoder_hidden_states": WORDS},
        ),
        "AutoencoderKL": (
            lambda w, d: df.AutoencoderKL(
                block_out_channels=(w, w),
                down_block_types=("DownEncoderBlock2D",) * 2,
                up_block_types=("UpDecoderBlock2D",) * 2,
                layers_per_block=d,
                norm_num_groups=4,
                latent_channels=4,
            ),
            {"sample": torch.zeros(2, 3, 16, 16)},
        ),
    }
    for name, (make, inputs) in makes.items():
        yield Case(package="diffusers", name=name, make=make, inputs=inputs)


def of_plain_torch() -> Iterator[Case]:
    """The plain models that the check is tried on."""
    for name, model in PLAIN.items():
        inputs, _ = model.batch(torch.Generator().manual_seed(0))
        yield Case(package="plain torch", name=name, make=model.make, inputs=(inputs,))


def of_hand() -> Iterator[Case]:
    """What people write themselves: ``tests.zoo.by_hand``."""
    for name, (make, inputs) in BY_HAND.items():
        yield Case(package="by hand", name=name, make=make, inputs=inputs)


def of_further() -> Iterator[Case]:
    """Further architectures, tried while the library was mended: ``tests.zoo.further``."""
    from tests.zoo.further import further

    return further()


def of_fresh() -> Iterator[Case]:
    """Of packages that were chosen before any result, and planned afterwards: ``zoo.fresh``."""
    from tests.zoo.fresh import fresh

    return fresh()


def of_thirty() -> Iterator[Case]:
    """Thirty more, chosen likewise and later: ``zoo.thirty``."""
    from tests.zoo.thirty import thirty

    return thirty()


def of_later() -> Iterator[Case]:
    """Thirty-two of classes that no list had before, chosen likewise: ``zoo.later``."""
    from tests.zoo.later import later

    return later()


def of_unseen() -> Iterator[Case]:
    """Twenty-four of packages that no list had before, chosen likewise: ``zoo.unseen``."""
    from tests.zoo.unseen import unseen

    return unseen()


def of_blind() -> Iterator[Case]:
    """Thirty-nine more, of packages and by hand, chosen likewise: ``zoo.blind``."""
    from tests.zoo.blind import blind

    return blind()


def of_sealed() -> Iterator[Case]:
    """Twenty-five more, committed before any plan of them: ``zoo.sealed``."""
    from tests.zoo.sealed import sealed

    return sealed()


PACKAGES: dict[str, Callable[[], Iterator[Case]]] = {
    "plain torch": of_plain_torch,
    "by hand": of_hand,
    "transformers": of_transformers,
    "timm": of_timm,
    "torchvision": of_torchvision,
    "diffusers": of_diffusers,
    "further": of_further,
    "fresh": of_fresh,
    "thirty": of_thirty,
    "later": of_later,
    "unseen": of_unseen,
    "blind": of_blind,
    "sealed": of_sealed,
}
_ALWAYS = ("plain torch", "by hand", "further", "fresh", "thirty", "later", "unseen", "blind")


def installed(package: str) -> bool:
    """Whether the models of a package can be built here."""
    return package in _ALWAYS or importlib.util.find_spec(package) is not None


def architectures(packages: tuple[str, ...] = tuple(PACKAGES)) -> Iterator[Case]:
    """Every architecture of the packages that are installed."""
    for package in packages:
        if installed(package):
            yield from PACKAGES[package]()
