"""Training trials: a custom model under a plan, one by one or stacked."""

import math
import reprlib
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from depthmup._isolated import isolated, isolated_results, seed_all, seeded
from depthmup.measuring import called
from depthmup.model import Functions, Model, batches_at, network_at, resolved
from depthmup.model.command import INIT_SCALE
from depthmup.planning import Plan, PlanOptions, recorded
from depthmup.planning import plan as make_plan
from depthmup.records import BASE_SHAPE, Record, Status, Trial
from depthmup.records.trial import written
from depthmup.training.backend import Progress, one_by_one
from depthmup.training.backend import threads as threads_of
from depthmup.training.built_in.data_and_weights import stream
from depthmup.training.cuda_graphs import Capture
from depthmup.training.divergence import EXPLODED
from depthmup.training.loop import Training, check_sign, trained_alone
from depthmup.training.optimizers import check_no_arguments, optimizers
from depthmup.training.schedules import rate_factors
from depthmup.training.stack import trained_together

OWN_INIT = "own_init"
OF_PLAN = (OWN_INIT, INIT_SCALE)
"""Settings of a trial that go to the plan; the others go to the optimizer."""


def run_trial(
    trial: Trial,
    model: Model,
    *,
    device: str = "cpu",
    threads: int = 1,
    on_progress: Progress = lambda fraction: None,
    on_loss: Callable[[int, float], None] = lambda step, loss: None,
) -> Record[Trial]:
    """Train one trial; what its code changes for the whole process is put back (``isolated``).

    Initialization and batches depend on the seed alone: all rates and schemes see the same.
    """
    own = resolved(model)
    # As many threads here as in workers: the order of a sum, and its rounding, depends on them.
    with seeded(trial.seed), threads_of(threads):
        if callable(own.train):
            return _judged(trial, own.train(replace(trial, lr=written(trial.lr))))
        training = training_of(trial, model, device)
        # For dropout: the same at all sizes, as far as shapes allow, and independent of the
        # initialization.
        seed_all(stream(trial.seed, "training").initial_seed())
        return _record(trial, *trained_alone(training, on_progress=on_progress, on_loss=on_loss))


def run_together(
    trials: Sequence[Trial],
    model: Model,
    *,
    device: str = "cpu",
    record: Capture | None = None,
    on_progress: Progress = lambda fraction: None,
    on_loss: Callable[[Trial, int, float], None] = lambda trial, step, loss: None,
) -> Iterator[Record[Trial]]:
    """Train trials that differ in rate and seed alone; records as ``run_trial``'s, to rounding."""
    if len({replace(trial, lr=0.0, seed=0) for trial in trials}) != 1:
        raise ValueError("Expected trials that differ in learning rate and seed alone.")
    if resolved(model).whole:
        raise ValueError(
            "Expected a model without a training loop of its own: a stack has the library's. "
            f"Train these trials one by one: {one_by_one()}."
        )

    def trainings() -> list[Training]:
        made = []
        for trial in trials:
            seed_all(trial.seed)
            made.append(training_of(trial, model, device))
        return made

    ended = trained_together(
        trainings,
        record=record,
        on_progress=on_progress,
        on_loss=lambda member, *loss: on_loss(trials[member], *loss),
    )
    for member, losses, above in isolated_results(ended):
        yield _record(trials[member], losses, above)


def _record(trial: Trial, losses: "array[float]", above: float | None) -> Record[Trial]:
    stopped = Status.DIVERGED if losses else Status.FAILED
    status = Status.FINISHED if above is None else stopped
    return Record(cell=trial, status=status, losses=losses)


def training_of(trial: Trial, model: Model, device: str = "cpu") -> Training:
    """A trial's network, drawn from the current random state, and what its steps need."""
    own = resolved(model)
    network, plan = planned(trial, model)
    torch_optimizers, factors, clip = prepared(trial, network.to(device).train(), plan)
    generator, drawn = stream(trial.seed, "batches"), batches_at(own, trial.size)

    def cost(network: Callable[..., Any], batch: Any) -> Tensor:
        inputs, targets = batch
        loss: Tensor = own.loss(called(network, inputs), targets)
        return loss

    return Training(
        network=network,
        cost=cost,
        batch=lambda: drawn(generator),
        device=device,
        seed=trial.seed,
        optimizers=torch_optimizers,
        factors=factors,
        ceiling=lambda loss: EXPLODED * loss if math.isfinite(loss) else -math.inf,
        plan=plan,
        clip=clip,
    )


def planned(trial: Trial, model: Model) -> tuple[nn.Module, Plan]:
    """A trial's model at its initial weights, drawn from the current random state, and its plan."""
    own = resolved(model)
    # One plan serves all seeds and rates of a shape: it holds names and factors.
    declared = {k: v for k, v in trial.settings.items() if k in OF_PLAN}
    shape = replace(trial, seed=0, lr=0.0, weight_decay=0.0, steps=1, settings=declared)
    # A custom plan may depend on the whole trial.
    # First, as of all runs that share it: nothing in it depends on what this one's code changes.
    plan = _plan(trial if callable(own.plan) else shape, model)
    network = network_at(own, trial.size)
    _allow_compiling(trial.size)
    plan.initialize(network)
    return network, plan


def prepared(
    trial: Trial, network: nn.Module, plan: Plan
) -> tuple[list[torch.optim.Optimizer], list[float], float | None]:
    """A trial's optimizers, the factor of their rates at every step, and the norm of clipping."""
    settings = {k: v for k, v in trial.settings.items() if k not in OF_PLAN}
    check_no_arguments(settings)
    shape, warmup = settings.pop("schedule", "constant"), settings.pop("warmup", 0.0)
    factors = rate_factors(shape, warmup, trial.steps)
    clip = settings.pop("clip", None)
    if clip is not None and not (isinstance(clip, int | float) and 0 < clip < math.inf):
        raise ValueError(f"Expected clip to be a positive norm, or None; got {clip!r}.")
    # JSON has lists where optimizers have tuples.
    own = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    torch_optimizers = optimizers(
        plan, network, lr=trial.lr, weight_decay=trial.weight_decay, **own
    )
    return torch_optimizers, factors, clip


_sizes = set[tuple[tuple[str, int], ...]]()
"""Of the models that this process has built."""


def _allow_compiling(size: Mapping[str, int]) -> None:
    """Let ``torch.compile`` make code for every size: after eight it would run the others as is."""
    _sizes.add(tuple(size.items()))
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        limits, count = dynamo.config, 8 * len(_sizes)
        limits.recompile_limit = max(limits.recompile_limit, count)
        limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, 32 * count)


@lru_cache(maxsize=64)
def _plan(shape: Trial, model: Model) -> Plan:
    own = resolved(model)

    def at(size: Mapping[str, int]) -> tuple[nn.Module, Any, Any]:
        with isolated(generators=False):
            network, drawn = recorded(lambda: network_at(own, size))
            inputs = None if callable(own.plan) else first_batch(own, size)[0]
            return network, drawn, inputs

    with seeded(0):
        # What the base does not name is the same for both.
        base, base_drawn, of_base = at({**shape.size, **shape.base})
        network, drawn, inputs = at(shape.size)
    if callable(own.plan):
        with isolated():
            plan = own.plan(network, base, shape)
        if not isinstance(plan, Plan):
            raise TypeError(
                f"Expected plan(model, base, trial) to give a depthmup.Plan; got "
                f"{reprlib.repr(plan)}. Return depthmup.plan(model, base=base, "
                "scheme=trial.scheme, optimizer=trial.optimizer, ...)."
            )
        return plan
    return make_plan(
        network,
        base=base,
        # At the base every scheme prescribes the same.
        scheme="depth-mup" if shape.scheme == BASE_SHAPE else shape.scheme,
        optimizer=shape.optimizer,
        example_inputs=arguments(inputs),
        options=PlanOptions(
            base_inputs=arguments(of_base),
            multiplier=shape.multiplier,
            init_scale=shape.settings.get(INIT_SCALE, 1.0),
        ),
        own_init=shape.settings.get(OWN_INIT),
        drawn=(drawn, base_drawn),
        proof="off",  # runs are trained, which shows more
    )


def first_batch(own: Functions, size: Mapping[str, int]) -> Any:
    """The first batch that runs of seed 0 see at a size."""
    with isolated():
        return batches_at(own, size)(stream(0, "batches"))


def arguments(inputs: Any) -> Any:
    """The inputs of a batch as ``depthmup.plan`` takes them."""
    return inputs if isinstance(inputs, Tensor | Mapping) else tuple(inputs)


def _judged(trial: Trial, given: Any) -> Record[Trial]:
    """The record of the losses that a custom ``train`` returned."""
    if isinstance(given, Tensor | np.ndarray):
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise _no_curve(given)
    try:
        losses = array("f", map(float, given))
    except (TypeError, ValueError):
        raise _no_curve(given) from None
    end = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if end is not None:
        status = Status.DIVERGED if end else Status.FAILED
        return Record(cell=trial, status=status, losses=losses[:end])
    if len(losses) != trial.steps:
        raise ValueError(
            f"Expected train(trial) to give {trial.steps} losses, one for every step (trial.steps);"
            f" got {len(losses)}. Where training diverged, let the last one be NaN."
        )
    if losses:
        check_sign(min(losses))
    return Record(cell=trial, status=Status.FINISHED, losses=losses)


def _no_curve(given: Any) -> TypeError:
    return TypeError(
        f"Expected train(trial) to give the loss of every step, a sequence of numbers; got "
        f"{reprlib.repr(given)}."
    )
