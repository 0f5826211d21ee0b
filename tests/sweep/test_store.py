"""The store: what is in it stays, what cannot be is refused, nothing is lost."""

import math
import sqlite3
import threading
from array import array
from dataclasses import replace

import pytest
from cells import cell, record

from depthmup.records import Measurement, Record, Status, Task
from depthmup.sweep import Store, StoreError, snapshot
from depthmup.sweep.store_rows import checksum


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


def test_a_record_comes_back_bit_for_bit(path):
    awkward = record(losses=(0.1, 1e-40, 3.4e38, math.pi))
    with Store(path) as store:
        store.add(awkward)
    with Store(path) as store:
        assert store.get(awkward.cell) == awkward
        assert store.get(cell(seed=1)) is None
        assert store.missing([awkward.cell, cell(seed=1)]) == [cell(seed=1)]
        assert len(store) == 1


def test_infinite_losses_of_a_failed_run_survive(path):
    failed = Record(cell=cell(), status=Status.FAILED, losses=array("f", [math.inf]))
    with Store(path) as store:
        store.add(failed)
        assert store.get(failed.cell) == failed


def test_what_is_present_is_never_replaced(path):
    with Store(path) as store:
        store.add(record())
        store.add(record(losses=(9.0,)))
        assert store.get(cell()) == record()


def test_sessions_in_order_with_their_time(path):
    with Store(path) as store:
        first = store.open_session({"name": "<script>"})
        store.open_session({"name": "second"})
        store.update_session(first, 1.5)
        assert store.sessions() == [
            {"name": "<script>", "seconds": 1.5},
            {"name": "second", "seconds": 0.0},
        ]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
def test_another_schema_version(path, version):
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version={version}")
    with pytest.raises(StoreError, match=rf"schema version 4; it is of version {version}"):
        Store(path)


def test_another_programs_database(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreError, match="another program"):
        Store(path)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


@pytest.mark.parametrize("keep", [10, 100, 5000, -4096])
def test_a_truncated_store(path, keep):
    with Store(path) as store:
        for seed in range(50):
            store.add(record(seed))
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path.write_bytes(path.read_bytes()[:keep])
    before = path.read_bytes()
    with pytest.raises(StoreError, match="not a readable store"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database(path):
    path.write_text("loss,lr\n" * 1000)
    with pytest.raises(StoreError, match="not a readable store"):
        Store(path)


def test_another_configuration_under_the_same_key(path):
    with Store(path) as store:
        store.add(record())
    with sqlite3.connect(path) as db:
        db.create_function("checksum", -1, checksum)
        other = replace(cell(), steps=999).to_json()
        db.execute("UPDATE records SET cell = ?", (other,))
        db.execute("UPDATE records SET checksum = checksum(key, cell, status, losses, place)")
    with Store(path) as store, pytest.raises(StoreError, match="another configuration"):
        store.get(cell())


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(StoreError, match="could not be opened"):
        Store(tmp_path / "nowhere" / "results.sqlite")


def test_what_is_read_must_exist(path):
    with pytest.raises(StoreError, match="Expected a store at"), snapshot(path):
        pass
    assert not path.exists()


def fill(store):
    for seed in range(1, 500):
        store.add(record(seed, losses=[1.0] * 300))


def test_a_full_disk_keeps_what_was_finished(path):
    """SQLite reports a full disk and a full page quota by the same error."""
    with Store(path) as store:
        store.add(record(0))
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match=r"full.*Finished runs are stored: free some space"):
            fill(store)
        kept = len(store)
    with Store(path) as store:
        assert len(store) == kept >= 1
        assert store.get(cell()) == record()


def test_two_writers_at_once_lose_nothing(path):
    """Disjoint and shared records, from two connections at the same time."""
    failures = []

    def write(seeds):
        try:
            with Store(path) as store:
                for seed in seeds:
                    store.add(record(seed))
        except Exception as error:
            failures.append(error)

    writers = [
        threading.Thread(target=write, args=(seeds,))
        for seeds in (range(120), range(60, 180), range(179, -1, -1))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not failures
    with Store(path) as store:
        assert len(store) == 180
        assert all(store.get(cell(seed=seed)) == record(seed) for seed in range(180))


def test_a_measurement_keeps_what_is_not_finite(path):
    task = Task(name="cosines", settings={"depth": 8})
    with Store(path) as store:
        store.add(Measurement(task=task, values={"raw": [0.5, math.nan, -math.inf]}))
        raw = store.get(task).values["raw"]
    assert raw[0] == 0.5
    assert math.isnan(raw[1])
    assert raw[2] == -math.inf


def test_tasks_are_found_by_all_their_settings(path):
    task = Task(name="cosines", settings={"depth": 8, "width": 64})
    others = [
        replace(task, settings={"depth": 16, "width": 64}),
        replace(task, name="sines"),
        replace(task, version=2),
        replace(task, numerics=task.numerics - 1),
    ]
    same = replace(task, settings={"width": 64, "depth": 8})
    with Store(path) as store:
        store.add(Measurement(task=task, values={"raw": 1.0}))
        assert store.missing([task, same, *others]) == others
        assert len(store) == 1


def test_a_file_that_another_process_is_making_is_waited_for(tmp_path, monkeypatch):
    """Changing a new file's journal SQLite fails at once where another has it locked."""
    path = tmp_path / "results.sqlite"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(type(path), "exists", lambda self: False)  # it was not there yet
    leaves = threading.Timer(0.3, other.execute, ["COMMIT"])
    leaves.start()
    with Store(path) as store:
        assert len(store) == 0
    leaves.join()
    other.close()
