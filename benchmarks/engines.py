"""Every engine, and what one would use instead, against what the machine can do.

Twelve residual MLPs (abs, Adam, batch 64, the digits) at four sizes. All rows of a size are
measured in turn within each round, so that the machine's moods meet all of them; numbers are
medians over rounds, ratios the medians of the rounds' ratios. The peaks are measured in the same
rounds: a product of two 1024 x 1024 matrices, and a = b + c on arrays that no cache holds. Shares
are of the best product of the whole run.

The clocks: ``wall`` is what a user waits for, and is fair if nobody else uses the machine; ``cpu``
counts the processor time of the processes themselves, as if each had had a core to itself, which
other people's work does not enter (except through shared caches and memory). The share of the
cores that the processes got, printed below the table, says how quiet it was.
"""

import importlib.util
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.subjects import BATCH, PEAKS, forget, measure
from benchmarks.team import Team, Timing

SIZES = ((64, 8), (64, 64), (256, 8), (256, 64))
FLOP = 3 * 2 * BATCH  # per parameter and step: three products
ENOUGH = 0.35  # seconds of one measurement, at least
EVERY_CORE = "jax, one process, every core"
ONE_EACH = "jax, one process per core"
FUSED = "plain loop, fused Adam"
ROWS = ("plain loop, default Adam", FUSED, EVERY_CORE, ONE_EACH, "stacked torch", "native", *PEAKS)
UNITS = {"sgemm": " GFLOP/s", "stream": " GB/s"}
# How many times as fast the native engine was meant to be, at each size; its share of the peak.
PROMISED = {
    FUSED: (6.0, 5.0, 1.6, 1.5),
    EVERY_CORE: (2.8, 2.8, 2.8, 2.8),
    ONE_EACH: (1.5, 1.5, 1.5, 1.5),
}
PROMISED_SHARE = (0.75, 0.75, 0.75, 0.65)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The rounds of every row and size: units per second of all processes together."""

    rates: dict[str, dict[tuple[int, int], list[float]]]
    quiet: float
    cores: int

    def median(self, row: str, size: tuple[int, int]) -> float:
        return statistics.median(self.rates[row][size])

    def share(self, row: str, size: tuple[int, int]) -> float:
        """What a row's products are of the best product of the whole run."""
        best = max(max(values) for values in self.rates["sgemm"].values())
        return self.median(row, size) * FLOP * size[0] ** 2 * size[1] / 1e9 / best


def rows(native: bool) -> tuple[str, ...]:
    """What can be measured here."""
    jax = importlib.util.find_spec("jax") is not None
    return tuple(r for r in ROWS if (jax or "jax" not in r) and (native or r != "native"))


def rate(timings: list[Timing], clock: str, cores: int) -> float:
    """Units per second of all processes together."""
    if clock == "wall":
        return sum(t.units / t.wall for t in timings)
    # A process on every core: its processor time is that of all cores together.
    share = cores / len(timings)
    return sum(t.units / t.cpu * share for t in timings)


def run(*, rounds: int, clock: str, cores: int, native: bool, quick: bool) -> Result:
    """Measure every row at every size in turn."""
    enough = ENOUGH / 10 if quick else ENOUGH
    sizes = SIZES[:1] if quick else SIZES
    found: dict[str, dict[tuple[int, int], list[float]]] = {r: {} for r in rows(native)}
    quiet = []
    with Team(cores) as each, Team(int(EVERY_CORE in found), threads=True) as alone:

        def ask(row: str, size: tuple[int, int], scale: int) -> list[Timing]:
            team = alone if row == EVERY_CORE else each
            return team.ask(measure, "jax" if "jax" in row else row, *size, scale)

        def enough_steps(row: str, size: tuple[int, int]) -> int:
            """How many steps take long enough."""
            scale = 8 if row in ("native", "stacked torch") else 1
            while True:
                took = statistics.mean(t.wall for t in ask(row, size, scale))
                if took > enough:
                    return scale
                scale = max(scale + 1, int(scale * min(10.0, 1.3 * enough / max(took, 1e-3))))

        for size in sizes:
            scales = {row: enough_steps(row, size) for row in found}
            for _ in range(rounds):
                for row, scale in scales.items():
                    timings = ask(row, size, scale)
                    found[row].setdefault(size, []).append(rate(timings, clock, cores))
                    if row != EVERY_CORE:
                        quiet += [t.cpu / t.wall for t in timings]
            for team in (each, alone):
                team.ask(forget)
            print(f"  n{size[0]} L{size[1]} measured", flush=True)
    return Result(rates=found, quiet=statistics.median(quiet), cores=cores)


def table(result: Result) -> list[str]:
    """Rates, ratios with what they should be, and shares of the peak."""
    sizes = list(result.rates["sgemm"])
    columns = range(len(sizes))

    def line(name: str, entries: Iterable[str]) -> str:
        return f"| {name} | " + " | ".join(entries) + " |"

    def entry(row: str, size: tuple[int, int]) -> str:
        values = result.rates[row][size]
        spread = (max(values) - min(values)) / 2 / statistics.median(values)
        return f"{statistics.median(values):.0f}{UNITS.get(row, '')} ±{spread:.0%}"

    lines = [
        line("model-steps per second", (f"n{n} L{d}" for n, d in sizes)),
        "| --- |" + " --- |" * len(sizes),
        *(line(row, (entry(row, size) for size in sizes)) for row in result.rates),
    ]
    if "native" in result.rates:
        native = result.rates["native"]
        for row, rates in result.rates.items():
            if row in ("native", *PEAKS):
                continue
            ratios = [
                statistics.median(a / b for a, b in zip(native[size], rates[size], strict=True))
                for size in sizes
            ]
            wanted = PROMISED.get(row)
            entries = [
                f"{ratios[i]:.1f}" + (f" ({wanted[i]:g} wanted)" if wanted else "") for i in columns
            ]
            lines.append(line(f"**native / {row}**", entries))
        shares = (
            f"{result.share('native', size):.0%} ({PROMISED_SHARE[i]:.0%} wanted)"
            for i, size in enumerate(sizes)
        )
        lines.append(line("**native, share of sgemm**", shares))
    return [
        *lines,
        "",
        f"The processes got {result.quiet:.0%} of a core each (median; 100% is a quiet machine).",
    ]
