"""Is the drift of the optimum foretold by the kernel at initialization? Predict, then train.

    python -m benchmarks.predict train     # what the store does not hold yet; about ten minutes
    python -m benchmarks.predict           # the tables of docs/predict.md, as Markdown

Residual MLPs on the digits, U and V frozen, half-octave grids. Predicted: ``limits.optimal_rate``
at infinite width, and ``diagnostics.sharpness`` of the very networks at initialization.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from depthmup.diagnostics import GaussNewton, sharpness
from depthmup.records import Cell, Task, environment
from depthmup.rules import scheme
from depthmup.sweep import Grid, InProcess, Measure, Processes, Store, run, training
from depthmup.training.setup import batches as batches_of
from depthmup.training.setup import build, dataset

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

    def grid(self, size: int) -> Grid:
        depth, width = (size, BASE_WIDTH) if self.axis == "depth" else (BASE_DEPTH, size)
        return Grid(
            schemes=(scheme(self.scheme),),
            depths=tuple(sorted({BASE_DEPTH, depth})),
            base_depth=BASE_DEPTH,
            width=width,
            base_width=BASE_WIDTH,
            log2_lrs=self.rates,
            seeds=SEEDS,
            steps=STEPS,
            window=WINDOW,
            activation=self.activation,
            block_depth=self.block_depth,
            optimizer=self.optimizer,
            multiplier=self.multiplier,
        )

    def cells(self, size: int) -> list[list[Cell]]:
        """The runs of one size, by learning rate and seed."""
        grid = self.grid(size)
        depth = size if self.axis == "depth" else BASE_DEPTH
        return [list(grid.curve(grid.schemes[0], depth, rate)) for rate in self.rates]


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
    for name in ("depth-mup", "ode"):
        yield Experiment(
            scheme=name, optimizer="adam", below=2.5, above=2.5 if name == "ode" else 1.5
        )


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


def task(cell: Cell) -> Task:
    settings = {"cell": cell.to_json(), "examples": EXAMPLES, "batches": 10}
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
    """The sharpness of every size's networks at initialization, as far as it is not known."""
    for experiment in chosen:
        cells = [cell for size in experiment.sizes for cell in at_start(experiment, size)]
        tasks = list({task(cell).key: task(cell) for cell in cells}.values())
        started = time.perf_counter()
        done = run(
            tasks,
            store=store,
            executor=InProcess(),
            jobs=lambda missing: [Measure(task=one, function=measure) for one in missing],
            about={"environment": environment()},
        )
        print(f"{experiment}: {done} looks, {time.perf_counter() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", nargs="?", default="report", choices=["train", "look", "report"])
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


if __name__ == "__main__":
    main()
