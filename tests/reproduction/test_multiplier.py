"""Figure 13 in worlds where the best multiplier stays and where it moves."""

import math
from functools import partial

import pytest
from planted import SMALL, planted, scatter

from depthmup.rules import ODE
from reproduction import Scale, Setting, named
from reproduction.evidence import Reproduction


def best_at(cell, *, drift):
    """The best a of Depth-muP moves by ``drift`` octaves per doubling of depth."""
    depth = cell.network.depth
    log2_a = math.log2(cell.network.multiplier * math.sqrt(depth / 8))
    away = log2_a + 0.3 - drift * math.log2(depth / 8) - scatter(cell, 0)
    return math.exp(0.3 * away**2)


@pytest.mark.parametrize(
    ("drift", "setting", "verdict"),
    [
        (0.0, {}, Reproduction.REPRODUCED),
        (-0.3, {}, Reproduction.NOT_REPRODUCED),
        # A branch that shrinks as 1/L needs an a that grows as L^1/2.
        (0.0, {"depth_mup": ODE}, Reproduction.NOT_REPRODUCED),
    ],
    ids=["stays", "moves", "wrong rule"],
)
def test_the_best_multiplier(drift, setting, verdict, tmp_path):
    (claim,) = named(["fig13"])
    experiment = claim.experiment(Setting(sizes=SMALL, **setting))
    with planted(experiment, tmp_path, partial(best_at, drift=drift)) as store:
        assert claim.finding(experiment, store).verdict is verdict


@pytest.mark.parametrize(
    ("setting", "notes"),
    [(Setting(), 1), (Setting(scale=Scale.MEDIUM), 0), (Setting(depth_mup=ODE), 0)],
    ids=["laptop", "medium", "another rule"],
)
def test_numbers_of_the_laptop_are_told_of_the_laptops_networks_alone(setting, notes, tmp_path):
    (claim,) = named(["fig13"])
    experiment = claim.experiment(setting)
    with planted(experiment, tmp_path, partial(best_at, drift=0.0)) as store:
        assert len(claim.finding(experiment, store).notes) == notes
