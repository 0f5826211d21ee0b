"""The versions and the hardware that a measurement was made with."""

import os
import platform
import sys
from importlib import metadata
from pathlib import Path

from depthmup._version import __version__


def environment() -> dict[str, object]:
    """Versions and hardware, without loading any of the libraries.

    Returns:
        What a record says about where it was made.

    Example:
        >>> sorted(environment())
        ['cores', 'depthmup', 'numpy', 'platform', 'processor', 'python', 'torch']
    """
    return {
        "depthmup": __version__,
        "python": platform.python_version(),
        # From the metadata of what is installed: an import would take seconds.
        "torch": metadata.version("torch"),
        "numpy": metadata.version("numpy"),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": cores(),
    }


def processor() -> str:
    """The processor's name, if the operating system has it.

    Returns:
        The name, or the architecture.

    Example:
        >>> isinstance(processor(), str)
        True
    """
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        # Linux names the processor there; platform knows its architecture at most.
        for line in listing.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


MOST_WORKERS = 1024


def worker_count(asked: int) -> int:
    """The number of workers: as many as asked for, or one per core for 0.

    Args:
        asked: 0 for one per core.

    Returns:
        The number, at least 1.

    Raises:
        ValueError: it is negative, or more than any machine has cores.

    Example:
        >>> worker_count(3), worker_count(0) == cores()
        (3, True)
    """
    if not 0 <= asked <= MOST_WORKERS:
        raise ValueError(
            f"Expected workers to be at least 1 and at most {MOST_WORKERS:,}, or 0 for all cores; "
            f"got {asked:,}."
        )
    return asked or cores()


def cores() -> int:
    """The cores that this process may use.

    Returns:
        Their number, at least 1.

    Example:
        >>> cores() >= 1
        True
    """
    # A scheduler may hand a process fewer cores than the machine has.
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
