"""Figures 4 to 6 and 21 in worlds where they hold and where they do not."""

import math
from functools import partial

import numpy as np
import pytest
from planted import SMALL, change, planted, scatter

from depthmup.statistics import around
from reproduction import Setting, named
from reproduction.claims.learning_rates import by_the_tolerance
from reproduction.evidence import Reproduction

EIGHT_WINDOWS = {**SMALL, "steps": 8}


def pairs(cell, *, early, late):
    """Block depth 2 is above block depth 1 by ``early`` at first and ``late`` in the end (nats)."""
    gap = np.linspace(early, late, cell.steps) * (cell.network.block_depth == 2)
    log2_a = math.log2(cell.network.multiplier * math.sqrt(cell.network.depth / 8))
    away = math.log2(cell.optimizer.lr * cell.network.width) + 4.3
    level = 0.1 * away**2 + 0.05 * (log2_a - 1) ** 2 - 0.1 * np.arange(cell.steps)
    return np.exp(level + gap + 0.01 * scatter(cell, cell.network.block_depth))


def shifting(cell, *, drift):
    doublings = math.log2(cell.network.depth / 8)
    away = change(cell) + 1.0 - drift * doublings - scatter(cell, 0)
    return math.exp(0.12 * away**2)


def verdict(name, path, law, sizes=SMALL):
    (claim,) = named([name])
    experiment = claim.experiment(Setting(sizes=sizes))
    with planted(experiment, path, law) as store:
        return claim.finding(experiment, store).verdict


@pytest.mark.long(of="figures")
@pytest.mark.parametrize(
    ("name", "early", "late", "expected"),
    [
        ("fig4", 0.4, 0.1, Reproduction.REPRODUCED),
        ("fig4", 0.2, 0.4, Reproduction.NOT_REPRODUCED),  # widens
        ("fig4", -0.4, -0.5, Reproduction.NOT_REPRODUCED),  # is better
        ("fig5", 0.2, 0.3, Reproduction.REPRODUCED),
        ("fig5", 0.4, 0.2, Reproduction.REPRODUCED),  # narrows, and stays worse
        ("fig5", 0.4, -0.2, Reproduction.NOT_REPRODUCED),
    ],
)
def test_the_gap_between_block_depths(name, early, late, expected, tmp_path):
    law = partial(pairs, early=early, late=late)
    assert verdict(name, tmp_path, law, EIGHT_WINDOWS) is expected


def test_block_depths_are_compared_at_the_same_number_of_layers():
    for name in ("fig4", "fig5"):
        (claim,) = named([name])
        networks = [cell.network for cell in claim.experiment(Setting()).cells]
        assert {(n.block_depth, n.depth) for n in networks} == {(1, 16), (2, 8)}


@pytest.mark.long(of="figures")
@pytest.mark.parametrize("name", ["fig6", "fig21", "fig26"])
@pytest.mark.parametrize(
    ("drift", "expected"),
    [(0.3, Reproduction.REPRODUCED), (0.0, Reproduction.NOT_REPRODUCED)],
    ids=["shifts", "stays"],
)
def test_the_shift_of_the_optimum(name, drift, expected, tmp_path):
    assert verdict(name, tmp_path, partial(shifting, drift=drift)) is expected


@pytest.mark.parametrize(
    ("value", "half", "said"),
    [(0.15, 0.09, True), (-0.15, 0.05, True), (0.15, 0.16, False), (0.3, 0.1, False)],
    ids=["upward", "downward", "perhaps not at all", "by more"],
)
def test_a_shift_by_about_the_tolerance_is_called_one(value, half, said):
    notes = by_the_tolerance(around(value, half))
    assert bool(notes) == said
    assert all("about the tolerance" in note for note in notes)
