"""Signals at random moments of sweeps, which must then resume to the same bits.

The driver, one of its workers, or the whole group gets SIGINT, SIGTERM or SIGKILL. What was stored
stays stored; no process is left behind; a driver that was asked to end does, within seconds and
without a traceback; one whose worker died goes on.
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

from benchmarks.attack.sweeps import SWEEPS, outcome, processes, start, stored

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PATIENCE = 60.0
"""Seconds in which a driver that got a signal ends, and then its workers."""


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    rng, outcomes = random.Random(seed), Counter[str]()
    whole = {}
    for number, kind in zip(from_zero(), _kinds(), strict=False):
        if kind not in whole:
            out = folder / f"whole-{kind}"
            if status := start(kind, out).wait():
                outcomes[f"NOT EVEN A WHOLE SWEEP: {kind}, status {status}"] += 1
                return outcomes
            whole[kind] = outcome(out)
        out = folder / f"{kind}-{number}"
        signals = sum(n for name, n in outcomes.items() if name.startswith("signals"))
        last = _interrupted(kind, out, count - signals, rng, outcomes)
        if last == 0:
            same = outcome(out) == whole[kind]
            name = f"sweeps finished, to the same bits ({kind})"
            outcomes[name if same else f"OTHER RECORDS ({kind})"] += 1
        else:
            text = out.with_suffix(".err").read_text(errors="replace")
            outcomes[f"A SWEEP ENDED WITH STATUS {last} ({kind})"] += 1
            print(f"{kind}: status {last}: {text}", file=sys.stderr, flush=True)
        shutil.rmtree(out, ignore_errors=True)
        if sum(n for name, n in outcomes.items() if name.startswith("signals")) >= count:
            return outcomes
    return outcomes


def _kinds():
    while True:
        yield from SWEEPS


def _interrupted(
    kind: str, out: Path, most: int, rng: random.Random, outcomes: Counter[str]
) -> int:
    """The exit status of a sweep that was started again until it ended by itself."""
    records: dict[str, str] = {}
    for _ in range(most):
        driver = start(kind, out, "--workers", "2")
        try:
            return driver.wait(rng.uniform(0.2, 9.0))
        except subprocess.TimeoutExpired:
            pass
        number, whom = rng.choice(SIGNALS), rng.choice(["driver", "worker", "group"])
        if not _send(driver, number, whom, rng):
            whom = "driver"
            driver.send_signal(number)
        outcomes[f"signals to the {whom}: {number.name}"] += 1
        if whom == "worker":
            # The driver goes on; half of the time it is left alone.
            if rng.random() < 0.5 and (status := driver.wait(600)) is not None:
                return status
            time.sleep(rng.uniform(0.0, 2.0))
            driver.kill()
        _ended(driver, number, out, outcomes)
        before, records = records, stored(out)
        if not before.items() <= records.items():
            outcomes["RECORDS LOST OR CHANGED"] += 1
    return start(kind, out, "--workers", "2").wait()


def _send(
    driver: "subprocess.Popen[bytes]", number: signal.Signals, whom: str, rng: random.Random
) -> bool:
    """Whether there was somebody to send it to."""
    with suppress(ProcessLookupError):
        if whom == "driver":
            driver.send_signal(number)
            return True
        if whom == "group":
            os.killpg(driver.pid, number)
            return True
        workers = [pid for pid in processes(driver) if pid != driver.pid]
        if workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
            return True
    return False


def _ended(
    driver: "subprocess.Popen[bytes]", number: signal.Signals, out: Path, outcomes: Counter[str]
) -> None:
    """Wait for what was interrupted, and note what it should not have done."""
    try:
        driver.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        outcomes[f"A DRIVER WENT ON AFTER {number.name}"] += 1
    until = time.monotonic() + PATIENCE
    while (left := processes(driver)) and time.monotonic() < until:
        time.sleep(0.1)
    if left:
        outcomes[f"PROCESSES LEFT BEHIND AFTER {number.name}"] += 1
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    driver.wait()
    text = out.with_suffix(".err").read_text(errors="replace")
    if "Traceback" not in text:
        return
    # A worker that was being started when its driver was killed: Python's own words.
    if number is signal.SIGKILL and "/depthmup/" not in text:
        outcomes["of them ended while Python started a worker"] += 1
    else:
        outcomes[f"A TRACEBACK AFTER {number.name}"] += 1
        print(f"{number.name}:\n{text}", file=sys.stderr, flush=True)
