"""Regimes measured on trained networks beside those computed at infinite width."""

import pytest
import torch
from pytest import approx

from depthmup.model import Model
from depthmup.models import ResidualMLP
from reproduction.probes.regimes import measured_map, measured_regime


def batch(generator):
    return torch.randn(16, 6, generator=generator), torch.randint(8, (16,), generator=generator)


def make(width, depth):
    return ResidualMLP(inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5)


SUBJECT = Model(make=make, batch=batch)
OPTIONS = {"plan_options": {"own_init": "fan_in"}}


def estimates(result):
    return {p.name: p.estimate for p in result.properties}


@pytest.mark.long
@pytest.mark.parametrize(
    ("alpha", "gamma", "name", "learning", "kappa"),
    [
        ("1/2", "1/2", "Depth-muP", 0.0, 0.5),
        ("1", "0", "redundant", 0.0, 0.0),
        ("1/2", "0", "unstable in training", 0.5, None),
        ("1/2", "1", "trivial", -0.5, None),
        ("5/4", "-1/4", "unfaithful", 0.0, 0.0),
    ],
)
def test_measured_regions_are_those_of_figure_1(alpha, gamma, name, learning, kappa):
    """And the exponents are the computed ones, of feature learning and diversity too."""
    result = measured_regime(SUBJECT, alpha, gamma, blocks="branches.*", lr=2e-3, **OPTIONS)
    assert result.region == name == result.expected.name
    assert result.agrees, result.properties
    # Corrections of order 1/L at L = 8 and of the second order in the updates: half the way to the
    # next multiple of 1/2.
    assert estimates(result)["feature learning"].value == approx(learning, abs=0.25)
    diverse = result.properties[-1]
    assert diverse.name == "diverse"
    if kappa is None:
        assert diverse.measured is None
    else:
        assert diverse.measured == (kappa > 0)
        assert diverse.estimate.value == approx(kappa, abs=0.25)


@pytest.mark.long
def test_without_the_names_of_blocks_diversity_is_inferred_from_initialization():
    options = {**OPTIONS, "depths": (8, 16, 32), "seeds": 2}
    for alpha, gamma, name in (("1/2", "1/2", "Depth-muP"), ("3/4", "1/4", "redundant")):
        result = measured_regime(SUBJECT, alpha, gamma, **options)
        assert result.properties[-1].measured is None
        assert result.region == name


@pytest.mark.long
def test_a_network_that_explodes_is_unstable_at_initialization():
    full = Model(
        make=lambda width, depth: ResidualMLP(inputs=6, width=width, depth=depth, outputs=8),
        batch=batch,
    )
    (result,) = measured_map(full, [(0, 0)], **OPTIONS)
    assert result.region == "unstable at initialization"
