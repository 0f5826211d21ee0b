"""The coordinate check along any axis of the factory: the number of experts, and others."""

import json

import numpy as np
import pytest
import torch
from mixtures import Layer
from torch import nn

from depthmup.cli.main import main
from depthmup.diagnostics import check, planned
from depthmup.diagnostics.networks import fresh
from depthmup.model import Model, resolved
from depthmup.records import Outcome
from depthmup.records.check import Check
from depthmup.records.codec import decode, strict
from depthmup.reports.check_page import check_page, growth_rows


def make(width, depth, experts=4, expert_width=16, scale=1):
    layers = (Layer(width, experts, experts // 2, expert_width, shared=False) for _ in range(depth))
    return nn.Sequential(nn.Linear(8, width), *layers, nn.LayerNorm(width), nn.Linear(width, 4))


def batch(generator):
    x = torch.randn(32, 8, generator=generator)
    return x, x[:, :4].argmax(-1)


EXPERTS = {"experts": (4, 8, 16, 32)}
MINE = Model(make, batch=batch, version="1")


def checked(along=EXPERTS, **options):
    sizes = {"widths": (32,), "depths": (2,), **along, "seeds": 3, "steps": 4}
    return check(MINE, **{"scheme": "completep+moe", **sizes, **options})


@pytest.fixture(scope="module")
def right():
    return checked()


def slopes(result, observable):
    return [e.estimate.value for e in result.exponents if e.observable == observable]


def too_fast(of):
    """A mistake: what ``of`` says learns E times as fast."""

    def prepare(model, plan, lr):
        (mixture,) = plan.mixtures
        optimizers = planned(model, plan, lr)
        names = {id(p): name for name, p in model.named_parameters()}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if any(of in names[id(p)] for p in group["params"]):
                    group["lr"] *= mixture.experts / mixture.base_experts
        return optimizers

    return prepare


def test_activations_are_flat_in_the_number_of_experts_under_the_right_rule(right):
    assert right.outcome is Outcome.PASS
    assert {e.axis for e in right.exponents} == {"experts"}
    for observable in ("stream", "stream change", "logits change", "update effect"):
        assert all(abs(slope) < 0.25 for slope in slopes(right, observable)), observable
    # At the start a mean over K independent experts is K^-1/2 times one of them: a bound is met.
    (start,) = slopes(right, "branch output")
    assert -0.6 < start < -0.4


def test_a_planted_wrong_rule_is_seen_and_named():
    result = checked(prepare=too_fast("experts"))
    assert result.outcome is Outcome.FAIL
    effects = {e.module: e for e in result.failures if e.observable == "update effect"}
    assert "*.experts.*.down.weight" in effects
    assert min(slopes(result, "stream change")) > 0.5
    assert "grows with experts" in effects["*.experts.*.down.weight"].cause


def test_experts_in_one_tensor_are_judged_by_their_entries():
    transformers = pytest.importorskip("transformers", reason="pip install 'depthmup[hf]'")
    transformers.logging.set_verbosity_error()

    def decoder(width, depth, experts):
        config = transformers.Qwen3MoeConfig(
            vocab_size=64, use_cache=False, hidden_size=width, num_hidden_layers=depth,
            num_attention_heads=width // 8, num_key_value_heads=width // 16, head_dim=8,
            num_experts=experts, num_experts_per_tok=experts // 2, moe_intermediate_size=width,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        return transformers.Qwen3MoeForCausalLM(config)

    def tokens(generator):
        ids = torch.randint(0, 64, (4, 16), generator=generator)
        return {"input_ids": ids}, ids

    def loss(output, ids):
        return nn.functional.cross_entropy(
            output.logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        )

    model = Model(decoder, batch=tokens, loss=loss, version="1")
    results = [
        check(model, scheme="completep+moe", widths=(32,), depths=(1,), **EXPERTS, seeds=3,
              steps=3, prepare=prepare)
        for prepare in (planned, too_fast("experts"))
    ]  # fmt: skip
    outcomes = [
        {e.module: e.outcome for e in result.exponents if e.observable == "entry update"}
        for result in results
    ]
    name = "model.layers.*.mlp.experts.down_proj"
    assert [o[name] for o in outcomes] == [Outcome.PASS, Outcome.FAIL]
    assert [result.outcome for result in results] == [Outcome.PASS, Outcome.FAIL]


def test_the_width_of_experts_is_an_axis_like_any_other():
    """What a whole network does is judged; the same networks tell a planted mistake apart."""

    def prepare(model, plan, lr):
        optimizers = planned(model, plan, lr)
        names = {id(p): name for name, p in model.named_parameters()}
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            if any("experts" in names[id(p)] for p in group["params"]):
                group["lr"] *= plan.mixtures[0].fan_in
        return optimizers

    along = {"expert_width": (16, 32, 64, 128)}
    right, wrong = checked(along, steps=2), checked(along, steps=2, prepare=prepare)
    judged = {e.observable for e in right.exponents if e.outcome is not Outcome.SHOWN}
    assert judged == {"stream", "stream change", "branch output", "branch change", "logits change"}
    assert right.outcome is not Outcome.FAIL
    for observable in ("stream change", "branch change", "logits change"):
        pairs = zip(slopes(right, observable), slopes(wrong, observable), strict=True)
        assert all(b - a > 0.25 for a, b in pairs), observable


def test_sizes_may_be_numbers_of_numpy():
    sizes = np.array([2, 4, 8])
    result = checked({"experts": sizes}, widths=(16,), depths=(1,), steps=1, seeds=2)
    assert result.along == {"experts": (2, 4, 8)}


def test_width_depth_and_experts_together_are_told_apart():
    result = checked(
        widths=(16, 32, 64), depths=(2, 4, 8), along={"experts": (4, 8, 16)}, steps=1, seeds=2
    )
    assert {e.axis for e in result.exponents} == {"width", "depth", "experts"}
    (router,) = (
        e for e in result.exponents
        if (e.axis, e.observable, e.module) == ("width", "pre-activation", "*.router")
    )  # fmt: skip
    assert router.expected == "-1/2"  # it starts at 1/n
    experts = next(e for e in result.exponents if e.axis == "experts")
    width = next(e for e in result.exponents if e.axis == "width")
    assert {row["size"] for row in growth_rows(result, experts)} == {4, 8, 16}
    assert {row["size"] for row in growth_rows(result, width)} == {16, 32, 64}


def test_page_text_and_record_know_the_axis(right):
    assert "experts" in right.summary(everything=True)
    page = check_page(right)
    assert "experts" in page
    assert decode(Check, strict(right), "the check") == right
    assert {size.along["experts"] for size in right.sizes} == {4, 8, 16, 32}


@pytest.mark.parametrize(
    ("along", "says"),
    [
        ({"heads": (2, 4, 8)}, "parameter heads"),
        ({"experts": (4, 8)}, "at least 3 experts"),
        ({"experts": (4, 4, 8)}, "experts to differ"),
        ({"width": (4, 8, 16)}, "other than width and depth; got width"),
        ({"seed": 5}, "sizes along seed as whole numbers.* Other arguments of check: .*seeds"),
        ({"experts": (1.5, 3, 6)}, "whole numbers"),
        ({"batch": (4, 8, 16)}, "got batch"),
    ],
)
def test_an_axis_that_cannot_be_checked_is_refused(along, says):
    with pytest.raises(ValueError, match=says):
        checked(along)


def test_an_axis_that_changes_nothing_is_refused():
    with pytest.raises(ValueError, match="The factory ignores its scale"):
        checked({"scale": (1, 2, 4)})


def test_on_the_command_line(tmp_path, capsys, monkeypatch):
    source = tmp_path / "mine.py"
    source.write_text(
        "import torch\nfrom mixtures import custom\n"
        "def make(width, depth, experts):\n"
        "    return custom(width, depth, experts, experts // 2, 16, shared=False)\n"
        "def batch(generator):\n"
        "    x = torch.randn(16, 8, generator=generator)\n"
        "    return x, x[:, :4].argmax(-1)\n"
    )
    options = ["--widths", "16", "--depths", "2", "--along", "experts=2,4,8", "--seeds", "2"]
    code = main(["check", "--model", f"{source}:make", "--scheme", "completep+moe", "--steps", "1",
                 *options, "--json"])  # fmt: skip
    assert code in (0, 5)
    result = json.loads(capsys.readouterr().out)
    assert result["along"] == {"experts": [2, 4, 8]}
    options[options.index("experts=2,4,8")] = "seeds=2,4,8"
    assert main(["check", "--model", f"{source}:make", *options]) == 2
    assert "no option of check; got seeds" in capsys.readouterr().err


def test_width_and_depth_go_by_their_names():
    """Not by position, which gave ``make(depth, width)`` one for the other without a word."""

    def of_depth_and_width(depth, width):
        return nn.Linear(width, depth)

    own = resolved(Model(of_depth_and_width, batch=batch, version="1"))
    network = fresh(own, {"width": 32, "depth": 2}, 0)
    assert network.weight.shape == (2, 32)
