"""Rules of the run in what is trained: learning rate, decay, epsilon and betas, and their words."""

from dataclasses import replace
from fractions import Fraction

import pytest
from pytest import approx

from depthmup.rules import NO_RULE, RUN_RULES, Ratios, run_rule
from depthmup.sweep import BuiltIn, Custom, Design, Sweep
from depthmup.sweep.hyperparameters import ratios_at, settings_under
from depthmup.sweep.question import question

NAMES = [rule.key for rule in RUN_RULES if rule.key]
ASKED = {"lrs": [2.0**-7], "schemes": "completep", "optimizers": "adamw", "weight_decays": 0.1}


def runs(run, *, model=None, seeds=1, **sizes):
    base = {axis: values[0] for axis, values in sizes.items()}
    design = Design(
        base={"width": 16, "depth": 2, **base}, **sizes, run=run, **{**ASKED, "seeds": seeds}
    )
    return design, Sweep(model=model or Custom(name="make", code="1"), design=design).runs


def optimizer_of(cell):
    return cell.optimizer


@pytest.mark.parametrize("model", [None, BuiltIn()])
def test_sde_as_its_table_states_it(model):
    """Four times the batch at held tokens: lr x 2, decay x 2, epsilon / 2, 1 - beta x 4."""
    _, (base, grown) = runs("sde", model=model, batch=(32, 128), tokens=(12800,))
    if model is None:
        assert (base.settings, base.steps, grown.steps) == ({}, 400, 100)
        assert grown.lr / base.lr == approx(2)
        assert grown.weight_decay / base.weight_decay == approx(2)
        assert grown.settings == {"eps": approx(0.5e-8), "betas": approx([0.6, 0.996])}
    else:
        a, b = base.optimizer, grown.optimizer
        assert (base.batch_size, base.steps, grown.batch_size, grown.steps) == (32, 400, 128, 100)
        assert (b.lr / a.lr, b.weight_decay / a.weight_decay) == approx((2, 2))
        assert (b.epsilon / a.epsilon, b.beta1, b.beta2) == approx((0.5, 0.6, 0.996))


@pytest.mark.parametrize("model", [None, BuiltIn()])
def test_sde_at_held_steps_changes_nothing(model):
    """b times the batch sees b times the tokens: b/d = 1, only the noise improves."""
    _, (base, grown) = runs("sde", model=model, batch=(32, 128), steps=(100,))
    if model is None:
        assert (grown.lr, grown.weight_decay, grown.settings) == (base.lr, base.weight_decay, {})
    else:
        assert grown.optimizer == base.optimizer


def test_a_longer_run_under_sde():
    _, (base, longer) = runs("sde", batch=(32,), steps=(100, 400))
    assert (longer.lr / base.lr, longer.weight_decay / base.weight_decay) == approx((0.5, 0.5))
    assert longer.settings == {"eps": approx(2e-8), "betas": approx([0.975, 0.99975])}


@pytest.mark.parametrize(
    ("name", "lr", "decay", "betas"),
    [
        ("none", 1, 1, (0.9, 0.999)),
        ("sqrt-batch", 2, 1, (0.6, 0.996)),
        ("linear-batch", 4, 1, (0.9, 0.999)),
        ("hyperp", 2, 1, (0.9, 0.999)),
        ("decay-time", 1, 4, (0.9, 0.999)),
        ("power-lines", 1, 4, (0.9, 0.999)),
        ("beta2-half-life", 1, 1, (0.9, 0.999**4)),
    ],
)
def test_rules_of_a_batch_four_times_as_large_at_held_tokens(name, lr, decay, betas):
    _, (base, grown) = runs(name, batch=(32, 128), tokens=(12800,))
    assert grown.lr / base.lr == approx(lr)
    assert grown.weight_decay / base.weight_decay == approx(decay)
    assert tuple(grown.settings.get("betas", (0.9, 0.999))) == approx(betas)


def test_tokens_per_parameter():
    """tau = B / (lr decay D) falls by (D / N)^-0.527: four times the tokens, or twice the width."""
    _, (base, longer) = runs("power-lines", batch=(32,), steps=(100, 400))
    assert longer.weight_decay / base.weight_decay == approx(4 ** (0.527 - 1))
    laws = run_rule("power-lines").laws
    assert laws.decay.at(Ratios(fan_in=2, fan_out=2)) == approx(4**-0.527)


def test_runs_on_which_rules_agree_are_trained_once():
    design, trained = runs(["none", "sde", "sqrt-batch"], batch=(32, 128), tokens=(12800,), seeds=1)
    assert [v.name for v in design.variants] == [
        "completep none", "completep sde", "completep sqrt-batch"
    ]  # fmt: skip
    # All three at the base are one run; at four times the batch each is another: decay differs.
    assert len(trained) == 1 + 3


def test_a_schemes_own_rule_is_used_unless_another_is_named():
    base = {"width": 16, "depth": 2, "batch": 32, "steps": 100}
    asked = {**ASKED, "schemes": "complete-dp", "steps": (100, 400), "seeds": 1}
    model = Custom(name="make", code="1")
    own, sde, none = (
        Sweep(model=model, design=Design(base=base, run=run, **asked)).runs[1]
        for run in (None, "sde", "none")
    )
    assert own == sde
    assert own.lr == approx(none.lr / 2)


def test_a_beta_below_zero_is_zero_and_the_report_says_so():
    design, (_, grown) = runs("sde", batch=(32, 1024), tokens=(102400,))
    assert grown.settings["betas"] == [0.0, approx(0.968)]
    assert any("beta1 is zero there" in sentence for sentence in question(design))


@pytest.mark.parametrize("name", [*NAMES, "none"])
def test_at_the_base_every_rule_leaves_everything(name):
    laws = run_rule(name).laws
    assert settings_under(laws, Ratios(), "adamw", {"eps": 1e-6}) == {"eps": 1e-6}
    assert (laws.lr.at(Ratios()), laws.decay.at(Ratios())) == (1.0, 1.0)


def test_optimizers_keep_what_they_do_not_have():
    laws, ratios = run_rule("sde").laws, Ratios(batch=4)
    assert settings_under(laws, ratios, "sgd", {"momentum": 0.9}) == {"momentum": 0.9}
    assert set(settings_under(laws, ratios, "rmsprop", {})) == {"eps"}
    assert set(settings_under(laws, ratios, "adamw", {})) == {"eps", "betas"}


@pytest.mark.parametrize("rule", [r for r in RUN_RULES if r.key], ids=lambda rule: rule.key)
def test_laws_and_exponents_of_a_rule_are_the_same(rule):
    for axis, fixed in (("batch", "tokens"), ("tokens", ""), ("steps", "")):
        stated = rule.along(axis, fixed=fixed)
        if stated is None:
            continue
        law = rule.laws.lr
        expected = {"batch": law.batch, "tokens": law.duration, "steps": law.duration}[axis]
        if "steps" in rule.exponents and axis == "batch":
            continue
        assert stated == expected


def test_names_of_rules():
    assert len(set(NAMES)) == len(NAMES)
    assert run_rule(NO_RULE) is NO_RULE
    with pytest.raises(ValueError, match="one of none, sde"):
        run_rule("adam")
    with pytest.raises(ValueError, match="write run="):
        Design(base={"depth": 2}, run_rules="sde")


def test_designs_with_rules_are_written_and_read_back():
    design, _ = runs(["none", "sde"], batch=(32, 128), tokens=(12800,))
    assert Design.from_dict(design.to_dict()) == design
    assert "run" not in Design(base={"depth": 2}).to_dict()


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"batch": (32, 64), "tokens": (6400,)}, "the tokens are held"),
        ({"batch": (32, 64), "steps": (100,)}, "the steps are held"),
        ({"batch": (32,), "steps": (100, 200)}, "a longer run begins as a shorter one does"),
    ],
)
def test_the_question_is_said(sizes, said):
    design, _ = runs("sde", **sizes)
    sentences = question(design)
    assert said in " ".join(sentences)
    assert "learning rate by b^1/2 d^-1/2" in sentences[-2]


def test_of_muon_it_is_said_that_its_momentum_stays():
    def said(run, optimizer):
        design, _ = runs(run, batch=(32, 64), steps=(100,))
        return " ".join(question(replace(design, optimizers=(optimizer,))))

    assert "whose momentum stays." in said("sqrt-batch", "muon")
    assert "momentum" not in said("lmo", "muon") + said("sqrt-batch", "adamw")


def test_of_several_rules_it_is_said_which_follows_which_law():
    design, _ = runs(["none", "sde", "lmo"], batch=(32, 64), tokens=(6400,))
    assert 'sde: the run follows "Complete(d)P" (arXiv' in " ".join(question(design))
    none, _, lmo = design.variants
    # A certificate is about one of them.
    assert question(design, [none])[1].startswith("Learning rate, weight decay")
    assert "LMO" in question(design, [lmo])[1]


def test_nothing_is_said_where_batch_and_duration_stay():
    assert question(Design(base={"width": 8, "depth": 2}, depth=(2, 4), **ASKED)) == ()


def test_ratios_count_the_tokens():
    design, _ = runs("sde", batch=(32, 64), steps=(100, 200))
    ratios = ratios_at(design, {"width": 32, "depth": 2, "batch": 64, "steps": 200})
    assert (ratios.fan_in, ratios.batch, ratios.duration) == (2, 2, 4)
    assert run_rule("sde").laws.lr.at(ratios) == approx(0.5**0.5)
    assert isinstance(run_rule("sde").laws.lr.batch, Fraction)
