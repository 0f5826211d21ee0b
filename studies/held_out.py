"""Do predictions hold on a table of runs that exists? The largest sizes out, the smaller ones in.

    python -m studies.held_out runs.csv --axes N D bs --lr lr --loss loss
    python -m studies.held_out runs.csv --axes rank --by model --lr lr --loss loss

Along each axis, all else equal, every number of the smallest sizes predicts the larger ones, up to
three doublings ahead. What is predicted is the centre of the valley at the size left out, fitted to
its own runs; its error counts in the interval. Beside the law (``statistics.law``) stands what
needs none: the optimum of the nearest size measured, and a straight line.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from depthmup.records import Place
from depthmup.statistics import Curves, optima
from depthmup.statistics.law import CONFIDENCE, Law, predict

FARTHEST, FEWEST_RATES, FEWEST_SIZES = 3.5, 4, 3
LEAST_ERROR = 0.03
"""Octaves: fits of smooth curves have scatters of next to nothing."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One prediction, in octaves, and what came out."""

    axis: str
    ahead: float
    error: float
    half: float
    nearest: float
    line: float


def arms(
    table: pd.DataFrame, axes: Sequence[str], by: Sequence[str], lr: str, loss: str
) -> Iterator[tuple[str, list[tuple[float, float, float]]]]:
    """Along each axis the sizes with an optimum inside: (size, centre, its standard error)."""
    for axis in axes:
        others = [name for name in (*axes, *by) if name != axis]
        groups = table.groupby(others) if others else [((), table)]
        for _, arm in groups:
            found = []
            for size, runs in arm.groupby(axis):
                curve = runs.groupby(lr)[loss].mean().sort_index()
                if len(curve) < FEWEST_RATES:
                    continue
                rates = np.log2(curve.index.to_numpy(float))
                fitted = optima(Curves.of(rates, [curve.to_numpy(float)[:, None]]))
                if fitted.places()[0] is Place.INTERIOR:
                    scatter = max(float(fitted.scatter[0]), LEAST_ERROR)
                    error = math.hypot(float(fitted.misfit[0]), scatter)
                    found.append((float(size), float(fitted.centre[0]), error))
            yield axis, found


def cases(axis: str, arm: list[tuple[float, float, float]]) -> Iterator[Case]:
    """Every prediction along one arm."""
    sizes, values, errors = np.array(arm).T if arm else np.zeros((3, 0))
    for count in range(FEWEST_SIZES, len(arm)):
        law = Law(
            base={axis: float(sizes[0])},
            sizes=tuple({axis: float(n)} for n in sizes[:count]),
            values=values[:count],
            without=np.zeros((0, count)),
            groups=[],
            known=errors[:count],
        )
        for i in range(count, len(arm)):
            ahead = math.log2(sizes[i] / sizes[count - 1])
            if ahead > FARTHEST:
                continue
            size = {axis: float(sizes[i])}
            prediction = predict(law, size).shifted(0.0, float(errors[i]), stream=7)
            interval = prediction.estimate(confidence=CONFIDENCE)
            yield Case(
                axis=axis,
                ahead=ahead,
                error=prediction.value - float(values[i]),
                half=interval.high - interval.value,
                nearest=float(values[count - 1] - values[i]),
                line=float(law.weights(size) @ law.values - values[i]),
            )


def report(name: str, some: Sequence[Case]) -> str:
    """One row: how many, held, and root mean square errors in octaves."""

    def rms(values: Iterator[float]) -> float:
        return math.sqrt(float(np.mean(np.square(list(values)))))

    held = np.mean([abs(c.error) <= c.half for c in some])
    return (
        f"| {name} | {len(some)} | {held:.0%} | {rms(c.error for c in some):.2f} | "
        f"{rms(c.nearest for c in some):.2f} | {rms(c.line for c in some):.2f} | "
        f"{np.median([c.half for c in some]):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--axes", nargs="+", required=True)
    parser.add_argument("--by", nargs="*", default=[])
    parser.add_argument("--lr", default="lr")
    parser.add_argument("--loss", default="loss")
    options = parser.parse_args()
    table = pd.read_csv(options.table)
    table = table[table[[options.lr, options.loss]].notna().all(axis=1)]
    lines = arms(table, options.axes, options.by, options.lr, options.loss)
    found = [case for axis, arm in lines for case in cases(axis, arm)]
    if not found:
        raise SystemExit("No arm has three sizes with an optimum inside, and a larger one.")
    print("| | predictions | held of 90% | law | nearest size | line | half-width |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for axis in dict.fromkeys(case.axis for case in found):
        print(report(axis, [case for case in found if case.axis == axis]))
    for ahead in (1, 2, 3):
        some = [case for case in found if max(1, round(case.ahead)) == ahead]
        if some:
            print(report(f"{ahead} doubling{'s' * (ahead > 1)} ahead", some))
    print(report("all", found))


if __name__ == "__main__":
    main()
