"""``depthmup predict``: where will my best learning rate move, before any training?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from depthmup.cli.output import print_json


@dataclass(frozen=True, kw_only=True)
class Options:
    """Predict how SGD's best learning rate moves with depth and width; nothing is trained.

    Builds your model at every size under the scheme's plan and finds the sharpness of its loss at
    initialization in some ten passes each. The best learning rate is predicted to be inversely
    proportional to it: a rule with errors that docs/predict.md tells, for SGD alone.
    """

    model: str
    """module:factory, or file.py:factory, with factory(width, depth). The same module gives
    batch(generator) -> (inputs, targets) and, where cross-entropy is not meant,
    loss(outputs, targets)."""

    base: str
    """Size whose learning rate is known or cheap to tune, as WIDTHxDEPTH, such as 64x4."""

    widths: tuple[int, ...] = ()
    """Further widths, at the base's depth."""

    depths: tuple[int, ...] = ()
    """Further depths, at the base's width."""

    scheme: str = "depth-mup"
    """A scheme's name, or alpha,gamma such as 1/2,1/2."""

    optimizer: str = "sgd"
    """sgd or raw: others are refused, as the rule does not hold for them."""

    seeds: int = 4
    """Networks of each size, for the intervals."""

    batches: int = 1
    """Batches of data that each network's loss is averaged over."""

    tolerance: float = 0.15
    """Octaves per doubling within which an optimum counts as staying."""

    own_init: Literal["measured", "fixed", "fan_in"] = "measured"
    """How the model's own initialization depends on its size, where that is too rough to measure:
    fixed (the same at every size) or fan_in (as torch's layers)."""

    batch: str = "batch"
    """Function that gives a batch, of the same module or as module:function."""

    loss: str = ""
    """Function that gives the loss; by default the module's loss, or cross-entropy."""

    out: Path | None = None
    """Write a chart here: .html, .svg, .pdf or .png."""

    json: bool = False
    """Print JSON, and nothing else on stdout."""


def run(options: Options) -> int:
    """Print, and draw where asked, what is predicted."""
    import torch

    from depthmup.cli.terminal import NetworksDone
    from depthmup.diagnostics import Subject, predict
    from depthmup.model import Model, resolved, size
    from depthmup.records.codec import strict
    from depthmup.reports import prediction_chart, save_chart
    from depthmup.reports.files import CHART_FORMATS

    if options.out is not None:
        if not options.out.parent.is_dir():
            raise ValueError(
                f"Expected --out in a folder that exists; there is no {options.out.parent}."
            )
        if options.out.suffix not in CHART_FORMATS:
            raise ValueError(
                f"Expected --out to end in {', '.join(CHART_FORMATS)}; got {options.out.name!r}."
            )
    torch.set_num_threads(1)  # networks this small lose by more
    given = resolved(Model.load(options.model, batch=options.batch, loss=options.loss))
    prediction = predict(
        Subject(make=given.make, batch=given.batch, loss=given.loss, title=options.model),
        base=size(options.base),
        widths=options.widths,
        depths=options.depths,
        scheme=options.scheme,
        optimizer=options.optimizer,
        seeds=options.seeds,
        batches=options.batches,
        tolerance=options.tolerance,
        plan_options={} if options.own_init == "measured" else {"own_init": options.own_init},
        progress=NetworksDone(),
    )
    if options.out is not None:
        save_chart(prediction_chart(prediction), options.out)
    if options.json:
        print_json(strict(prediction))
        return 0
    _print(prediction)
    if options.out is not None:
        print(f"\nThe chart: {options.out.resolve()}")
    return 0


def _print(prediction: Any) -> None:
    from depthmup.records import sentence
    from depthmup.reports.sentences import interval, number

    what = f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}"
    print(f"{what}: predicted from {prediction.seeds} seeds")
    for along in prediction.axes:
        print(f"\n{along.axis:>8}  {'sharpness':>9}  {'octaves':>8}  95% over seeds")
        for at in along.sizes:
            print(
                f"{along.size(at):>8}  {at.curvature.value:>9.3g}  {number(at.octaves.value):>8}  "
                f"{interval(at.octaves)}"
            )
        print(sentence(prediction, along.axis))
    for note in prediction.notes:
        print(f"\n{note}")
    print(
        "\nThe intervals hold nothing of the rule's own error: in SGD on small batches the "
        "direction is\nusually right and the size often too large (docs/predict.md). Wider "
        "networks predict better."
    )
