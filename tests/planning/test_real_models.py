"""Models of transformers from configurations, random weights: plan, train, load without us."""

import io

import pytest
import torch
from planning_zoo import ConvNeXt, ResNet
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import Where
from depthmup.planning.hooks import attached
from tests.zoo.case import Case

transformers = pytest.importorskip("transformers", reason="pip install 'depthmup[hf]'")
transformers.logging.set_verbosity_error()

TEXT = {"vocab_size": 64, "use_cache": False}
BASE, TARGET = (32, 2), (64, 4)


def built(name, config_name, **settings):
    config = getattr(transformers, config_name)(**settings)
    # Without special tokens a smaller vocabulary is no error.
    for token in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if getattr(config, token, None) is not None and getattr(config, token) >= 64:
            setattr(config, token, 0)
    return getattr(transformers, name)(config)


def llama(n, depth):
    return built(
        "LlamaForCausalLM", "LlamaConfig", **TEXT, hidden_size=n, intermediate_size=3 * n,
        num_hidden_layers=depth, num_attention_heads=n // 8, num_key_value_heads=n // 16,
        head_dim=8,
    )  # fmt: skip


def qwen3(n, depth):
    return built(
        "Qwen3ForCausalLM", "Qwen3Config", **TEXT, hidden_size=n, intermediate_size=3 * n,
        num_hidden_layers=depth, num_attention_heads=n // 8, num_key_value_heads=n // 16,
        head_dim=8,
    )  # fmt: skip


def gpt2(n, depth):
    return built(
        "GPT2LMHeadModel", "GPT2Config", **TEXT, n_positions=32, n_embd=n, n_layer=depth,
        n_head=n // 8, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def neox(n, depth):
    return built(
        "GPTNeoXForCausalLM", "GPTNeoXConfig", **TEXT, hidden_size=n, intermediate_size=4 * n,
        num_hidden_layers=depth, num_attention_heads=n // 8,
    )  # fmt: skip


def mixtral(n, depth):
    return built(
        "MixtralForCausalLM", "MixtralConfig", **TEXT, hidden_size=n, intermediate_size=2 * n,
        num_hidden_layers=depth, num_attention_heads=n // 8, num_key_value_heads=n // 16,
        num_local_experts=4, num_experts_per_tok=2,
    )  # fmt: skip


def vit(n, depth):
    return built(
        "ViTForImageClassification", "ViTConfig", hidden_size=n, num_hidden_layers=depth,
        num_attention_heads=n // 8, intermediate_size=4 * n, image_size=16, patch_size=4,
        num_labels=10,
    )  # fmt: skip


def bert(n, depth):
    return built(
        "BertForMaskedLM", "BertConfig", vocab_size=64, hidden_size=n, intermediate_size=4 * n,
        num_hidden_layers=depth, num_attention_heads=n // 8, max_position_embeddings=32,
    )  # fmt: skip


def t5(n, depth):
    return built(
        "T5ForConditionalGeneration", "T5Config", **TEXT, d_model=n, d_kv=8, d_ff=4 * n,
        num_layers=depth, num_heads=n // 8, decoder_start_token_id=0,
    )  # fmt: skip


def mamba(n, depth):
    return built(
        "MambaForCausalLM", "MambaConfig", **TEXT, hidden_size=n, num_hidden_layers=depth,
        state_size=4,
    )  # fmt: skip


IDS = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(0))
PIXELS = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(4)
TEXTS, PICTURES = {"input_ids": IDS, "labels": IDS}, {"pixel_values": PIXELS, "labels": LABELS}
# The branches of both streams.
BRANCHES = {
    llama: 8, qwen3: 8, gpt2: 8, neox: 4, mixtral: 8, vit: 8, bert: 8, t5: 8 + 12, mamba: 4
}  # fmt: skip
MODELS = {
    make.__name__: Case(
        name=make.__name__, make=make, inputs=PICTURES if make is vit else TEXTS, base=BASE,
        target=TARGET,
    )
    for make in BRANCHES
}  # fmt: skip
each = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)


@pytest.mark.long
@each
def test_plan_train_and_load_into_the_plain_class(case):
    """Folded, no multiplier is needed at inference; the last norm carries a tied readout's."""
    plan, (model, _) = case.plan("completep", proof="auto"), case.built(TARGET)
    branches = [m for m in plan.multipliers if m.where is Where.BRANCH]
    assert len(branches) == BRANCHES[case.make]
    assert all(m.folds and m.value == 0.5 for m in branches)
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=3e-3, weight_decay=0.1))
    losses = []
    for _ in range(10):
        loss = model(**case.inputs).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    plain = case.make(*TARGET)
    plain.load_state_dict(torch.load(file))
    model.eval(), plain.eval()
    with torch.no_grad():
        ours, theirs = (m(**case.inputs).logits for m in (model, plain))
    assert attached(model) == 0
    assert torch.equal(ours, theirs)


@pytest.mark.long
@each
def test_folded_equals_explicit(case):
    """The same losses, and none when a multiplier is left out."""
    results = []
    for folding, spoil in ((True, False), (False, False), (False, True)):
        plan, (model, _) = case.plan("completep", folding=folding), case.built(TARGET)
        dtype = torch.float32 if case.make is mixtral else torch.float64  # its kernel has no double
        plan.initialize(model.to(dtype))
        if spoil:
            plan.detach(model)
        optimizer = torch.optim.AdamW(plan.param_groups(model, lr=3e-3, eps=1e-3))
        inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in case.inputs.items()}
        losses = []
        for _ in range(4):
            torch.manual_seed(1)  # dropout
            loss = model(**inputs).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        results.append(losses)
    assert results[0] == approx(results[1], rel=1e-5 if case.make is mixtral else 1e-9)
    assert results[0] != approx(results[2], rel=1e-4)


def test_tied_roles_and_shared_tables():
    plan = MODELS["t5"].plan("completep")
    assert plan["shared.weight"].role.tied
    table = plan["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    assert table.role.shared
    assert not plan["encoder.final_layer_norm.weight"].role.in_branch
    assert plan["decoder.block.3.layer.1.EncDecAttention.k.weight"].role.in_branch
    readout = next(m for m in plan.multipliers if m.where is Where.READOUT)
    assert readout.own == approx(2**-0.5)  # T5 itself divides by sqrt(d_model)


def test_post_norm_is_said():
    plan = MODELS["bert"].plan("completep")
    assert any("post-norm" in note for note in plan.notes)


@pytest.mark.parametrize(("make", "count"), [(ResNet, 8), (ConvNeXt, 8)])
def test_convolutional_networks(make, count):
    torch.manual_seed(0)
    base, model = make(16, 2), make(32, 4)
    plan = depthmup.plan(
        model, base=base, scheme="completep", example_inputs=PIXELS, own_init="fan_in"
    )
    assert sum(bool(m.folds) for m in plan.multipliers if m.where is Where.BRANCH) == count
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-2, weight_decay=0.1))
    for _ in range(10):
        loss = nn.functional.cross_entropy(model(PIXELS), LABELS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    plain = make(32, 4)
    plain.load_state_dict(model.state_dict())
    assert torch.equal(plain.eval()(PIXELS), model.eval()(PIXELS))


def test_a_llama_of_width_8192_and_80_layers_in_seconds():
    """On the meta device, in a process of its own: under 20 s and 1 GB."""
    import re
    import subprocess
    import sys
    from pathlib import Path

    code = "from benchmarks.planning import plan_70b; print(plan_70b(80))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    said = re.search(r"(\d+) branches, .* \((.*) s of processor time\) with (.*) GB", result.stdout)
    assert said, result.stdout
    branches, seconds, peak = said.groups()
    assert int(branches) == 160
    assert float(seconds) < 20  # other processes may share the core
    assert float(peak) < 1
