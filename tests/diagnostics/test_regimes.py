"""Regimes measured on trained networks beside those computed at infinite width."""

import pytest
import torch

from depthmup.diagnostics import Subject, measured_map, measured_regime
from depthmup.models import ResidualMLP


def batch(generator):
    return torch.randn(16, 6, generator=generator), torch.randint(8, (16,), generator=generator)


def make(width, depth):
    return ResidualMLP(inputs=6, width=width, depth=depth, outputs=8, multiplier=0.5)


SUBJECT = Subject(make=make, batch=batch)
OPTIONS = {"seeds": 2, "plan_options": {"own_init": "fan_in"}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("alpha", "gamma", "name"),
    [
        ("1/2", "1/2", "Depth-muP"),
        ("1", "0", "redundant"),
        ("1/2", "0", "unstable in training"),
        ("1/2", "1", "trivial"),
        ("5/4", "-1/4", "unfaithful"),
    ],
)
def test_measured_regions_are_those_of_figure_1(alpha, gamma, name):
    found = measured_regime(SUBJECT, alpha, gamma, **OPTIONS)
    assert found.region == name == found.expected.name
    assert found.agrees, found.properties


@pytest.mark.long
def test_a_network_that_explodes_is_unstable_at_initialization():
    full = Subject(
        make=lambda width, depth: ResidualMLP(inputs=6, width=width, depth=depth, outputs=8),
        batch=batch,
    )
    (found,) = measured_map(full, [(0, 0)], **OPTIONS)
    assert found.region == "unstable at initialization"
