"""Single flipped bits anywhere in a store: noticed, or without any effect on a verdict."""

import random
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from depthmup.records import Measurement, Task
from depthmup.report import load_report
from depthmup.sweep import BuiltIn, Design, InProcess, Store, StoreError, Sweep, run

SWEEP = Sweep(
    model=BuiltIn(batch_size=16),
    design=Design(
        base={"width": 16, "depth": 2},
        depth=(2, 4, 8),
        schemes=("depth-mup", "ode"),
        optimizers="adam",
        lrs=[2.0**k for k in (-9, -8, -7, -6, -5)],
        seeds=3,
        steps=20,
        window=10,
    ),
)
TASKS = [Task(name="attacked", settings={"number": number}) for number in range(20)]


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    path = folder / "results.sqlite"
    with Store(path) as store:
        about = {"sweep": SWEEP.to_dict(), "tolerance": 0.15, "command": [], "environment": {}}
        run(SWEEP.runs, store=store, executor=InProcess(), about=about)
        for task in TASKS:
            store.add(Measurement(task=task, values={"value": task.settings["number"] + 0.5}))
        whole, verdicts = content(store), judged(store)
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw, rng, outcomes = path.read_bytes(), random.Random(seed), Counter[str]()
    for number in range(count):
        flipped = bytearray(raw)
        flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        copy = folder / f"{number}.sqlite"
        copy.write_bytes(flipped)
        outcomes[_outcome(copy, whole, verdicts)] += 1
        for part in folder.glob(f"{number}.sqlite*"):
            part.unlink()
    return outcomes


def _outcome(path: Path, whole: dict[str, Any], verdicts: list[str]) -> str:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with Store(path) as store:
                left = content(store)
                missing = [key for key, result in left["results"].items() if result is None]
                said = verdicts if missing else judged(store)
        except StoreError:
            return "refused as a whole"
    same = all(
        result == whole["results"][key]
        for key, result in left["results"].items()
        if result is not None
    )
    if not same or any(session not in whole["sessions"] for session in left["sessions"]):
        return "RESULTS CHANGED UNSEEN"
    if said != verdicts and not warned:
        return "VERDICTS CHANGED UNSEEN"
    if warned:
        return "named, and trained again"
    return "trained again" if missing else "without effect"


def content(store: Store) -> dict[str, Any]:
    """Everything in a store that a verdict depends on."""
    results = {asked.key: store.get(asked) for asked in (*SWEEP.runs, *TASKS)}
    return {"results": results, "sessions": store.sessions()}


def judged(store: Store) -> list[str]:
    """The verdicts of the store's report, with their numbers; nothing where its session is lost."""
    if not store.sessions():
        return []
    return [repr(finding) for finding in load_report(store).study().headline.transfers]
