"""What an earlier version wrote opens in this one: runs that were paid for are not run again.

``tests/earlier`` was written by version 0.2.0 as of 25 November 2026: a grid with a certificate, a
search whose budget was spent, and a plan.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import nn

import depthmup
from depthmup.cli import main

EARLIER = Path(__file__).parent / "earlier"
GRID = [
    *("transfer", "--preset", "tiny", "--schemes", "depth-mup", "--base", "16x2"),
    *("--depths", "2,4,8", "--lrs", "8e-3", "1.6e-2", "3.2e-2", "6.4e-2", "1.28e-1"),
    *("--seeds", "2", "--steps", "40", "--target", "depth=16"),
]


@pytest.fixture
def earlier(tmp_path):
    return Path(shutil.copytree(EARLIER, tmp_path / "earlier"))


def runs(folder):
    return depthmup.load(folder).to_pandas("runs")


@pytest.mark.parametrize(("name", "count"), [("grid", 30), ("search", 20)])
def test_a_folder_opens_with_all_of_its_runs(earlier, name, count):
    assert len(runs(earlier / name)) == count
    assert main(["report", str(earlier / name)]) == 0
    assert (earlier / name / "report.html").stat().st_size > 1e5


def test_the_same_command_trains_no_run_again(earlier):
    """What is new are probes of the target, which the statistics of today put elsewhere."""

    def records():
        with closing(sqlite3.connect(earlier / "grid" / "results.sqlite")) as store:
            return set(store.execute("SELECT * FROM records").fetchall())

    before = records()
    main([*GRID, "--out", str(earlier / "grid")])
    after = records()
    assert before <= after
    assert {json.loads(cell)["steps"] for _, cell, *_ in after - before} <= {20}


def test_a_certificate_is_read(earlier):
    old = json.loads((earlier / "grid" / "certificate.json").read_text())
    [found] = depthmup.load(earlier / "grid").certificates
    assert found.target == old["target"]


def test_a_plan_is_applied(earlier):
    def make(width):
        return nn.Sequential(
            nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )

    plan = depthmup.Plan.load(earlier / "plan.json")
    fresh = depthmup.plan(make(64), make(16), example_inputs=(torch.zeros(2, 8),))
    assert plan.to_pandas().equals(fresh.to_pandas())
