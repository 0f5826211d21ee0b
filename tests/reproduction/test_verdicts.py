"""Verdicts: what agrees is fixed beforehand, and an interval decides only where all of it does."""

import math

import pytest
from planted import NO, OPEN, YES

from depthmup.records import UNKNOWN, Estimate
from reproduction.evidence import Accepted, Comparison, Finding


def between(low, high):
    return Estimate(value=(low + high) / 2, low=low, high=high)


@pytest.mark.parametrize(
    ("accepted", "found", "verdict"),
    [
        (Accepted(low=-0.15, high=0.15), between(-0.1, 0.1), YES),
        (Accepted(low=-0.15, high=0.15), between(-0.2, 0.1), OPEN),
        (Accepted(low=-0.15, high=0.15), between(0.2, 0.3), NO),
        (Accepted(low=0.0), Estimate(value=0.2, low=0.1, high=math.inf), YES),
        (Accepted(high=0.0), between(0.1, 0.2), NO),
        (Accepted(contains=-2.0, low=-2.5, high=-1.5), between(-2.2, -1.9), YES),
        (Accepted(contains=-2.0, low=-2.5, high=-1.5), between(-3.2, -0.9), OPEN),
        (Accepted(contains=-2.0, low=-2.5, high=-1.5), between(-1.9, -1.8), NO),
        (Accepted(low=0.0), UNKNOWN, OPEN),
        (Accepted(contains=0.0), UNKNOWN, OPEN),
        (Accepted(low=0.0, high=0.1), between(math.inf, math.inf), NO),
        (Accepted(low=5.0), between(math.inf, math.inf), YES),
        (Accepted(low=0, high=0), between(0, 0), YES),
    ],
)
def test_an_interval_against_what_was_accepted(accepted, found, verdict):
    assert accepted.judge(found) is verdict


def finding(*verdicts, aside=()):
    places = {YES: between(0.1, 0.2), OPEN: between(-1, 1), NO: between(-2, -1)}
    return Finding(
        claim="c",
        title="t",
        shows="s",
        source="p",
        comparisons=tuple(
            Comparison(
                what="w", paper="p", ours=places[v], accepted=Accepted(low=0.0), decisive=decisive
            )
            for chosen, decisive in ((verdicts, True), (aside, False))
            for v in chosen
        ),
    )


def test_one_comparison_that_fails_decides_and_one_that_is_open_leaves_open():
    assert finding(YES, YES).verdict is YES
    assert finding(YES, OPEN).verdict is OPEN
    assert finding(YES, OPEN, NO).verdict is NO
    assert finding(YES, aside=[NO]).verdict is YES
    assert finding().verdict is OPEN
    assert finding(aside=[YES]).verdict is OPEN
