"""Networks of every size: made, looked at, trained for a few steps, and looked at again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from depthmup.diagnostics.observations import Key, Observation, Paths, Points, labels_of
from depthmup.diagnostics.points import points_of
from depthmup.diagnostics.preparation import Make, Prepare
from depthmup.diagnostics.probes import first_nonfinite, observe
from depthmup.diagnostics.sharding import call
from depthmup.planning import Plan
from depthmup.rules import Observable
from depthmup.tracing import Facts, parameters, read


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A trained network of a check, its inputs, and what was seen at first and after training."""

    model: nn.Module
    inputs: Any
    width: int
    depth: int
    seed: int
    first: Observation
    second: Observation


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One observable of one network; ``branches`` are those of its residual stream."""

    key: Key
    width: int
    depth: int
    branches: int
    seed: int
    value: float

    def size(self, axis: str) -> float:
        """What exponents of width, or of depth, refer to."""
        return float(self.width if axis == "width" else self.branches)


def visited(
    loss_of: Callable[[Any, Any], Tensor],
    prepare: Prepare,
    applied: bool,
    model: nn.Module,
    made: Plan,
    points: Points,
    data: tuple[Any, Any],
    lr: float,
    steps: int,
) -> tuple[tuple[Observation, ...], tuple[float, ...], tuple[str, int] | None]:
    """Look, train, look again; or where and when a value stopped being finite."""
    inputs, targets = data
    optimizers = prepare(model, made, lr)
    bad = first_nonfinite(model, inputs)
    if bad is not None:
        return (), (), (bad, 0)
    first = observe(model, inputs, points, made, applied=applied)
    # Before training: a schedule of its own may move the rates.
    labels = labels_of(model)
    for name, decay in decays(model, optimizers).items():
        key = Key(observable=Observable.DECAY, module=labels(name))
        first.values[key], first.roles[key] = decay, made[name].role
    weights = {name: p.detach().clone() for name, p in parameters(model).items()}
    paths, curve = Paths(model), []
    for step in range(1, steps + 1):
        loss = loss_of(call(model, inputs), targets)
        if not torch.isfinite(loss):  # before a step spreads it to every weight
            return (), (), (first_nonfinite(model, inputs) or "loss", step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        paths.step()
        curve.append(float(loss.detach()))
    bad = first_nonfinite(model, inputs)
    if bad is not None:
        return (), (), (bad, steps)
    second = observe(
        model,
        inputs,
        points,
        made,
        applied=applied,
        initial=first,
        weights=weights,
        paths=paths.lengths,
    )
    return (first, second), tuple(curve), None


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """What one forward pass of a size shows, and where to look in it."""

    facts: Facts
    points: Points


def surveyed(model: nn.Module, inputs: Any) -> Surveyed:
    """Follow one forward pass of a model."""
    facts = read(model, inputs)
    return Surveyed(facts=facts, points=points_of(facts, model))


def survey(
    make: Make, widths: Sequence[int], depths: Sequence[int], base: nn.Module, inputs: Any
) -> dict[tuple[int, int], Surveyed]:
    """Look at the corners of the grid; refuse a factory that ignores a size."""
    shapes = {name: tuple(p.shape) for name, p in parameters(base).items()}
    found = {(widths[0], depths[0]): surveyed(base, inputs)}
    branches = found[widths[0], depths[0]].points.branches
    if branches == 0:
        raise ValueError(
            "No residual branch was found in the model's forward pass, so there is no depth to "
            "check. Check a model whose blocks compute x + f(x), or the width alone of a model "
            "with one block."
        )
    for width in widths[1:]:
        wider = fresh(make, width, depths[0], 0)
        if {n: tuple(p.shape) for n, p in parameters(wider).items()} == shapes:
            raise ValueError(
                f"The factory ignores width: at {widths[0]} and {width} every parameter has the "
                "same shape. Expected factory(width, depth) to pass width on to the model."
            )
        found[width, depths[0]] = surveyed(wider, inputs)
    for depth in depths[1:]:
        deeper = fresh(make, widths[0], depth, 0)
        found[widths[0], depth] = surveyed(deeper, inputs)
        if found[widths[0], depth].points.branches == branches:
            raise ValueError(
                f"The factory ignores depth: at {depths[0]} and {depth} the residual stream has "
                f"{branches} branches. Expected their number to grow with depth; exponents refer "
                "to it."
            )
    return found


def staircase(widths: Sequence[int], depths: Sequence[int]) -> list[tuple[int, int]]:
    """The sizes to look at: wide ones shallow, deep ones narrow, and those between.

    Both slopes follow from half of the grid, without the networks that are wide and deep, which
    take most of the time.

    Example:
        >>> staircase((16, 32, 64), (2, 4, 8))
        [(16, 2), (16, 4), (16, 8), (32, 2), (32, 4), (64, 2)]
    """
    across, down = max(len(widths) - 1, 1), max(len(depths) - 1, 1)
    return [
        (width, depth)
        for i, width in enumerate(widths)
        for j, depth in enumerate(depths)
        if i * down + j * across <= across * down
    ]


def decays(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
    """lr * weight decay of every parameter whose group has a decay, by name."""
    names = {id(p): name for name, p in parameters(model).items()}
    return {
        names[id(p)]: group["lr"] * group["weight_decay"]
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
        if group.get("weight_decay") and id(p) in names
    }


def distinct(sizes: Sequence[int], name: str) -> tuple[int, ...]:
    """Sizes in order, if a slope follows from them."""
    found = tuple(sorted(sizes))
    if not found or found[0] < 1:
        raise ValueError(f"Expected {name} to be positive; got {list(sizes)}.")
    if len(set(found)) < len(found):
        raise ValueError(
            f"Expected {name} to differ, as a slope needs ratios other than 1; got {list(sizes)}."
        )
    if len(found) == 2:
        raise ValueError(
            f"Expected at least 3 {name}, as two points lie on every line; got {list(sizes)}. "
            "Give one size only to leave this dimension out."
        )
    return found


def fresh(make: Make, width: int, depth: int, seed: int) -> nn.Module:
    """The factory's model of this size and seed."""
    # The factory draws from torch's global generator; which numbers it gets is part of the seed.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(10_007 * seed + 101 * width + depth)
        return make(width, depth)


def seeded(seed: int) -> torch.Generator:
    """The generator of a seed's data."""
    return torch.Generator().manual_seed(seed)


def check_finite(inputs: Any) -> None:
    """Refuse inputs that are not finite."""
    for leaf in tree_flatten(inputs)[0]:
        if isinstance(leaf, Tensor) and leaf.is_floating_point() and not leaf.isfinite().all():
            raise ValueError(
                "batch(generator) gave inputs that are not finite. Expected finite inputs."
            )
