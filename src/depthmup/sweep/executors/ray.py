"""Jobs done on a running Ray cluster."""

import importlib
import importlib.util
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from depthmup.model.errors import error_report, is_refusal
from depthmup.records.packages import pip
from depthmup.records.printable import printable
from depthmup.sweep.executors.backlog import Backlog, Listener, messages
from depthmup.sweep.executors.executor import WorkerError
from depthmup.sweep.executors.gpus import arithmetic, compute_as
from depthmup.sweep.jobs import Job

MODE = "RAY_AUTH_MODE"
"""The variable that lets a driver send its token."""

CONNECT, ANSWER = 5.0, 12.0
"""Time limits in seconds for a connection to a cluster and for its answer; Ray's own is 120."""

LOOK = 5.0
"""Seconds between updates of the list of nodes."""

PATIENCE = 60.0
"""Seconds to wait for new nodes after the last one that can do a job was lost."""

START = 20.0
"""Seconds for an actor to start, before an idle one may take its job."""

FETCH = 60.0
"""Seconds for a result that is ready to come over the network."""


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Do jobs on a Ray cluster, each on one core and ``gpus_per_trial`` GPUs.

    ``address`` is that of its head, host:port, or 'auto' for the cluster of this machine; an open
    connection is reused. Jobs of a worker or node that is lost are done elsewhere. Results come to
    this process one by one, and losses with them. All nodes need this package and the models.
    """

    address: str = "auto"
    gpus_per_trial: float = 0.0
    trial_seconds: float | None = None

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        if not jobs:
            return
        with self.staying() as team:
            team(jobs, listener)

    def elsewhere(self, function: Callable[[], object]) -> None:
        """Call a function on the cluster, with the resources of a job; raise what it refuses."""
        with self.staying() as team:
            team.call(function)

    @contextmanager
    def staying(self) -> Iterator["_RayTeam"]:
        """An executor that stays connected until the end, and keeps its workers."""
        _check_installed()
        started_here = "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
        if started_here:
            _check_answers(self.address)  # first: to load Ray settles whether it sends a token
        ray: Any = importlib.import_module("ray")
        importlib.import_module("ray.cloudpickle")
        if started_here:
            on_termination = signal.getsignal(signal.SIGTERM)
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
            # Ray's own handler calls sys.exit, with a traceback, whoever had asked to be told.
            with suppress(ValueError):  # not in the main thread, where Ray sets none either
                signal.signal(signal.SIGTERM, on_termination)
        team = _RayTeam(ray=ray, executor=self)
        try:
            yield team
        finally:
            team.close()
            if started_here:
                ray.shutdown()


class _RayTeam:
    """Ray's actors, each a process that holds a core and its GPUs until the end.

    Ray reuses the processes of its tasks and gives them other GPUs each time, but CUDA in a process
    stays with the first it saw. An actor keeps its own, and CUDA's start is paid once.
    """

    def __init__(self, ray: Any, executor: Ray) -> None:
        self.ray, self.executor = ray, executor
        self.idle: list[Any] = []

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        if jobs:
            self._run(Backlog(jobs, listener, trial_seconds=self.executor.trial_seconds))

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in an actor; raise what it refuses."""
        self._check_slots()
        actor = self._actor()
        problem = self.ray.get(actor.call.remote(self.ray.cloudpickle.dumps(function)))
        self.idle.append(actor)
        if isinstance(problem, Exception):
            raise problem
        if problem is not None:
            raise WorkerError(problem)

    def close(self) -> None:
        for actor in self.idle:
            self.ray.kill(actor)
        self.idle.clear()

    def _actor(self) -> Any:
        """An idle actor, or a new one, which starts as soon as the cluster has room for it."""
        if self.idle:
            return self.idle.pop()
        own = {name: value for name, value in os.environ.items() if name.startswith("DEPTHMUP_")}
        make = self.ray.remote(
            num_cpus=1,
            num_gpus=self.executor.gpus_per_trial,
            max_restarts=0,  # what is tried again, and how often, the backlog decides
            max_task_retries=0,
            runtime_env={"env_vars": {**own, "OMP_NUM_THREADS": "1"}},
        )
        # The files of custom models must be there on every node.
        paths = [os.path.abspath(path) for path in sys.path]
        return make(_RayWorker).remote(paths, arithmetic())

    def _run(self, backlog: Backlog) -> None:
        ray = self.ray
        slots, looked, able = self._check_slots(), time.monotonic(), time.monotonic()
        busy: dict[Any, _Task] = {}
        try:
            while backlog or busy:
                # One at least waits inside Ray for a node.
                while backlog and len(busy) < max(1, slots):
                    self._give(backlog.take(), busy)
                # An actor that does not start may wait for the core of one that has no more to do.
                while self.idle and (late := [s for s in busy if busy[s].is_late()]):
                    ray.kill(busy[late[0]].actor)
                    self._give(busy.pop(late[0]).job, busy)
                for stream in ray.wait(list(busy), num_returns=1, timeout=1.0)[0]:
                    if not busy[stream].listen(ray, stream, backlog):
                        task = busy.pop(stream)
                        if task.free:
                            self.idle.append(task.actor)
                        else:
                            ray.kill(task.actor)
                now = time.monotonic()
                for stream in [s for s in busy if now > busy[s].deadline]:
                    ray.kill(busy[stream].actor)
                    task = busy.pop(stream)
                    backlog.overdue(task.job, loaded=task.loaded)
                if now - looked > LOOK:  # nodes come and go
                    slots, looked = self._slots(), now
                    able = now if slots else able
                    if now - able > PATIENCE:
                        raise WorkerError(
                            f"The Ray cluster at {self.executor.address} lost its last node with a "
                            f"core and {self.executor.gpus_per_trial:g} GPUs {PATIENCE:g} s ago. "
                            "What was finished is kept; add a node and run the same again."
                        )
        finally:
            for task in busy.values():
                ray.kill(task.actor)

    def _give(self, job: Job, busy: dict[Any, "_Task"]) -> None:
        actor = self._actor()
        packed = self.ray.cloudpickle.dumps(job)
        stream = actor.do.options(num_returns="streaming").remote(packed)
        busy[stream] = _Task(job, actor)

    def _check_slots(self) -> int:
        if slots := self._slots():
            return slots
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        cores, gpus = (sum(node.get(kind, 0.0) for node in nodes) for kind in ("CPU", "GPU"))
        raise ValueError(
            f"Expected a node with a core and {self.executor.gpus_per_trial:g} GPUs in the Ray "
            f"cluster at {self.executor.address}; there is none. It has {len(nodes)} nodes with "
            f"{cores:g} cores and {gpus:g} GPUs. Ask for less by --gpus-per-trial, or add a node."
        )

    def _slots(self) -> int:
        """How many jobs the cluster's nodes can do at once."""
        total = 0
        for node in self.ray.nodes():
            if node["Alive"]:
                cores = node["Resources"].get("CPU", 0.0)
                if gpus := self.executor.gpus_per_trial:
                    cores = min(cores, node["Resources"].get("GPU", 0.0) / gpus)
                total += int(cores)
        return total


class _Task:
    """A job that was given to an actor, and when it must be done; unlimited while it waits."""

    def __init__(self, job: Job, actor: Any) -> None:
        self.job, self.actor = job, actor
        self.given, self.deadline = time.monotonic(), math.inf
        self.started, self.loaded = False, False
        self.free = False  # the job is over, and its actor can have another

    def is_late(self) -> bool:
        return not self.started and time.monotonic() - self.given > START

    def listen(self, ray: Any, stream: Any, backlog: Backlog) -> bool:
        """Take a message; whether there are more to come."""
        try:
            kind, content = ray.get(next(stream), timeout=FETCH)
        except StopIteration:
            backlog.died(self.job, "its messages ended")
        except ray.exceptions.RayTaskError as error:
            backlog.over(self.job, str(error))
        except ray.exceptions.RayError as error:
            backlog.died(self.job, f"{type(error).__name__}: {error}")
        else:
            if kind in ("started", "loaded"):
                self.started, self.loaded = True, kind == "loaded"
                self.deadline = time.monotonic() + backlog.seconds(self.job, loaded=self.loaded)
                return True
            more = backlog.heard(self.job, kind, content)
            self.free = not more and kind != "lost"
            return more
        return False


class _RayWorker:
    """An actor: does jobs one after another, and yields messages about them."""

    def __init__(self, paths: Sequence[str], chosen: Mapping[str, Any]) -> None:
        compute_as(chosen)
        sys.path += [path for path in paths if path not in sys.path]

    def do(self, packed: bytes) -> Iterator[tuple[str, Any]]:
        yield "started", None
        yield from messages(packed, lambda fraction, losses=(): None)

    def call(self, packed: bytes) -> Exception | str | None:
        """What a function refuses, as an error, or what else it raises, as a text."""
        try:
            pickle.loads(packed)()
        except Exception as error:
            return error.with_traceback(None) if is_refusal(error) else error_report(error)
        return None


def _check_installed() -> None:
    if importlib.util.find_spec("ray") is None:
        raise ValueError(
            "The executor ray needs Ray, which is not installed here. Install it by "
            f"`{pip()} install 'depthmup[ray]'`, or use --executor processes."
        )


def _asked(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        timeout=ANSWER,
        check=True,
        text=True,
        env={**os.environ, **environment},
    )


def _check_answers(address: str) -> None:
    """Ask the cluster in a process that can be stopped: a connection that hangs cannot be."""
    where = "on this machine" if address == "auto" else f"at {address}"
    silent = ValueError(
        f"No Ray cluster answers {where}. Start one by `ray start --head --port=6379`, let other "
        "machines join by `ray start --address=HEAD:6379`, and give --address HEAD:6379."
    )
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check"]
    if address != "auto":
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or "//" in host:
            raise ValueError(
                f"Expected the address of a Ray cluster to be host:port, or auto; got {address!r}. "
                "The command runs on a machine of the cluster: ray:// addresses are for others."
            )
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT).close()
        except OSError as error:
            raise silent from error
        command += ["--address", address]
    try:
        _asked(command)
    except subprocess.CalledProcessError as error:
        refused = [line for line in error.stderr.splitlines() if "AuthenticationError" in line]
        if not refused:
            raise silent from error
        if _takes_the_token_here(command):
            return
        raise ValueError(
            f"The Ray cluster {where} asks for its token: {printable(refused[-1])[:200]}. Copy "
            f"~/.ray/auth_token from its head, and set {MODE}=token."
        ) from error
    except subprocess.SubprocessError as error:
        raise silent from error


def _takes_the_token_here(command: Sequence[str]) -> bool:
    """Whether the cluster takes the token of this machine, which is then sent.

    ``ray start`` asks for a token wherever one is (``ray.init()`` leaves it in ~/.ray); a driver
    sends it only if a variable says so, at the time when Ray is loaded.
    """
    if MODE in os.environ:
        return False
    try:
        _asked(command, **{MODE: "token"})
    except subprocess.SubprocessError:
        return False
    if "ray" in sys.modules:
        raise ValueError(
            f"The Ray cluster takes the token of this machine, but Ray was loaded here before that "
            f"was known. Set {MODE}=token before Python starts."
        )
    os.environ[MODE] = "token"
    return True
