"""``depthmup transfer --model module:factory``: the main job on a person's own model."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from depthmup.cli.execution import Execution


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure whether the learning rate of your small model suits your large one.

    Trains your model under a scheme's plan at every depth (at the base's width) and every width (at
    the base's depth), and judges how the best learning rate moves. Finished runs are kept in
    OUT/results.sqlite: the same command resumes. Writes OUT/report.html and OUT/summary.json.

    The file of --model has factory(width, depth) -> module, batch(generator) -> (inputs, targets)
    and, where cross-entropy is not meant, loss(outputs, targets). --train names a function that
    does everything itself: train(trial) -> the loss of every step.
    """

    base: str
    """Size whose learning rate is known or cheap to tune, as WIDTHxDEPTH, such as 64x4."""

    model: str = ""
    """Your model: module:factory or path/to/file.py:factory."""

    train: str = ""
    """Instead of --model, your own training: module:function or path/to/file.py:function."""

    out: Path = Path("runs/transfer")
    """Folder for results.sqlite, report.html and summary.json."""

    widths: tuple[int, ...] = ()
    """Widths to train at the base's depth, increasing, the base's among them; none: leave out."""

    depths: tuple[int, ...] = ()
    """Depths to train at the base's width, increasing, the base's among them; none: leave out."""

    target: str = ""
    """Size to foretell, as WIDTHxDEPTH: writes OUT/certificate.json, or why there is none."""

    schemes: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--scheme",))] = ("depth-mup",)
    """Names (sp, mup, depth-mup, ode, block-multiplier, completep, complete-dp) or alpha,gamma."""

    optimizers: Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--optimizer",))] = ("adamw",)
    """sgd, adam, adamw, nadam, radam, adamax, adagrad, rmsprop, muon or muon-rms."""

    log2_lrs: tuple[float, ...] = (-12, -11, -10, -9, -8, -7, -6, -5)
    """Learning rates at the base: 2^k; increasing."""

    seeds: int = 3
    """Independent repetitions; intervals come from these."""

    steps: int = 200
    """Training steps."""

    window: int = 0
    """A run is judged by its mean training loss over this many last steps; 0: a fifth of them."""

    multipliers: tuple[float, ...] = (1.0,)
    """Branch multipliers at the base (the paper's a)."""

    weight_decays: tuple[float, ...] = (0.0,)
    """Weight decays at the base."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The learning rate over training."""

    warmup: float = 0.0
    """Fraction of training over which the learning rate first rises."""

    clip: float | None = None
    """Norm to which gradients are cut."""

    own_init: Literal["measured", "fixed", "fan_in"] = "measured"
    """How the model's own initialization depends on its size, where that is too rough to measure:
    fixed (the same at every size) or fan_in (as torch's layers)."""

    batch: str = "batch"
    """Function that gives a batch, of the same module or as module:function."""

    loss: str = ""
    """Function that gives the loss; by default the module's loss, or cross-entropy."""

    version: str = ""
    """Version of your code; by default its source is hashed, and other code trains anew."""

    tolerance: float = 0.15
    """Octaves per doubling within which an optimum counts as staying."""

    workers: int = 0
    """Worker processes; 0: one per core."""

    execution: Annotated[Execution, tyro.conf.OmitArgPrefixes] = field(default_factory=Execution)

    shard: str = ""
    """i/k: do the i-th of k even shares into a store of its own, which `depthmup merge` joins."""

    threads: int = 1
    """Threads of each."""

    device: str = "cpu"
    """Where to train: cpu or cuda."""

    log: str = ""
    """tensorboard:FOLDER writes every run's losses for TensorBoard."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()
    """Also write every chart in these formats."""

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


def named(arguments: Sequence[str]) -> bool:
    """Whether a command line is about an own model."""
    return any(word.partition("=")[0] in ("--model", "--train") for word in arguments)


def run(options: Options) -> int:
    from depthmup.cli.outputs import deliver, prepare_folder
    from depthmup.cli.terminal import Display
    from depthmup.measure import transfer
    from depthmup.planning.user_model import size
    from depthmup.sweep import MAIN_STORE, Shard
    from depthmup.sweep.bounds import check_octaves
    from depthmup.sweep.logs import log_named
    from depthmup.training.time_limit import time_limit

    device = options.execution.device(options.device)
    check_octaves(options.log2_lrs)
    with time_limit(options.execution.trial_seconds or None, "Loading your file"):
        functions = functions_of(options)
    prepare_folder(options.out)
    try:
        with Display(quiet=options.json) as display:
            report = transfer(
                **functions,
                base=size(options.base),
                widths=options.widths,
                depths=options.depths,
                lrs=[2.0**k for k in options.log2_lrs],
                scheme=options.schemes,
                optimizer=options.optimizers,
                multiplier=options.multipliers,
                weight_decay=options.weight_decays,
                steps=options.steps,
                seeds=options.seeds,
                window=options.window or None,
                settings=settings_of(options),
                version=options.version,
                target=size(options.target) if options.target else None,
                out=options.out,
                executor=options.execution.choose(workers=options.workers, device=device),
                shard=options.shard,
                device=device,
                threads=options.threads,
                tolerance=options.tolerance,
                log=log_named(options.log) if options.log else None,
                tell=display.tell,
                about={"command": ["depthmup", *sys.argv[1:]]},
            )
    except KeyboardInterrupt:
        kept = Shard.parse(options.shard).store_name if options.shard else MAIN_STORE
        print(
            f"\nStopped. Finished runs are kept in {options.out / kept}; the same command goes on "
            "from there.",
            file=sys.stderr,
        )
        return 130
    if options.shard:
        print(
            f"Shard {options.shard} is done: {len(report.records)} runs. When all are, `depthmup "
            f"merge {options.out}` makes the page.",
            file=sys.stderr,
        )
        return 0
    deliver(report, options.out, export=options.export, json=options.json)
    return 0


def functions_of(options: Options) -> dict[str, Any]:
    """The functions that the options name."""
    from depthmup.planning.user_model import find_function, load_user_model

    if bool(options.model) == bool(options.train):
        raise ValueError(
            "Expected either --model, a factory, or --train, a function that does everything; got "
            f"{'both' if options.model else 'neither'}."
        )
    if options.train:
        return {"train": find_function(options.train)}
    user = load_user_model(options.model, batch=options.batch, loss=options.loss)
    return {"make": user.make, "batch": user.batch, "loss": user.loss}


def settings_of(options: Options) -> dict[str, Any]:
    """Settings that are not the usual ones: only those are part of a run's description."""
    chosen = {
        "schedule": (options.schedule, "constant"),
        "warmup": (options.warmup, 0.0),
        "clip": (options.clip, None),
        "own_init": (options.own_init, "measured"),
    }
    return {name: value for name, (value, usual) in chosen.items() if value != usual}
