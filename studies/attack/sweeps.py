"""Sweeps that are interrupted: how they are started, and what must be the same afterwards."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from own_models import SOURCE

from depthmup.sweep import Store

# A few seconds each, of built-in networks, of a custom model, and with rates found as it goes.
SWEEPS = {
    "grid": (
        "--preset tiny --depths 2 4 8 --base 32x2 --steps 4000 --window 100 "
        "--lrs 0.001953125 0.00390625 0.0078125 --seeds 3 --schemes depth-mup sp"
    ),
    "custom": (
        "--model {model} --base 16x2 --depths 2 4 8 --steps 60 "
        "--lrs 0.0078125 0.015625 0.03125 --seeds 3 --own-init fan_in"
    ),
    "auto": (
        "--preset tiny --depths 2 4 8 --base 16x2 --steps 1000 --window 100 --schemes depth-mup"
    ),
}


def start(
    kind: str, out: Path, *more: str, errors: Path | None = None
) -> "subprocess.Popen[bytes]":
    """A driver in a session of its own, by which its processes are found; it writes OUT.err."""
    model = out.parent / "attacked.py"
    if not model.exists():
        model.write_text(SOURCE)
    words = SWEEPS[kind].format(model=f"{model}:make").split()
    told = errors or out.with_suffix(".err")
    return command(["transfer", *words, *more, "--json", "--out", out], told)


def command(words: Sequence[str | Path], errors: Path) -> "subprocess.Popen[bytes]":
    """A command in a session of its own."""
    with open(errors, "wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "depthmup", *words],
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
            # Whoever runs this in the background ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def processes(driver: "subprocess.Popen[bytes]") -> list[int]:
    """All living processes of a driver's session, itself included."""
    alive = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError, FileNotFoundError):
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and os.getsid(int(folder.name)) == driver.pid:
                alive.append(int(folder.name))
    return alive


def stored(out: Path) -> dict[str, str]:
    """A hash of every record in a folder's store, by its key."""
    path = out / "results.sqlite"
    if not path.exists():
        return {}
    with Store(path) as store:
        rows = store._db.execute("SELECT * FROM records").fetchall()
    return {row[0]: hashlib.sha256(repr(row).encode()).hexdigest() for row in rows}


def outcome(out: Path) -> str:
    """Everything that a finished sweep says, but for times."""
    summary = json.loads((out / "summary.json").read_text())
    said = {name: summary[name] for name in summary if name not in ("environment", "config")}
    return json.dumps([said, sorted(stored(out).items())], sort_keys=True)
