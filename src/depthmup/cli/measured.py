"""Measured optima along depth, from the summary.json of ``depthmup transfer``.

The file may be anything: what does not fit is refused with its location.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from depthmup.reports import Movement


@dataclass(frozen=True, kw_only=True)
class _Optimum:
    """The best rate at a depth; NaN for what the file has as null."""

    depth: int
    log2_lr: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A scheme's optima along depth."""

    scheme: str
    alpha: str
    gamma: str
    optimum: tuple[_Optimum, ...]


def read_measured(file: Path, scheme: str, base_depth: int) -> "Movement":
    """The measured optima of a scheme in a summary.json, in octaves from the base."""
    from depthmup.records import Estimate
    from depthmup.records.printable import printable
    from depthmup.reports import Movement
    from depthmup.rules import scheme as scheme_named

    file = file / "summary.json" if file.is_dir() else file
    of_name = scheme_named(scheme)
    rows = _rows(file)
    exponents = (str(of_name.alpha), str(of_name.gamma))
    of_scheme = [row for row in rows if (row.alpha, row.gamma) == exponents]
    shown = printable(str(file))
    if not of_scheme:
        there = ", ".join(row.scheme for row in rows) or "none"
        raise ValueError(
            f"{shown} has no measurement of {of_name.title} along depth; it has {there}."
        )
    known = {at.depth: at for at in of_scheme[0].optimum if math.isfinite(at.log2_lr)}
    if base_depth not in known:
        raise ValueError(
            f"{shown} has no optimum at the base's depth {base_depth}; it has {sorted(known)}. "
            "Pass one of these as --base-depth."
        )
    zero = known[base_depth].log2_lr
    return Movement(
        label=f"points: measured, {shown}",
        sizes=tuple(sorted(known)),
        octaves=tuple(
            Estimate(
                value=at.log2_lr - zero,
                # An interval that is not known bounds nothing.
                low=-math.inf if math.isnan(at.low) else at.low - zero,
                high=math.inf if math.isnan(at.high) else at.high - zero,
            )
            for _, at in sorted(known.items())
        ),
    )


def _rows(file: Path) -> list[_Row]:
    from depthmup.records.codec import decode, parse
    from depthmup.records.printable import printable

    what = f"--measured to be the summary.json of `depthmup transfer`; {printable(str(file))}"
    if not file.is_file():
        raise ValueError(f"Expected {what} is no file.")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"Expected {what} is no UTF-8 text.") from None
    summary = parse(text, printable(str(file)))
    schemes = summary.get("schemes") if isinstance(summary, dict) else None
    if not isinstance(schemes, list):
        raise ValueError(f"Expected {what} has no list of schemes.")
    rows = []
    for number, raw in enumerate(schemes):
        if isinstance(raw, dict) and raw.get("axis") != "depth":
            continue
        row = _needed(_Row, raw)
        if isinstance(row, dict) and isinstance(row.get("optimum"), list):
            row["optimum"] = [_needed(_Optimum, at) for at in row["optimum"]]
        rows.append(decode(_Row, row, f"schemes[{number}]"))
    return rows


def _needed(kind: type, raw: Any) -> Any:
    """The fields of a record that are read here; a summary has more."""
    if not isinstance(raw, Mapping):
        return raw
    return {f.name: raw[f.name] for f in fields(kind) if f.name in raw}
