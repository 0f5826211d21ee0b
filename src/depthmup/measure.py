"""``depthmup.transfer``: is the best learning rate of a small model the best of a large one?"""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias

from depthmup.execution import Execution
from depthmup.model import Model
from depthmup.notebook import told
from depthmup.recipes import RecipeReport
from depthmup.records import environment
from depthmup.records.packages import need
from depthmup.report import Report, load_report, of_one_value
from depthmup.reports import write_result
from depthmup.reports.html import prepare
from depthmup.runner import Runner, runner_of
from depthmup.several import check_names, measured_together
from depthmup.statistics import TOLERANCE
from depthmup.statistics.gain import baselines
from depthmup.sweep import (
    MAIN_STORE,
    BuiltIn,
    Design,
    Executor,
    Job,
    Progress,
    SearchState,
    Shard,
    Size,
    Store,
    Sweep,
    WorkerError,
    advance,
    outline,
    run,
    share,
)
from depthmup.sweep.executors.executor import staying
from depthmup.sweep.executors.processes import leave_if_starting
from depthmup.sweep.logs import Log
from depthmup.sweep.resolution import check_resolved, resolved_sweep
from depthmup.sweep.shards import snapshot
from depthmup.sweep.strategy import check_budget
from depthmup.sweep.trainer import Trainer

Tell: TypeAlias = Callable[[Progress], None]
Train: TypeAlias = Callable[[Sequence[Any], Tell], None]
"""Trains runs that a store does not hold, and tells their progress."""

SHORTEST = 10.0
"""Seconds of training that a forecast names."""

SEARCHES = (
    "{tuned} are found as the sweep goes, the smallest size first; it ends when every "
    "{what} is decided."
)


def transfer(
    model: Model | BuiltIn | Mapping[str, Model | BuiltIn],
    design: Design,
    *,
    out: str | Path | None = None,
    on: Execution | Executor | int = 1,
    target: Size | str | None = None,
    over: str = "",
    tolerance: float = TOLERANCE,
    title: str = "",
    log: Log | None = None,
    progress: Callable[[Progress], None] | None = None,
    forecast: Callable[[str], None] | None = None,
    command: Sequence[str] = (),
) -> Report | RecipeReport:
    """Measure whether the best learning rate of the base is the best one of larger models.

    Trains the model at the sizes, learning rates and seeds of the design, and judges how the
    optimum moves along each axis. Unless the design has a grid of learning rates, the most
    informative runs come first, and training ends when the verdict is decided. Where the design has
    several schemes, optimizers, multipliers or decays, every combination is measured.

    Args:
        model: a ``depthmup.Model``, or a ``depthmup.BuiltIn`` residual network; or several by
            their names, such as ``{"old": ..., "new": ...}``. Each is measured by the same design
            and seeds, in a folder of its own in ``out``, and the report compares them.
        design: the sizes, learning rates and seeds.
        out: folder for finished runs, page and summary; the same call resumes there.
        on: where to run: an ``Execution``, a number of worker processes (0: one per core; 1: in
            this process), or an executor of ``depthmup.sweep``. Functions defined in a notebook or
            in the running script cannot be imported by other processes and run in this one.
        target: the size at which to predict the best learning rate of each variant, such as
            ``{"depth": 64}`` or "128x64"; the report then has ``certificates``, and the folder a
            certificate.json. Missing axes take the base's values. A target that grows
            along two axes adds a corner to the design.
        over: the variant that the gains of the others are over, or a part of its name, such as
            ``"adamw"``; by default the first.
        tolerance: largest drift, in octaves per doubling, that still counts as staying.
        title: of the page.
        log: receives each run as it ends, and losses of custom models while they train, such as
            ``depthmup.sweep.logs.TensorBoard(folder)``.
        progress: called with the progress of the sweep. By default a notebook shows it in a line
            that changes in place, and anything else shows nothing.
        forecast: called once with the expected time of the sweep, in a sentence.
        command: command line to show on the page.

    Returns:
        The report; for a shard, one without findings. Of a design that tunes several values
        together a ``RecipeReport``: their joint optimum at every size.

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

    *Source:* Tensor Programs V (arXiv 2203.03466) asks the question along width, TP6 (arXiv
    2310.02244) along depth; the statistics are this package's
    (docs/studies/statistics.md, docs/studies/adaptive.md).
    """
    leave_if_starting()
    if out is not None:
        need("The page in a folder", "vl_convert")
    if isinstance(model, Mapping):
        return _of_several(
            model,
            design,
            out=out,
            over=over,
            on=on,
            target=target,
            tolerance=tolerance,
            title=title,
            log=log,
            progress=progress,
            forecast=forecast,
            command=command,
        )
    seconds = getattr(on, "trial_seconds", None) or None
    sweep, target = resolved_sweep(model, design, target, seconds=seconds)
    check_resolved(sweep, target, tolerance)
    if over and sweep.design.beside:
        raise ValueError(
            "Expected no variant to compare with (over) while several values are tuned together; "
            f"got {over!r}. Leave it out, or tune one value."
        )
    if over:
        baselines([variant.name for variant in sweep.design.variants], over)
    folder = None if out is None else Path(out)
    runner = runner_of(model, sweep, on, out=folder)
    path = None if folder is None else folder / MAIN_STORE
    state = SearchState(sweep=sweep, tolerance=tolerance, target=target, over=over)
    check_budget(state)
    asked = outline(sweep) if sweep.design.auto else sweep.runs
    if runner.shard:
        asked, path = _shared(state, Shard.parse(runner.shard), folder, runner.trainer)

    def checked(missing: Sequence[Any]) -> Sequence[Job]:
        if missing and folder is not None and not runner.shard:
            # The page's libraries are imported in the seconds that workers need to start.
            Thread(target=prepare, daemon=True).start()
        if missing and begun:
            runner.check(missing)
        if missing and forecast is not None and not sweep.design.auto:
            _tell_time(missing, runner, forecast)
        return runner.trainer.jobs(missing)

    begun = path is not None and path.exists()
    if not begun:
        runner.check(asked)  # before anything is written
    about = {
        "sweep": sweep.to_dict(),
        "tolerance": tolerance,
        "target": None if target is None else dict(target),
        "title": title,
        **({"over": over} if over else {}),
        "environment": {**environment(), **runner.environment},
        **({"command": list(command)} if command else {}),
        **(
            {"sources": model.sources, "folder": str(Path.cwd())}
            if command and isinstance(model, Model)
            else {}
        ),
    }
    with (
        staying(runner.executor) as workers,  # a cluster that does not answer leaves no store
        _store_in(folder, path) as store,
        told(progress) as tell_all,
    ):
        if forecast is not None and (said := _of_other_code(store, sweep)):
            forecast(said)

        def train(runs: Sequence[Any], tell: Callable[[Progress], None]) -> None:
            first = runner.trainer.of_command and not len(store)
            run(
                runs,
                store=store,
                executor=workers,
                jobs=checked,
                tell=tell,
                about=about,
                log=log,
                first_alone=first,
                slow_starts=runner.trainer.of_command,  # a script's imports take seconds
            )

        if sweep.design.auto and not runner.shard:
            if forecast is not None:
                several = "Values of " + " and ".join(o.name for o in sweep.design.tuned)
                tuned = several if sweep.design.beside else "Learning rates"
                forecast(SEARCHES.format(tuned=tuned, what="gain" if over else "verdict"))
            state = _train_rounds(state, store, train=train, tell=tell_all)
        else:
            train(asked, tell_all)
        if runner.shard:
            return Report(sweep=sweep, records=store.records(asked), studies=())

        def train_few(runs: Sequence[Any]) -> None:
            run(runs, store=store, executor=workers, jobs=runner.trainer.jobs)

        can_probe = not runner.trainer.of_command
        report = load_report(
            store,
            sweep,
            state=state if sweep.design.auto else None,
            train=train_few if can_probe else None,
        )
    if isinstance(report, RecipeReport):
        if folder is not None:
            report.save(folder)
        return report
    if folder is not None:
        write_result(report.studies, folder, certificates=report.certificates, redraw=False)
    return report


def _of_several(
    models: Mapping[str, Model | BuiltIn],
    design: Design,
    *,
    out: str | Path | None,
    over: str,
    **asked: Any,
) -> Report:
    """Every model's sweep, none of which begins before all can be measured."""
    check_names(models)
    if design.beside:
        raise ValueError(
            "Expected one model while several values are tuned together; got "
            f"{len(models)}. Measure each in a folder of its own."
        )
    if getattr(asked["on"], "shard", ""):
        raise ValueError("Expected no shard with several models; share each model's sweep alone.")
    target = None
    for each in models.values():
        sweep, target = resolved_sweep(each, design, asked["target"])
        check_resolved(sweep, target, asked["tolerance"])
    several = len(sweep.design.variants) > 1
    names = [
        f"{variant.name}, {name}" if several else name
        for name in models
        for variant in sweep.design.variants
    ]
    baselines(names, over)
    return measured_together(
        models,
        lambda each, folder: of_one_value(
            transfer(each, design, out=folder, **asked), "a comparison of models"
        ),
        out=None if out is None else Path(out),
        over=over,
        target=target,
    )


def _store_in(folder: Path | None, path: Path | None) -> Store:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return Store(path or ":memory:")


def _shared(
    state: SearchState, shard: Shard, folder: Path | None, trainer: Trainer
) -> tuple[tuple[Any, ...], Path]:
    """The runs of a shard that the main store does not hold, and the path of the shard's store.

    Where learning rates are found as the sweep goes, they are its part of the next round.
    """
    if folder is None:
        raise ValueError(f"Expected out, the folder for the store of shard {shard}; got none.")
    main = folder / MAIN_STORE
    with snapshot(main) if main.exists() else Store(":memory:") as store:
        runs = advance(state, store).pending if state.sweep.design.auto else state.sweep.runs
        left = store.missing(share(runs, shard, jobs=trainer.jobs))
    return tuple(left), folder / shard.store_name


def _train_rounds(state: SearchState, store: Store, *, train: Train, tell: Tell) -> SearchState:
    """Train what a search asks for, round by round, to its end or the end of its budget of seconds.

    Progress is that of a round, which may be the last.
    """
    started = time.monotonic()
    auto = state.sweep.design.auto
    seconds = math.inf if auto is None or auto.seconds is None else auto.seconds
    state = advance(state, store)
    if state.done:
        train((), tell)  # notes the session
    first = True  # A budget of seconds that ends within it still has a report.
    while state.pending and (first or time.monotonic() - started < seconds):
        first = False
        try:
            train(state.pending, _of_the_whole(state, tell))
        except WorkerError as error:
            raise WorkerError(f"{error}{_so_far(state, store)}") from error
        state = advance(state, store)
    return state


def _so_far(state: SearchState, store: Store) -> str:
    """How to see the rounds before one that failed, where a file holds them."""
    if not state.records or store.path.name != MAIN_STORE:
        return ""
    folder = shlex.quote(str(store.path.parent))
    return f"\nThe rounds before are whole: `depthmup report {folder}` shows them."


def _of_the_whole(state: SearchState, tell: Tell) -> Tell:
    """Tells the progress of one round, with the runs of those before and why it is made."""
    before = len(state.records)

    def told(progress: Progress) -> None:
        done, cells = before + progress.done, before + progress.cells
        tell(replace(progress, done=done, cells=cells, why=state.why))

    return told


def _of_other_code(store: Store, sweep: Sweep) -> str:
    """That a store's runs of this model were trained by other code, so that none is used again."""
    own = sweep.to_dict()["model"]
    before = [s["sweep"]["model"] for s in store.sessions() if "sweep" in s]
    changed = [model for model in before if {**model, "code": own.get("code")} == own]
    if "code" not in own or not changed or own in changed:
        return ""
    return (
        f"The code of {own['name']} has changed since the runs in {store.path.parent}: none of "
        "them is used again. They stay: `depthmup report "
        f"{shlex.quote(str(store.path.parent))}` names both."
    )


def _tell_time(missing: Sequence[Any], runner: Runner, forecast: Callable[[str], None]) -> None:
    from depthmup.reports.sentences import duration

    seconds = runner.trainer.seconds(missing) / runner.trainer.workers
    if math.isfinite(seconds):
        cores = "one core" if runner.trainer.workers == 1 else f"{runner.trainer.workers} cores"
        runs = "1 run" if len(missing) == 1 else f"{len(missing)} runs"
        # Below that, processes take longer to start than runs to train.
        time_left = f"about {duration(seconds)}" if seconds >= SHORTEST else "a few seconds"
        forecast(
            f"{runs} on {cores}: {time_left} if "
            f"{'it is' if runner.trainer.workers == 1 else 'they are'} idle and no run diverges."
        )
