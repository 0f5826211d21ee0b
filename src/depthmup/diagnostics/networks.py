"""Networks of every size: built, observed, trained for a few steps, and observed again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from depthmup._isolated import seeded
from depthmup.diagnostics.grid import Size, further
from depthmup.diagnostics.labels import labels_by, of_several_depths
from depthmup.diagnostics.observations import Key, Observation, Paths, Points
from depthmup.diagnostics.points import growing_streams, points_of, stages_of
from depthmup.diagnostics.preparation import Prepare, as_is, prepared_by
from depthmup.diagnostics.probes import first_nonfinite, observe
from depthmup.measuring import called
from depthmup.model import Functions, check_batch, ignored
from depthmup.planning import Plan, PlanOptions, Prescription, recorded
from depthmup.planning import plan as make_plan
from depthmup.records import NonFinite
from depthmup.rules import Family, Kind, Observable, Scheme
from depthmup.rules import scheme as scheme_named
from depthmup.tracing import Facts, parameters, pattern_of, read
from depthmup.tracing.recorder import tensors_of
from depthmup.training.loop import check_gradient, moved
from depthmup.training.preflight import built


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedNetwork:
    """A network of a check after training, its inputs, and what was observed before and after.

    Attributes:
        model: after training.
        inputs: of its last batch.
        size: by axis.
        seed: of its weights and its batch.
        first, second: what was observed before and after.
        losses: before each step.
        unmoved: patterns of gains and biases whose gradients were rounding alone.
    """

    model: nn.Module
    inputs: Any
    size: Size
    seed: int
    first: Observation
    second: Observation
    losses: tuple[float, ...] = ()
    unmoved: frozenset[str] = frozenset()

    @property
    def width(self) -> int:
        return self.size["width"]

    @property
    def depth(self) -> int:
        return self.size["depth"]


def train(
    own: Functions,
    size: Size,
    seed: int,
    plan: Plan,
    points: Points,
    *,
    prepare: Prepare,
    lr: float,
    steps: int,
) -> TrainedNetwork | NonFinite:
    """Observe a network, train it, observe it again; stop where a value is not finite."""
    model = fresh(own, size, seed)
    inputs, targets = beside_weights(batch_of(own, generator_of(seed)), model)
    broken = partial(
        NonFinite, width=size["width"], depth=size["depth"], seed=seed, along=further(size)
    )
    applied = prepare is not as_is
    optimizers = prepared_by(prepare, own)(model, plan, lr)

    def look(**since: Any) -> Observation:
        # What a forward pass draws in every mode is the same before and after training.
        with seeded(seed):
            return observe(model, inputs, points, plan, applied=applied, **since)

    first = look()
    if not first.finite and (module := first_nonfinite(model, inputs)):
        return broken(module=module, step=0)
    # Before training: a schedule of its own may move the rates.
    labels = labels_by(model, plan, points.apart)
    for name, decay in decays(model, optimizers).items():
        key = Key(observable=Observable.DECAY, module=labels(name))
        first.values[key], first.roles[key] = decay, plan[name].role
    weights = {name: p.detach().clone() for name, p in parameters(model).items()}
    paths, losses = Paths(model), []
    for step in range(1, steps + 1):
        loss = own.loss(called(model, inputs), targets)
        check_gradient(loss)
        if not torch.isfinite(loss):  # before a step spreads it to every weight
            return broken(module=first_nonfinite(model, inputs) or "loss", step=step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        paths.step()
        losses.append(float(loss.detach()))
    second = look(initial=first, weights=weights, paths=paths.lengths)
    if not second.finite and (module := first_nonfinite(model, inputs)):
        return broken(module=module, step=steps)
    return TrainedNetwork(
        model=model,
        inputs=inputs,
        size=size,
        seed=seed,
        first=first,
        second=second,
        losses=tuple(losses),
        unmoved=frozenset(map(labels, paths.unmoved))
        - {*map(labels, paths.lengths.keys() - paths.unmoved)},
    )


def beside_weights(batch: Any, model: nn.Module) -> Any:
    """A batch on the device of a model's weights, if all are on one."""
    devices = {parameter.device for parameter in model.parameters()}
    return moved(batch, str(devices.pop())) if len(devices) == 1 else batch


def planned_sizes(
    own: Functions,
    grid: Sequence[Size],
    *,
    scheme: Scheme | None,
    optimizer: str | Family | type,
    options: Mapping[str, Any],
    branched: bool = True,
) -> tuple[list[Plan], list[Points]]:
    """The plan of every size from the first and smallest, and where to observe it.

    A factory that ignores an axis is refused, and a model without residual branches if it has to be
    ``branched``. Every size is built and traced once.
    """
    with seeded(0):
        inputs, _ = batch_of(own, generator_of(0))
    _check_finite(inputs)
    plans: list[Plan] = []
    networks: list[tuple[Facts, nn.Module]] = []
    for size in grid:
        network, draws = recorded(partial(fresh, own, size, 0))
        facts = read(network, inputs)
        networks.append((facts, network))
        if not plans:
            base, base_draws, base_facts = network, draws, facts
        depths, base_depths = ([s.depth for s in stages_of(of)] for of in (facts, base_facts))
        if branched and not depths:
            raise ValueError(
                "No residual branch was found in the model's forward pass, so there is no depth to "
                "check. Check a model whose blocks compute x + f(x), or the width alone of a model "
                "with one block."
            )
        varied = [axis for axis in size if size[axis] != grid[0][axis]]
        if varied == ["width"] and _shapes(network) == _shapes(base):
            raise ignored("width", grid[0], size, "every parameter has the same shape")
        if varied == ["depth"] and depths == base_depths:
            same = f"the residual stream has {max(depths, default=0)} branches"
            raise ignored("depth", grid[0], size, same)
        # What has no weights of its own (the number of active experts) shows in no shape.
        if len(varied) == 1 and facts.graph.nodes == base_facts.graph.nodes and plans:
            raise ignored(varied[0], grid[0], size, "the forward pass is the same")
        read_before = replace(options.get("options", PlanOptions()), facts=(facts, base_facts))
        plans.append(
            make_plan(
                network,
                base=base,
                scheme=scheme,
                optimizer=optimizer,
                example_inputs=inputs,
                drawn=(draws, base_draws),
                proof="off",  # the check measures more
                **{**options, "options": read_before},
            )
        )
        # The default of the scheme follows the depth of blocks, which is that of every size.
        scheme = scheme or scheme_named(plans[0].scheme)
    streams = growing_streams([facts for facts, _ in networks])
    apart = of_several_depths(plans)
    pairs = zip(networks, streams, strict=True)
    return _of_one_role(plans), [points_of(*of, main, apart) for of, main in pairs]


def _of_one_role(plans: Sequence[Plan]) -> list[Plan]:
    """The plans, in which a parameter is what it is where most grows: at the base nothing does."""
    roles: dict[str, set[tuple[Kind, bool]]] = {}
    for plan in plans:
        for p in plan.prescriptions:
            if p.ratios.fan_in != 1 or p.ratios.fan_out != 1:
                roles.setdefault(p.name, set()).add((p.role.kind, p.role.narrows))
                roles.setdefault(pattern_of(p.name), set()).add((p.role.kind, p.role.narrows))

    def as_grown(p: Prescription) -> Prescription:
        found = roles.get(p.name) or roles.get(pattern_of(p.name)) or set()
        if not found and roles and p.role.kind in (Kind.HIDDEN, Kind.READOUT):
            found = {(Kind.INPUT, False)}  # it reads as many numbers at every size
        if len(found) != 1:
            return p
        ((kind, narrows),) = found
        return replace(p, role=replace(p.role, kind=kind, narrows=narrows))

    return [replace(plan, prescriptions=tuple(map(as_grown, plan.prescriptions))) for plan in plans]


def _shapes(network: nn.Module) -> dict[str, torch.Size]:
    return {name: p.shape for name, p in parameters(network).items()}


def decays(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
    """lr * weight decay of every parameter whose group has a decay, by name."""
    names = {id(p): name for name, p in parameters(model).items()}
    return {
        names[id(p)]: float(group["lr"] * group["weight_decay"])
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
        if group.get("weight_decay") and id(p) in names
    }


def fresh(own: Functions, size: Size, seed: int) -> nn.Module:
    """The factory's model of this size and seed."""
    # The factory draws from global generators; which numbers it gets is part of the seed.
    beside = sum(1_000_003 * i * n for i, n in enumerate(further(size).values(), start=1))
    return built(own, size, seed=10_007 * seed + 101 * size["width"] + size["depth"] + beside)


def generator_of(seed: int) -> torch.Generator:
    """The generator of a seed's data."""
    return torch.Generator().manual_seed(seed)


def batch_of(own: Functions, generator: torch.Generator) -> tuple[Any, Any]:
    """The inputs and targets of the model's next batch."""
    return check_batch(own.batch(generator))


def _check_finite(inputs: Any) -> None:
    """Refuse inputs that are not finite."""
    for tensor in tensors_of(inputs):
        if not tensor.isfinite().all():
            raise ValueError(
                "batch(generator) gave inputs that are not finite. Expected finite inputs."
            )
