"""``depthmup.transfer``: is the best learning rate of a small model the best of a large one?"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from depthmup.execution import Execution
from depthmup.model import Model, by_reference, check_axes, resolved
from depthmup.records import environment
from depthmup.records.packages import need
from depthmup.report import Report, load_report
from depthmup.rules import DEPTH_MUP, Family, Scheme, completep, family
from depthmup.statistics import TOLERANCE, check_asked
from depthmup.sweep import (
    MAIN_STORE,
    Auto,
    BuiltIn,
    Custom,
    Design,
    Executor,
    InProcess,
    Job,
    Processes,
    Progress,
    Ray,
    SearchState,
    Shard,
    Size,
    Store,
    Sweep,
    advance,
    begin,
    outline,
    run,
    share_left,
)
from depthmup.sweep.executors.executor import staying
from depthmup.sweep.executors.processes import leave_if_starting
from depthmup.sweep.logs import Log, Logged
from depthmup.sweep.rounds import train_rounds
from depthmup.sweep.shards import snapshot
from depthmup.sweep.trainers import BuiltInTrainer, CustomTrainer, Trainer
from depthmup.training.placement import Placement, check_device

USUAL_RATE = 2.0**-8
"""Learning rate at the base from which the optimum of a custom model is looked for, unless another
is given: within four octaves of that of most small models under Adam."""

USUAL_RATES: Mapping[Family, float] = {Family.RAW: 2.0**-3, Family.SPECTRAL: 2.0**-6}
"""The same for families whose updates are not of a size with Adam's: around the 0.1 that SGD is
usually begun with, and the 0.02 that Muon is."""


SEARCHES = (
    "Learning rates are found as the sweep goes, the smallest size first; it ends when every "
    "verdict is decided."
)


def transfer(
    model: Model | BuiltIn,
    design: Design,
    *,
    out: str | Path | None = None,
    on: Execution | Executor | int = 1,
    target: Size | None = None,
    tolerance: float = TOLERANCE,
    title: str = "",
    log: Log | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    forecast: Callable[[str], None] | None = None,
    command: Sequence[str] = (),
) -> Report:
    """Measure whether the best learning rate of the base is the best one of larger models.

    Trains the model at the sizes, learning rates and seeds of the design, and judges how the
    optimum moves along each axis. Unless the design has a grid of learning rates, the runs that
    tell most come first, and training ends when the verdict is decided. Where the design has
    several schemes, optimizers, multipliers or decays, every combination is measured.

    Args:
        model: a ``depthmup.Model``, or a ``depthmup.BuiltIn`` residual network.
        design: what is varied, and what stays fixed.
        out: folder for finished runs, page and summary; the same call resumes there.
        on: where to run: an ``Execution``, a number of worker processes (0: one per core; 1: in
            this process), or an executor of ``depthmup.sweep``. Functions defined in a notebook or
            in the running script cannot be imported by other processes and run in this one.
        target: the size at which to predict the best learning rate of each variant; the report then
            has ``certificates``, and the folder a certificate.json. Axes that it does not name are
            those of the base. A target that grows along two axes adds a corner to the design.
        tolerance: octaves per doubling within which the optimum counts as staying.
        title: of the page.
        log: receives each run as it ends, such as ``depthmup.sweep.logs.TensorBoard(folder)``.
        progress: called with the progress of the sweep.
        forecast: called once with a sentence that says how long the sweep will take.
        command: command line to show on the page.

    Returns:
        The report; for a shard, one without findings.

    Raises:
        ValueError, TypeError: the model or the design cannot be measured; before any training.
        WorkerError: the model's code raised an error; after all other runs, with the traceback.

    Example:
        >>> import torch, depthmup
        >>> from torch import nn
        >>> class Block(nn.Linear):
        ...     def forward(self, x):
        ...         return x + super().forward(x).relu()
        >>> def make(width, depth):
        ...     return nn.Sequential(nn.Linear(8, width), *(Block(width, width)
        ...                          for _ in range(depth)), nn.Linear(width, 4))
        >>> def batch(generator):
        ...     x = torch.randn(64, 8, generator=generator)
        ...     return x, x[:, :4].argmax(-1)
        >>> design = depthmup.Design(base={"width": 16, "depth": 2}, depth=(2, 4), steps=20,
        ...                          seeds=2)
        >>> report = depthmup.transfer(depthmup.Model(make, batch=batch, version="1"), design)
        >>> [optimum.depth for optimum in report.finding().optima]
        [2, 4]
    """
    leave_if_starting()
    if out is not None:
        need("The page in a folder", "altair", "vl_convert")
    seconds = getattr(on, "trial_seconds", None) or None
    sweep, target = resolved_sweep(model, design, target, seconds=seconds)
    _check_asked(sweep, target, tolerance)
    placed = _placed(model, sweep, on)
    folder = None if out is None else Path(out)
    path = None if folder is None else folder / MAIN_STORE
    state = begin(sweep, tolerance=tolerance, complete=target is not None)
    asked = outline(sweep) if sweep.design.auto else sweep.runs
    if placed.shard:
        asked, path = _shared(state, Shard.parse(placed.shard), folder, placed.trainer)

    def checked(missing: Sequence[Any]) -> Sequence[Job]:
        if missing and begun:
            placed.trainer.check(missing, workers=placed.workers)
        if missing and forecast is not None and not sweep.design.auto:
            _tell_time(missing, placed, forecast)
        return placed.trainer.jobs(missing)

    begun = path is not None and path.exists()
    if not begun:
        placed.trainer.check(asked, workers=placed.workers)  # before anything is written
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    about = {
        "sweep": sweep.to_dict(),
        "tolerance": tolerance,
        "target": None if target is None else dict(target),
        "title": title,
        "environment": {**environment(), **placed.environment},
        **({"command": list(command)} if command else {}),
    }
    with Store(path or ":memory:") as store, staying(placed.executor) as workers:
        executor = workers if log is None else Logged(executor=workers, log=log)

        def train(runs: Sequence[Any], tell: Callable[[Progress], None]) -> None:
            run(runs, store=store, executor=executor, jobs=checked, tell=tell, about=about)

        if sweep.design.auto and not placed.shard:
            if forecast is not None:
                forecast(SEARCHES)
            train_rounds(state, store, train=train, tell=progress)
        else:
            train(asked, progress)
        if placed.shard:
            return Report(sweep=sweep, records=store.records(asked), studies=())

        def train_few(runs: Sequence[Any]) -> None:
            run(runs, store=store, executor=workers, jobs=placed.trainer.jobs)

        report = load_report(store, sweep, train=train_few)
    if folder is not None:
        report.save(folder)
    return report


def resolved_sweep(
    model: Model | BuiltIn,
    design: Design,
    target: Size | None = None,
    *,
    seconds: float | None = None,
) -> tuple[Sweep, Size | None]:
    """The sweep of a design, and the target with a value for every axis.

    Optimizer and scheme that the design leaves open become the usual ones for the model; the scheme
    follows from the depth of its branches. Learning rates become a search from the usual one.

    Args:
        model: to be swept.
        design: of the sweep.
        target: the size to predict for, if any.

    Raises:
        ValueError: the model has other axes, or the target is not one of its sizes.
    """
    if target is not None:
        target = _target(design, target)
        design = design.toward(target)
    if isinstance(model, BuiltIn):
        model.check_axes(design.base)
        model = _batched(model, design.base)
        # The decay of Adam itself stands in its gradient and cannot transfer.
        usual = "adamw" if design.tune.key == "weight_decay" else "adam"
        optimizers = design.optimizers or (usual,)
        rule = DEPTH_MUP if model.block_depth == 1 else completep()
        return Sweep(
            model=model,
            design=replace(
                design,
                optimizers=optimizers,
                schemes=design.schemes or (rule,),
            ).with_grid(_started(design, optimizers, partial(model.usual_rate, design.base))),
        ), target
    if not isinstance(model, Model):
        raise TypeError(
            "Expected a depthmup.Model(make, batch=batch) or depthmup.BuiltIn(); got "
            f"{type(model).__name__}."
        )
    optimizers = design.optimizers or ("adamw",)
    design = replace(
        design,
        optimizers=optimizers,
    ).with_grid(_started(design, optimizers, _usual_rate))
    check_axes(resolved(model), design.base)
    custom = Custom(
        name=model.name, code=model.code, planned=model.train is None and model.plan is None
    )
    if not design.schemes:
        design = replace(design, schemes=(_scheme_for(model, custom, design, seconds),))
    custom = custom.with_costs(resolved(model).cost, design)
    return Sweep(model=custom, design=design), target


def _batched(model: BuiltIn, base: Size) -> BuiltIn:
    """The built-in network with the batch of the base, where that is an axis."""
    batch = base.get("batch", model.batch_size)
    if model.batch_size not in (batch, BuiltIn().batch_size):
        raise ValueError(
            f"Expected one batch size; the base has {batch}, and the network {model.batch_size} "
            "(batch_size, --batch-size). Leave it out of one of them."
        )
    return replace(model, batch_size=batch)


def _started(
    design: Design, optimizers: Sequence[str], usual: Callable[[str], float]
) -> tuple[float, ...] | Auto:
    """Values of what is tuned, or a search for them with its start, each optimizer's own.

    Raises:
        ValueError: the search names starts, and lacks an optimizer's.
    """
    if isinstance(design.grid, tuple):
        return design.grid
    auto = design.grid or Auto()
    if auto.start is not None:
        for optimizer in optimizers:
            auto.start_of(optimizer)
        return auto
    if not design.tune.is_learning_rate:
        return replace(auto, start=design.tune.start)
    starts = {optimizer: usual(optimizer) for optimizer in optimizers}
    first, *others = starts.values()
    return replace(auto, start=starts if any(rate != first for rate in others) else first)


def _usual_rate(optimizer: str) -> float:
    """From which the optimum of a custom model is looked for."""
    return USUAL_RATES.get(family(optimizer), USUAL_RATE)


def _scheme_for(model: Model, custom: Custom, design: Design, seconds: float | None) -> Scheme:
    """The scheme that the blocks of a model ask for; Depth-muP where its plan is its own."""
    if not custom.planned:
        return DEPTH_MUP
    from depthmup.training.preflight import suitable_scheme

    optimizer, *_ = design.optimizers or ("adamw",)
    return suitable_scheme(model, design.base, optimizer, design.settings, seconds=seconds)


def _target(design: Design, target: Size) -> Size:
    if not isinstance(target, Mapping) or not set(target) <= set(design.base):
        raise ValueError(
            f"Expected target to name values of {', '.join(design.base)}, such as "
            f"{{'depth': 64}}; got {target!r}."
        )
    for axis, value in target.items():
        if not hasattr(value, "__index__") or value < 1:
            raise ValueError(
                f"Expected the {axis} of the target to be a whole number of at least 1; got "
                f"{value!r}."
            )
    for axis, value in target.items():
        if value != design.base[axis] and len({size[axis] for size in design.all_sizes}) < 2:
            raise ValueError(
                f"The target has {axis} {value}, and the design has {axis} {design.base[axis]} "
                f"alone: nothing would be known of {axis}. Vary it, such as {axis}="
                f"{(design.base[axis], 2 * design.base[axis], 4 * design.base[axis])}, or leave it "
                "out of the target."
            )
    whole = {**design.base, **{axis: int(value) for axis, value in target.items()}}
    design.steps_at(whole)
    return whole


def _check_asked(sweep: Sweep, target: Size | None, tolerance: float) -> None:
    design = sweep.design
    if not 0 < tolerance < math.inf:
        raise ValueError(f"Expected tolerance to be positive; got {tolerance}.")
    if len(design.all_sizes) < 2:
        raise ValueError(
            f"Expected at least two sizes along an axis; got {dict(design.all_sizes[0])} alone. "
            "Transfer is measured between sizes: give Design(..., depth=(4, 8, 16))."
        )
    if target is not None and design.auto is None:
        check_asked(design.log2_values, target, design.tune)


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """An executor and the trainer whose jobs it does."""

    executor: Executor
    trainer: Trainer
    environment: Mapping[str, object]
    workers: int
    shard: str


def _placed(model: Model | BuiltIn, sweep: Sweep, on: Execution | Executor | int) -> _Placed:
    execution = on if isinstance(on, Execution) else Execution()
    if isinstance(on, int):
        execution = Execution(workers=on)
    chosen = execution.choose() if isinstance(on, Execution | int) else on
    device = execution.place
    elsewhere = isinstance(chosen, Ray)  # whose nodes have devices of their own
    trainer: Trainer
    where: dict[str, object] = {}
    if isinstance(model, BuiltIn):
        placement = Placement(
            device=device, engine=execution.engine, cuda_graphs=execution.cuda_graphs
        )
        if not elsewhere:
            check_device(device)
        cell, *_ = outline(sweep) if sweep.design.auto else sweep.runs
        trainer = BuiltInTrainer(
            cell=cell,
            placement=placement,
            workers=_workers(chosen),
            rounds=sweep.design.auto is not None,
        )
        where["engine"] = "each node's own" if elsewhere else trainer.engine
    else:
        if not elsewhere:
            check_device(device)
        chosen, model, where["executor"] = _sendable(chosen, model)
        where["device"] = device
        trainer = CustomTrainer(
            model=model,
            device=device,
            threads=execution.threads,
            stacked=_stacks(execution.engine),
            time_limit=getattr(chosen, "trial_seconds", None),
        )
    return _Placed(
        executor=chosen,
        trainer=trainer,
        environment=where,
        workers=_workers(chosen),
        shard=execution.shard,
    )


def _workers(executor: Executor) -> int:
    return executor.workers if isinstance(executor, Processes) else 1


def _stacks(engine: str) -> bool:
    if engine == "native":
        raise ValueError(
            "Expected the engine of a custom model to be auto, reference or stacked; got 'native', "
            "which trains only the built-in networks."
        )
    return engine == "stacked"


def _sendable(executor: Executor, model: Model) -> tuple[Executor, Model, str]:
    """The executor, the model in the form that it can send, and the executor in words."""
    if isinstance(executor, InProcess):
        return executor, model, "in process"
    try:
        sent = by_reference(model)
    except ValueError as problem:
        if not isinstance(executor, Processes) or executor.trial_seconds:
            raise ValueError(f"{problem}. Put it in a file and import it from there.") from None
        warnings.warn(
            f"{problem}: everything runs in this process. Put it in a file and import it from "
            "there to use worker processes.",
            stacklevel=4,
        )
        return InProcess(), model, f"in process: {problem}"
    if isinstance(executor, Processes):
        return executor, sent, f"{executor.workers} processes"
    return executor, sent, type(executor).__name__


def _shared(
    state: SearchState, shard: Shard, folder: Path | None, trainer: Trainer
) -> tuple[tuple[Any, ...], Path]:
    """The runs of a shard that the main store does not hold, and the path of the shard's store.

    Where learning rates are found as the sweep goes, they are its part of the next round.
    """
    if folder is None:
        raise ValueError(f"Expected out, the folder for the store of shard {shard}; got none.")
    main = folder / MAIN_STORE
    runs = state.sweep.runs
    if state.sweep.design.auto:
        with snapshot(main) if main.exists() else Store(":memory:") as store:
            runs = advance(state, store).pending
    return tuple(
        share_left(runs, shard, jobs=trainer.jobs, held_by=main)
    ), folder / shard.store_name


def _tell_time(missing: Sequence[Any], placed: _Placed, forecast: Callable[[str], None]) -> None:
    from depthmup.reports.sentences import duration

    seconds = placed.trainer.seconds(missing) / placed.workers
    if math.isfinite(seconds):
        cores = "one core" if placed.workers == 1 else f"{placed.workers} cores"
        runs = "1 run" if len(missing) == 1 else f"{len(missing)} runs"
        forecast(
            f"{runs} on {cores}: about {duration(seconds)} if "
            f"{'it is' if placed.workers == 1 else 'they are'} idle and no run diverges."
        )
