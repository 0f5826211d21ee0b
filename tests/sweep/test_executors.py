"""Executors: what fails, hangs or dies costs no other job anything, and nothing is done twice."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from cells import cell
from misbehaviour import Heard, Several, Slow, Unpicklable, lines, task
from waiting import until

from depthmup.model import time_limit
from depthmup.records import Record
from depthmup.sweep import InProcess, Processes, Store, WorkerError, run, training
from depthmup.sweep.executors.backlog import Backlog


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def done(log):
    return [int(line.split()[1]) for line in lines(log)]


ONE = Processes(workers=1)


@pytest.mark.parametrize("executor", [InProcess(), ONE], ids=["in process", "processes"])
def test_one_error_costs_its_company_nothing_and_nothing_is_done_twice(log, executor):
    names = ["add_one", "add_one", "fail", "add_one"]
    job = Several(tasks=tuple(task(name, log, n) for n, name in enumerate(names)))
    heard = Heard()
    executor([job], heard)
    assert heard.numbers == [0, 1, 3]
    assert done(log) == [0, 1, 2, 2, 3]
    [(name, why)] = heard.failures
    assert name == "doing fail 2"
    assert re.search(r"(?s)Traceback.*misbehaviour.py.*ZeroDivisionError: number 2 has no", why)


@pytest.mark.parametrize("executor", [InProcess(), ONE], ids=["in process", "processes"])
def test_code_that_exits_ends_its_own_job_alone(log, executor):
    heard = Heard()
    names = ["leave", "add_one"]
    executor([Several(tasks=tuple(task(name, log, n) for n, name in enumerate(names)))], heard)
    assert heard.numbers == [1]
    [(_, why)] = heard.failures
    assert "number 0 leaves" in why


def test_a_worker_that_dies_is_replaced_and_only_what_is_left_is_done_again(log):
    names = ["add_one", "die_once", "add_one", "add_one"]
    job = Several(tasks=tuple(task(name, log, n) for n, name in enumerate(names)))
    heard = Heard()
    ONE([job], heard)
    assert not heard.failures
    assert heard.numbers == [0, 1, 2, 3]
    assert done(log) == [0, 1, 1, 2, 3]


def test_what_keeps_killing_its_worker_is_reported_after_three(log):
    job = Several(tasks=(task("add_one", log, 0), task("die", log, 1), task("add_one", log, 2)))
    heard = Heard()
    ONE([job], heard)
    assert heard.numbers == [0, 2]
    assert done(log).count(1) == 3
    [(name, why)] = heard.failures
    assert name == "doing die 1"
    assert re.search(r"died 3 times.*exit code 9.*\n.*out of memory: use fewer --workers", why)


@pytest.mark.parametrize("seconds", [0.0, 600.0])
def test_what_closes_the_workers_files_is_told_so(log, seconds):
    closing = Several(tasks=(task("close", log, 0, seconds=seconds),))
    heard = Heard()
    ONE([closing, Several(tasks=(task("add_one", log, 1),))], heard)
    assert heard.numbers == [1]
    assert done(log) == [0, 1]
    [(name, why)] = heard.failures
    assert name == "doing close 0"
    assert "closed the connection of its worker" in why


def test_memory_that_is_not_there_is_tried_three_times_then_reported(log):
    heard = Heard()
    ONE([Several(tasks=(task("exhaust", log, 0), task("add_one", log, 1)))], heard)
    assert heard.numbers == [1]
    assert done(log) == [0, 0, 1, 0, 0]
    [(name, why)] = heard.failures
    assert name == "doing exhaust 0"
    assert re.search(r"(?s)not fit into memory 3 times.*MemoryError.*fewer --workers", why)


def test_an_error_that_takes_the_gpu_away_costs_its_own_job_alone(log):
    jobs = [
        Several(tasks=(task(name, log, n),)) for n, name in enumerate(["lose", *["on_gpu"] * 3])
    ]
    heard = Heard()
    ONE(jobs, heard)
    assert heard.numbers == [1, 2, 3]
    [(name, why)] = heard.failures
    assert name == "doing lose 0"
    assert "device-side assert" in why
    assert len({line.split()[0] for line in lines(log)}) == 2  # processes


def test_this_process_stops_when_its_gpu_is_lost(log, monkeypatch):
    monkeypatch.setattr("misbehaviour.LOST", [])
    jobs = [Several(tasks=(task(name, log, n),)) for n, name in enumerate(["lose", "on_gpu"])]
    with pytest.raises(WorkerError, match=r"(?s)doing lose 0 .*--executor processes.*assert"):
        InProcess()(jobs, Heard())
    assert done(log) == [0]


@pytest.mark.parametrize("executor", [InProcess(), ONE], ids=["in process", "processes"])
def test_a_lack_of_memory_that_passes_is_tried_again(log, executor):
    heard = Heard()
    executor([Several(tasks=(task("lack", log, 0, passes=2),))], heard)
    assert (heard.numbers, heard.failures) == ([0], [])


def test_a_stack_that_does_not_fit_is_halved(log):
    """And halved again, until it fits: here, where only a single result does."""
    job, seen = Several(tasks=tuple(task("add_one", log, n) for n in range(5))), []
    backlog = Backlog([job], Heard())
    while backlog:
        job = backlog.take()
        seen.append(len(job.keys))
        if len(job.keys) > 1:
            backlog.exhausted(job, "CUDA out of memory")
    assert seen == [5, 3, 2, 2, 1, 1, 1, 1, 1]


def test_a_worker_sees_one_gpu(log):
    """Two on each of two, bound before PyTorch is imported."""
    jobs = [Several(tasks=(task("on_gpu", log, n),)) for n in range(12)]
    heard = Heard()
    before = dict(os.environ)
    Processes(workers=4, gpus=("5", "7"))(jobs, heard)
    assert os.environ == before
    gpu_of = {r.task.settings["number"]: r.values["gpu"] for r in heard.results}
    pairs = {(process, gpu_of[int(number)]) for process, number in map(str.split, lines(log))}
    assert len(pairs) == len({process for process, _ in pairs})
    assert set(gpu_of.values()) == {5, 7}


def test_a_worker_loads_pytorch_when_a_job_computes_and_computes_as_the_script_chose(log):
    precision, names = torch.get_float32_matmul_precision(), ["loaded", "arithmetic", "loaded"]
    heard = Heard()
    try:
        torch.set_float32_matmul_precision("medium")
        torch.use_deterministic_algorithms(True)
        torch.set_default_dtype(torch.float64)
        ONE([Several(tasks=(task(name, log, n),)) for n, name in enumerate(names)], heard)
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    before, found, after = heard.results
    assert (before.values, after.values) == ({"torch": False}, {"torch": True})
    assert found.values == {"dtype": "torch.float64", "products": "medium", "deterministic": True}


def test_what_hangs_is_stopped_and_reported(log):
    job = Several(tasks=(task("add_one", log, 0), task("hang", log, 1), task("add_one", log, 2)))
    heard = Heard()
    start = time.monotonic()
    Processes(workers=1, trial_seconds=2.0)([job], heard)
    assert heard.numbers == [0, 2]
    [(name, why)] = heard.failures
    assert name == "doing hang 1"
    assert "stopped after 2 s, its time limit" in why
    # The job of three had 6 s, the one that hangs 2 s; the rest is the start of processes.
    assert time.monotonic() - start > 8.0
    assert not [line for line in lines(log) if Path(f"/proc/{line.split()[0]}").exists()]


def test_the_start_of_a_worker_is_not_part_of_the_time_limit(log, tmp_path, monkeypatch):
    """Python alone takes longer than this limit to start, on a machine of any speed."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(3)")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)
    heard = Heard()
    Processes(workers=1, trial_seconds=2.0)([Several(tasks=(task("add_one", log, 0),))], heard)
    assert heard.numbers == [0]


def test_loading_is_not_part_of_the_time_limit_and_has_its_own(log, monkeypatch):
    heard = Heard()
    job = Slow(tasks=(task("add_one", log, 0),), seconds=3.0)
    Processes(workers=1, trial_seconds=2.0)([job], heard)
    assert heard.numbers == [0]
    monkeypatch.setattr(time_limit, "LOADING", 1.0)
    Processes(workers=1, trial_seconds=1.0)([job], heard)
    [(_, why)] = heard.failures
    assert why.startswith("Loading your code was stopped after 1 s, the time limit of a run and a")


def test_a_job_that_ends_without_its_results_has_failed(log):
    class Lazy(Several):
        def __call__(self, tell):
            yield from ()

    heard = Heard()
    InProcess()([Lazy(tasks=(task("add_one", log, 0),))], heard)
    assert [why for _, why in heard.failures] == ["It ended without a result."]


def test_a_result_that_cannot_be_pickled_has_failed_and_its_worker_lives(log):
    heard = Heard()
    jobs = [
        Unpicklable(tasks=(task("add_one", log, 0),)),
        Several(tasks=(task("add_one", log, 1),)),
    ]
    Processes(workers=1)(jobs, heard)
    [(_, why)] = heard.failures
    assert "pickle" in why
    assert "died" not in why
    assert heard.numbers == [1]


def test_a_result_that_comes_again_is_not_passed_on(log):
    """As when a worker is lost after it delivered: the store would not mind, a count would."""
    heard = Heard()
    job = Several(tasks=(task("add_one", log, 0), task("add_one", log, 1)))
    backlog = Backlog([job], heard)
    first = backlog.take()
    results = list(job(lambda fraction: None))
    backlog.result(results[0])
    backlog.died(first, "unplugged")
    assert backlog.take() == Several(tasks=job.tasks[1:])
    for result in results:
        backlog.result(result)
    assert heard.results == results


@pytest.mark.parametrize("executor", [InProcess(), ONE], ids=["in process", "processes"])
def test_progress_never_goes_back_though_jobs_are_tried_again(tmp_path, log, executor):
    names = ["add_one", "fail", "add_one", "add_one"]
    tasks = [task(name, log, n) for n, name in enumerate(names)]
    seen = []
    with (
        Store(tmp_path / "results.sqlite") as store,
        pytest.raises(WorkerError, match="no inverse"),
    ):
        run(
            tasks,
            store=store,
            executor=executor,
            jobs=lambda missing: [Several(tasks=tuple(missing))],
            tell=seen.append,
        )
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert max(progress.done for progress in seen) == 3


def test_all_failures_are_named(tmp_path, log):
    tasks = [task("fail", log, n) for n in range(13)]
    jobs = [Several(tasks=(each,)) for each in tasks]
    with (
        Store(tmp_path / "results.sqlite") as store,
        pytest.raises(
            WorkerError, match=r"(?s)fail 0 failed \(12 other jobs.*Also failed"
        ) as found,
    ):
        run(tasks, store=store, executor=InProcess(), jobs=lambda missing: jobs)
    text = str(found.value)
    assert text.count("Also failed: doing fail") == 10
    assert "Also failed: doing fail 1: ZeroDivisionError: number 1 has no inverse" in text
    assert text.endswith("And 2 more.")


def test_cells_of_one_stack_are_the_same_alone():
    """What a job that was taken apart relies on."""
    job = training([cell(seed=seed) for seed in range(4)])[0]
    together: dict[str, Record] = {r.cell.key: r for r in job(lambda fraction: None)}
    assert set(together) == set(job.keys)
    for key in job.keys:
        alone = job.only((key,))
        assert alone.keys == (key,)
        assert [*alone(lambda fraction: None)] == [together[key]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_the_listener_raises_comes_through_and_leaves_no_worker(log, error):
    class Stopping(Heard):
        def on_result(self, result):
            raise error("enough")

    jobs = [Several(tasks=(task("add_one", log, 0),)), Several(tasks=(task("hang", log, 1),))]
    with pytest.raises(error, match="enough"):
        Processes(workers=2)(jobs, Stopping())
    assert not [line for line in lines(log) if Path(f"/proc/{line.split()[0]}").exists()]


ORPHANS = """
import sys
from unittest.mock import Mock
from depthmup.cli.interrupts import interruptible
from misbehaviour import Heard, Several, task
from depthmup.sweep import Processes
if __name__ == "__main__":
    jobs = [Several(tasks=(task("hang", sys.argv[1], number),)) for number in range(2)]
    with interruptible():
        Processes(workers=2)(jobs, Mock())
"""


@pytest.fixture(params=[ORPHANS])
def hanging(request, tmp_path, log):
    """A driver of two workers that hang, and where the system shows these."""
    script = tmp_path / "sweep.py"
    script.write_text(request.param)
    tests = Path(__file__).parents[1]
    sweep = subprocess.Popen(
        [sys.executable, script, log],
        env={**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    assert until(lambda: len(lines(log)) == 2)
    workers = [Path(f"/proc/{line.split()[0]}") for line in lines(log)]
    yield sweep, workers
    sweep.kill()
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(int(worker.name), signal.SIGKILL)


@pytest.mark.parametrize("stopped", [False, True])
def test_workers_end_with_their_parent(hanging, stopped):
    sweep, workers = hanging
    if stopped:
        os.kill(int(workers[0].name), signal.SIGSTOP)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    assert until(lambda: not any(worker.exists() for worker in workers))


CUT_SHORT = ORPHANS.replace(
    "        Processes(",
    "        from depthmup.sweep.executors import processes\n"
    "        del processes._stop\n"
    "        Processes(",
)
assert CUT_SHORT != ORPHANS


@pytest.mark.parametrize("hanging", [CUT_SHORT], indirect=True)
def test_a_signal_before_the_workers_are_stopped_ends_the_driver(hanging):
    sweep, workers = hanging
    sweep.send_signal(signal.SIGTERM)
    sweep.wait(timeout=30)
    assert until(lambda: not any(worker.exists() for worker in workers))


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.01, 0.1])
def test_a_second_signal_ends_the_driver_too(hanging, seconds):
    sweep, workers = hanging
    for _ in range(3):
        sweep.send_signal(signal.SIGTERM)
        time.sleep(seconds)
    sweep.wait(timeout=120)
    assert until(lambda: not any(worker.exists() for worker in workers))
