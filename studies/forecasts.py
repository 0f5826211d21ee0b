"""Do forecasts hold? The small part of tables and ladders forecasts their large part.

    python -m studies.forecasts                 # trained ladders and simulated tables; a minute
    python -m studies.forecasts dense.csv:N,D,bs moe.csv:D,bs:moe_name    # and tables of yours
    python -m studies.forecasts dense.csv:N,D,bs --only dense --forecasts 200

A table is PATH:AXES, or PATH:AXES:GROUPS; its columns of rate and loss are --lr and --loss. Along
an axis every size up to a cut is given to ``depthmup.fit``, which forecasts a size above it;
``depthmup.score`` then reads the whole table. Questions are drawn evenly over tables, axes and
distances, until so many forecasts were issued; refused ones are counted beside them. The ladders
are the table of trained networks that ships with the package, simulated tables those of
``studies.fit``.
"""

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import depthmup
from depthmup.records import Certificate, Place, Score
from depthmup.records.score import Fate
from depthmup.tables import example
from studies import fit

if TYPE_CHECKING:
    import pandas as pd

FARTHEST, FEWEST_SIZES, FEWEST_RATES = 4, 3, 5
"""Doublings ahead, sizes along the axis that forecast, rates that show the truth at the target."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Runs of one variant and their columns, as ``fit`` takes them."""

    source: str
    runs: "pd.DataFrame"
    axes: dict[str, str]
    lr: str
    loss: str
    seed: str = ""

    @property
    def columns(self) -> dict[str, Any]:
        return {"axes": self.axes, "lr": self.lr, "loss": self.loss, "seed": self.seed}


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """A forecast to make: sizes up to a cut along an axis, for a size above it."""

    table: Table
    axis: str
    cut: float
    target: dict[str, float]

    @property
    def doublings(self) -> float:
        return math.log2(self.target[self.axis] / self.cut)

    @property
    def small(self) -> "pd.DataFrame":
        runs = self.table.runs
        return runs[runs[self.table.axes[self.axis]] <= self.cut]


@dataclass(frozen=True, kw_only=True, eq=False)
class Made:
    """What became of it; refused without a score."""

    asked: Asked
    certificate: Certificate | None
    score: Score | None

    @property
    def errors(self) -> tuple[float, float] | None:
        """Octaves off the best value there: the forecast, and the nearest size's own best value."""
        if self.score is None or self.score.best.place is not Place.INTERIOR:
            return None
        assert self.certificate is not None
        target = self.certificate.target
        nearest = min(
            self.certificate.optima,
            key=lambda o: sum(abs(math.log2(o.size[a] / target[a])) for a in target),
        )
        best = self.score.best.log2_lr.value
        return math.log2(self.certificate.value.value) - best, nearest.log2_lr.value - best


def questions(table: Table) -> Iterator[Asked]:
    """Every cut along every axis, and every size above it within reach."""
    columns = list(table.axes.values())
    rates = table.runs.groupby(columns)[table.lr].nunique()
    sizes = rates[rates >= FEWEST_RATES].reset_index()[columns].to_numpy(float)
    for number, axis in enumerate(table.axes):
        values = np.unique(sizes[:, number])
        for cut in values[FEWEST_SIZES - 1 : -1]:
            for size in sizes[sizes[:, number] > cut]:
                target = dict(zip(table.axes, map(float, size), strict=True))
                asked = Asked(table=table, axis=axis, cut=float(cut), target=target)
                if asked.doublings <= FARTHEST:
                    yield asked


def drawn(tables: Sequence[Table]) -> list[Asked]:
    """All questions in the order in which they are asked: sources, axes, distances in turn."""
    kinds: dict[tuple[str, str, int], list[Asked]] = defaultdict(list)
    for table in tables:
        for asked in questions(table):
            kinds[table.source, asked.axis, math.ceil(asked.doublings)].append(asked)
    rng = np.random.default_rng(0)
    shuffled = [[some[i] for i in rng.permutation(len(some))] for some in kinds.values()]
    rounds = [[a for a in some if a is not None] for some in zip_longest(*shuffled)]
    return [some[i] for some in rounds for i in rng.permutation(len(some))]


def made(asked: Asked) -> Made:
    """The forecast from the small part, and its score by the whole table."""
    table = asked.table
    try:
        report = depthmup.fit(asked.small, **table.columns, target=asked.target)
    except ValueError:  # nothing can be fitted to so few sizes
        return Made(asked=asked, certificate=None, score=None)
    (certificate,) = report.certificates or (None,)
    if certificate is None or not certificate.issued:
        return Made(asked=asked, certificate=certificate, score=None)
    score = depthmup.score(certificate, table.runs, **table.columns)
    return Made(asked=asked, certificate=certificate, score=score)


def named(text: str, lr: str, loss: str) -> Iterator[Table]:
    """The groups of a table that a person names."""
    import pandas as pd

    path, axes, *by = text.split(":")
    runs = pd.read_csv(path)
    groups = [part for _, part in runs.groupby(by[0].split(","))] if by else [runs]
    for part in groups:
        named = {axis: axis for axis in axes.split(",")}
        yield Table(source=Path(path).stem, runs=part, axes=named, lr=lr, loss=loss)


def ladders() -> Iterator[Table]:
    """The trained networks that ship with the package."""
    import pandas as pd

    columns = {"axes": {"depth": "n_layers"}, "lr": "lr", "loss": "final_loss", "seed": "seed"}
    for _, part in pd.read_csv(example()).groupby("scheme"):
        yield Table(source="trained", runs=part, **columns)


def simulated(count: int) -> Iterator[Table]:
    """Tables with one seed and with three."""
    for seeds in (1, 3):
        for truth in fit.tables(count, seeds=seeds, planted=False):
            yield Table(
                source=f"simulated, {seeds} seed{'s' * (seeds > 1)}",
                runs=truth.runs,
                axes=fit.AXES,
                lr="lr",
                loss="loss",
                seed="seed",
            )


def row(name: str, some: Sequence[Made]) -> str:
    """One line of the table: how many, what became of them, errors in octaves."""
    scores = [m.score for m in some if m.score is not None]
    errors = np.array([m.errors for m in some if m.errors is not None]).reshape(-1, 2)
    ours, nearest = np.sqrt((errors**2).mean(0)) if len(errors) else (math.nan, math.nan)

    def fates(values: Sequence[Fate]) -> str:
        return " | ".join(str(values.count(fate)) for fate in Fate)

    return (
        f"| {name} | {len(scores)} | {len(some) - len(scores)} | "
        f"{fates([s.value for s in scores])} | {fates([s.bound for s in scores])} | "
        f"{ours:.2f} | {nearest:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", metavar="PATH:AXES[:GROUPS]")
    parser.add_argument("--lr", default="lr")
    parser.add_argument("--loss", default="loss")
    parser.add_argument("--forecasts", type=int, default=50)
    parser.add_argument("--only", help="sources whose name begins so")
    options = parser.parse_args()
    tables = [table for text in options.tables for table in named(text, options.lr, options.loss)]
    tables += [*ladders(), *simulated(5)]
    tables = [table for table in tables if table.source.startswith(options.only or "")]
    found: list[Made] = []
    for asked in drawn(tables):
        if sum(m.score is not None for m in found) == options.forecasts:
            break
        found.append(made(asked))
    print("| | issued | refused | value held | missed | undecided | bound held | missed | "
          "undecided | error, octaves | nearest size's |")  # fmt: skip
    print("| --- |" + " --- |" * 10)
    for ahead in range(1, FARTHEST + 1):
        some = [m for m in found if math.ceil(m.asked.doublings) == ahead]
        if some:
            print(row(f"{ahead} doubling{'s' * (ahead > 1)}", some))
    for source in dict.fromkeys(m.asked.table.source for m in found):
        print(row(source, [m for m in found if m.asked.table.source == source]))
    print(row("all", found))
    reasons = Counter(
        r.lack for m in found if m.certificate is not None for r in m.certificate.refusals
    )
    print("\nRefused for: " + ", ".join(f"{why} ({n})" for why, n in reasons.most_common()) + ".")


if __name__ == "__main__":
    main()
