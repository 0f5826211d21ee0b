"""``depthmup transfer``: measure whether the best learning rate transfers to larger sizes."""

import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from depthmup.cli.folders import prepare_folder
from depthmup.cli.interrupts import stopped
from depthmup.cli.refusals import FAILS, HOLDS, UNDECIDED
from depthmup.cli.sizes import parse_arms
from depthmup.cli.spelling import arguments
from depthmup.execution import Execution
from depthmup.records import Tuned, Verdict
from depthmup.records.gain import GainVerdict
from depthmup.records.run import Order, Precision
from depthmup.records.sizes import parse_size
from depthmup.records.text import counted

if TYPE_CHECKING:
    from depthmup.model import Model
    from depthmup.recipes import RecipeReport
    from depthmup.report import Report
    from depthmup.sweep import Auto, BuiltIn, Design

Preset = Literal["tiny", "small", "medium"]
Names = tuple[str, ...]


EVERYDAY = frozenset({
    "--help", "--base", "--depths", "--widths", "--along", "--target", "--schemes",
    "--optimizers", "--lrs", "--tune", "--budget", "--seeds", "--steps", "--out",
    "--json", "--model", "--train", "--command", "--loss", "--preset", "--data",
    "--workers", "--device"
})  # fmt: skip
"""Options that most people need."""


@dataclass(frozen=True, kw_only=True)
class CustomModel:
    """A custom model, instead of the built-in networks."""

    model: str = ""
    """Your model: module:factory or path/to/file.py:factory."""

    train: str = ""
    """Your training function, instead of --model: module:function or path/to/file.py:function."""

    command: str = ""
    """Your command, instead of --model: 'python train.py lr={lr} layers={depth} seed={seed}
    out={out}'. It trains one run; names in braces are filled in."""

    batch: str = "batch"

    loss: str = ""
    """Function that returns the loss; by default the file's loss, or cross-entropy. With --command,
    where its loss is: '{out}/log.csv:val_loss' (a column of a CSV or JSON lines file),
    '{out}/loss.txt' (one number), or 're:loss=(\\S+)' (a pattern with one group, matched to the
    output)."""

    version: str = ""
    """Version of your code. By default its source is hashed, and all runs are repeated when it
    changes."""

    clip: float | None = None
    """Largest norm of gradients; larger ones are clipped."""

    own_init: Literal["measured", "fixed", "fan_in"] = "measured"


@dataclass(frozen=True, kw_only=True)
class BuiltInNetworks:
    """Residual MLPs on images, which need no code."""

    API: ClassVar = ("sweep.built_in:BuiltIn",)

    preset: Preset = "small"
    """Set of defaults: tiny (takes ten seconds), small (half a minute) or medium (minutes)."""

    activation: str = "abs"
    nonlinearity: Literal["post", "pre"] = "post"
    block_depth: int = 1
    mean_subtraction: Literal["on", "off"] = "on"
    layer_norm: Literal["on", "off"] = "off"
    batch_size: int = 64
    order: Order = "replacement"

    data: str = "digits"
    """digits, mnist:FOLDER or cifar10:FOLDER with the official files; mnist:hf, cifar10:hf."""

    unverified_data: bool = False

    label_noise: float | None = None
    """Fraction of labels resampled at random; by default 0.3 for the digits, 0 for other data."""

    precision: Precision = "float32"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure whether the best learning rate stays the same as a network grows.

    Trains the built-in networks, or a custom model (--model), and judges how the best learning rate
    (or another hyperparameter, by --tune) moves with depth and width. The most informative runs
    come first, the smallest size before all others, and training ends when the verdict is decided;
    --lrs gives a grid instead. Finished runs are stored in OUT/results.sqlite and never
    repeated: the same command resumes. Writes OUT/report.html and OUT/summary.json.

    The file that --model names defines factory(width, depth) -> module, batch(generator) ->
    (inputs, targets) and, unless the loss is cross-entropy, loss(outputs, targets). --train names a
    function that does the whole training itself: train(trial) -> the loss of every step. --command
    trains every run by your own command line.

        depthmup transfer --preset tiny --out runs/first
        depthmup transfer --schemes depth-mup 3/4,1/4 --activation relu --out runs/relu
        depthmup transfer --model mine.py:make --base 64x2 --depths 2,4,8 --target depth=64
        depthmup transfer --command 'python train.py lr={lr} depth={depth} seed={seed} out={out}' \\
            --loss '{out}/log.csv:val_loss' --base depth=4 --depths 4,8,16 --out runs/mine
        depthmup transfer --tune multiplier --lr 0.003 --preset tiny --out runs/multiplier
    """

    API: ClassVar = ("sweep.design:Design",)

    base: Names = ()
    """Size with a known or cheaply tuned learning rate: NAME=VALUE for each axis, such as
    width=64 depth=4 batch=32 steps=500, or as 64x4. By default width=64 depth=8 for the built-in
    networks (preset tiny: width=32, medium: width=128)."""

    depths: tuple[int, ...] | None = None
    """Depths to train at the base's width, increasing and including the base's. By default 8 to 128
    for the built-in networks (preset medium: 8 to 256)."""

    widths: tuple[int, ...] | None = None
    """Widths to train at the base's depth, increasing and including the base's."""

    along: Names = ()
    """Values along any axis of the base, as NAME=VALUE,VALUE for each, such as batch=32,64,128
    steps=500,1000. Your functions' arguments are the axes: make(width, depth, experts),
    batch(generator, batch). Name steps if steps stay fixed as the batch grows, tokens if
    tokens do."""

    corners: Names = ()
    """Sizes that grow along several axes together, such as depth=16,steps=1000: NAME=VALUE for each
    axis that differs from the base. The report then shows whether the drift along one axis depends
    on the other. A --target that grows along several axes adds its own."""

    target: Names = ()
    """Size to predict the best learning rate for, such as depth=64 width=1024. The prediction,
    or the reason why there is none, is written to OUT/certificate.json."""

    schemes: Annotated[Names, tyro.conf.arg(aliases=("--scheme",))] = ()
    """Schemes by name ({schemes}, with a plus and one of {expert rules}) or as alpha,gamma. By
    default four of them for the built-in networks; for a custom model depth-mup if its branches
    have one matrix, else completep."""

    optimizers: Annotated[Names, tyro.conf.arg(aliases=("--optimizer",))] = ()
    """Optimizers by name. Built-in networks take adam (the default), adamw and sgd. Custom models
    take any that `depthmup rules` lists, by default adamw."""

    lrs: tuple[float, ...] | None = None
    """Learning rates at the base, increasing, such as 1e-3 3e-3 1e-2, for a grid of all sizes. By
    default they are found as the sweep goes, and training ends when the verdict is decided."""

    log2_lrs: tuple[float, ...] | None = None
    """The same, given as their log2."""

    tune: str = "lr"
    """The hyperparameter to tune: lr, weight_decay, multiplier (of every branch), init_scale (of
    the weights inside branches), one_minus_beta2 or cooldown (of your own script). The search
    finds its best value at every size. Several with commas between them, such as lr,weight_decay,
    are tuned together; --base then has your own values: width=64,lr=3e-3,weight_decay=0.1. So are
    lr,batch (name tokens in --base to fix the data, not the steps) and lr,steps. Any placeholder of
    your own --command can be tuned, if --base has its value."""

    lr: float | None = None
    """Fixed learning rate at the base, while --tune names something else."""

    values: tuple[float, ...] | None = None
    """Values at the base of the hyperparameter of --tune, increasing, for a grid of all sizes. By
    default they are found as the sweep goes."""

    log2_values: tuple[float, ...] | None = None
    """The same, given as their log2."""

    start: float | None = None
    """First value to try at the base; by default a usual one."""

    drift_precision: float | None = None
    """Stop when the drift is known to within this many octaves per doubling, such as 0.05, instead
    of at a verdict."""

    budget: str = ""
    """Train until the verdict is decided, but no more than this: a number of runs, such as 200, or
    a time, such as 90s, 30min or 2h, after which no more runs are begun."""

    multipliers: Annotated[tuple[float, ...], tyro.conf.arg(aliases=("--multiplier",))] = (1.0,)
    weight_decays: Annotated[tuple[float, ...], tyro.conf.arg(aliases=("--weight-decay",))] = (0.0,)

    ablate: Names | None = None
    """Measure each rule of the scheme as well, taken away in turn: all that act along the axes, or
    some by name, such as readout.lr. With add, each is added to standard practice instead."""

    run_rules: Annotated[Names, tyro.conf.arg(name="run", aliases=("--run-rule",))] = ()
    """Rules for how learning rate, decay, epsilon and betas follow batch and duration: none,
    {run rules} (`depthmup rules` lists them). By default the scheme's own."""

    beta1: float | None = None
    """Adam's first decay rate."""

    beta2: float | None = None
    """Adam's second decay rate."""

    epsilon: float | None = None
    """Adam's epsilon at the base."""

    momentum: float | None = None
    """Momentum of SGD and Muon."""

    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Schedule of the learning rate over training."""

    warmup: float = 0.0
    """Fraction of training over which the learning rate first rises linearly."""

    seeds: int | None = None
    """Number of repetitions; their scatter gives the intervals. By default 3 for a grid. For a
    search it is the most that a rate gets, by default 8."""

    steps: int | None = None
    """Training steps of every run, unless steps are an axis of the base. By default 300 for the
    built-in networks (preset tiny: 200), 200 for a custom model."""

    window: int | None = None
    tolerance: float = 0.15
    over: str = ""
    """Variant that the gains of the others are over, or a part of its name, such as adamw; by
    default the first. Or another model, function or command, by the same words as --model, --train
    or --command: both are measured, as old and new."""
    custom: Annotated[CustomModel, tyro.conf.OmitArgPrefixes] = field(default_factory=CustomModel)
    networks: Annotated[BuiltInNetworks, tyro.conf.OmitArgPrefixes] = field(
        default_factory=BuiltInNetworks
    )
    execution: Annotated[Execution, tyro.conf.OmitArgPrefixes] = field(default_factory=Execution)

    out: Path = Path("runs/transfer")
    """Folder for results.sqlite, report.html and summary.json."""

    log: str = ""
    """tensorboard:FOLDER, wandb:PROJECT or mlflow:STORE: write every run's losses there, and a
    custom model's while it trains."""

    export: tuple[Literal["svg", "pdf", "png"], ...] = ()

    fail_unless: Literal["transfers", "holds"] | None = None
    """transfers: exit with 1 if the first scheme's best value drifts along an axis. holds: exit
    with 1 if the first gain over --over fades, crosses or is none. With 5 if that is undecided."""

    json: bool = False
    """Print the summary as JSON, and nothing else on stdout."""


PRESETS: dict[Preset, dict[str, Any]] = {
    # Width 64 to depth 64 takes twice the time and leaves Depth-muP undecided. This decides at 150
    # to 300 steps: a longer arm narrows the drift.
    "tiny": {"width": 32, "depths": (8, 16, 32, 64, 128), "seeds": 3, "steps": 200},
    "small": {"width": 64, "depths": (8, 16, 32, 64, 128), "seeds": 4, "steps": 300},
    "medium": {"width": 128, "depths": (8, 16, 32, 64, 128, 256), "steps": 300},
}
SCHEMES = ("depth-mup", "block-multiplier", "sp", "ode")


def run(options: Options) -> int:
    command = ["depthmup", *sys.argv[1:]]
    if (before := _again(options, command)) is not None:
        return _told(before, options)
    # Loaded here, so that --help is instant, and a finished command's report.
    from depthmup.cli.terminal import Display
    from depthmup.measure import transfer
    from depthmup.sweep import MAIN_STORE, Shard
    from depthmup.sweep.logs import log_named

    model, design, over = rivals(options)
    if options.fail_unless == "holds" and not options.over:
        raise ValueError(
            "Expected --over, the variant that a gain is over, for --fail-unless holds; got none."
        )
    target = parse_size(options.target, option="--target")
    prepare_folder(options.out)
    shard = options.execution.shard
    try:
        with Display(quiet=options.json) as display:
            report = transfer(
                model,
                design,
                out=options.out,
                on=options.execution,
                target=target or None,
                over=over,
                tolerance=options.tolerance,
                log=log_named(options.log) if options.log else None,
                progress=display.tell,
                forecast=None if options.json else display.say,
                command=command,
            )
    except KeyboardInterrupt as interrupt:
        name = Shard.parse(shard).store_name if shard else MAIN_STORE
        return stopped(interrupt, options.out / name)
    if shard:
        # A search goes in rounds, each of which follows from the merged records of those before.
        then = "writes the page" if design.auto is None else "says whether another round follows"
        runs = getattr(report, "records", ())
        print(
            f"Shard {shard} is done: {counted(len(runs), 'run')}. When all shards are "
            f"done, `depthmup merge {options.out}` {then}.",
            file=sys.stderr,
        )
        return 0
    return _told(report, options)


def _again(options: Options, command: list[str]) -> "Report | RecipeReport | None":
    """The report of this very command, if it ran before and needs nothing that is slow to load."""
    custom = options.custom
    if not (custom.model or custom.train) or options.execution.shard or options.over:
        return None
    from depthmup.cli.again import finished_before
    from depthmup.recipes import RecipeReport
    from depthmup.reports import write_result

    report = finished_before(options.out, command)
    if isinstance(report, RecipeReport):
        report.save(options.out)
    elif report is not None:
        write_result(report.studies, options.out, certificates=report.certificates, redraw=False)
    return report


def _told(report: "Report | RecipeReport", options: Options) -> int:
    """Show the report; the status that was asked for."""
    from depthmup.cli.report import deliver

    deliver(report, options.out, export=options.export, json=options.json, saved=True)
    if options.fail_unless is None:
        return HOLDS
    if options.fail_unless == "holds":
        from depthmup.report import of_one_value

        return _of_gain(of_one_value(report, "--fail-unless holds"))
    return {Verdict.TRANSFERS: HOLDS, Verdict.DRIFTS: FAILS}.get(report.verdict, UNDECIDED)


def _of_gain(report: "Report") -> int:
    """0 if the first gain holds or grows, 5 where that is undecided or there is no gain."""
    gains = [gain for study in report.studies for gain in study.gains]
    if not gains or gains[0].verdict is GainVerdict.UNDECIDED:
        return UNDECIDED
    return HOLDS if gains[0].verdict in (GainVerdict.HOLDS, GainVerdict.GROWS) else FAILS


OLD, NEW = "old", "new"
"""Names of two models of a person's own, the first of which the gain is over."""


def rivals(options: Options) -> tuple[Any, "Design", str]:
    """The model, or two where --over names another one; the design; and the baseline's name."""
    model, design = asked(options)
    custom = options.custom
    kind = next((kind for kind in ("model", "train", "command") if getattr(custom, kind)), "")
    if not kind or ("{" if kind == "command" else ":") not in options.over:
        return model, design, options.over
    given: dict[str, Any] = {kind: options.over}
    other, _ = asked(replace(options, custom=replace(custom, **given)))
    return {OLD: other, NEW: model}, design, OLD


def asked(options: Options) -> tuple["Model | BuiltIn", "Design"]:
    """The model and the design that the options describe."""
    for name in ("lrs", "values"):
        options = _in_plain_numbers(options, name)
    if options.custom.model or options.custom.train or options.custom.command:
        _refuse_others(options.networks, "the built-in networks", "leave out --model")
        return _custom(options), _design(options)
    _refuse_others(options.custom, "custom models (--model)", "add --model")
    return _built_in(options.networks), _design(options, PRESETS[options.networks.preset])


def _refuse_others(given: CustomModel | BuiltInNetworks, whose: str, advice: str) -> None:
    """Refuse options of the group that is not in use."""
    usual = type(given)()
    changed = [f.name for f in fields(usual) if getattr(given, f.name) != getattr(usual, f.name)]
    if changed:
        option = f"--{changed[0].replace('_', '-')}"
        raise ValueError(f"{option} is for {whose}; leave it out, or {advice}.")


def _custom(options: Options) -> "Model":
    from depthmup.model import Model, find_function
    from depthmup.model.time_limit import time_limit

    custom = options.custom
    given = [name for name in ("model", "train", "command") if getattr(custom, name)]
    if len(given) > 1:
        raise ValueError(
            "Expected one of --model, a factory, --train, a training function, and --command; got "
            f"{' and '.join(f'--{name}' for name in given)}."
        )
    if custom.command:
        return _commanded(options)
    with time_limit(options.execution.seconds, "Loading your file"):
        if custom.train:
            return Model(train=find_function(custom.train), version=custom.version)
        return Model.load(
            custom.model, batch=custom.batch, loss=custom.loss, version=custom.version
        )


def _commanded(options: Options) -> "Model":
    from depthmup.model import Model

    custom = options.custom
    if not custom.loss:
        raise ValueError(
            "Expected --loss with --command, the place of a run's loss, such as "
            "--loss '{out}/log.csv:val_loss'."
        )
    if options.steps is not None and "{steps}" not in custom.command:
        raise ValueError(
            "Expected {steps} in the command, by which your script is given --steps; add it, or "
            "leave out --steps."
        )
    return Model(command=custom.command, loss=custom.loss, version=custom.version)


def _built_in(networks: BuiltInNetworks) -> "BuiltIn":
    from depthmup.sweep import BuiltIn
    from depthmup.training import find_data

    asked = arguments(
        BuiltIn,
        networks,
        mean_subtraction=networks.mean_subtraction == "on",
        layer_norm=networks.layer_norm == "on",
        data=find_data(
            networks.data, label_noise=networks.label_noise, verify=not networks.unverified_data
        ),
    )
    return BuiltIn(**asked)


def _design(options: Options, preset: dict[str, Any] | None = None) -> "Design":
    from depthmup.sweep import Design
    from depthmup.sweep.together import names_of_tuned, separated

    names = names_of_tuned(options.tune)
    starts, of_size = separated(options.base, names)
    sizes = parse_size(of_size.split() if starts else options.base, option="--base")
    if preset is not None:
        sizes = {"width": preset["width"], "depth": 8, **sizes}
    elif not sizes:
        raise ValueError(
            "Expected --base, the size whose learning rate is known or cheap to tune, such as "
            "--base width=64 depth=4."
        )
    steps, seeds = options.steps, options.seeds
    if steps is None and preset is not None and not {"steps", "tokens"} & {*sizes, *starts}:
        steps = preset["steps"]
    # A preset's seeds bound those of a search; a grid has its own.
    if preset is not None and (seeds, options.lrs, options.values) == (None, None, None):
        seeds = preset.get("seeds")
    usual = SCHEMES if options.ablate is None else SCHEMES[:1]
    asked = arguments(
        Design,
        options,
        base={**sizes, **starts},
        tune=options.tune,
        arms=_arms(options, preset),
        sizes=[{**sizes, **parse_size([one], option="--corners")} for one in options.corners],
        schemes=options.schemes or (None if preset is None else usual),
        optimizers=options.optimizers or None,
        run=options.run_rules or None,
        ablate=options.ablate or (None if options.ablate is None else True),
        settings=_settings(options),
        seeds=seeds,
        steps=steps,
        **_tuned(options),
    )
    return Design(**asked)


def _in_plain_numbers(options: Options, name: str) -> Options:
    """The options with a grid's values as numbers, where they were given as their log2."""
    if (log2_values := getattr(options, f"log2_{name}")) is None:
        return options
    if getattr(options, name) is not None:
        raise ValueError(f"Expected --{name} or --log2-{name}, not both.")
    from depthmup.sweep.design import check_octaves

    (what, *_) = _hyperparameters(options)
    check_octaves(log2_values, what)
    plain: dict[str, Any] = {name: tuple(2.0**k for k in log2_values), f"log2_{name}": None}
    return replace(options, **plain)


def _hyperparameters(options: Options) -> tuple[Tuned, ...]:
    """What is tuned: one hyperparameter, or several together."""
    from depthmup.sweep.together import names_of_tuned, separated, together

    names = names_of_tuned(options.tune)
    return together(names, separated(options.base, names)[0])


def _tuned(options: Options) -> dict[str, Any]:
    """The values of what is tuned, and the learning rate that is held."""
    what, *beside = _hyperparameters(options)
    if what.is_learning_rate and not beside:
        for name in ("lr", "values"):
            if getattr(options, name) is not None:
                raise ValueError(
                    f"--{name} goes with --tune, which searches another value at "
                    "a fixed learning rate. Leave it out; --lrs names learning rates to try."
                )
        return {"lrs": _grid(options, "lrs", what)}
    if options.lrs is not None:
        raise ValueError(f"--lrs are learning rates, and {what.the} is tuned; give --values.")
    if beside and options.start is not None:
        raise ValueError(
            "Expected no --start while several values are tuned together; --base has the start of "
            f"each, such as --base ...,{what.key}={options.start:g}."
        )
    return {"lrs": options.lr, "values": _grid(options, "values", what)}


def _grid(options: Options, grid: str, what: Tuned) -> "tuple[float, ...] | Auto":
    """The values of an option, or a search for them."""
    from depthmup.sweep import Auto

    values: tuple[float, ...] | None = getattr(options, grid)
    if values is None:
        limits = parse_budget(options.budget) if options.budget else {}
        return Auto(start=options.start, precision=options.drift_precision, **limits)
    for name in ("start", "drift_precision", "budget"):
        if getattr(options, name):
            raise ValueError(
                f"--{name.replace('_', '-')} is for {what.plural} that are found as the sweep "
                f"goes; leave it out, or leave out --{grid}."
            )
    return values


UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


def parse_budget(text: str) -> dict[str, Any]:
    """A budget as ``Auto`` takes it."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip()
    try:
        if unit in ("", "runs"):
            return {"runs": int(number)}
        return {"seconds": float(number) * UNITS[unit]}
    except (ValueError, KeyError):
        raise ValueError(
            "Expected --budget to be a number of runs, such as 200, or a time, such as 90s, 30min "
            f"or 2h; got {text!r}."
        ) from None


def _arms(options: Options, preset: dict[str, Any] | None) -> dict[str, tuple[int, ...]]:
    """Values along every axis; the preset's depths where nothing is said."""
    arms = parse_arms(options.along)
    for axis, values in (("depth", options.depths), ("width", options.widths)):
        if values is None:
            continue
        if axis in arms:
            raise ValueError(f"Expected --{axis}s or --along {axis}=..., not both.")
        arms[axis] = values
    return arms or ({} if preset is None else {"depth": preset["depths"]})


def _settings(options: Options) -> dict[str, Any]:
    """Settings that differ from the defaults: only those are part of a run's description."""
    usual = Options()
    settings: dict[str, Any] = {
        name: getattr(group, name)
        for group, default, names in (
            (options, usual, ("schedule", "warmup")),
            (options.custom, usual.custom, ("clip", "own_init")),
        )
        for name in names
        if getattr(group, name) != getattr(default, name)
    }
    if options.beta1 is not None or options.beta2 is not None:
        settings["betas"] = [
            0.9 if options.beta1 is None else options.beta1,
            0.999 if options.beta2 is None else options.beta2,
        ]
    if options.epsilon is not None:
        settings["eps"] = options.epsilon
    if options.momentum is not None:
        settings["momentum"] = options.momentum
    return settings
