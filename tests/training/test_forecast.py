"""A forecast of time is one of an idle core, or there is none."""

import math
import time

import pytest
import torch
from torch import nn

from depthmup.model import Model
from depthmup.records import Trial
from depthmup.training import forecast


def make(width, depth):
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))


def batch(generator):
    return torch.randn(8, 4, generator=generator), torch.arange(8) % 2


@pytest.mark.parametrize("share", [1.0, 0.25])
def test_where_little_time_is_processor_time_there_is_no_forecast(share, monkeypatch):
    """As where a batch is fetched, or where a machine is somebody else's."""
    clock = time.perf_counter
    monkeypatch.setattr(time, "process_time", lambda: share * clock())
    trial = Trial(
        model="make", code="1", size={"width": 8, "depth": 1}, base={"width": 8, "depth": 1},
        scheme="sp", optimizer="adamw", lr=1e-3, steps=50, seed=0,
    )  # fmt: skip
    seconds = forecast.seconds_of_stacks(Model(make, batch=batch), [[trial]])
    assert math.isfinite(seconds) == (share == 1.0)
