"""Single rules of a scheme: left out, or alone, they give standard practice's law or the scheme's.

Independent reference: Table 3 of TP5 (arXiv 2203.03466), by hand, and SP's own laws.
"""

from dataclasses import fields
from fractions import Fraction
from itertools import product

import pytest

from depthmup.rules import (
    CATALOGUE,
    FACTORS,
    SP,
    Family,
    Kind,
    Laws,
    Observable,
    Power,
    Ratios,
    Role,
    effect,
    predict,
    scheme,
)
from depthmup.rules.scheme import factors_along

ROLES = [Role(kind=kind, in_branch=inside) for kind in Kind for inside in (False, True)]
ADAM, SGD = Family.ENTRYWISE, Family.RAW
HIDDEN = Role(kind=Kind.HIDDEN, in_branch=True)
AT = Ratios(fan_in=4, fan_out=4, depth=9)


def differ(one, other, role, family):
    a, b = one.laws(role, family), other.laws(role, family)
    return {f.name for f in fields(Laws) if getattr(a, f.name) != getattr(b, f.name)}


@pytest.mark.parametrize("whole", CATALOGUE, ids=lambda s: s.name)
def test_without_all_of_its_rules_a_scheme_is_standard_practice(whole):
    if not whole.factors:
        pytest.skip("nothing to leave out")
    bare = whole.without(*whole.factors)
    assert bare.factors == ()
    assert str(bare.branch) == str(bare.attention_logits) == "1"
    for role, family in product(ROLES, Family):
        less = {"epsilon"} if family.matrices_only else set()  # SP itself has one there
        assert differ(bare, SP, role, family) <= less


@pytest.mark.parametrize("whole", CATALOGUE, ids=lambda s: s.name)
def test_every_name_gives_the_same_scheme_again(whole):
    for rule in whole.factors:
        for one in (whole.without(rule), whole.only(rule)):
            assert scheme(one.name) == one
            assert one.whole == whole.name
    if len(whole.factors) > 1:
        both = whole.without(*whole.factors[:2])
        assert (
            scheme(both.name) == both == whole.without(whole.factors[1]).without(whole.factors[0])
        )


@pytest.mark.parametrize("whole", CATALOGUE, ids=lambda s: s.name)
def test_one_rule_changes_its_own_quantity_of_its_own_group_alone(whole):
    law_of = {"start": {"init"}, "multiplier": {"forward"}, "lr": {"lr", "decay"}}
    for rule in whole.factors:
        group, _, quantity = rule.partition(".")
        if group == "run":
            continue
        own = law_of.get(quantity, {quantity})
        for role, family in product(ROLES, Family):
            changed = differ(whole, whole.without(rule), role, family)
            assert changed <= own
            if group in {*Kind} and role.kind != group:
                assert not changed


def test_rates_of_adam_by_hand():
    """TP5 Table 3 and TP6 Table 1: hidden m^-1 r^-1/2, readout m^-1, input 1."""
    depth_mup = scheme("depth-mup")

    def lr(rule, role):
        return depth_mup.without(rule).laws(role, ADAM).lr

    assert lr("hidden.lr", HIDDEN) == Power(depth=Fraction(-1, 2))
    assert lr("branch.lr", HIDDEN) == Power(fan_in=Fraction(-1))
    assert lr("readout.lr", Role(kind=Kind.READOUT)) == Power()
    assert lr("branch.multiplier", HIDDEN) == depth_mup.laws(HIDDEN, ADAM).lr
    assert depth_mup.without("branch.multiplier").branch == Power()
    start = depth_mup.without("readout.start").laws(Role(kind=Kind.READOUT), ADAM).init
    assert start == Power(fan_in=Fraction(-1, 2))


def test_decay_keeps_lr_times_decay_until_it_is_left_out_itself():
    mup = scheme("mup")
    for rule in ("hidden.lr", "hidden.decay"):
        laws = mup.without(rule).laws(HIDDEN, ADAM)
        product_of_both = laws.lr.at(AT) * laws.decay.at(AT)
        assert product_of_both == (1.0 if rule == "hidden.lr" else 1 / 4)
    # CompleteP scales the decay of hidden matrices by width alone: that part follows.
    laws = scheme("completep").without("hidden.lr").laws(HIDDEN, ADAM)
    assert (laws.lr.at(AT), laws.decay.at(AT)) == (1.0, 1.0)


def test_rules_of_the_run_leave_the_others():
    both = scheme("complete-dp").without("run.lr")
    assert str(both.laws(HIDDEN, ADAM).lr) == "m_in^-1"
    assert str(both.run_laws(both.run).one_minus_beta) == "b d^-1"
    assert str(both.without("run.averages").run_laws(both.run).one_minus_beta) == "1"


def test_axes_along_which_a_rule_acts():
    depth_mup = scheme("depth-mup")
    axes = ("width", "depth", "batch", "rank")
    along = {rule: factors_along(depth_mup, rule, ADAM, axes) for rule in depth_mup.factors}
    assert along["hidden.lr"] == ("width", "rank")  # of a rank no law speaks
    assert along["branch.multiplier"] == ("depth", "rank")
    assert factors_along(depth_mup, "hidden.lr", SGD, axes) == ("rank",)  # m^0 under SGD
    assert factors_along(depth_mup, "input.lr", SGD, axes) == ("width", "rank")


def test_predictions_follow_the_laws_that_are_left():
    ablated = scheme("depth-mup").without("hidden.lr")
    assert effect(ablated, ADAM, HIDDEN) == Power(fan_in=Fraction(1), depth=Fraction(-1, 2))
    update = predict(ablated, ADAM, Observable.UPDATE, role=HIDDEN)
    assert (update.width, update.depth) == (1, Fraction(-1, 2))
    branch = predict(scheme("depth-mup").without("branch.multiplier"), ADAM, Observable.BRANCH)
    assert branch.depth is None  # unstable at the start
    logits = predict(scheme("mup").without("readout.multiplier"), ADAM, Observable.LOGITS)
    assert logits.width == Fraction(1, 2)
    # What everything has a part in is no single power.
    assert predict(ablated, ADAM, Observable.LOGITS_CHANGE).width is None
    assert predict(ablated, SGD, Observable.UPDATE, role=HIDDEN).width is None


def test_what_is_no_rule_of_the_scheme_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match=r"got 'hiden.lr'. Did you mean hidden.lr\?"):
        scheme("depth-mup").without("hiden.lr")
    with pytest.raises(ValueError, match=r"Expected rules of muP: input.lr, .*got 'branch.lr'"):
        scheme("mup-without-branch.lr")
    with pytest.raises(ValueError, match=r"got 'hidden.lr'"):  # twice
        scheme("mup").without("hidden.lr").without("hidden.lr")
    with pytest.raises(ValueError, match="take 'sp'"):
        scheme("mup").only()


def test_words_of_rules_are_unique():
    assert len(set(FACTORS.values())) == len(FACTORS)
