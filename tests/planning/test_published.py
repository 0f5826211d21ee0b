"""Published tables, row by row, on models: what a plan prescribes is what the source prints."""

import pytest
import torch
from planning_zoo import RMSNorm, SwiGLU, Transformer, tokens, traced
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import Where
from depthmup.rules import Family

M, R = 4, 2  # CompleteP's worked example


class LlamaBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.mlp = SwiGLU(width)

    def forward(self, x):
        b, t, n = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(b, t, -1, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, n))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Embedding(32, width)
        self.layers = nn.ModuleList(LlamaBlock(width) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, 32, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


# What each model calls the parts of the tables.
PARTS = {
    "llama": {
        "make": Llama,
        "embedding": ["embed.weight"],
        "hidden": ["layers.3.q.weight", "layers.0.o.weight", "layers.1.mlp.gate.weight"],
        "last": ["layers.0.o.weight", "layers.3.mlp.down.weight"],
        "in-branch vector": ["layers.2.norm1.weight", "layers.2.q.bias", "layers.0.o.bias"],
        "final norm": ["norm.weight"],
        "readout": ["head.weight"],
    },
    "gpt2": {
        "make": Transformer,
        "embedding": ["tokens.weight", "positions"],
        "hidden": ["blocks.3.attention.qkv.weight", "blocks.0.mlp.2.weight"],
        "last": ["blocks.1.attention.proj.weight", "blocks.0.mlp.2.weight"],
        "in-branch vector": ["blocks.2.norm1.weight", "blocks.2.norm2.bias", "blocks.0.mlp.0.bias"],
        "final norm": ["norm.weight", "norm.bias"],
        "readout": ["head.weight"],
    },
}


def plan_of(model, scheme, optimizer="adamw", *, folding=False, m=M, r=R, **run):
    make, sizes = PARTS[model]["make"], ((8 * m, 2 * r), (8, 2))
    with torch.device("meta"):
        target, base = (make(*size) for size in sizes)
        options = traced(make, *sizes, tokens(), **run)
    return depthmup.plan(
        target, base=base, scheme=scheme, optimizer=optimizer, example_inputs=tokens(),
        folding=folding, options=options,
    ), target  # fmt: skip


def rows(plan, model, part):
    return [plan[name] for name in PARTS[model][part]]


def settings(plan, target, **base):
    return {
        name: group for group in plan.param_groups(target, **base) for name in group["param_names"]
    }


def multiplier(plan, where):
    values = {m.value for m in plan.multipliers if m.where is where}
    assert len(values) <= 1
    return values.pop() if values else 1.0


@pytest.mark.parametrize("model", PARTS)
class TestCompleteP:
    """arXiv 2505.01618 Table 1 and its worked example: m = 4, r = 2, lr 1e-3, decay 0.1."""

    def test_alpha_one(self, model):
        plan, target = plan_of(model, "completep")
        groups = settings(plan, target, lr=1e-3, weight_decay=0.1, eps=1e-8)
        for name in PARTS[model]["hidden"]:
            assert groups[name]["lr"] == approx(2.5e-4, rel=1e-12)
            assert groups[name]["weight_decay"] == approx(0.4, rel=1e-12)
            assert groups[name]["eps"] == approx(1e-8 / 8, rel=1e-12)
            assert plan[name].init ** 2 == approx(1 / M, rel=1e-12)
        for name in PARTS[model]["in-branch vector"]:
            assert (groups[name]["lr"], groups[name]["weight_decay"]) == (1e-3, 0.1)
            assert groups[name]["eps"] == approx(1e-8 / 8, rel=1e-12)
        for part in ("embedding", "final norm", "readout"):
            for name in PARTS[model][part]:
                result = groups[name]["lr"], groups[name]["weight_decay"], groups[name]["eps"]
                assert result == (1e-3, 0.1, 1e-8)
                assert plan[name].init == 1
        assert multiplier(plan, Where.BRANCH) == 0.5
        assert multiplier(plan, Where.READOUT) == 1 / M

    def test_alpha_one_half(self, model):
        plan, target = plan_of(model, depthmup.rules.completep("1/2"))
        groups = settings(plan, target, lr=1e-3, weight_decay=0.1, eps=1.0)
        for name in PARTS[model]["hidden"]:
            assert groups[name]["lr"] == approx(1.768e-4, rel=1e-3)
            assert groups[name]["eps"] == approx(0.1768, rel=1e-3)
        for name in PARTS[model]["in-branch vector"]:
            assert groups[name]["lr"] == approx(7.07e-4, rel=1e-3)
        assert multiplier(plan, Where.BRANCH) == approx(0.7071, rel=1e-4)


@pytest.mark.parametrize("model", PARTS)
def test_tp6_tables_1_and_2(model):
    """Variances 1, 1/n, 1/n^2 and Adam rates 1, 1/n, 1/n for input, hidden, output; a branch is
    multiplied by L^-1/2, and Adam's in-branch rates are too, SGD's are not."""
    plan, _ = plan_of(model, "depth-mup", "adamw")
    assert multiplier(plan, Where.BRANCH) == approx(R**-0.5, rel=1e-12)
    for part, variance, rate in (
        ("embedding", 1, 1),
        ("hidden", 1 / M, R**-0.5 / M),
        ("readout", 1 / M**2, 1 / M),
    ):
        for p in rows(plan, model, part):
            assert (p.init**2, p.lr) == approx((variance, rate), rel=1e-12)
    plan, _ = plan_of(model, "depth-mup", "sgd")
    for part, rate in (("embedding", M), ("hidden", 1), ("readout", 1 / M)):
        assert [p.lr for p in rows(plan, model, part)] == approx(
            [rate] * len(rows(plan, model, part))
        )


@pytest.mark.parametrize("model", PARTS)
def test_tp5_table_8_allows_tying(model):
    """Output variance 1, multiplier 1/n, SGD rate n, Adam rate 1."""
    for optimizer, rate in (("adamw", 1), ("sgd", M)):
        plan, _ = plan_of(model, "mup", optimizer, r=1)
        (p,) = rows(plan, model, "readout")
        assert (p.init, p.lr, multiplier(plan, Where.READOUT)) == approx((1, rate, 1 / M))


@pytest.mark.parametrize("model", PARTS)
@pytest.mark.parametrize(
    ("scheme", "branch", "entrywise", "raw"),
    [
        ("depth-mup", -0.5, -0.5, 0),
        ("ode", -1, 0, 1),
        ("completep", -1, 0, 1),
        ("block-multiplier", -0.5, 0, 0.5),
        ("sp", 0, 0, 0),
        ("mup", 0, 0, 0),
        ("3/4,1/4", -0.75, -0.25, 0.5),
    ],
)
def test_depth_factors(model, scheme, branch, entrywise, raw):
    for optimizer, exponent in (("adamw", entrywise), ("sgd", raw), ("muon", entrywise)):
        plan, _ = plan_of(model, scheme, optimizer, m=1)
        assert multiplier(plan, Where.BRANCH) == approx(R**branch, rel=1e-12)
        for p in rows(plan, model, "hidden"):
            assert p.lr == approx(R**exponent, rel=1e-12)
            assert p.init == 1
        for part in ("embedding", "final norm", "readout"):
            for p in rows(plan, model, part):
                assert (p.lr, p.epsilon, p.decay, p.init) == (1, 1, 1, 1)


@pytest.mark.parametrize("model", PARTS)
def test_spectral_condition(model):
    """arXiv 2603.00541: Muon's hidden rate eta, Muon-Kimi's eta/sqrt(m), at alpha = 1; and AdamW
    beside it as if alone."""
    adamw, _ = plan_of(model, "ode", "adamw")
    for optimizer, rate in (("muon", 1), ("muon-rms", M**-0.5)):
        plan, _ = plan_of(model, "ode", optimizer)
        for p in rows(plan, model, "hidden"):
            assert p.family is Family(plan.family)
            assert p.lr == approx(rate, rel=1e-12)
        for part in ("embedding", "in-branch vector", "final norm", "readout"):
            for p in rows(plan, model, part):
                assert p.family is Family.ENTRYWISE
                assert (p.lr, p.epsilon) == (adamw[p.name].lr, adamw[p.name].epsilon)


@pytest.mark.parametrize("model", PARTS)
def test_folding_multiplies_the_last_matrix_only(model):
    explicit, _ = plan_of(model, "completep")
    folded, _ = plan_of(model, "completep", folding=True)
    for p in folded.prescriptions:
        q = explicit[p.name]
        expected = 1 / M if p.name in PARTS[model]["readout"] else 0.5 if p.role.last else 1.0
        assert p.folded == approx(expected)
        assert (p.init, p.lr) == approx((q.init * p.folded, q.lr * p.folded))
        assert (p.epsilon, p.decay) == approx((q.epsilon / p.folded, q.decay / p.folded))
    assert {p.name for p in folded.prescriptions if p.role.last} >= set(PARTS[model]["last"])


def test_batch_and_duration_of_complete_dp():
    """Rates and decays times sqrt(b/d), epsilon times its inverse, 1 - beta times b/d."""
    plain, _ = plan_of("llama", "complete-dp")
    plan, target = plan_of("llama", "complete-dp", batch=8, duration=2)
    for p, q in zip(plan.prescriptions, plain.prescriptions, strict=True):
        assert (p.lr, p.epsilon) == approx((2 * q.lr, q.epsilon / 2))
    (group, *_) = plan.param_groups(target, lr=1.0, betas=(0.9, 0.99))
    assert group["betas"] == approx((0.6, 0.96))
    with pytest.raises(ValueError, match="Pass the base run's betas"):
        plan.param_groups(target, lr=1.0)


def test_a_run_rule_goes_with_every_scheme():
    plain, _ = plan_of("llama", "depth-mup")
    plan, target = plan_of("llama", "depth-mup", batch=8, duration=2, run="sde")
    for p, q in zip(plan.prescriptions, plain.prescriptions, strict=True):
        assert (p.lr, p.epsilon, p.decay) == approx((2 * q.lr, q.epsilon / 2, 2 * q.decay))
    (group, *_) = plan.param_groups(target, lr=1.0, betas=(0.9, 0.99))
    assert group["betas"] == approx((0.6, 0.96))
    none, _ = plan_of("llama", "complete-dp", batch=8, duration=2, run="none")
    own, _ = plan_of("llama", "complete-dp")
    assert [p.lr for p in none.prescriptions] == [p.lr for p in own.prescriptions]


def test_a_half_life_of_beta2_moves_beta2_alone(tmp_path):
    """beta2^b: the same number of tokens until a square's weight has halved."""
    plan, target = plan_of("llama", "completep", batch=8, run="beta2-half-life")
    plain, _ = plan_of("llama", "completep")
    assert [(p.lr, p.decay) for p in plan.prescriptions] == [
        (p.lr, p.decay) for p in plain.prescriptions
    ]
    groups = plan.param_groups(target, lr=1.0, betas=(0.9, 0.999))
    assert groups[0]["betas"] == approx((0.9, 0.999**8), rel=1e-12)
    with pytest.raises(
        ValueError, match=r"takes beta2 to the power 8 .* Pass the base run's betas"
    ):
        plan.param_groups(target, lr=1.0)
    optimizer = torch.optim.AdamW(target.parameters(), lr=1.0, betas=(0.9, 0.999))
    plan.rescale(target, optimizer)
    assert optimizer.param_groups[0]["betas"] == approx((0.9, 0.999**8), rel=1e-12)
    plan.save(tmp_path / "plan.json")
    assert depthmup.Plan.load(tmp_path / "plan.json").log_beta2 == 8


def test_power_lines_lets_the_decay_follow_the_parameters():
    """tau = B / (lr decay D) = 1.084 (D / N)^-0.527, N counted in the model."""
    run = {"run": "power-lines", "batch": 2, "duration": 16}
    plan, target = plan_of("llama", "completep", **run)
    plain, _ = plan_of("llama", "completep")
    base = PARTS["llama"]["make"](8, 2)
    grown = sum(p.numel() for p in target.parameters()) / sum(p.numel() for p in base.parameters())
    assert grown > 8
    factor = 2 / 16 * (16 / grown) ** 0.527
    for p, q in zip(plan.prescriptions, plain.prescriptions, strict=True):
        assert p.lr == q.lr
        assert p.decay == approx(q.decay * factor, rel=1e-12)
    assert any("follow the number of parameters" in note for note in plan.notes)


def test_an_average_over_less_than_a_step_is_that_step():
    plan, target = plan_of("llama", "completep", batch=16, run="sde")
    groups = plan.param_groups(target, lr=1.0, betas=(0.9, 0.999))
    assert groups[0]["betas"] == approx((0.0, 0.984))  # and not −0.6, which AdamW refuses


def test_a_scheme_of_ones_own():
    """Three lines: exponents, a name, a source."""
    from fractions import Fraction

    mine = depthmup.rules.Scheme(
        name="mine", title="Mine", source="me", alpha=Fraction(2, 3), gamma=Fraction(1, 3)
    )
    plan, _ = plan_of("llama", mine)
    assert multiplier(plan, Where.BRANCH) == approx(R ** (-2 / 3))
    assert plan.scheme == "mine"
