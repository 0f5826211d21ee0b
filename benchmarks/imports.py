"""What a person waits for before anything happens: imports and the command's help."""

import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python, nothing": ("-c", ""),
    "import depthmup": ("-c", "import depthmup"),
    "import depthmup.rules": ("-c", "import depthmup.rules"),
    "import depthmup.limits": ("-c", "import depthmup.limits"),
    "import depthmup.sweep": ("-c", "import depthmup.sweep"),
    "import torch": ("-c", "import torch"),
    "depthmup --help": ("-m", "depthmup", "--help"),
    "depthmup regimes": ("-m", "depthmup", "regimes"),
}


def seconds(arguments: tuple[str, ...]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def table(rounds: int) -> list[str]:
    """Seconds of a fresh process, the fastest of some: files are in the page cache."""
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):  # in turn
        for name, arguments in COMMANDS.items():
            found[name].append(seconds(arguments))
    return [
        "| | seconds | median |",
        "| --- | --- | --- |",
        *(f"| {n} | {min(s):.2f} | {statistics.median(s):.2f} |" for n, s in found.items()),
    ]
