"""``depthmup limit --optimum``: how SGD's best learning rate moves with depth, in milliseconds."""

import json as json_format
import math
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from depthmup.cli.measured import read_measured
from depthmup.cli.output import print_json

if TYPE_CHECKING:
    from depthmup.cli.limit import Options
    from depthmup.reports import Movement

# Longer than this, a person wonders whether anything happens.
SECONDS_OF_SILENCE = 2.0
EXAMPLES = 128
"""Examples in the kernel. With more, its largest eigenvalue moves with depth in the same way: to a
hundredth of an octave for relu, and to a tenth for abs, whose kernel is nearly diagonal."""


def run(options: "Options", files: "tuple[Path, Path] | None" = None) -> int:
    """Predict, print the result, and write it to files if asked."""
    from depthmup import limits, reports

    scheme = options.scheme or f"{options.alpha},{options.gamma}"
    prediction = limits.optimal_rate(
        _inputs(),
        depths=options.depths,
        base_depth=options.base_depth,
        scheme=scheme,
        block=limits.Block(activation=options.activation, block_depth=options.block_depth),
        multiplier=options.multiplier,
        progress=_Layers(),
    )
    measured = None
    if options.measured is not None:
        measured = read_measured(options.measured, scheme, options.base_depth)
    result = {
        **asdict(prediction),
        "factors": prediction.factors,
        "octaves": prediction.octaves,
        "drift": prediction.drift,
        "config": asdict(options),
    }
    if measured is not None:
        octaves = [asdict(at) for at in measured.octaves]
        result["measured"] = {"depths": measured.sizes, "octaves": octaves}
    text = json_format.dumps(reports.strict(result), indent=2, allow_nan=False)
    if files is not None:
        page, data = files
        reports.write_text(data, text + "\n")
        reports.write_text(page, _page(prediction, options, measured, data=data.name))
    if options.json:
        print_json(reports.strict(result))
        return 0
    _print(prediction, measured)
    if files is not None:
        print(f"The page: {files[0].resolve()}")
    return 0


class _Layers:
    """Progress in layers on stderr, every two seconds."""

    def __init__(self) -> None:
        self._started = self._spoke = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._spoke > SECONDS_OF_SILENCE:
            self._spoke = now
            print(
                f"{done} of {total} layers, {now - self._started:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def _inputs() -> Any:
    """Digits, scaled for a U with entries N(0, 1) and to the same length."""
    import numpy as np

    from depthmup.training.built_in.digits import digits

    inputs = digits().inputs[:EXAMPLES].double().numpy()
    return inputs / np.linalg.norm(inputs, axis=1, keepdims=True)


def _page(prediction: Any, options: "Options", measured: "Movement | None", *, data: str) -> str:
    from depthmup import reports
    from depthmup.records import Estimate

    predicted = reports.Movement(
        label="line: predicted by the kernel of the infinitely wide network at initialization",
        sizes=prediction.depths,
        octaves=tuple(Estimate(value=v, low=v, high=v) for v in prediction.octaves),
    )
    title = f"SGD's best learning rate, {prediction.scheme}, {options.activation}"
    return reports.optimum_page(
        {"depth": (predicted, measured)},
        title=title,
        headline=_headline(prediction),
        notes=[_RULE],
        command=["depthmup", *sys.argv[1:]],
        data=data,
    )


_RULE = "This is a rule, not a theorem: docs/predict.md has its errors."


def _headline(prediction: Any) -> str:
    from depthmup.reports.sentences import number

    if not math.isfinite(prediction.drift):
        return f"{prediction.scheme}: networks explode at initialization."
    return (
        f"{prediction.scheme}: SGD's best learning rate is predicted to move by "
        f"{number(prediction.drift)} octaves per doubling of depth."
    )


def _print(prediction: Any, measured: "Movement | None") -> None:
    from depthmup.reports.sentences import number

    beside = {} if measured is None else dict(zip(measured.sizes, measured.octaves, strict=True))
    header = f"{'depth':>6}  {'factor':>8}  {'octaves':>8}"
    print(header + (f"  {'measured':>9}" if beside else ""))
    for depth, factor, octaves in zip(
        prediction.depths, prediction.factors, prediction.octaves, strict=True
    ):
        line = f"{depth:>6}  {factor:>8.3g}  {number(octaves):>8}"
        if depth in beside:
            line += f"  {number(beside[depth].value):>9}"
        print(line)
    if math.isfinite(prediction.drift):
        print(f"\n{_headline(prediction)} {_RULE}")
