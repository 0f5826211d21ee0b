"""Damaged and foreign stores: nothing wrong is taken for a result, and nothing right is lost."""

import json
import random
import sqlite3
import warnings
from array import array

import pytest
from cells import cell, record
from sweeps import residual

from depthmup.records import Measurement, Record, Status, Task
from depthmup.report import load_report
from depthmup.rules import DEPTH_MUP
from depthmup.sweep import InProcess, Store, StoreError, StoreWarning, Sweep, merge, run
from depthmup.sweep import sessions as sessions_module
from depthmup.sweep import store as store_module
from depthmup.sweep.store_rows import checksum

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


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


def edit(path, statement, *values):
    with sqlite3.connect(path) as db:
        db.execute(statement, values)
    db.close()


def fill(path):
    """The store of a sweep: every run, a measurement and a session."""
    with Store(path) as store:
        for number, each in enumerate(GRID.runs):
            losses = array("f", [2.0, 1.5, 1.25, 1.0 + number / 8])
            store.add(Record(cell=each, status=Status.FINISHED, losses=losses))
        store.add(Measurement(task=TASK, values={"raw": [1.5]}))
        store.open_session(json.loads(session()))


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
        db.execute("UPDATE records SET checksum = checksum(key, cell, status, losses, place)")
    db.close()
    with Store(path) as store, pytest.warns(StoreWarning, match="damaged"):
        assert store.get(cell()) is None


@pytest.mark.parametrize("seed", range(4))
def test_no_single_flipped_bit_changes_a_record_or_a_session_unseen(tmp_path, seed):
    """Wherever in the file it is: what is read is as it was written, or missing, or refused."""
    whole = tmp_path / "whole.sqlite"
    fill(whole)
    with Store(whole) as store:
        good = {each: store.get(each) for each in GRID.runs}
        noted = store.sessions()[0]
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
        assert all(each == noted for each in sessions)
    assert noticed > 5  # most of the file is records


def session(**changes):
    """A session of these runs as this version, another one, or another program may note it."""
    about = {
        "sweep": GRID.to_dict(),
        "tolerance": 0.15,
        "command": ["depthmup"],
        "environment": {},
        "started": 1.0,
    }
    return json.dumps({**about, **changes})


FOREIGN = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[1]",
    "a new setting": session(
        sweep={**GRID.to_dict(), "design": {**GRID.design.to_dict(), "sharpness": 2}}
    ),
    "a new scheme": session(
        sweep={**GRID.to_dict(), "design": {**GRID.design.to_dict(), "schemes": ["eta-mup"]}}
    ),
    "a new kind of model": session(sweep={**GRID.to_dict(), "model": {"kind": "quantum"}}),
    "no tolerance": session(tolerance=None),
    "a tolerance that is true": session(tolerance=True),
    "environment": session(environment="laptop"),
    "started": session(started="yesterday"),
    "command": session(command="transfer"),
    "claims": session(claims=[1], scale="laptop", data=[]),
    "target": session(target=[1]),
    "levels": session(more=json.loads("[" * 50 + "]" * 50)),
}


@pytest.mark.parametrize("about", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.filterwarnings("ignore::depthmup.sweep.StoreWarning")
def test_a_session_that_cannot_be_read_stays_behind_and_is_left_out(tmp_path, about):
    other, path = tmp_path / "other.sqlite", tmp_path / "results.sqlite"
    fill(other)
    with sqlite3.connect(other) as db:
        db.execute(
            "INSERT INTO sessions(about, seconds, checksum) VALUES (?, 1.0, ?)",
            (about, checksum(about, 1.0)),
        )
    db.close()
    with Store(other) as store, pytest.warns(StoreWarning, match="left out"):
        assert [noted["sweep"] for noted in store.sessions()] == [GRID.to_dict()]
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


TABLE = (
    "key TEXT PRIMARY KEY, cell TEXT NOT NULL, status TEXT NOT NULL, losses BLOB NOT NULL, "
    "place TEXT NOT NULL"
)
PROGRAMS = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM sessions; END",
    "a trigger of a table's name": (
        "CREATE TRIGGER records AFTER INSERT ON records BEGIN DELETE FROM records; END"
    ),
    "a view": "CREATE VIEW v AS SELECT * FROM records",
    "an index": "CREATE INDEX i ON records(length(losses))",
    "another table": "CREATE TABLE more(x)",
    "a virtual table": "CREATE VIRTUAL TABLE v USING rtree(id, low, high)",
    "a computed column": (
        f"DROP TABLE records; CREATE TABLE records ({TABLE}, checksum BLOB, "
        "much BLOB AS (zeroblob(1000000000))) WITHOUT ROWID"
    ),
    "a computed checksum": (
        f"DROP TABLE records; CREATE TABLE records ({TABLE}, checksum BLOB "
        "AS (zeroblob(1000000000))) WITHOUT ROWID"
    ),
    "a checked column": (
        f"DROP TABLE records; CREATE TABLE records ({TABLE}, checksum BLOB "
        "CHECK (length(hex(zeroblob(1000000000))))) WITHOUT ROWID"
    ),
    "a table less": "DROP TABLE measurements",
    "a view in a table's place": "DROP TABLE sessions; CREATE VIEW sessions AS SELECT 1",
}


@pytest.mark.parametrize("statements", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_in_a_store_are_refused_before_a_row_is_read(path, statements):
    fill(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.executescript(statements)
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="may run code"):
        Store(path)
    assert path.read_bytes() == before


def test_a_store_whose_columns_were_added_later_opens(path):
    """Its tables are the same, and the text of them has other white space."""
    with sqlite3.connect(path) as db:
        for table in ("records", "measurements", "sessions"):
            text = next(t for t in store_module._TABLES if f"TABLE {table} " in t)
            db.execute(text.strip().replace(",\n        checksum BLOB", ""))
            db.execute(f"ALTER TABLE {table} ADD COLUMN checksum BLOB")
        db.execute(f"PRAGMA application_id={store_module.APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={store_module.SCHEMA}")
    db.close()
    fill(path)
    with Store(path) as store:
        assert not store.missing(GRID.runs)


@pytest.mark.filterwarnings("ignore:.*more than 20 sessions")
def test_the_work_of_reading_sessions_is_bounded(path, monkeypatch):
    """Thousands of sweeps, and one of a hundred thousand runs, in a store of some kilobytes."""
    made, make = [], Sweep.run
    monkeypatch.setattr(Sweep, "run", lambda *args, **named: made.append(0) or make(*args, **named))
    monkeypatch.setattr(sessions_module, "SWEEPS", 5)
    monkeypatch.setattr(store_module, "SESSIONS", 20)
    design = {**GRID.design.to_dict(), "lrs": [k / 1000 for k in range(1, 1001)]}
    design["arms"] = {"depth": list(range(2, 102))}
    many = session(sweep={**GRID.to_dict(), "design": design})
    with Store(path) as store:
        for number in range(40):
            store.open_session(json.loads(session(started=float(number))))
        store.open_session(json.loads(many))
        with pytest.warns(StoreWarning, match="more than 20 sessions"):
            started = [noted["started"] for noted in store.sessions()]
        assert started == [*map(float, range(21, 40)), 1.0]  # the last ones, of two sweeps
        assert len(made) <= 2 * sessions_module.RUNS_TRIED
        for seeds in range(3, 13):
            other = {**GRID.design.to_dict(), "seeds": seeds}
            store.open_session(json.loads(session(sweep={**GRID.to_dict(), "design": other})))
        with pytest.warns(StoreWarning, match="5 other sweeps were started since"):
            assert len(store.sessions()) == 5


def test_a_stored_sweep_of_many_runs_is_refused_without_listing_them(path, monkeypatch):
    fill(path)
    made, make = [], Sweep.run
    monkeypatch.setattr(Sweep, "run", lambda *args, **named: made.append(0) or make(*args, **named))
    many = {**GRID.to_dict(), "design": {**GRID.design.to_dict(), "seeds": 10**6}}
    with Store(path) as store:
        store.open_session(json.loads(session(sweep=many)))
        with pytest.raises(StoreError, match="At least 5,999,987 runs are not in"):
            load_report(store, Sweep.from_dict(many))
    assert len(made) < 100


def test_a_stored_sweep_of_too_many_variants_is_left_out(path):
    """Of these numbers a small text asks for a million variants, and more runs."""
    design = {**GRID.design.to_dict(), "seeds": 1, "lrs": [0.1]}
    design |= {"multipliers": list(range(1, 1001)), "weight_decays": list(range(1000))}
    with Store(path) as store:
        store.open_session(json.loads(session(sweep={**GRID.to_dict(), "design": design})))
        with pytest.warns(StoreWarning, match="at most 10,000 variants"):
            assert store.sessions() == []


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
