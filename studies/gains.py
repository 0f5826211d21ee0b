"""How often gains hold what they say, and who errs how often, on simulated pairs of variants.

    python -m studies.gains                    # 400 pairs a world; minutes
    python -m studies.gains --pairs 50 --world fades

A pair is two variants at three to five sizes, a doubling apart, seven half-octave rates about a
guess of each optimum, one to four seeds that both share, noise of 0.1 to 20% of the loss, of which
a part is the seed's own at a size. A's level falls to a floor as a power of the size. B's gain over
it stays, fades to nothing by 0.5 or 0.7 per doubling, grows by 1.25, crosses zero in a straight
line, or is none. Optima stay, or move by up to 0.3 octaves per doubling, alike or not. The target
lies two doublings beyond the largest size.

*decided* counts pairs whose true gain at the target is three times the ideal half-width: that of a
straight line through gains whose noise and optima are known; *right* are those of them with the
right verdict. *false* is how many were said to hold or grow of the pairs whose true gain at the
target is at most a tenth of the base's. The naive judge trains both at A's best rate of the base,
and calls the largest size's difference.
"""

import argparse
import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from depthmup.posterior import Curves
from depthmup.posterior.intervals import Array
from depthmup.records.gain import Gain, GainVerdict
from depthmup.statistics.gain import PREDICTION, SHARE, gain_of
from depthmup.statistics.runs import Runs
from studies.coverage import tail

AHEAD = 2
"""Doublings of the target beyond the largest size."""

SAYS_HOLDS = (GainVerdict.HOLDS, GainVerdict.GROWS)

WORLDS = {
    "stays": lambda g, s: g + 0 * s,
    "fades": lambda g, s: g * 0.5**s,
    "fades slowly": lambda g, s: g * 0.7**s,
    "grows": lambda g, s: g * 1.25**s,
    "crosses": lambda g, s: g * (1 - s / 2.5),
    "none": lambda g, s: 0 * s,
    "stays, sizes scatter": lambda g, s: g + 0 * s,
}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Runs of both variants, and what is true of them."""

    a: Runs
    b: Runs
    gains: Array
    carried: Array
    target: float
    ideal: float
    naive: float


def valley(u: Array, steep: float, tilt: float) -> Array:
    """Log loss above the minimum: gentle on the left, steeper on the right."""
    left = steep * ((u**2 + 0.04) ** 0.85 - 0.04**0.85)
    right = steep * tilt * ((u**2 + 0.04) ** 1.05 - 0.04**1.05)
    return np.where(u > 0, right, left)


def draw(world: str, rng: np.random.Generator, noise: float, seeds: int, sizes: int) -> Pair:
    """One pair."""
    s = np.arange(sizes + AHEAD, dtype=float)
    base_gain = float(np.exp(rng.uniform(math.log(0.02), math.log(0.15))))
    gains = WORLDS[world](base_gain, s)
    if "scatter" in world:
        gains = gains + 0.01 * rng.standard_normal(len(s))
    floor, exponent = rng.uniform(0.3, 0.8), rng.uniform(0.2, 0.5)
    level = math.log(rng.uniform(0.6, 3.5)) + np.log(floor + (1 - floor) * 2.0 ** (-exponent * s))
    drift_a = rng.choice([0.0, rng.uniform(-0.3, 0.3)])
    drift_b = drift_a if rng.random() < 0.5 else rng.uniform(-0.3, 0.3)
    start = -7 + rng.uniform(-0.25, 0.25, 2)
    optima = np.stack([start[0] + drift_a * s, start[1] + drift_b * s])
    steep, tilt = np.exp(rng.uniform(math.log(0.04), math.log(0.15))), rng.uniform(1.0, 2.0)
    levels = np.stack([level, level - gains])
    own, shared = 0.6 * noise, 0.6 * noise
    of_seed = shared * rng.standard_normal((sizes, 1, seeds))
    runs, tables = [], []
    for v, name in enumerate("ab"):
        grid = np.round((optima[v, :sizes, None] + rng.uniform(-0.4, 0.4)) * 2) / 2
        x = grid + 0.5 * np.arange(-3, 4)
        clean = levels[v, :sizes, None] + valley(x - optima[v, :sizes, None], steep, tilt)
        z = of_seed + own * rng.standard_normal((sizes, 1, seeds))
        z = z + noise * rng.standard_normal((sizes, 7, seeds))
        losses = np.exp(clean[..., None] + z)
        tables.append((x, losses))
        runs.append(
            Runs(
                name=name,
                title=name,
                sizes=tuple({"width": 64 * 2.0**i} for i in range(sizes)),
                curves=Curves.of(x.tolist(), list(losses)),
                seeds=tuple(map(str, range(seeds))),
            )
        )
    carried = (
        gains[:sizes]
        + np.diff([valley(o[0] - o[:sizes], steep, tilt) for o in optima][::-1], axis=0)[0]
    )
    # Of a straight line through gains whose noise and optima are known.
    error = np.sqrt(2 * (noise**2 / 7 + own**2) / seeds)
    x = s[:sizes] - s[:sizes].mean()
    ahead = s[-1] - s[:sizes].mean()
    ideal = 1.645 * error * math.sqrt(1 / sizes + ahead**2 / (x @ x))
    return Pair(
        a=runs[0],
        b=runs[1],
        gains=gains,
        carried=carried,
        target=float(gains[-1]),
        ideal=float(ideal),
        naive=_naive(tables),
    )


def _naive(tables: list[tuple[Array, Array]]) -> float:
    """The largest size's difference, both at A's best rate of the base, over the base's."""
    [(xa, ya), _] = tables
    rate = xa[0, np.log(ya[0]).mean(-1).argmin()]
    at = [[np.log(y[i]).mean(-1)[np.abs(x[i] - rate).argmin()] for x, y in tables] for i in (0, -1)]
    start, end = (a - b for a, b in at)
    return end / start if start > 0 else math.nan


def judged(world: str, pairs: int) -> dict[str, list[float]]:
    told: dict[str, list[float]] = defaultdict(list)
    rng = np.random.default_rng(sum(map(ord, world)))
    for _ in range(pairs):
        noise = float(np.exp(rng.uniform(math.log(0.001), math.log(0.2))))
        seeds, sizes = int(rng.integers(1, 5)), int(rng.integers(3, 6))
        pair = draw(world, rng, noise, seeds, sizes)
        target = {"width": 64 * 2.0 ** (sizes - 1 + AHEAD)}
        try:
            gain: Gain = gain_of(pair.b, pair.a, target=target)
        except ValueError:
            told["refused"].append(1)
            continue
        told["refused"].append(0)
        for row in gain.sizes:
            i = int(math.log2(row.size["width"] / 64))
            told["tuned"].append(row.tuned.low <= pair.gains[i] <= row.tuned.high)
            told["as trained"].append(
                row.as_trained.low - 1e-12 <= pair.carried[i] <= row.as_trained.high + 1e-12
            )
        told["target"].append(gain.low <= pair.target <= gain.high)
        told["half / ideal"].append((gain.high - gain.low) / 2 / pair.ideal)
        gone = pair.target <= 0.1 * pair.gains[0]
        holds = gain.verdict in SAYS_HOLDS
        if gone:
            told["false"].append(holds)
            told["naive false"].append(pair.naive > SHARE)
        if pair.target > 3 * pair.ideal:
            told["decided"].append(gain.verdict is not GainVerdict.UNDECIDED)
            right = (
                holds if pair.target > SHARE * pair.gains[0] else gain.verdict is GainVerdict.FADES
            )
            told["right"].append(right)
        told[str(gain.verdict)].append(1)
        told[f"seeds {seeds}"].append(told["target"][-1])
        told[f"noise {'<1%' if noise < 0.01 else '<5%' if noise < 0.05 else '>5%'}"].append(
            told["target"][-1]
        )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=400)
    parser.add_argument("--world", default="")
    options = parser.parse_args()
    shares = ("tuned", "as trained", "target", "false", "naive false", "decided", "right")
    print(f"95% at trained sizes, {PREDICTION:.0%} at the target")
    print(f"| world | {' | '.join(shares)} | half / ideal |")
    print(f"| --- |{' ---: |' * (len(shares) + 1)}")
    every = defaultdict(list)
    for world in WORLDS:
        if options.world not in world:
            continue
        told = judged(world, options.pairs)
        for key, values in told.items():
            every[key] += values
        print(_row(world, told, shares), flush=True)
    print(_row("all", every, shares))
    for key in sorted(every):
        if key.startswith(("seeds", "noise")):
            print(f"{key}: target {np.mean(every[key]):.1%} of {len(every[key])}")
    low = tail(np.array(every["target"], bool), 0.88, below=True)
    print(f"refused {np.mean(every['refused']):.1%}; coverage below 88%: p = {low:.2g}")


def _row(world: str, told: dict[str, list[float]], shares: tuple[str, ...]) -> str:
    cells = [f"{np.mean(told[key]):.1%}" if told[key] else "" for key in shares]
    half = f"{np.median(told['half / ideal']):.2f}"
    return f"| {world} | {' | '.join(cells)} | {half} |"


if __name__ == "__main__":
    main()
