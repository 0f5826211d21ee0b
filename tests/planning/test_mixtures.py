"""Mixtures of experts: routers and experts found in the dataflow, planned by published rules."""

import dataclasses
import gzip
import json
from math import sqrt
from pathlib import Path

import planning_zoo
import pytest
import torch
from mixtures import Layer, custom, stacked
from pytest import approx
from torch import nn

import depthmup
from depthmup.planning import NotUnderstood, Plan
from depthmup.rules import Kind, Part, Ratios, Role
from depthmup.tracing import read

X = torch.zeros(5, 8)
IDS = {"input_ids": torch.arange(1, 17).reshape(2, 8)}


def hugging_face(name, experts, width, **further):
    """A factory of a model of transformers, its code as it is."""

    def make(n, L, E=4, K=2, N=16):
        transformers = pytest.importorskip("transformers", reason="pip install 'depthmup[hf]'")
        transformers.logging.set_verbosity_error()
        settings = {
            "vocab_size": 64, "use_cache": False, "bos_token_id": 0, "eos_token_id": 0,
            "pad_token_id": 0, "hidden_size": n, "num_hidden_layers": L, "head_dim": 8,
            "num_attention_heads": n // 8, "num_key_value_heads": n // 16,
            "num_experts_per_tok": K, experts: E, width: N,
        }  # fmt: skip
        settings |= {k: value(n) if callable(value) else value for k, value in further.items()}
        config = getattr(transformers, f"{name}Config")(**settings)
        return getattr(transformers, f"{name}ForCausalLM")(config)

    return make


mixtral = hugging_face("Mixtral", "num_local_experts", "intermediate_size")
qwen3 = hugging_face("Qwen3Moe", "num_experts", "moe_intermediate_size")
qwen2 = hugging_face(
    "Qwen2Moe", "num_experts", "moe_intermediate_size",
    shared_expert_intermediate_size=lambda n: 2 * n,
)  # fmt: skip
gpt_oss = hugging_face("GptOss", "num_local_experts", "intermediate_size")
deepseek = hugging_face(
    "DeepseekV3", "n_routed_experts", "moe_intermediate_size", n_group=2, topk_group=1,
    first_k_dense_replace=0, kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=8,
    qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=lambda n: n // 8,
)  # fmt: skip

HUGGING_FACE = (mixtral, qwen3, qwen2, gpt_oss, deepseek)
BASE = {"n": 32, "L": 1, "E": 4, "K": 2, "N": 16}
SIZES = {
    "experts": {"E": 16, "K": 8},
    "expert width": {"N": 64},
    "width": {"n": 64},
    "all but experts": {"n": 64, "L": 2, "N": 64},
    "everything": {"n": 64, "L": 2, "E": 12, "K": 6, "N": 24},
    "alike": {"n": 128, "L": 2, "E": 16, "K": 8, "N": 64},
    "small experts": {"n": 128, "L": 2, "E": 16, "K": 8},
    "fixed experts": {"n": 128, "L": 2, "N": 64},
}


def planned(make, size, base=None, **options) -> Plan:
    inputs = IDS if make in HUGGING_FACE else X
    with torch.device("meta"):
        models = make(**{**BASE, **size}), make(**(base or BASE))
    options = {"optimizer": "adamw", "own_init": "fixed", "example_inputs": inputs, **options}
    return depthmup.plan(models[0], base=models[1], **options)


# The rules, read a second time: as the sources write them, in sizes and not in ratios. Adam's rows
# are (standard deviation, learning rate, epsilon); s = n^1/2 / N is alpha^-1 n^-1/2.
ROUTER_AND_EXPERTS = {
    "moe": lambda n, N, E: {
        "router": (1 / n, 1 / n, 1 / E),
        "up": (n**-0.5, 1 / n, 1 / (N * E)),
        "down": ((N / n) ** -1 * n**-0.5, (N / n) ** -1 / n, 1 / (n * E)),
    },
    "mssp": lambda n, N, E: {
        "router": (n**-0.5, 1 / n, 1 / E),
        "up": (n**-0.5, 1 / n, 1 / (n * E)),
        "down": (N**-0.5, 1 / N, 1 / (n * E)),
    },
    "mssp-small": lambda n, N, E: {
        "router": (n**-0.5, 1 / n, 1 / E),
        "up": (n**-0.5, 1 / n, 1 / E),
        "down": ((E / N) ** 0.5, 1.0, 1 / (n * E)),
    },
    "mssp-fixed": lambda n, N, E: {
        "router": (1 / n, 1 / n, 1.0),
        "up": (n**-0.5, 1 / n, 1 / n),
        "down": (N**-0.5, 1 / N, 1 / n),
    },
}
# The rates of SGD, from the same code's own table for it.
SGD = {
    "mssp": lambda n, N, E: {"router": 1.0, "up": E, "down": E},
    "mssp-small": lambda n, N, E: {"router": E / n, "up": E / n, "down": E * n},
    "mssp-fixed": lambda n, N, E: {"router": 1 / n, "up": 1.0, "down": 1.0},
}


def part_of(name):
    if "router" in name or "mlp.gate.weight" in name:
        return "router"
    if "experts" in name or name.split(".")[1:] in (["up"], ["down"]):
        return "down" if "down" in name else "up"
    return None


ENDS = ("lm_head.weight", "2.weight", "3.weight")  # the last, of one layer and of two


def dense(name, n, N, *, widening):
    """(standard deviation, learning rate, epsilon), and whether a branch ends in it; None: it lies
    outside of branches. ``widening``: which of n and N do."""
    if name in ENDS:
        return (1 / n, 1 / n, n), None  # 1/n on the logits, carried by the weight
    if name.count(".") == 1 or name in ("model.embed_tokens.weight", "model.norm.weight"):
        return (1.0, 1.0, 1.0), None
    # Norms of queries and keys have the size of a head.
    into, out = (n, 1) if "q_norm" in name or "k_norm" in name or "expert_gate" in name else (n, n)
    if "shared.up" in name:
        out = N
    if "shared.down" in name:
        into = N
    if name.endswith("bias") or "norm" in name:
        return (1.0, 1.0, 1 / out), "down" in name
    # From a growing to a fixed size: experts alone widen, or they do not, or a gate for all.
    narrows = out == 1 or widening == {"shared.down": "N", "shared.up": "n"}.get(name[2:-7])
    start = 1 / into if narrows else into**-0.5
    return (start, 1 / into, 1 / out), "down" in name or "o_proj" in name


def expected(name, rule, n, L, E, K, N, *, widening):
    """CompleteP (alpha = 1): branches times 1/L, folded into what they end in."""
    part = part_of(name)
    (std, lr, epsilon), last = dense(name, n, N, widening=widening)
    if part is not None:
        std, lr, epsilon = ROUTER_AND_EXPERTS[rule](n, N, E)[part]
        last = part == "down"
        if name.endswith("bias"):
            std, lr = 1.0, 1.0
    if last is None:
        return std, lr, epsilon, 1 / lr
    carried = 1 / L if last else 1.0
    matrix = not name.endswith("bias") and "norm" not in name
    decay = (1 / lr if matrix else 1.0) / carried
    return std * carried, lr * carried, epsilon / L / carried, decay


CASES = [
    (mixtral, "everything", "moe"),
    (mixtral, "experts", "moe"),
    (qwen3, "everything", "moe"),
    (qwen3, "expert width", "moe"),
    (qwen2, "everything", "moe"),
    (custom, "everything", "moe"),
    (stacked, "expert width", "moe"),
    (custom, "alike", "mssp"),
    (custom, "small experts", "mssp-small"),
    (custom, "fixed experts", "mssp-fixed"),
    (mixtral, "alike", "mssp"),
    (qwen3, "small experts", "mssp-small"),
    (qwen3, "fixed experts", "mssp-fixed"),
]


@pytest.mark.long
@pytest.mark.parametrize(("make", "size", "rule"), CASES)
def test_every_factor_is_that_of_a_second_reading_of_the_rules(make, size, rule):
    sizes = {**BASE, **SIZES[size]}
    if make is stacked:
        sizes["K"] = sizes["E"]
    plan = planned(make, sizes, scheme=f"completep+{rule}")
    parts, widening = set(), "".join(axis for axis in "nN" if sizes[axis] != BASE[axis])
    for p in plan.prescriptions:
        now, before = (expected(p.name, rule, **of, widening=widening) for of in (sizes, BASE))
        ratios = [a / b for a, b in zip(now, before, strict=True)]
        assert [p.init, p.lr, p.epsilon, p.decay] == approx(ratios, rel=1e-12), p.name
        parts.add(part_of(p.name))
    assert parts == {None, "router", "up", "down"}


@pytest.mark.parametrize(
    ("size", "rule"),
    [("alike", "mssp"), ("small experts", "mssp-small"), ("fixed experts", "mssp-fixed")],
)
def test_rates_of_sgd_follow_from_the_same_scales(size, rule):
    sizes = {**BASE, **SIZES[size], "L": 1}
    plan = planned(custom, sizes, scheme=f"mup+{rule}", optimizer="sgd")
    rates = [SGD[rule](at["n"], at["N"], at["E"]) for at in (sizes, BASE)]
    matrices = [p for p in plan.prescriptions if part_of(p.name) and p.name.endswith("weight")]
    assert len(matrices) == 1 + 2 * sizes["E"]
    for p in matrices:
        part = part_of(p.name)
        assert p.lr == approx(rates[0][part] / rates[1][part], rel=1e-12), p.name


def test_muon_moves_routers_of_more_experts_as_its_update_of_the_whole_matrix_says():
    """A router maps n to E numbers: an update of norm sqrt(E/n) moves each by order one, and
    Muon's has the norm 1 while E < n."""
    plan = planned(custom, {"n": 64, "E": 16, "K": 8}, scheme="mup+moe", optimizer="muon")
    assert plan["1.router.weight"].lr == approx(sqrt((16 / 64) / (4 / 32)))
    assert plan["1.experts.7.up.weight"].lr == approx(sqrt(32 / 64))
    alike = planned(custom, {"n": 64, "E": 8, "K": 4, "N": 32}, scheme="mup+moe", optimizer="muon")
    assert alike["1.router.weight"].lr == alike["1.experts.7.up.weight"].lr == 1.0


def test_tensors_of_several_experts_go_to_the_adamw_beside_muon_at_its_rates():
    """torch's Muon takes matrices alone."""
    models = stacked(64, 1, E=8, K=8, N=32), stacked(**{**BASE, "K": 4})
    plans = {
        optimizer: depthmup.plan(
            models[0], base=models[1], scheme="mup+moe", optimizer=optimizer, example_inputs=X
        )
        for optimizer in ("muon", "adamw")
    }
    pair = plans["muon"].muon_groups(models[0], lr=1.0, adamw_lr=0.1)
    name_of = {id(p): name for name, p in models[0].named_parameters()}
    in_muon = {name_of[id(p)] for group in pair.muon for p in group["params"]}
    rates = {name_of[id(p)]: group["lr"] for group in pair.adamw for p in group["params"]}
    assert in_muon == {"1.router.weight"}
    for name in ("1.up", "1.down"):
        assert rates[name] == approx(0.1 * plans["adamw"][name].lr)
    torch.optim.Muon(pair.muon)  # and it takes them
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([models[0][1].up])


RECOGNIZED = [
    (mixtral, {}, 4, 2, 2, 0),
    (qwen3, {"K": 1}, 4, 1, 2, 0),
    (qwen2, {}, 4, 2, 2, 4),
    (gpt_oss, {}, 4, 2, 2, 0),
    (deepseek, {"E": 8, "K": 2}, 8, 2, 2, 3),
    (custom, {}, 4, 2, 8, 4),
    (stacked, {"K": 4}, 4, 4, 2, 0),
]


@pytest.mark.parametrize(("make", "size", "total", "active", "matrices", "shared"), RECOGNIZED)
def test_a_mixture_is_read_from_the_dataflow(make, size, total, active, matrices, shared):
    with torch.device("meta"):
        model = make(**{**BASE, **size})
    (mixture,) = read(model, X if make in (custom, stacked) else IDS).mixtures
    assert (mixture.total, mixture.active, mixture.averaged) == (total, active, True)
    assert (len(mixture.matrices), len(mixture.shared)) == (matrices, shared)
    ends = {name for name in mixture.matrices if "down" in name}
    assert mixture.last & mixture.matrices == ends
    assert part_of(mixture.router) == "router" or "gate" in mixture.router


@pytest.mark.parametrize("weighted", ["hidden", "inputs"])
def test_where_the_weights_stand_changes_nothing_in_the_plan(weighted):
    size, base = {**BASE, "n": 64, "E": 16, "K": 16}, {**BASE, "K": 4}

    def make(**sizes):
        return stacked(**sizes, weighted=weighted)

    with torch.device("meta"):
        models = make(**size), make(**base)
        usual = stacked(**size), stacked(**base)
    plans = [
        depthmup.plan(
            model, base=small, scheme="completep+moe", optimizer="adamw", example_inputs=X,
            own_init="fixed",
        )
        for model, small in (models, usual)
    ]  # fmt: skip
    assert plans[0]["1.down"].role == Role(
        kind=Kind.HIDDEN, in_branch=True, last=True, part=Part.DOWN
    )
    factors = ("name", "role", "ratios", "init", "lr", "epsilon", "decay")
    rows = [[[getattr(p, f) for f in factors] for p in plan.prescriptions] for plan in plans]
    assert rows[0] == rows[1]


FACTORS = ("name", "role", "ratios", "init", "lr", "epsilon", "decay", "folded")


def factors(plan):
    return [[getattr(p, factor) for factor in FACTORS] for p in plan.prescriptions]


@pytest.mark.parametrize("weighted", ["hidden", "inputs"])
def test_experts_in_a_list_may_be_weighted_before_their_last_matrix(weighted):
    def make(**sizes):
        return custom(**sizes, weighted=weighted)

    sizes = {"n": 64, "L": 2, "E": 12, "K": 6, "N": 24}
    assert factors(planned(make, sizes, scheme="completep+moe")) == factors(
        planned(custom, sizes, scheme="completep+moe")
    )


def test_the_noise_of_a_router_is_a_router_and_changes_nothing_else():
    """Both are matrices from n to E whose output is a sum over what changes alike."""
    sizes = {"n": 64, "L": 2, "E": 12, "K": 6, "N": 24}

    def make(**sizes):
        return custom(**sizes, noisy=True)

    noisy = planned(make, sizes, scheme="completep+moe")
    rows = factors(noisy)
    usual = factors(planned(custom, sizes, scheme="completep+moe"))
    assert [row for row in rows if ".noise." not in row[0]] == usual
    of_noise = [row for row in rows if ".noise." in row[0]]
    of_router = [row for row in rows if ".router." in row[0]]
    assert len(of_noise) == 4
    assert [row[1:] for row in of_noise] == [row[1:] for row in of_router]


def test_a_rule_for_experts_without_a_router_to_apply_it_to_is_refused_or_noted():
    def twice(**sizes):
        return custom(**sizes, weighted="twice")

    with pytest.raises(NotUnderstood, match=r"experts repeats .* no router .* scheme='completep'"):
        planned(twice, {"E": 8, "K": 4}, scheme="completep+moe")
    plan = planned(twice, {"E": 8, "K": 4}, scheme="completep")
    assert any("repeats its modules" in note for note in plan.notes)
    # Of a fixed number nothing is left out but the start of what routes.
    plan = planned(twice, {"n": 64}, scheme="completep+moe")
    assert any("no router was seen that weights any" in note for note in plan.notes)


class Gated(nn.Module):
    """x + f(x), where f weights one activation by a squashed other: no mixture of experts."""

    def __init__(self, width, how):
        super().__init__()
        self.gate, self.value = nn.Linear(width, width), nn.Linear(width, width)
        self.how = how

    def forward(self, x):
        gate, value = self.gate(x), self.value(x)
        match self.how:
            case "glu":
                return x + gate.sigmoid() * value
            case "softmax over features":
                return x + gate.softmax(-1) * value
            case "one sigmoid for all":
                return x + gate[..., :1].sigmoid() * value
            case "the largest features":
                return x + torch.zeros_like(gate).scatter(-1, *gate.topk(2, -1)[::-1]) * value
            case _:
                return x + (gate.softmax(-1)[..., None] * value[..., None, :]).sum(-2)


@pytest.mark.parametrize(
    "how",
    ["glu", "softmax over features", "one sigmoid for all", "the largest features", "rank one"],
)
def test_gates_of_dense_layers_are_no_routers(how):
    model = nn.Sequential(nn.Linear(8, 16), Gated(16, how), nn.Linear(16, 4))
    assert read(model, X).mixtures == ()


class GatedHeads(nn.Module):
    """x + attention of heads of eight features, each gated by a sigmoid of its own."""

    def __init__(self, width):
        super().__init__()
        self.qkv, self.gate = nn.Linear(width, 3 * width), nn.Linear(width, width // 8)
        self.out = nn.Parameter(torch.randn(width // 8, 8, width) / sqrt(width))

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, -1, 8)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        heads = heads * self.gate(x).sigmoid()[..., None]
        return x + torch.einsum("bthk,hkd->btd", heads, self.out)


def test_gated_heads_are_no_experts():
    """The matrix behind the gates reads all heads: its fan-in grows with their number."""

    def make(width):
        return nn.Sequential(nn.Linear(8, width), GatedHeads(width), nn.Linear(width, 4))

    model, x = make(64), torch.randn(2, 6, 8)
    assert read(model, x).mixtures == ()
    plan = depthmup.plan(
        model, make(16), scheme="mup", example_inputs=x, own_init={"1.out": "fan_in"}
    )
    assert plan["1.out"].lr == approx(1 / 4)
    assert plan["1.out"].init == approx(1 / 2)
    assert not plan.notes


def test_of_fixed_sizes_a_mixture_is_planned_as_dense_layers_are():
    """The rule for experts adds nothing where E and K are those of the base."""
    alike = {**BASE, "n": 64, "N": 32}
    with_rule = planned(custom, alike, scheme="completep+mssp-fixed")
    without = planned(custom, alike, scheme="completep")
    assert without["1.router.weight"].init == approx(1 / 2)
    for ours, theirs in zip(with_rule.prescriptions, without.prescriptions, strict=True):
        factors = ("init", "lr", "epsilon", "decay", "folded")
        assert [getattr(ours, f) for f in factors] == approx(
            [getattr(theirs, f) for f in factors]
        ), ours.name
    assert without["1.experts.0.up.weight"].role == Role(
        kind=Kind.HIDDEN, in_branch=True, part=Part.EXPERT
    )
    assert without["1.experts.0.up.weight"].ratios == Ratios(fan_in=2, fan_out=2)


DENSE = json.loads(
    gzip.decompress((Path(__file__).parent / "fixtures" / "dense-plans.json.gz").read_bytes())
)


@pytest.mark.long
@pytest.mark.parametrize("block", sorted({key.split("/")[0] for key in DENSE}))
def test_plans_of_dense_models_are_what_they_were_before_mixtures_were_known(block):
    """Roles, factors, laws and multipliers, as they were written down then."""
    make, inputs = planning_zoo.tower(getattr(planning_zoo, block)), planning_zoo.vectors()
    model, base = make(16, 4), make(8, 2)
    assert read(model, inputs).mixtures == ()
    cases = [key for key in DENSE if key.startswith(f"{block}/")]
    assert len(cases) == 6
    for key in cases:
        _, scheme, optimizer = key.split("/")
        plan = depthmup.plan(
            model, base=base, scheme=scheme, optimizer=optimizer, example_inputs=inputs,
            own_init="fixed",
        )  # fmt: skip
        laws = ("init", "lr", "epsilon", "decay", "forward")
        rows = [
            [p.name, str(p.role), p.init, p.lr, p.epsilon, p.decay, p.folded,
             [str(getattr(p.laws, law)) for law in laws]]
            for p in plan.prescriptions
        ]  # fmt: skip
        rows += [[str(m.where), m.label, m.value, list(m.folds)] for m in plan.multipliers]
        assert rows == DENSE[key], key


REFUSED = [
    ({"E": 8}, "completep+moe", r"share of experts that are active, K/E.* 0\.5-fold.*E = 8"),
    ({"K": 4}, "depth-mup+moe", "K/E.* 2-fold"),
    ({"E": 8, "K": 4}, "completep", r"no rule for the number of experts.*scheme='completep\+moe'"),
    ({"E": 8, "K": 4}, "mup+mssp", "number of experts over the width, E/n.* 2-fold"),
    ({"n": 64, "E": 8, "K": 4}, "mup+mssp", r"width of an expert over.*N/n.* 0\.5-fold"),
    ({"n": 64, "N": 32, "E": 8, "K": 4}, "mup+mssp-small", "the width of an expert, held.* 2-fold"),
    ({"E": 8, "K": 4}, "mup+mssp-fixed", "the number of experts, held.* 2-fold"),
]


@pytest.mark.parametrize(("size", "scheme", "says"), REFUSED)
def test_growth_that_a_rule_does_not_cover_is_refused_with_the_reason(size, scheme, says):
    with pytest.raises(NotUnderstood, match=says):
        planned(custom, size, scheme=scheme)


def test_a_share_that_a_dense_scheme_cannot_know_of_is_noted():
    plan = planned(custom, {"K": 4}, scheme="completep")
    assert any("CompleteP has no rule" in note and "K = 4" in note for note in plan.notes)
    assert {(p.init, p.lr, p.epsilon) for p in plan.prescriptions} == {(1.0, 1.0, 1.0)}
    assert not planned(custom, {"n": 64}, scheme="completep").notes


def test_without_a_name_growing_experts_get_the_rule_for_them():
    plan = planned(custom, {"E": 8, "K": 4})
    assert plan.scheme == "completep+moe"
    assert any("the rule 'moe' is taken" in note for note in plan.notes)
    assert planned(custom, {"n": 64}).scheme == "completep"


def test_a_lone_expert_whose_weight_is_divided_by_itself_is_noted():
    plan = planned(mixtral, {"n": 64, "K": 1}, base={**BASE, "K": 1}, scheme="completep+moe")
    assert any("router has no gradient" in note for note in plan.notes)
    assert not any("gradient" in note for note in planned(mixtral, {"n": 64}).notes)


def test_a_base_of_a_single_expert_has_a_router_all_the_same():
    one = {**BASE, "E": 1, "K": 1}
    plan = planned(custom, {"E": 4, "K": 4}, base=one, scheme="completep+moe")
    assert (plan.mixtures[0].base_experts, plan.mixtures[0].base_active) == (1, 1)
    assert plan["1.experts.2.down.weight"].epsilon == approx(1 / 4)


@pytest.mark.parametrize("weights", ["sigmoid", "mean of sigmoids"])
def test_what_nothing_averages_is_divided_by_the_number_of_active_experts(weights):
    """Once: a model that divides by it already is left as it is."""

    def make(**sizes):
        return custom(**sizes, weights=weights)

    size = {**BASE, "E": 16, "K": 8}
    with torch.device("meta"):
        models = make(**size), make(**BASE)
    plan = depthmup.plan(
        models[0], base=models[1], scheme="completep+moe", optimizer="adamw",
        example_inputs=X, own_init="fixed",
    )  # fmt: skip
    assert not plan.mixtures[0].averaged
    down, shared = plan["1.experts.3.down.weight"], plan["1.shared.down.weight"]
    factor = 1.0 if weights == "mean of sigmoids" else 1 / 4
    assert (down.folded, shared.folded) == approx((factor, 1.0))
    assert plan["1.experts.3.down.bias"].folded == approx(factor)
    assert not plan.notes


class Routed(nn.Module):
    """Experts without a residual stream."""

    def __init__(self, width, experts):
        super().__init__()
        self.first, self.last = nn.Linear(8, width), nn.Linear(width, 4)
        self.layer = Layer(width, experts, experts // 2, width, shared=False)

    def forward(self, x):
        x = self.first(x)
        return self.last(self.layer(x) - x)


def test_printed_explained_saved_and_loaded(tmp_path):
    plan = planned(qwen2, SIZES["everything"], scheme="completep+moe")
    text = " ".join(str(plan).split())  # wherever a narrow screen breaks its lines
    for words in (
        "E = 12 experts, K = 6 of them active (4 and 2 in the base)",
        "r = 2",
        "a shared",
        "router, in branch",
        "expert down, last of branch",
        "m_out^-1 r^-1 E^-1",
    ):
        assert words in text
    said = plan.explain("model.layers.0.mlp.experts.down_proj")
    assert "3 times as many experts" in said
    assert "E = 3" in said
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan


@pytest.mark.parametrize("make", [custom, qwen3])
def test_a_planned_mixture_trains_and_is_verified(make):
    torch.manual_seed(0)
    base, model = make(**BASE), make(**{**BASE, "n": 64, "E": 8, "K": 4})
    inputs = torch.randn(16, 8) if make is custom else IDS
    plan = depthmup.plan(
        model, base=base, scheme="completep+moe", optimizer="adamw", example_inputs=inputs
    )
    plan.initialize(model)
    optimizer = torch.optim.AdamW(plan.param_groups(model, lr=1e-2), lr=1e-2)
    plan.verify(model, optimizer)
    losses = []
    for _ in range(8):
        output = model(inputs) if make is custom else model(**inputs).logits
        loss = nn.functional.cross_entropy(output.flatten(0, -2), torch.zeros(16).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_parts_are_their_own_roles():
    expert = Role(kind=Kind.HIDDEN, in_branch=True, part=Part.EXPERT)
    assert str(expert) == "expert, in branch"
    assert str(dataclasses.replace(expert, kind=Kind.VECTOR)) == "expert vector, in branch"
