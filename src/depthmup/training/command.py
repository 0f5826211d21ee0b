"""Training one trial by a person's own command: run it, end it, and read the loss that it left."""

import csv
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from depthmup.model.command import Command, CommandError, names_of
from depthmup.records import Record, Status, Trial
from depthmup.records.reported import Wanted, step_of
from depthmup.records.sizes import size_text
from depthmup.training import watch

LARGEST_OUTPUT = 64 * 2**20
"""Bytes of a run's output, and of the file of its loss."""

LOOK = 0.05
"""Seconds between looks at the output's size."""

TAIL, TAIL_BYTES = 12, 8192
"""Last lines of the output that a message has, and how much of the file is read for them."""

LONGEST_LINE = 65536
"""Characters of a line that a regular expression is matched to."""

PATIENCE = 15.0
"""Seconds for an earlier attempt at the same run to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFolders:
    """The folder of every run's folder and log, and where commands start."""

    folder: str
    start: str  # absolute, as a worker may be started elsewhere

    def out(self, trial: Trial) -> Path:
        """The run's own folder, ``{out}``."""
        return Path(self.folder) / trial.key[:16]

    def log(self, trial: Trial) -> Path:
        """The file of the run's output; its first line is the command."""
        return self.out(trial).with_suffix(".log")


def run_command(
    trial: Trial, command: Command, folders: RunFolders | None, *, threads: int = 1
) -> Record[Trial]:
    """Run the command of a trial, in an empty folder; a loss that is not finite has diverged."""
    with _placed(folders) as at:
        out, log = at.out(trial), at.log(trial)
        words = command.filled(trial, out)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as sink:
            _wait_for_others(sink, log)
            shutil.rmtree(out, ignore_errors=True)  # of an attempt that was interrupted
            out.mkdir(parents=True, exist_ok=True)
            sink.truncate(0)
            sink.write(f"$ {shlex.join(words)}\n".encode())
            sink.flush()
            status = _run(words, sink, log, at.start, threads)

        def failed(why: str) -> CommandError:
            shown = log if folders else ""
            return CommandError(_message(words, why, last_lines(log), shown))

        try:
            # Those beyond single precision are not finite.
            values = array("f", _values(command, command.file_of(trial, out), log))
        except ValueError as error:
            if status:
                raise failed(_ended(status)) from None
            raise failed(str(error)) from None
        if status and all(map(math.isfinite, values)):
            raise failed(_ended(status))
        if min(filter(math.isfinite, values), default=0.0) < 0:
            raise failed(
                f"left a loss of {min(values):.4g}. Curves are compared by the logarithm of the "
                "loss: add its lower bound."
            )
        return record_of(trial, values)


def record_of(trial: Trial, values: Sequence[float]) -> Record[Trial]:
    """The record of a run from its reported losses, which are taken to be evenly spaced.

    Each stands for its share of the steps; of several in one step, their mean.

    Example:
        >>> trial = Trial(model="train.py", code="1", size={}, base={}, scheme="sp",
        ...               optimizer="adamw", lr=0.1, steps=4, seed=0)
        >>> record_of(trial, [3.0, 2.0]).losses.tolist()
        [3.0, 3.0, 2.0, 2.0]
    """
    n, steps = len(values), trial.steps
    end = next((i for i, value in enumerate(values) if not math.isfinite(value)), n)
    losses = array("f")
    for step in range(steps):
        first = step * n // steps
        last = max(first + 1, (step + 1) * n // steps)
        if last > end:
            return Record(cell=trial, status=Status.DIVERGED, losses=losses)
        losses.append(math.fsum(values[first:last]) / (last - first))
    return Record(cell=trial, status=Status.FINISHED, losses=losses)


def last_lines(log: Path) -> str:
    """The last lines of a run's output."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    return "\n".join(lines[-TAIL:] if size > TAIL_BYTES else lines[1:][-TAIL:])


def command_and_last_lines(log: Path) -> str:
    """The command of a run, the first line of its file, and the last lines of its output."""
    try:
        with log.open(encoding="utf-8", errors="replace") as file:
            first = file.readline().rstrip()
    except OSError:
        return ""
    return f"{first}\n{last_lines(log)}".rstrip()


def check_command(command: Command, trials: Sequence[Trial]) -> None:
    """Refuse a command whose program is not there, and settings of which it takes no notice."""
    program, *_ = command.words
    if os.name != "posix":
        raise ValueError("Expected Linux or macOS for a command; use train=, a function.")
    if "{" not in program and shutil.which(program) is None:
        raise ValueError(
            f"Expected a program that can be run; there is no {program!r} on the path or from "
            f"{Path.cwd()}. No shell runs: for its syntax, name it, such as bash -c '...'."
        )
    for trial in trials:
        for setting, names in names_of(trial.settings).items():
            if not {*names} & command.placeholders:
                raise ValueError(
                    f"Expected {{{names[0]}}} in the command, by which your script is given "
                    f"{setting}, which is {trial.settings[setting]} at "
                    f"{size_text(trial.size)}; got {command.template!r}."
                )


@contextmanager
def _placed(folders: RunFolders | None) -> Iterator[RunFolders]:
    if folders is not None:
        yield folders
        return
    with tempfile.TemporaryDirectory(prefix="depthmup-") as folder:
        yield RunFolders(folder=folder, start=os.getcwd())


def _run(words: Sequence[str], sink: IO[bytes], log: Path, start: str, threads: int) -> int:
    """The exit status of a command; whatever ends this process or this call ends the command."""
    usual = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", watch.__file__, *words],
        stdin=subprocess.PIPE,
        stdout=sink,
        stderr=subprocess.STDOUT,
        cwd=start,
        env={**usual, **os.environ},
        start_new_session=True,  # Ctrl-C is this process's to handle
    )
    assert process.stdin is not None
    try:
        while True:
            try:
                return process.wait(LOOK)
            except subprocess.TimeoutExpired:
                pass
            if log.stat().st_size > LARGEST_OUTPUT:
                break
    finally:
        process.stdin.close()
        process.wait()
    os.truncate(log, LARGEST_OUTPUT)
    raise CommandError(
        _message(
            words,
            f"was stopped: its output passed {LARGEST_OUTPUT // 2**20} MiB. Let it print less.",
            last_lines(log),
            log,
        )
    )


def _wait_for_others(sink: IO[bytes], log: Path) -> None:
    """Wait until nothing of an earlier attempt writes any more: its processes hold this lock."""
    import fcntl  # which Windows lacks

    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise CommandError(
                    f"Expected no other process to train this run; one still writes to {log}. Wait "
                    "for it, or end it, and run the same again."
                ) from None
            time.sleep(LOOK)
        except OSError:  # a file system without locks
            return
        else:
            return


def _ended(status: int) -> str:
    if status > 128:
        return f"was ended by signal {status - 128}."
    return f"ended with exit status {status}."


def _message(words: Sequence[str], why: str, lines: str, log: Path | str) -> str:
    where = f" ({log})" if log else ""
    shown = (
        f"The last lines of its output{where}:\n{lines}" if lines else f"It printed nothing{where}."
    )
    return f"`{shlex.join(words)}` {why}\n{shown}"


def _values(command: Command, file: Path, log: Path) -> list[float]:
    """The losses that a run reported, in order."""
    if command.pattern:
        return _matched(re.compile(command.pattern), log)
    if not file.is_file():
        there = sorted(p.name for p in file.parent.iterdir()) if file.parent.is_dir() else []
        raise ValueError(
            f"wrote no file {file.name}, in which its loss was expected; its folder has "
            f"{', '.join(there[:10]) or 'nothing'}."
        )
    if file.stat().st_size > LARGEST_OUTPUT:
        raise ValueError(
            f"wrote a file {file.name} of more than {LARGEST_OUTPUT // 2**20} MiB. Log every tenth "
            "step."
        )
    if not command.column:
        return [_number(file.read_text(encoding="utf-8", errors="replace").strip(), file.name)]
    lines = file.suffix in (".jsonl", ".ndjson", ".json")
    with file.open(encoding="utf-8", errors="replace", newline="") as opened:
        rows = _json_rows(opened, file) if lines else _csv_rows(opened, file)
        return _column(rows, command.column, file)


def _column(rows: Iterator[dict[str, Any]], column: str, file: Path) -> list[float]:
    """The losses of a column, up to the one that counts; rows without it belong to other things."""
    points: list[tuple[float, float]] = []
    names: dict[str, None] = {}
    for number, row in enumerate(rows, 1):
        names |= dict.fromkeys(row)
        wanted = Wanted.of(column, row)
        value = row.get(wanted.name)
        if value is not None and value != "":
            where = f"row {number} of {file.name}"
            step = number if wanted.step is None else _number(step_of(row, number), where)
            points.append((step, _number(value, where)))
    wanted = Wanted.of(column, names)
    if not points:
        raise ValueError(
            f"wrote no loss: {file.name} has no value in a column {wanted.name!r}; its columns are "
            f"{', '.join(map(str, [*names][:20])) or 'none'}."
        )
    if not (values := wanted.curve(points)):
        raise ValueError(
            f"wrote no loss of step {wanted.step:g}: the last step in {file.name} is "
            f"{points[-1][0]:g}."
        )
    return values


def _csv_rows(opened: IO[str], file: Path) -> Iterator[dict[str, Any]]:
    reader = csv.DictReader(opened, delimiter="\t" if file.suffix == ".tsv" else ",")
    try:
        for row in reader:
            yield {str(name).strip(): value for name, value in row.items() if name is not None}
    except csv.Error as error:
        raise ValueError(f"wrote a file {file.name} that is no CSV: {error}.") from None


def _json_rows(opened: IO[str], file: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(opened, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"wrote no JSON in line {number} of {file.name}.") from None
        if isinstance(row, dict):
            yield row


def _matched(pattern: "re.Pattern[str]", log: Path) -> list[float]:
    values = []
    with log.open(encoding="utf-8", errors="replace") as opened:
        next(opened, None)  # the command itself
        for line in opened:
            for found in pattern.finditer(line[:LONGEST_LINE]):
                if found[1] is not None:
                    values.append(_number(found[1], "a line of its output"))
    if not values:
        raise ValueError(f"printed no loss: no line of its output matches {pattern.pattern!r}.")
    return values


def _number(value: object, where: str) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"left a loss that is not a number: {str(value)[:60]!r} in {where}.")
