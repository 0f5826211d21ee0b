"""Does Adam's preconditioned sharpness predict the drift of the best rate of small decoders?

    python -m studies.predict decoders     # looks at what the store does not hold; the table

The networks, batches and learning rates of ``studies.decoders``; measured optima are those that
docs/studies/transformers.md prints. Predicted, with P^-1 the factors that Adam divides gradients by
and D the plan's factors on the learning rate, as lambda^-1 of P^-1/2 D^1/2 G D^1/2 P^-1/2

    at initialization   P from the mean square of the gradients of the first ten batches
    after warmup        P from Adam's own second moments, at the weights after the ten steps of
                        warmup, at the base's best learning rate
    first step          the learning rate at which one step along P^-1 g, at initialization, is best
"""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from depthmup._isolated import seeded
from depthmup.diagnostics import GaussNewton, sharpness
from depthmup.model import resolved
from depthmup.records import Estimate, Task, Trial, environment
from depthmup.statistics import mean
from depthmup.sweep import InProcess, Store, Sweep, run
from depthmup.training import stream
from depthmup.training.trial import planned, prepared
from reproduction.runs import Measure
from studies.decoders import BASE, LOG2_LRS, MODELS, along_depth, along_width
from studies.predict_table import header, number, octaves, slope, verdict

PAGE = Path(__file__).parent.parent / "docs" / "studies" / "transformers.md"
TABLES = {
    ("with RMSNorm", "depth"): "AdamW, RMSNorm",
    ("without", "depth"): "AdamW, no normalization",
    ("with RMSNorm", "width"): "AdamW, RMSNorm, L = 4, width 16, 32, 64",
}
FIRST = 10  # steps of warmup, whose batches give the second moments
LOOKED_AT = 2  # of these batches, on which the sharpness is that of the loss
SEEDS = 6  # those that were trained
WAYS = {"initial": "at initialization", "warm": "after warmup", "step": "first step"}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One row of a measured table: the optima of a scheme along an axis, where any rate trains."""

    norm: str
    axis: str
    scheme: str
    sizes: tuple[int, ...]
    measured: tuple[float, ...]  # log2 of the best learning rate at the base

    @property
    def title(self) -> str:
        return f"{self.scheme}, {TABLES[self.norm, self.axis].split(',')[1].strip()}"

    @property
    def base(self) -> int:
        """The index of the base among the sizes."""
        return self.sizes.index(BASE[self.axis])

    @property
    def octaves(self) -> list[float]:
        return [at - self.measured[self.base] for at in self.measured]


def curves(page: Path = PAGE) -> Iterator[Curve]:
    """The optima of AdamW that the page prints."""
    text = page.read_text(encoding="utf-8").replace("−", "-")
    for (norm, axis), title in TABLES.items():
        _, _, table = text.partition(f"\n| {title} |")
        for i, line in enumerate(f"| {title} |{table}".splitlines()):
            training, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            if i and (training or not cells):  # the next table's rows, or the end
                break
            optima = re.findall(r"fails|[≤≥]?-?\d+\.\d", cells[1])
            grid = grid_of(norm, axis)
            sizes = grid.design.arm(axis)
            if len(optima) == len(sizes):
                trained = [
                    (n, float(o)) for n, o in zip(sizes, optima, strict=True) if o != "fails"
                ]
                yield Curve(
                    norm=norm,
                    axis=axis,
                    scheme=cells[0],
                    sizes=tuple(n for n, _ in trained),
                    measured=tuple(at for _, at in trained),
                )


def grid_of(norm: str, axis: str) -> Sweep:
    return (along_depth if axis == "depth" else along_width)("adamw", norm)


def trials(curve: Curve) -> list[list[Trial]]:
    """The runs at the base's best learning rate, by size and seed."""
    grid = grid_of(curve.norm, curve.axis)
    title = "SP" if curve.scheme.startswith("SP") else curve.scheme
    (variant,) = (v for v in grid.design.variants if v.title == title)
    best = curve.measured[curve.base]
    rate = min(LOG2_LRS["adamw", curve.norm], key=lambda at: abs(at - best))
    return [
        [grid.run(variant, size, rate, seed) for seed in range(SEEDS)]
        for size in grid.design.sizes_along(curve.axis)
        if size[curve.axis] in curve.sizes
    ]


def task(trial: Trial, norm: str) -> Task:
    settings = {"norm": norm, "first": FIRST, "looked_at": LOOKED_AT}
    name = "Adam's sharpness of a decoder"
    return Task(name=name, settings={"trial": trial.to_json(), **settings})


def look(*, trial: str, norm: str, first: int, looked_at: int) -> dict[str, float]:
    """Adam's sharpness of one network, at initialization and after warmup, and its first step.

    Per unit of the base's learning rate.
    """
    torch.set_num_threads(1)
    run, own = Trial.from_json(trial), MODELS[norm]
    with seeded(run.seed):
        model, plan = planned(run, own)
    generator = stream(run.seed, "batches")
    batches = list(islice(iter(lambda: resolved(own).batch(generator), None), first))
    (optimizer,), factors, _ = prepared(run, model.train(), plan)
    groups = {p: group for group in optimizer.param_groups for p in group["params"]}
    squares = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for inputs, targets in batches:
        for name, g in gradient(model, inputs, targets).items():
            squares[name] += g.square() / first

    def metric(second: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Every parameter's learning rate over the base's, over what Adam divides by."""
        return {
            name: groups[p]["lr"] / run.lr / (second[name].sqrt() + groups[p]["eps"])
            for name, p in model.named_parameters()
        }

    rates = metric(squares)
    values: dict[str, float] = {}
    values["initial"], values["error"] = curvature(model, batches[:looked_at], rates)
    values["step"] = best_step(model, batches[0], rates)
    base_rates = [group["lr"] for group in optimizer.param_groups]
    for step, (inputs, targets) in enumerate(batches):
        for group, of_group in zip(optimizer.param_groups, base_rates, strict=True):
            group["lr"] = of_group * factors[step]
        optimizer.zero_grad()
        cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
    for group, of_group in zip(optimizer.param_groups, base_rates, strict=True):
        group["lr"] = of_group
    decayed = {p: 1 - groups[p]["betas"][1] ** first for p in groups}
    moments = {
        name: optimizer.state[p]["exp_avg_sq"] / decayed[p] for name, p in model.named_parameters()
    }
    values["warm"], error = curvature(model, batches[:looked_at], metric(moments))
    values["error"] = max(values["error"], error)
    return values


def gradient(model: nn.Module, inputs: Any, targets: Any) -> dict[str, torch.Tensor]:
    names, weights = zip(*model.named_parameters(), strict=True)
    loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    return dict(zip(names, torch.autograd.grad(loss, weights), strict=True))


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def curvature(
    model: nn.Module, batches: Sequence[Any], rates: Mapping[str, Any]
) -> tuple[float, float]:
    """The preconditioned sharpness and its relative error; infinite where the loss is."""
    try:
        sharp = sharpness(model, batches, loss=loss_of, rates=rates, tolerance=0.01)
    except ValueError:
        return math.inf, 0.0
    return sharp.value, sharp.error


def best_step(model: nn.Module, batch: Any, rates: Mapping[str, torch.Tensor]) -> float:
    """g.s / s.G s along the first step s = D P^-1 g."""
    inputs, targets = batch
    product = GaussNewton.of(model, inputs, targets, loss_of)
    slope = product.gradient()
    step = {name: g * rates[name] for name, g in slope.items()}
    image = product(step)
    along = sum(float((image[name] * step[name]).sum()) for name in step)
    return sum(float((slope[name] * step[name]).sum()) for name in step) / along


def predicted(curve: Curve, store: Store, way: str) -> list[Estimate] | None:
    """Octaves over the base's with 95% intervals over seeds, by size; None where not looked at."""
    looks = [[store.get(task(trial, curve.norm)) for trial in of_size] for of_size in trials(curve)]
    if any(look is None for of_size in looks for look in of_size):
        return None
    sign = 1 if way == "step" else -1
    logs = np.array([[sign * math.log2(at.values[way]) for at in of_size] for of_size in looks])
    return [mean(of_size - logs[curve.base]) for of_size in logs]


def tasks(curve: Curve) -> list[Measure]:
    return [
        Measure(task=task(trial, curve.norm), function=look)
        for of_size in trials(curve)
        for trial in of_size
    ]


def report(store: Store) -> None:
    """Look at what the store does not hold, then print the tables and what they come to."""
    measures = {measure.task.key: measure for curve in curves() for measure in tasks(curve)}
    started = time.process_time()
    done = run(
        [measure.task for measure in measures.values()],
        store=store,
        executor=InProcess(),
        jobs=lambda missing: [measures[one.key] for one in missing],
        about={"environment": environment()},
    )
    print(f"{done} looks, {time.process_time() - started:.0f} s of processor time\n")
    for axis in ("depth", "width"):
        print(f"Adam on decoders along {axis}\n")
        print(header("decoder", "by", "predicted octaves", "measured", "errors",
                     "drift per doubling: predicted, measured"))  # fmt: skip
        drifts: dict[str, list[tuple[float, float]]] = {}
        worst: dict[str, float] = {}
        for curve in (curve for curve in curves() if curve.axis == axis):
            was = np.array(curve.octaves)
            for way, title in WAYS.items():
                said = predicted(curve, store, way)
                assert said is not None
                values = np.array([at.value for at in said])
                both = slope(curve.sizes, values), slope(curve.sizes, was)
                drifts.setdefault(title, []).append(both)
                worst[title] = max(worst.get(title, 0.0), float(np.abs(values - was).max()))
                print(
                    f"| {curve.title} | {title} | {octaves(said)} | {' '.join(map(number, was))} | "
                    f"{' '.join(map(number, values - was))} | {', '.join(map(number, both))} |"
                )
        for title, pairs in drifts.items():
            print(f"\nBy {title}: {verdict(pairs)}; largest error {worst[title]:.1f} octaves")
        print()
