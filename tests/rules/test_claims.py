"""What published rules claim of values other than the rate, by hand from their sources' laws."""

from fractions import Fraction

import pytest

from depthmup.rules import run_rule, scheme
from depthmup.rules.claims import claims

SDE, HALF_LIFE = "Complete(d)P", "constant time of decay in epochs"


def claimed(axis, fixed, quantity, under=None):
    return {c.rule: c.exponent for c in claims(axis, fixed, under, quantity=quantity)}


@pytest.mark.parametrize(
    ("axis", "fixed", "quantity", "rule", "exponent"),
    [
        # arXiv 2512.22382 Table 1: decay ~ (B / D)^1/2, 1 - beta ~ B / D, epsilon by its inverse.
        ("batch", "tokens", "decay", SDE, Fraction(1, 2)),
        ("batch", "steps", "decay", SDE, Fraction(0)),
        ("tokens", "", "decay", SDE, Fraction(-1, 2)),
        ("tokens", "", "one_minus_beta", SDE, Fraction(-1)),
        ("batch", "tokens", "epsilon", SDE, Fraction(-1, 2)),
        # arXiv 2405.13698: rate x decay x steps stays.
        ("batch", "tokens", "decay", HALF_LIFE, Fraction(1)),
        ("steps", "", "decay", HALF_LIFE, Fraction(-1)),
        ("width", "", "decay", "decay as the width", Fraction(1)),
        # Power Lines: decay ~ B / D (D / N)^0.527.
        ("tokens", "", "decay", "one rate for all batches", Fraction(-473, 1000)),
        ("parameters", "", "decay", "one rate for all batches", Fraction(-527, 1000)),
        # B ~ D^p and D = B S: B ~ S^(p / (1 - p)).
        ("tokens", "", "batch", "Step Law", Fraction(571, 1000)),
        ("steps", "", "batch", "Step Law", Fraction(571, 429)),
        ("compute", "", "batch", "DeepSeek", Fraction(3271, 10000)),
        ("depth", "", "branch", "Depth-muP", Fraction(-1, 2)),
    ],
)
def test_exponents_of_other_values(axis, fixed, quantity, rule, exponent):
    assert claimed(axis, fixed, quantity)[rule] == exponent


@pytest.mark.parametrize("axis", ["width", "depth"])
def test_a_rule_of_parameters_says_nothing_of_width_or_depth_alone(axis):
    assert "one rate for all batches" not in claimed(axis, "", "decay")


def test_a_scheme_keeps_the_values_at_its_base():
    for quantity in ("lr", "decay", "epsilon", "branch", "init", "one_minus_beta"):
        assert claimed("width", "", quantity, scheme("mup")) == {"muP": 0}


def test_what_a_scheme_has_scaled_is_gone_from_the_claims_of_others():
    under = scheme("complete-dp")
    assert claimed("tokens", "", "decay", under)[SDE] == 0
    assert claimed("tokens", "", "decay", under)[HALF_LIFE] == Fraction(-1, 2)


def test_nobody_speaks_of_what_is_not_known():
    assert claimed("width", "", "") == claimed("batch", "", "decay") == {}
    assert run_rule("sde").along("width", quantity="decay") is None
