"""Feature diversity from depth 64 to 1024, beside limits; the tables of docs/studies/probes.md.

    python -m studies.diversity                  # all three; ten minutes of one core
    python -m studies.diversity --only linear    # trained, linear or conditions

- ``trained``: residual MLPs of width 64 with abs, 100 steps of Adam on the digits.
- ``linear``: wide linear networks, 3 steps of SGD, beside the exact limit of infinite width at
  their depth and at infinite depth.
- ``conditions``: local slopes at depth 256 by eps, place, learning rate and base depth.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from depthmup import limits
from depthmup.data import digits
from depthmup.models import ResidualMLP
from depthmup.records import Cell, Data, Estimate
from depthmup.rules import scheme
from depthmup.training import batches, build, dataset
from depthmup.training.cells import optimizer_of
from depthmup.training.native import BuildError, library
from depthmup.training.native.member import Member
from reproduction.probes.diversity import diversity, diversity_at_infinite_depth, feature_distances
from reproduction.runs import along_depth
from reproduction.theory.diversity import feature_diversity
from studies.networks import cell_at

DEPTHS = (64, 128, 256, 512, 1024)
EPS = (1 / 32, 1 / 16, 1 / 8, 1 / 4)
SCHEMES = {"depth-mup": ("1/2", "1/2"), "ode": ("1", "0")}
# 2^-5.5 / 64 = 3.5e-4 at depth 1: the loss falls by 0.15 in 100 steps, and features move by less
# than their size.
EARLY = -5.5
ACTIVATION = "abs"
INPUTS = digits(label_noise=0.0).inputs[:64]

Array = NDArray[np.float64]


def cell(name: str, depth: int, *, seed: int, log2_lr: float = EARLY, base: int = 1) -> Cell:
    """A residual MLP at a scheme's settings: width 64, batches of 64, 100 steps of Adam."""
    sweep = along_depth(
        schemes=name,
        depths=tuple(sorted({base, depth})),
        base_depth=base,
        log2_lrs=(log2_lr,),
        steps=100,
        window=20,
        activation=ACTIVATION,
        data=Data(label_noise=0.0),
    )
    return cell_at(sweep, log2_lr, seed, depth=depth)


def trained(cell: Cell) -> tuple[ResidualMLP, float]:
    """The cell's network after training, and its last loss; by the compiled kernel if there is one.

    What a run leaves behind are its losses; here the weights are wanted.
    """
    model = build(cell)
    try:
        kernel = library()
    except BuildError:
        return model, _train(cell, model)
    state = Member(cell, kernel.register_length)
    if state.advance(kernel, 0, cell.steps, math.inf) < cell.steps:
        raise RuntimeError(f"{cell} diverged.")
    weights = state.arrays["weights"][..., : cell.network.width]
    with torch.no_grad():
        for branch, matrices in zip(model.branches, weights, strict=True):
            for linear, values in zip(branch.matrices, matrices, strict=True):
                linear.weight.copy_(values)
    return model, float(state.losses[-1])


def _train(cell: Cell, model: ResidualMLP) -> float:
    """Plain PyTorch, for machines without a compiler."""
    optimizer = optimizer_of(cell, [p for p in model.parameters() if p.requires_grad])
    data = dataset(cell.data)
    for chosen in batches(cell):
        loss = functional.cross_entropy(model(data.inputs[chosen]), data.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def distances(
    name: str, depth: int, *, seeds: int, at: Sequence[float] = (0.25, 0.5), **options: float
) -> tuple[list[Array], float]:
    """d(eps) of trained networks, one array for each seed, and their mean loss."""
    found, losses = [], []
    for seed in range(seeds):
        model, loss = trained(cell(name, depth, seed=seed, **options))
        found.append(feature_distances(model, INPUTS, "branches.*", eps=EPS, at=at))
        losses.append(loss)
    return found, float(np.mean(losses))


def linear_steps() -> list[limits.Step]:
    """Two examples a step, of three features and two outputs."""
    rng = np.random.default_rng(0)
    return [
        limits.Step(rng.normal(size=(2, 3)) / np.sqrt(3), limits.mse(rng.normal(size=(2, 2))))
        for _ in range(4)
    ]


def wide_linear(name: str, depth: int, *, width: int, seed: int, lr: float) -> Array:
    """d(eps) of a linear network after three steps of SGD, on the examples of the fourth."""
    alpha, gamma = (float(scheme(name).alpha), float(scheme(name).gamma))
    steps = linear_steps()
    model = ResidualMLP(
        inputs=3,
        width=width,
        depth=depth,
        outputs=2,
        multiplier=depth**-alpha,
        activation_name="identity",
        mean_subtraction=False,
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.branches.parameters():
            p.normal_(std=width**-0.5, generator=generator)
        model.input.weight.normal_(generator=generator)
        model.readout.weight.normal_(generator=generator).div_(width)
    for layer in (model.input, model.readout):
        layer.requires_grad_(False)
    # The gradient of a matrix has depth^-alpha from its branch already.
    optimizer = torch.optim.SGD(model.branches.parameters(), lr=lr * depth ** (alpha - gamma))
    for step in steps[:-1]:
        outputs = model(torch.tensor(step.inputs).float())
        gradient = torch.tensor(step.loss.gradient(outputs.detach().double().numpy())).float()
        optimizer.zero_grad()
        outputs.backward(gradient)
        optimizer.step()
    inputs = torch.tensor(steps[-1].inputs).float()
    return feature_distances(model, inputs, "branches.*", eps=EPS, at=(0.25,))


def exact_linear(name: str, depth: float, *, lr: float) -> Array:
    """The same at infinite width: (1, eps)."""
    alpha, gamma = SCHEMES[name]
    solution = limits.linear(
        linear_steps(), depth=depth, lr=lr, alpha=alpha, gamma=gamma, history=True
    )
    last = feature_diversity(solution, EPS, at=0.25)[:, -2:]
    return np.sqrt(np.square(last).mean(axis=1))[None]


def kappas(found: Array) -> list[float]:
    """1 - local slope of exact distances, (1, eps)."""
    return [float(v) for v in 1 - np.diff(np.log2(found[0]))]


def interval(e: Estimate) -> str:
    return f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]"


def ratio(found: Sequence[Array], exact: Array) -> str:
    """RMS over runs of the largest distance, relative to the exact one, and its standard error."""
    squares = np.array([f[0, -1] ** 2 for f in found]) / exact[0, -1] ** 2
    value = float(squares.mean()) ** 0.5
    return f"{value:.2f} +- {squares.std(ddof=1) / len(squares) ** 0.5 / (2 * value):.2f}"


def complement(e: Estimate) -> Estimate:
    return Estimate(value=1 - e.value, low=1 - e.high, high=1 - e.low)


def trained_table(seeds: int = 4, depths: Sequence[int] = DEPTHS) -> Iterator[str]:
    """Kappa from consecutive eps, for both schemes."""
    yield "| scheme | depth | loss | kappa, eps 1/32 to 1/16 | 1/16 to 1/8 | 1/8 to 1/4 |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in SCHEMES:
        everything = []
        for depth in depths:
            runs, loss = distances(name, depth, seeds=seeds)
            everything.append(runs)
            columns = [interval(complement(s)) for s in diversity(runs, EPS).slopes]
            yield f"| {name} | {depth} | {loss:.2f} | {' | '.join(columns)} |"
        alpha = scheme(name).alpha
        endless = diversity_at_infinite_depth(depths, everything, EPS, alpha=alpha)
        columns = [interval(complement(s)) for s in endless.slopes]
        yield f"| {name} | extrapolated | | {' | '.join(columns)} |"


def linear_table(
    width: int = 512, runs: int = 8, lr: float = 2.0, depths: Sequence[int] = (64, 128, 256)
) -> Iterator[str]:
    """Distances and kappa of networks beside those of the limits."""
    yield (
        "| scheme | depth | d(1/4), networks / limit | kappa, eps 1/8 to 1/4, networks | limit "
        "at this depth |"
    )
    yield "| --- | --- | --- | --- | --- |"
    for name in SCHEMES:
        everything = []
        for depth in depths:
            found = [wide_linear(name, depth, width=width, seed=s, lr=lr) for s in range(runs)]
            everything.append(found)
            exact = exact_linear(name, depth, lr=lr)
            measured = diversity(found, EPS)
            yield (
                f"| {name} | {depth} | {ratio(found, exact)} | "
                f"{interval(measured.kappa)} | {kappas(exact)[-1]:.3f} |"
            )
        alpha = scheme(name).alpha
        endless = diversity_at_infinite_depth(depths, everything, EPS, alpha=alpha)
        exact = exact_linear(name, math.inf, lr=lr)
        yield (
            f"| {name} | extrapolated, infinite | {endless.distances[-1] / exact[0, -1]:.2f} | "
            f"{interval(endless.kappa)} | {kappas(exact)[-1]:.3f} |"
        )


def conditions_table(depth: int = 256, seeds: int = 3) -> Iterator[str]:
    """Local slopes by place, eps, learning rate and base depth."""
    at = (0.0, 0.25, 0.5)
    ends = ["1/16", "1/8", "1/4"]
    columns = [f"{n}, to eps {e}" for n in SCHEMES for e in ends]
    yield f"| base depth | log2 rate | losses | {' | '.join(columns)} |"
    yield "| --- " * (3 + len(columns)) + "|"
    for base, rates in ((1, (-8.0, -7.0, -6.0, EARLY, -5.0, -4.0, -2.0, 0.0)), (8, (-6.0, -3.0))):
        for rate in rates:
            losses, row = [], []
            for name in SCHEMES:
                runs, loss = distances(name, depth, seeds=seeds, at=at, log2_lr=rate, base=base)
                losses.append(f"{loss:.2f}")
                slopes = np.diff(np.log2(np.exp(np.log(runs).mean(axis=0))), axis=1)
                row += [" ".join(f"{v:.2f}" for v in column) for column in slopes.T]
            yield f"| {base} | {rate:g} | {', '.join(losses)} | {' | '.join(row)} |"


TABLES = {"trained": trained_table, "linear": linear_table, "conditions": conditions_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    only = parser.parse_args().only
    torch.set_num_threads(1)
    for name, table in TABLES.items():
        if only in (None, name):
            started = time.perf_counter()
            for line in table():
                print(line, flush=True)
            print(f"\n{name}: {time.perf_counter() - started:.0f} s on one core.\n", flush=True)


if __name__ == "__main__":
    main()
