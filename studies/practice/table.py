"""What the sweeps of all entries say: lines, a table in Markdown, and a page to look at."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import depthmup
from depthmup.records import Estimate
from depthmup.statistics import TOLERANCE
from studies.practice.entries import ENTRIES, Entry

AXES = ("width", "depth")
KNOWN = 0.1
"""Octaves per doubling to which changes are meant to be known."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one entry does along an axis under an optimizer: drifts in octaves per doubling."""

    entry: Entry
    optimizer: str
    axis: str
    drift: Estimate
    whole: Estimate

    @property
    def change(self) -> float:
        """Of the drift, against the whole plan's."""
        return self.drift.value - self.whole.value

    @property
    def error(self) -> float:
        """Half of the change's 95% interval, both sweeps' errors taken as independent."""
        return math.hypot(*(e.high - e.low for e in (self.drift, self.whole))) / 2

    @property
    def expected(self) -> float:
        """The change that was written down before."""
        return self.entry.expected(self.optimizer)[AXES.index(self.axis)]

    @property
    def verdict(self) -> str:
        """Breaks: another drift, larger by more than the tolerance. Harmless: no other one, as far
        as can be known here.
        """
        if abs(self.change) > self.error:
            larger = abs(self.drift.value) - abs(self.whole.value)
            if larger > TOLERANCE:
                return "breaks"
            return "moves" if larger > 0 else "better"
        return "harmless" if abs(self.change) + self.error < TOLERANCE + KNOWN else "open"


def drifts(report: depthmup.Report) -> dict[str, Estimate]:
    """By axis."""
    return {study.axis: study.windows[-1].transfers[0].drift for study in report.studies}


def line_of(entry: Entry, optimizer: str, report: depthmup.Report) -> str:
    """As an entry ends."""
    found = drifts(report)
    cells = " ".join(
        f"{axis} {found[axis].value:+.2f} ({found[axis].low:+.2f} to {found[axis].high:+.2f})"
        for axis in AXES
    )
    return f"{entry.name:44} {optimizer:5} {cells}  {len(report.records)} runs"


def folder(out: Path, entry: Entry, optimizer: str, *, first_seed: int, task: str) -> Path:
    """Where the runs of an entry lie."""
    plain = "".join(letter if letter.isalnum() else "-" for letter in entry.name)
    seeds = f"-seeds-{first_seed}" if first_seed else ""
    return out / f"{task}-{optimizer}{seeds}" / plain


def found_in(
    out: Path, optimizer: str, *, first_seed: int = 0, task: str = "digits"
) -> Iterator[Found]:
    """Of every entry that has been measured."""
    places = {e: folder(out, e, optimizer, first_seed=first_seed, task=task) for e in ENTRIES}
    measured = {
        entry: drifts(depthmup.load(place))
        for entry, place in places.items()
        if (place / "summary.json").exists()
    }
    whole = measured.get(ENTRIES[0], {})
    for entry, found in measured.items():
        for axis in AXES if entry is not ENTRIES[0] and whole else ():
            yield Found(
                entry=entry,
                optimizer=optimizer,
                axis=axis,
                drift=found[axis],
                whole=whole[axis],
            )


def _cell(found: Found | None) -> str:
    if found is None:
        return ""
    if not found.drift.known:
        return "not known"
    mark = {"breaks": "**", "open": "?"}.get(found.verdict, "")
    bold = mark if mark == "**" else ""
    number = f"{bold}{found.change:+.2f}{bold} ± {found.error:.2f}"
    return f"{number}{'?' if mark == '?' else ''} ({found.expected:+g})".replace("(+0)", "(0)")


def table(found: Sequence[Found], optimizers: Sequence[str]) -> str:
    """A row for each entry, those that break first and the largest changes first."""
    columns = [(optimizer, axis) for optimizer in optimizers for axis in AXES]
    of = {(f.entry.name, f.optimizer, f.axis): f for f in found}

    def order(entry: Entry) -> tuple[int, float]:
        own = [f for f in found if f.entry is entry]
        most = max((abs(f.change) for f in own), default=0.0)
        return -any(f.verdict == "breaks" for f in own), -most

    entries = [entry for entry in ENTRIES if any(f.entry is entry for f in found)]
    lines = [
        "| practice | " + " | ".join(f"{o}, {axis}" for o, axis in columns) + " |",
        "| --- |" + " ---: |" * len(columns),
    ]
    for entry in sorted(entries, key=order):
        cells = [_cell(of.get((entry.name, *column))) for column in columns]
        lines.append(f"| {entry.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def counts(found: Sequence[Found]) -> str:
    """How many of each verdict, how well they are known, and how many were expected."""
    verdicts = [f.verdict for f in found]
    kinds = ("breaks", "moves", "better", "harmless", "open")
    held = sum(abs(f.change - f.expected) <= f.error for f in found)
    errors = sorted((f.drift.high - f.drift.low) / 2 for f in found)
    return (
        f"Of {len(found)} drifts: {', '.join(f'{verdicts.count(k)} {k}' for k in kinds)}. {held} "
        f"are as expected. Half of a drift's interval: {errors[len(errors) // 2]:.2f} in the "
        f"median, {errors[int(0.9 * len(errors))]:.2f} for nine in ten."
    )


def repeats(found: Sequence[Found], again: Sequence[Found]) -> str:
    """How many drifts, measured with other seeds, agree within the errors of both."""
    of = {(f.entry.name, f.optimizer, f.axis): f.drift for f in again}
    pairs = [
        (f.drift, of[key]) for f in found if (key := (f.entry.name, f.optimizer, f.axis)) in of
    ]
    agree = sum(
        abs(a.value - b.value) <= math.hypot(a.high - a.low, b.high - b.low) / 2 for a, b in pairs
    )
    return f"Of {len(pairs)} drifts that were measured again with other seeds {agree} agree."


def headline(found: Sequence[Found]) -> str:
    """What breaks transfer, the largest change first."""
    broken = sorted(
        (f for f in found if f.verdict == "breaks" and not f.entry.cures),
        key=lambda f: -abs(f.change),
    )
    names = ", ".join(dict.fromkeys(f.entry.name for f in broken))
    return f"Breaks transfer: {names}."
