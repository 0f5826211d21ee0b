"""Twenty plain torch models as people write them, default initialization: planned and checked.

    python -m studies.plain                  # all of them: the table of docs/studies/check.md
    python -m studies.plain --only conv      # those whose name contains "conv"

No flag is given to any of them. Each is planned at four times the width and depth of its base, and
checked with the scheme that suits its blocks; none may be refused, and none may fail.
"""

import argparse
import time
from typing import Any

import torch
from torch import nn

from depthmup.diagnostics import check
from depthmup.model import Model
from depthmup.planning import Plan, plan, recorded
from depthmup.records import Check, Outcome
from tests.zoo.plain import PLAIN


def planned(name: str, *, width: int = 64, depth: int = 8) -> tuple[Plan, nn.Module]:
    """The plan of one model from a base of a quarter of its width and depth."""
    plain = PLAIN[name]
    base, base_drawn = recorded(lambda: plain.make(width // 4, depth // 4))
    model, drawn = recorded(lambda: plain.make(width, depth))
    inputs, _ = plain.batch(torch.Generator().manual_seed(0))
    made = plan(
        model, base=base, scheme=plain.scheme, example_inputs=inputs, drawn=(drawn, base_drawn)
    )
    return made, model


def examine(
    name: str,
    *,
    widths: tuple[int, ...] = (32, 64, 128),
    depths: tuple[int, ...] = (4, 8, 16),
    seeds: int = 3,
    steps: int = 3,
    **options: Any,
) -> Check:
    """The check of one model, with no flag."""
    plain = PLAIN[name]
    return check(
        Model(make=plain.make, batch=plain.batch),
        scheme=plain.scheme,
        widths=widths,
        depths=depths,
        seeds=seeds,
        steps=steps,
        **options,
    )


def not_passed(result: Check, most: int | None = None) -> str:
    """The exponents of a check that failed or are undecided, in words; at most so many of them."""
    rest = [e for e in result.exponents if e.outcome in (Outcome.FAIL, Outcome.UNDECIDED)]
    words = [
        f"{e.module} {e.observable} ({e.axis}): {e.estimate.value:+.2f}, not {e.expected}"
        for e in rest[:most]
    ]
    return "; ".join(words + [f"{len(rest) - len(words)} more"] * (len(rest) > len(words)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name contains this")
    only_these = parser.parse_args().only
    torch.set_num_threads(1)
    print("| model | scheme | plan | check | exponents not passed |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    names = [name for name in PLAIN if only_these in name]
    refused = failed = undecided = 0
    started = time.process_time()
    for name in names:
        try:
            made, model = planned(name)
            made.initialize(model)
            verdict, open_ones = "planned", ""
            result = examine(name)
        except ValueError as problem:
            refused += 1
            print(f"| {name} | {PLAIN[name].scheme} | refused: {problem} | | |", flush=True)
            continue
        failed += result.outcome is Outcome.FAIL
        undecided += result.outcome is Outcome.UNDECIDED
        open_ones = not_passed(result)
        print(
            f"| {name} | {PLAIN[name].scheme} | {verdict} | {result.outcome} | {open_ones} |",
            flush=True,
        )
    print(
        f"\n{refused} of {len(names)} refused, {failed} failed, {undecided} undecided. "
        f"{time.process_time() - started:.0f} s of one core."
    )


if __name__ == "__main__":
    main()
