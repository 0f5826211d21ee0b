"""What published rules say for a base and a target."""

import json
from math import log2

import pytest
from pytest import approx

from depthmup.cli import main
from depthmup.rules import (
    NAMES,
    RUN_RULES,
    contradictions,
    growth,
    listing,
    said,
    scheme,
    with_run,
)


def of_rules(base, target, **asked):
    return {one.rule.name: one for one in said(growth(base, target), **asked)}


def test_sizes_that_follow_from_others():
    assert growth({"batch": 32, "tokens": 640}, {"batch": 64}) == {
        "batch": 2, "tokens": 1, "steps": 0.5, "compute": 1,
    }  # fmt: skip
    assert growth({"batch_size": 32, "steps": 10}, {"batch": 64})["tokens"] == 2
    grown = growth({"width": 64, "depth": 4, "steps": 10}, {"width": 128, "depth": 8, "steps": 40})
    assert (grown["parameters"], grown["tokens"], grown["compute"]) == (8, 4, 32)


@pytest.mark.parametrize("target", [{"width": 128}, {"parameters": 4e8}], ids=str)
def test_a_decay_that_follows_parameters_does_so_however_they_are_named(target):
    base = {"width": 64} if "width" in target else {"parameters": 1e8}
    rules = of_rules({**base, "batch": 32, "tokens": 3200}, target)
    assert rules["one rate for all batches"].decay == approx(4**-0.527)


def test_each_rule_by_its_own_exponents():
    rules = of_rules(
        {"parameters": 1e9, "batch": 64, "tokens": 1e10}, {"batch": 256, "tokens": 4e11}
    )
    assert rules["Step Law"].lr == approx(40**0.307)
    assert rules["Complete(d)P"].lr == approx((4 / 40) ** 0.5)
    assert rules["Complete(d)P"].decay == approx((4 / 40) ** 0.5)
    assert rules["Complete(d)P"].one_minus_beta == approx(4 / 40)
    assert rules["HyperP"].lr == approx(4**0.5 * 40**-0.32)
    assert rules["LMO theory"].lr == approx(10**-0.5)
    assert rules["DeepSeek"].lr == approx(40**-0.125)
    assert rules["one rate for all batches"].decay == approx(4 * 40 ** (0.527 - 1))
    assert rules["constant half-life of beta2 in tokens"].beta2_power == 4
    # Rules that contradict each other, in sign.
    octaves = {name: log2(one.lr) for name, one in rules.items()}
    assert octaves["Step Law"] > 1.5
    assert octaves["Complete(d)P"] < -1.5


def test_an_axis_by_two_names():
    """The second one counted alone."""
    with pytest.raises(ValueError, match="got batch and batch_size, which are one"):
        growth({"batch": 32, "batch_size": 64, "steps": 10}, {})


def test_what_a_rule_does_not_speak_of():
    rules = of_rules({"depth": 4, "batch": 64, "tokens": 100}, {"depth": 8, "batch": 128})
    assert rules["proportional to the batch"].silent == ("depth",)
    assert rules["one rate for all depths"].silent == ("batch",)
    assert rules["Step Law"].silent == ("batch",)


def test_under_a_scheme_rules_of_other_parametrizations_are_left_out():
    base = {"width": 64, "batch": 64, "tokens": 100}
    wider = of_rules(base, {"width": 128, "tokens": 400}, scheme=scheme("completep"))
    longer = of_rules(base, {"tokens": 400}, scheme=scheme("completep"))
    assert "Step Law" not in wider
    assert "DeepSeek" not in wider
    assert wider["Complete(d)P"].silent == ()
    assert {"Step Law", "DeepSeek"} <= set(longer)


@pytest.mark.parametrize(
    ("base", "target", "message"),
    [
        ({"batch": 32, "steps": 10}, {"experts": 4}, "where experts starts"),
        ({"batch": 32}, {"batch": 64}, "steps or tokens next to the batch"),
        ({"batch": 32, "steps": 1, "tokens": 32}, {"batch": 64}, "two of batch, steps and tokens"),
        ({"batch": 0, "steps": 1}, {"batch": 64}, "positive"),
    ],
)
def test_what_cannot_be_told(base, target, message):
    with pytest.raises(ValueError, match=message):
        growth(base, target)


def test_the_command_prints_every_rule_and_the_span(capsys):
    asked = ["rules", "--base", "batch=64", "tokens=1e9", "--target", "batch=512", "tokens=2e10"]
    assert main([*asked, "--lr", "0.003"]) == 0
    text = capsys.readouterr().out
    assert "Times the base: batch 8, tokens 20, steps 2.5" in text
    # From Microsoft's -0.32 in tokens alone to all of the batch, and from Complete(d)P to AdamH.
    assert approx(20.9, abs=0.05) == 8 * 20**0.32
    assert "rules that speak of the learning rate span a factor of 20.9: from 0.383 times" in text
    assert approx(1.93, abs=0.01) == 20**0.5 * 20**-0.2813
    assert "The 5 that speak of all that grows here span a factor of 1.93" in text
    assert "--run sde" in text
    # A rule of decay alone says nothing of the rate: its row has none.
    (of_decay,) = (
        r for r in text.splitlines() if r.startswith("constant time of decay in epochs ")
    )
    assert of_decay.split()[6:] == ["–", "–", "0.4", "1", "1", "the", "learning", "rate"]
    assert "0.0019" in text  # 0.003 x sqrt(8 / 20)


def test_where_no_two_rules_speak_of_all_that_grows_the_others_have_a_span(capsys):
    asked = ["rules", "--base", "batch=64", "tokens=1e9", "depth=4"]
    assert main([*asked, "--target", "batch=512", "depth=8"]) == 0
    text = capsys.readouterr().out
    # From Step Law's parameters, which double, to all of the batch: 3 + 0.712.
    assert "rules that speak of the learning rate span a factor of 13.1: from 0.61 times" in text
    assert "Fewer than two of them speak of all that grows here." in text


def test_a_rule_of_other_axes_is_refused_for_training():
    step_law = next(rule for rule in RUN_RULES if rule.name == "Step Law")
    with pytest.raises(ValueError, match=r"'Step Law' speaks of parameters, too"):
        with_run(scheme("completep"), step_law)


def test_without_sizes_all_that_is_known_by_name_is_listed(capsys):
    assert main(["rules"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for names in NAMES.values():
        assert all(name in text for name in names)
    assert main(["rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, **listing()}
    assert main(["rules", "--base", "rank=8"]) == 2


@pytest.mark.parametrize(
    ("words", "of"),
    [
        (["plan", "--help"], ("schemes", "families", "expert rules")),
        (["transfer", "--help-all"], ("schemes", "expert rules", "run rules")),
    ],
    ids=lambda given: given[0],
)
def test_help_names_what_the_catalogue_has(words, of, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    for what in of:
        assert ", ".join(NAMES[what]) in text
        assert "{" + what + "}" not in text


def test_rules_of_depth_contradict_each_other_and_those_of_one_voice_do_not():
    of = growth({"depth": 4}, {"depth": 64})
    (apart,) = (one for one in contradictions(said(of), of) if one.axis == "depth")
    assert (apart.least.name, apart.most.name) == (
        "one over the root of the depth",
        "one rate for all depths",
    )
    alike = {"loops": 4.0}
    assert contradictions(said(alike), alike) == ()
