"""What is the bias of a search's drift made of? The demo's networks, measured densely.

    python -m studies.search_bias train     # what runs/valleys does not hold yet; ten minutes
    python -m studies.search_bias           # a table of docs/studies/adaptive.md

Residual MLPs of depths 8 to 128 on rates a quarter of an octave apart, two octaves to either side
of every optimum, none of them a rate of ``studies.resampled``, and with seeds of their own. Each
drift is measured in three ways that need no more than dense curves: by the centre of the tapered
parabola, which sees two octaves on either side; by the same on rates within one octave of it, as
far as a search sees; and by the lowest point of a quartic. Searches start at random quarters of an
octave, with shuffled seeds, and are compared with all three.
"""

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from depthmup.rules import BLOCK_MULTIPLIER, DEPTH_MUP, ODE, SP, Scheme
from depthmup.statistics import Curves, Search, optima
from depthmup.statistics.intervals import Array
from depthmup.sweep import Processes, Store, run
from studies.adaptive import Answer, searched
from studies.resampled import grid_of

OPTIMA = {
    DEPTH_MUP: (-8.85, -9.05, -9.08, -9.03, -9.01),
    BLOCK_MULTIPLIER: (-8.85, -9.55, -10.08, -10.53, -11.01),
    ODE: (-8.85, -8.75, -8.43, -8.23, -8.16),
    SP: (-8.85, -10.88),
}
"""log2 rates around which curves are measured, at the depths that train: as the sweeps of
``studies.resampled`` have them."""

STEP, RATES, FIRST_SEED, SEEDS = 0.25, 17, 1000, 9
REACHES = {"two octaves": 2.0, "one octave": 1.01}
LEAST_RISE = 0.03
"""Log loss by which a curve rises in an octave beyond its ends, at least."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Valleys:
    """Dense curves: ``rates`` (sizes, rates), ``losses`` and ``steps`` (sizes, rates, seeds)."""

    scheme: Scheme
    depths: tuple[int, ...]
    rates: Array
    losses: Array
    steps: Array

    def optima_within(self, reach: float, sizes: int) -> Array:
        """Centres of the tapered parabola on the rates within a reach of the whole curves' one."""
        whole = optima(Curves.of(list(self.rates[:sizes]), list(self.losses[:sizes]))).centre
        near = [np.abs(self.rates[i] - whole[i]) <= reach for i in range(sizes)]
        some = [
            optima(Curves.of([self.rates[i][n]], [self.losses[i][n]])) for i, n in enumerate(near)
        ]
        return np.array([float(fitted.centre[0]) for fitted in some])

    def lowest_points(self, sizes: int) -> Array:
        """Where the quartic through the points within 1.25 octaves of the lowest one is lowest."""
        points = []
        for x, losses in zip(self.rates[:sizes], self.losses[:sizes], strict=True):
            y = np.log(losses).mean(-1)
            middle = x[y.argmin()]
            near = np.abs(x - middle) <= 1.26
            quartic = np.polyfit(x[near] - middle, y[near], 4)
            fine = np.linspace(-1, 1, 2001)
            points.append(middle + fine[np.polyval(quartic, fine).argmin()])
        return np.array(points)

    def drifts(self, sizes: int) -> Array:
        """Octaves per doubling over the first sizes: by both reaches, and by the lowest points."""
        x = np.arange(sizes) - (sizes - 1) / 2
        optima_by = [self.optima_within(reach, sizes) for reach in REACHES.values()]
        return np.array([x @ of / (x @ x) for of in (*optima_by, self.lowest_points(sizes))])

    def answer(self, seeds: Array) -> Answer:
        """The runs, with their seeds shuffled; beyond the rates on at the curve's last slope."""

        def of(size: int, log2_lr: float, seed: int) -> tuple[float, float]:
            at = round((log2_lr - self.rates[size, 0]) / STEP)
            n, s = min(max(at, 0), RATES - 1), seeds[seed % len(seeds)]
            loss = float(self.losses[size, n, s])
            if at != n and math.isfinite(loss):
                inner = self.losses[size, 4 if at < 0 else -5, s]
                rise = math.log(loss) - math.log(inner) if math.isfinite(inner) else math.inf
                loss *= math.exp(max(rise, LEAST_RISE) * abs(at - n) * STEP)
            return loss, float(self.depths[size] * self.steps[size, n, s])

        return of


def rates_of(scheme: Scheme) -> Array:
    """The rates of every size, (sizes, rates): odd multiples of an eighth of an octave."""
    lowest = np.round((np.array(OPTIMA[scheme]) - 2 + STEP / 2) / STEP) * STEP - STEP / 2
    return np.asarray(lowest[:, None] + STEP * np.arange(RATES))


def asked(scheme: Scheme, seeds: int) -> list[list[list[object]]]:
    """The runs of a scheme by size, rate and seed."""
    grid = grid_of("A", scheme)
    variant, sizes = grid.design.variant(), grid.design.sizes_along("depth")
    return [
        [[grid.run(variant, sizes[i], float(k), FIRST_SEED + s) for s in range(seeds)] for k in of]
        for i, of in enumerate(rates_of(scheme))
    ]


def train(store: Store, seeds: int, workers: int) -> None:
    """Everything that the store does not hold."""
    runs = [r for scheme in OPTIMA for size in asked(scheme, seeds) for rate in size for r in rate]
    done = run(tuple(dict.fromkeys(runs)), store=store, executor=Processes(workers=workers))
    print(f"{done} runs")


def valleys(store: Store, scheme: Scheme, seeds: int) -> Valleys:
    """What is stored of a scheme."""
    points, design = asked(scheme, seeds), grid_of("A", scheme).design
    records = store.records([r for size in points for rate in size for r in rate])
    window = (design.steps - design.window, design.steps)

    def each(value: Callable[[object], float]) -> Array:
        return np.array([[[value(r) for r in rate] for rate in size] for size in points])

    return Valleys(
        scheme=scheme,
        depths=tuple(design.arm("depth"))[: len(points)],
        rates=rates_of(scheme),
        losses=each(lambda r: float(records[r].mean_loss(*window))),
        steps=each(lambda r: float(len(records[r].losses))),
    )


def report(store: Store, seeds: int, draws: int) -> None:
    """Dense drifts, and by how much searches differ from them, as Markdown."""
    head = "two octaves | one octave | lowest point"
    print(f"| scheme | drift: {head} | search less: {head} | ± | half-width | covers |")
    print("| --- " * 10 + "|")
    for scheme in OPTIMA:
        curves = valleys(store, scheme, seeds)
        rng = np.random.default_rng(3)
        bias, halves, covers = [], [], []
        for _ in range(draws):
            search = Search(
                sizes=tuple({"depth": d} for d in curves.depths),
                costs=tuple(float(d) for d in curves.depths),
                base={"depth": curves.depths[0]},
                axes=("depth",),
                start=-9.5 + STEP / 2 + STEP * rng.integers(-4, 3),
                chance=10.0,
                grain=STEP,
            )
            outcome = searched(search, curves.answer(rng.permutation(seeds)))
            value, half, sizes = outcome.drift(search)
            bias.append(value - curves.drifts(sizes))
            halves.append(half)
            covers.append(np.abs(bias[-1]) <= half)
        error = np.std(np.array(bias)[:, 0]) / math.sqrt(draws)
        cells = [f"{d:+.3f}" for d in (*curves.drifts(len(curves.depths)), *np.mean(bias, 0))]
        shares = ", ".join(f"{share:.0%}" for share in np.mean(covers, 0))
        print(
            f"| {scheme.title} | {' | '.join(cells)} | {error:.3f} | {np.mean(halves):.3f} | "
            f"{shares} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", nargs="?", default="report", choices=["train", "report"])
    parser.add_argument("--store", type=Path, default=Path("runs/valleys/results.sqlite"))
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    options.store.parent.mkdir(parents=True, exist_ok=True)
    with Store(options.store) as store:
        if options.action == "train":
            train(store, options.seeds, options.workers)
        else:
            report(store, options.seeds, options.draws)


if __name__ == "__main__":
    main()
