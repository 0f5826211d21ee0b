"""Gains of networks trained here: foretold from four sizes, judged by a fifth trained afterwards.

    python -m studies.real_gains               # six pairs; a quarter of an hour on two cores
    python -m studies.real_gains --pair tanh

Residual networks on the digits, 150 steps. A pair is two variants of one sweep, or two networks of
one design; rates are found as the sweep goes, and shared seeds pair them.
"""

import argparse
from dataclasses import dataclass, field
from typing import Any

import depthmup
from depthmup import BuiltIn, Design, Execution
from depthmup.records import Estimate
from depthmup.reports.gain import percent, spanned

GRID = 9 * 3
"""Runs of a size in a grid of nine rates and three seeds."""

DEPTHS, WIDTHS = (4, 8, 16, 32, 64), (16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What is compared: the candidate's name, its baseline's, and what is swept.

    Attributes:
        models: of the networks, where these differ.
        design: what else the design says.
        axis: along which sizes grow.
    """

    of: str
    over: str
    axis: str
    models: Any = field(default_factory=BuiltIn)
    design: dict[str, Any]


def networks(**differ: tuple[Any, Any]) -> dict[str, BuiltIn]:
    """Two networks that differ in one thing, by its values."""
    ((name, values),) = differ.items()
    return {str(value): BuiltIn(**{name: value}) for value in values}


PAIRS = {
    "Depth-muP, ODE": Pair(
        of="depth-mup", over="ode", axis="depth", design={"schemes": ("ode", "depth-mup")}
    ),
    "Depth-muP, SP": Pair(
        of="depth-mup", over="sp", axis="depth", design={"schemes": ("sp", "depth-mup")}
    ),
    "tanh, relu": Pair(
        of="tanh",
        over="relu",
        axis="depth",
        models=networks(activation=("relu", "tanh")),
        design={"schemes": "depth-mup"},
    ),
    "Adam, SGD": Pair(
        of="depth-mup adam",
        over="depth-mup sgd",
        axis="width",
        design={"schemes": "depth-mup", "optimizers": ("sgd", "adam")},
    ),
    "layer norm, none": Pair(
        of="True",
        over="False",
        axis="depth",
        models=networks(layer_norm=(False, True)),
        design={"schemes": "depth-mup"},
    ),
    "blocks of two, of one": Pair(
        of="2",
        over="1",
        axis="depth",
        models=networks(block_depth=(1, 2)),
        design={"schemes": "completep"},
    ),
}


def measured(pair: Pair, sizes: tuple[int, ...], workers: int) -> depthmup.Report:
    base = {"width": 32, "depth": 4} if pair.axis == "depth" else {"width": 16, "depth": 4}
    design = Design(base=base, **{pair.axis: sizes}, steps=150, seeds=3, **pair.design)
    on = Execution(workers=workers)
    return depthmup.transfer(pair.models, design, on=on, over=pair.over)


def row(name: str, pair: Pair, workers: int) -> str:
    sizes = DEPTHS if pair.axis == "depth" else WIDTHS
    target = {pair.axis: sizes[-1]}
    said = measured(pair, sizes[:-1], workers).gain(pair.of, over=pair.over, target=target)
    whole = measured(pair, sizes, workers)
    after = whole.gain(pair.of, over=pair.over)
    at_base = next(s.tuned for s in said.sizes if s.size == said.base)
    reached = after.target[pair.axis] == sizes[-1]
    found = after.tuned if reached else None
    return " | ".join(
        [
            f"| {name}, {pair.axis}",
            percent(at_base.value),
            f"{spanned(said.tuned)}: {said.verdict}",
            "no optimum" if found is None else spanned(found),
            "" if found is None else judged(said.tuned, found),
            str(after.verdict) if reached else "",
            f"{runs_of(whole)} of {2 * GRID * len(sizes)} |",
        ]
    )


def runs_of(report: depthmup.Report) -> int:
    """Runs that were trained, points of curves times their seeds."""
    window = report.study().headline
    return sum(point.seeds for curve in window.curves for point in curve.points)


def judged(said: Estimate, found: Estimate) -> str:
    """Whether the forecast holds what was found; missed if the two intervals do not meet."""
    if said.low <= found.value <= said.high:
        return "held"
    return "missed" if said.high < found.low or said.low > found.high else "beside"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pair", default="")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    columns = ("pair", "base", "foretold (90%)", "found (95%)", "forecast", "with it", "of a grid")
    print(f"| {' | '.join(columns)} |")
    print(f"|{' --- |' * len(columns)}")
    for name, pair in PAIRS.items():
        if options.pair in name:
            print(row(name, pair, options.workers), flush=True)


if __name__ == "__main__":
    main()
