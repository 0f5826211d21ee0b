"""Shards of a sweep and joining their stores: nothing is lost, doubled, or mixed up."""

import json
import shutil
import sqlite3
from array import array
from dataclasses import replace

import pytest
from cells import cell
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import residual

from depthmup.cli import main
from depthmup.records import Measurement, Record, Status, Task
from depthmup.sweep import (
    InProcess,
    Shard,
    Store,
    StoreError,
    StoreWarning,
    merge,
    run,
    shards,
    share,
    snapshot,
    training,
)

SETTINGS = {"depths": (2, 4, 8), "base_depth": 2, "log2_lrs": (-4.0, -3.0), "seeds": 3}
SETTINGS |= {"steps": 4, "window": 2}
GRID = residual(**SETTINGS)
OPTIONS = (
    "transfer --preset tiny --depths 2 4 --base 16x2 --steps 8 --window 4 --seeds 2 "
    "--lrs 0.00390625 0.0078125 0.015625 --schemes depth-mup --workers 1 --out"
)


def record(seed, losses=(2.0, 1.0)):
    return Record(cell=cell(seed=seed), status=Status.FINISHED, losses=array("f", losses))


@pytest.fixture
def stores(tmp_path):
    """Makes stores of some results each."""

    def make(**contents):
        for name, results in contents.items():
            with Store(tmp_path / f"{name}.sqlite") as store:
                for result in results:
                    store.add(result)
        return [tmp_path / f"{name}.sqlite" for name in contents]

    return make


@given(count=st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_shares_are_disjoint_and_together_everything(count):
    shares = [share(GRID.runs, Shard(index=i, count=count)) for i in range(1, count + 1)]
    keys = [each.key for part in shares for each in part]
    assert sorted(keys) == sorted(each.key for each in GRID.runs)


def test_shares_are_even_also_in_what_a_sweep_is_missing():
    """To the work of the longest run; and of every size each share has as many, but for one."""
    grid = residual(**{**SETTINGS, "depths": (2, 4, 8, 16, 32), "seeds": 5})
    shards = [Shard(index=i, count=7) for i in range(1, 8)]
    shares = [share(grid.runs, shard) for shard in shards]
    work = [sum(job.work for job in training(part)) for part in shares]
    longest = max(job.work for job in training(grid.runs, members=1))
    assert max(work) - min(work) <= longest
    for depth in (8, 16, 32):
        counts = [sum(each.network.depth == depth for each in part) for part in shares]
        assert max(counts) - min(counts) <= 1


def test_a_share_depends_on_nothing_but_what_is_asked_for():
    shard = Shard(index=2, count=3)
    assert share(GRID.runs, shard) == share(GRID.runs, shard)
    assert share(GRID.runs, shard) != share(GRID.runs, Shard(index=3, count=3))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/", "/4", "a/b", "1/0", "-1/4", "1.0/4"])
def test_what_is_no_shard(text):
    with pytest.raises(ValueError, match=r"i from 1 to k, such as 3/8; got .*--array=1-8"):
        Shard.parse(text)


def test_shards_together_are_the_sweep_to_the_bit(tmp_path):
    parts = []
    for index in (1, 2, 3):
        shard = Shard(index=index, count=3)
        parts.append(tmp_path / shard.store_name)
        with Store(parts[-1]) as store:
            run(share(GRID.runs, shard), store=store, executor=InProcess())
    with Store(tmp_path / "whole.sqlite") as whole, Store(tmp_path / "joint.sqlite") as joint:
        run(GRID.runs, store=whole, executor=InProcess())
        assert merge(parts, into=joint) == len(GRID.runs)
        assert [joint.get(c) for c in GRID.runs] == [whole.get(c) for c in GRID.runs]
        assert merge(parts, into=joint) == 0
        assert len(joint.sessions()) == 3


def test_what_two_stores_share_is_kept_once_and_measurements_come_along(stores, tmp_path):
    task = Task(name="cosines", settings={"depth": 8})
    measured = Measurement(task=task, values={"raw": 1.5})
    paths = stores(a=[record(0), record(1), measured], b=[record(1), record(2), measured])
    with Store(tmp_path / "joint.sqlite") as joint:
        assert merge(paths, into=joint) == 4
        assert [joint.get(cell(seed=seed)) for seed in range(3)] == [record(s) for s in range(3)]
        assert joint.get(task) == measured


@pytest.mark.parametrize("other", [(2.0, 1.0 + 2**-23), (2.0,)], ids=["last bit", "length"])
def test_stores_that_conflict_are_refused_and_nothing_changes(stores, tmp_path, other):
    paths = stores(a=[record(0), record(1)], b=[record(2), record(1, losses=other)])
    with Store(tmp_path / "joint.sqlite") as joint:
        joint.add(record(5))
        with pytest.raises(StoreError, match=r"b.sqlite conflicts .*\"seed\":1.* Nothing was ch"):
            merge(paths, into=joint)
        assert len(joint) == 1
        assert not joint.sessions()


def on_gpu(*records):
    return [replace(each, place="Some Accelerator, driver 1") for each in records]


def diverged(seed, losses):
    return replace(record(seed, losses), status=Status.DIVERGED)


def test_results_of_a_gpu_are_joined_if_they_differ_by_rounding(stores, tmp_path):
    """Which a diverging run amplifies: it may end some steps sooner or later."""
    ours = [record(1, (2.0, 1.0)), diverged(2, (2.0, 30.0))]
    theirs = [record(1, (2.0001, 1.02)), diverged(2, (2.0, 35.0, 60.0)), record(3)]
    paths = stores(a=ours, b=on_gpu(*theirs))
    with Store(tmp_path / "joint.sqlite") as joint:
        with pytest.warns(
            StoreWarning, match=r"^2 runs .* 2e-02 of a loss.* on Some Accelerator, driver 1"
        ):
            assert merge(paths, into=joint) == 3
        assert [joint.get(cell(seed=1)), joint.get(cell(seed=2))] == ours


@pytest.mark.filterwarnings("error")
def test_the_same_bits_of_another_device_are_no_difference(stores, tmp_path):
    paths = stores(a=[record(1)], b=on_gpu(record(1), record(2)))
    with Store(tmp_path / "joint.sqlite") as joint:
        assert merge(paths, into=joint) == 2
        assert joint.get(cell(seed=1)).place == ""
        assert joint.get(cell(seed=2)).place == "Some Accelerator, driver 1"


@pytest.mark.parametrize(
    "other",
    [record(1, (2.1, 1.0)), record(1, (2.0, 1.5)), record(1, (2.0,)), diverged(1, (2.0, 1.0))],
    ids=["another start", "another end", "length", "status"],
)
def test_results_of_a_gpu_that_differ_by_more_are_refused(stores, tmp_path, other):
    paths = stores(a=on_gpu(record(1)), b=[other])
    with Store(tmp_path / "joint.sqlite") as joint, pytest.raises(StoreError, match="conflicts"):
        merge(paths, into=joint)


def test_measurements_that_conflict_are_refused(stores, tmp_path):
    task = Task(name="cosines", settings={"depth": 8})
    paths = stores(
        a=[Measurement(task=task, values={"raw": 1.0})],
        b=[Measurement(task=task, values={"raw": 2.0})],
    )
    with (
        Store(tmp_path / "joint.sqlite") as joint,
        pytest.raises(StoreError, match=r"b.sqlite conflicts .*cosines"),
    ):
        merge(paths, into=joint)


def spoil(path, how):
    if how == "missing":
        path.unlink()
    elif how == "another schema":
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version=99")
    else:
        path.write_text("no database" * 1000)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "Expected a store at .*b.sqlite; there is none"),
        ("another schema", "the store .*/b.sqlite to be of schema version 4; it is of version 99"),
        ("damaged", "b.sqlite is not a readable store"),
    ],
)
def test_what_cannot_be_joined(stores, tmp_path, how, message):
    paths = stores(a=[record(0)], b=[record(1)])
    spoil(paths[1], how)
    with Store(tmp_path / "joint.sqlite") as joint:
        with pytest.raises(StoreError, match=message):
            merge(paths, into=joint)
        assert len(joint) == 0


def test_stores_are_left_as_they_are(stores, tmp_path):
    paths = stores(a=[record(0)])
    before = paths[0].read_bytes()
    with Store(tmp_path / "joint.sqlite") as joint:
        merge(paths, into=joint)
    assert paths[0].read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sqlite", "joint.sqlite"]


def test_a_store_that_is_open_elsewhere_is_read_with_what_it_was_given_last(stores, tmp_path):
    """Its last results are still in the log beside it."""
    with Store(tmp_path / "a.sqlite") as open_store, Store(tmp_path / "joint.sqlite") as joint:
        open_store.add(record(0))
        assert merge([tmp_path / "a.sqlite"], into=joint) == 1


def test_time_of_sessions_is_counted_once_and_they_stand_in_order(tmp_path):
    paths = [tmp_path / "a.sqlite", tmp_path / "b.sqlite"]
    for path, started in zip(paths, (20, 10), strict=True):
        with Store(path) as store:
            store.update_session(store.open_session({"started": started}), 5.0)
    with Store(tmp_path / "joint.sqlite") as joint:
        merge(paths, into=joint)
        with Store(paths[0]) as store:
            store.update_session(1, 7.0)
        merge(paths, into=joint)
        found = [(session["started"], session["seconds"]) for session in joint.sessions()]
    assert found == [(10, 5.0), (20, 7.0)]


def test_sessions_that_are_joined_stand_after_those_that_are_there(tmp_path):
    """The page is that of what was joined last, whatever the clock of its machine showed."""
    with Store(tmp_path / "main.sqlite") as main_store:
        main_store.open_session({"started": 200.0})
        with Store(tmp_path / "shard.sqlite") as shard:
            shard.open_session({"started": 300.0})
            shard.open_session({"started": 100.0})
        merge([tmp_path / "shard.sqlite"], into=main_store)
        started = [session["started"] for session in main_store.sessions()]
    assert started == [200.0, 300.0, 100.0]


@pytest.mark.parametrize("torn", [1, 99])
def test_a_store_that_was_copied_while_it_was_written(stores, tmp_path, monkeypatch, torn):
    """A file's copy and its log's do not fit: tried again, and if that does not help, told."""
    (path,) = stores(a=[record(0)])
    copies, copy = [], shutil.copyfile

    def tear(source, target):
        copy(source, target)
        copies.append(source)
        if len(copies) <= torn:
            target.write_bytes(target.read_bytes()[:5000])

    monkeypatch.setattr(shards.shutil, "copyfile", tear)
    with Store(tmp_path / "joint.sqlite") as joint:
        if torn == 1:
            assert merge([path], into=joint) == 1
        else:
            with pytest.raises(StoreError, match="is being written right now, try again"):
                merge([path], into=joint)


@pytest.mark.parametrize("times", [1, 99])
def test_a_store_whose_log_is_moved_while_it_is_copied(tmp_path, monkeypatch, times):
    """The copy of the file is the older one then, and rows that the log held are in neither."""
    path, copy, moved = tmp_path / "a.sqlite", shutil.copyfile, []
    with Store(path) as writer:
        writer.add(record(0))

        def move(source, target):
            copy(source, target)
            if source == path and len(moved) < times:
                moved.append(0)
                writer.add(record(len(moved)))
                writer._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        monkeypatch.setattr(shards.shutil, "copyfile", move)
        if times == 1:
            with snapshot(path) as store:
                assert len(store) == 2
        else:
            with pytest.raises(StoreError, match="changed while it was copied"), snapshot(path):
                pass


def summary(folder):
    return json.loads((folder / "summary.json").read_text())["schemes"]


def test_the_commands(tmp_path, capsys):
    """Shards, one of them late; the page is the one of the undivided sweep."""
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert main([*OPTIONS.split(), str(whole)]) == 0
    assert main([*OPTIONS.split(), str(out), "--shard", "1/2"]) == 0
    assert not (out / "report.html").exists()
    capsys.readouterr()
    assert main(["report", str(out)]) == 2
    assert f"Join them: `depthmup merge {out}`" in capsys.readouterr().err
    assert main(["merge", str(out)]) == 2
    assert "6 of 12 runs are not in" in capsys.readouterr().err
    assert main([*OPTIONS.split(), str(out), "--shard", "2/2"]) == 0
    assert main(["merge", str(out)]) == 0
    assert "12 results in" in capsys.readouterr().err
    assert summary(out) == summary(whole)
    assert (out / "report.html").exists()
    # What was joined is not trained again, also by shards of a wider sweep.
    wider = [*OPTIONS.replace("--seeds 2", "--seeds 3").split(), str(out)]
    assert main([*wider, "--shard", "1/1"]) == 0
    assert "Shard 1/1 is done: 6 runs" in capsys.readouterr().err


OWN = """
def train(trial):
    slow = abs(trial.lr * trial.depth - 0.05)
    return [2.0 / (1 + step) + slow + 1e-3 * trial.seed for step in range(trial.steps)]
"""


def test_the_commands_for_an_own_model(tmp_path, capsys):
    file, out = tmp_path / "own.py", tmp_path / "out"
    file.write_text(OWN)
    options = (
        f"transfer --train {file}:train --base 8x2 --depths 2 4 "
        "--lrs 0.0078125 0.015625 0.03125 0.0625 0.125 --steps 10 --seeds 2 --workers 1 --out"
    )
    sweep = options.split()
    assert main([*sweep, str(tmp_path / "whole")]) == 0
    for index in (1, 2):
        assert main([*sweep, str(out), "--shard", f"{index}/2"]) == 0
        assert f"Shard {index}/2 is done: 10 runs" in capsys.readouterr().err
    assert main(["merge", str(out)]) == 0
    assert summary(out) == summary(tmp_path / "whole")


def test_the_command_elsewhere_and_bad_input(tmp_path, capsys, stores):
    [path] = stores(a=[record(0)])
    assert main(["merge", str(path), "--out", str(tmp_path / "new")]) == 2  # no session: no page
    with Store(tmp_path / "new" / "results.sqlite") as store:
        assert store.get(cell(seed=0)) == record(0)
    (tmp_path / "empty").mkdir()
    assert main(["merge", str(tmp_path / "empty")]) == 2
    assert "Expected stores to join" in capsys.readouterr().err
    assert main(["merge", str(tmp_path / "typo")]) == 2
    assert "there is no file or folder" in capsys.readouterr().err
    assert not (tmp_path / "results.sqlite").exists()
    assert main(["merge"]) == 2
    assert "got none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--trial-seconds", "-1"], "trial-seconds to be positive, or 0"),
        (["--trial-seconds", "5", "--executor", "in-process"], "cannot be stopped"),
        (["--gpus-per-trial", "1"], "--gpus-per-trial is for --executor ray"),
        (["--address", "head:6379"], "--address is for --executor ray"),
        (["--executor", "ray", "--gpus-per-trial", "-1"], "gpus-per-trial to be 0 or more"),
        (["--shard", "3/2"], "i from 1 to k"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, capsys, options, message):
    assert main([*OPTIONS.split(), str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_executor_is_refused_with_the_names(capsys):
    with pytest.raises(SystemExit):
        main(["transfer", "--executor", "spark"])
    text = capsys.readouterr().err
    assert all(name in text for name in ("spark", "in-process", "processes", "ray"))
