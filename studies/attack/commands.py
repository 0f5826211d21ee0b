"""Bad input over every verb and every one of its options: refused, in time, with nothing left.

A command may also be right after all, or end with an error of the person's own code. What it must
not do: raise, hang, leave files or folders behind after a refusal, or let text from outside command
the terminal.
"""

import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
import typing
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from own_models import SOURCE

from depthmup.cli import main as depthmup
from depthmup.cli.verbs import module_of
from depthmup.model.time_limit import time_limit
from depthmup.tables import example

HANG = 60.0
"""Seconds after which a command counts as hanging; those here have a second of work."""

VALUES = (
    *("nan", "inf", "-inf", "-1", "0", "1e99", "1e99999999", "100000000000", "x", "", "\x1b[2J"),
    *("/dev/null/x", "é", "1/0", "9" * 5000, "../" * 50 + "nowhere/x", "\udcff", "a\nb", "2000"),
    *("depth=nan", "depth=4,0", "width=-1 depth=4", "=", "a=b=c", "1.5", "0x10", "None", "\x9b2J"),
)
# Long work, and right.
LONG = {"2000", "100000000000", "1e99"}
AMOUNTS = {"seeds", "steps", "window", "budget", "points", "depth", "depths", "widths", "along"}
AMOUNTS |= {"batch-size", "base", "target", "warmup", "trial-seconds", "batches", "block-depth"}


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    (folder / "attacked.py").write_text(SOURCE)
    outcomes, here, drafts = Counter[str](), Path.cwd(), folder / "drafts"
    drafts.mkdir()
    tempfile.tempdir = str(drafts)
    try:
        for number, words in enumerate(command_lines(count, folder, seed)):
            within = folder / f"commands-{number}"
            within.mkdir()
            os.chdir(within)
            outcome = _outcome(words, within, drafts)
            os.chdir(here)
            outcomes[outcome] += 1
            if outcome.isupper():
                print(f"{outcome}: {' '.join(words)[-200:]!r}", file=sys.stderr, flush=True)
            shutil.rmtree(within)
    finally:
        os.chdir(here)
        tempfile.tempdir = None
    return outcomes


def command_lines(count: int, folder: Path, seed: int) -> Iterator[list[str]]:
    """Commands that are right but for one option, the verbs in turn."""
    rng = random.Random(seed)
    spoilt = []
    for command in _commands(folder):
        pairs = [(option, value) for option in _options(command) for value in VALUES]
        pairs = [(o, v) for o, v in pairs if not (o in AMOUNTS and v in LONG)]
        rng.shuffle(pairs)
        spoilt.append((command, pairs))
    for number in range(count):
        command, pairs = spoilt[number % len(spoilt)]
        option, value = pairs[number // len(spoilt) % len(pairs)]
        yield [*command, *([f"--{option}"] if option else []), value]


def _commands(folder: Path) -> Iterator[list[str]]:
    model, table = f"{folder}/attacked.py:make", str(example())
    own = "--base 16x2 --depths 2 4 --steps 4 --seeds 2 --workers 1 --own-init fan_in"
    own += " --out out/deep"
    networks = "--preset tiny --depths 2 4 --base 8x2 --steps 4 --window 2 --workers 1"
    networks += " --out out/deep"
    columns = "--lr lr --loss final_loss --seed seed"
    yield from (
        f"transfer --model {model} {own} --lrs 0.015625 0.03125".split(),
        f"transfer --model {model} {own} --budget 12".split(),
        f"transfer {networks} --lrs 0.0078125 0.015625".split(),
        f"transfer {networks} --budget 12".split(),
        f"check --model {model} --widths 8 --depths 2 4 8 --seeds 2 --steps 1".split(),
        f"plan --model {model} --base 16x2 --target 32x4".split(),
        f"predict --model {model} --base 16x2 --depths 4 --seeds 2".split(),
        ["limit", "--steps", "2"],
        ["limit", "--optimum", "--depths", "8", "16"],
        ["regimes"],
        ["rules", "--base", "batch=32", "steps=100", "--target", "batch=64", "steps=100"],
        f"fit {table} --axes depth=n_layers {columns} --by scheme --out out/deep".split(),
        f"next {table} --axes depth=n_layers {columns} --sizes depth=8,16,32".split(),
        ["reproduce", "erratum2", "--out", "out/deep"],
        ["report"],
        ["merge"],
        ["doctor"],
    )


def _options(command: list[str]) -> list[str]:
    """The options of a verb that take a value, and the empty name for a word without an option."""
    names = [""]
    pending = [module_of(command[0]).Options]
    while pending:
        kind = pending.pop()
        hints = typing.get_type_hints(kind)
        for each in fields(kind):
            if is_dataclass(hints[each.name]):
                pending.append(hints[each.name])
            elif hints[each.name] is not bool:
                names.append(each.name.replace("_", "-"))
    # The model is the person's own code: what can be wrong with it has tests of its own.
    return [name for name in names if name not in ("model", "train", "executor", "address")]


def _outcome(words: list[str], within: Path, drafts: Path) -> str:
    out, err, parsed = io.StringIO(), io.StringIO(), True
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with time_limit(HANG, "A command"):
                status: Any = depthmup(words)
        except SystemExit as left:  # the command line's own parser
            status, parsed = left.code, False
        except BaseException as error:
            return f"ESCAPED {type(error).__name__}".upper()
    said = out.getvalue() + err.getvalue()
    if "A command was stopped" in said:
        return "HUNG"
    if status not in (0, 1, 2, 3) or ("Traceback" in said and status != 3):
        print(said[-1500:], file=sys.stderr)
        return f"MISTAKE OF OURS, STATUS {status}"
    # The parser repeats a person's own words as they are.
    if parsed and any((ord(c) < 32 and c not in "\n\r\t") or 127 <= ord(c) < 160 for c in said):
        return "CONTROLS THE TERMINAL"
    names = [path.name for path in drafts.iterdir()]
    # PyTorch keeps a cache of its own there.
    if left := [name for name in names if not name.startswith("torchinductor")]:
        for name in left:
            shutil.rmtree(drafts / name, ignore_errors=True)
            (drafts / name).unlink(missing_ok=True)
        print(f"drafts: {left}", file=sys.stderr)
        return "LEFT A DRAFT BEHIND"
    if ("error: " in err.getvalue() or not parsed) and status == 2 and any(within.iterdir()):
        return "REFUSED WITH SOMETHING LEFT BEHIND"
    outcomes = {0: "right after all", 1: "right after all", 2: "refused, nothing left behind"}
    return outcomes.get(status, "ended with an error of the person's code")
