"""Figures 22 to 26: what counts are the windows of the second half of training."""

import math
from functools import partial

import numpy as np
import pytest
from planted import SMALL, change, planted, scatter

from depthmup.paper import Setting, named
from depthmup.records import Reproduction


def in_time(cell, *, drifts):
    """W relu(x) whose optimum drifts by another amount in every window."""
    doublings = math.log2(cell.network.depth / 8)
    away = change(cell) - 0.5 - np.asarray(drifts) * doublings - scatter(cell, 0)
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


@pytest.mark.parametrize(("name", "first"), [("fig23", 0), ("fig25", 3)], ids=["grid", "search"])
def test_every_window_is_a_frame_of_every_picture(name, first, tmp_path):
    """A search trains for the windows of the second half, and shows those."""
    (claim,) = named([name])
    experiment = claim.experiment(Setting(sizes=SMALL))
    with planted(experiment, tmp_path, partial(in_time, drifts=(0.0,) * 5)) as store:
        pictures = claim.finding(experiment, store).pictures
    assert {picture.frames for picture in pictures} == {
        tuple(f"steps {k}–{k + 1}" for k in range(first, 5))
    }
