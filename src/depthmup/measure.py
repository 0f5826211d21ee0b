"""``depthmup.transfer``: does the learning rate of your small model suit your large one?"""

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Number
from operator import index
from pathlib import Path
from typing import Any

from depthmup.planning import Plan
from depthmup.planning.user_model import cross_entropy
from depthmup.records import Trial, environment, worker_count
from depthmup.report import Report, load_report
from depthmup.rules import Scheme
from depthmup.rules import scheme as scheme_named
from depthmup.statistics import TOLERANCE, check_asked
from depthmup.sweep import (
    MAIN_STORE,
    Executor,
    InProcess,
    Job,
    Processes,
    Progress,
    Ray,
    Shard,
    Store,
    TrialGrid,
    run,
    share_left,
    trial_jobs,
)
from depthmup.sweep.design import named
from depthmup.sweep.executors.processes import leave_if_starting
from depthmup.sweep.logs import Log, Logged
from depthmup.sweep.trials import KIND, default_corner
from depthmup.training.functions import Functions, by_reference
from depthmup.training.placement import check_device
from depthmup.training.preflight import preflight

Function = Callable[..., Any]


def transfer(
    make: Function | None = None,
    *,
    batch: Function | None = None,
    loss: Function = cross_entropy,
    train: Callable[[Trial], Sequence[float]] | None = None,
    plan: Callable[..., Plan] | None = None,
    base: tuple[int, int],
    widths: Sequence[int] = (),
    depths: Sequence[int] = (),
    lrs: Sequence[float],
    scheme: str | Scheme | Sequence[str | Scheme] = "depth-mup",
    optimizer: str | Sequence[str] = "adamw",
    multiplier: float | Sequence[float] = 1.0,
    weight_decay: float | Sequence[float] = 0.0,
    steps: int = 200,
    seeds: int = 3,
    window: int | None = None,
    settings: Mapping[str, Any] | None = None,
    version: str = "",
    target: tuple[int, int] | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    shard: str = "",
    device: str = "cpu",
    threads: int = 1,
    tolerance: float = TOLERANCE,
    title: str = "",
    log: Log | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
    about: Mapping[str, object] | None = None,
) -> Report:
    """Measure whether the best learning rate of the base is the best one of larger models.

    Trains your model at every depth (at the base's width) and every width (at the base's depth)
    over a grid of learning rates and seeds, and judges how the optimum moves. Whatever is given
    several values of (schemes, optimizers, multipliers, decays) is measured for each.

    Args:
        make: ``make(width, depth)`` gives your model, with its own initialization.
        batch: ``batch(generator)`` gives ``(inputs, targets)``, drawn from a torch generator.
        loss: ``loss(outputs, targets)`` gives one number; by default cross-entropy.
        train: instead of these, ``train(trial)`` does all the work for a ``Trial`` (``width``,
            ``depth``, ``width_ratio``, ``depth_ratio``, ``lr``, ``seed``, ``scheme``,
            ``optimizer``, ``steps``, ...) and gives the loss of every step, NaN where it diverged.
        plan: ``plan(model, base, trial)``, where ``depthmup.plan`` must be told more than the
            scheme, such as ``branches`` or ``roles``.
        base: width and depth at which the learning rate is known or cheap to tune.
        widths, depths: sizes, increasing, the base's among them.
        lrs: learning rates at the base, increasing; a factor of 2 apart is usual.
        scheme, optimizer: names as in ``depthmup.plan``.
        multiplier: of every branch at the base, the paper's a.
        weight_decay: at the base.
        steps, seeds: of each run; intervals come from seeds.
        window: a run is judged by its mean loss over so many last steps; a fifth unless given.
        settings: of the optimizer (``betas``, ``eps``, ``momentum``, ...), and ``schedule``
            (``"constant"``, ``"linear"``, ``"cosine"``), ``warmup`` (fraction of training),
            ``clip`` (gradient norm), ``own_init`` (as in ``depthmup.plan``).
        version: names the version of your code; by default its source is hashed, so that runs of
            other code are never taken for this one's.
        target: width and depth to foretell the best learning rate of, for each scheme; the report
            then has ``certificates``, and the folder a certificate.json.
        out: folder that keeps finished runs, page and summary; the same call goes on from there.
        workers: worker processes of ``threads`` threads each; 0: one per core; 1: none, everything
            runs in this process. Functions that are defined in a notebook or in the script that is
            running cannot be imported by other processes, and run in this one.
        executor: where to run, instead of ``workers``: ``depthmup.sweep.Ray(address=...)``, or
            ``Processes(workers=2, trial_seconds=60)`` with a time limit.
        shard: ``"i/k"`` does the i-th of k even shares into a store of its own in ``out``; there is
            no finding before ``depthmup merge`` has joined them.
        device: where to train.
        tolerance: octaves per doubling within which the optimum counts as staying.
        log: told of each run as it ends, such as ``depthmup.sweep.logs.TensorBoard(folder)``.
        tell: told of progress.

    Raises:
        ValueError, TypeError: before any training, what cannot be measured.
        WorkerError: your code raised an error; with its traceback, after all other runs.

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
        >>> report = depthmup.transfer(make, batch=batch, base=(16, 2), depths=(2, 4),
        ...     lrs=[2.0**k for k in range(-9, -2, 2)], steps=20, seeds=2, version="1",
        ...     settings={"own_init": "fan_in"})    # such small tensors cannot be measured
        >>> [optimum.depth for optimum in report.finding().optima]
        [2, 4]
    """
    leave_if_starting()
    functions = Functions(make=make, batch=batch, loss=loss, plan=plan, train=train)
    _check_given(functions)
    if any(not 0 < lr < math.inf for lr in lrs):
        raise ValueError(f"Expected lrs to be positive; got {list(lrs)}.")
    corners: tuple[tuple[int, int], ...] = ()
    if target is not None and len(target) == len(base) == 2:
        corners = default_corner(base, widths, depths, target)
    grid = TrialGrid(
        model=functions.main,
        code=f"version {version}" if version else functions.code,
        base=_whole(base),
        widths=_whole(widths),
        depths=_whole(depths),
        log2_lrs=tuple(round(math.log2(lr), 9) for lr in lrs),
        schemes=tuple(scheme_named(each) for each in _several(scheme)),
        optimizers=tuple(_several(optimizer)),
        multipliers=tuple(float(a) for a in _several(multiplier)),
        weight_decays=tuple(float(decay) for decay in _several(weight_decay)),
        seeds=index(seeds),
        steps=index(steps),
        corners=corners,
        window=max(1, index(steps) // 5) if window is None else index(window),
        settings=_plain(settings or {}),
        planned=train is None and plan is None,
    )
    if index(threads) < 1:
        raise ValueError(f"Expected threads to be at least 1; got {threads}.")
    if not isinstance(executor, Ray):  # whose nodes have devices of their own
        check_device(device)
    if not 0 < tolerance < math.inf:
        raise ValueError(f"Expected tolerance to be positive; got {tolerance}.")
    if target is not None:
        if len(target) != 2:
            raise ValueError(f"Expected every target to be a width and a depth; got {target}.")
        check_asked(grid.log2_lrs, named(target))
    chosen, functions, where = _where(executor, workers, functions)
    jobs = partial(trial_jobs, functions=functions, device=device, threads=threads)
    folder = None if out is None else Path(out)
    asked, path = grid.runs, None if folder is None else folder / MAIN_STORE
    if shard:
        asked, path = _shared(grid, Shard.parse(shard), folder, jobs)

    seconds = getattr(chosen, "trial_seconds", None)

    def checked(missing: Sequence[Trial]) -> Sequence[Job]:
        if missing:
            preflight(functions, missing, seconds=seconds)
        return jobs(missing)

    begun = path is not None and path.exists()
    if not begun:
        preflight(functions, asked, seconds=seconds)  # before anything is written
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with Store(path or ":memory:") as store:
        run(
            asked,
            store=store,
            executor=chosen if log is None else Logged(executor=chosen, log=log),
            jobs=checked if begun else jobs,
            tell=tell,
            about={
                "kind": KIND,
                "grid": grid.to_dict(),
                "tolerance": tolerance,
                "target": target if target is None else _whole(target),
                "title": title or f"Learning-rate transfer: {grid.model}",
                "environment": {**environment(), "device": device, "executor": where},
                **(about or {}),
            },
        )
        if shard:
            return Report(grid=grid, records=store.records(asked), studies=())

        def train_few(trials: Sequence[Trial]) -> None:
            run(trials, store=store, executor=chosen, jobs=jobs)

        report = load_report(store, grid, train=train_few)
    if folder is not None:
        report.save(folder)
    return report


def _shared(
    grid: TrialGrid, shard: Shard, folder: Path | None, jobs: Callable[..., Any]
) -> tuple[tuple[Trial, ...], Path]:
    """The trials of a share that the main store does not hold, and the store for them."""
    if folder is None:
        raise ValueError(f"A shard is kept in a folder: expected out with shard={shard}.")
    asked = share_left(grid.runs, shard, jobs=jobs, held_by=folder / MAIN_STORE)
    return tuple(asked), folder / shard.store_name


def _check_given(functions: Functions) -> None:
    given = set(functions.given)
    if "train" in given and given & {"make", "batch", "plan"}:
        raise ValueError(
            "Expected either train(trial), which does everything, or make(width, depth) with "
            f"batch(generator); got {', '.join(sorted(given - {'loss'}))}."
        )
    if "train" not in given and not given >= {"make", "batch"}:
        raise ValueError(
            "Expected make(width, depth) and batch(generator), or train(trial); got "
            f"{', '.join(sorted(given - {'loss'})) or 'none of them'}."
        )


def _several(value: Any) -> Sequence[Any]:
    """One value or several, as several."""
    return [value] if isinstance(value, str | Number | Scheme) else list(value)


def _whole(sizes: Sequence[Any]) -> tuple[Any, ...]:
    """Whole numbers of any kind, NumPy's too, as Python's; others as they are, to be refused."""
    return tuple(index(n) if hasattr(n, "__index__") else n for n in sizes)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON gives them back, so that they are part of a run's key."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(dict(settings), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Expected settings that JSON can hold: numbers, strings and lists; {error}."
        ) from None
    return found


def _where(
    executor: Executor | None, workers: int, functions: Functions
) -> tuple[Executor, Functions, str]:
    """The executor, the functions as it needs them, and what it is."""
    count = worker_count(workers)
    if (executor is None and count == 1) or isinstance(executor, InProcess):
        return executor or InProcess(), functions, "in process"
    try:
        sent = by_reference(functions)
    except ValueError as problem:
        if executor is not None:
            raise ValueError(f"{problem}. Put it in a file and import it from there.") from None
        warnings.warn(
            f"{problem}: everything runs in this process. Put it in a file and import it from "
            "there to use worker processes.",
            stacklevel=3,
        )
        return InProcess(), functions, f"in process: {problem}"
    if executor is not None:
        return executor, sent, type(executor).__name__
    return Processes(workers=count), sent, f"{count} processes"
