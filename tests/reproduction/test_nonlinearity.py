"""Figures 2, 3 and 25 in worlds where they hold and where they do not."""

import math
from functools import partial

import pytest
from planted import SMALL, change, planted, scatter

from reproduction import Setting, named
from reproduction.evidence import Reproduction


def branches(cell, *, pre_gains=0.0, relu=0.4, drift=0.0):
    """At depth 8 all train alike; relu(W x) gains from depth, W relu(x) by ``pre_gains``."""
    network = cell.network
    doublings = math.log2(network.depth / 8)
    pre = network.nonlinearity == "pre"
    gain = pre_gains if pre else 0.1
    worse = relu if network.activation == "relu" else 0.0
    away = change(cell) - 0.5 - drift * doublings - scatter(cell, 0)
    return math.exp(0.12 * away**2 - gain * doublings + worse + scatter(cell, 1, scale=0.005))


def verdict(name, path, law, **setting):
    (claim,) = named([name])
    experiment = claim.experiment(Setting(sizes=SMALL, **setting))
    with planted(experiment, path, law) as store:
        return claim.finding(experiment, store).verdict


@pytest.mark.long(of="figures")
@pytest.mark.parametrize("name", ["fig2", "fig3", "fig25"])
def test_where_they_hold_they_are_reproduced(name, tmp_path):
    assert verdict(name, tmp_path, branches) is Reproduction.REPRODUCED


@pytest.mark.long(of="figures")
@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("fig2", partial(branches, pre_gains=0.1)),  # as much as relu(W x) gains
        ("fig2", partial(branches, drift=-0.4)),
        ("fig3", partial(branches, relu=-0.1)),
        ("fig25", partial(branches, drift=-0.4)),
    ],
    ids=["depth helps", "no transfer", "relu is better", "no transfer in late windows"],
)
def test_where_they_do_not_hold_they_are_not_reproduced(name, law, tmp_path):
    assert verdict(name, tmp_path, law) is Reproduction.NOT_REPRODUCED
