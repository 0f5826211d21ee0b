"""Published architectures, planned: which are right, which are refused and why, which are wrong.

    python -m benchmarks.zoo [NAME ...]

Every architecture is built from its configuration with random weights, in two sizes. It is planned
under seven pairs of scheme and optimizer; the folded form is trained beside the explicit one, which
multiplies in the forward pass and is what the theory states; and every factor is computed again
from the role and the ratios alone, by a second reading of the rules. Prints a Markdown table.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import depthmup
from depthmup.planning import Plan

PAIRS = (
    ("depth-mup", "adamw"),
    ("depth-mup", "sgd"),
    ("depth-mup", "muon"),
    ("completep", "adamw"),
    ("complete-dp", "adamw"),
    ("mup", "adamw"),
    ("sp", "adamw"),
)
BASE, TARGET = (16, 2), (64, 6)
HEAD, VOCABULARY, LENGTH = 8, 64, 8
IDS = torch.randint(3, VOCABULARY, (2, LENGTH), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """One architecture: how to build it in any size, and the arguments of one call."""

    name: str
    make: Callable[[int, int], nn.Module]
    inputs: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What came of one architecture: ``right``, ``refused`` or ``wrong``, and why."""

    name: str
    status: str
    why: str = ""


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
    return kind(kind.config_class(**chosen))


def architectures() -> Iterator[Architecture]:
    both = {"input_ids": IDS, "decoder_input_ids": IDS}
    families = (
        (DECODERS, ("ForCausalLM", "LMHeadModel"), {"input_ids": IDS}),
        (ENCODERS, ("ForMaskedLM", "WithLMHeadModel"), {"input_ids": IDS}),
        (SEQUENCES, ("ForConditionalGeneration", "MTModel"), both),
        (VISION, ("ForImageClassification",), {"pixel_values": PIXELS}),
    )  # fmt: skip
    import transformers

    for names, endings, inputs in families:
        for name in names.split():
            found = [name + e for e in endings if hasattr(transformers, name + e)]
            if found:
                yield Architecture(
                    name=name,
                    make=lambda w, d, found=found[0]: built(found, w, d),
                    inputs=inputs,
                )


def planned(architecture: Architecture, scheme: str, optimizer: str, **options: Any) -> Plan:
    with torch.device("meta"):
        model, base = architecture.make(*TARGET), architecture.make(*BASE)
    return depthmup.plan(
        model, base=base, scheme=scheme, optimizer=optimizer,
        example_inputs=dict(architecture.inputs), own_init="fixed", **options,
    )  # fmt: skip
