"""Does an ablation name the rule that is needed, and no other?

    python -m studies.ablation               # 100 whole searches a world; minutes
    python -m studies.ablation --sweeps 20

Every sweep is a search by ``depthmup.transfer`` along width, 32 to 256, of Depth-muP under Adam, in
which each of its rules is taken away. One of them, another in every sweep, is what its world
says: without it the optimum drifts by 0.3 octaves per doubling, up or down, or the loss is 6% lower
at every rate; or there is none. Losses are valleys of 0.05 to 0.3 nats an octave from the minimum,
as steep on both sides or up to 2:1; seeds differ by 2%, and by 1% at every rate, in all variants
alike; what a variant has of its own beside is 0.2%, 0.5% or 1% of the loss.

*named*: sweeps in which the rule has the verdict that is true of it. *other needed*, *other better
without*: rules without effect that were called so, of all of them. *open*: rules without effect
that stayed undecided. *runs*: per sweep, beside those of a sweep of the whole scheme alone.
"""

import argparse
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

import depthmup
from depthmup.records.ablation import Need
from studies.coverage import tail

DRIFT, GAIN = 0.3, 0.06
WORLDS = {"drifts": Need.NEEDED, "better": Need.HARMFUL, "none": None}
OWN = (0.002, 0.005, 0.01)
WIDTHS = (32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class World:
    """The losses of one simulated sweep, by size, scheme, rate and seed."""

    seed: int
    rule: str
    drift: float
    gain: float
    own: float

    def loss(self, width: int, scheme: str, lr: float, seed: int) -> float:
        """Of one run."""
        rng = np.random.default_rng([self.seed, 0])
        steep, turn = rng.uniform(0.05, 0.3), rng.uniform(-0.35, 0.35)
        at_base = -8 + rng.uniform(-1, 1)
        changed = self.rule and scheme.endswith(self.rule)
        doublings = math.log2(width / WIDTHS[0])
        u = math.log2(lr) - at_base - (self.drift * doublings if changed else 0.0)
        of_seed = np.random.default_rng([self.seed, 1, width, seed]).normal(0, 0.02)
        place = round(1000 * math.log2(lr)) % 2**32
        of_run = np.random.default_rng([self.seed, 2, width, seed, place]).normal(0, 0.01)
        name = [self.seed, 3, width, seed, place, *scheme.encode()]
        of_own = np.random.default_rng(name).normal(0, self.own)
        better = self.gain if changed and doublings else 0.0
        level = -0.1 * doublings - better + of_seed + of_run + of_own
        return math.exp(steep * u * u * math.exp(turn * math.tanh(u)) + level)


def swept(world: World, *, ablate: bool = True) -> depthmup.Report:
    """One search to its end."""

    def train(trial: depthmup.Trial) -> list[float]:
        loss = world.loss(trial.size["width"], trial.scheme, trial.lr, trial.seed)
        return [loss] * trial.steps

    design = depthmup.Design(
        base={"width": WIDTHS[0]},
        width=WIDTHS,
        schemes="depth-mup",
        optimizers="adam",
        ablate=ablate,
        steps=1,
    )
    return depthmup.transfer(depthmup.Model(train=train, version=str(world.seed)), design)


def rules() -> tuple[str, ...]:
    """Those that act along width under Adam."""
    found = swept(World(seed=0, rule="", drift=0.0, gain=0.0, own=0.002))
    return tuple(sorted(one.rule for one in found.study().ablations))


def main() -> None:
    """Print a line for each world and scatter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=100)
    options = parser.parse_args()
    names = rules()
    print("world     own   named  other needed  other better without   open  runs")
    for kind, truth in WORLDS.items():
        for own in OWN:
            told = Counter[str]()
            runs = []
            for number in range(options.sweeps):
                rule = names[number % len(names)] if truth is not None else ""
                world = World(
                    seed=number,
                    rule=rule,
                    drift=DRIFT * (-1) ** (number // len(names)) if kind == "drifts" else 0.0,
                    gain=GAIN if kind == "better" else 0.0,
                    own=own,
                )
                report = swept(world)
                runs.append(len(report.records) / len(swept(world, ablate=False).records))
                for one in report.study().ablations:
                    if one.rule == rule:
                        told["named"] += one.verdict is truth
                    else:
                        told[one.verdict.value] += 1
                        told["others"] += 1
            shares = [told[v.value] / told["others"] for v in (Need.NEEDED, Need.HARMFUL)]
            named = f"{told['named'] / options.sweeps:.0%}" if truth else "–"
            wrong = np.arange(told["others"]) < told[Need.NEEDED.value]
            mark = "*" if tail(wrong, 0.03, below=False) < 0.01 else ""
            print(
                f"{kind:8} {own:5.1%} {named:>6} {shares[0]:12.1%}{mark} {shares[1]:20.1%} "
                f"{told[Need.UNDECIDED.value] / told['others']:7.0%} {np.median(runs):5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
