"""Signals at random moments of every verb that writes files, which then must be as they would be.

A file that is there is whole; what was asked to end does so without a traceback, with no draft and
no process left; the same command again gives what it gives without an interruption.
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
from itertools import cycle, islice
from pathlib import Path

from own_models import SOURCE

from depthmup.tables import example
from studies.attack.interruptions import SIGNALS, ended
from studies.attack.sweeps import command

ENDS = {".html": "</html>", ".json": "}", ".svg": "</svg>"}
"""How whole files end."""

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}


def attack(count: int, folder: Path, seed: int) -> Counter[str]:
    (folder / "attacked.py").write_text(SOURCE)
    rng, outcomes = random.Random(seed), Counter[str]()
    whole = {}
    for verb, words in _commands(folder).items():
        out = folder / f"{verb}-whole"
        begin = time.monotonic()
        status = _start(words, out).wait()
        if not _names(out):
            outcomes[f"NOT EVEN A WHOLE {verb}: status {status}"] += 1
            continue
        whole[verb] = words, time.monotonic() - begin, _names(out), status
    for verb in islice(cycle(whole), count):
        words, seconds, names, usual = whole[verb]
        out = folder / f"{verb}-stopped"
        number = rng.choice(SIGNALS)
        _stopped(verb, _start(words, out), number, seconds * rng.random(), out, outcomes)
        if number is not signal.SIGKILL and any(n.startswith(".") for n in _names(out)):
            outcomes[f"A DRAFT LEFT: {verb}"] += 1
        for file in (file for file in out.rglob("*") if file.suffix in ENDS):
            # Drafts of what was killed are what they are.
            text = file.read_text(errors="replace").rstrip()
            if not file.name.startswith(".") and not text.endswith(ENDS[file.suffix]):
                outcomes[f"HALF A FILE: {verb}, {file.name}"] += 1
        if (again := _start(words, out).wait()) != usual:
            outcomes[f"AGAIN, STATUS {again}: {verb}"] += 1
            print(out.with_suffix(".err").read_text(errors="replace"), file=sys.stderr)
        elif _names(out) != names:  # nor has it left the drafts of what was killed
            outcomes[f"OTHER FILES: {verb}"] += 1
        else:
            outcomes[f"the same files after it ({verb})"] += 1
        shutil.rmtree(out, ignore_errors=True)
    return outcomes


def _commands(folder: Path) -> dict[str, list[str]]:
    model, table = f"--model {folder}/attacked.py:make", str(example())
    columns = "--axes depth=n_layers --lr lr --loss final_loss --seed seed --by scheme"
    return {
        verb: [verb, *words.split()]
        for verb, words in {
            "check": f"{model} --widths 8 --depths 2 4 8 --seeds 2 --steps 1",
            "predict": f"{model} --base 16x2 --depths 4 8 --seeds 2",
            "plan": f"{model} --base 16x2 --target 32x4",
            "fit": f"{table} {columns} --target depth=64",
            "reproduce": "erratum2",
        }.items()
    }


def _start(words: list[str], out: Path) -> "subprocess.Popen[bytes]":
    return command([*words, "--out", _out(words[0], out)], out.with_suffix(".err"))


def _out(verb: str, out: Path) -> Path:
    """``predict`` names its page, the others a folder."""
    return out / "page.html" if verb == "predict" else out


def _names(out: Path) -> set[str]:
    return {str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()}


def _stopped(
    verb: str,
    driver: "subprocess.Popen[bytes]",
    number: signal.Signals,
    seconds: float,
    out: Path,
    outcomes: Counter[str],
) -> None:
    """Send the signal after so many seconds, and note what it should not have done."""
    with suppress(subprocess.TimeoutExpired):
        driver.wait(seconds)
    with suppress(ProcessLookupError):
        os.kill(driver.pid, number)
    status = ended(driver, f"{number.name}: {verb}", outcomes)
    # A signal before Python has come to the command, or after it is done, is the system's.
    if status not in (0, 2, STATUS[number], -number):
        outcomes[f"STATUS {status} AFTER {number.name}: {verb}"] += 1
    text = out.with_suffix(".err").read_text(errors="replace")
    if "Traceback" in text and "/depthmup/" in text:
        outcomes[f"A TRACEBACK AFTER {number.name}: {verb}"] += 1
        print(f"{verb} {number.name}:\n{text}", file=sys.stderr, flush=True)
