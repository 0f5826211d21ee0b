"""Checks before any training: can transfer be measured with these functions?"""

import reprlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from depthmup._isolated import isolated, seeded
from depthmup.measuring import called
from depthmup.model import (
    Functions,
    Model,
    batches_at,
    check_batch,
    ignored,
    network_at,
    resolved,
)
from depthmup.model.command import INIT_SCALE
from depthmup.model.time_limit import time_limit
from depthmup.planning import factors_of
from depthmup.planning import plan as make_plan
from depthmup.records import RUN_AXES, Trial
from depthmup.rules import Scheme, scheme
from depthmup.training.built_in.data_and_weights import stream
from depthmup.training.loop import check_loss, moved
from depthmup.training.trial import (
    OWN_INIT,
    arguments,
    first_batch,
    planned,
    prepared,
    run_together,
)


def preflight(
    model: Model,
    trials: Sequence[Trial],
    *,
    seconds: float | None = None,
    stacked: bool = False,
    device: str = "cpu",
) -> None:
    """Try the functions of a custom model at the smallest sizes of a sweep, on its device.

    A custom ``train`` or a command is not tried: nothing short of a run would show its faults.
    """
    own = resolved(model)
    if own.whole:
        if stacked:
            raise ValueError(
                "Expected engine='auto' or 'reference' for a model that has a training loop of its "
                "own: a stack has the library's."
            )
        return
    with time_limit(seconds, "Trying the model, the batch and the loss"):
        _try_functions(own, trials, device)
    smallest: dict[tuple[Any, ...], Trial] = {}
    for trial in sorted(trials, key=lambda t: (t.at_base, t.step_work)):
        # Of what is tuned there may be many values; one shows whether it is understood.
        changed = (trial.multiplier != 1.0, trial.weight_decay != 0.0, INIT_SCALE in trial.settings)
        variant = (trial.scheme, trial.optimizer, *changed)
        smallest.setdefault(variant, replace(trial, seed=0))
    for trial in smallest.values():
        with time_limit(seconds, f"Planning {trial.scheme}"), seeded(0):
            network, own_plan = planned(trial, model)
            prepared(trial, network.to(device), own_plan)
        if stacked:
            with time_limit(seconds, "Training one stack for a step"):
                list(run_together([replace(trial, steps=1)], model, device=device))


def device_of(model: Model, base: Mapping[str, int]) -> str:
    """The device on which a model's function puts its parameters at the base."""
    places = {parameter.device for parameter in built(resolved(model), base).parameters()}
    gpus = sorted(place.index or 0 for place in places if place.type == "cuda")
    if not gpus:
        return "cpu"
    # The first one is the current one: of whichever GPU a worker process sees.
    return "cuda" if gpus[0] == 0 else f"cuda:{gpus[0]}"


def suitable_scheme(
    model: Model,
    base: Mapping[str, int],
    optimizer: str,
    settings: Mapping[str, Any],
    *,
    seconds: float | None = None,
) -> Scheme:
    """Depth-muP where the branches of a model have one matrix, CompleteP where they are deeper."""
    own = resolved(model)
    with time_limit(seconds, "Building the model and its batch"):
        network = built(own, base)
        with isolated():
            inputs, _ = _drawn(batches_at(own, base))
    with time_limit(seconds, "Reading the model"), seeded(0):
        given = make_plan(
            network,
            base=network,
            optimizer=optimizer,
            example_inputs=arguments(inputs),
            own_init=settings.get(OWN_INIT, "fixed"),
        )
    return scheme(given.scheme)


def acting_rules(
    model: Model, trials: Mapping[str, Trial], *, seconds: float | None = None
) -> dict[str, tuple[str, ...]]:
    """The rules of a scheme that the plans of trials have, by the trials' names."""
    found = {}
    for name, trial in trials.items():
        with time_limit(seconds, f"Planning {trial.scheme}"), seeded(0):
            _, own_plan = planned(trial, model)
        found[name] = factors_of(own_plan)
    return found


def _try_functions(own: Functions, trials: Sequence[Trial], device: str) -> None:
    smallest = {axis: min(trial.size[axis] for trial in trials) for axis in trials[0].size}
    base = {**smallest, **trials[0].base}
    model = _same_twice(own, base)
    with isolated():
        inputs, targets = _drawn(batches_at(own, base))
    for axis in base:
        others = {trial.size[axis] for trial in trials} - {base[axis]}
        if others and axis not in ("steps", "tokens"):  # of these only the loop takes notice
            _check_noticed(own, model, base, axis, min(others), device)
    if (largest := max(trial.size.get("batch", 1) for trial in trials)) > base.get("batch", 1):
        _check_batches(own, base, largest)
    with seeded(0):
        outputs = called(model.to(device), moved(inputs, device))
        loss = own.loss(outputs, moved(targets, device))
        check_loss(loss)
        if not torch.isfinite(loss):
            raise ValueError(
                f"Expected a finite loss at the base's initial weights; got {loss.item()}: no run "
                "would take a step. Check the outputs of the model and the inputs of one batch."
            )


def built(own: Functions, size: Mapping[str, int], *, seed: int = 0) -> nn.Module:
    """The factory's model of a size and seed."""
    with seeded(seed):
        model = network_at(own, size)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"Expected {getattr(own.make, '__name__', own.make)}(width, depth) to give a "
            f"torch.nn.Module; got {type(model).__name__}."
        )
    return model


def _same_twice(own: Functions, size: Mapping[str, int]) -> nn.Module:
    """The model, after checking that one seed always gives the same initial weights."""
    first, second = built(own, size), built(own, size)
    here, there = dict(first.named_parameters()), dict(second.named_parameters())
    for name in here:
        other = there.get(name)
        if other is None or not torch.equal(here[name], other):
            raise ValueError(
                f"The factory gives different models for the same seed: {name} differs between two "
                "calls. Draw initial weights from torch's, NumPy's or Python's global generator, "
                "which are seeded before each call, not from a generator of your own, whose state "
                "goes on from call to call."
            )
    elsewhere = dict(built(own, size, seed=1).named_parameters())
    if here and all(torch.equal(here[name], elsewhere[name]) for name in here):
        warnings.warn(
            "The factory gives the same model for every seed, so the intervals leave out the "
            "scatter of the initialization. Does it call torch.manual_seed?",
            stacklevel=2,
        )
    return first


def _check_noticed(
    own: Functions,
    model: nn.Module,
    base: Mapping[str, int],
    axis: str,
    other: int,
    device: str,
) -> None:
    """Refuse an axis along which nothing changes: neither the model, nor the batches."""
    size = {**base, axis: other}
    before, after = ([list(t.shape) for t in _tensors(first_batch(own, at))] for at in (base, size))
    if axis in RUN_AXES:
        if before == after:
            raise ValueError(
                f"The batch function ignores the {axis}: at {axis} {base[axis]} and {other} its "
                f"tensors have the same shapes, such as {before[0]}. Draw as many examples as it "
                "is given: batch(generator, batch)."
            )
        return
    grown = built(own, size)
    shapes = [{name: p.shape for name, p in m.named_parameters()} for m in (model, grown)]
    if shapes[0] != shapes[1] or before != after:
        return
    if axis not in ("width", "depth"):
        # The number of heads, say, changes what a model computes and no shape.
        inputs, _ = first_batch(own, base)
        with torch.no_grad():
            outputs = []
            for network in (model, grown):
                with seeded(0):
                    given = called(network.to(device), moved(inputs, device))
                    outputs.append(list(_tensors(given)))
        if not _equal(*outputs):
            return
    raise ignored(axis, base, size, "every parameter has the same shape")


def _check_batches(own: Functions, base: Mapping[str, int], largest: int) -> None:
    """Refuse batches that do not grow in proportion, as those of a data set that has too little."""
    small, large = (
        [t.numel() for t in _tensors(first_batch(own, size))]
        for size in (base, {**base, "batch": largest})
    )
    times = largest / base["batch"]
    if not any(b == a * times for a, b in zip(small, large, strict=True)):
        raise ValueError(
            f"Expected batches of {largest} to be {times:g} times as large as those of "
            f"{base['batch']}; their tensors have {small} and {large} numbers. Draw with "
            "replacement where the data have fewer examples."
        )


def _drawn(batch: Any) -> tuple[Any, Any]:
    """One batch, after checking that its generator alone decides what is in it."""
    draws = []
    for _ in range(2):
        drawn = check_batch(batch(stream(0, "batches")))
        # Cloned: the function may fill the same buffer at every call.
        draws.append([tensor.clone() for tensor in _tensors(drawn)])
    if not draws[0]:
        raise TypeError(
            "Expected batch(generator) to give torch tensors, or containers of them; got "
            f"{reprlib.repr(drawn)}. Convert the data: torch.as_tensor(...)."
        )
    if not _equal(*draws):
        raise ValueError(
            "batch(generator) gives different data for the same generator, so learning rates could "
            "not be compared on the same batches. Draw everything from the generator: "
            "torch.randint(0, len(data), (64,), generator=generator)."
        )
    other = [tensor.clone() for tensor in _tensors(batch(stream(1, "batches")))]
    if _equal(draws[0], other):
        warnings.warn(
            "batch(generator) gives the same data for every seed, so the intervals leave out the "
            "scatter of the data. That is right only if every batch is the whole data set.",
            stacklevel=2,
        )
    return drawn


def _equal(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether tensors are the same, NaN where the other is NaN."""
    return len(ones) == len(others) and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in zip(ones, others, strict=True)
    )


def _tensors(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping):
        for value in thing.values():
            yield from _tensors(value)
    elif isinstance(thing, tuple | list):
        for value in thing:
            yield from _tensors(value)
