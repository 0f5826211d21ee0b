"""What an earlier version wrote opens in this one: runs that were paid for are not run again.

``tests/earlier`` has a folder for each day on which ``make.py`` beside it wrote one of each kind:
stores of built-in networks, of a model, of a function that trains and of a search, a fitted table,
the paper's evidence, certificates and a plan. None of them is ever written again.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch
from own_models import make
from torch import nn

import depthmup
from depthmup.cli import main
from depthmup.records import Certificate
from depthmup.sweep import Store, Sweep

EARLIER = Path(__file__).parent / "earlier"
DAYS = sorted(path.name for path in EARLIER.iterdir() if path.is_dir() and path.name[0] == "2")
FILES = sorted(path.relative_to(EARLIER).as_posix() for path in EARLIER.glob("2*/**/*.*"))
FOLDERS = sorted({name.rpartition("/")[0] for name in FILES if name.endswith("/summary.json")})
GRID = [
    *("transfer", "--preset", "tiny", "--schemes", "depth-mup", "--base", "16x2"),
    *("--depths", "2,4,8", "--lrs", "8e-3", "1.6e-2", "3.2e-2", "6.4e-2", "1.28e-1"),
    *("--seeds", "2", "--steps", "40", "--target", "depth=16"),
]


@pytest.fixture
def earlier(tmp_path):
    return Path(shutil.copytree(EARLIER, tmp_path / "earlier"))


def rows(store):
    with closing(sqlite3.connect(store)) as opened:
        return set(opened.execute("SELECT * FROM records").fetchall())


def named(suffix):
    return [name for name in FILES if name.endswith(suffix)]


def test_one_of_each_kind_is_kept():
    last = {name.partition("/")[2] for name in FILES if name.startswith(DAYS[-1])}
    stores = {f"{of}/results.sqlite" for of in ("grid", "model", "train", "search", "evidence")}
    assert stores | {"plan.json", "fit/summary.json", "fit/certificate.json"} <= last


@pytest.mark.parametrize("name", named("results.sqlite"))
def test_every_run_of_a_store_is_read(name, earlier):
    before = rows(earlier / name)
    with Store(earlier / name) as store:
        assert len(store) >= len(before)
        for session in store.sessions():
            if "sweep" not in session:
                continue
            sweep = Sweep.from_dict(session["sweep"])
            assert sweep.to_dict() == session["sweep"]
            if not sweep.design.auto:
                assert len(store.records(sweep.runs)) == len(set(sweep.runs))
    assert rows(earlier / name) == before


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_opens_with_all_of_its_runs(name, earlier):
    report = depthmup.load(earlier / name)
    assert report.studies
    if (store := earlier / name / "results.sqlite").exists():
        trained = set(report.to_pandas("runs")["key"])
        stored = {key for key, *_ in rows(store)}
        assert trained
        assert trained <= stored
    assert main(["report", str(earlier / name)]) == 0
    assert (earlier / name / "report.html").stat().st_size > 1e5


@pytest.mark.parametrize("name", [name for name in named("results.sqlite") if "evidence" in name])
def test_evidence_is_judged_again(name, earlier, capsys):
    assert main(["report", str((earlier / name).parent)]) == 0
    assert "1 of 1 errata confirmed" in capsys.readouterr().out


def test_the_same_command_trains_no_run_again(earlier):
    """What is new are probes of the target, which the statistics of today put elsewhere."""
    store = earlier / "2026-11-25" / "grid" / "results.sqlite"
    before = rows(store)
    main([*GRID, "--out", str(store.parent)])
    after = rows(store)
    assert before <= after
    assert {json.loads(cell)["steps"] for _, cell, *_ in after - before} <= {20}


@pytest.mark.parametrize("name", named("certificate.json"))
def test_a_certificate_is_read(name):
    text = (EARLIER / name).read_text()
    certificate = Certificate.from_json(text)
    assert certificate.target == json.loads(text)["target"]


@pytest.mark.parametrize("name", named("plan.json"))
def test_a_plan_is_applied(name):
    """Its factors are those of a plan that is made today."""
    plan = depthmup.Plan.load(EARLIER / name)
    if name.startswith("2026-11-25"):
        base, target = (
            nn.Sequential(
                *(nn.Linear(8, n), nn.ReLU(), nn.Linear(n, n), nn.ReLU(), nn.Linear(n, 4))
            )
            for n in (16, 64)
        )
        inputs = torch.zeros(2, 8)
    else:
        base, target, inputs = make(16, 2), make(64, 4), torch.zeros(2, 16)
    fresh = depthmup.plan(target, base, example_inputs=(inputs,))
    assert plan.to_pandas().equals(fresh.to_pandas())
    plan.initialize(target)
    optimizer = torch.optim.AdamW(plan.param_groups(target, lr=1e-3), lr=1e-3)
    plan.verify(target, optimizer)
