"""Published architectures, planned: which are right, which are refused and why, which are wrong.

    python -m benchmarks.zoo [NAME ...]

Every architecture is built from its configuration with random weights, in two sizes. It is planned
under seven pairs of scheme and optimizer; the folded form is trained beside the explicit one, which
multiplies in the forward pass and is what the theory states; and every factor is computed again
from the role and the ratios alone, by a second reading of the rules. Prints a Markdown table.
"""

import logging
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import depthmup
from depthmup.planning import NotUnderstood, Plan, Prescription, TraceError, UnrelatedModels
from depthmup.rules import Family, Kind

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


def planned(
    architecture: Architecture, scheme: str, optimizer: str, *, device: str = "cpu", **options: Any
) -> tuple[nn.Module, Plan]:
    """A model of the target size on this device, and its plan."""
    with torch.device(device):
        model, base = architecture.make(*TARGET), architecture.make(*BASE)
    plan = depthmup.plan(
        model, base=base, scheme=scheme, optimizer=optimizer,
        example_inputs=dict(architecture.inputs), **options,
    )  # fmt: skip
    return model, plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """Initial scale, learning rate, epsilon and decay, as multiples of the base's."""

    init: float
    lr: float
    epsilon: float
    decay: float


# (alpha, gamma), and whether an untied readout keeps its multiplier in the forward pass.
_READING = {
    "depth-mup": (0.5, 0.5, False),
    "completep": (1.0, 0.0, True),
    "complete-dp": (1.0, 0.0, False),
    "mup": (0.0, 0.0, True),
}


def recomputed(p: Prescription, scheme: str) -> Factors | None:
    """The factors of one parameter from its role and ratios alone: a second reading of the rules.

    None where this reading has nothing to say: SP, and Muon's matrices of which one side grows.
    """
    if scheme not in _READING:
        return None
    alpha, gamma, multiplier = _READING[scheme]
    into, out, r = p.ratios.fan_in, p.ratios.fan_out, p.ratios.depth
    raw, spectral = p.family is Family.RAW, p.family.matrices_only
    kind, forward = p.role.kind, multiplier or p.role.tied
    if spectral and (kind is not Kind.HIDDEN or into != out):
        return None
    # Initial scale, gradient and wanted update of each kind, as powers of the width.
    init, gradient, update = {
        Kind.INPUT: (1.0, 1 / out, 1.0),
        Kind.HIDDEN: (into**-0.5, 1 / out, 1 / into),
        Kind.READOUT: (1.0, 1 / into, 1.0) if forward else (1 / into, 1.0, 1 / into),
        Kind.VECTOR: (1.0, 1 / out, 1.0),
    }[kind]
    if spectral:
        update = 1.0
    if p.role.in_branch:
        gradient *= r**-alpha * (r if p.role.shared and alpha + gamma else 1.0)
        update *= r**-gamma
    lr = update / gradient if raw else update
    epsilon, decay = gradient, 1.0 if kind is Kind.VECTOR and not raw else 1 / lr
    if scheme == "completep" and not (raw or spectral):  # its table is AdamW's
        epsilon = gradient if p.role.in_branch else 1.0
        decay = into if kind is Kind.HIDDEN else 1.0
    carried, step = p.folded, p.folded**2 if raw else p.folded
    if spectral:  # its epsilon stands beside the norm of the whole gradient
        epsilon = gradient * math.sqrt(into * out)
    return Factors(init=init * carried, lr=lr * step, epsilon=epsilon / carried, decay=decay / step)


def trajectory(architecture: Architecture, *, folding: bool, steps: int = 3) -> Tensor:
    """Outputs along a few steps of AdamW in double precision, from the same weights in each form.

    Shape [steps, entries of the output].
    """
    torch.manual_seed(0)
    model, plan = planned(architecture, "completep", "adamw", folding=folding)
    model.double()
    plan.initialize(model)
    model.eval()  # no dropout
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-3, eps=1e-3, weight_decay=0.1))
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in architecture.inputs.items()}
    outputs = []
    for _ in range(steps):
        logits = model(**inputs).logits.flatten()
        outputs.append(logits.detach())
        optimizer.zero_grad()
        (logits - torch.linspace(-1, 1, len(logits))).square().sum().backward()
        optimizer.step()
    return torch.stack(outputs)


def verdict(architecture: Architecture) -> tuple[Verdict, int]:
    """Plan one architecture under all pairs, and check what can be; also counts the factors."""
    count = 0
    refused = (NotUnderstood, TraceError, UnrelatedModels)
    for scheme, optimizer in PAIRS:
        try:
            _, plan = planned(architecture, scheme, optimizer, device="meta")
        except refused as problem:
            why = f"{type(problem).__name__}: {str(problem).split('. ')[0]}"
            return Verdict(name=architecture.name, status="refused", why=why), count
        for p in plan.prescriptions:
            expected = recomputed(p, scheme)
            for name in ("init", "lr", "epsilon", "decay") if expected else ():
                count += 1
                if not math.isclose(getattr(p, name), getattr(expected, name), rel_tol=1e-9):
                    why = f"{name} of {p.name} under {scheme} with {optimizer}"
                    return Verdict(name=architecture.name, status="wrong", why=why), count
    try:
        folded, explicit = (trajectory(architecture, folding=f) for f in (True, False))
    except (RuntimeError, ValueError) as problem:
        why = f"not trained: {str(problem).splitlines()[0][:80]}"
        return Verdict(name=architecture.name, status="right", why=why), count
    # Double precision, three steps: rounding is 1e-12; what computes in single precision, 1e-6.
    error = float((folded - explicit).abs().max() / explicit.square().mean().sqrt())
    status = "right" if error < 1e-5 else "wrong"
    why = f"folded and explicit outputs differ by {error:.0e}"
    return Verdict(name=architecture.name, status=status, why=why), count


def table(names: Sequence[str] = ()) -> list[str]:
    """The zoo as Markdown: one line for each architecture, and the counts."""
    lines = ["| architecture | planned | why, or how exactly |", "| --- | --- | --- |"]
    statuses: Counter[str] = Counter()
    total = 0
    for architecture in architectures():
        if names and architecture.name not in names:
            continue
        try:
            with torch.device("meta"):
                architecture.make(*BASE), architecture.make(*TARGET)
        except Exception:  # this version of transformers builds it from other settings
            statuses["not built"] += 1
            continue
        result, count = verdict(architecture)
        statuses[result.status] += 1
        total += count
        lines.append(f"| {result.name} | {result.status} | {result.why} |")
        print(lines[-1], file=sys.stderr, flush=True)
    counts = ", ".join(f"{n} {status}" for status, n in statuses.most_common())
    return [*lines, "", f"{counts}; {total} factors computed again."]


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    print("\n".join(table(sys.argv[1:])))


if __name__ == "__main__":
    main()
