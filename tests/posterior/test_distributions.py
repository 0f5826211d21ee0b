"""The normal distribution, Student's and mixtures, against scipy's and bisection."""

import numpy as np
import pytest
from scipy import special
from scipy.special import ndtr, stdtr, stdtrit

from depthmup.posterior.distributions import (
    normal_below,
    polygamma,
    student_above,
    student_half_width,
)
from depthmup.posterior.mixture import NormalMixture


def test_the_normal_distribution_is_scipys():
    x = np.concatenate([np.linspace(-12, 12, 100_001), [-1e300, 1e300, -np.inf, np.inf]])
    assert np.abs(normal_below(x) - ndtr(x)).max() < 1e-15


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.99])
def test_students_interval_is_scipys(confidence):
    freedom = np.concatenate([np.linspace(0.5, 10, 100), 10 ** np.linspace(1, 9, 100)])
    expected = stdtrit(freedom, (1 + confidence) / 2)
    np.testing.assert_allclose(student_half_width(freedom, confidence), expected, rtol=3e-12)


@pytest.mark.parametrize("freedom", [0.5, 1, 1.7, 2, 5, 30, 120, 1e4, 1e9])
def test_students_tail_is_scipys(freedom):
    for t in (-50, -3, -0.1, 0, 1e-5, 0.3, 1, 2, 5, 9, 40, 1e3, 1e8):
        assert student_above(t, freedom) == pytest.approx(stdtr(freedom, -t), abs=1e-12)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_polygamma_is_scipys(order):
    x = np.concatenate([np.linspace(0.01, 60, 1000), 10 ** np.linspace(-2, 8, 50)])
    np.testing.assert_allclose(polygamma(order, x), special.polygamma(order, x), rtol=1e-12)


def bisected(mixture, share):
    reach = 40 * mixture.deviation
    low, high = (mixture.mean - reach).min(-1), (mixture.mean + reach).max(-1)
    for _ in range(60):
        middle = (low + high) / 2
        standard = (middle[..., None] - mixture.mean) / np.maximum(mixture.deviation, 1e-300)
        under = (mixture.weight * ndtr(standard)).sum(-1) < share
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return (low + high) / 2


def mixture(rng, *, exact):
    """Answers of many nodes; in some, a tenth of the nodes know the answer exactly."""
    answers, nodes = rng.integers(1, 8), rng.integers(1, 300)
    deviation = 10 ** rng.uniform(-3, 0.5, size=(answers, nodes))
    return NormalMixture(
        mean=rng.normal(size=(answers, nodes)) * 10 ** rng.uniform(-2, 1),
        deviation=deviation * (rng.random((answers, nodes)) > exact),
        weight=rng.dirichlet(np.full(nodes, 0.1), size=answers),
    )


@pytest.mark.parametrize("exact", [0.0, 0.1])
def test_quantiles_are_those_of_bisection(exact):
    rng = np.random.default_rng(0)
    for _ in range(100):
        some, share = mixture(rng, exact=exact), rng.uniform(0.001, 0.999)
        apart = np.abs(some.quantile(share) - bisected(some, share))
        assert (apart <= 1e-8 * (some.deviation.max(-1) + np.ptp(some.mean, -1))).all()


def test_an_answer_is_the_same_alone_and_beside_others():
    some = mixture(np.random.default_rng(1), exact=0.0)
    alone = [
        NormalMixture(mean=m[None], deviation=d[None], weight=w[None]).quantile(0.3)[0]
        for m, d, w in zip(some.mean, some.deviation, some.weight, strict=True)
    ]
    assert some.quantile(0.3).tolist() == alone


def test_one_exact_answer_is_its_own_quantile():
    one = NormalMixture(mean=np.ones((1, 1)), deviation=np.zeros((1, 1)), weight=np.ones((1, 1)))
    assert one.quantile(np.array([[0.025], [0.5]])).tolist() == [[1.0], [1.0]]
