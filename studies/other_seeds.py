"""Claims of the evidence decided again with other seeds.

    python -m studies.other_seeds --evidence runs/evidence --out runs/other-seeds

Takes the five reproduced claims whose intervals come nearest to an edge of what was accepted, or
those that are named, and measures them with seeds that no run before had. Half an hour of two
cores.
"""

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from depthmup.cli import Display
from depthmup.records import Cell, environment
from depthmup.sweep import MAIN_STORE, Processes, Store, snapshot
from reproduction import Setting, judge, named, plan_claims, reproduce
from reproduction.command import load_evidence
from reproduction.evidence import Comparison, Finding, Reproduction
from reproduction.pages.evidence import measured

FIRST = 1000
"""The first of the other seeds."""

CLOSEST = 5


class OtherSeeds(Store):
    """A store in which every seed stands for another one."""

    def missing(self, asked: Iterable[Any]) -> list[Any]:
        return super().missing(dict.fromkeys(map(_other, asked)))

    def records(self, asked: Iterable[Any]) -> dict[Any, Any]:
        others = {run: _other(run) for run in asked}
        found = super().records(others.values())
        return {run: found[other] for run, other in others.items()}

    def get(self, asked: Any) -> Any:
        return super().get(_other(asked))


def _other(asked: Any) -> Any:
    """A run with the seed that stands for its own; one that has such a seed already, as it is."""
    if not isinstance(asked, Cell) or asked.seed >= FIRST:
        return asked
    return replace(asked, seed=asked.seed + FIRST)


def room(comparison: Comparison) -> float:
    """How far the interval stays from the nearest edge, as a multiple of its half-width."""
    ours, accepted = comparison.ours, comparison.accepted
    half = (ours.high - ours.low) / 2
    away = min(ours.low - accepted.low, accepted.high - ours.high)
    return away / half if half else math.inf


def closest(findings: Iterable[Finding]) -> list[str]:
    """The reproduced figures that were decided most narrowly."""
    decided = {
        f.claim: min(room(c) for c in f.comparisons if c.decisive)
        for f in findings
        if f.group == "figures" and f.verdict is Reproduction.REPRODUCED
    }
    return sorted(decided, key=decided.__getitem__)[:CLOSEST]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("claims", nargs="*", help="names; by default the five closest")
    parser.add_argument("--evidence", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--out", type=Path, default=Path("runs/other-seeds"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    with snapshot(options.evidence / MAIN_STORE) as store:
        before = {f.claim: f for f in load_evidence(store).findings}
    planned = plan_claims(named(options.claims or closest(before.values())), Setting())
    options.out.mkdir(parents=True, exist_ok=True)
    with OtherSeeds(options.out / MAIN_STORE) as store, Display() as display:
        reproduce(
            planned, store=store, executor=Processes(workers=options.workers), tell=display.tell
        )
        again = judge(planned, store, scale="laptop", environment=environment()).findings
    print("| claim | what | accepted | before | other seeds | verdict |")
    print("| --- " * 6 + "|")
    for finding in again:
        for one, other in zip(before[finding.claim].comparisons, finding.comparisons, strict=True):
            if one.decisive:
                numbers = f"{measured(one.ours)} | {measured(other.ours)}"
                verdict = ", then ".join(dict.fromkeys((one.verdict, other.verdict)))
                print(f"| {finding.claim} | {one.what} | {one.accepted} | {numbers} | {verdict} |")


if __name__ == "__main__":
    main()
