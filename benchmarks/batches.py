"""The compiled engine at batches of 16 to 512: which share of a matrix product's speed it keeps.

Residual MLPs (abs, Adam, the digits), one process per core. A step has three products per matrix;
their operations per second are divided by those of a product of two 1024 x 1024 matrices, the
machine's best, and by those of the step's own products done alone: a batch of activations times a
matrix of weights. All rows of a size are measured in turn within each round.
"""

import statistics
from dataclasses import dataclass

from benchmarks.subjects import engine_at, own_product, peak
from benchmarks.team import Team, Timing
from depthmup.sweep.cost import EFFICIENCY, UPDATE

SIZES = ((64, 8), (256, 8))
BATCHES = (16, 32, 64, 128, 256, 512)
ENOUGH = 0.25  # seconds of one measurement, at least
Key = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Rates by (width, depth, batch), of each round: in GFLOP/s of one core."""

    engine: dict[Key, list[float]]
    own: dict[Key, list[float]]
    best: list[float]

    def of_best(self, key: Key) -> float:
        return statistics.median(self.engine[key]) / max(self.best)

    def of_own(self, key: Key) -> float:
        pairs = zip(self.engine[key], self.own[key], strict=True)
        return statistics.median(a / b for a, b in pairs)


def run(*, rounds: int, clock: str, cores: int, quick: bool) -> Shares:
    """Measure every batch of every size.

    Args:
        rounds: of all rows.
        clock: wall or cpu.
        cores: processes at once.
        quick: the smallest size and two batches, for a moment each.
    """
    sizes, batches = (SIZES[:1], BATCHES[::5]) if quick else (SIZES, BATCHES)
    enough = ENOUGH / 10 if quick else ENOUGH
    shares = Shares(engine={}, own={}, best=[])

    def rate(timings: list[Timing]) -> float:
        return statistics.mean(t.units / (t.wall if clock == "wall" else t.cpu) for t in timings)

    with Team(cores) as team:

        def enough_of(function: object, *arguments: int) -> int:
            scale = 8
            while (
                took := statistics.mean(t.wall for t in team.ask(function, *arguments, scale))
            ) < enough:
                scale = max(scale + 1, int(scale * min(10.0, 1.3 * enough / max(took, 1e-4))))
            return scale

        for width, depth in sizes:
            for batch in batches:
                key = (width, depth, batch)
                steps = enough_of(engine_at, *key)
                products = enough_of(own_product, width, batch)
                for _ in range(rounds):
                    flop = 3 * 2 * batch * width**2 * depth / 1e9
                    shares.engine.setdefault(key, []).append(
                        flop * rate(team.ask(engine_at, *key, steps))
                    )
                    shares.own.setdefault(key, []).append(
                        rate(team.ask(own_product, width, batch, products))
                    )
                    shares.best.append(rate(team.ask(peak, 4)))
            print(f"  n{width} L{depth} measured", flush=True)
    return shares


def forecast(batch: int) -> float:
    """The share that forecasts of a sweep's time count on: three products, and moving the weights.

    6 b operations of each parameter's products beside ``UPDATE`` for its optimizer state.
    """
    return EFFICIENCY["native"] * 6 * batch / (6 * batch + UPDATE)


def table(shares: Shares) -> list[str]:
    """GFLOP/s of a core, and both shares, a row for each size and a column for each batch."""
    keys = list(shares.engine)
    batches = sorted({batch for *_, batch in keys})
    lines = [
        "| native engine, batch | " + " | ".join(map(str, batches)) + " |",
        "| --- |" + " --- |" * len(batches),
    ]
    for width, depth in dict.fromkeys((width, depth) for width, depth, _ in keys):
        of_size = [(width, depth, batch) for batch in batches]
        rows = {
            "GFLOP/s of a core": [f"{statistics.median(shares.engine[k]):.0f}" for k in of_size],
            "share of sgemm (forecast)": [
                f"{shares.of_best(k):.0%} ({forecast(k[-1]):.0%})" for k in of_size
            ],
            "share of its own products": [f"{shares.of_own(k):.0%}" for k in of_size],
        }
        for name, entries in rows.items():
            lines.append(f"| n{width} L{depth}: {name} | " + " | ".join(entries) + " |")
    lines += ["", f"sgemm: {max(shares.best):.0f} GFLOP/s of a core, 1024 x 1024."]
    return lines
