"""What trackers hold after a sweep is what its records hold: the real packages, no network."""

import json
import math
import struct
from array import array

import pytest
from own_models import SOURCE, batch, make
from sweeps import FOUR_RUNS, measure

import depthmup
from depthmup.records import Record, Status, Trial
from depthmup.sweep import logs
from depthmup.sweep.logs import described, log_named, run_name


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


def whole(log):
    """Runs come when they have ended, as those of built-in networks do."""
    for one in RECORDS:
        log.write(one)


def live(log):
    """Losses come while runs train: side by side, and for one run twice, as its worker died."""
    first, second = RECORDS
    for step in (0, 1, 0, 1, 2):
        log.step(first.cell, step, first.losses[step])
        log.step(second.cell, 0, second.losses[0])
    log.write(second)
    log.write(first)


def stopped(log):
    """The sweep is interrupted while both train."""
    for one in RECORDS:
        for step, loss in enumerate(one.losses):
            log.step(one.cell, step, loss)
    log.close()


def from_tensorboard(folder, write):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    write(log_named(f"tensorboard:{folder}"))
    for one in RECORDS:
        run = events.EventAccumulator(str(folder / run_name(one.cell))).Reload()
        [status] = run.Tensors("status/text_summary")
        [said] = status.tensor_proto.string_val
        yield [(e.step, e.value) for e in run.Scalars("loss")], said.decode()


def from_mlflow(folder, write):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("alembic")
    write(log_named(f"mlflow:{folder}"))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("depthmup").experiment_id
    runs = {run.info.run_name: run for run in client.search_runs([experiment])}
    for one in RECORDS:
        run = runs[run_name(one.cell)]
        assert run.data.params["scheme"] == "completep"
        assert float(run.data.params["lr"]) == 0.01
        history = client.get_metric_history(run.info.run_id, "loss")
        yield [(m.step, m.value) for m in history], run.data.tags["status"]


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


def from_wandb(folder, write):
    """The transaction logs that an offline run leaves."""
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # it remembers the folder in which it was used first
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    write(log_named("wandb:transfer"))
    wandb.teardown()  # its service writes the files
    by_name = {}
    for path in folder.glob("wandb/offline-run-*/*.wandb"):
        losses, name, group, config, summary = [], "", "", {}, {}
        for entry in entries(path):
            line = pb.Record.FromString(entry)
            kind = line.WhichOneof("record_type")
            if kind == "run":
                name, group = line.run.display_name, line.run.run_group
                config |= {i.key: json.loads(i.value_json) for i in line.run.config.update}
            elif kind == "history":
                items = {i.key or "/".join(i.nested_key): i.value_json for i in line.history.item}
                losses.append((int(items["_step"]), float(items["loss"])))
            elif kind == "summary":
                summary |= {
                    i.key or "/".join(i.nested_key): json.loads(i.value_json)
                    for i in line.summary.update
                }
        by_name[name] = losses, summary["status"], group, config
    for one in RECORDS:
        losses, status, group, config = by_name[run_name(one.cell)]
        assert group == "completep"
        # By W&B's own key it adds what it knows of the program; all others are the run's.
        assert {k: v for k, v in config.items() if k != "_wandb"} == described(one.cell)
        yield losses, status


@pytest.mark.parametrize("write", [whole, live, stopped])
@pytest.mark.parametrize("read", [from_tensorboard, from_mlflow, from_wandb])
def test_a_tracker_holds_every_loss_once(read, write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_WRITES", 0.0)
    (finished, how), (diverged, how_diverged) = read(tmp_path, write)
    assert finished == [(0, 2.0), (1, 1.0), (2, 0.5)]
    # MLflow's stores have no infinity, and clip it or leave it out.
    assert diverged[0] == (0, 2.0)
    assert all(step < 2 for step, _ in diverged)
    ends = {"finished", "diverged"} if write is not stopped else {"interrupted"}
    assert {how, how_diverged} == ends


def test_the_description_of_a_run_is_whole():
    """Also of what is not in the table of runs: the same run can be asked for again."""
    trial = RECORDS[0].cell
    assert Trial.from_json(json.dumps(described(trial)["run"])).key == trial.key


class Heard:
    """A live log that writes down what comes, in order."""

    def __init__(self, fail_at=None):
        self.heard, self.closed, self.fail_at = [], 0, fail_at

    def step(self, run, step, loss):
        self.heard.append((run.key, step, loss))
        if step == self.fail_at:
            raise KeyboardInterrupt

    def write(self, record):
        self.heard.append((record.cell.key, "end", record.losses.tolist()))

    def close(self):
        self.closed += 1

    def check(self, runs, steps):
        """Every run's losses came step by step, before it ended, and are those of its record."""
        keys = {key for key, _, _ in self.heard}
        assert len(keys) == runs
        for key in keys:
            own = [(step, value) for k, step, value in self.heard if k == key]
            *live, (end, losses) = own
            assert end == "end"
            assert [step for step, _ in live] == list(range(steps))
            assert array("f", [loss for _, loss in live]).tolist() == losses


@pytest.mark.parametrize("engine", ["reference", "stacked"])
def test_losses_of_custom_models_come_while_they_train(engine):
    log = Heard()
    measure(make, batch=batch, log=log, engine=engine, **FOUR_RUNS)
    log.check(runs=4, steps=6)
    assert log.closed


def test_a_log_that_is_not_live_gets_whole_runs():
    class Last:
        losses = ()

        def write(self, record):
            self.losses = (*self.losses, record.losses[-1])

    log = Last()
    measure(make, batch=batch, log=log, **FOUR_RUNS)
    assert len(log.losses) == 4


def test_an_interruption_closes_what_is_open():
    log = Heard(fail_at=3)
    with pytest.raises(KeyboardInterrupt):
        measure(make, batch=batch, log=log, **FOUR_RUNS)
    assert log.closed == 1


def test_losses_come_from_worker_processes_too(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    slow = SOURCE.replace("def batch(generator):", "def batch(generator):\n    time.sleep(0.1)")
    (tmp_path / "slow_own.py").write_text("import time\n" + slow)
    model = depthmup.Model.load(f"{tmp_path}/slow_own.py:make")
    design = depthmup.Design(
        base={"width": 16, "depth": 2}, depth=(2, 4), lrs=(1e-3,), steps=8, seeds=1, window=3,
        schemes="depth-mup",
    )  # fmt: skip
    log = Heard()
    one_worker = depthmup.Execution(executor="processes", workers=1)
    depthmup.transfer(model, design, on=one_worker, log=log)
    assert len({key for key, _, _ in log.heard}) == 2
    for run in {key for key, _, _ in log.heard}:
        *steps, (end, losses) = [(step, value) for key, step, value in log.heard if key == run]
        assert end == "end"
        # Messages come every 0.2 seconds; what came after the last of them is in the record.
        assert [step for step, _ in steps] == list(range(len(steps)))
        assert len(steps) >= 3
        assert array("f", [loss for _, loss in steps]).tolist() == losses[: len(steps)]


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
