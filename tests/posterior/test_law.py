"""The law of minima: its covariances against simulation and their limits."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest import approx

from depthmup.posterior.law import PLACE, Covariances, LawNode, integrated, laws, prior_of

X = np.array([0.5, 1.0, 2.0, 3.0])


@pytest.mark.parametrize("memory", [0.5, 1.0, 4.0])
def test_a_slope_that_is_forgotten_by_its_stochastic_equation(memory):
    """Stepped exactly, integrated by trapezes: no covariance is written down."""
    rng, paths, step = np.random.default_rng(0), 10_000, 1 / 32
    keep = np.exp(-step / memory)
    slope, place, at = rng.standard_normal(paths), np.zeros(paths), []
    for number in range(1, round(X[-1] / step) + 1):
        new = keep * slope + np.sqrt(1 - keep**2) * rng.standard_normal(paths)
        place, slope = place + step * (slope + new) / 2, new
        if (number * step == X).any():
            at.append(place)
    drawn = np.cov(at)
    exact = integrated(X[:, None], memory)
    # The variance of a covariance: (V_ij^2 + V_ii V_jj) / paths.
    error = np.sqrt((exact**2 + np.outer(np.diag(exact), np.diag(exact))) / paths)
    assert (np.abs(drawn - exact) < 4 * error).all()


def test_a_slope_that_is_never_forgotten_is_straight():
    assert integrated(X[:, None], 1e5) == approx(np.outer(X, X), rel=1e-3)


def test_a_slope_that_is_forgotten_at_once_is_a_brownian_walk():
    """g(d) tends to 2 l d: a walk of variance 2 l per doubling."""
    memory = 1e-4
    walk = 2 * memory * np.minimum(X[:, None], X[None])
    assert integrated(X[:, None], memory) == approx(walk, rel=1e-3)


def test_on_both_sides_of_the_base_slopes_are_one():
    both = integrated(np.array([[-1.0], [1.0]]), 1e5)
    assert both == approx(np.array([[1.0, -1.0], [-1.0, 1.0]]), rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 6))
def test_every_covariance_is_one(seed, axes, sizes):
    """Symmetric and of no negative variance, whatever the sizes."""
    s = np.random.default_rng(seed).uniform(-3, 6, (sizes, axes))
    for memory in (0.3, 1.0, 4.0):
        part = integrated(s, memory)
        assert part == approx(part.T)
        assert np.linalg.eigvalsh(part).min() > -1e-9


def test_weights_of_laws_add_up_to_one():
    for several in (False, True):
        assert sum(node.weight for node in laws(several)) == approx(1)


def test_parts_add_up():
    """A straight slope of 0.5 and a scatter of 0.1, of which 0.6 is shared a doubling on."""
    node = LawNode(slope=0.5, forgotten=(), scatter=0.1, products=0.0, weight=1.0)
    s = np.array([[0.0], [1.0], [3.0]])
    parts = Covariances(s=s)
    assert parts.smooth(node) == approx(PLACE**2 + 0.25 * s @ s.T)
    apart = np.array([[0, 1, 3], [1, 0, 2], [3, 2, 0]])
    assert parts.scatter(node) == approx(0.01 * 0.6**apart)
    assert parts.whole(node) == approx(parts.smooth(node) + parts.scatter(node))


def test_a_product_of_two_axes_moves_sizes_that_grow_along_both():
    node = LawNode(slope=0.0, forgotten=(), scatter=0.0, products=0.07, weight=1.0)
    s = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0], [2.0, 3.0]])
    own = Covariances(s=s).smooth(node) - PLACE**2
    assert own == approx(np.diag([0, 0, 0, (0.07 * 6) ** 2]))


def test_a_slope_s_variance_shrinks_with_its_memory():
    at_ten = [float(integrated(np.array([[10.0]]), memory)[0, 0]) for memory in (0.5, 1, 4, 100)]
    assert all(one < other for one, other in pairwise(at_ten))


def test_roots_are_those_of_the_covariances():
    s = np.array([[0.0], [1.0], [2.0]])
    prior = prior_of(s)
    again = prior.root @ np.swapaxes(prior.root, -1, -2)
    assert again == approx(prior.whole, abs=1e-8)
    assert np.exp(prior.log_weight).sum() == approx(1)
