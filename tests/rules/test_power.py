from fractions import Fraction
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from depthmup.rules import ONE, Power, Ratios, exponent

exponents = st.fractions(min_value=-3, max_value=3, max_denominator=8)
powers = st.builds(Power, fan_in=exponents, fan_out=exponents, depth=exponents)
multiples = st.floats(min_value=1 / 64, max_value=64)
ratios = st.builds(Ratios, fan_in=multiples, fan_out=multiples, depth=multiples)


@given(powers, powers, ratios)
def test_a_product_of_powers_is_the_product_of_factors(first, second, at):
    assert (first * second).at(at) == approx(first.at(at) * second.at(at), rel=1e-12)
    assert (first / second).at(at) == approx(first.at(at) / second.at(at), rel=1e-12)


@given(powers, multiples, multiples)
def test_two_hops_equal_one(power, first, second):
    one_hop = power.at(Ratios(depth=first * second))
    assert power.at(Ratios(depth=first)) * power.at(Ratios(depth=second)) == approx(one_hop)


@given(powers)
def test_every_factor_is_exactly_one_at_the_base(power):
    assert power.at(Ratios()) == 1.0


def test_exponents_are_exact():
    third = Power(depth=Fraction(1, 3))
    assert third**3 == Power(depth=Fraction(1))
    assert third * third * third / Power(depth=Fraction(1)) == ONE


@pytest.mark.parametrize(("given_as", "exact"), [(0.6, "3/5"), ("1/2", "1/2"), (-1, "-1")])
def test_exponent_reads_what_was_written(given_as, exact):
    assert exponent(given_as) == Fraction(exact)


@pytest.mark.parametrize("wrong", ["x", nan, inf, "1/0", None, [1]])
def test_exponent_refuses_what_is_not_rational(wrong):
    with pytest.raises(ValueError, match="Expected alpha to be a rational number"):
        exponent(wrong, name="alpha")


@pytest.mark.parametrize("wrong", [0, -1, nan, inf])
def test_ratios_must_be_positive_and_finite(wrong):
    with pytest.raises(ValueError, match=r"positive and finite.*depth="):
        Ratios(depth=wrong)


def test_a_power_reads_as_it_is_written_by_hand():
    assert str(Power(fan_in=Fraction(-1), depth=Fraction(-1, 2))) == "m_in^-1 r^-1/2"
    assert str(ONE) == "1"
