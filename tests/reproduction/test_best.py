"""Best losses of curves, and their ratios."""

import numpy as np
from numpy import inf
from pytest import approx

from reproduction.claims.best import best_log_loss, log_ratio_of_best

X = np.arange(-7.0, 1.0)


def test_the_best_loss_of_one_curve():
    losses = np.exp(0.2 * (X[:, None] + 3.1) ** 2 - 2 + np.array([-0.1, 0.1]))
    # To a hundredth of the rise in a bandwidth of 2.5 octaves.
    assert best_log_loss(X, losses) == approx(-2, abs=0.01 * 0.2 * 2.5**2)


def test_the_best_loss_of_nothing_is_unknown():
    assert np.isnan(best_log_loss(X, np.full((8, 2), inf)))


def test_what_moves_both_curves_cancels_in_their_ratio():
    """Seeds that shift both by their level: the ratio has no error, each best loss has."""
    level = np.array([-0.3, 0.1, 0.4])
    above, below = (
        (X, np.exp(0.2 * (X[:, None] + at) ** 2 + k + level)) for at, k in ((3.1, 1.0), (4, 0))
    )
    ratio = log_ratio_of_best(above, below)
    assert ratio.value == approx(1, abs=0.005)  # both fits miss the same
    assert ratio.high - ratio.low == approx(0, abs=1e-7)


def test_a_curve_that_never_trains_has_no_ratio():
    fine = np.exp(0.2 * (X[:, None] + 3) ** 2 + np.zeros(2))
    assert not log_ratio_of_best((X, np.full((8, 2), inf)), (X, fine)).known
