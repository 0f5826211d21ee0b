"""The rule of the best learning rate, against exact curves of loss after a few steps."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from depthmup import limits
from depthmup.limits import Block, optimal_rate

RNG = np.random.default_rng(3)
INPUTS, TARGETS = RNG.normal(size=(4, 2)), RNG.normal(size=(4, 1))
DEPTHS = (2, 4, 8, 16, 32, 64)


def best_rate(depth, alpha, gamma, *, steps, curvature):
    """Where the exact loss of infinitely wide linear networks is lowest after full-batch steps."""
    step = limits.Step(INPUTS, limits.mse(TARGETS))

    def loss(lr):
        solution = limits.linear(
            [step] * steps, depth=depth, lr=lr, alpha=alpha, gamma=gamma, held_out=INPUTS
        )
        return step.loss.value(solution.held_out[-1])

    grid = np.geomspace(0.3, 20, 80) / curvature
    lowest = int(np.argmin([loss(lr) for lr in grid]))
    assert 0 < lowest < len(grid) - 1
    bounds = grid[lowest - 1], grid[lowest + 1]
    return minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-9}).x


@pytest.mark.long
@pytest.mark.parametrize(
    ("alpha", "gamma"), [("1/2", "1/2"), ("1", "0"), ("1/2", "1/4"), ("1/2", "0")]
)
@pytest.mark.parametrize(("steps", "within"), [(1, 1e-6), (3, 0.01)])
def test_optima_move_as_predicted(alpha, gamma, steps, within):
    """Of one step exactly, of three to a percent; also where the scheme is wrong and they move far.

    ``optimal_rate`` counts learning rates from the base's, ``limits.linear`` from depth one: its
    rate lr is L^(alpha - gamma) lr on W, so the base's depth is 1.
    """
    found = optimal_rate(INPUTS, depths=DEPTHS, base_depth=1, scheme=f"{alpha},{gamma}")
    optima = [
        best_rate(depth, alpha, gamma, steps=steps, curvature=curvature)
        for depth, curvature in zip(DEPTHS, found.curvatures, strict=True)
    ]
    measured = np.array(optima) / optima[0]
    predicted = np.array(found.factors) / found.factors[0]
    np.testing.assert_allclose(measured, predicted, rtol=within)
    if alpha == "1/2":  # what the rule has to explain is a hundred times what it leaves
        assert measured[-1] < 0.6


# theory: optima of the exact loss of two-matrix linear networks after three full-batch steps, in
# units in which U has one input of length one.
TWO_MATRICES = {
    "1,0": ((0.6057, 0.6155, 0.6529, 0.6814, 0.6984, 0.7076), 0.055),
    "1/2,1/2": ((0.5174, 0.3958, 0.3382, 0.3103, 0.2966, 0.2898), 0.009),
}


@pytest.mark.parametrize("scheme", TWO_MATRICES)
def test_two_matrices(scheme):
    """Exact optima from an independent solver: the drift, and what the rule leaves of it."""
    optima, remainder = TWO_MATRICES[scheme]
    block = Block(block_depth=2)
    found = optimal_rate(INPUTS, depths=DEPTHS, base_depth=1, scheme=scheme, block=block)
    products = np.array(optima) * np.array(found.curvatures)
    assert products.max() / products.min() - 1 == pytest.approx(remainder, abs=0.002)
    assert max(optima) / min(optima) > 1.15


def test_infinitesimal_branches_have_the_exponents_of_the_scheme():
    """Where branches are small, lambda is its prefactor r^(1 - alpha - gamma) alone."""
    for alpha, gamma in ((Fraction(1, 2), Fraction(1, 4)), (Fraction(3, 4), Fraction(1, 2))):
        found = optimal_rate(
            INPUTS, depths=(8, 64, 512), base_depth=8, scheme=f"{alpha},{gamma}",
            multiplier=1e-4, block=Block(activation="relu"),
        )  # fmt: skip
        assert found.drift == pytest.approx(float(alpha + gamma - 1), abs=1e-6)
        assert found.factors[0] == 1


@pytest.mark.parametrize("activation", ["relu", "abs", "tanh"])
def test_drift_of_a_scheme_that_is_off_is_its_learning_rate(activation):
    """(1/2, 0) is Depth-muP with rates r^1/2 too large: their optima differ by just that."""
    common = {"depths": (4, 8, 16), "base_depth": 4, "block": Block(activation=activation)}
    right = optimal_rate(INPUTS, scheme="depth-mup", **common)
    wrong = optimal_rate(INPUTS, scheme="1/2,0", **common)
    np.testing.assert_allclose(np.subtract(right.octaves, wrong.octaves), [0, 0.5, 1], atol=1e-12)
    assert wrong.drift == pytest.approx(right.drift - 0.5)


def test_progress_counts_layers_once():
    told = []

    def progress(done, total):
        told.append((done, total))

    optimal_rate(INPUTS, depths=(4, 2, 4), base_depth=2, progress=progress)
    assert told == [(2, 6), (6, 6)]


def test_an_exploding_network_has_no_rate():
    found = optimal_rate(INPUTS, depths=(8, 4096), base_depth=8, scheme="sp")
    assert found.octaves[1] == -math.inf


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depths": ()}, "at least one depth"),
        ({"depths": (8, 0)}, "positive integers"),
        ({"depths": (8.0,)}, "positive integers"),
        ({"multiplier": 0.0}, "positive and finite"),
        ({"scheme": "deepmup"}, "Expected a scheme"),
        ({"inputs": np.zeros((2, 2))}, "does not learn"),
        ({"block": Block(rates=(0.0,))}, "does not learn"),
        ({"base_depth": 4096, "scheme": "sp"}, "explodes"),
        ({"inputs": [[1.0], [0.0]], "block": Block(layer_norm=True)}, "Input 1 is zero"),
        ({"block": Block(activation="identity", block_depth=1), "inputs": [1.0]}, "shape"),
    ],
)
def test_bad_input(wrong, message):
    options = {"inputs": INPUTS, "depths": (8,), "base_depth": 8, **wrong}
    with pytest.raises(ValueError, match=message):
        optimal_rate(options.pop("inputs"), **options)


def test_depths_as_an_array():
    array, listed = (
        optimal_rate(INPUTS, depths=depths, base_depth=depths[0])
        for depths in (2 ** np.arange(1, 4), (2, 4, 8))
    )
    assert array == listed


def test_a_depth_that_is_too_large_is_refused_before_the_base_is_computed():
    def never(done, total):
        raise AssertionError

    with pytest.raises(ValueError, match="at most 10,000,000; got 100,000,000"):
        optimal_rate(INPUTS, depths=(10**8,), base_depth=4, progress=never)


@pytest.mark.parametrize("scheme", ["1000,0", "-1000,0"])
def test_factors_beyond_floating_point(scheme):
    with pytest.raises(ValueError, match=r"r\^-?1000 .* floating point"):
        optimal_rate(INPUTS, depths=(64,), base_depth=2, scheme=scheme)
