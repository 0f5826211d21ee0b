"""Folders that trackers left give the table that the training loop itself wrote.

``trackers/make.py`` made the archives beside it with the real packages, of twelve runs each: one
was killed, one killed and resumed, one raised, one diverged. The other trackers' folders, which
are large or need their package to be read, are made anew where these are installed.
"""

import json
import math
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest
from pytest import approx

import depthmup
from depthmup.cli import main
from depthmup.records.reported import Wanted
from depthmup.tables.trackers import points_of, runs_at
from depthmup.tables.trackers.run import copied

HERE = Path(__file__).parent / "trackers"
KEPT = ("sacred", "dvclive", "trackio", "tensorboard", "ray")
PACKAGES = {
    "sacred": "sacred", "dvclive": "dvclive", "trackio": "trackio", "tensorboard": "tensorboardX",
    "ray": "ray.tune", "wandb": "wandb", "mlflow": "mlflow", "optuna": "optuna", "aim": "aim",
}  # fmt: skip
FILES = {"optuna": "optuna.db", "mlflow": "mlflow.db"}
ASKED = {"axes": ["width"], "lr": "lr"}


def expect(name, folder):
    """The reader's rows are the loop's, and ``fit`` leaves out what the loop knows did not end."""
    loss = "value" if name == "optuna" else "val_loss"
    rows = json.loads((folder / "loop.json").read_text())
    loop = pd.DataFrame(rows).set_index(["width", "lr"]).sort_index()
    frame = runs_at(name, str(folder / FILES.get(name, "")), loss)
    report = depthmup.fit(f"{name}:{folder / FILES.get(name, '')}", **ASKED, loss=loss)
    dead = {row.row - 1 for row in report.excluded}
    read = frame.drop(index=frame.index[sorted(dead)]).set_index(["width", "lr"]).sort_index()
    ended = loop[loop.ended]
    # An infinite loss says that a run diverged, whether it raised for it or not.
    assert [*read.index] == [*ended.index]
    found = [math.inf if text == "diverged" else text for text in ended.val_loss]
    assert [*read[loss]] == approx(found, rel=1e-6)
    diverged = [note for note in report.notes() if note.text.startswith("1 run diverged")]
    assert len(diverged) == 1
    clean = ended.reset_index().assign(val_loss=found).drop(columns=["ended", "optim"])
    of_loop = depthmup.fit(clean, **ASKED, loss="val_loss")
    assert report.exponent("width").value == approx(of_loop.exponent("width").value, abs=1e-5)
    assert set(frame["last_step"]) >= {40.0}
    if name not in ("tensorboard", "dvclive"):  # types are kept
        assert frame["width"].dtype.kind in "if"
        assert frame["lr"].dtype.kind == "f"


@pytest.mark.parametrize("name", KEPT)
def test_the_rows_of_a_tracker_are_those_of_the_loop(name, tmp_path):
    if name == "tensorboard":
        pytest.importorskip("tensorboard")
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    expect(name, tmp_path)


@pytest.mark.long(slice=False)
@pytest.mark.xdist_group("ray")  # one cluster at a time
@pytest.mark.parametrize("name", PACKAGES)
def test_folders_that_the_installed_package_makes(name, tmp_path, monkeypatch):
    """A minute each: a process for every run."""
    pytest.importorskip(PACKAGES[name])
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    folder = tmp_path / "runs"
    subprocess.run([sys.executable, HERE / "make.py", name, folder], check=True, timeout=600)
    expect(name, folder)


def test_a_resumed_run_begins_anew_where_it_went_on():
    """The dead attempt came to step 60; the one that went on at 41 ended at 50."""
    written = [(s, 60.0 - s) for s in range(1, 61)] + [(s, 100.0 - s) for s in range(41, 51)]
    points = points_of(written)
    assert len(points) == 50
    assert points[-1] == (50.0, 50.0)
    assert Wanted.of("loss").value(points) == 50.0
    assert Wanted.of("loss:min").value(points) == 20.0
    assert Wanted.of("loss@45").value(points) == 55.0
    assert Wanted.of("loss@55").value(points) is None
    assert math.isnan(Wanted.of("loss:min").value(points_of([(1, 2.0), (2, "NaN")])))


def logged(folder, *, width, lr, seed, steps=40, kind="csv", loss=None):
    """One run's log, as a loop of its owner writes it."""
    at = folder / f"w{width}_d2" / f"lr={lr}_s{seed}"
    at.mkdir(parents=True)
    best = -8 - 0.5 * math.log2(width / 64)
    end = 2 + 0.1 * (math.log2(lr) - best) ** 2 if loss is None else loss
    values = [(s, end + 40 / s - 1) for s in range(1, steps + 1)]
    if kind == "csv":
        rows = ["step,train_loss,val_loss"]
        rows += [f"{s},{v + 0.1},{v if s % 10 == 0 else ''}" for s, v in values]
    elif kind == "jsonl":
        rows = [json.dumps({"step": s, "val_loss": v}) for s, v in values]
    elif kind == "state":
        history = [{"step": s, "eval_loss": v} for s, v in values]
        rows = [json.dumps({"global_step": steps, "log_history": history})]
    elif kind == "log":
        rows = [f"[{s}] val_loss={v} dt=0.1" for s, v in values]
    else:
        rows = [str(end)]
    names = {"csv": "metrics.csv", "jsonl": "log.jsonl", "state": "trainer_state.json"}
    (at / names.get(kind, "train.log" if kind == "log" else "loss.txt")).write_text("\n".join(rows))
    return at


KINDS = {
    "csv": "metrics.csv:val_loss",
    "jsonl": "log.jsonl:val_loss",
    "state": "trainer_state.json:eval_loss",
    "log": r"train.log:re:val_loss=(\S+)",
    "number": "loss.txt",
}
GRID = [
    {"width": w, "lr": lr, "seed": s}
    for w in (64, 128, 256)
    for lr in (0.001, 0.002, 0.004, 0.008, 0.016)
    for s in (0, 1)
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_logs_is_a_table(kind, tmp_path, capsys):
    """Names, sizes and seeds come from paths; a run that died is found by its steps."""
    for row in GRID:
        dead = row == {"width": 128, "lr": 0.004, "seed": 1} and kind != "number"
        diverged = row["lr"] == 0.016 and row["width"] == 256
        loss = math.nan if diverged else None
        logged(tmp_path, **row, kind=kind, steps=20 if dead else 40, loss=loss)
    pattern = f"{tmp_path}/w{{width}}_d{{depth}}/lr={{lr}}_s{{seed}}/{KINDS[kind]}"
    assert main(["fit", "--runs", pattern, "--axes", "width"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "drifts" in said
    assert "2 runs diverged" in said
    assert ("1 run took fewer steps than most" in said) is (kind != "number")
    report = depthmup.fit(f"runs:{pattern}", axes=["width"])
    assert report.exponent("width").value == approx(-0.5, abs=0.06)


def test_settings_stand_in_files_beside_a_log(tmp_path):
    """Two optimizers in config.yaml are refused until they are named; 1e-05 is a number there."""
    pytest.importorskip("yaml")
    for i, row in enumerate(GRID):
        at = logged(tmp_path, **row)
        (at / "config.yaml").write_text(
            f"optim: {{name: {'ab'[i % 2]}, eps: 1e-05}}\nnotes: null\n"
        )
    pattern = f"runs:{tmp_path}/w{{width}}_d{{depth}}/lr={{lr}}_s*/metrics.csv:val_loss:min"
    with pytest.raises(ValueError, match=r"one log for each run.*name in braces what differs"):
        depthmup.fit(pattern, axes=["width"])
    with pytest.raises(ValueError, match=r"differ in 'optim.name'.*--by optim.name") as refusal:
        depthmup.fit(pattern.replace("s*", "s{seed}"), axes=["width"])
    assert "eps" not in str(refusal.value)


def test_settings_of_a_pattern_of_stars_stand_beside_each_log(tmp_path):
    """Names of folders need not say anything; a pattern with a name needs one of each run."""
    for i, row in enumerate(GRID):
        at = logged(tmp_path / str(i), **row)
        (at / "config.json").write_text(json.dumps({"d_model": row["width"], "lr": row["lr"]}))
    pattern = f"runs:{tmp_path}/*/*/*/metrics.csv:val_loss"
    report = depthmup.fit(pattern, axes={"width": "d_model"}, lr="lr")
    assert report.exponent("width").value == approx(-0.5, abs=0.06)


@pytest.mark.parametrize("package", ["mlflow", "optuna"])
def test_a_package_does_not_write_in_its_owners_database(package, tmp_path):
    """Of an earlier version it would bring the tables up to date; here one is missing."""
    made = pytest.importorskip(package)
    path = tmp_path / FILES[package]
    if package == "mlflow":
        client = made.MlflowClient(tracking_uri=f"sqlite:///{path}")
        for lr in (0.1, 0.2):
            run = client.create_run("0")
            client.log_param(run.info.run_id, "lr", lr)
            client.log_metric(run.info.run_id, "val_loss", 1.0)
            client.set_terminated(run.info.run_id)
    else:
        made.logging.set_verbosity(made.logging.ERROR)
        study = made.create_study(storage=f"sqlite:///{path}", direction="maximize")
        study.optimize(lambda trial: trial.suggest_float("lr", 0.1, 0.2), n_trials=2)
    with sqlite3.connect(path) as database:
        missing = {"mlflow": "trace_tags", "optuna": "trial_heartbeats"}[package]
        database.execute(f"DROP TABLE {missing}")
    before = path.read_bytes()
    loss = "val_loss" if package == "mlflow" else "1-maximized"
    frame = runs_at(package, str(path), loss)
    assert len(frame) == 2
    assert path.read_bytes() == before
    if package == "optuna":  # a maximized value is no loss, and each study has its name
        assert [*frame[loss]] == approx([*(1 - frame["lr"])])
        assert frame["study"].nunique() == 1
        with pytest.raises(ValueError, match=r"got 'value'. They have maximized"):
            runs_at(package, str(path), "value")
    else:
        assert [*frame["experiment"]] == ["Default"] * 2


def test_a_database_is_copied_with_what_its_writer_has_not_merged_yet(tmp_path):
    """Writers in WAL mode leave rows in a file beside it."""
    path = tmp_path / "a #1.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE runs (a)")
        writer.execute("INSERT INTO runs VALUES (7)")
        writer.commit()
        with copied(path) as copy, closing(sqlite3.connect(copy)) as read:
            assert read.execute("SELECT a FROM runs").fetchall() == [(7,)]


BAD = {
    "no names": ("metrics.csv:val_loss", "names in braces"),
    "no files": ("{width}/{lr}.csv:val_loss", "there are none"),
    "no column": ("w{width}_d{d}/lr={lr}_s{seed}/metrics.csv:loss", "its columns are step, train_"),
    "no number": ("w{width}_d{d}/lr={lr}_s{seed}/metrics.csv", "metrics.csv; it has 'step,"),
    "no group": (r"w{width}_d{d}/lr={lr}_s{seed}/metrics.csv:re:\d", "with one group"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_pattern_that_finds_nothing_is_refused_by_name(name, tmp_path):
    pattern, message = BAD[name]
    logged(tmp_path, width=64, lr=0.001, seed=0)
    with pytest.raises(ValueError, match=message):
        depthmup.fit(f"runs:{tmp_path}/{pattern}", axes=["width"], lr="lr")


def test_addresses_that_hold_no_runs_are_refused_by_name(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"Expected runs in sacred:.*empty; there are none"):
        depthmup.fit(f"sacred:{tmp_path / 'empty'}", **ASKED, loss="val_loss")
    with pytest.raises(ValueError, match="there is no file"):
        depthmup.fit(f"trackio:{tmp_path / 'none.db'}", **ASKED, loss="val_loss")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE runs (a)")
    with pytest.raises(ValueError, match="to be a database of trackio; no such table"):
        depthmup.fit(f"trackio:{tmp_path / 'other.db'}", **ASKED, loss="val_loss")
    run = tmp_path / "1"
    run.mkdir()
    (run / "run.json").write_text('{"status": "COMPLETED"')
    with pytest.raises(ValueError, match=r"run.json to be JSON"):
        depthmup.fit(f"sacred:{tmp_path}", **ASKED, loss="val_loss")
    (run / "run.json").write_text('{"status": "COMPLETED"}')
    (run / "metrics.json").write_text('{"train_loss": {"steps": [1], "values": [NaN]}}')
    with pytest.raises(ValueError, match=r"'val_loss'. They have train_loss. --loss train_loss"):
        depthmup.fit(f"sacred:{tmp_path}", **ASKED, loss="val_loss")


def test_a_history_in_one_file_of_json_is_a_log(tmp_path):
    """Also below inner objects; the file is a run's summary."""
    for row in GRID:
        best = -8 - 0.5 * math.log2(row["width"] / 64)
        end = 2 + 0.1 * (math.log2(row["lr"]) - best) ** 2
        summary = {"config": {"lr": row["lr"]}, "history": {"val_loss": [9.0, 5.0, end]}}
        (tmp_path / f"{row['width']}-{row['lr']}-{row['seed']}.json").write_text(
            json.dumps(summary)
        )
    pattern = f"runs:{tmp_path}/{{width}}-{{lr}}-{{seed}}.json:history.val_loss"
    assert depthmup.fit(pattern).exponent("width").value == approx(-0.5, abs=0.06)


@pytest.mark.parametrize("form", ["array", "by name", "columns", "with a summary"])
def test_files_of_one_json_value(form, tmp_path):
    rows = []
    for row in GRID:
        best = -8 - 0.5 * math.log2(row["width"] / 64)
        rows.append({**row, "loss": 2 + 0.1 * (math.log2(row["lr"]) - best) ** 2})
    whole = {
        "array": rows,
        "by name": {f"run {i}": row for i, row in enumerate(rows)},
        "columns": {name: [row[name] for row in rows] for name in rows[0]},
        "with a summary": {"results": rows, "best_lr": 0.004, "grid": [0.001, 0.002]},
    }
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(whole[form], indent=1))
    report = depthmup.fit(path, axes=["width"], lr="lr", loss="loss", seed="seed")
    assert report.exponent("width").value == approx(-0.5, abs=0.06)
    path.write_text(json.dumps({"lr": 0.1, "loss": 2.0}, indent=1))
    with pytest.raises(ValueError, match=r"in a .json file, an array of them"):
        depthmup.fit(path, axes=["width"], lr="lr", loss="loss")
