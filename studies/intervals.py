"""How often the check's intervals hold the truth, and how often a check fails what is right.

    python -m studies.intervals             # the table of docs/studies/check.md; minutes
    python -m studies.intervals --checks 50 # roughly
    python -m studies.intervals --seeds 5   # its last rows

A simulated check has 60 exponents, of width and of depth, from power laws with 20% noise on each
measurement. Every seed has a constant of its own and, if asked for, slopes of its own around the
true ones: of all exponents, or of half of them, alike or independent between exponents.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from depthmup.statistics import Slope, holm, log_slopes, moderated

WIDTHS, DEPTHS = (32, 64, 128, 256), (4, 8, 16, 32)
TRUTH = np.array([0.5, -1.0])
MARGIN = 0.25
OBSERVABLES = 30


@dataclass(frozen=True, kw_only=True)
class World:
    """How seeds differ: standard deviations of their own slopes, taken in turn by observables.

    ``shared`` is the part of their variance that all observables of a seed have in common.
    """

    name: str
    own: tuple[float, ...] = (0.0,)
    shared: float = 0.0
    noise: float = 0.2


WORLDS = (
    World(name="seeds share their slopes"),
    World(name="own slopes, sd 0.06", own=(0.06,)),
    World(name="own slopes, sd 0.1", own=(0.1,)),
    World(name="own slopes, sd 0.1, half of it common to all exponents", own=(0.1,), shared=0.5),
    World(name="own slopes, sd 0.3", own=(0.3,)),
    World(name="own slopes, sd 0.1, of every other observable", own=(0.0, 0.1)),
    World(name="own slopes, sd 0.1, of every fourth observable", own=(0.0, 0.0, 0.0, 0.1)),
    World(name="own slopes, sd 0, 0.05, 0.1 and 0.2 in turn", own=(0.0, 0.05, 0.1, 0.2)),
)


def grid(seeds: int) -> tuple[list[tuple[float, float]], list[int]]:
    """Sizes and seeds of the measurements of one observable."""
    sizes = [(float(w), float(d)) for _ in range(seeds) for w in WIDTHS for d in DEPTHS]
    return sizes, [s for s in range(seeds) for _ in range(len(WIDTHS) * len(DEPTHS))]


def simulated(
    rng: np.random.Generator,
    world: World,
    *,
    seeds: int,
    offset: float = 0.0,
    observables: int = OBSERVABLES,
) -> list[tuple[Slope, ...]]:
    """The slopes of one check, all of them ``offset`` away from ``TRUTH``."""
    sizes, of = grid(seeds)
    logs, names = np.log(sizes), np.array(of)
    common = rng.standard_normal((seeds, 2))
    found = []
    for i in range(observables):
        mixed = world.shared**0.5 * common
        mixed = mixed + (1 - world.shared) ** 0.5 * rng.standard_normal((seeds, 2))
        slopes = TRUTH + offset + world.own[i % len(world.own)] * mixed
        y = rng.standard_normal(seeds)[names] + (logs * slopes[names]).sum(1)
        y += world.noise * rng.standard_normal(len(of))
        found.append(log_slopes(sizes, list(np.exp(y)), of))
    return found


def covered(slopes: Sequence[tuple[Slope, ...]], offset: float = 0.0) -> list[bool]:
    """Whether each 95% interval holds the truth."""
    hits = []
    for pair in slopes:
        for slope, truth in zip(pair, TRUTH + offset, strict=True):
            e = slope.estimate(0.95)
            hits.append(e.low <= truth <= e.high)
    return hits


def together(slopes: Sequence[tuple[Slope, ...]]) -> list[tuple[Slope, ...]]:
    """The slopes, moderated by each other, in the same pairs."""
    flat = moderated([slope for pair in slopes for slope in pair])
    return list(zip(flat[::2], flat[1::2], strict=True))


def fails(slopes: Sequence[tuple[Slope, ...]]) -> bool:
    """Whether the check of these slopes, moderated, fails any exponent."""
    return bool(
        holm(
            {
                (i, axis): slope.p_outside(float(truth), MARGIN)
                for i, pair in enumerate(slopes)
                for axis, (slope, truth) in enumerate(zip(pair, TRUTH, strict=True))
            }
        )
    )


def bound(count: int, trials: int, confidence: float = 0.95) -> float:
    """The exact upper bound on a rate of which ``count`` of ``trials`` were seen.

    *Source:* Clopper and Pearson (1934), Biometrika 26:404-413.
    """
    found = stats.binomtest(count, trials, alternative="less").proportion_ci(confidence, "exact")
    return float(found.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=1000, help="simulated checks of every kind")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 2, 5])
    given = parser.parse_args()
    most, started = given.checks, time.perf_counter()
    print(
        "| seeds | | 95% interval of one slope | of a check's | checks failed, truths at the "
        "margin | at half of it |\n| --- | --- | --- | --- | --- | --- |",
        flush=True,
    )
    for seeds in given.seeds:
        for row, world in enumerate(WORLDS):
            rng = np.random.default_rng([seeds, row])
            checks = most if seeds == 3 else -(-most // 4)  # 3 is what a check has by default
            alone, check, failed = [], [], {MARGIN: 0, MARGIN / 2: 0}
            for _ in range(checks):
                for offset in failed:
                    slopes = simulated(rng, world, seeds=seeds, offset=offset)
                    better = together(slopes)
                    alone += covered(slopes, offset)
                    check += covered(better, offset)
                    failed[offset] += fails(better)
            rates = " | ".join(
                f"{n / checks:.1%} (below {bound(n, checks):.1%})" for n in failed.values()
            )
            print(
                f"| {seeds} | {world.name} | {np.mean(alone):.1%} | {np.mean(check):.1%} "
                f"| {rates} |",
                flush=True,
            )
    print(
        f"\n{most} checks of {2 * OBSERVABLES} exponents each with 3 seeds, a quarter of that with "
        "others; in brackets the exact 95% "
        f"bound on the rate. {time.perf_counter() - started:.0f} s on one core."
    )


if __name__ == "__main__":
    main()
