"""``depthmup limit --optimum``: how SGD's best learning rate moves with depth, in milliseconds."""

import json as json_format
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthmup.cli.output import print_json

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
    measured_in: Path | None,
    config: Mapping[str, Any],
    files: "tuple[Path, Path] | None",
    as_json: bool,
) -> int:
    """Predict, print the result, and write it, with its ``config``, to files if asked."""
    from depthmup import limits, reports
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
    measured = None
    if measured_in is not None:
        measured = read_measured(measured_in, scheme, base_depth)
    result = {
        **asdict(prediction),
        "factors": prediction.factors,
        "octaves": prediction.octaves,
        "drift": prediction.drift,
        "config": dict(config),
    }
    if measured is not None:
        octaves = [asdict(at) for at in measured.octaves]
        result["measured"] = {"depths": measured.sizes, "octaves": octaves}
    text = json_format.dumps(reports.strict(result), indent=2, allow_nan=False)
    if files is not None:
        page, data = files
        reports.write_text(data, text + "\n")
        reports.write_text(page, _page(prediction, activation, measured, data=data.name))
    if as_json:
        print_json(reports.strict(result))
        return 0
    _print(prediction, measured)
    if files is not None:
        print(f"The page: {files[0].resolve()}")
    return 0


def _inputs() -> Any:
    """Digits, scaled for a U with entries N(0, 1) and to the same length."""
    import numpy as np

    from depthmup.training.built_in.dataset import digits

    inputs = digits().inputs[:EXAMPLES].double().numpy()
    return inputs / np.linalg.norm(inputs, axis=1, keepdims=True)


def _page(prediction: Any, activation: str, measured: "Movement | None", *, data: str) -> str:
    from depthmup import reports
    from depthmup.records import Estimate

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
    from depthmup.records.finding import change

    if not math.isfinite(prediction.drift):
        return f"{prediction.scheme}: networks explode at initialization."
    return (
        f"{prediction.scheme}: SGD's best learning rate is predicted to move by "
        f"{change(prediction.drift)} per doubling of depth."
    )


def _print(prediction: Any, measured: "Movement | None") -> None:
    from depthmup.records.finding import change
    from depthmup.records.text import aligned

    beside = {} if measured is None else dict(zip(measured.sizes, measured.octaves, strict=True))
    rows = [("depth", "factor", "change", *(["measured"] if beside else []))]
    for depth, factor, octaves in zip(
        prediction.depths, prediction.factors, prediction.octaves, strict=True
    ):
        of_depth = change(beside[depth].value) if depth in beside else ""
        rows.append((str(depth), f"{factor:.3g}", change(octaves), *([of_depth] if beside else [])))
    print(*aligned(rows, left=()), sep="\n")
    if math.isfinite(prediction.drift):
        print(f"\n{_headline(prediction)} {_RULE}")


def read_measured(file: Path, scheme: str, base_depth: int) -> "Movement":
    """The measured optima of a scheme in a summary.json, in octaves from the base.

    The file may be anything: what does not fit is refused with its location.
    """
    from depthmup.records import Estimate
    from depthmup.records.codec import decode, parse
    from depthmup.records.printable import printable
    from depthmup.reports import Movement
    from depthmup.rules import scheme as scheme_named

    file = file / "summary.json" if file.is_dir() else file
    shown, of_name = printable(str(file)), scheme_named(scheme)
    if not file.is_file():
        raise ValueError(
            "Expected --measured to be the summary.json of `depthmup transfer`; "
            f"{shown} is no file."
        )
    try:
        summary = parse(file.read_text(encoding="utf-8"), shown)
    except UnicodeDecodeError:
        raise ValueError(f"Expected {shown} to be UTF-8 text; it is not.") from None
    schemes = summary.get("schemes") if isinstance(summary, dict) else None
    rows = decode(tuple[Mapping[str, Any], ...], schemes, f"the schemes of {shown}")
    names, known = [], dict[int, Estimate]()
    for number, row in enumerate(rows):
        where = f"schemes[{number}]"
        if row.get("axis", "depth") != "depth":
            continue
        names.append(decode(str, row.get("scheme"), f"{where}.scheme"))
        if (row.get("alpha"), row.get("gamma")) != (str(of_name.alpha), str(of_name.gamma)):
            continue
        listed = tuple[Mapping[str, Any], ...]
        for i, at in enumerate(decode(listed, row.get("optimum"), f"{where}.optimum")):
            depth = decode(int, at.get("depth"), f"{where}.optimum[{i}].depth")
            best, low, high = (
                decode(float, at.get(name), f"{where}.optimum[{i}].{name}")
                for name in ("log2_lr", "low", "high")
            )
            # An interval that is not known bounds nothing.
            low = -math.inf if math.isnan(low) else low
            high = math.inf if math.isnan(high) else high
            known[depth] = Estimate(value=best, low=low, high=high)
        break
    else:
        there = ", ".join(names) or "none"
        raise ValueError(
            f"{shown} has no measurement of {of_name.title} along depth; it has {there}."
        )
    known = {depth: at for depth, at in sorted(known.items()) if at.known}
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
