"""A table of this package's own runs gives the report that they came from, to the digit."""

import lzma
import math
import shutil
import sys
from pathlib import Path

import own_models
import pandas as pd
import pytest
from pytest import approx

sys.path.insert(0, str(Path(__file__).parents[2]))

import depthmup
from depthmup.records import Estimate, Place
from depthmup.tables import Reading
from tests.golden.inputs import STORES
from tests.golden.views import report_of

EACH = [
    # One process makes these reports, for the golden files too.
    pytest.param(path.name.removesuffix(".sqlite.xz"), marks=pytest.mark.xdist_group("reports"))
    for path in sorted(STORES.glob("*.sqlite.xz"))
]
"""Grids, searches, several axes, failures, edges, weight decay, targets."""


@pytest.fixture(scope="module", params=EACH)
def both(request, tmp_path_factory):
    """The report of a store, and the fit of its runs as a table."""
    report, table = report_of(request.param), tmp_path_factory.mktemp("table") / "runs.csv"
    report.to_csv(table, "runs")
    return report, depthmup.fit(table, tolerance=report.studies[0].tolerance)


def numbers(value):
    """All numbers of a finding, in their order."""
    if isinstance(value, Estimate):
        return [value.value, value.low, value.high]
    return [n for one in value for n in numbers(one)]


def facts(finding):
    optima = [(o.log2_lr, o.loss, o.curvature) for o in finding.optima]
    return numbers([finding.drift, finding.regret, finding.bend, *optima])


def expect_the_same(theirs, mine):
    findings = [t for study in mine.studies for t in study.headline.transfers]
    assert findings
    for study in mine.studies:
        for finding in study.headline.transfers:
            found = theirs.finding(finding.scheme, study.axis)
            assert facts(found) == approx(facts(finding), rel=1e-11, abs=1e-11, nan_ok=True)
            assert [o.place for o in found.optima] == [o.place for o in finding.optima]
            assert [dict(o.size) for o in found.optima] == [dict(o.size) for o in finding.optima]
            assert found.verdict is finding.verdict


def test_a_fit_of_a_reports_runs_is_the_report(both):
    report, fitted = both
    expect_the_same(fitted, report)


def test_a_frame_a_store_and_its_folder_are_the_same_table(tmp_path):
    store = tmp_path / "results.sqlite"
    store.write_bytes(lzma.decompress((STORES / "grid.sqlite.xz").read_bytes()))
    report = depthmup.load(tmp_path)
    for table in (report.to_pandas("runs"), store, tmp_path):
        expect_the_same(depthmup.fit(table, tolerance=report.studies[0].tolerance), report)


def test_a_fit_of_a_reports_runs_has_its_rules(both):
    report, fitted = both
    for scheme in report.schemes:
        mine = {(r.rule, r.axis): r.exponent for r in fitted.rules(scheme)}
        theirs = {(r.rule, r.axis): r.exponent for r in report.rules(scheme)}
        assert theirs.keys() == mine.keys()


@pytest.mark.parametrize("both", [EACH[0], EACH[-1]], indirect=True)
def test_one_loss_that_is_off_shows(both):
    """What the comparison would miss is not tested by it."""
    report, _ = both
    frame = report.to_pandas("runs")
    at_base = [frame[a] == n for a, n in report.sweep.design.base.items()]
    best = frame[pd.concat(at_base, axis=1).all(axis=1)]["loss"].idxmin()
    frame.loc[best, "loss"] *= 0.999
    with pytest.raises(AssertionError):
        expect_the_same(depthmup.fit(frame, tolerance=report.studies[0].tolerance), report)


@pytest.mark.long
@pytest.mark.parametrize("name", ["search", "grid"])
def test_a_table_whose_columns_are_named_is_fitted_alike(name, tmp_path):
    """Without what marks it as the package's own: a search is seen by its rates and seeds."""
    raw = (STORES / f"{name}.sqlite.xz").read_bytes()
    (tmp_path / "results.sqlite").write_bytes(lzma.decompress(raw))
    report = depthmup.load(tmp_path)
    columns = ["scheme", "depth", "lr", "seed", "loss"]
    asked = {"axes": ["depth"], "lr": "lr", "loss": "loss", "seed": "seed", "by": "scheme"}
    chance = report.losses().chance
    runs = report.to_pandas("runs")[columns]
    fitted = depthmup.fit(runs, **asked, reading=Reading(chance=chance))
    for finding in report.study().headline.transfers:
        found = fitted.finding(f"scheme {finding.scheme}")
        for mine, theirs in zip(found.optima, finding.optima, strict=True):
            assert mine.place is theirs.place
            if mine.place is Place.INTERIOR:
                assert numbers(mine.log2_lr) == approx(numbers(theirs.log2_lr), abs=1e-9)
        assert numbers(found.drift) == approx(numbers(finding.drift), abs=1e-9)
        assert found.verdict is finding.verdict


def test_a_size_far_from_the_others_law_is_kept_on_both_roads(tmp_path):
    """A search and a table of the same curves once said "drifts" and "transfers"."""

    def train(trial):
        best = -7 + (6 if trial.size["depth"] == 32 else 0)
        jitter = 0.001 * (trial.seed % 3) + 0.002 * math.sin(17 * math.log2(trial.lr))
        return [2 + 0.1 * (math.log2(trial.lr) - best) ** 2 + jitter] * trial.steps

    design = depthmup.Design(
        base={"width": 8, "depth": 4}, depth=(4, 8, 16, 32, 64, 128), steps=5, window=1, seeds=3,
        schemes="depth-mup", lrs=[2.0**k for k in range(-12, 4)],
    )  # fmt: skip
    report = depthmup.transfer(depthmup.Model(train=train, version="1"), design)
    fitted = depthmup.fit(report.to_pandas("runs"))
    asked = {"axes": ["depth"], "lr": "lr", "loss": "loss", "seed": "seed"}
    named = depthmup.fit(report.to_pandas("runs")[["depth", "lr", "loss", "seed"]], **asked)
    verdicts = {one.verdict for one in (report, fitted, named)}
    assert len(verdicts) == 1
    for one in (report, fitted, named):
        assert any("depth 32" in note.text for note in one.notes())
        assert len(one.finding().optima) == 6
        assert one.drift.value == approx(report.drift.value, abs=1e-9)


def test_the_frame_of_a_transfer_is_a_table_as_it_is():
    design = depthmup.Design(
        base={"width": 16, "depth": 2}, depth=(2, 4), width=(16, 32), steps=10, seeds=2,
        lrs=[2.0**-9, 2.0**-7, 2.0**-5], schemes="depth-mup", settings={"own_init": "fan_in"},
    )  # fmt: skip
    model = depthmup.Model(own_models.make, batch=own_models.batch, version="1")
    report = depthmup.transfer(model, design)
    frame = report.to_pandas("runs")
    pd.testing.assert_frame_equal(frame, report.to_pandas("trials"))
    fitted = depthmup.fit(
        frame, axes=["width", "depth"], lr="lr", loss="loss", seed="seed", scheme="depth-mup"
    )
    assert {study.axis for study in fitted.studies} == {"width", "depth"}
    assert not fitted.excluded


def test_own_variants_are_alternatives_that_no_mean_stands_for():
    """Five schemes of one sweep keep their verdicts; five groups of a table have one together."""

    def train(trial):
        drift = 0.4 * math.log2(trial.size["depth"] / 2) * len(trial.scheme) / 10
        return [math.exp(0.1 * (math.log2(trial.lr) + 8 - drift) ** 2)] * trial.steps

    design = depthmup.Design(
        base={"depth": 2}, depth=(2, 4, 8), steps=5, window=1, seeds=2,
        schemes=["depth-mup", "sp", "ode", "completep", "mup"],
        lrs=[2.0**k for k in range(-12, -3)],
    )  # fmt: skip
    report = depthmup.transfer(depthmup.Model(train=train, version="1"), design)
    frame = report.to_pandas("runs")
    fitted = depthmup.fit(frame)
    assert fitted.study().together is None
    assert fitted.verdicts == report.verdicts
    columns = {"axes": ["depth"], "lr": "lr", "loss": "loss", "seed": "seed", "by": "scheme"}
    asked = frame[["scheme", "depth", "lr", "loss", "seed"]]
    assert depthmup.fit(asked, **columns).study().together.groups == 5


def test_a_folder_without_runs_is_no_table(tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(ValueError, match=f"no file {tmp_path}.$"):
        depthmup.fit(tmp_path, axes=["depth"], lr="lr", loss="loss")
