"""Claims 7.1 to 7.6 of Tensor Programs VI, and Figure 1, over a grid of exponents."""

from fractions import Fraction
from itertools import product

import pytest

from depthmup.rules import regime

HALF = Fraction(1, 2)
GRID = [Fraction(k, 8) for k in range(-8, 17)]


@pytest.mark.parametrize(
    ("alpha", "gamma", "name"),
    [
        ("1/4", "3/4", "unstable at initialization"),
        ("1/2", "1/4", "unstable in training"),
        ("1/2", "3/4", "trivial"),
        ("5/4", "-1/4", "unfaithful"),
        ("3/4", "1/4", "redundant"),
        (1, 0, "redundant"),
        ("1/2", "1/2", "Depth-muP"),
        (0, 0, "unstable at initialization"),
        ("1/2", 0, "unstable in training"),
    ],
)
def test_figure_1(alpha, gamma, name):
    assert regime(alpha, gamma).name == name


def test_claims_at_every_point_of_a_grid():
    for alpha, gamma in product(GRID, GRID):
        found = regime(alpha, gamma)
        assert found.stable_at_init == (alpha >= HALF)
        assert found.stable_in_training == (alpha >= HALF and alpha + gamma >= 1)
        assert found.nontrivial == (alpha + gamma <= 1)
        if found.stable_in_training and found.nontrivial:
            assert found.faithful == (alpha <= 1)
            assert found.kappa == (HALF if alpha == HALF else 0)
            assert found.layerwise_linear == (HALF <= alpha < 1)
        else:
            assert found.faithful is found.kappa is found.layerwise_linear is None


def test_depth_mup_is_unique():
    """Claim 7.5: no other pair is stable, nontrivial, faithful and of maximal diversity."""
    best = [
        (a, g)
        for a, g in product(GRID, GRID)
        if (found := regime(a, g)).faithful and found.kappa == HALF
    ]
    assert best == [(HALF, HALF)]


def test_the_sentence_names_the_exponent():
    assert "L^1/2" in regime("0", "1").why
    assert "L^1/4" in regime("1/2", "1/4").why


def test_what_is_no_exponent():
    with pytest.raises(ValueError, match="Expected alpha to be a rational number"):
        regime("x", 0)
