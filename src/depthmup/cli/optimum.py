"""``depthmup limit --optimum``: how SGD's best learning rate moves with depth, in milliseconds."""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthmup.cli.output import answer, write_files
from depthmup.records import Estimate
from depthmup.records.finding import change
from depthmup.records.printable import printable
from depthmup.records.text import aligned
from depthmup.rules import scheme as scheme_named

if TYPE_CHECKING:
    from depthmup.reports import Movement

EXAMPLES = 128
"""Examples in the kernel. With more, its largest eigenvalue moves with depth in the same way: to a
hundredth of an octave for relu, and to a tenth for abs, whose kernel is nearly diagonal."""


def run(
    scheme: str,
    *,
    activation: str,
    block_depth: int,
    depths: tuple[int, ...],
    base_depth: int,
    multiplier: float,
    measured: Path | None,
    config: Mapping[str, Any],
    files: "tuple[Path, Path] | None",
    json: bool,
) -> int:
    """Predict, print the result, and write it, with its ``config``, to files if asked."""
    from depthmup import limits
    from depthmup.cli.terminal import Done

    prediction = limits.optimal_rate(
        _inputs(),
        depths=depths,
        base_depth=base_depth,
        scheme=scheme,
        block=limits.Block(activation=activation, block_depth=block_depth),
        multiplier=multiplier,
        progress=Done("layers"),
    )
    beside = None if measured is None else read_measured(measured, scheme, base_depth)
    result = {
        **asdict(prediction),
        "factors": prediction.factors,
        "octaves": prediction.octaves,
        "drift": prediction.drift,
        "config": dict(config),
    }
    if beside is not None:
        octaves = [asdict(at) for at in beside.octaves]
        result["measured"] = {"depths": beside.sizes, "octaves": octaves}
    answer(result, _text(prediction, beside), json=json)
    write_files(files, result, lambda data: _page(prediction, activation, beside, data=data))
    return 0


def _inputs() -> Any:
    """Digits, scaled for a U with entries N(0, 1) and to the same length."""
    import numpy as np

    from depthmup.training.built_in.dataset import digits

    inputs = digits().inputs[:EXAMPLES].double().numpy()
    return inputs / np.linalg.norm(inputs, axis=1, keepdims=True)


def _page(prediction: Any, activation: str, measured: "Movement | None", *, data: str) -> str:
    from depthmup import reports

    predicted = reports.Movement(
        label="line: predicted by the kernel of the infinitely wide network at initialization",
        sizes=prediction.depths,
        octaves=tuple(Estimate(value=v, low=v, high=v) for v in prediction.octaves),
    )
    title = f"SGD's best learning rate, {prediction.scheme}, {activation}"
    return reports.optimum_page(
        {"depth": (predicted, measured)},
        title=title,
        headline=_headline(prediction),
        notes=[_RULE],
        command=["depthmup", *sys.argv[1:]],
        data=data,
    )


_RULE = "This is a rule, not a theorem: docs/studies/predict.md has its errors."


def _headline(prediction: Any) -> str:
    if not math.isfinite(prediction.drift):
        return f"{prediction.scheme}: networks explode at initialization."
    return (
        f"{prediction.scheme}: SGD's best learning rate is predicted to move by "
        f"{change(prediction.drift)} per doubling of depth."
    )


def _text(prediction: Any, measured: "Movement | None") -> str:
    beside = {} if measured is None else dict(zip(measured.sizes, measured.octaves, strict=True))
    rows = [("depth", "factor", "change", *(["measured"] if beside else []))]
    for depth, factor, octaves in zip(
        prediction.depths, prediction.factors, prediction.octaves, strict=True
    ):
        of_depth = change(beside[depth].value) if depth in beside else ""
        rows.append((str(depth), f"{factor:.3g}", change(octaves), *([of_depth] if beside else [])))
    lines = aligned(rows, left=())
    if math.isfinite(prediction.drift):
        lines += ["", f"{_headline(prediction)} {_RULE}"]
    return "\n".join(lines)


def read_measured(folder: Path, scheme: str, base_depth: int) -> "Movement":
    """The measured optima of a scheme along depth in a measurement, in octaves from the base."""
    from depthmup.report import load, of_one_value
    from depthmup.reports import Movement

    shown, of_name = printable(str(folder)), scheme_named(scheme)
    # Named as the file that a person looks at, too.
    report = load(folder.parent if folder.suffix == ".json" else folder)
    studies = of_one_value(report, "optima beside theory").studies
    along = [t for study in studies if study.axis == "depth" for t in study.headline.transfers]
    exponents = str(of_name.alpha), str(of_name.gamma)
    found = next((t for t in along if (t.alpha, t.gamma) == exponents), None)
    if found is None:
        there = printable(", ".join(t.scheme for t in along)) or "none"
        raise ValueError(
            f"{shown} has no measurement of {of_name.title} along depth; it has {there}."
        )
    known = {int(o.depth): o.log2_lr for o in found.optima if o.log2_lr.known}
    if base_depth not in known:
        raise ValueError(
            f"{shown} has no optimum at the base's depth {base_depth}; it has {list(known)}. "
            "Pass one of these as --base-depth."
        )
    zero = known[base_depth].value
    return Movement(
        label=f"points: measured, {shown}",
        sizes=tuple(known),
        octaves=tuple(
            Estimate(value=at.value - zero, low=at.low - zero, high=at.high - zero)
            for at in known.values()
        ),
    )
