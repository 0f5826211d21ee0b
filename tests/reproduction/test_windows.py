"""Figures 22 to 26: what counts are the windows of the second half of training."""

import math
from functools import partial

import numpy as np
import pytest
from planted import SMALL, change, planted, scatter

from reproduction import Scale, Setting, named
from reproduction.evidence import Reproduction

# Where no grid is there to begin with, and no more depths than a laptop has.
SEARCHED = Setting(scale=Scale.MEDIUM, sizes={"steps": 5, "window": 1, "depths": (8, 16, 32, 64)})


def in_time(cell, *, drifts, moves=0.0):
    """W relu(x) whose optimum drifts by another amount in every window, and moves in time."""
    doublings = math.log2(cell.network.depth / 8)
    away = change(cell) - 0.5 - np.asarray(drifts) * doublings - moves - scatter(cell, 0)
    return np.exp(0.12 * away**2)


@pytest.mark.parametrize(
    ("drifts", "verdict"),
    [
        ((-0.5, -0.4, -0.3, 0.0, 0.0), Reproduction.REPRODUCED),
        ((0.0, 0.0, 0.0, -0.4, -0.4), Reproduction.NOT_REPRODUCED),
        # The windows disagree: the interval that holds them all straddles the tolerance.
        ((0.0, 0.0, 0.0, 0.0, -0.4), Reproduction.UNDECIDABLE),
    ],
    ids=["early drift", "late drift", "mixed"],
)
def test_only_late_windows_decide(drifts, verdict, tmp_path):
    (claim,) = named(["fig25"])
    experiment = claim.experiment(Setting(sizes=SMALL))
    with planted(experiment, tmp_path, partial(in_time, drifts=drifts)) as store:
        assert claim.finding(experiment, store).verdict is verdict


def test_every_window_has_a_search_of_its_own(tmp_path):
    """The optimum of one window lies three octaves from the other's, outside of its bracket."""
    (claim,) = named(["fig25"])
    experiment = claim.experiment(SEARCHED)
    law = partial(in_time, drifts=(0.0,) * 5, moves=np.array([0, 0, 0, 3, 0]))
    with planted(experiment, tmp_path, law) as store:
        assert claim.finding(experiment, store).verdict is Reproduction.REPRODUCED


@pytest.mark.parametrize(("name", "first"), [("fig23", 0), ("fig26", 3)], ids=["grid", "search"])
def test_every_window_is_a_frame_of_every_picture(name, first, tmp_path):
    """A search trains for the windows of the second half, and shows those."""
    (claim,) = named([name])
    experiment = claim.experiment(Setting(sizes=SMALL))
    with planted(experiment, tmp_path, partial(in_time, drifts=(0.0,) * 5)) as store:
        pictures = claim.finding(experiment, store).pictures
    assert {picture.frames for picture in pictures} == {
        tuple(f"steps {k}–{k + 1}" for k in range(first, 5))
    }
