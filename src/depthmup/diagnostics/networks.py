"""Networks of every size: built, observed, trained for a few steps, and observed again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn

from depthmup.diagnostics.observations import Key, Observation, Paths, Points, labels_by
from depthmup.diagnostics.points import points_of
from depthmup.diagnostics.preparation import Prepare
from depthmup.diagnostics.probes import first_nonfinite, observe
from depthmup.diagnostics.sharding import call
from depthmup.model import Functions, network_at
from depthmup.planning import Plan
from depthmup.records import NonFinite
from depthmup.rules import Observable
from depthmup.tracing import Facts, parameters, read
from depthmup.tracing.recorder import tensors_of
from depthmup.training.loop import moved
from depthmup.training.placement import generators


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The size of a network of a check; ``along`` are its values along further axes."""

    width: int
    depth: int
    along: tuple[tuple[str, int], ...] = ()

    @property
    def size(self) -> dict[str, int]:
        """The value along every axis."""
        return {"width": self.width, "depth": self.depth, **dict(self.along)}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedNetwork:
    """A network of a check after training, its inputs, and what was observed before and after.

    Attributes:
        model: after training.
        inputs: of its last batch.
        width, depth, seed: of the network.
        first, second: what was observed before and after.
        along: its values along further axes.
        losses: before each step.
    """

    model: nn.Module
    inputs: Any
    width: int
    depth: int
    seed: int
    first: Observation
    second: Observation
    along: Mapping[str, int] = field(default_factory=dict)
    losses: tuple[float, ...] = ()


Values: TypeAlias = dict[Key, dict[tuple[Shape, int], float]]
"""Of every observable: its value in every network, by size and seed."""


def train(
    own: Functions,
    shape: Shape,
    seed: int,
    plan: Plan,
    points: Points,
    *,
    prepare: Prepare,
    applied: bool,
    lr: float,
    steps: int,
) -> TrainedNetwork | NonFinite:
    """Observe a network, train it, observe it again; stop where a value is not finite."""
    model = fresh(own, shape, seed)
    inputs, targets = beside_weights(own.batch(seeded(seed)), model)
    along = dict(shape.along)
    broken = partial(NonFinite, width=shape.width, depth=shape.depth, seed=seed, along=along)
    optimizers = prepare(model, plan, lr)
    module = first_nonfinite(model, inputs)
    if module is not None:
        return broken(module=module, step=0)
    first = observe(model, inputs, points, plan, applied=applied)
    # Before training: a schedule of its own may move the rates.
    labels = labels_by(model, plan)
    for name, decay in decays(model, optimizers).items():
        key = Key(observable=Observable.DECAY, module=labels(name))
        first.values[key], first.roles[key] = decay, plan[name].role
    weights = {name: p.detach().clone() for name, p in parameters(model).items()}
    paths, losses = Paths(model), []
    for step in range(1, steps + 1):
        loss = own.loss(call(model, inputs), targets)
        if not torch.isfinite(loss):  # before a step spreads it to every weight
            return broken(module=first_nonfinite(model, inputs) or "loss", step=step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        paths.step()
        losses.append(float(loss.detach()))
    module = first_nonfinite(model, inputs)
    if module is not None:
        return broken(module=module, step=steps)
    second = observe(
        model,
        inputs,
        points,
        plan,
        applied=applied,
        initial=first,
        weights=weights,
        paths=paths.lengths,
    )
    return TrainedNetwork(
        model=model,
        inputs=inputs,
        width=shape.width,
        depth=shape.depth,
        seed=seed,
        first=first,
        second=second,
        along=along,
        losses=tuple(losses),
    )


def beside_weights(batch: Any, model: nn.Module) -> Any:
    """A batch on the device of a model's weights, if all are on one."""
    devices = {parameter.device for parameter in model.parameters()}
    return moved(batch, str(devices.pop())) if len(devices) == 1 else batch


def survey(
    own: Functions,
    widths: Sequence[int],
    depths: Sequence[int],
    along: Mapping[str, Sequence[int]],
    base: nn.Module,
    inputs: Any,
) -> tuple[dict[Shape, Facts], dict[Shape, Points]]:
    """Facts and places to observe, of every width, every depth, every value along other axes.

    Sizes come from the smallest. A factory that ignores one, and a model without residual branches,
    are refused.
    """
    smallest = Shape(width=widths[0], depth=depths[0], along=firsts(along))
    facts: dict[Shape, Facts] = {}
    points: dict[Shape, Points] = {}

    def follow(shape: Shape, model: nn.Module) -> None:
        facts[shape] = read(model, inputs)
        points[shape] = points_of(facts[shape], model)

    follow(smallest, base)
    branches = points[smallest].branches
    if branches == 0:
        raise ValueError(
            "No residual branch was found in the model's forward pass, so there is no depth to "
            "check. Check a model whose blocks compute x + f(x), or the width alone of a model "
            "with one block."
        )
    for width in widths[1:]:
        shape = replace(smallest, width=width)
        wider = fresh(own, shape, 0)
        check_width_noticed(base, wider, (widths[0], width))
        follow(shape, wider)
    for shape in beside(smallest, along):
        follow(shape, fresh(own, shape, 0))
        # What has no weights of its own (the number of active experts) shows in no shape.
        if facts[shape].graph.nodes == facts[smallest].graph.nodes:
            axis, value = next(p for p in shape.along if p not in smallest.along)
            raise ValueError(
                f"The factory ignores {axis}: at {dict(smallest.along)[axis]} and {value} the "
                f"forward pass is the same. Expected factory(width, depth, {axis}) to pass it on."
            )
    for depth in depths[1:]:
        shape = replace(smallest, depth=depth)
        follow(shape, fresh(own, shape, 0))
        if points[shape].branches == branches:
            raise ValueError(
                f"The factory ignores depth: at {depths[0]} and {depth} the residual stream has "
                f"{branches} branches. Expected their number to grow with depth; exponents refer "
                "to it."
            )
    return facts, points


def check_width_noticed(base: nn.Module, wider: nn.Module, widths: tuple[int, int]) -> None:
    """Refuse a factory that ignores the width: both models have the same shapes."""
    here, there = ({name: p.shape for name, p in parameters(m).items()} for m in (base, wider))
    if here == there:
        raise ValueError(
            f"The factory ignores width: at {widths[0]} and {widths[1]} every parameter has the "
            "same shape. Expected factory(width, depth) to pass width on to the model."
        )


def firsts(along: Mapping[str, Sequence[int]]) -> tuple[tuple[str, int], ...]:
    """The smallest value along every further axis."""
    return tuple((axis, values[0]) for axis, values in along.items())


def beside(smallest: Shape, along: Mapping[str, Sequence[int]]) -> list[Shape]:
    """The sizes that differ from the smallest along one further axis.

    Example:
        >>> shapes = beside(Shape(width=8, depth=2, along=(("experts", 2),)), {"experts": (2, 4)})
        >>> [shape.size["experts"] for shape in shapes]
        [4]
    """
    return [
        replace(smallest, along=tuple({**dict(smallest.along), axis: value}.items()))
        for axis, values in along.items()
        for value in values[1:]
    ]


def staircase(widths: Sequence[int], depths: Sequence[int]) -> list[tuple[int, int]]:
    """The sizes to train: wide ones shallow, deep ones narrow, and those between.

    Both slopes follow from half of the grid, without the networks that are wide and deep, which
    take most of the time.
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
    ordered = tuple(sorted(sizes))
    if not ordered or ordered[0] < 1:
        raise ValueError(f"Expected {name} to be positive; got {list(sizes)}.")
    if len(set(ordered)) < len(ordered):
        raise ValueError(
            f"Expected {name} to differ, as a slope needs ratios other than 1; got {list(sizes)}."
        )
    if len(ordered) == 2:
        raise ValueError(
            f"Expected at least 3 {name}, as two points lie on every line; got {list(sizes)}. "
            "Give one size only to leave this dimension out."
        )
    return ordered


def fresh(own: Functions, shape: Shape, seed: int) -> nn.Module:
    """The factory's model of this size and seed."""
    # The factory draws from torch's global generator; which numbers it gets is part of the seed.
    with torch.random.fork_rng(devices=generators()):
        further = sum(1_000_003 * i * value for i, (_, value) in enumerate(shape.along, start=1))
        torch.manual_seed(10_007 * seed + 101 * shape.width + shape.depth + further)
        network: nn.Module = network_at(own, shape.size)
        return network


def seeded(seed: int) -> torch.Generator:
    """The generator of a seed's data."""
    return torch.Generator().manual_seed(seed)


def check_finite(inputs: Any) -> None:
    """Refuse inputs that are not finite."""
    for tensor in tensors_of(inputs):
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(
                "batch(generator) gave inputs that are not finite. Expected finite inputs."
            )
