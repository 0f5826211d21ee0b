"""What shares a folder: two drivers at once, stores of earlier versions, many records.

Two drivers of one sweep in one folder, either of which may be killed, end with the records of one
alone and with files of one result. Stores of earlier versions (tests/earlier) join today's. A
folder with ``MANY`` records opens, is joined and reported. A claim of the paper that is interrupted
again and again loses no record, and has those of another folder.
"""

import math
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import warnings
from array import array
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from depthmup._drafts import PREFIX
from depthmup.report import load_report
from depthmup.sweep import BuiltIn, Design, Store, Sweep, merge
from depthmup.sweep import run as run_sweep
from studies.attack.interruptions import SIGNALS, ended
from studies.attack.soak import Ready, deliver
from studies.attack.sweeps import command, outcome, start, stored

EARLIER = Path(__file__).parents[2] / "tests" / "earlier"
MANY = 100_000
CLAIM = "fig3"


def attack(count: int, folder: Path, seed: int, *, only: str = "") -> Counter[str]:
    rng, outcomes = random.Random(seed), Counter[str]()
    for name, part in PARTS.items():
        if only in ("", name):
            (folder / name).mkdir()
            begin = time.monotonic()
            part(count, folder / name, rng, outcomes)
            print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return outcomes


def drivers(count: int, folder: Path, rng: random.Random, outcomes: Counter[str]) -> None:
    """Two at once; the first may be killed, and both are started again until both have ended."""
    whole, begin = folder / "whole", time.monotonic()
    assert not start("custom", whole, "--workers", "1").wait()
    seconds = time.monotonic() - begin
    for number in range(count):
        out = folder / f"both-{number}"
        two = [_driver(out, which) for which in range(2)]
        if rng.random() < 0.5:
            with suppress(subprocess.TimeoutExpired):
                two[0].wait(seconds * rng.random())
            with suppress(ProcessLookupError):
                two[0].send_signal(signal.SIGKILL)
            ended(two[0], "SIGKILL", outcomes)
            two[0] = _driver(out, 0)
            outcomes["one of two drivers killed"] += 1
        statuses = [driver.wait(600) for driver in two]
        # Whichever was second may find a run that the other stores at the same time.
        same = outcome(out) == outcome(whole)
        if any(statuses):
            outcomes[f"TWO DRIVERS ENDED WITH {statuses}"] += 1
        elif not same:
            outcomes["TWO DRIVERS LEFT OTHER FILES OR RECORDS"] += 1
        elif any(path.name.startswith(PREFIX) for path in out.iterdir()):
            outcomes["DRAFTS LEFT"] += 1
        else:
            outcomes["two drivers in one folder: the records and the answer of one"] += 1
        shutil.rmtree(out)


def _driver(out: Path, which: int) -> "subprocess.Popen[bytes]":
    return start("custom", out, "--workers", "1", errors=out.with_suffix(f".{which}.err"))


def versions(count: int, folder: Path, rng: random.Random, outcomes: Counter[str]) -> None:
    """All stores of earlier versions in one, which keeps every record; twice changes nothing."""
    stores = sorted(EARLIER.glob("*/*/results.sqlite"))
    with Store(folder / "results.sqlite") as joined:
        merge(stores, into=joined)
        merge(stores, into=joined)
    kept, whole = stored(folder), [_copied(store, folder) for store in stores]
    lost = sum(not records.items() <= kept.items() for records in whole)
    outcomes["stores of earlier versions joined"] += len(stores)
    outcomes["of them with records"] += sum(map(bool, whole))
    if lost:
        outcomes["RECORDS OF EARLIER VERSIONS LOST"] += lost


def _copied(store: Path, folder: Path) -> dict[str, str]:
    place = folder / "copy"
    shutil.copytree(store.parent, place)
    try:
        return stored(place)
    finally:
        shutil.rmtree(place)


def many(count: int, folder: Path, rng: random.Random, outcomes: Counter[str]) -> None:
    """A sweep with that many runs, as many of which are seeds: stored, asked again, reported."""
    rates, depths = [2.0**k for k in range(-9, 1)], (2, 4, 8, 16, 32)
    seeds = min(MANY, 1000 * count) // (len(rates) * len(depths))
    design = Design(
        base={"width": 16, "depth": 2},
        depth=depths,
        schemes=("depth-mup",),
        optimizers="adam",
        lrs=rates,
        seeds=seeds,
        steps=20,
        window=10,
    )
    sweep = Sweep(model=BuiltIn(batch_size=16), design=design)

    def jobs(missing: object) -> list[Ready]:
        return [_ready(run, rng) for run in missing]  # type: ignore[attr-defined]

    about = {"sweep": sweep.to_dict(), "tolerance": 0.15, "command": [], "environment": {}}
    path, runs = folder / "results.sqlite", sweep.runs
    outcomes["runs of a large folder"] = len(runs)
    with Store(path) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, work in {
            "stored": lambda: run_sweep(
                runs, store=store, executor=deliver, jobs=jobs, about=about
            ),
            "found complete": lambda: run_sweep(runs, store=store, executor=deliver, jobs=jobs),
            "reported": lambda: load_report(store).summary(),
        }.items():
            outcomes[f"milliseconds until all are {name}"] = _milliseconds(work)
    outcomes["MB of the largest process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    outcomes["MB of the store"] = path.stat().st_size >> 20


def _milliseconds(work: Callable[[], object]) -> int:
    begin = time.process_time()
    work()
    return round(1e3 * (time.process_time() - begin))


def _ready(run: object, rng: random.Random) -> Ready:
    octaves = math.log2(run.optimizer.lr) + 4  # type: ignore[attr-defined]
    loss = 2.0 + 0.05 * octaves**2 + rng.gauss(0, 0.05)
    return Ready(cells=(run,), losses=array("f", [loss] * 20))


def reproduce(count: int, folder: Path, rng: random.Random, outcomes: Counter[str]) -> None:
    """Two folders of one claim, each interrupted: no record is lost, and shared ones are equal."""
    found: list[dict[str, str]] = []
    for out in (folder / "one", folder / "two"):
        records: dict[str, str] = {}
        for _ in range(-(-count // 2)):
            words = ["reproduce", CLAIM, "--workers", "1", "--out", out]
            driver, number = command(words, out.with_suffix(".err")), rng.choice(SIGNALS)
            with suppress(subprocess.TimeoutExpired):
                driver.wait(rng.uniform(8.0, 25.0))
            with suppress(ProcessLookupError):
                driver.send_signal(number)
            ended(driver, number.name, outcomes)
            outcomes[f"signals to reproduce: {number.name}"] += 1
            text = out.with_suffix(".err").read_text(errors="replace")
            if "Traceback" in text and number is not signal.SIGKILL:
                outcomes[f"A TRACEBACK AFTER {number.name}"] += 1
                print(text, file=sys.stderr, flush=True)
            before, records = records, stored(out)
            if not before.items() <= records.items():
                outcomes["RECORDS LOST OR CHANGED"] += 1
        found.append(records)
    one, two = found
    shared = one.keys() & two.keys()
    outcomes["records that both folders have"] += len(shared)
    if any(one[key] != two[key] for key in shared):
        outcomes["OTHER RECORDS"] += 1


PARTS = {"drivers": drivers, "versions": versions, "many": many, "reproduce": reproduce}
