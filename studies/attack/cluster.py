"""Sweeps on a Ray cluster of two nodes whose drivers and nodes are killed, then resumed.

A node that is unplugged comes back; the driver goes on with the others meanwhile. A driver that is
killed, or asked to end, is started again on the same cluster.
"""

import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from clusters import Cluster, kill

from studies.attack.interruptions import PATIENCE
from studies.attack.sweeps import outcome, start, stored

KINDS = ("grid", "custom")


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    rng, outcomes = random.Random(seed), Counter[str]()
    cluster = Cluster()
    try:
        cluster.join()
        ray = ("--executor", "ray", "--address", cluster.address)
        for number, kind in enumerate(KINDS):
            whole, seconds = folder / f"whole-{kind}", time.monotonic()
            if status := start(kind, whole, *ray).wait():
                outcomes[f"NOT EVEN A WHOLE SWEEP: {kind}, status {status}"] += 1
                return outcomes
            seconds = time.monotonic() - seconds
            share = count // len(KINDS) + (number < count % len(KINDS))
            while share > 0:
                out = folder / f"{kind}-{share}"
                share -= _resumed(kind, out, min(share, 4), seconds, cluster, rng, outcomes)
                same = outcome(out) == outcome(whole)
                name = f"sweeps finished, to the same bits ({kind})"
                outcomes[name if same else f"OTHER RECORDS ({kind})"] += 1
                shutil.rmtree(out)
    finally:
        cluster.close()
    return outcomes


def _resumed(
    kind: str,
    out: Path,
    most: int,
    seconds: float,
    cluster: Cluster,
    rng: random.Random,
    outcomes: Counter[str],
) -> int:
    """The number of kills until a sweep ended by itself, at least one.

    Args:
        kind: of the sweep.
        out: its folder.
        most: kills after which it is left alone.
        seconds: that it takes without a kill, within which they come.
        cluster: where it runs.
        rng: of moments and victims.
        outcomes: to which what happens is added.
    """
    ray = ("--executor", "ray", "--address", cluster.address)
    records: dict[str, str] = {}
    driver = start(kind, out, *ray)
    kills, status = 0, None
    while kills < most:
        try:
            status = driver.wait(seconds * rng.uniform(0.1, 1.0))
            break
        except subprocess.TimeoutExpired:
            kills += 1
        if rng.random() < 0.5 and len(cluster.nodes) > 1:
            kill(cluster.nodes.pop())
            outcomes["nodes unplugged"] += 1
            cluster.join()
            continue  # the driver goes on
        number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        driver.send_signal(number)
        outcomes[f"signals to the driver: {number.name}"] += 1
        try:
            driver.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            outcomes[f"A DRIVER WENT ON AFTER {number.name}"] += 1
            driver.kill()
        text = out.with_suffix(".err").read_text(errors="replace")
        if "Traceback" in text:
            outcomes[f"A TRACEBACK AFTER {number.name}"] += 1
            print(text, file=sys.stderr, flush=True)
        before, records = records, stored(out)
        if not before.items() <= records.items():
            outcomes["RECORDS LOST OR CHANGED"] += 1
        driver = start(kind, out, *ray)
    if status is None:
        status = driver.wait(600)
    if status:
        text = out.with_suffix(".err").read_text(errors="replace")
        print(f"{kind}: status {status}: {text}", file=sys.stderr, flush=True)
        outcomes[f"A SWEEP ENDED WITH STATUS {status}"] += 1
    return max(1, kills)
