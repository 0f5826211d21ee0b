"""Sweeps: resumed, interrupted, killed, shared, broken; the result is always the same."""

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from sweeps import residual
from waiting import until

from depthmup.records import Cell, Status, Task
from depthmup.rules import DEPTH_MUP, ODE
from depthmup.sweep import InProcess, Processes, Store, WorkerError, run, studies, training
from reproduction.runs import Measure

SETTINGS = {
    "schemes": (DEPTH_MUP, ODE),
    "depths": (2, 4),
    "base_depth": 2,
    "log2_lrs": (-4.0, -3.0, -2.0),
    "seeds": 2,
    "width": 16,
    "steps": 20,
    "window": 10,
}
GRID = residual(**SETTINGS)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Every record of the grid, trained in one go."""
    with Store(tmp_path_factory.mktemp("whole") / "results.sqlite") as store:
        run(GRID.runs, store=store, executor=InProcess())
        return records_of(store)


def records_of(store, grid=GRID):
    return {cell: store.get(cell) for cell in grid.runs}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


def test_jobs_hold_every_cell_once_and_the_longest_come_first():
    found = training(GRID.runs, members=5)
    assert sorted(c.key for job in found for c in job.runs) == sorted(c.key for c in GRID.runs)
    assert all(len({c.shape for c in job.runs}) == 1 and len(job.runs) <= 5 for job in found)
    loads = [job.work for job in found]
    assert loads == sorted(loads, reverse=True)


def test_worker_processes_give_the_same_bits(path, uninterrupted):
    with Store(path) as store:
        run(GRID.runs, store=store, executor=Processes(workers=1))
        assert records_of(store) == uninterrupted


def test_a_run_is_described_in_text_four_times(path, monkeypatch):
    """Looked for, counted, delivered and stored: it is a third of what short runs cost."""
    texts, text = [], Cell.to_json
    monkeypatch.setattr(Cell, "to_json", lambda cell: texts.append(cell) or text(cell))
    with Store(path) as store:
        run(GRID.runs, store=store, executor=InProcess())
    assert len(texts) == 4 * len(GRID.runs)


def test_what_is_stored_is_not_trained_again(path):
    @dataclass
    class Counting:
        trained: list = field(default_factory=list)

        def __call__(self, todo, listener):
            self.trained += [cell for job in todo for cell in job.runs]
            InProcess()(todo, listener)

    first, second = Counting(), Counting()
    with Store(path) as store:
        run(GRID.runs[:7], store=store, executor=first)
        run(GRID.runs, store=store, executor=second)
    assert len(first.trained) == 7
    assert set(first.trained) | set(second.trained) == set(GRID.runs)
    assert not set(first.trained) & set(second.trained)


def test_any_interruption_resumes_to_the_same_records(path, uninterrupted):
    """An exception from the listener, as Ctrl-C makes one, after every number of records."""
    for stop_after in (1, 3, 8):
        with Store(path) as store:
            before = len(GRID.runs) - len(store.missing(GRID.runs))

            def tell(progress, limit=before + stop_after):
                if progress.done >= limit:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                run(GRID.runs, store=store, executor=InProcess(), tell=tell)
            assert len(store) > before
    with Store(path) as store:
        run(GRID.runs, store=store, executor=InProcess())
        assert records_of(store) == uninterrupted


def test_progress_never_goes_back_and_ends_at_one(path):
    seen = []
    with Store(path) as store:
        run(GRID.runs, store=store, executor=InProcess(), tell=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    assert seen[-1].done == seen[-1].cells == len(GRID.runs)
    assert seen[-1].remaining == pytest.approx(0.0)


def test_a_study_of_an_unfinished_sweep_says_what_is_missing(path):
    with Store(path) as store:
        run(GRID.runs[:5], store=store, executor=InProcess())
        with pytest.raises(RuntimeError, match=f"{len(GRID.runs) - 5} of {len(GRID.runs)} runs"):
            studies(GRID, store.records(GRID.runs), config={}, environment={})


def test_a_study_has_every_window_and_the_numbers_of_the_records(path, uninterrupted):
    with Store(path) as store:
        run(GRID.runs, store=store, executor=InProcess())
        (found,) = studies(GRID, store.records(GRID.runs), config={}, environment={})
    assert [(w.start, w.stop) for w in found.windows] == [(0, 10), (10, 20)]
    curve = found.headline.curves[1]
    assert (curve.scheme, curve.size) == ("depth-mup", {"width": 16, "depth": 4})
    variant = GRID.design.variant("depth-mup")
    cells = list(GRID.curve(variant, {"width": 16, "depth": 4}, -7.0))
    losses = [uninterrupted[cell].mean_loss(10, 20) for cell in cells]
    assert curve.points[1].loss.value == pytest.approx((losses[0] * losses[1]) ** 0.5)
    assert curve.points[1].diverged == 0


def test_diverged_runs_are_data(path):
    wild = residual(**{**SETTINGS, "log2_lrs": (-3.0, 20.0), "schemes": (DEPTH_MUP,)})
    with Store(path) as store:
        run(wild.runs, store=store, executor=InProcess())
        statuses = {cell.optimizer.lr > 1: store.get(cell).status for cell in wild.runs}
        (found,) = studies(wild, store.records(wild.runs), config={}, environment={})
    assert statuses == {False: Status.FINISHED, True: Status.DIVERGED}
    assert found.headline.curves[0].points[1].diverged == 2


def test_an_error_in_a_worker_comes_with_its_traceback(path):
    impossible = replace(
        GRID.runs[0], network=replace(GRID.runs[0].network, activation="no such thing")
    )
    with Store(path) as store, pytest.raises(WorkerError, match=r"(?s)Traceback.*no such thing"):
        run([impossible], store=store, executor=Processes(workers=1))


@pytest.mark.parametrize("executor", [InProcess(), Processes(workers=1)])
def test_a_job_that_fails_stops_no_other_and_is_asked_for_again(path, executor):
    """Measurements and training in one sweep."""
    texts = ('{"root": 2}', "no JSON", '{"root": 3}')
    tasks = [Task(name="parsing", settings={"s": text}) for text in texts]

    def jobs(missing):
        ours = [Measure(task=t, function=json.loads) for t in missing if isinstance(t, Task)]
        return [*ours, *training(c for c in missing if not isinstance(c, Task))]

    asked = [*tasks, *GRID.runs[:3]]
    with Store(path) as store:
        with pytest.raises(WorkerError, match=r"(?s)parsing.*no JSON.*Traceback.*Expecting value"):
            run(asked, store=store, executor=executor, jobs=jobs)
        assert store.missing(asked) == [tasks[1]]
        assert [store.get(t).values["root"] for t in (tasks[0], tasks[2])] == [2, 3]


SCRIPT = """
import json, sys
from depthmup.sweep import Processes, Store, run
from depthmup.sweep import Sweep
if __name__ == "__main__":
    grid = Sweep.from_dict(json.loads(sys.argv[2]))
    with Store(sys.argv[1]) as store:
        run(grid.runs, store=store, executor=Processes(workers=int(sys.argv[3])))
"""


@pytest.fixture
def start(tmp_path, path):
    """Starts a sweep of a grid in a process of its own."""
    file = tmp_path / "sweep.py"
    file.write_text(SCRIPT)

    def start(grid, workers=2):
        words = [path, json.dumps(grid.to_dict()), str(workers)]
        return subprocess.Popen([sys.executable, file, *words])

    return start


def test_two_sweeps_on_one_store_both_finish(path, start, uninterrupted):
    sweeps = [start(GRID, workers=1), start(GRID, workers=1)]
    assert [sweep.wait(timeout=600) for sweep in sweeps] == [0, 0]
    with Store(path) as store:
        assert records_of(store) == uninterrupted
        assert len(store) == len(GRID.runs)


def children(pid):
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()] if listing.exists() else []


@pytest.mark.long(slice=False)
def test_killed_ten_times_at_random_moments_then_resumed(path, start, tmp_path):
    """kill -9 leaves no orphan at work, no damaged store, and the same records in the end."""
    grid = residual(**{**SETTINGS, "depths": (2, 4, 8), "seeds": 16, "width": 32, "steps": 100})
    with Store(tmp_path / "whole.sqlite") as store:
        run(grid.runs, store=store, executor=InProcess())
        whole = records_of(store, grid)

    rng, workers, sizes = random.Random(0), [], []
    with Store(path) as store:
        for _ in range(10):
            sweep, before = start(grid), len(store)
            while sweep.poll() is None and len(store) == before:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.2))
            workers += children(sweep.pid)
            sweep.kill()
            sweep.wait()
            sizes.append(len(store))
    assert sizes[0] > 0
    assert len(set(sizes)) >= 5, "most kills must have come in the middle of the work"
    with Store(path) as store:
        run(grid.runs, store=store, executor=InProcess())
        assert records_of(store, grid) == whole
    # A worker that was still importing notices the broken pipe when it first reads from it.
    assert until(lambda: not any(Path(f"/proc/{each}").exists() for each in workers))
