"""Signals at random moments of sweeps, which must then resume to the same bits.

The driver or the whole group gets SIGINT, SIGTERM or SIGKILL; workers are killed beneath it. What
was stored stays stored; no process is left behind; a driver that was asked to end does, within
seconds and without a traceback; one whose worker died goes on.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import count as from_zero
from pathlib import Path

from studies.attack.sweeps import SWEEPS, outcome, processes, start, stored

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
FATAL = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)
"""What ends a worker, which leaves Ctrl-C to its driver."""
PATIENCE = 60.0
"""Seconds in which a driver that got a signal ends, and then its workers."""


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    rng, outcomes = random.Random(seed), Counter[str]()
    whole, seconds = {}, {}
    for number, kind in zip(from_zero(), _kinds(), strict=False):
        if kind not in whole:
            out = folder / f"whole-{kind}"
            begin = time.monotonic()
            if status := start(kind, out, "--workers", "2").wait():
                outcomes[f"NOT EVEN A WHOLE SWEEP: {kind}, status {status}"] += 1
                return outcomes
            whole[kind], seconds[kind] = outcome(out), time.monotonic() - begin
        out = folder / f"{kind}-{number}"
        signals = sum(n for name, n in outcomes.items() if name.startswith("signals"))
        most = min(count - signals, rng.choice([3, 10, 30]))
        last = _interrupted(kind, out, most, seconds[kind], rng, outcomes)
        if last == 0:
            same = outcome(out) == whole[kind]
            name = f"sweeps finished, to the same bits ({kind})"
            outcomes[name if same else f"OTHER RECORDS ({kind})"] += 1
        else:
            text = out.with_suffix(".err").read_text(errors="replace")
            outcomes[f"A SWEEP ENDED WITH STATUS {last} ({kind})"] += 1
            print(f"{kind}: status {last}: {text}", file=sys.stderr, flush=True)
        shutil.rmtree(out, ignore_errors=True)
        print(f"so far: {dict(outcomes)} {time.strftime('%H:%M')}", file=sys.stderr, flush=True)
        if sum(n for name, n in outcomes.items() if name.startswith("signals")) >= count:
            return outcomes
    return outcomes


def _kinds():
    while True:
        yield from SWEEPS


def _interrupted(
    kind: str, out: Path, most: int, seconds: float, rng: random.Random, outcomes: Counter[str]
) -> int:
    """The exit status of a sweep that was started again until it ended by itself.

    Args:
        kind: of the sweep.
        out: its folder.
        most: signals after which it is left alone.
        seconds: that it takes without interruption, within which they come.
        rng: of moments and signals.
        outcomes: to which what happens is added.
    """
    records: dict[str, str] = {}
    driver, deaths = start(kind, out, "--workers", "2"), 0
    for _ in range(most):
        try:
            return driver.wait(seconds * rng.uniform(0.01, 0.7))
        except subprocess.TimeoutExpired:
            pass
        # A job whose worker died three times is given up, and rightly.
        workers = [pid for pid in processes(driver) if pid != driver.pid] if deaths < 2 else []
        if workers and rng.random() < 0.6:
            with suppress(ProcessLookupError):
                os.kill(rng.choice(workers), rng.choice(FATAL))
            outcomes["signals to a worker"] += 1
            deaths += 1
            continue  # the driver goes on
        number, whom = rng.choice(SIGNALS), rng.choice(["driver", "group"])
        with suppress(ProcessLookupError):
            (os.kill if whom == "driver" else os.killpg)(driver.pid, number)
        outcomes[f"signals to the {whom}: {number.name}"] += 1
        _ended(driver, number, out, outcomes)
        before, records = records, stored(out)
        if not before.items() <= records.items():
            outcomes["RECORDS LOST OR CHANGED"] += 1
        driver, deaths = start(kind, out, "--workers", "2"), 0
    return driver.wait()


def ended(driver: "subprocess.Popen[bytes]", after: str, outcomes: Counter[str]) -> int:
    """The status of what was interrupted, once nothing of it is left; notes what stayed."""
    try:
        driver.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        outcomes[f"A DRIVER WENT ON AFTER {after}"] += 1
    until = time.monotonic() + PATIENCE
    while (left := processes(driver)) and time.monotonic() < until:
        time.sleep(0.1)
    if left:
        outcomes[f"PROCESSES LEFT BEHIND AFTER {after}"] += 1
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return driver.wait()


def _ended(
    driver: "subprocess.Popen[bytes]", number: signal.Signals, out: Path, outcomes: Counter[str]
) -> None:
    """Wait for what was interrupted, and note what it should not have done."""
    ended(driver, number.name, outcomes)
    text = out.with_suffix(".err").read_text(errors="replace")
    if "Traceback" not in text:
        return
    # A worker that was being started when its driver was killed: Python's own words.
    if number is signal.SIGKILL and "/depthmup/" not in text:
        outcomes["of them ended while Python started a worker"] += 1
    else:
        outcomes[f"A TRACEBACK AFTER {number.name}"] += 1
        print(f"{number.name}:\n{text}", file=sys.stderr, flush=True)
