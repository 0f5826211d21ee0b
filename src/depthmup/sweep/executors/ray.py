"""Jobs done on a running Ray cluster."""

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from depthmup.model.errors import error_report
from depthmup.sweep.executors.backlog import Attempt, Backlog
from depthmup.sweep.executors.executor import Listener, WorkerError
from depthmup.sweep.jobs import Job

CONNECT, ANSWER = 5.0, 12.0
"""Time limits in seconds for a connection to a cluster and for its answer; Ray's own is 120."""

LOOK = 5.0
"""Seconds between updates of the list of nodes."""

PATIENCE = 60.0
"""Seconds to wait for new nodes after the last one that can do a job was lost."""

FETCH = 60.0
"""Seconds for a result that is ready to come over the network."""


@dataclass(frozen=True, kw_only=True)
class Ray:
    """Do jobs on a Ray cluster, each on one core and ``gpus_per_trial`` GPUs.

    ``address`` is that of its head, host:port, or 'auto' for the cluster of this machine; an open
    connection is reused. Jobs do not depend on each other: if a worker or a node is lost, they are
    done elsewhere. Results come to this process one by one and are stored only here. All nodes need
    this package and the files of the models.

    The progress within a job of several results is that of its results alone, and losses come with
    the result.
    """

    address: str = "auto"
    gpus_per_trial: float = 0.0
    trial_seconds: float | None = None

    def __call__(self, jobs: Sequence[Job], listener: Listener) -> None:
        if not jobs:
            return
        with self.staying():
            self._run(_ray(), Backlog(jobs, listener, trial_seconds=self.trial_seconds))

    @contextmanager
    def staying(self) -> Iterator["Ray"]:
        """This executor, connected until the end."""
        ray = _ray()
        started_here = not ray.is_initialized()
        if started_here:
            _check_answers(self.address)
            on_termination = signal.getsignal(signal.SIGTERM)
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
            # Ray's own handler calls sys.exit, with a traceback, whoever had asked to be told.
            with suppress(ValueError):  # not in the main thread, where Ray sets none either
                signal.signal(signal.SIGTERM, on_termination)
        try:
            yield self
        finally:
            if started_here:
                ray.shutdown()

    def _run(self, ray: Any, backlog: Backlog) -> None:
        task = ray.remote(_work).options(
            num_cpus=1,
            num_gpus=self.gpus_per_trial,
            num_returns="streaming",
            max_retries=0,  # what is tried again, and how often, the backlog decides
            runtime_env={"env_vars": _variables()},
        )
        slots, looked, able = self._slots(ray), time.monotonic(), time.monotonic()
        if not slots:
            raise ValueError(
                f"Expected a node with a core and {self.gpus_per_trial:g} GPUs in the Ray cluster "
                f"at {self.address}; there is none. It has {_resources(ray)}. Ask for less by "
                "--gpus-per-trial, or add a node."
            )
        busy: dict[Any, _Task] = {}
        try:
            while backlog or busy:
                # Some wait inside Ray, so that no core idles until this process has noticed.
                while backlog and len(busy) < 2 * slots + 1:
                    attempt = backlog.take()
                    stream = task.remote(ray.cloudpickle.dumps(attempt.job), _paths())
                    busy[stream] = _Task(attempt=attempt)
                for stream in ray.wait(list(busy), num_returns=1, timeout=1.0)[0]:
                    if not busy[stream].listen(ray, stream, backlog):
                        del busy[stream]
                now = time.monotonic()
                for stream in [s for s in busy if now > busy[s].deadline]:
                    ray.cancel(stream, force=True)
                    backlog.overdue(busy.pop(stream).attempt)
                if now - looked > LOOK:  # nodes come and go
                    slots, looked = self._slots(ray), now
                    able = now if slots else able
                    if now - able > PATIENCE:
                        raise WorkerError(
                            f"The Ray cluster at {self.address} lost its last node with a core and "
                            f"{self.gpus_per_trial:g} GPUs {PATIENCE:g} s ago. What was finished "
                            "is kept; add a node and run the same again."
                        )
        finally:
            for stream in busy:
                ray.cancel(stream, force=True)

    def _slots(self, ray: Any) -> int:
        """How many jobs the cluster's nodes can do at once."""
        total = 0
        for node in ray.nodes():
            if node["Alive"]:
                cores = node["Resources"].get("CPU", 0.0)
                if self.gpus_per_trial:
                    cores = min(cores, node["Resources"].get("GPU", 0.0) / self.gpus_per_trial)
                total += int(cores)
        return total


@dataclass(kw_only=True)
class _Task:
    """A job that was given to the cluster, and when it must be done; unlimited while it waits."""

    attempt: Attempt
    deadline: float = math.inf

    def listen(self, ray: Any, stream: Any, backlog: Backlog) -> bool:
        """Take a message; whether there are more to come."""
        try:
            kind, content = ray.get(next(stream), timeout=FETCH)
        except StopIteration:
            backlog.died(self.attempt, "its messages ended")
        except ray.exceptions.RayTaskError as error:
            backlog.raised(self.attempt, str(error))
        except ray.exceptions.RayError as error:
            backlog.died(self.attempt, f"{type(error).__name__}: {error}")
        else:
            if kind == "started":
                self.deadline = time.monotonic() + backlog.seconds(self.attempt)
                return True
            if kind == "result":
                backlog.result(content)
                return True
            if kind == "ended":
                backlog.ended(self.attempt)
            elif kind == "exhausted":
                backlog.died(self.attempt, content)
            else:
                backlog.raised(self.attempt, content)
        return False


def _work(packed: bytes, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """A task: do a job, and yield messages about it."""
    import torch

    torch.set_num_threads(1)
    sys.path += [path for path in paths if path not in sys.path]
    yield "started", None
    try:
        job: Job = pickle.loads(packed)
        for result in job(lambda fraction, losses=(): None):
            yield "result", result
    except MemoryError:
        yield "exhausted", traceback.format_exc()
    except (Exception, SystemExit) as error:
        yield "raised", error_report(error)
    else:
        yield "ended", None


def _ray() -> Any:
    try:
        import ray
        import ray.cloudpickle
    except ImportError as error:
        raise ValueError(
            "The executor ray needs Ray, which is not installed here. Install it by `pip install "
            "'depthmup[ray]'`, or use --executor processes."
        ) from error
    return ray


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
        subprocess.run(command, capture_output=True, timeout=ANSWER, check=True)
    except subprocess.SubprocessError as error:
        raise silent from error


def _paths() -> list[str]:
    """The import path; the files of custom models must be there on every node."""
    return [os.path.abspath(path) for path in sys.path]


def _variables() -> dict[str, str]:
    """The environment of tasks: one thread, and the settings of this package."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("DEPTHMUP_")}
    return {**variables, "OMP_NUM_THREADS": "1"}


def _resources(ray: Any) -> str:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores, gpus = (sum(node.get(kind, 0.0) for node in nodes) for kind in ("CPU", "GPU"))
    return f"{len(nodes)} nodes with {cores:g} cores and {gpus:g} GPUs"
