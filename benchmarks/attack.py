"""An attack on the whole of it: interruptions, flipped bits, mutated files, bad input.

    python -m benchmarks.attack            # everything; about an hour on two cores
    python -m benchmarks.attack --slice    # a fortieth of it; what CI runs
    python -m benchmarks.attack bits       # one part

Prints one table of counts, in Markdown, and exits with 1 if anything got through.
"""

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from depthmup.cli import main as depthmup
from depthmup.cli.refusals import DEFECT
from depthmup.model.time_limit import time_limit
from depthmup.sweep import InProcess, Store, StoreError, along_depth, run

COUNTS = {"interruptions": 200, "bits": 500, "readers": 2000, "inputs": 300}
SLICE = 40
HANG = 60.0
"""Seconds after which a refusal counts as a hang."""

GRID = along_depth(
    schemes=("depth-mup", "ode"),
    depths=(2, 4, 8),
    base_depth=2,
    log2_lrs=(-5.0, -4.0, -3.0, -2.0),
    seeds=3,
    width=16,
    batch_size=16,
    steps=20,
    window=10,
)
SWEEP = (
    "transfer --preset tiny --depths 2 4 8 --base 32x2 --steps 4000 --window 100 "
    "--log2-lrs -9 -8 -7 --seeds 3 --schemes depth-mup sp --workers 2 --json --out"
)


def content(store: Store) -> dict[str, Any]:
    """Everything in a store that a verdict depends on."""
    results = {each.key: store.get(each) for each in GRID.runs}
    return {"results": results, "sessions": store.sessions()}


def bits(count: int, folder: Path) -> Counter[str]:
    """Single flipped bits anywhere in a store: noticed, or without any effect."""
    path = folder / "results.sqlite"
    with Store(path) as store:
        about = {"sweep": GRID.to_dict(), "tolerance": 0.15, "command": [], "environment": {}}
        run(GRID.runs, store=store, executor=InProcess(), about=about)
        whole = content(store)
        store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw, rng, seen = path.read_bytes(), random.Random(0), Counter[str]()
    for number in range(count):
        flipped = bytearray(raw)
        flipped[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        copy = folder / f"{number}.sqlite"
        copy.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                with Store(copy) as store:
                    left = content(store)
            except StoreError:
                seen["refused as a whole"] += 1
                continue
            finally:
                for part in folder.glob(f"{number}.sqlite*"):
                    part.unlink()
        wrong = [k for k, record in left["results"].items() if record != whole["results"][k]]
        missing = sum(left["results"][key] is None for key in wrong)
        if len(wrong) > missing or any(s not in whole["sessions"] for s in left["sessions"]):
            seen["CHANGED UNSEEN"] += 1
        elif told:
            seen["named, and trained again"] += 1
        else:
            seen["trained again" if missing else "without effect"] += 1
    return seen


def readers(count: int, folder: Path) -> Counter[str]:
    """Mutated certificates and plans: read, or refused by the reader's own error."""
    from records_mutations import texts
    from test_loaders import certificate, plan, sealed

    from depthmup.planning import PlanDocumentError, document
    from depthmup.planning.plan import Plan
    from depthmup.records import Certificate

    kinds: list[tuple[str, Callable[[str], Any], type[Exception], Iterator[str]]] = [
        (
            "certificates",
            Certificate.from_json,
            ValueError,
            texts(json.loads(certificate().to_json()), count, 1),
        ),
        (
            "plans",
            lambda text: str(Plan(**document.loads(text))),
            PlanDocumentError,
            texts(json.loads(document.dumps(plan())), count, 1, seal=sealed),
        ),
    ]
    seen = Counter[str]()
    for kind, read, error, sources in kinds:
        for text in sources:
            try:
                with time_limit(HANG, "Reading"):
                    read(text)
                seen[f"{kind}: still what they should be"] += 1
            except error as refusal:
                own = type(refusal) is error
                seen[f"{kind}: refused" if own else f"{kind}: ANOTHER ERROR"] += 1
            except Exception as other:
                seen[f"{kind}: ANOTHER ERROR {type(other).__name__}"] += 1
    return seen


VALUES = (
    *("nan", "inf", "-inf", "-1", "0", "1e99", "1e99999999", "100000000000", "x", "", "\x1b[2J"),
    *("/dev/null/x", "é", "1/0", "9" * 5000, "../" * 50 + "nowhere/x", "\udcff", "a\nb", "2000"),
)


def command_lines(folder: Path) -> Iterator[list[str]]:
    """Commands of every verb with one option spoilt, in turn."""
    model = f"{folder}/attacked.py:make"
    own = ["--base", "16x2", "--depths", "2", "4", "--steps", "2", "--seeds", "2", "--workers", "1"]
    own += ["--log2-lrs", "-6", "-5", "--own-init", "fan_in", "--out", "out/deep"]
    sizes = ["--widths", "8", "--depths", "2", "4", "8", "--seeds", "2", "--steps", "1"]
    networks = ["--preset", "tiny", "--depths", "2", "4", "--base", "8x2", "--steps", "4"]
    networks += ["--window", "2", "--log2-lrs", "-7", "-6", "--workers", "1"]
    spoilt = {
        ("transfer", "--model", model, *own): (
            *("base", "target", "depths", "widths", "schemes", "optimizers", "log2-lrs", "seeds"),
            *("steps", "window", "multipliers", "weight-decays", "warmup", "clip", "tolerance"),
            *("threads", "device", "log", "out", "batch", "loss", "shard", "trial-seconds"),
        ),
        ("transfer", *networks, "--out", "out/deep"): (
            *("data", "schemes", "depths", "log2-lrs", "seeds", "base", "steps", "window"),
            *("tolerance", "target", "device", "multiplier", "epsilon", "out", "batch-size"),
        ),
        ("check", "--model", model, *sizes): ("scheme", "optimizer", "widths", "lr", "out"),
        ("plan", "--model", model, "--base", "16x2", "--target", "32x4"): (
            *("base", "target", "scheme", "optimizer", "explain", "out", "batch"),
        ),
        ("regimes",): ("alpha", "gamma", "map", "depths"),
        ("limit", "--steps", "2"): ("depth", "activation", "lr", "alpha", "tol", "out", "steps"),
        ("reproduce", "fig1", "--out", "out/deep"): ("data", "scale", "device"),
        ("report",): ("",),
        ("merge",): ("",),
    }
    for value in VALUES:
        for command, options in spoilt.items():
            for option in options:
                if option in ("seeds", "steps", "window") and value == "2000":
                    continue  # many, and right
                yield [*command, *([f"--{option}"] if option else []), value]


def inputs(count: int, folder: Path) -> Counter[str]:
    """Bad input over every verb: refused, in time, with nothing left behind."""
    from own_models import SOURCE

    (folder / "attacked.py").write_text(SOURCE)
    lines = list(command_lines(folder))
    random.Random(0).shuffle(lines)
    here, seen = Path.cwd(), Counter[str]()
    for number, words in enumerate(itertools.islice(lines, count)):
        within = folder / f"inputs-{number}"
        within.mkdir()
        os.chdir(within)
        said = io.StringIO()
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(said),
                time_limit(HANG, "A command"),
            ):
                status: Any = depthmup(words)
        except SystemExit as left:  # the command line's own parser
            status = left.code
        except BaseException as error:
            status = f"ESCAPED {type(error).__name__}"
        os.chdir(here)
        shown = " ".join(words[:1] + words[-2:])[:80]
        if "A command was stopped" in said.getvalue():
            seen["HUNG"] += 1
            print(f"hung: {shown!r}", file=sys.stderr)
        elif status not in (0, 1, 2, 3):
            seen[f"MISTAKE OF OURS ({status})"] += 1
            print(f"mistake ({status}, {DEFECT=}): {shown!r}\n{said.getvalue()}", file=sys.stderr)
        elif "depthmup: " in said.getvalue() and any(within.iterdir()):
            seen["REFUSED, WITH SOMETHING LEFT BEHIND"] += 1
            print(f"left behind: {shown!r} {list(within.rglob('*'))}", file=sys.stderr)
        else:
            seen["refused, nothing left behind" if status else "right after all, and done"] += 1
        shutil.rmtree(within)
    return seen


def interruptions(count: int, folder: Path) -> Counter[str]:
    """Signals at random moments; the sweep is started again each time, and its records compared."""
    whole = records(sweep(folder / "whole"), folder / "whole")
    rng, seen, out = random.Random(0), Counter[str](), folder / "interrupted-0"
    while seen.total() < count:
        process = sweep(out, wait=False)
        try:
            process.wait(rng.uniform(0.2, 6.0))
        except subprocess.TimeoutExpired:
            seen[interrupt(process, rng)] += 1
            process.wait()
            continue
        same = records(process, out) == whole
        seen["sweeps finished, to the same bits" if same else "OTHER RECORDS"] += 1
        shutil.rmtree(out, ignore_errors=True)
        out = folder / f"interrupted-{seen.total()}"
    same = records(sweep(out), out) == whole
    seen["sweeps finished, to the same bits" if same else "OTHER RECORDS"] += 1
    return seen


def sweep(out: Path, *, wait: bool = True) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-m", "depthmup", *SWEEP.split(), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    if wait:
        process.wait()
    return process


def interrupt(process: "subprocess.Popen[bytes]", rng: random.Random) -> str:
    """Send one signal to the driver, to one of its workers, or to all of them."""
    number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    whom = rng.choice(["driver", "worker", "group"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = children.read_text().split() if children.exists() else []
    with contextlib.suppress(ProcessLookupError):
        if whom == "group":
            os.killpg(process.pid, number)
        elif whom == "worker" and workers:
            os.kill(int(rng.choice(workers)), signal.SIGKILL)
        else:
            os.kill(process.pid, number)
    if whom == "worker":  # the driver goes on: let it, for a while
        time.sleep(rng.uniform(0.0, 2.0))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return f"signals to the {whom}"


def records(process: "subprocess.Popen[bytes]", out: Path) -> str:
    """A hash of all records of a finished sweep, or what went wrong."""
    if process.returncode not in (0, None):
        return f"exit status {process.returncode}"
    with Store(out / "results.sqlite", must_exist=True) as store:
        rows = store._db.execute("SELECT * FROM records ORDER BY key").fetchall()
    return f"{len(rows)} {hashlib.sha256(repr(rows).encode()).hexdigest()}"


PARTS: dict[str, Callable[[int, Path], Counter[str]]] = {
    "interruptions": interruptions,
    "bits": bits,
    "readers": readers,
    "inputs": inputs,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--slice", action="store_true", help="a fortieth of everything")
    parser.add_argument("--count", type=int, default=0, help="of each part, instead of its own")
    options = parser.parse_args()
    if unknown := {*options.parts} - {*PARTS}:
        parser.error(f"expected parts of {', '.join(PARTS)}; got {', '.join(sorted(unknown))}")
    broken = False
    print("| attack | outcome | count |\n| --- | --- | --- |", flush=True)
    for part in options.parts or PARTS:
        full = options.count or COUNTS[part]
        with tempfile.TemporaryDirectory() as folder:
            seen = PARTS[part](max(1, full // SLICE) if options.slice else full, Path(folder))
        for outcome, number in sorted(seen.items()):
            print(f"| {part} | {outcome} | {number} |", flush=True)
            broken |= any(word.isupper() and len(word) > 1 for word in outcome.split())
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
