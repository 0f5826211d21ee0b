"""Do certificates hold? Fit on sizes up to a quarter of the largest, predict, and train there.

    python -m studies.calibration train            # what the store does not hold yet
    python -m studies.calibration train --set broad
    python -m studies.calibration                  # the tables of docs/studies/calibration.md
    python -m studies.calibration seeds            # drifts of some seeds beside those of the others

Every configuration is calibrated on four seeds at three or four sizes; the truth is what four
other seeds measure at the target, four times the largest of those. The statistics were developed
on the set ``first``; ``fresh`` and ``broad`` (residual MLPs) and ``decoders`` (transformers of 1, 2
and 4 layers, predicting 16) were looked at once, afterwards. In the set ``joint`` the target grows
in width and in depth, and is predicted from two arms and a corner: interactions were developed on
it, and ``joint fresh`` was looked at once, afterwards. What is not trained yet is left out and
counted.
"""

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from depthmup.model import by_reference
from depthmup.records import Cell, Certificate, Place, Trial, Verdict, environment
from depthmup.records.finding import percent
from depthmup.statistics import Curves, Minima, calibrate, drift, minima, optima
from depthmup.sweep import Job, Processes, Store, run, together, training
from depthmup.sweep.certify import TrainMissing, probe_target
from depthmup.sweep.cost import work
from reproduction.claims.decoders import SETTINGS, custom_sweep, decoder, normed, small_batch
from reproduction.runs import along_depth
from studies.networks import cell_at

SCHEMES = ("depth-mup", "block-multiplier", "sp", "ode", "3/4,1/4")
SEEDS = 4
SETS = ("first", "fresh", "broad", "joint", "joint fresh", "decoders")
STEPS, WINDOW = 200, 40
# Where the optimum of the smallest network lies, roughly: the middle of the grids.
CENTRES = {
    ("adam", "abs"): -1.5,
    ("adam", "relu"): -1.0,
    ("sgd", "relu"): 1.0,
    ("sgd", "abs"): -0.5,
    ("adam", "tanh"): -0.5,
    ("adam", "gelu"): -0.5,
}
# Other networks: by name, what differs from the plain residual MLP, and the middle of the grids:
# the optimum of the smallest one at one seed, to half an octave, looked for before any other run.
BROAD: dict[str, tuple[dict[str, Any], float]] = {
    "silu": ({"activation": "silu"}, -1.0),
    "softplus": ({"activation": "softplus"}, -1.0),
    "erf": ({"activation": "erf"}, -0.5),
    "relu, LayerNorm": ({"activation": "relu", "layer_norm": True}, 1.0),
    "abs before W": ({"activation": "abs", "nonlinearity": "pre"}, -0.5),
    "relu, batch 16": ({"activation": "relu", "batch_size": 16}, -1.5),
}
DECODER_CENTRES = {"adamw": -5.5, "muon": -3.75}
DECODER_STEPS, DECODER_WINDOW = 100, 20
DEEPER = {("adam", "abs"), ("adam", "relu")}
"""Calibrated at depths that are powers of two; the others are three times these."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One calibration: what is trained, at which sizes, and the target."""

    kind: str
    scheme: str
    optimizer: str
    network: str
    block_depth: int = 1
    sizes: tuple[tuple[int, int], ...]
    target: tuple[int, int]

    @property
    def decoder(self) -> bool:
        """Whether it is a transformer; else a residual MLP."""
        return self.kind == "decoder"

    @property
    def broad(self) -> bool:
        """Whether more than the activation differs from the others."""
        return self.network in BROAD

    @property
    def name(self) -> str:
        if self.decoder:
            return f"{self.scheme}, {self.optimizer}, transformer"
        return f"{self.scheme}, {self.optimizer}, {self.network}, block depth {self.block_depth}"

    @cached_property
    def rates(self) -> tuple[float, ...]:
        if self.decoder:
            return tuple(DECODER_CENTRES[self.optimizer] + k / 2 for k in range(-5, 5))
        centre = BROAD[self.network][1] if self.broad else CENTRES[self.optimizer, self.network]
        return tuple(centre + k / 2 for k in range(-8, 7))

    @property
    def steps(self) -> int:
        return DECODER_STEPS if self.decoder else STEPS

    @property
    def window(self) -> int:
        return DECODER_WINDOW if self.decoder else WINDOW

    @property
    def chance(self) -> float:
        return math.log(256 if self.decoder else 10)

    def trial(self, size: tuple[int, int], rate: float, seed: int) -> Trial:
        """A transformer's run."""
        width, depth = size
        sweep = custom_sweep(
            decoder(normed, small_batch),
            base=named(self.sizes[0]),
            lrs=[2.0**rate],
            schemes=self.scheme,
            optimizers=self.optimizer,
            steps=self.steps,
            window=self.window,
            settings=SETTINGS,
        )
        trial: Trial = sweep.run(sweep.design.variant(), named((width, depth)), rate, seed)
        return trial

    def cell(self, size: tuple[int, int], rate: float, seed: int) -> Cell | Trial:
        """The run at a size, learning rate and seed."""
        if self.decoder:
            return self.trial(size, rate, seed)
        base_width, base_depth = self.sizes[0]
        sweep = along_depth(
            schemes=self.scheme,
            depths=(base_depth,),
            base_depth=base_depth,
            width=base_width,
            log2_lrs=(rate,),
            steps=STEPS,
            window=WINDOW,
            optimizer=self.optimizer,
            block_depth=self.block_depth,
            **(BROAD[self.network][0] if self.broad else {"activation": self.network}),
        )
        return cell_at(sweep, rate, seed, **named(size))

    def cells(
        self, sizes: Sequence[tuple[int, int]], rates: Sequence[float]
    ) -> Iterator[Cell | Trial]:
        for size in sizes:
            for rate in rates:
                for seed in self.seeds(size):
                    yield self.cell(size, rate, seed)

    def seeds(self, size: tuple[int, int]) -> range:
        """The target's seeds are others than those that it is predicted from."""
        return range(SEEDS, 2 * SEEDS) if size == self.target else range(SEEDS)

    def losses(
        self, store: Store, size: tuple[int, int], *, rates: Sequence[float], stop: int = 0
    ) -> np.ndarray:
        """Mean losses over the window that ends at ``stop`` (0: the last step), (rates, seeds)."""
        stop = stop or self.steps

        def one(rate: float, seed: int) -> float:
            record = store.get(self.cell(size, rate, seed))
            if record is None:
                raise SystemExit("Runs are missing: python -m studies.calibration train")
            return record.mean_loss(stop - self.window, stop)

        return np.array([[one(rate, s) for s in self.seeds(size)] for rate in rates])

    def certificate(self, store: Store, train: TrainMissing | None = None) -> Certificate:
        """From what the store holds, with a glance at the target where it holds that too."""
        late, early = (
            Curves.of(
                self.rates,
                [self.losses(store, size, rates=self.rates, stop=stop) for size in self.sizes],
            )
            for stop in (self.steps, self.steps // 2)
        )
        certify = partial(
            calibrate,
            sizes=[named(size) for size in self.sizes],
            curves=late,
            early=early,
            target=named(self.target),
            base=named(self.sizes[0]),
            chance=self.chance,
            about={"title": self.name, "scheme": self.scheme},
        )
        certificate = certify()
        if not certificate.issued:
            return certificate
        few: Any = Few(self)  # a sweep of one variant
        probe = probe_target(certificate, few, few, store, train)
        return certificate if probe is None else certify(probe=probe)


@dataclass(frozen=True)
class Few:
    """A configuration as a sweep, of which a probe takes runs of a few steps."""

    of: Configuration

    def run(self, _: object, size: Mapping[str, float], log2_lr: float, seed: int) -> Cell | Trial:
        where = (int(size["width"]), int(size["depth"]))
        return self.of.cell(where, round(log2_lr, 6), seed)

    @staticmethod
    def work(run: Cell | Trial) -> float:
        return work(run)

    @property
    def runs(self) -> list[Cell | Trial]:
        return list(self.of.cells(self.of.sizes, self.of.rates))


def target_rates(each: Configuration, certificate: Certificate) -> tuple[float, ...]:
    """The grid at the target: the sizes' own, carried on to two octaves around a prediction."""
    found = set(each.rates)
    if certificate.issued:
        first, last = each.rates[0], each.rates[-1]
        p = certificate.predicted.value
        found |= {first - k / 2 for k in range(1, math.ceil(2 * (first - p + 2)) + 1)}
        found |= {last + k / 2 for k in range(1, math.ceil(2 * (p + 2 - last)) + 1)}
    return tuple(sorted(found))


def named(size: tuple[int, int]) -> dict[str, int]:
    """A size by its axes."""
    return {"width": size[0], "depth": size[1]}


def depths(*of: int, width: int = 32) -> dict[str, tuple]:
    *sizes, target = ((width, depth) for depth in of)
    return {"sizes": tuple(sizes), "target": target}


def widths(*of: int, depth: int = 4) -> dict[str, tuple]:
    *sizes, target = ((width, depth) for width in of)
    return {"sizes": tuple(sizes), "target": target}


def configurations(which: str) -> list[Configuration]:
    """The set ``first``, for development, and the others, for the test."""
    if which in JOINT:
        return [
            Configuration(
                kind="width and depth", scheme=name, optimizer="adam", network=network,
                sizes=STAR, target=target,
            )
            for network in JOINT[which]
            for name in ("depth-mup", "ode")
            for target in ((64, 32), (64, 64), (128, 32))
        ]  # fmt: skip
    if which == "decoders":
        return [
            Configuration(
                kind="decoder", scheme=name, optimizer=optimizer, network="gelu",
                **depths(1, 2, 4, 16),
            )
            for optimizer in DECODER_CENTRES
            for name in ("depth-mup", "completep", "sp")
        ]  # fmt: skip
    if which == "broad":
        return [
            Configuration(
                kind=kind, scheme=name, optimizer="adam", network=network,
                block_depth=block_depth, **sizes,
            )
            for network in BROAD
            for kind, block_depth, sizes, names in (
                ("depth, block depth 1", 1, depths(4, 8, 16, 32, 128), SCHEMES),
                ("depth, block depth 2", 2, depths(2, 4, 8, 16, 64), ("depth-mup", "sp", "ode")),
                ("width", 1, widths(8, 16, 32, 128), ("depth-mup", "sp")),
            )
            for name in names
        ]  # fmt: skip
    found = []
    for optimizer, activation in CENTRES:
        deeper = (optimizer, activation) in DEEPER
        one = depths(4, 8, 16, 32, 128) if deeper else depths(3, 6, 12, 24, 96)
        two = depths(2, 4, 8, 16, 64) if deeper else depths(3, 6, 12, 48)
        for block_depth, sizes in ((1, one), (2, two)):
            found += [
                Configuration(
                    kind=f"depth, block depth {block_depth}", scheme=name, optimizer=optimizer,
                    network=activation, block_depth=block_depth, **sizes,
                )
                for name in SCHEMES
            ]  # fmt: skip
        found += [
            Configuration(
                kind="width", scheme=name, optimizer=optimizer, network=activation,
                **(widths(8, 16, 32, 128) if deeper else widths(12, 16, 24, 32, 128)),
            )
            for name in ("depth-mup", "sp")
        ]  # fmt: skip
    return [each for each in found if is_fresh(each) == (which == "fresh")]


def is_fresh(each: Configuration) -> bool:
    """Whether nothing about the statistics was decided with it."""
    if each.network == "gelu":
        return True
    return each.network == "tanh" and each.kind != "depth, block depth 1"


JOINT = {"joint": ("abs", "relu", "tanh"), "joint fresh": ("gelu", "silu", "erf", "softplus")}
STAR = (
    (16, 4), (16, 8), (16, 16), (16, 32), (32, 4), (64, 4), (32, 32),
)  # fmt: skip
"""Two arms that meet at the base, and one corner."""

Jobs = Callable[[Sequence[Any]], Sequence[Job]]


def jobs_of(each: Configuration) -> Jobs:
    if not each.decoder:
        return partial(training, members=30)
    model = by_reference(decoder(normed, small_batch))
    return lambda trials: together(trials, model, members=20)


def train(store: Store, sets: Sequence[str], workers: int) -> None:
    for which in sets:
        for each in configurations(which):
            started, jobs = time.time(), jobs_of(each)

            def do(cells: Iterator[Cell | Trial], jobs: Jobs = jobs) -> int:
                return run(
                    list({cell.key: cell for cell in cells}.values()),
                    store=store,
                    executor=Processes(workers=workers),
                    jobs=jobs,
                    about={"environment": environment()},
                )

            done = do(each.cells(each.sizes, each.rates))
            rates = target_rates(each, each.certificate(store, lambda cells: do(iter(cells))))
            done += do(each.cells([each.target], rates))
            print(f"{which}: {each.name}: {done} runs, {time.time() - started:.1f} s", flush=True)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A certificate beside what training at the target gave."""

    configuration: Configuration
    certificate: Certificate
    truth: Minima
    regret: float  # of the base's learning rate, as a fraction of the loss
    penalty: float  # of the predicted learning rate


def outcome(store: Store, each: Configuration) -> Outcome:
    certificate = each.certificate(store)
    rates = np.array(target_rates(each, certificate))
    losses = each.losses(store, each.target, rates=rates)
    fitted = optima(Curves.of(rates, [losses]), chance=each.chance)
    truth = minima(fitted, [named(each.target)])

    def price(rate: float) -> float:
        """Above the measured best; a rate between points of the grid by interpolation."""
        if truth.fitted.places()[0] is not Place.INTERIOR or not math.isfinite(rate):
            return math.nan
        return float(np.expm1(truth.excess(0, rate - truth.at[0])))

    return Outcome(
        configuration=each,
        certificate=certificate,
        truth=truth,
        regret=price(certificate.optima[0].log2_lr.value),
        penalty=price(certificate.predicted.value),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", nargs="?", default="report", choices=["train", "report", "seeds"])
    parser.add_argument("--set", choices=SETS, action="append")
    parser.add_argument("--store", type=Path, default=Path("runs/calibration/results.sqlite"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    sets = options.set or SETS
    options.store.parent.mkdir(parents=True, exist_ok=True)
    with Store(options.store) as store:
        if options.action == "train":
            train(store, sets, options.workers)
        elif options.action == "seeds":
            report_seeds(store, sets)
        else:
            report(store, sets)


def held(r: Outcome) -> bool:
    """Whether the interval of the predicted optimum holds the one measured at the target."""
    p = r.certificate.predicted
    return r.truth.fitted.places()[0] is Place.INTERIOR and p.low <= float(r.truth.at[0]) <= p.high


def falsely_confident(r: Outcome) -> bool:
    """Transfer was claimed, and the base's rate costs more at the target than was said."""
    claimed = r.certificate.verdict is Verdict.TRANSFERS
    return claimed and not r.regret <= r.certificate.base_regret.high


def dearer(r: Outcome) -> bool:
    """The predicted rate costs more at the target than was said."""
    return not r.penalty <= r.certificate.penalty.high


def report(store: Store, sets: Sequence[str]) -> None:
    """A summary and a table of every configuration, as Markdown, per set."""
    for which in sets:
        asked = configurations(which)
        rows = [r for r in (finished(store, each) for each in asked) if r is not None]
        print(f"\n## {which}: {len(rows)} of {len(asked)} configurations were trained\n")
        summarize(rows)
        print("\n| | sizes | target | verdict | predicted | measured | | base costs, bound | "
              "measured |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")  # fmt: skip
        for r in rows:
            print(line(r))


@dataclass(frozen=True, kw_only=True)
class Halves:
    """The drifts of two sets of seeds along one axis, which share sizes and rates alone."""

    apart: float
    half: float


def halves(store: Store, each: Configuration, count: int) -> Iterator[Halves]:
    """So many seeds beside the others, of the sizes whose optimum lies inside the grid.

    ``half`` is the first's half-width.
    """
    axis = [i for i in (0, 1) if len({size[i] for size in each.sizes}) > 1]
    losses = [each.losses(store, size, rates=each.rates) for size in each.sizes]
    places = optima(Curves.of(each.rates, losses), chance=each.chance).places()
    inside = [i for i, place in enumerate(places) if place is Place.INTERIOR]
    if len(axis) > 1 or len(inside) < 3:
        return
    sizes = [each.sizes[i][axis[0]] for i in inside]
    for some in combinations(range(SEEDS), count):
        rest = [seed for seed in range(SEEDS) if seed not in some]
        one, other = (
            drift(sizes, each.rates, [losses[i][:, list(seeds)] for i in inside])
            for seeds in (some, rest)
        )
        yield Halves(apart=abs(one.value - other.value), half=(one.high - one.low) / 2)


def report_seeds(store: Store, sets: Sequence[str]) -> None:
    """How often drifts of other seeds lie within an interval."""
    print("| set | seeds | pairs | r.m.s. difference | within the interval | half-width / needed |")
    print("| --- " * 6 + "|")
    for which, count in product(sets, (1, 2)):
        found = [h for each in configurations(which) for h in halves(store, each, count)]
        if found:
            apart = math.sqrt(float(np.mean([h.apart**2 for h in found])))
            print(
                f"| {which} | {count} | {len(found)} | {apart:.3f} | "
                f"{share(h.apart <= h.half for h in found)} | "
                f"{1 / float(np.quantile([h.apart / h.half for h in found], 0.95)):.1f} |"
            )


def finished(store: Store, each: Configuration) -> Outcome | None:
    try:
        return outcome(store, each)
    except SystemExit:
        return None


def summarize(rows: Sequence[Outcome]) -> None:
    print("| | configurations | certified | interval held | penalty above its bound | transfer "
          "claimed | of these falsely |\n| --- | --- | --- | --- | --- | --- | --- |")  # fmt: skip
    groups = {"all": rows}
    for r in rows:
        groups.setdefault(r.configuration.scheme, [])
    for name in list(groups)[1:]:
        groups[name] = [r for r in rows if r.configuration.scheme == name]
    for name, of in groups.items():
        issued = [r for r in of if r.certificate.issued]
        claimed = [r for r in issued if r.certificate.verdict is Verdict.TRANSFERS]
        print(
            f"| {name} | {len(of)} | {len(issued)} | {share(map(held, issued))} | "
            f"{share(map(dearer, issued))} | {len(claimed)} | "
            f"{share(map(falsely_confident, claimed))} |"
        )
    lacks = Counter(x.lack.value for r in rows for x in r.certificate.refusals)
    told = "; ".join(f"{n} {lack}" for lack, n in lacks.most_common())
    print(f"\nRefused, for one reason or two: {told}." if told else "\nRefused: none.")


def share(of: Iterator[bool]) -> str:
    found = list(of)
    return f"{sum(found)} of {len(found)} ({sum(found) / len(found):.0%})" if found else "-"


def line(r: Outcome) -> str:
    c, e = r.certificate, r.configuration
    if e.kind == "width and depth":
        sizes, target = "arms and (32, 32)", "x".join(map(str, e.target))
    else:
        axis = 0 if e.kind == "width" else 1
        sizes, target = ", ".join(str(size[axis]) for size in e.sizes), str(e.target[axis])
    start = f"| {e.name}, {e.kind.split(',')[0]} | {sizes} | {target} | "
    failed = r.truth.fitted.places()[0] is Place.FAILED
    truth = "nothing trains" if failed else f"{float(r.truth.at[0]):.2f}"
    if not c.issued:
        return f"{start}refused: {c.refusals[0].lack} | | {truth} | | | {percent(r.regret)} |"
    p = c.predicted
    return (
        f"{start}{c.verdict} | {p.value:.2f} ± {p.high - p.value:.2f} | {truth} | "
        f"{'' if held(r) else 'missed'} | {percent(c.base_regret.high)} | {percent(r.regret)} |"
    )


if __name__ == "__main__":
    main()
