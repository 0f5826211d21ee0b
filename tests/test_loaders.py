"""Readers of files keep their word: a value that is right, or their own error, soon."""

import json
import math
import os
import tempfile
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from clock import unit
from records_mutations import texts
from sweeps import residual
from torch import nn

import depthmup
from depthmup import fit
from depthmup.cli import report
from depthmup.planning import PlanDocumentError, document
from depthmup.planning.plan import Plan
from depthmup.records import Certificate, Estimate, Lack, Optimum, Refusal, Verdict
from depthmup.records.certificate import AxisSlope, BandPoint, Metrics
from depthmup.records.finding import Place
from depthmup.rules import DEPTH_MUP
from depthmup.sweep import InProcess, Store, StoreError, StoreWarning, Sweep, run
from depthmup.tables import example
from depthmup.training.built_in.formats import cifar_pickle

COUNT = 300
SMALL = {
    "schemes": (DEPTH_MUP,),
    "depths": (2, 4),
    "base_depth": 2,
    "log2_lrs": (-4.0, -3.0, -2.0),
    "width": 8,
    "batch_size": 8,
    "steps": 4,
    "window": 2,
}
ONE = Estimate(value=1.0, low=0.5, high=math.inf)


def certificate():
    optimum = Optimum(
        size={"width": 64, "depth": 8}, log2_lr=ONE, curvature=ONE, loss=ONE, place=Place.INTERIOR
    )
    return Certificate(
        target={"width": 64, "depth": 32},
        base={"width": 64, "depth": 4},
        optima=(optimum, optimum),
        log2_lrs=(-4.0, -3.0),
        seeds=3,
        refusals=(Refusal(lack=Lack.SIZES, reason="why", advice="what"),),
        slopes=(AxisSlope(axis="depth", estimate=ONE),),
        predicted=ONE,
        metrics=Metrics(fit_error=0.5, robustness=(), horizon_penalty=ONE),
        verdict=Verdict.UNDECIDED,
        law=(BandPoint(at=0.0, value=1.0, low=0.5, high=2.0),),
    )


def make(width, depth):
    return nn.Sequential(nn.Linear(4, width), *(nn.Linear(width, width) for _ in range(depth)))


def plan():
    torch.manual_seed(0)
    return depthmup.plan(
        make(64, 2),
        base=make(16, 2),
        scheme="mup",
        optimizer="adamw",
        example_inputs=torch.randn(2, 4),
    )


def sealed(raw):
    """As an enemy would: with the checksum of what they wrote."""
    if isinstance(raw, dict) and isinstance(raw.get("plan"), dict):
        raw["sha256"] = document._checksum(raw["plan"])
    return raw


def attack(read, sources, error):
    """How many texts were refused, each by the reader's own error; the slowest reading in units."""
    refusals, slowest = [], 0.0
    for text in sources:
        start = time.process_time()
        try:
            read(text)
        except error as refusal:
            refusals.append(refusal)
        slowest = max(slowest, time.process_time() - start)
    slowest /= unit()
    assert {type(each) for each in refusals} == {error}
    assert all(len(str(each)) < 2000 for each in refusals)
    assert all(str(each).replace("\n", " ").isprintable() for each in refusals)
    return len(refusals), slowest


@pytest.mark.parametrize("seed", range(2))
def test_certificates(seed):
    raw = json.loads(certificate().to_json())
    refused, slowest = attack(Certificate.from_json, texts(raw, COUNT, seed), ValueError)
    assert refused > COUNT / 2
    assert slowest < 30


@pytest.mark.parametrize("seed", range(2))
def test_plans(seed):
    raw = json.loads(document.dumps(plan()))

    def read(text):
        str(Plan(**document.loads(text)))

    refused, slowest = attack(read, texts(raw, COUNT, seed, seal=sealed), PlanDocumentError)
    assert refused > COUNT / 2
    assert slowest < 30


def test_what_is_whole_is_read():
    again = Certificate.from_json(certificate().to_json())
    assert again.optima == certificate().optima
    assert again.to_json() == certificate().to_json()
    assert Plan(**document.loads(document.dumps(plan()))) == plan()


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PlanDocumentError, match="no text"):
        Plan.load(tmp_path / "plan.json")


def test_a_large_file_is_not_read(tmp_path):
    with open(tmp_path / "plan.json", "wb") as file:
        file.truncate(2**33)  # a hole: no disk is filled
    tracemalloc.start()
    with pytest.raises(PlanDocumentError, match="at most"):
        Plan.load(tmp_path / "plan.json")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_names_in_a_plan_cannot_command_a_terminal():
    raw = json.loads(document.dumps(plan()))
    raw["plan"]["title"] = "\x1b[2J"
    with pytest.raises(PlanDocumentError, match="can be printed"):
        document.loads(json.dumps(sealed(raw)))


@pytest.fixture(scope="module")
def fitted():
    asked = {"axes": {"depth": "n_layers"}, "lr": "lr", "loss": "final_loss", "seed": "seed"}
    whole = fit(example(), **asked, by="scheme").to_dict()
    return {name: whole[name] for name in ("schema", "studies", "certificates")}


def test_fits(fitted, tmp_path):
    """``depthmup.load`` has one error for folders that hold nothing that it can read."""

    def read(text):
        (tmp_path / "summary.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        str(depthmup.load(tmp_path))

    refused, slowest = attack(read, texts(fitted, COUNT // 3, 0), StoreError)
    assert refused > COUNT / 6
    assert slowest < 30


def test_a_fit_whose_parts_contradict_each_other(fitted, tmp_path):
    [study] = fitted["studies"]
    [window] = study["windows"]
    first, *others = window["transfers"]
    optima = [{**first["optima"][0], "size": {"width": 2}}, *first["optima"][1:]]
    for wrong in ([], [{**first, "optima": optima}, *others]):
        spoilt = {**study, "windows": [{**window, "transfers": wrong}]}
        (tmp_path / "summary.json").write_text(json.dumps({**fitted, "studies": [spoilt]}))
        with pytest.raises(StoreError, match="cannot be read as a report"):
            depthmup.load(tmp_path)


def test_sessions_whose_settings_no_run_can_have(tmp_path):
    """Stored with the right checksum, as another program would: left out with a warning."""
    design = depthmup.Design(
        base={"width": 8, "depth": 2}, depth=(2, 4), lrs=[0.001], schemes="sp", optimizers="adam"
    )
    sweep = Sweep(model=depthmup.BuiltIn(), design=design).to_dict()
    about = {"sweep": sweep, "tolerance": 0.15, "environment": {}, "started": 1.0}
    with Store(tmp_path / "results.sqlite") as store:
        store.open_session(about)
        assert len(store.sessions()) == 1
        for wrong in ([[]], math.inf, {"a": 1}):
            other = {**sweep, "model": {**sweep["model"], "batch_size": wrong}}
            store.open_session({**about, "sweep": other})
        with pytest.warns(StoreWarning, match="left out"):
            assert len(store.sessions()) == 1


def test_the_last_measurement_is_loaded_though_its_machines_clock_is_behind(tmp_path):
    for seeds, started in ((2, 2000.0), (1, 1000.0)):
        sweep = residual(seeds=seeds, **SMALL)
        with Store(tmp_path / "results.sqlite") as store:
            run(sweep.runs, store=store, executor=InProcess())
            about = {"sweep": sweep.to_dict(), "tolerance": 0.15, "environment": {}}
            store.open_session({**about, "started": started})
    assert depthmup.load(tmp_path).sweep.design.seeds == 1


@pytest.fixture
def guarded():
    """Makes a folder and what is in it unwritable, for root too while it is read."""
    identity = getattr(os, "geteuid", int)()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "results")
        folder.mkdir()

        def guard():
            for path in (*folder.iterdir(), folder, Path(parent)):
                path.chmod(0o555 if path.is_dir() else 0o444)
            if identity == 0:
                os.seteuid(65534)

        yield folder, guard
        if identity == 0:
            os.seteuid(0)
        for path in (Path(parent), folder):
            path.chmod(0o755)


def test_a_store_that_one_may_only_read(guarded, capsys):
    folder, guard = guarded
    sweep = residual(seeds=1, **SMALL)
    with Store(folder / "results.sqlite") as store:
        run(sweep.runs, store=store, executor=InProcess())
        about = {"sweep": sweep.to_dict(), "tolerance": 0.15, "environment": {}}
        store.open_session({**about, "started": 1.0})
    whole = str(depthmup.load(folder))  # which loads what another user may not load
    assert report.run(report.Options(folders=(folder,))) == 0
    (folder / "report.html").unlink()
    capsys.readouterr()
    guard()
    with pytest.raises(PermissionError):
        (folder / "new").touch()
    assert str(depthmup.load(folder)) == whole
    assert report.run(report.Options(folders=(folder,))) == 0
    assert "No page is written" in capsys.readouterr().err


def test_what_a_damaged_store_is_said_to_hold_can_be_printed(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        store.open_session({"started": 1.0})
        store._db.execute("UPDATE sessions SET about = CAST(x'1b5b324aff' AS TEXT)")
        with pytest.raises(StoreError) as refused:
            store.sessions()
    assert str(refused.value).isprintable()


def test_what_a_pickle_asks_for_can_be_printed():
    with pytest.raises(ValueError, match="do not trust it") as refused:
        cifar_pickle(b"\x80\x02cnu\x1b[2J\x00py\nndarray\n.", of="it")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("wrong", [10**400, math.nan, True, None])
def test_a_session_whose_numbers_are_none_is_left_out(wrong, tmp_path):
    about = {"sweep": {}, "tolerance": 0.15, "environment": {}, "started": wrong}
    with Store(tmp_path / "results.sqlite") as store:
        store.open_session(about)
        with pytest.warns(StoreWarning, match="its started is not"):
            assert store.sessions() == []


def test_a_search_without_a_start_is_left_out(tmp_path):
    design = depthmup.Design(
        base={"width": 8, "depth": 2}, depth=(2, 4), lrs="auto", schemes="sp", optimizers="adam"
    )
    sweep = Sweep(model=depthmup.BuiltIn(), design=design).to_dict()
    about = {"sweep": sweep, "tolerance": 0.15, "environment": {}, "started": 1.0}
    with Store(tmp_path / "results.sqlite") as store:
        store.open_session(about)
        with pytest.warns(StoreWarning, match="left out"):
            assert store.sessions() == []


def test_a_whole_number_beyond_double_precision_in_a_table(tmp_path):
    rows = [{"depth": d, "lr": 2.0**k, "loss": 1.0 + k * k} for d in (4, 8) for k in (-2, -1, 0)]
    rows[3]["loss"] = 10**400
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueError, match="numbers in the column 'loss'; row 4 has '1000"):
        fit(tmp_path / "runs.jsonl", axes=["depth"], lr="lr", loss="loss")
