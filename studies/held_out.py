"""Do predictions hold on a table of runs that exists? The largest sizes out, the smaller ones in.

    python -m studies.held_out runs.csv --axes N D bs --lr lr --loss loss
    python -m studies.held_out runs.csv --axes rank --by model --lr lr --loss loss
    python -m studies.held_out runs.csv --axes N D bs --lr lr --loss loss --halves

Along each axis, all else equal, every number of the smallest sizes predicts the larger ones, up to
three doublings ahead. What is predicted is the minimum at the size left out, by the posterior of
all sizes; its error counts in the interval. Beside the law (``posterior.law``) stands what needs
none: the minimum of the nearest size measured, and a straight line. A certificate's bound on the
excess loss of its rate is held against the valley of the size left out.

With ``--halves`` every second rate of each curve gives one drift along an arm, the others another.
They differ by what noise and the fit leave open, and by nothing that sizes or laws have.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from depthmup.records import Place
from depthmup.statistics import Curves, Optima, calibrate, drift, minima, optima, student
from depthmup.statistics.directions import Directions
from depthmup.statistics.forecast import CONFIDENCE, Forecast

FARTHEST, FEWEST_RATES, FEWEST_SIZES = 3.5, 4, 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """One prediction, in octaves, and what came out.

    Attributes:
        excess: of the certified rate at the size left out, a fraction; its ``bound`` is not a
            number where the certificate is refused.
    """

    axis: str
    ahead: float
    error: float
    half: float
    held: bool
    nearest: float
    line: float
    excess: float
    bound: float


def arms(
    table: pd.DataFrame, axes: Sequence[str], by: Sequence[str], lr: str, loss: str
) -> Iterator[tuple[str, dict[float, pd.Series]]]:
    """Along each axis the mean curves of sizes with an optimum inside."""
    for axis in axes:
        others = [name for name in (*axes, *by) if name != axis]
        groups = table.groupby(others) if others else [((), table)]
        for _, arm in groups:
            means = {
                float(size): runs.groupby(lr)[loss].mean().sort_index()
                for size, runs in arm.groupby(axis)
            }
            yield axis, {n: c for n, c in sorted(means.items()) if _inside(c)}


def _inside(curve: pd.Series) -> bool:
    return len(curve) >= FEWEST_RATES and _fitted([curve]).places()[0] is Place.INTERIOR


def _fitted(curves: Sequence[pd.Series]) -> Optima:
    rates = [np.log2(curve.index.to_numpy(float)) for curve in curves]
    return optima(Curves.of(rates, [curve.to_numpy(float)[:, None] for curve in curves]))


def cases(axis: str, arm: dict[float, pd.Series]) -> Iterator[Case]:
    """Every prediction along one arm."""
    if len(arm) <= FEWEST_SIZES:
        return
    lengths, sizes = list(arm), [{axis: size} for size in arm]
    whole = minima(_fitted(list(arm.values())), sizes)
    normal = float(student(math.inf, CONFIDENCE))
    for count in range(FEWEST_SIZES, len(arm)):
        part = _fitted([arm[size] for size in lengths[:count]])
        found, x = minima(part, sizes[:count]), np.log2(lengths)
        where = Directions(base=sizes[0], sizes=sizes[:count])
        line = np.polyfit(x[:count], found.at, 1)
        for i in range(count, len(arm)):
            ahead = math.log2(lengths[i] / lengths[count - 1])
            if ahead > FARTHEST:
                continue
            size, truth = sizes[i], float(whole.at[i])
            error = normal * float(whole.posterior.deviation[i])
            interval = Forecast(found=found, where=where, target=size).optimum(size)
            certificate = calibrate(sizes=sizes[:count], curves=part.curves, target=size)
            away = interval.value - truth
            below, above = interval.value - interval.low, interval.high - interval.value
            yield Case(
                axis=axis,
                ahead=ahead,
                error=away,
                half=(below + above) / 2,
                held=-math.hypot(above, error) <= away <= math.hypot(below, error),
                nearest=float(found.at[-1]) - truth,
                line=float(np.polyval(line, x[i])) - truth,
                excess=math.expm1(float(whole.excess(i, np.array([away]))[0])),
                bound=certificate.penalty.high if certificate.issued else math.nan,
            )


def halves(arm: dict[float, pd.Series]) -> tuple[float, float] | None:
    """The difference of two halves' drifts along an arm, and its standard error from the fits."""
    parts = [{n: c.iloc[half::2] for n, c in arm.items()} for half in (0, 1)]
    sizes = [n for n in arm if all(_inside(part[n]) for part in parts)]
    if len(sizes) < FEWEST_SIZES:
        return None
    one, other = (
        drift(
            sizes,
            [np.log2(part[n].index.to_numpy(float)) for n in sizes],
            [part[n].to_numpy(float)[:, None] for n in sizes],
        )
        for part in parts
    )
    error = math.hypot(one.high - one.low, other.high - other.low) / 2 / float(student(math.inf))
    return one.value - other.value, error


def report(name: str, some: Sequence[Case]) -> str:
    """One row: how many, held, and root mean square errors in octaves."""

    def rms(values: Iterator[float]) -> float:
        return math.sqrt(float(np.mean(np.square(list(values)))))

    held = np.mean([c.held for c in some])
    issued = [c for c in some if not math.isnan(c.bound)]
    bounded = np.mean([c.excess <= c.bound for c in issued]) if issued else math.nan
    return (
        f"| {name} | {len(some)} | {held:.0%} | {rms(c.error for c in some):.2f} | "
        f"{rms(c.nearest for c in some):.2f} | {rms(c.line for c in some):.2f} | "
        f"{np.median([c.half for c in some]):.2f} | {len(issued)} | {bounded:.0%} | "
        f"{np.median([c.excess for c in some]):.2%} |"
    )


def report_halves(lines: Iterator[tuple[str, dict[float, pd.Series]]]) -> None:
    """How far apart the halves are, by axis, in octaves per doubling."""
    print("| | arms | r.m.s. difference | its standard error |")
    print("| --- | --- | --- | --- |")
    by: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for axis, arm in lines:
        if (apart := halves(arm)) is not None:
            by[axis].append(apart)
    for axis, some in by.items():
        apart, error = np.sqrt(np.mean(np.square(some), 0))
        print(f"| {axis} | {len(some)} | {apart:.3f} | {error:.3f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("--axes", nargs="+", required=True)
    parser.add_argument("--by", nargs="*", default=[])
    parser.add_argument("--lr", default="lr")
    parser.add_argument("--loss", default="loss")
    parser.add_argument("--halves", action="store_true", help="drifts of every second rate")
    options = parser.parse_args()
    table = pd.read_csv(options.table)
    table = table[table[[options.lr, options.loss]].notna().all(axis=1)]
    lines = arms(table, options.axes, options.by, options.lr, options.loss)
    if options.halves:
        report_halves(lines)
        return
    found = [case for axis, arm in lines for case in cases(axis, arm)]
    if not found:
        raise SystemExit("No arm has three sizes with an optimum inside, and a larger one.")
    print("| | predictions | held of 90% | law | nearest size | line | half-width | "
          "issued | bound held | excess |")  # fmt: skip
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for axis in dict.fromkeys(case.axis for case in found):
        print(report(axis, [case for case in found if case.axis == axis]))
    for ahead in (1, 2, 3):
        some = [case for case in found if max(1, round(case.ahead)) == ahead]
        if some:
            print(report(f"{ahead} doubling{'s' * (ahead > 1)} ahead", some))
    print(report("all", found))


if __name__ == "__main__":
    main()
