"""Predicted exponents against the claims of Section 7 and against perturbed laws."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from depthmup.rules import (
    CATALOGUE,
    DEPTH_MUP,
    HYPERP,
    MAXIMAL_UPDATE,
    ODE,
    SP,
    Departure,
    Family,
    Kind,
    Observable,
    Part,
    Power,
    Role,
    effect,
    general,
    predict,
)
from depthmup.rules import (
    scheme as scheme_named,
)

HALF = Fraction(1, 2)
FOLLOWING = [s for s in CATALOGUE if s.follows_width and s.follows_depth]
ROLES = [Role(kind=k, in_branch=b) for k in Kind for b in (False, True) if k is not Kind.READOUT]
READOUT = Role(kind=Kind.READOUT)


def on_every_group(scheme, family, role):
    """Whether r^-1/2 stands outside of branches, too: HyperP's, on the sphere and beside it."""
    served = family.serving(role.kind)
    on_sphere = Family.SPHERE if role.kind is Kind.HIDDEN else Family.ENTRYWISE
    return scheme is HYPERP and served is on_sphere


@pytest.mark.parametrize("scheme", FOLLOWING, ids=lambda s: s.name)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("role", ROLES, ids=str)
def test_relative_updates_ignore_width_and_shrink_by_gamma(scheme, family, role):
    """The defining property of maximal updates, for every scheme, family and role."""
    found = predict(scheme, family, Observable.UPDATE, role=role)
    everywhere = on_every_group(scheme, family, role)
    assert (found.width, found.depth) == (0, -scheme.gamma if role.in_branch or everywhere else 0)


@pytest.mark.parametrize("scheme", FOLLOWING, ids=lambda s: s.name)
@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("tied", [False, True])
def test_the_readout_moves_the_logits_by_order_one(scheme, family, tied):
    role = replace(READOUT, tied=tied)
    found = predict(scheme, family, Observable.READOUT_UPDATE, role=role)
    assert (found.width, found.depth) == (0, -HALF * on_every_group(scheme, family, role))


@pytest.mark.parametrize(
    ("observable", "depth_mup", "ode"),
    [
        (Observable.STREAM, (0, 0), (0, 0)),  # ODE: at most, as noise is L^-1/2
        (Observable.BRANCH, (0, -HALF), (0, -1)),
        (Observable.PREACTIVATION, (0, 0), (0, 0)),
        (Observable.STREAM_CHANGE, (0, 0), (0, 0)),
        (Observable.LOGITS, (-HALF, 0), (-HALF, None)),
        (Observable.LOGITS_CHANGE, (0, 0), (0, 0)),
        (Observable.BRANCH_CHANGE, (0, None), (0, None)),
    ],
)
def test_table(observable, depth_mup, ode):
    for scheme, expected in ((DEPTH_MUP, depth_mup), (ODE, ode)):
        found = predict(scheme, Family.ENTRYWISE, observable)
        assert (found.width, found.depth) == expected


def test_a_stream_that_its_branches_leave_may_shrink_and_with_it_what_reads_it():
    """Without norms, x + L^-1 (independent branches) is x + O(L^-1/2), and W x follows it."""
    for scheme, bounded in ((DEPTH_MUP, False), (ODE, True)):
        for observable in (Observable.STREAM, Observable.PREACTIVATION):
            assert predict(scheme, Family.ENTRYWISE, observable).at_most is bounded


def test_entries_of_an_update_shrink_faster_than_its_norm():
    """Adam's entries are 1/m beside weights of m^-1/2, yet the norms keep their ratio."""
    role = Role(kind=Kind.HIDDEN)
    entry = predict(DEPTH_MUP, Family.ENTRYWISE, Observable.ENTRY_UPDATE, role=role)
    norm = predict(DEPTH_MUP, Family.ENTRYWISE, Observable.SPECTRAL_UPDATE, role=role)
    assert (entry.width, norm.width) == (-HALF, 0)


def test_attention_logits_follow_the_head_only():
    grown = predict(DEPTH_MUP, Family.RAW, Observable.ATTENTION_LOGITS, head_grows=True)
    more = predict(DEPTH_MUP, Family.RAW, Observable.ATTENTION_LOGITS)
    assert (grown.width, more.width) == (-HALF, 0)


def test_a_scheme_with_another_law_is_predicted_by_that_law():
    """Nothing is looked up by name: a learning rate of m_in^-1/2 is seen as one."""
    wrong = Departure(quantity="lr", law=Power(fan_in=-HALF), kinds=frozenset({Kind.HIDDEN}))
    mine = replace(DEPTH_MUP, departures=(wrong,))
    role = Role(kind=Kind.HIDDEN, in_branch=True)
    assert effect(mine, Family.ENTRYWISE, role) == Power(fan_in=HALF)
    found = predict(mine, Family.ENTRYWISE, Observable.UPDATE, role=role)
    assert (found.width, found.depth) == (HALF, 0)


def test_nothing_is_claimed_where_theory_has_no_power_law():
    unstable = general("1/4", "3/4")
    off_the_line = general("1/2", 0)
    assert predict(unstable, Family.RAW, Observable.STREAM).depth is None
    assert predict(off_the_line, Family.RAW, Observable.STREAM_CHANGE).depth is None
    assert predict(off_the_line, Family.RAW, Observable.BRANCH).depth == -HALF
    assert predict(SP, Family.ENTRYWISE, Observable.UPDATE, role=ROLES[0]).width is None
    tied = predict(DEPTH_MUP, Family.RAW, Observable.LOGITS, role=replace(READOUT, tied=True))
    assert tied.width is None
    fresh = predict(DEPTH_MUP, Family.RAW, Observable.READOUT, role=replace(READOUT, tied=True))
    assert fresh.width == -HALF


def test_a_parameters_observable_needs_its_role():
    with pytest.raises(ValueError, match="pass its role"):
        predict(DEPTH_MUP, Family.RAW, Observable.UPDATE)


def test_shared_parameters_sum_the_gradients_of_all_branches():
    """With the law for sharing taken away, SGD's update would be L times too large."""
    role = Role(kind=Kind.HIDDEN, in_branch=True, shared=True)
    assert effect(DEPTH_MUP, Family.RAW, role).depth == -HALF
    assert MAXIMAL_UPDATE.law(Kind.HIDDEN, DEPTH_MUP.readout).gradient == Power(fan_out=-1)


ROUTER = Role(kind=Kind.HIDDEN, in_branch=True, part=Part.ROUTER, narrows=True)


@pytest.mark.parametrize(
    ("name", "role", "expected"),
    [
        ("completep+mssp", ROUTER, -0.5),
        ("completep+moe", ROUTER, 0.0),
        ("completep", Role(kind=Kind.HIDDEN, in_branch=True, narrows=True), 0.0),
        ("completep", Role(kind=Kind.HIDDEN, in_branch=True), 0.0),
    ],
)
def test_the_spectral_norm_of_an_update_of_few_rows_falls_with_width(name, role, expected):
    """Beside the start: against matrices with the laws of a plan, and Adam's signs."""
    of = scheme_named(name)
    assert predict(of, Family.ENTRYWISE, Observable.SPECTRAL_UPDATE, role=role).width == expected
    rng, widths, rows = np.random.default_rng(0), np.array([256, 512, 1024, 2048]), 4
    power = float(of.scales(role).init.fan_in)

    def ratio(width, fan_out):
        start = rng.normal(size=(fan_out, width)) * width**power
        update = np.sign(np.outer(rng.normal(size=fan_out), rng.normal(size=width))) / width
        return np.linalg.norm(update, 2) / np.linalg.norm(start, 2)

    def slope(shape):
        values = [np.log(ratio(width, shape(width))) for width in widths]
        return np.polyfit(np.log(widths), values, 1)[0]

    # A start of 4 rows has a norm of 1 + sqrt(4 / width), which bends the line by a few hundredths.
    few = (lambda _: rows) if role.narrows else (lambda width: width // 4)
    assert slope(few) == pytest.approx(expected, abs=0.06)
