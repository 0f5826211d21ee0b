"""``depthmup transfer``: the main job."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from depthmup.cli.execution import Execution
from depthmup.rules import scheme

if TYPE_CHECKING:
    from depthmup.records import Cell
    from depthmup.sweep import Grid, Job

Preset = Literal["tiny", "small", "medium"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure whether the best learning rate stays where it is as a network gets deeper.

    Trains residual MLPs on images over schemes x depths x learning rates x seeds, and
    judges how the optimum moves. Finished runs are kept in OUT/results.sqlite and never trained
    again: the same command resumes. Writes OUT/report.html and OUT/summary.json.
    """

    preset: Preset = "small"
    """Where defaults come from: tiny (seconds), small (a minute), medium (ten minutes)."""

    model: str = ""
    """Measure your own model instead, module:factory; --model M --help shows its options."""

    out: Path = Path("runs/transfer")
    """Folder for results.sqlite, report.html and summary.json."""

    schemes: tuple[str, ...] = ("depth-mup", "block-multiplier", "sp", "ode")
    """Names (sp, mup, depth-mup, ode, block-multiplier, completep, complete-dp) or alpha,gamma."""

    depths: tuple[int, ...] = (8, 16, 32, 64, 128)
    """Numbers of residual branches, increasing."""

    base_depth: int = 8
    """The depth at which all schemes agree."""

    log2_lrs: tuple[float, ...] = (-6.5, -5.5, -5, -4.5, -4, -3.5, -3, -2.5, -2, -1.5, -1)
    """Base learning rates: 2^k / width for Adam, 2^k for SGD; increasing."""

    seeds: int = 3
    """Independent repetitions, from whose scatter intervals are computed."""

    width: int = 64
    """Features of the residual stream."""

    steps: int = 300
    """Training steps."""

    window: int = 60
    """A run is judged by its mean training loss over this many last steps."""

    batch_size: int = 64
    """Examples per step."""

    order: Literal["replacement", "epochs"] = "replacement"
    """Examples drawn each by itself, or all of them once per epoch, shuffled anew."""

    activation: str = "abs"
    """abs, relu, identity, tanh, gelu, silu, softplus, erf, sin or cos."""

    nonlinearity: Literal["post", "pre"] = "post"
    """phi(W x) or W phi(x)."""

    block_depth: int = 1
    """Matrices in series in a branch."""

    mean_subtraction: Literal["on", "off"] = "on"
    """Subtract the mean over features from every branch."""

    layer_norm: Literal["on", "off"] = "off"
    """Normalize the input of every branch."""

    multiplier: float = 1.0
    """Branch multiplier at the base depth (the paper's a)."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimizer."""

    beta1: float = 0.9
    """Adam's first decay rate."""

    beta2: float = 0.999
    """Adam's second decay rate."""

    epsilon: float = 1e-8
    """Adam's epsilon at the base."""

    momentum: float = 0.0
    """Momentum of SGD."""

    weight_decay: float = 0.0
    """Weight decay at the base (adamw, sgd)."""

    data: str = "digits"
    """digits, mnist:FOLDER or cifar10:FOLDER with the official files; mnist:hf, cifar10:hf."""

    unverified_data: bool = False
    """Take files in these formats that are not the official ones."""

    label_noise: float | None = None
    """Fraction of labels drawn anew; by default 0.3 of the digits', 0 of others'."""

    tolerance: float = 0.15
    """Octaves per doubling of depth within which an optimum counts as staying."""

    target_depth: int = 0
    """Depth to foretell from these: writes OUT/certificate.json, or why there is none."""

    workers: int = 0
    """Worker processes of one thread each; 0: one per core."""

    execution: Annotated[Execution, tyro.conf.OmitArgPrefixes] = field(default_factory=Execution)

    shard: str = ""
    """i/k: do the i-th of k even shares into a store of its own, which `depthmup merge` joins."""

    device: str = "cpu"
    """Where to train: cpu, cuda or cuda:N."""

    engine: Literal["auto", "native", "stacked", "reference"] = "auto"
    """What trains: the compiled kernel, one stacked PyTorch network, or the plain loop."""

    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Of matrix products; tf32 needs cuda. Other precisions are other runs in the store."""

    cuda_graphs: bool = False
    """On cuda: record a training step once and replay it."""

    log: str = ""
    """tensorboard:FOLDER writes every run's losses for TensorBoard."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()
    """Also write every chart in these formats."""

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


PRESETS: dict[str, Options] = {
    "tiny": Options(
        preset="tiny",
        steps=200,
        depths=(8, 16, 32, 64),
        log2_lrs=(-5.5, -4.5, -3.5, -3, -2.5, -2, -1),
        seeds=2,
    ),
    "small": Options(),
    "medium": Options(preset="medium", seeds=4, width=128, depths=(8, 16, 32, 64, 128, 256)),
}


def preset_of(arguments: Sequence[str]) -> Options:
    """The defaults of the preset that the command line names."""
    for word, following in pairwise([*arguments, ""]):
        name = following if word == "--preset" else word.removeprefix("--preset=")
        if word.startswith("--preset") and name in PRESETS:
            return PRESETS[name]
    return PRESETS["small"]


def run(options: Options) -> int:
    # Loaded here, so that --help is instant.
    from depthmup.cli.outputs import (
        about_session,
        deliver,
        prepare_folder,
    )
    from depthmup.cli.terminal import Display, duration
    from depthmup.report import load_report
    from depthmup.reports.html import prepare
    from depthmup.statistics import check_asked
    from depthmup.sweep import (
        MAIN_STORE,
        Processes,
        Shard,
        Store,
        check_memory,
        core_seconds,
        share_left,
        training,
    )
    from depthmup.sweep import run as run_sweep
    from depthmup.sweep.logs import Logged, log_named
    from depthmup.training import Placement, engine_for

    grid = grid_of(options)
    if not 0 < options.tolerance < float("inf"):
        raise ValueError(f"Expected tolerance to be positive; got {options.tolerance}.")
    if options.target_depth < 0:
        raise ValueError(
            f"Expected target-depth to be at least 1, or 0 for none; got {options.target_depth}."
        )
    if options.target_depth:
        check_asked(grid.log2_lrs, {"depth": options.target_depth})
    device = options.execution.device(options.device)
    placement = Placement(device=device, engine=options.engine, cuda_graphs=options.cuda_graphs)
    jobs = partial(training, placement=placement)
    executor = options.execution.choose(workers=options.workers, device=device)
    log = log_named(options.log) if options.log else None
    shard = Shard.parse(options.shard) if options.shard else None
    asked, main = grid.cells, options.out / MAIN_STORE
    if shard is not None:
        asked = tuple(share_left(grid.cells, shard, jobs=jobs, held_by=main))
    engine = "each node's own"
    if options.execution.executor != "ray":
        chosen = engine_for(grid.cells[0], placement)
        engine = str(chosen)
        check_memory(
            [job.cells for job in jobs(asked)],
            workers=executor.workers if isinstance(executor, Processes) else 1,
            stacked=chosen.name == "stacked",
            device=device,
        )
    prepare_folder(options.out)
    with Store(options.out / shard.store_name if shard else main) as store:
        about = about_session(
            grid,
            tolerance=options.tolerance,
            command=sys.argv[1:],
            engine=engine,
            target_depth=options.target_depth,
        )
        # The workers' first seconds, loading libraries, are this process' own to do the same.
        preparation = Thread(target=prepare)
        if shard is None:
            preparation.start()

        def announced(missing: Sequence["Cell"]) -> Sequence["Job"]:
            if missing and not options.json and device == "cpu" and isinstance(executor, Processes):
                seconds = core_seconds(missing, engine=chosen.name) / executor.workers
                print(
                    f"{len(missing)} runs on {executor.workers} cores: about {duration(seconds)} "
                    "if they are idle and no run diverges.",
                    file=sys.stderr,
                )
            return jobs(missing)

        try:
            with Display(quiet=options.json) as display:
                run_sweep(
                    asked,
                    store=store,
                    executor=executor if log is None else Logged(executor=executor, log=log),
                    jobs=announced,
                    tell=display.tell,
                    about=about,
                )
        except KeyboardInterrupt:
            done = len(asked) - len(store.missing(asked))
            print(
                f"\nStopped. {done} of {len(asked)} runs are kept in {store.path}; "
                "the same command goes on from there.",
                file=sys.stderr,
            )
            return 130
        if shard is not None:
            print(
                f"Shard {options.shard} is done: {len(asked)} runs in {store.path}. When all are, "
                f"`depthmup merge {options.out}` makes the page.",
                file=sys.stderr,
            )
            return 0

        def train(cells: Sequence["Cell"]) -> None:
            run_sweep(cells, store=store, executor=executor, jobs=jobs)

        report = load_report(store, grid, train=train)
    preparation.join()
    deliver(report, options.out, export=options.export, json=options.json)
    return 0


def grid_of(options: Options) -> "Grid":
    """The grid that the options describe; refuses what cannot be run."""
    from depthmup.sweep import Grid
    from depthmup.training import find_data

    shared = {f.name for f in fields(Grid)} & {f.name for f in fields(Options)}
    values = {name: getattr(options, name) for name in shared}
    return Grid(
        **{
            **values,
            "schemes": tuple(scheme(name) for name in options.schemes),
            "log2_lrs": tuple(float(k) for k in options.log2_lrs),
            "mean_subtraction": options.mean_subtraction == "on",
            "layer_norm": options.layer_norm == "on",
            "data": find_data(
                options.data,
                label_noise=options.label_noise,
                verify=not options.unverified_data,
            ),
        }
    )
