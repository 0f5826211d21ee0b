"""Is the drift of the optimum predicted by the kernel at initialization? Predict, then train.

    python -m studies.predict look      # sharpness at initialization, and a few full-batch steps
    python -m studies.predict train     # 200 steps of SGD and Adam; some ten core-minutes
    python -m studies.predict           # the tables of docs/studies/predict.md, as Markdown
    python -m studies.predict decoders  # Adam's sharpness on decoders; some six core-minutes

All go on from what the store holds.

Residual MLPs on the digits, U and V frozen, half-octave grids. Predicted: ``limits.optimal_rate``
at infinite width, and ``diagnostics.sharpness`` of the very networks at initialization.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from depthmup import limits
from depthmup.data import digits
from depthmup.diagnostics import GaussNewton, sharpness
from depthmup.records import Cell, Estimate, Task, environment
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import Curves
from depthmup.statistics.runs import Runs
from depthmup.sweep import InProcess, Processes, Store, run, training
from depthmup.training import batches as batches_of
from depthmup.training import build, dataset
from reproduction.probes import factored
from reproduction.runs import Measure, along_depth
from studies import decoder_sharpness
from studies.networks import cell_at
from studies.predict_table import header, number, octaves, slope, verdict

BASE_WIDTH, BASE_DEPTH = 64, 8
DEPTHS = (8, 16, 32, 64, 128)
WIDTHS = (32, 64, 128, 256)
STEPS, WINDOW, SEEDS = 200, 40, 3
STRONG, WEAK = 1.0, 0.5**1.5  # the paper's a; a weak one has branches of size 1 in all at depth 8
# Of the base: where one seed's loss is lowest after all steps, to an octave, before any other run.
CENTRES = {
    ("sgd", "abs", 1, STRONG): -2.5,
    ("sgd", "relu", 1, STRONG): -1.0,
    ("sgd", "relu", 2, STRONG): -0.5,
    ("sgd", "abs", 2, STRONG): -4.0,
    ("sgd", "abs", 1, WEAK): 2.0,
    ("sgd", "relu", 1, WEAK): 3.0,
    ("sgd", "relu", 2, WEAK): 2.0,
    ("adam", "abs", 1, STRONG): -2.5,
    ("adam", "relu", 1, STRONG): -2.0,
    ("adam", "relu", 2, STRONG): -2.5,
}


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One curve of optima: a scheme on a network, along depth or along width."""

    scheme: str
    activation: str = "abs"
    block_depth: int = 1
    optimizer: str = "sgd"
    multiplier: float = STRONG
    axis: str = "depth"
    below: float = 2.0
    above: float = 1.5

    @property
    def sizes(self) -> tuple[int, ...]:
        return DEPTHS if self.axis == "depth" else WIDTHS

    @cached_property
    def rates(self) -> tuple[float, ...]:
        """Half octaves around the base's optimum, further on the side of an expected drift."""
        centre = CENTRES[self.optimizer, self.activation, self.block_depth, self.multiplier]
        first, last = round(2 * (centre - self.below)), round(2 * (centre + self.above))
        return tuple(k / 2 for k in range(first, last + 1))

    def cells(self, size: int) -> list[list[Cell]]:
        """The runs of a size, (learning rates, seeds)."""
        sweep = along_depth(
            schemes=self.scheme,
            depths=(BASE_DEPTH,),
            base_depth=BASE_DEPTH,
            log2_lrs=self.rates,
            width=BASE_WIDTH,
            optimizer=self.optimizer,
            seeds=SEEDS,
            steps=STEPS,
            window=WINDOW,
            activation=self.activation,
            block_depth=self.block_depth,
            multipliers=self.multiplier,
        )
        return [
            [cell_at(sweep, rate, seed, **{self.axis: size}) for seed in range(SEEDS)]
            for rate in self.rates
        ]


def experiments() -> Iterator[Experiment]:
    wide = {"below": 3.0, "above": 4.5}
    yield Experiment(scheme="depth-mup", below=3.0, above=3.0)
    yield Experiment(scheme="block-multiplier", below=5.0, above=2.5)
    yield Experiment(scheme="ode", **wide)
    yield Experiment(scheme="completep", block_depth=2, **wide)
    yield Experiment(scheme="depth-mup", axis="width", below=3.0, above=3.0)
    for multiplier in (WEAK, STRONG):
        relu = {"activation": "relu", "multiplier": multiplier}
        yield Experiment(scheme="depth-mup", **relu)
        yield Experiment(scheme="block-multiplier", below=4.0, above=1.0, **relu)
        yield Experiment(scheme="ode", below=1.5, above=3.0, **relu)
        yield Experiment(scheme="completep", below=1.5, above=2.5, block_depth=2, **relu)
        yield Experiment(scheme="depth-mup", axis="width", **relu)
    for activation in ("abs", "relu"):
        adam = {"optimizer": "adam", "activation": activation, "below": 2.5}
        yield Experiment(scheme="depth-mup", above=1.5, **adam)
        yield Experiment(scheme="ode", above=2.5, **adam)


EXAMPLES = 256  # of which the sharpness at initialization is that of


def measure(cell: str, examples: int, batches: int) -> dict[str, float]:
    """Sharpness of a run's network at initialization, per unit of its own learning rate.

    For Adam in its metric at the start, P = root of the mean square of ``batches`` gradients; and
    ``step``, g.s / s.G s along its first step s = g / P, the rate at which one step is best.
    """
    run_ = Cell.from_json(cell)
    data, model = dataset(run_.data), build(run_)
    batch = [(data.inputs[:examples], data.labels[:examples])]
    if run_.optimizer.name == "sgd":
        return {"curvature": sharpness(model, batch, loss=cross_entropy).value}
    squares: dict[str, torch.Tensor] = {}
    for chosen in batches_of(run_)[:batches]:
        product = GaussNewton.of(model, data.inputs[chosen], data.labels[chosen], cross_entropy)
        for name, g in product.gradient().items():
            squares[name] = squares.get(name, torch.zeros_like(g)) + g.square() / batches
    rates = {n: 1 / (v.sqrt() + run_.optimizer.epsilon) for n, v in squares.items()}
    found = sharpness(model, batch, loss=cross_entropy, rates=rates)
    product = GaussNewton.of(model, *batch[0], cross_entropy)
    gradient = product.gradient()
    step = {name: g * rates[name] for name, g in gradient.items()}
    image = product(step)
    along = sum(float((image[n] * step[n]).sum()) for n in step)
    gain = sum(float((gradient[n] * step[n]).sum()) for n in step)
    return {"curvature": found.value, "step": gain / along, "error": found.error}


FEW = 64  # images, all in every step
FEW_WIDTH, FEW_DEPTHS, FEW_SEEDS = 128, (8, 16, 32, 64), 4
FEW_STEPS = (3, 10)
FEW_SCHEMES = ("depth-mup", "ode", "3/4,1/4")


def few(*, scheme: str, activation: str, depth: int, seed: int, rates: list[float]) -> dict:
    """Half the mean squared error after a few full-batch steps at each learning rate."""
    torch.set_num_threads(1)
    inputs, targets = images(FEW)
    chosen, losses = scheme_named(scheme), {f"{n} steps": [] for n in FEW_STEPS}
    loss = limits.mse(targets)
    for rate in rates:
        # One object for each step: training ends at the last one.
        steps = [limits.Step(inputs, loss) for _ in range(max(FEW_STEPS) + 1)]
        found = factored.train_factored(
            steps,
            factored.Blocks(
                # In its convention the base's depth is one.
                lr=2.0**rate * BASE_DEPTH ** -float(chosen.alpha - chosen.gamma),
                multiplier=BASE_DEPTH ** float(chosen.alpha),
                alpha=chosen.alpha,
                gamma=chosen.gamma,
                activation=activation,
            ),
            width=FEW_WIDTH,
            depth=depth,
            seed=seed,
        )
        outputs = found.outputs.reshape(len(steps), *targets.shape)
        for n in FEW_STEPS:
            value = loss.value(outputs[n]) if np.isfinite(outputs[n]).all() else math.inf
            losses[f"{n} steps"].append(value)
    return losses


def few_task(scheme: str, activation: str, depth: int, seed: int) -> Task:
    """Learning rates in half octaves, two octaves to each side of 1.4 / lambda."""
    curvature = infinite(scheme, activation, 1, STRONG, (depth,), FEW).curvatures[0]
    centre = round(2 * math.log2(1.4 / curvature))
    settings = {
        "scheme": scheme,
        "activation": activation,
        "depth": depth,
        "seed": seed,
        "rates": [(centre + k) / 2 for k in range(-4, 5)],
    }
    return Task(name="a few full-batch steps", settings=settings)


def images(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Digits of length one, and one-hot labels less their mean."""
    data = digits()
    inputs = data.inputs[:count].double().numpy()
    labels = np.eye(data.classes)[data.labels[:count].numpy()] - 1 / data.classes
    return inputs / np.linalg.norm(inputs, axis=1, keepdims=True), labels


@cache
def infinite(
    scheme: str,
    activation: str,
    block_depth: int,
    multiplier: float,
    depths: tuple[int, ...],
    examples: int = EXAMPLES,
) -> limits.OptimalRate:
    """What the infinitely wide network predicts."""
    block = limits.Block(activation=activation, block_depth=block_depth, nonlinearity="post")
    return limits.optimal_rate(
        images(examples)[0],
        depths=depths,
        base_depth=BASE_DEPTH,
        scheme=scheme,
        block=block,
        multiplier=multiplier,
    )


def task(cell: Cell) -> Task:
    """Of the network alone: runs that differ in their learning rate share it."""
    same = replace(cell, optimizer=replace(cell.optimizer, lr=1.0), steps=STEPS)
    settings = {"cell": same.to_json(), "examples": EXAMPLES, "batches": 10}
    return Task(name="sharpness at initialization", settings=settings)


def at_start(experiment: Experiment, size: int) -> list[Cell]:
    """The runs whose networks at initialization stand for a size, one for each seed."""
    return experiment.cells(size)[0]


def train(store: Store, chosen: Sequence[Experiment], workers: int) -> None:
    for experiment in chosen:
        started = time.process_time(), time.perf_counter()
        cells = [cell for size in experiment.sizes for of in experiment.cells(size) for cell in of]
        done = run(
            list({cell.key: cell for cell in cells}.values()),
            store=store,
            executor=Processes(workers=workers),
            jobs=training,
            about={"environment": environment()},
        )
        print(f"{experiment}: {done} runs, {time.perf_counter() - started[1]:.0f} s", flush=True)


def look(store: Store, chosen: Sequence[Experiment]) -> None:
    """A few full-batch steps, and the sharpness of networks at initialization."""

    def do(what: str, tasks: Sequence[Task], function: Callable[..., dict]) -> None:
        started = time.perf_counter()
        done = run(
            list({one.key: one for one in tasks}.values()),
            store=store,
            executor=InProcess(),
            jobs=lambda missing: [Measure(task=one, function=function) for one in missing],
            about={"environment": environment()},
        )
        print(f"{what}: {done} looks, {time.perf_counter() - started:.0f} s", flush=True)

    for name in FEW_SCHEMES:
        for activation in ("relu", "abs"):
            tasks = [few_task(name, activation, d, s) for d in FEW_DEPTHS for s in range(FEW_SEEDS)]
            do(f"a few steps, {name}, {activation}", tasks, few)
    for experiment in chosen:
        cells = [cell for size in experiment.sizes for cell in at_start(experiment, size)]
        do(str(experiment), [task(cell) for cell in cells], measure)


def optimum(rates: Sequence[float], losses: np.ndarray) -> Estimate:
    """The best log2 learning rate of one curve, from losses (rates, seeds), with a 90% interval.

    The one place that knows how the library finds optima.
    """
    curves = Curves.of(rates, [losses])
    [best] = Runs(name="", title="", sizes=({"depth": 1.0},), curves=curves).best(0.9)
    return best.log2_lr


def difference(one: Estimate, base: Estimate) -> Estimate:
    """Of two optima, as if independent: at another size the networks are others."""
    if one is base:
        return Estimate(value=0.0, low=0.0, high=0.0)
    value = one.value - base.value
    half = math.hypot(one.high - one.value, base.high - base.value)
    return Estimate(value=value, low=value - half, high=value + half)


def measured_few(
    store: Store, name: str, activation: str, steps: int
) -> tuple[list[float], list[Estimate]] | None:
    """Predicted and measured octaves over the base's after a few full-batch steps."""
    optima = []
    for depth in FEW_DEPTHS:
        tasks = [few_task(name, activation, depth, seed) for seed in range(FEW_SEEDS)]
        found = [store.get(one) for one in tasks]
        if None in found:
            return None
        losses = np.array([one.values[f"{steps} steps"] for one in found], dtype=float).T
        optima.append(optimum(tasks[0].settings["rates"], losses))
    predicted = infinite(name, activation, 1, STRONG, FEW_DEPTHS, FEW).octaves
    return list(predicted), [difference(one, optima[0]) for one in optima]


def measured(store: Store, experiment: Experiment) -> list[Estimate] | None:
    """Measured octaves over the base's, by size."""
    optima = {}
    for size in experiment.sizes:
        found = [[store.get(cell) for cell in of] for of in experiment.cells(size)]
        if any(one is None for of in found for one in of):
            return None
        losses = [[one.mean_loss(STEPS - WINDOW, STEPS) for one in of] for of in found]
        optima[size] = optimum(experiment.rates, np.array(losses))
    base = optima[BASE_DEPTH if experiment.axis == "depth" else BASE_WIDTH]
    return [difference(optima[size], base) for size in experiment.sizes]


def predicted(store: Store, experiment: Experiment, kind: str) -> list[float] | None:
    """Octaves over the base's from the networks' own sharpness ("curvature") or step ("step")."""
    logs = {}
    for size in experiment.sizes:
        cells = at_start(experiment, size)
        found = [store.get(task(cell)) for cell in cells]
        if None in found:
            return None
        factor = math.log2(cells[0].optimizer.lr) - experiment.rates[0]
        sign = {"curvature": -1, "step": 1}[kind]
        logs[size] = sign * np.mean([math.log2(one.values[kind]) for one in found]) - factor
    base = logs[BASE_DEPTH if experiment.axis == "depth" else BASE_WIDTH]
    return [logs[size] - base for size in experiment.sizes]


def report(store: Store) -> None:
    """The tables, as Markdown."""
    print(f"Full-batch steps on {FEW} digits, depths {FEW_DEPTHS}, width {FEW_WIDTH}\n")
    print(header("steps", "network", "predicted octaves", "measured", "largest error"))
    for steps in FEW_STEPS:
        for name in FEW_SCHEMES:
            for activation in ("relu", "abs"):
                found = measured_few(store, name, activation, steps)
                if found is None:
                    continue
                said, was = found
                worst = max((e.value - s for s, e in zip(said, was, strict=True)), key=abs)
                title = f"{scheme_named(name).title}, {activation}"
                print(
                    f"| {steps} | {title} | {' '.join(map(number, said))} | {octaves(was)} | "
                    f"{number(worst)} |"
                )
    for optimizer, axis in (("sgd", "depth"), ("sgd", "width"), ("adam", "depth")):
        print(
            f"\n{optimizer}, {STEPS} steps, along {axis}, {DEPTHS if axis == 'depth' else WIDTHS}\n"
        )
        print(
            header(
                "network", "by", "predicted octaves", "measured", "errors",
                "drift per doubling: predicted, measured",
            )
        )  # fmt: skip
        by_way: dict[str, list[tuple[float, float]]] = {}
        for experiment in experiments():
            if (experiment.optimizer, experiment.axis) == (optimizer, axis):
                for row in rows(store, experiment):
                    print(row)
                    if row.drifts is not None:
                        by_way.setdefault(row.way, []).append(row.drifts)
        for way, of_way in by_way.items():
            print(f"\nBy {way}: {verdict(of_way)}")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way of predicting one experiment's optima; printed as a line of Markdown."""

    title: str
    way: str
    sizes: tuple[int, ...]
    predicted: Sequence[float] | None
    measured: Sequence[Estimate] | None

    @property
    def drifts(self) -> tuple[float, float] | None:
        """Predicted and measured octaves per doubling, where all is trained."""
        if self.measured is None or self.predicted is None:
            return None
        measured = slope(self.sizes, [at.value for at in self.measured])
        return slope(self.sizes, self.predicted), measured

    def __str__(self) -> str:
        if self.measured is None or self.predicted is None or self.drifts is None:
            return f"| {self.title} | {self.way} | not trained yet | | | |"
        pairs = zip(self.predicted, self.measured, strict=True)
        errors = " ".join(number(said - was.value) for said, was in pairs)
        return (
            f"| {self.title} | {self.way} | {' '.join(map(number, self.predicted))} | "
            f"{octaves(self.measured)} | {errors} | {', '.join(map(number, self.drifts))} |"
        )


def rows(store: Store, experiment: Experiment) -> Iterator[Row]:
    """A row for each way of predicting."""
    was = measured(store, experiment)
    ways: dict[str, Sequence[float] | None] = {}
    if experiment.optimizer == "sgd":
        depths = experiment.sizes if experiment.axis == "depth" else (BASE_DEPTH,)
        said = infinite(
            experiment.scheme, experiment.activation, experiment.block_depth,
            experiment.multiplier, depths,
        )  # fmt: skip
        ways["infinite width"] = said.octaves * (1 if len(depths) > 1 else len(experiment.sizes))
        ways["these networks"] = predicted(store, experiment, "curvature")
    else:
        ways["preconditioned sharpness"] = predicted(store, experiment, "curvature")
        ways["first step"] = predicted(store, experiment, "step")
    title = f"{scheme_named(experiment.scheme).title}, {experiment.activation}"
    title += f", block depth {experiment.block_depth}" if experiment.block_depth > 1 else ""
    title += f", a = {experiment.multiplier:.3g}"
    for way, of_way in ways.items():
        yield Row(title=title, way=way, sizes=experiment.sizes, predicted=of_way, measured=was)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "action", nargs="?", default="report", choices=["look", "train", "report", "decoders"]
    )
    parser.add_argument("--store", type=Path, default=Path("runs/predict/results.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    options.store.parent.mkdir(parents=True, exist_ok=True)
    with Store(options.store) as store:
        if options.action == "train":
            train(store, list(experiments()), options.workers)
        elif options.action == "look":
            torch.set_num_threads(1)
            look(store, list(experiments()))
        elif options.action == "decoders":
            decoder_sharpness.report(store)
        else:
            report(store)


if __name__ == "__main__":
    main()
