"""What trackers hold after a sweep is what its records hold: the real packages, no network."""

import math
import struct
from array import array

import pytest

from depthmup.records import Record, Status, Trial
from depthmup.sweep.logs import log_named
from depthmup.sweep.trackers import run_name


def record(status, losses, seed=0):
    trial = Trial(
        model="make", code="1", size={"width": 64, "depth": 8}, base={"width": 64, "depth": 4},
        scheme="completep", optimizer="adamw", lr=0.01, steps=3, seed=seed,
    )  # fmt: skip
    return Record(cell=trial, status=status, losses=array("f", losses))


RECORDS = [
    record(Status.FINISHED, [2.0, 1.0, 0.5]),
    record(Status.DIVERGED, [2.0, math.inf], seed=1),
]


def written(name):
    log = log_named(name)
    for one in RECORDS:
        log.write(one)


def from_tensorboard(folder):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    written(f"tensorboard:{folder}")
    for one in RECORDS:
        run = events.EventAccumulator(str(folder / run_name(one))).Reload()
        yield [(e.step, e.value) for e in run.Scalars("loss")]


def from_mlflow(folder):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    written(f"mlflow:{folder}")
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("depthmup").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    for one in RECORDS:
        run = runs[run_name(one)]
        assert run.data.params["scheme"] == "completep"
        assert float(run.data.params["lr"]) == 0.01
        assert run.data.tags["status"] == one.status.value
        yield [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")]


def entries(path):
    """Entries of W&B's transaction log: 7 bytes, then LevelDB's log format in blocks of 32 KiB."""
    data, at, entry = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        entry += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield entry
            entry = b""


def from_wandb(folder):
    """The transaction logs that an offline run leaves."""
    pytest.importorskip("wandb")
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    written("wandb:transfer")
    by_name = {}
    for path in folder.glob("wandb/offline-run-*/*.wandb"):
        losses, name = [], ""
        for entry in entries(path):
            line = pb.Record.FromString(entry)
            if line.WhichOneof("record_type") == "run":
                name = line.run.display_name
            elif line.WhichOneof("record_type") == "history":
                items = {i.key or "/".join(i.nested_key): i.value_json for i in line.history.item}
                losses.append((int(items["_step"]), float(items["loss"])))
        by_name[name] = losses
    for one in RECORDS:
        yield by_name[run_name(one)]


@pytest.mark.parametrize("read", [from_tensorboard, from_mlflow, from_wandb])
def test_a_tracker_holds_every_loss(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    finished, diverged = read(tmp_path)
    assert finished == [(0, 2.0), (1, 1.0), (2, 0.5)]
    # MLflow's stores have no infinity, and clip it or leave it out.
    assert diverged[0] == (0, 2.0)
    assert all(step < 2 for step, _ in diverged)


@pytest.mark.parametrize(
    ("name", "message"),
    [("neptune:x", "wandb:PROJECT"), ("wandb:", "wandb:PROJECT"), ("mlflow", "mlflow:STORE")],
)
def test_what_is_no_log(name, message):
    with pytest.raises(ValueError, match=message):
        log_named(name)


@pytest.mark.parametrize(
    ("name", "module"),
    [("wandb:x", "wandb"), ("mlflow:x", "mlflow"), ("tensorboard:x", "torch.utils.tensorboard")],
)
def test_a_tracker_that_is_not_installed_is_named(name, module, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ValueError, match=r"pip install 'depthmup\[(trackers|tensorboard)\]'"):
        log_named(name)
