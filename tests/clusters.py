"""Ray clusters on this machine, whose nodes can be unplugged."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from waiting import until

SHARED = ("--num-cpus=1", "--object-store-memory=80000000", "--block")


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port():
    """One that Ray gives to nobody: its workers have 10002 to 19999."""
    for port in range(26379, 32000):
        if not answers(port):
            return port
    raise RuntimeError("no port is free")


def processes(node):
    """All processes of a node: workers leave its process group, and stay in its session."""
    ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError):
            if os.getsid(int(folder.name)) == node.pid:
                ids.append(int(folder.name))
    return ids


def kill(node):
    """What unplugging does: nothing of it is left, and nothing said goodbye."""
    for process in processes(node):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    node.wait()


class Cluster:
    """A head of one core; ``join`` adds nodes of one core each."""

    def __init__(self, environment=None):
        # A token that another cluster has left in the home folder would be asked for.
        self.environment = environment or {**os.environ, "RAY_AUTH_MODE": "disabled"}
        self.port, self.folder = free_port(), tempfile.mkdtemp(prefix="ray", dir="/tmp")
        self.address = f"127.0.0.1:{self.port}"
        head = ("--head", f"--port={self.port}", "--include-dashboard=false")
        self.nodes = [self._start(*head, f"--temp-dir={self.folder}")]
        if not until(lambda: answers(self.port)):
            raise RuntimeError((Path(self.folder) / "output").read_text())

    def join(self):
        self.nodes.append(self._start(f"--address={self.address}"))
        return self.nodes[-1]

    def close(self):
        for node in self.nodes:
            kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, *where):
        environment = {
            **self.environment,
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that is gone is noticed after three seconds, not fifteen.
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }
        with open(Path(self.folder) / "output", "a") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *SHARED],
                env=environment,
                stdout=output,
                stderr=output,
                start_new_session=True,  # by which its processes are found
            )
