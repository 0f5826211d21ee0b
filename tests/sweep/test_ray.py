"""Sweeps on a Ray cluster of two nodes on this machine, with nodes, workers, drivers killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import chain, repeat
from pathlib import Path
from typing import ClassVar
from unittest.mock import MagicMock

import own_models
import pytest
from clusters import Cluster, kill, processes
from misbehaviour import Heard, Several, lines, task
from sweeps import measure, residual
from waiting import until

import depthmup
from depthmup.cli import main
from depthmup.model import Model, find_function, resolved
from depthmup.rules import DEPTH_MUP, ODE
from depthmup.sweep import InProcess, Ray, Store, WorkerError, run
from depthmup.sweep.executors import ray as executor_ray
from depthmup.sweep.executors.backlog import Backlog
from depthmup.sweep.executors.ray import _RayTeam

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'depthmup[ray]'")
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("ray")]

TESTS = Path(__file__).parents[1]
GRID = residual(
    schemes=(DEPTH_MUP, ODE),
    depths=(2, 4),
    base_depth=2,
    log2_lrs=(-4.0, -3.0),
    seeds=3,
    width=16,
    steps=20,
    window=10,
)


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster, and its processes: a head and another node, of a core each."""
    started = Cluster()
    try:
        started.join()
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
        assert until(lambda: sum(node["Alive"] for node in ray.nodes()) == 2)
        yield started.address, started.nodes
    finally:
        ray.shutdown()
        started.close()


@pytest.fixture
def unconnected():
    """Tests of what does not answer stand before those of the cluster that does."""
    assert not ray.is_initialized()


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def at_work(log):
    """Processes that noted something and are still there, by number."""
    there = {}
    for line in lines(log):
        process, number = line.split()
        if Path(f"/proc/{process}").exists():
            there[int(number)] = int(process)
    return there


@pytest.mark.parametrize("server", ["nobody", "silence"])
def test_an_address_that_does_not_answer(unconnected, log, server):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if server == "silence":
            listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        start = time.monotonic()
        with pytest.raises(ValueError, match=f"No Ray cluster answers at {address}"):
            Ray(address=address)([Several(tasks=(task("add_one", log, 0),))], Heard())
    # Limits of 5 s and 12 s, and a process to start, which takes long on a machine with other work;
    # Ray's own limit is 120 s, tried several times.
    assert time.monotonic() - start < 240


def test_a_cluster_that_does_not_answer_leaves_no_folder(unconnected, tmp_path):
    design = depthmup.Design(base={"width": 8, "depth": 2}, depth=(2, 4), steps=2, seeds=1)
    on = depthmup.Execution(executor="ray", address="127.0.0.1:1")
    with pytest.raises(ValueError, match="No Ray cluster answers at"):
        depthmup.transfer(depthmup.BuiltIn(), design, out=tmp_path / "out", on=on)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001", "host:", ":6379"])
def test_what_is_no_address(unconnected, log, address):
    with pytest.raises(ValueError, match=r"host:port, or auto; got '"):
        Ray(address=address)([Several(tasks=(task("add_one", log, 0),))], Heard())


def test_a_cluster_that_asks_for_a_token_is_told_apart_from_one_that_is_silent(monkeypatch, log):
    def refused(command, **options):
        error = "Traceback ...\nray.exceptions.AuthenticationError: RPC error: InvalidAuthToken\n"
        raise subprocess.CalledProcessError(1, command, stderr=error)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        monkeypatch.setattr(executor_ray.subprocess, "run", refused)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ValueError, match=r"asks for its token: .*InvalidAuthToken\. Copy"):
            Ray(address=address)([Several(tasks=(task("add_one", log, 0),))], Heard())


def test_a_token_that_comes_too_late_is_named(unconnected, monkeypatch, log):
    """Ray is loaded here, in this process of tests, and would not send it."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)

    def refused(command, *, env, **options):
        if "RAY_AUTH_MODE" not in env:
            raise subprocess.CalledProcessError(1, command, stderr="AuthenticationError: no token")

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        monkeypatch.setattr(executor_ray.subprocess, "run", refused)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ValueError, match="Set RAY_AUTH_MODE=token before Python starts"):
            Ray(address=address)([Several(tasks=(task("add_one", log, 0),))], Heard())
    assert "RAY_AUTH_MODE" not in os.environ


def test_the_two_commands_of_the_guide(tmp_path):
    follow_the_guide(tmp_path)


def test_the_two_commands_of_the_guide_where_ray_init_has_left_a_token(tmp_path):
    """Ray 2.60: ``ray start`` asks for it, and a driver sends it only if a variable says so."""
    follow_the_guide(tmp_path, token="0123456789abcdef" * 4)


def follow_the_guide(tmp_path, token=""):
    """Start a cluster and train on it, as in docs/how-to/cluster.md, in a home of its own."""
    (tmp_path / ".ray").mkdir()
    if token:
        (tmp_path / ".ray" / "auth_token").write_text(token)
    usual = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    home = {**usual, "HOME": str(tmp_path)}
    own = Cluster(home)
    try:
        words = ["--executor", "ray", "--address", own.address, "--budget", "40"]
        done = subprocess.run(
            [sys.executable, "-m", "depthmup", "transfer", "--preset", "tiny", *words],
            cwd=tmp_path,
            env=home,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        own.close()
    assert done.returncode == 0, done.stderr


def test_a_cluster_that_lost_its_last_node_is_given_up_after_a_while(monkeypatch, log):
    """Ray itself would wait for ever."""
    monkeypatch.setattr(executor_ray, "LOOK", 0.0)
    monkeypatch.setattr(executor_ray, "PATIENCE", 0.5)
    node = {"Alive": True, "Resources": {"CPU": 1.0}}
    cluster = MagicMock()
    cluster.nodes.side_effect = chain([[node], [{**node, "Alive": False}], [node]], repeat([]))
    cluster.wait.side_effect = lambda streams, **options: time.sleep(0.02) or ([], streams)
    backlog = Backlog([Several(tasks=(task("add_one", log, 0),))], Heard())
    with pytest.raises(WorkerError, match=r"lost its last node .* add a node and run the same"):
        _RayTeam(ray=cluster, executor=Ray(address="head:6379"))._run(backlog)
    cluster.kill.assert_called_once()
    assert cluster.nodes.call_count > 5


def test_more_gpus_than_there_are(cluster, log):
    with pytest.raises(ValueError, match=r"a core and 1 GPUs .* 2 nodes with 2 cores and 0 GPUs"):
        Ray(gpus_per_trial=1)([Several(tasks=(task("add_one", log, 0),))], Heard())


@pytest.mark.long(slice=False)  # as the command's runs below
def test_the_same_cells_to_the_bit(cluster, tmp_path):
    seen = []
    with Store(tmp_path / "a.sqlite") as ours, Store(tmp_path / "b.sqlite") as theirs:
        run(GRID.runs, store=ours, executor=InProcess())
        run(GRID.runs, store=theirs, executor=Ray(), tell=seen.append)
        assert [theirs.get(cell) for cell in GRID.runs] == [ours.get(c) for c in GRID.runs]
    assert seen[-1].done == len(GRID.runs)
    assert seen[-1].fraction == pytest.approx(1.0)


def test_whatever_goes_wrong_is_reported_and_the_rest_is_done_once(cluster, log):
    names = ["add_one", "fail", "die_once", "die", "exhaust", "add_one", "hang"]
    jobs = [
        Several(tasks=tuple(task(name, log, n) for n, name in enumerate(names))),
        Several(tasks=(task("add_one", log, 10),)),
    ]
    heard = Heard()
    Ray(trial_seconds=2.0)(jobs, heard)
    assert sorted(heard.numbers) == [0, 2, 5, 10]
    patterns = {
        "doing fail 1": r"(?s)Traceback.*misbehaviour.py.*ZeroDivisionError: number 1 has no",
        "doing die 3": r"died 3 times.*ActorDiedError",
        "doing exhaust 4": r"(?s)not fit into memory 3 times.*MemoryError",
        "doing hang 6": r"stopped after 2 s, its time limit",
    }
    failures = dict(heard.failures)
    assert len(failures) == len(heard.failures)
    assert failures.keys() == patterns.keys()
    for name, pattern in patterns.items():
        assert re.search(pattern, failures[name]), failures[name]
    numbers = [int(line.split()[1]) for line in lines(log)]
    assert {number: numbers.count(number) for number in (0, 1, 4, 5, 10)} == {
        **dict.fromkeys((0, 5, 10), 1),
        1: 2,
        4: 3,
    }
    assert until(lambda: 6 not in at_work(log), 120)


def test_what_the_listener_raises_comes_through_and_leaves_nothing_at_work(cluster, log):
    """As Ctrl-C does, or a store that is full."""

    class Stopping(Heard):
        def on_result(self, result):
            raise KeyboardInterrupt("enough")

    jobs = [
        Several(tasks=(task("hang", log, 0),)),
        # Both are at work by then, on a busy machine, too.
        Several(tasks=(task("add_one", log, 1, seconds=6),)),
    ]
    with pytest.raises(KeyboardInterrupt, match="enough"):
        Ray()(jobs, Stopping())
    assert {0, 1} == {int(line.split()[1]) for line in lines(log)}
    assert until(lambda: 0 not in at_work(log), 120)


SWEEP = """
import json, sys
from misbehaviour import Several, task
from depthmup.sweep import Ray, Store, run
if __name__ == "__main__":
    path, log, address = sys.argv[1:]
    tasks = [task("add_one", log, number, seconds=0.3) for number in range(12)]
    def jobs(missing):
        return [Several(tasks=tuple(missing[i : i + 3])) for i in range(0, len(missing), 3)]
    with Store(path) as store:
        run(tasks, store=store, executor=Ray(address=address), jobs=jobs)
"""


def test_a_driver_that_is_killed_is_resumed(cluster, tmp_path, log):
    script, path = tmp_path / "sweep.py", tmp_path / "results.sqlite"
    script.write_text(SWEEP)
    command = [sys.executable, script, path, log, cluster[0]]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    tasks = [task("add_one", log, number, seconds=0.3) for number in range(12)]
    first = subprocess.Popen(command, env=environment)
    with Store(path) as store:
        assert until(lambda: len(store) >= 3)
        first.send_signal(signal.SIGKILL)
        first.wait()
        kept = {each.settings["number"] for each in tasks} - {
            each.settings["number"] for each in store.missing(tasks)
        }
        assert 3 <= len(kept) < 12
        assert until(lambda: not at_work(log), 120), "its workers end with the driver"
        before = len(lines(log))
        subprocess.run(command, env=environment, check=True, timeout=600)
        assert not store.missing(tasks)
    assert sorted(int(line.split()[1]) for line in lines(log)[before:]) == sorted(
        set(range(12)) - kept
    )


FAILS = """

def train(trial):
    if trial.lr > 0.04 and trial.depth == 4:
        raise LookupError("no data of mine")
    return [2.0 + (trial.lr - 0.1) ** 2] * trial.steps
"""


class TestOwnModels:
    ASKED: ClassVar = {
        "base": (16, 2),
        "depths": (2, 4),
        "lrs": [0.01, 0.02, 0.05],
        "steps": 6,
        "seeds": 2,
        "settings": {"own_init": "fan_in"},
    }

    @pytest.fixture
    def file(self, tmp_path):
        """A person's own file, in a folder that is on nobody's path."""
        path = tmp_path / "mine.py"
        path.write_text(own_models.SOURCE + FAILS)
        return path

    def test_an_error_in_ones_own_code_stops_no_other_run(self, cluster, file):
        out = file.parent / "out"
        asked = {**self.ASKED, "settings": {}, "out": out}
        train = find_function(f"{file}:train")
        with pytest.raises(
            WorkerError, match=r"(?s)mine\.py.*in train.*no data of mine.*Also failed: "
        ):
            measure(train=train, **asked, on=Ray())
        with Store(out / "results.sqlite") as store:
            assert len(store) == 10

    def test_the_command_makes_the_same_runs_to_the_bit(self, cluster, file, capfd):
        out = file.parent / "out"
        options = (
            f"transfer --model {file}:make --base 16x2 --depths 2 4 --steps 6 "
            f"--lrs 0.01 0.02 0.05 --seeds 2 --own-init fan_in --executor ray "
            f"--address {cluster[0]} --json --out {out}"
        )
        assert main(options.split()) == 0
        assert json.loads(capfd.readouterr().out)["schemes"][0]["scheme"] == "depth-mup"
        assert (out / "report.html").exists()
        model = resolved(Model.load(f"{file}:make"))
        here = measure(model.make, **self.ASKED, batch=model.batch)
        there = depthmup.load(out)
        assert len(there.records) == 12
        assert there.records == here.records


def test_what_was_at_work_on_a_node_that_is_killed_is_done_elsewhere(cluster, log):
    """Last, as the node does not come back."""
    _, (_, other) = cluster
    jobs = [
        Several(tasks=tuple(task("add_one", log, 3 * job + n, seconds=0.5) for n in range(3)))
        for job in range(4)
    ]

    killed = []

    def unplug():
        there = until(
            lambda: len(lines(log)) > 3 and set(at_work(log).values()) & {*processes(other)}
        )
        killed.append((there, len(lines(log))))
        kill(other)

    killer = threading.Thread(target=unplug)
    killer.start()
    heard = Heard()
    Ray()(jobs, heard)
    killer.join()
    assert not heard.failures
    assert sorted(heard.numbers) == list(range(12))
    [(there, begun)] = killed
    assert there
    assert 3 < begun < 12
    # What was begun there and not delivered was done again, and only that: one job's rest.
    numbers = [int(line.split()[1]) for line in lines(log)]
    again = {number for number in numbers if numbers.count(number) > 1}
    assert 1 <= len(again) <= 3
    assert all(numbers.count(number) == 2 for number in again)
    assert sum(node["Alive"] for node in ray.nodes()) == 1
