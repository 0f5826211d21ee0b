"""``depthmup predict``: how SGD's best learning rate will move with size, without training."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from depthmup.cli.folders import page_file
from depthmup.cli.output import answer, say_page
from depthmup.cli.sizes import parse_along
from depthmup.cli.spelling import arguments
from depthmup.records import Prediction, sentence
from depthmup.records.finding import change, change_span
from depthmup.records.sizes import parse_size
from depthmup.records.text import aligned


@dataclass(frozen=True, kw_only=True)
class Options:
    """Predict how SGD's best learning rate moves with depth and width; it trains no network.

    Builds your model at every size under the scheme's plan and computes the sharpness of its loss
    at initialization, in about ten passes per size. The best learning rate is predicted to be
    inversely proportional to the sharpness. This rule is for SGD only; docs/studies/predict.md has
    its errors.

        depthmup predict --model mine.py:make --base 64x4 --depths 8 16
    """

    API: ClassVar = ("diagnostics.prediction:predict",)

    model: str
    base: tuple[str, ...]
    widths: tuple[int, ...] = ()
    depths: tuple[int, ...] = ()

    along: tuple[str, ...] = ()
    """Further values along any axis of the base, as NAME=VALUE,VALUE, such as experts=16,32."""

    scheme: str | None = None
    optimizer: str = "sgd"
    seeds: int = 4
    batches: int = 1
    tolerance: float = 0.15
    own_init: Literal["measured", "fixed", "fan_in"] = "measured"
    batch: str = "batch"
    loss: str = ""

    out: Path | None = None
    """Folder for prediction.html; or a file: a page, .html, or a chart, .svg, .pdf or .png."""

    json: bool = False


def run(options: Options) -> int:
    """Predict, print the result, and draw it if asked."""
    import torch

    from depthmup.cli.terminal import Done
    from depthmup.diagnostics import predict
    from depthmup.model import Model
    from depthmup.reports import prediction_chart, prediction_page, save_chart, write_text
    from depthmup.reports.files import CHART_FORMATS

    file = None if options.out is None else page_file(options.out, "prediction", CHART_FORMATS)
    along = parse_along(options.along, predict)
    torch.set_num_threads(1)  # networks this small lose by more
    asked = arguments(
        predict,
        options,
        model=Model.load(options.model, batch=options.batch, loss=options.loss),
        base=parse_size(options.base, option="--base"),
        plan_options={} if options.own_init == "measured" else {"own_init": options.own_init},
        progress=Done(),
        **along,
    )
    prediction = predict(**asked)
    # Printed first: it stays where the disk is full.
    answer(prediction, _text(prediction), json=options.json)
    if file is None:
        return 0
    if file.suffix.lower() == ".html":
        write_text(file, prediction_page(prediction, command=["depthmup", *sys.argv[1:]]))
        say_page(file)
    else:
        save_chart(prediction_chart(prediction), file)
        say_page(file, "chart")
    return 0


def _text(prediction: Prediction) -> str:
    what = f"{prediction.title}, {prediction.scheme}, {prediction.optimizer}"
    lines = [f"{what}: predicted from {prediction.seeds} seeds"]
    for along in prediction.axes:
        rows = [(along.axis, "sharpness", "change", "95% over seeds")]
        for at in along.sizes:
            moved, span = change(at.octaves.value), change_span(at.octaves.low, at.octaves.high)
            rows.append((str(at.size[along.axis]), f"{at.curvature.value:.3g}", moved, span))
        lines += ["", *aligned(rows, left=(3,)), sentence(prediction, along.axis)]
    for note in prediction.notes:
        lines += ["", note]
    return "\n".join([*lines, "", _OF_THE_RULE])


_OF_THE_RULE = """\
The intervals do not include the error of the rule itself: for SGD on small batches the direction
is usually right and the size often too large (docs/studies/predict.md). Wider networks predict \
better."""
