"""Damaged and foreign stores: nothing wrong is taken for a result, and nothing right is lost."""

import hashlib
import json
import random
import shutil
import sqlite3
import warnings
from array import array
from pathlib import Path

import pytest
from cells import cell
from sweeps import residual

from depthmup.records import Measurement, Record, Status, Task
from depthmup.records.store_rows import checksum
from depthmup.rules import DEPTH_MUP
from depthmup.sweep import InProcess, Store, StoreError, StoreWarning, merge, run

# Written by the version before checksums; LEFT is a hash of its records, taken by that version.
OLD = Path(__file__).parent / "stores" / "schema-2.sqlite"
LEFT = "7b054083f7f1101dd4f0632b153aab03f2e1a27d071a47bdedd4ae7467d0cef1"
GRID = residual(
    schemes=(DEPTH_MUP,),
    depths=(2, 4),
    base_depth=2,
    log2_lrs=(-4.0, -3.0, -2.0),
    seeds=2,
    width=8,
    batch_size=8,
    steps=4,
    window=2,
)
TASK = Task(name="cosines", settings={"depth": 8})


def record(seed=0, losses=(2.0, 1.5, 1.25), status=Status.FINISHED):
    return Record(cell=cell(seed=seed), status=status, losses=array("f", losses))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


def edit(path, statement, *values):
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


def left(store):
    hashed = hashlib.sha256()
    for each in GRID.runs:
        found = store.get(each)
        hashed.update(each.key.encode() + found.status.value.encode() + found.losses.tobytes())
    return hashed.hexdigest()


def test_a_store_of_the_version_before_gives_the_same_records(path):
    shutil.copy(OLD, path)
    for _ in range(2):  # the second time it is of this version already
        with Store(path) as store:
            assert left(store) == LEFT
            assert store.get(TASK).values["raw"][0] == 1.5
            assert store.sessions()[0]["sweep"] == GRID.to_dict()
            assert run(GRID.runs, store=store, executor=InProcess()) == 0


def test_an_old_stores_records_are_guarded_from_then_on(path):
    shutil.copy(OLD, path)
    Store(path).close()
    edit(path, "UPDATE records SET status = 'diverged' WHERE key = ?", GRID.runs[0].key)
    with Store(path) as store, pytest.warns(StoreWarning, match="damaged"):
        assert store.missing(GRID.runs) == [GRID.runs[0]]


CHANGES = {
    "a loss": "losses = x'0000c03f0000c03f0000a03f'",
    "the status": "status = 'diverged'",
    "an unknown status": "status = 'fine'",
    "the run": "cell = replace(cell, '\"seed\":0', '\"seed\":7')",
    "losses of half a number": "losses = x'0000c0'",
    "losses that are text": "losses = 'none'",
    "the checksum": "checksum = x'00'",
    "no checksum": "checksum = NULL",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_record_is_named_and_trained_again(path, change):
    with Store(path) as store:
        store.add(record(0))
        store.add(record(1))
    edit(path, f"UPDATE records SET {change} WHERE key = ?", cell(seed=0).key)
    with Store(path) as store:
        with pytest.warns(StoreWarning, match=r"damaged .* trains it again.*\"seed\":0"):
            assert store.missing([cell(seed=0), cell(seed=1)]) == [cell(seed=0)]
        store.add(record(0))
        assert store.get(cell(seed=0)) == record(0)
    with Store(path) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get(cell(seed=0)) == record(0)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_the_loss_that_a_run_failed_by_is_kept(path, loss):
    with Store(path) as store:
        store.add(record(losses=(loss,), status=Status.FAILED))
        assert str(store.get(cell()).losses[0]) == str(loss)


def test_a_changed_measurement_counts_as_missing(path):
    with Store(path) as store:
        store.add(Measurement(task=TASK, values={"raw": 1.5}))
    edit(path, "UPDATE measurements SET measured = '{\"raw\": 2.5}'")
    with Store(path) as store, pytest.warns(StoreWarning, match="damaged"):
        assert store.get(TASK) is None


IMPOSSIBLE = [
    (Status.FINISHED, ()),
    (Status.FINISHED, (1.0, -0.5)),
    (Status.FINISHED, (1.0, float("inf"))),
    (Status.FINISHED, (1.0, float("nan"))),
    (Status.DIVERGED, (1.0, float("inf"))),
    (Status.DIVERGED, (-1.0,)),
    (Status.FAILED, (-1.0,)),
]


@pytest.mark.parametrize(("status", "losses"), IMPOSSIBLE)
def test_a_record_that_cannot_be_is_refused_and_not_believed(path, status, losses):
    wrong = record(losses=losses, status=status)
    with Store(path) as store:
        with pytest.raises(ValueError, match="that a run can have left"):
            store.add(wrong)
        store.add(record())
    with sqlite3.connect(path) as db:  # written by a program that does not ask
        db.execute(
            "UPDATE records SET status = ?, losses = ?", (status.value, wrong.losses.tobytes())
        )
        db.create_function("checksum", -1, checksum)
        db.execute("UPDATE records SET checksum = checksum(key, cell, status, losses)")
    db.close()
    with Store(path) as store, pytest.warns(StoreWarning, match="damaged"):
        assert store.get(cell()) is None


@pytest.mark.parametrize("seed", range(4))
def test_no_single_flipped_bit_changes_a_record_or_a_session_unseen(tmp_path, seed):
    """Wherever in the file it is: what is read is as it was written, or missing, or refused."""
    whole = tmp_path / "whole.sqlite"
    shutil.copy(OLD, whole)
    with Store(whole) as store:
        good = {each: store.get(each) for each in GRID.runs}
        session = store.sessions()[0]
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw, rng = whole.read_bytes(), random.Random(seed)
    noticed = 0
    for number in range(60):
        flipped = bytearray(raw)
        flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{number}.sqlite"
        path.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with Store(path) as store:
                    found = {each: store.get(each) for each in GRID.runs}
                    sessions = store.sessions()
            except StoreError:
                noticed += 1
                continue
        noticed += bool(told)
        assert all(found[each] in (good[each], None) for each in GRID.runs)
        assert all(each == session for each in sessions)
    assert noticed > 5  # most of the file is records


def written_by_the_version_before():
    """The session's text in the store of the version before."""
    with sqlite3.connect(OLD) as db:
        (text,) = db.execute("SELECT about FROM sessions").fetchone()
    db.close()
    return json.loads(text)


OLD_GRID = written_by_the_version_before()["grid"]


def foreign(**changes):
    """A session of these runs as another version, or another program, may note it."""
    about = {
        "sweep": GRID.to_dict(),
        "tolerance": 0.15,
        "command": ["depthmup"],
        "environment": {},
        "started": 1.0,
    }
    return json.dumps({k: v for k, v in {**about, **changes}.items() if k != "sweep" or v})


FOREIGN = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[1]",
    "a new setting": foreign(
        sweep={**GRID.to_dict(), "design": {**GRID.design.to_dict(), "sharpness": 2}}
    ),
    "a new scheme": foreign(
        sweep={**GRID.to_dict(), "design": {**GRID.design.to_dict(), "schemes": ["eta-mup"]}}
    ),
    "a new kind of model": foreign(sweep={**GRID.to_dict(), "model": {"kind": "quantum"}}),
    "an old scheme": foreign(sweep=None, grid={**OLD_GRID, "schemes": ["eta-mup"]}),
    "an old grid without rates": foreign(sweep=None, grid={**OLD_GRID, "log2_lrs": []}),
    "no tolerance": foreign(tolerance=None),
    "a tolerance that is true": foreign(tolerance=True),
    "environment": foreign(environment="laptop"),
    "started": foreign(started="yesterday"),
    "command": foreign(command="transfer"),
    "claims": foreign(claims=[1], scale="laptop", data=[]),
    "trials": foreign(sweep=None, grid=OLD_GRID, kind="trials", title="x"),
    "target": foreign(target=[1]),
    "levels": foreign(more=json.loads("[" * 50 + "]" * 50)),
}


@pytest.mark.parametrize("about", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.filterwarnings("ignore::depthmup.sweep.StoreWarning")
def test_a_session_that_cannot_be_read_stays_behind_and_is_left_out(tmp_path, about):
    other, path = tmp_path / "other.sqlite", tmp_path / "results.sqlite"
    shutil.copy(OLD, other)
    Store(other).close()
    with sqlite3.connect(other) as db:
        db.execute(
            "INSERT INTO sessions(about, seconds, checksum) VALUES (?, 1.0, ?)",
            (about, checksum(about, 1.0)),
        )
    db.close()
    with Store(other) as store, pytest.warns(StoreWarning, match="left out"):
        assert [session["sweep"] for session in store.sessions()] == [GRID.to_dict()]
    with Store(path) as store:
        with pytest.warns(StoreWarning, match="is skipped"):
            assert merge([other], into=store) == len(GRID.runs) + 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(store.sessions()) == 1


def test_damage_stays_behind_when_stores_are_joined(tmp_path):
    for name in ("a", "b"):
        with Store(tmp_path / f"{name}.sqlite") as store:
            store.add(record(0))
            store.add(record(1))
    edit(tmp_path / "a.sqlite", "UPDATE records SET losses = x'00000000'")
    with Store(tmp_path / "results.sqlite") as store:
        with pytest.warns(StoreWarning, match="is skipped"):
            merge([tmp_path / "a.sqlite", tmp_path / "b.sqlite"], into=store)
        assert store.get(cell(seed=0)) == record(0)
        assert len(store) == 2


def test_texts_of_a_session_cannot_command_a_terminal(path):
    with Store(path) as store:
        store.open_session({"title": "\x1b[2J\x1b]0;owned\x07", "nested": ["\x9b31m"]})
        [session] = store.sessions()
    assert session["title"] == r"\x1b[2J\x1b]0;owned\x07"
    assert session["nested"] == [r"\x9b31m"]


def test_programs_in_a_store_are_refused(path):
    Store(path).close()
    edit(path, "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM sessions; END")
    with pytest.raises(StoreError, match="views or triggers"):
        Store(path)


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_store_that_goes_away_during_a_sweep_is_told(path, how):
    class Executor:
        def __call__(self, jobs, listener):
            if how == "moved":
                path.rename(path.with_name("elsewhere"))
            else:
                path.unlink()
            if how == "replaced":
                path.write_bytes(b"")
            InProcess()(jobs, listener)

    with Store(path) as store, pytest.raises(StoreError, match="deleted, moved or replaced"):
        run(GRID.runs, store=store, executor=Executor())


def test_a_name_that_sqlite_could_take_for_a_uri(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store("file:results.sqlite?mode=memory") as store:
        store.add(record())
    assert (tmp_path / "file:results.sqlite?mode=memory").is_file()
