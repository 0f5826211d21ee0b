"""Sweeps that find their learning rates: rounds, resuming, shards, budgets, and what they leave."""

import json
import lzma
import math
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import depthmup
from depthmup.cli import main
from depthmup.records import Verdict
from depthmup.report import load_report, next_of
from depthmup.sweep import MAIN_STORE, Shard, Store, StoreError, WorkerError, merge
from tests.golden.inputs import STORES

TRAINED = []


@cache
def _noise(seed, depth, lr):
    """Like that of real runs: part shared by a seed, part a run's own."""
    own = np.random.default_rng([seed, depth, round(1e6 * -math.log2(lr))])
    return 0.03 * np.random.default_rng(seed).standard_normal() + 0.009 * own.standard_normal()


def train(trial):
    """Losses whose last ones are a valley; its optimum moves by the scheme's drift."""
    TRAINED.append(trial.key)
    drift = {"sp": -0.6, "depth-mup": 0.02}[trial.scheme]
    best = -7.3 + drift * math.log2(trial.depth / 4)
    loss = math.exp(0.07 * (math.log2(trial.lr) - best) ** 2)
    return [4.0] + [loss * math.exp(_noise(trial.seed, trial.depth, trial.lr))] * (trial.steps - 1)


def design(**changes):
    settings = {
        "base": {"width": 8, "depth": 4},
        "depth": (4, 8, 16, 32, 64),
        "schemes": ("depth-mup", "sp"),
        "steps": 10,
    }
    return depthmup.Design(**{**settings, **changes})


MODEL = depthmup.Model(train=train, version="1")


@pytest.fixture(autouse=True)
def _forget():
    TRAINED.clear()


def test_the_verdicts_of_a_grid_for_a_fraction_of_its_runs():
    report = depthmup.transfer(MODEL, design())
    runs = len(TRAINED)
    assert len(set(TRAINED)) == runs
    full = depthmup.transfer(MODEL, design(lrs=[2.0**k for k in range(-12, -4)], seeds=4))
    for scheme, verdict in (("depth-mup", Verdict.TRANSFERS), ("sp", Verdict.DRIFTS)):
        assert report.finding(scheme).verdict is verdict is full.finding(scheme).verdict
        truth = {"depth-mup": 0.02, "sp": -0.6}[scheme]
        assert report.finding(scheme).drift.low <= truth <= report.finding(scheme).drift.high
    assert runs < (len(TRAINED) - runs) / 3
    assert {o.depth for o in report.finding("sp").optima} < {4, 8, 16, 32, 64}
    assert "was not trained" in report.finding("sp").why


def test_a_stopped_sweep_goes_on_and_trains_nothing_twice(tmp_path):
    """Stopped after any number of runs, the records lead to the same runs and the same report."""

    class Stopped(Exception):
        pass

    asked = design(depth=(4, 8, 16))
    whole = depthmup.transfer(MODEL, asked, out=tmp_path / "whole")
    expected = list(TRAINED)
    TRAINED.clear()
    for limit in (3, 11, 24):

        def stop(progress, limit=limit):
            if progress.done >= limit:
                raise Stopped

        with pytest.raises(Stopped):
            depthmup.transfer(MODEL, asked, out=tmp_path / "parts", progress=stop)
    parts = depthmup.transfer(MODEL, asked, out=tmp_path / "parts")
    assert sorted(TRAINED) == sorted(expected)
    assert parts.summary() == whole.summary()
    before = len(TRAINED)
    again = depthmup.transfer(MODEL, asked, out=tmp_path / "parts")
    assert len(TRAINED) == before
    # As text: an interval that is not yet known is NaN, which equals nothing.
    assert repr(again.study().search) == repr(whole.study().search)
    with Store(tmp_path / "parts" / MAIN_STORE) as store:
        assert load_report(store).to_dict()["search"] == whole.to_dict()["search"]


def test_an_unfinished_search_says_what_is_missing(tmp_path):
    def stop(progress):
        if progress.done >= 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        depthmup.transfer(MODEL, design(), out=tmp_path, progress=stop)
    with Store(tmp_path / MAIN_STORE) as store:
        with pytest.raises(StoreError, match="runs to be trained next"):
            load_report(store)
        runs, why, _ = next_of(store)
    assert runs
    assert "Round" in why
    assert not {run.key for run in runs} & set(TRAINED[:12])


def test_losses_below_zero_at_the_largest_size_leave_the_rounds_before(tmp_path):
    """What is paid for can be seen; the error says how."""

    def falls(trial):
        return [loss - 0.3 * (trial.depth == 32) * 5 for loss in train(trial)]

    model = depthmup.Model(train=falls, version="below zero")
    asked = depthmup.Design(base={"width": 64, "depth": 4}, depth=(4, 8, 32), schemes="sp")
    with pytest.raises(WorkerError, match="never negative") as failed:
        depthmup.transfer(model, asked, out=tmp_path)
    command = str(failed.value).splitlines()[-1].split("`")[1]
    assert command == f"depthmup report {tmp_path}"
    assert main(command.split()[1:]) == 0
    partial = depthmup.load(tmp_path)
    assert {run.depth for run in partial.records} == {4, 8}


def test_a_report_of_an_unfinished_search_shows_the_rounds_that_are_whole(tmp_path):
    def stop(progress):
        if progress.done >= 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        depthmup.transfer(MODEL, design(), out=tmp_path, progress=stop)
    partial = depthmup.load(tmp_path)
    with Store(tmp_path / MAIN_STORE) as store:
        pending, _, _ = next_of(store)
        with pytest.raises(StoreError, match="runs to be trained next"):
            load_report(store)  # as merge does, which ends in an error until no round is left
    assert pending
    assert 18 < len(partial.records) <= 40
    assert f"asks for further runs ({len(pending)})" in partial.summary()
    assert f"it still needs {len(pending)} runs" in partial.summary()
    whole = depthmup.transfer(MODEL, design(), out=tmp_path)
    assert "further runs" not in whole.summary()
    assert partial.records.items() <= whole.records.items()


def test_shards_take_parts_of_a_round(tmp_path):
    """Round by round, two machines train the same runs as one."""
    asked = design(depth=(4, 8, 16))
    whole = depthmup.transfer(MODEL, asked)
    expected = sorted(TRAINED)
    TRAINED.clear()
    for _ in range(40):
        shards = [Shard(index=i, count=2) for i in (1, 2)]
        parts = [
            depthmup.transfer(
                MODEL, asked, out=tmp_path, on=depthmup.Execution(workers=1, shard=f"{i}/2")
            )
            for i in (1, 2)
        ]
        with Store(tmp_path / MAIN_STORE) as store:
            # What stands in the page's folder is the measurement, round after round.
            merge([tmp_path / shard.store_name for shard in shards], into=store)
            try:
                report = load_report(store)
            except StoreError:
                assert any(part.records for part in parts)
                continue
        break
    assert sorted(TRAINED) == expected
    assert report.summary() == whole.summary()


def test_a_budget_of_runs_is_kept():
    report = depthmup.transfer(MODEL, design(lrs=depthmup.Auto(runs=40)))
    assert len(TRAINED) <= 40
    ended = report.study().search.ended["depth-mup"]
    assert "budget" in ended
    assert "twice the seeds" in ended
    assert "The search ended" in report.summary()
    assert report.finding("depth-mup").verdict is not Verdict.DRIFTS


def test_a_forecast_is_of_a_round_alone(tmp_path):
    """What follows depends on its results: 9 to 24 runs, foretold for a search, were 53.

    Runs of rounds before and of other sessions count as done, and took none of its seconds.
    """
    model = depthmup.Model(train=train, version="1", cost=lambda size: 1.0)
    begun, told = 18, []
    for runs in (begun, 50):
        asked = design(lrs=depthmup.Auto(runs=runs), schemes="depth-mup")
        told.clear()
        depthmup.transfer(model, asked, out=tmp_path, progress=told.append)
        begun = min(begun, told[-1].done)
    assert told[0].done >= begun > 9
    assert len({p.why for p in told}) > 2
    before, cells = begun, told[0].cells
    for p in told:
        if p.cells > cells:  # the next round
            before, cells = cells, p.cells
        assert p.fraction == pytest.approx((p.done - before) / (p.cells - before))


def test_a_budget_of_seconds_ends_after_a_whole_round():
    """The first scan is always made: nothing can be reported without it."""
    model = depthmup.Model(train=train, version="1")
    asked = design(lrs=depthmup.Auto(seconds=1e-6), schemes="depth-mup")
    report = depthmup.transfer(model, asked)
    assert len(report.records) == 9
    assert "after 1e-06 seconds no more runs were begun" in report.summary()


def gpu_hours(size):
    """A pipeline that is used up to the deepest size: depth costs nothing until then."""
    return 8.0 if size["depth"] == 64 else 1.0


def test_a_budget_in_units_of_ones_own(tmp_path):
    """Spent by what the function says, and replayed by whoever opens the folder without it."""
    model = depthmup.Model(train=train, version="1", cost=gpu_hours)
    asked = design(lrs=depthmup.Auto(work=40.0), schemes="depth-mup")
    report = depthmup.transfer(model, asked, out=tmp_path)
    story = report.study().search
    keys = len(TRAINED)
    assert story.work == sum(
        gpu_hours({"depth": d}) for d in (trial.depth for trial in report.records)
    )
    assert 20 < story.work <= 40
    assert any("the budget is spent" in why for why in story.ended.values())
    with Store(tmp_path / MAIN_STORE) as store:
        assert repr(load_report(store).study().search) == repr(story)  # NaN equals nothing
    depthmup.transfer(model, asked, out=tmp_path)
    assert len(TRAINED) == keys
    for wrong, message in ((lambda size: -1.0, "to be positive"), (lambda size: "1", "a number")):
        with pytest.raises(ValueError, match=message):
            depthmup.transfer(replace(model, cost=wrong), asked)


def test_a_precision_that_was_asked_for():
    auto = depthmup.Auto(precision=0.05, start=2.0**-10)
    report = depthmup.transfer(MODEL, design(lrs=auto, schemes="depth-mup"))
    drift = report.finding().drift
    assert (drift.high - drift.low) / 2 <= 0.05
    assert drift.low <= 0.02 <= drift.high


def test_a_target_is_certified_from_half_steps():
    report = depthmup.transfer(MODEL, design(schemes="depth-mup", steps=60), target={"depth": 256})
    (certificate,) = report.certificates
    assert min(len(rates) for rates in report.sweep.asked.values()) >= 5
    assert certificate.issued, certificate.refusals
    assert certificate.predicted.low <= -7.3 + 0.02 * 6 <= certificate.predicted.high
    assert all(optimum.place.value == "interior" for optimum in certificate.optima)
    assert certificate.seeds >= 3


def test_what_a_search_leaves_can_be_read_anywhere(tmp_path):
    report = depthmup.transfer(MODEL, design(schemes="depth-mup"), out=tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "How the search got there" in page
    assert 'id="search"' in page
    summary = json.loads((tmp_path / "summary.json").read_text())
    rounds = summary["search"]["rounds"]
    assert [r["round"] for r in rounds] == list(range(1, len(rounds) + 1))
    asked = sum(len(run["seeds"]) for r in rounds for run in r["runs"])
    assert asked == len(report.records) == len(TRAINED) == summary["search"]["runs"]
    assert report.study().search.saved > 1
    frame = report.to_pandas()
    assert frame["seeds"].sum() == asked
    assert Path(tmp_path / MAIN_STORE).exists()


def test_learning_rates_are_auto_a_search_or_a_grid():
    assert design().auto is None
    assert design(lrs="auto").auto == depthmup.Auto()
    assert design(lrs="auto").seeds == design().seeds == 8
    assert design(lrs=[0.1, 0.2]).seeds == 3
    with pytest.raises(ValueError, match="learning rates or 'auto'"):
        design(lrs="automatic")
    with pytest.raises(ValueError, match=r"Auto\(start={'adamw': 0.003"):
        design(lrs={"adamw": 0.01})
    with pytest.raises(ValueError, match="runs of Auto to be positive"):
        depthmup.Auto(runs=0)
    again = depthmup.Design.from_dict(json.loads(json.dumps(design(lrs="auto").to_dict())))
    assert again == design(lrs="auto")


def test_a_budget_below_the_first_round_is_refused_before_anything_is_written(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="at least 18 runs: the first round scans"):
        depthmup.transfer(MODEL, design(lrs=depthmup.Auto(runs=17)), out=out)
    with pytest.raises(ValueError, match=r"Expected a budget of at least .* of work"):
        depthmup.transfer(MODEL, design(lrs=depthmup.Auto(work=1e-6)), out=out)
    assert not out.exists()


def test_an_axis_that_a_budget_did_not_reach_is_undecided_and_the_others_are_shown(tmp_path):
    """The smallest size is no size along width: the base is deeper."""
    both = {"base": {"width": 16, "depth": 8}, "width": (16, 32)}
    short = design(lrs=depthmup.Auto(runs=18), depth=(4, 8, 16), **both)
    report = depthmup.transfer(MODEL, short, out=tmp_path, target={"width": 32, "depth": 32})
    assert "before its first run along width" in report.finding(axis="width").why
    assert "along width is undecided" in str(report)
    assert len(report.records) == 18
    assert depthmup.load(tmp_path).finding(axis="width").verdict is Verdict.UNDECIDED
    assert (tmp_path / "report.html").exists()


def test_each_optimizer_begins_at_its_own_usual_rate():
    """Optima five octaves apart: from one rate for both, one of them would be looked for afar."""
    began = {}

    def train(trial):
        began.setdefault(trial.optimizer, trial.lr)
        best = {"sgd": -3.0, "adamw": -8.3}[trial.optimizer]
        own = _noise(trial.seed, trial.depth, trial.lr / 64)
        loss = math.exp(0.07 * (math.log2(trial.lr) - best) ** 2 + own)
        return [4.0] + [loss] * (trial.steps - 1)

    both = design(schemes="depth-mup", optimizers=("sgd", "adamw"), depth=(4, 8))
    report = depthmup.transfer(depthmup.Model(train=train, version="1"), both)
    assert began["sgd"] / began["adamw"] == 2.0**5  # both begin as far below their start
    rates = {o.log2_lr.value for t in report.study().headline.transfers for o in t.optima}
    assert min(rates) < -7 < -4 < max(rates)
    began.clear()
    own = replace(both, lrs=depthmup.Auto(start={"sgd": 0.25, "adamw": 0.5**8}))
    depthmup.transfer(depthmup.Model(train=train, version="1"), own)
    assert began["sgd"] / began["adamw"] == 2.0**6
    alone = replace(both, lrs=depthmup.Auto(start={"sgd": 0.25}))
    with pytest.raises(ValueError, match="there is one for sgd, and adamw has none"):
        depthmup.transfer(depthmup.Model(train=train, version="1"), alone)
    with pytest.raises(ValueError, match="start for sgd of Auto to be positive"):
        depthmup.Auto(start={"sgd": -1.0})


def test_the_rates_of_a_verdict_give_a_wider_forecast_than_those_of_a_target():
    alone = depthmup.transfer(MODEL, design(schemes="depth-mup")).certificate({"depth": 256})
    asked = depthmup.transfer(MODEL, design(schemes="depth-mup"), target={"depth": 256})
    [certificate] = asked.certificates
    assert alone.issued
    assert certificate.issued
    wide, narrow = (c.predicted.high - c.predicted.low for c in (alone, certificate))
    assert narrow < wide


def test_one_seed_is_enough_for_a_clear_drift():
    report = depthmup.transfer(MODEL, design(schemes="sp", seeds=1))
    assert report.finding().verdict is Verdict.DRIFTS
    assert "Only one seed" in report.finding().why


def untrained(trial):
    """The optimum falls by two octaves per doubling, and from depth 16 on nothing trains."""
    best = -7.3 - 2 * math.log2(trial.depth / 4)
    loss = math.exp(0.07 * (math.log2(trial.lr) - best) ** 2) if trial.depth < 16 else 5.0
    return [4.0] + [loss * math.exp(_noise(trial.seed, trial.depth, trial.lr))] * (trial.steps - 1)


def test_the_one_seed_of_a_size_that_never_trains_leaves_the_others_theirs():
    report = depthmup.transfer(
        depthmup.Model(train=untrained, version="1"), design(schemes="sp", depth=(4, 8, 16, 32))
    )
    finding = report.finding()
    assert finding.verdict is Verdict.DRIFTS
    assert "At depth 16 no learning rate trains" in finding.why
    assert "One seed" not in finding.why
    for optimum in finding.optima[:2]:
        assert optimum.log2_lr.high - optimum.log2_lr.low < 2


SEARCH = """
import math, sys, time
import numpy as np
import depthmup

LOG = sys.argv[2]


def noise(*own):
    return 0.009 * np.random.default_rng(list(own)).standard_normal()


def train(trial):
    with open(LOG, "a") as log:
        print(trial.key, file=log, flush=True)
    time.sleep(0.02)
    best = -7.3 - 0.05 * math.log2(trial.depth / 4)
    k = math.log2(trial.lr)
    loss = math.exp(0.07 * (k - best) ** 2 + noise(trial.seed, trial.depth, round(-1e6 * k)))
    return [4.0] + [loss] * (trial.steps - 1)


def search(out):
    design = depthmup.Design(
        base={"width": 8, "depth": 4}, depth=(4, 8, 16), schemes="depth-mup", steps=10
    )
    return depthmup.transfer(depthmup.Model(train=train, version="1"), design, out=out)


if __name__ == "__main__":
    search(sys.argv[1])
"""


def stored(path):
    """Every record of a store as it lies there: its key and its bits."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        if "records" not in tables:  # its writer has just begun
            return {}
        return {key: tuple(rest) for key, *rest in database.execute("SELECT * FROM records")}


@pytest.mark.long(slice=False)
def test_a_search_that_is_killed_goes_on_to_the_same_bits_and_trains_nothing_twice(tmp_path):
    """kill -9 at random moments: what had a record is never begun again."""
    script, log = tmp_path / "search.py", tmp_path / "begun.txt"
    script.write_text(SEARCH)

    def begin(name):
        return subprocess.Popen([sys.executable, script, tmp_path / name, log])

    assert begin("whole").wait(timeout=600) == 0
    whole = stored(tmp_path / "whole" / MAIN_STORE)
    log.unlink()
    rng, path, left = np.random.default_rng(0), tmp_path / "parts" / MAIN_STORE, []
    for _ in range(3):
        before = stored(path)
        process = begin("parts")
        while process.poll() is None and len(stored(path)) == len(before):
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.15))
        process.kill()
        process.wait()
        left.append(stored(path))
        again = log.read_text().split() if log.exists() else []
        log.write_text("")
        assert not set(before) & set(again)
    assert 0 < len(left[0]) < len(left[-1]) < len(whole), "kills must come amid the work"
    assert begin("parts").wait(timeout=600) == 0
    assert not set(left[-1]) & set(log.read_text().split())
    assert stored(path) == whole


def test_a_search_keeps_the_course_of_its_runs(tmp_path):
    """The store was made at 60 steps, judged by the last 12: four windows come before them."""
    packed = (STORES / "search.sqlite.xz").read_bytes()
    (tmp_path / MAIN_STORE).write_bytes(lzma.decompress(packed))
    study = depthmup.load(tmp_path).study()
    assert [(w.start, w.stop) for w in study.training] == [(0, 12), (12, 24), (24, 36), (36, 48)]
    assert study.headline.start == 48
    for window in study.training:
        for early, late in zip(window.curves, study.headline.curves, strict=True):
            assert early.size == late.size
            assert [p.log2_lr for p in early.points] == [p.log2_lr for p in late.points]
            assert [p.seeds for p in early.points] == [p.seeds for p in late.points]
    first, last = (
        [p.loss.value for curve in window.curves for p in curve.points]
        for window in (study.training[0], study.headline)
    )
    assert math.fsum(map(math.log, first)) > math.fsum(map(math.log, last)) + 0.05 * len(last)
