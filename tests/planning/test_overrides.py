"""Plans as configuration of trainers: read back as those read it, to the last bit.

The readers below are written from the sources of the projects: torchtitan 0.3.0
(components/optimizer.py), nemo-automodel 0.7.0 (components/optim/optimizer.py), megatron-core
0.16.1 (core/optimizer/optimizer_config.py) and axolotl 0.19.0 (core/trainers/mixins/optimizer.py).
Where torchtitan, NeMo Automodel or megatron-core is installed, its own reader is asked too.
"""

import fnmatch
import json
import re
from functools import cache
from itertools import islice

import pytest
import torch
from own_models import SOURCE
from planning_zoo import ResidualMLP, Transformer, tokens, vectors
from torch import nn

import depthmup
from depthmup.cli.main import main
from depthmup.planning import NotUnderstood, recorded
from depthmup.planning.overrides import FORMATS

yaml = pytest.importorskip("yaml")

LR, DECAY, EPS, MIN_LR = 3e-3 / 7, 0.1 / 3, 1e-8, 1e-5 / 3
EVERYTHING = ("multipliers", "epsilon", "decay", "betas")
MODELS = 20


@cache
def plans():
    """Plans of the first models of the zoo that have one, by name, with the models."""
    architectures = pytest.importorskip("tests.zoo.architectures").architectures

    def made():
        for one in architectures(("plain torch", "by hand")):
            built = []
            for size in ((64, 6), (16, 2)):
                torch.manual_seed(0)
                with torch.device("meta"):
                    built.append(recorded(lambda one=one, size=size: one.make(*size)))
            (model, drawn), (base, base_drawn) = built
            try:
                plan = depthmup.plan(
                    model,
                    base,
                    scheme="completep",
                    example_inputs=one.inputs,
                    drawn=(drawn, base_drawn),
                )
            except (NotUnderstood, ValueError):
                continue
            yield f"{one.package}: {one.name}", (plan, model)

    return dict(islice(made(), MODELS))


def of(name):
    return list(plans().values())[name]


def names_of(model):
    return [name for name, _ in model.named_parameters()]


def first_match(rows, name):
    """torchtitan's and Automodel's rule; patterns of one plan never overlap."""
    found = [values for pattern, values in rows if re.search(pattern, name)]
    assert len(found) == 1, (name, found)
    return found[0]


class ParamGroupConfig:
    def __init__(self, *, pattern, optimizer_name, optimizer_kwargs):
        self.pattern, self.name, self.kwargs = pattern, optimizer_name, optimizer_kwargs


class ParamKey:
    def __init__(self, *, name):
        self.names = name

    def matches(self, name):
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.names)


def python(text, variable, **known):
    space = {}
    exec(text, known, space)
    return space[variable]


@pytest.mark.parametrize("number", range(MODELS))
class TestReadBack:
    @pytest.mark.long
    def test_json(self, number):
        plan, model = of(number)
        read = json.loads(plan.overrides("json"))
        rows = [(row["pattern"], row) for row in read["overrides"]]
        for name in names_of(model):
            row, p = first_match(rows, name), plan[name]
            assert (row["lr"], row["weight_decay"], row["eps"], row["init"]) == (
                p.lr, p.decay, p.epsilon, p.init,
            )  # fmt: skip
        hooked = [(h.module, m.value) for m in plan.multipliers for h in m.hooks]
        assert [(row["module"], row["value"]) for row in read["multipliers"]] == hooked

    def test_torchtitan(self, number):
        plan, model = of(number)
        text = plan.overrides(
            "torchtitan", lr=LR, weight_decay=DECAY, leave_out="multipliers", betas=(0.9, 0.95)
        )
        groups = python(text, "param_groups", ParamGroupConfig=ParamGroupConfig)
        rows = [(group.pattern, group) for group in groups]
        for name in names_of(model):
            group, p = first_match(rows, name), plan[name]
            assert group.name == "AdamW"
            assert group.kwargs == {
                "lr": LR * p.lr, "weight_decay": DECAY * p.decay, "eps": EPS * p.epsilon,
                "betas": (0.9, 0.95),
            }  # fmt: skip
        assert all(any(re.search(g.pattern, n) for n in names_of(model)) for g in groups)

    def test_automodel(self, number):
        plan, model = of(number)
        text = plan.overrides("automodel", leave_out=("multipliers", "epsilon"))
        read = yaml.safe_load(text)["optimizer"]["param_group_overrides"]
        rows = [(row["pattern"], row) for row in read]
        for name in names_of(model):
            row, p = first_match(rows, name), plan[name]
            assert (row["lr_mult"], row["wd_mult"]) == (p.lr, p.decay)

    def test_megatron(self, number):
        plan, model = of(number)
        text = plan.overrides(
            "megatron", lr=LR, min_lr=MIN_LR, leave_out=("multipliers", "epsilon")
        )
        read = python(text, "config_overrides", ParamKey=ParamKey)
        for name, tensor in model.named_parameters():
            (values,) = [value for key, value in read.items() if key.matches(name)]
            p = plan[name]
            expected = {"max_lr": LR * p.lr, "min_lr": MIN_LR * p.lr}
            # Megatron's own override: they have no decay, and two that differ are an error.
            decays = tensor.ndim > 1 and not name.endswith(".bias")
            assert values == {**expected, **({"wd_mult": p.decay} if decays else {})}

    def test_axolotl(self, number):
        plan, model = of(number)
        vectors_ = [p for p in plan.prescriptions if len(p.shape) < 2 or p.name.endswith(".bias")]
        if any(p.lr != 1 for p in vectors_):
            with pytest.raises(ValueError, match="gains and biases"):
                plan.overrides("axolotl", lr=LR, leave_out=EVERYTHING)
            return
        text = plan.overrides("axolotl", lr=LR, leave_out=EVERYTHING)
        read = yaml.safe_load(text)
        assert read["learning_rate"] == LR
        for name, tensor in model.named_parameters():
            found = [
                g["lr"] for g in read["lr_groups"] if any(part in name for part in g["modules"])
            ]
            if any(part in name for part in ("embed_tokens", "lm_head")):
                rate = read["embedding_lr"]
            elif tensor.ndim > 1 and not name.endswith(".bias"):
                (rate,) = found
            else:
                rate = LR
            assert rate == LR * plan[name].lr

    def test_own_readers(self, number):
        """Those of the projects that are installed."""
        plan, model = of(number)
        read = 0
        try:
            from torchtitan.components.optimizer import OptimizersContainer as Container
            from torchtitan.components.optimizer import ParamGroupConfig as Config
        except ImportError:
            pass
        else:
            text = plan.overrides("torchtitan", lr=LR, weight_decay=DECAY, leave_out="multipliers")
            configs = python(text, "param_groups", ParamGroupConfig=Config)
            built, _ = Container._build_param_groups(model, configs, {})
            for group in built["AdamW"]:
                for name in group["param_names"]:
                    p = plan[name]
                    assert (group["lr"], group["weight_decay"]) == (LR * p.lr, DECAY * p.decay)
                    assert group["eps"] == EPS * p.epsilon
                    read += 1
        try:
            from nemo_automodel.components.optim.optimizer import AdamWConfig
        except ImportError:
            pass
        else:
            text = plan.overrides("automodel", leave_out=("multipliers", "epsilon"))
            config = AdamWConfig(**yaml.safe_load(text)["optimizer"])
            (optimizer,) = config.build(model)
            named = {id(p): name for name, p in model.named_parameters()}
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    p = plan[named[id(tensor)]]
                    assert (group["lr_mult"], group["wd_mult"]) == (p.lr, p.decay)
                    read += 1
        try:
            from megatron.core.optimizer.optimizer_config import ParamKey as Key
        except ImportError:
            pass
        else:
            text = plan.overrides("megatron", lr=LR, leave_out=("multipliers", "epsilon"))
            for key, values in python(text, "config_overrides", ParamKey=Key).items():
                for name, tensor in model.named_parameters():
                    if key.matches(tensor, name):
                        assert values["max_lr"] == LR * plan[name].lr
                        read += 1
        if not read:
            pytest.skip("None of torchtitan, nemo-automodel and megatron-core is installed.")
        assert read % len(names_of(model)) == 0


def planned(kind=Transformer, scheme="completep", **options):
    model, base = kind(width=32, depth=4), kind(width=16, depth=2)
    inputs = tokens() if kind is Transformer else vectors()
    return depthmup.plan(
        model, base, scheme=scheme, example_inputs=inputs, own_init="fan_in", **options
    )


def test_one_line_a_group():
    plan = planned()
    rates = {(p.lr, p.decay) for p in plan.prescriptions}
    text = plan.overrides("automodel", leave_out="epsilon")
    assert text.count("lr_mult") == len(rates)
    assert len(text.splitlines()) == len(rates) + 3


@pytest.mark.parametrize(
    ("format", "options", "message"),
    [
        ("automodel", {}, r"cannot hold the plan's epsilon: .*Use torchtitan or json.*leave_out"),
        ("megatron", {"lr": 1e-3}, "cannot hold the plan's epsilon"),
        ("axolotl", {"lr": 1e-3, "leave_out": "epsilon"}, "cannot hold the plan's decay"),
        ("axolotl", {"lr": 1e-3}, "the plan's epsilon: .*; decay: .*--leave-out decay epsilon"),
        ("torchtitan", {}, "Expected the base's learning rate, which torchtitan holds"),
        ("lightning", {}, "Expected a format of json, torchtitan, .*; got 'lightning'"),
        ("json", {"leave_out": "lr"}, "Expected leave_out to name multipliers, .*; got 'lr'"),
    ],
)
def test_losses_are_refused_by_name(format, options, message):
    with pytest.raises(ValueError, match=message):
        planned().overrides(format, **options)


@pytest.mark.parametrize("format", [f for f in FORMATS if f != "json"])
def test_forward_multipliers_are_refused_by_name(format):
    plan = planned(folding=False)
    assert any(m.hooks for m in plan.multipliers)
    with pytest.raises(
        ValueError, match=r"cannot hold the plan's multipliers: .* times 0\.5.*plan\.attach"
    ):
        plan.overrides(format, lr=1e-3)
    assert json.loads(plan.overrides("json"))["multipliers"]


def test_betas_that_move_need_those_of_the_base():
    plan = planned(scheme="complete-dp", options=depthmup.PlanOptions(batch=4.0))
    assert plan.one_minus_beta != 1
    with pytest.raises(ValueError, match="cannot hold the plan's betas"):
        plan.overrides("automodel", leave_out="epsilon")
    with pytest.raises(ValueError, match="Expected the base's betas"):
        plan.overrides("torchtitan", lr=1e-3)
    text = plan.overrides("torchtitan", lr=1e-3, betas=(0.9, 0.95))
    (group, *_) = python(text, "param_groups", ParamGroupConfig=ParamGroupConfig)
    assert group.kwargs["betas"] == (0.6, 0.8)  # 1 - 4 (1 - beta)


def test_matrix_optimizers_are_for_code():
    with pytest.raises(ValueError, match="trains matrices only"):
        planned(optimizer="muon").overrides("torchtitan", lr=1e-3)


class Unlike(nn.Module):
    """Two stacks of one name whose layers differ in what the plan makes of them."""

    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(6, width), *(nn.Linear(width, width) for _ in range(11))]
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = x + layer(x).relu()
        return self.head(x)


@pytest.mark.parametrize("format", ["automodel", "megatron"])
def test_layers_of_one_pattern_that_differ_are_named_each(format):
    """layers.1 is no part of layers.10, and a pattern of files has no numbers."""
    plan = depthmup.plan(
        Unlike(32, 2), Unlike(16, 2), scheme="mup", example_inputs=vectors(), own_init="fan_in"
    )
    assert plan["layers.0.weight"].lr != plan["layers.1.weight"].lr == plan["layers.10.weight"].lr
    text = plan.overrides(format, leave_out="epsilon", lr=LR)
    for name in ("layers.0.weight", "layers.1.weight", "layers.10.weight"):
        if format == "automodel":
            read = yaml.safe_load(text)["optimizer"]["param_group_overrides"]
            values = first_match([(row["pattern"], row["lr_mult"]) for row in read], name)
            assert values == plan[name].lr
        else:
            read = python(text, "config_overrides", ParamKey=ParamKey)
            (values,) = [v for key, v in read.items() if key.matches(name)]
            assert values["max_lr"] == LR * plan[name].lr


def test_the_command_prints_it(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    words = ["plan", "--model", f"{file}:make", "--base", "16x2", "--target", "32x4"]
    assert main([*words, "--format", "torchtitan", "--lr", "0.003", "--weight-decay", "0.1"]) == 0
    groups = python(capsys.readouterr().out, "param_groups", ParamGroupConfig=ParamGroupConfig)
    assert {group.name for group in groups} == {"AdamW"}
    assert main([*words, "--format", "automodel"]) == 2
    assert "cannot hold the plan's epsilon" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--format", "automodel", "--leave-out", "epsilon"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["optimizer"]["param_group_overrides"]


def test_a_residual_network_needs_no_more_than_rates_for_axolotl():
    plan = planned(ResidualMLP, "sp")
    assert yaml.safe_load(plan.overrides("axolotl", lr=LR))["learning_rate"] == LR
