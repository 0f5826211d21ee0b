"""A plan as people read it: a table, a sentence, a data frame."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from depthmup.planning.depth_ratios import StreamDepth
from depthmup.planning.prescription import Multiplier, Prescription
from depthmup.rules import Family, Power
from depthmup.tracing import pattern_of

if TYPE_CHECKING:
    import pandas as pd

    from depthmup.planning.plan import Plan

_WIDEST = 10_000
_WITH_EPSILON = (Family.ENTRYWISE, Family.RELATIVE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Parameters that share a row: the same pattern of names, the same factors."""

    pattern: str
    first: Prescription
    count: int
    own: str


def rows(plan: "Plan") -> list[Row]:
    """Prescriptions grouped over repeated layers."""
    grouped: dict[tuple[object, ...], list[Prescription]] = {}
    for p in plan.prescriptions:
        own = plan.own_laws[p.name].law if p.name in plan.own_laws else ""
        key = (
            pattern_of(p.name), p.shape, p.base_shape, p.role, p.ratios, p.folded, p.family, own,
        )  # fmt: skip
        grouped.setdefault(key, []).append(p)
    return [
        Row(
            pattern=pattern_of(members[0].name) if len(members) > 1 else members[0].name,
            first=members[0],
            count=len(members),
            own=str(key[-1]),
        )
        for key, members in grouped.items()
    ]


def table(plan: "Plan") -> Table:
    """The plan as a Rich table; each factor stands above its law."""
    found = rows(plan)
    measured = any(row.own for row in found)
    result = Table(
        title=f"{plan.title} for {plan.optimizer}",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
    )
    result.add_column("parameter", overflow="fold", min_width=12)
    result.add_column("shape <- base", overflow="fold")
    result.add_column("role", overflow="fold")
    if measured:
        result.add_column("own init", overflow="fold")
    for column in ("init", "multiplier", "lr", "epsilon", "decay"):
        result.add_column(column, overflow="fold", min_width=len(column))
    for row in found:
        p, laws = row.first, row.first.laws
        cells = [
            Text(row.pattern + (f"  x{row.count}" if row.count > 1 else "")),
            Text(f"{_sizes(p.shape)}\n<- {_sizes(p.base_shape)}"),
            Text(str(p.role)),
        ]
        if measured:
            cells.append(Text(row.own))
        cells += [
            _cell(p.init, laws.init, p.folded != 1, "A"),
            _forward(plan, p),
            _cell(p.lr, laws.lr, p.folded != 1, _letter(p, 1)),
            _cell(p.epsilon, laws.epsilon, p.folded != 1, f"A^-{p.family.response.epsilon_degree}")
            if p.family in _WITH_EPSILON
            else Text("-"),
            _cell(p.decay, laws.decay, p.folded != 1, _letter(p, -1)),
        ]
        result.add_row(*cells)
    return result


def page(plan: "Plan") -> Group:
    """The table, and below it its source, legend and notes."""
    return Group(table(plan), Text(_caption(plan)))


def text(plan: "Plan") -> str:
    """The table as plain text, as wide as it needs to be: no column is ever dropped."""
    console = Console(file=io.StringIO(), width=_WIDEST, color_system=None, highlight=False)
    console.width = Measurement.get(console, console.options, table(plan)).maximum
    console.print(page(plan))
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in output.splitlines())


def _sizes(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _cell(value: float, law: Power, folded: bool, letter: str) -> Text:
    words = [str(law)] if law != Power() else []
    if folded and letter:
        words.append(letter)
    cell = Text(_number(value))
    if words:
        cell.append("\n" + " ".join(words), style="dim")
    return cell


def _letter(p: Prescription, sign: int) -> str:
    """How a rate (sign 1) or a decay (-1) follows the multiplier that the parameter carries."""
    power = sign * (1 + p.family.degree - p.family.weight_degree)
    return "" if power == 0 else "A" if power == 1 else f"A^{power}"


def _carried_by(plan: "Plan", p: Prescription) -> list[Multiplier]:
    return [m for m in plan.multipliers if p.name in m.folds]


def _forward(plan: "Plan", p: Prescription) -> Text:
    """The multiplier that the parameter carries, or that hooks apply to its branch or output."""
    carried = _carried_by(plan, p)
    if carried:
        laws = " ".join(str(m.law) for m in carried)
        return Text(f"A = {_number(p.folded)}\n{laws}, folded")
    explicit = [
        m
        for m in plan.multipliers
        if m.hooks and (m.label == p.name or (p.role.in_branch and m.label in p.branches))
    ]
    if not explicit:
        return Text("")
    return Text("\n".join(f"{_number(m.value)} by hook\n{m.law}" for m in explicit))


def _caption(plan: "Plan") -> str:
    lines = [
        f"Source: {plan.source}. Factors multiply the base model's values; m_in, m_out: fan-in and "
        "fan-out as multiples of the base's, r: depth, A: multiplier folded into the parameter."
    ]
    lines += [_depth(stream) for stream in plan.depths]
    explicit = [m for m in plan.multipliers if m.hooks]
    if explicit:
        kinds = dict.fromkeys(str(m.where) for m in explicit)
        lines.append(f"{len(explicit)} multipliers stay explicit, as hooks: {', '.join(kinds)}.")
    lines += [f"Note: {note}" for note in plan.notes]
    return "\n".join(lines)


def _depth(stream: StreamDepth) -> str:
    counted = (
        f"Depth: {stream.additions} residual additions on the stream of {stream.label}, "
        f"{stream.base_additions} in the base"
    )
    declared = stream.ratio != stream.additions / stream.base_additions
    return f"{counted}; r = {stream.ratio:.4g}{', as declared' if declared else ''}."


def explain(plan: "Plan", name: str) -> str:
    """What is prescribed for a parameter, and why, in words."""
    p = plan[name]
    growth = (
        f"Its shape is {list(p.shape)} against {list(p.base_shape)} in the base ({p.base_name})."
    )
    place = (
        f"It lies in the residual branch {' inside '.join(reversed(p.branches))}, one of "
        f"{p.ratios.depth:g} times as many as in the base."
        if p.role.in_branch
        else "It lies in no residual branch, so nothing depends on depth."
    )
    lines = [
        f"{name}: {p.role}.",
        f"{growth} Fan-in grows {p.ratios.fan_in:g}-fold, fan-out {p.ratios.fan_out:g}-fold. "
        f"{place}",
    ]
    if p.role.tied:
        lines.append(f"It is one tied parameter: {', '.join(p.names)}.")
    if p.role.shared:
        lines.append("All branches share it, so its gradient is the sum of theirs.")
    for m in plan.multipliers:
        if p.name in m.folds or p.name == m.label or m.label in p.branches:
            how = (
                f"folded into {', '.join(m.folds)}"
                if m.folds
                else "applied by a hook on the "
                + ", ".join(
                    f"{'part of the ' if h.part else ''}{h.parameter or h.side} of {h.module}"
                    for h in m.hooks
                )
            )
            own = f", of which the model itself applies {m.own:.6g}" if m.own != 1 else ""
            base = f"{m.base:.6g} times " if m.base != 1 else ""
            lines.append(
                f"The {m.where} is multiplied by {m.value:.6g} ({base}law {m.law}{own}), {how}."
            )
    if p.folded != 1:
        lines.append(
            f"It carries a multiplier A = {p.folded:.6g}: init and step are scaled by A so that it "
            "follows the trajectory of A times the unfolded parameter."
        )
    own_law = plan.own_laws.get(p.name)
    measured = (
        f"; the model's own is {own_law.law}, corrected by {p.init / own_law.ratio:.6g}"
        if own_law
        else ""
    )
    lines += [
        f"Initial standard deviation: the base's times {p.init:.6g} (law {p.laws.init}{measured}).",
        f"Learning rate ({p.family}): times {p.lr:.6g} (law {p.laws.lr}).",
        f"Weight decay: times {p.decay:.6g} (law {p.laws.decay}).",
    ]
    if p.family in _WITH_EPSILON:
        lines.append(f"Epsilon: times {p.epsilon:.6g} (law {p.laws.epsilon}).")
    lines.append(f"Source: {plan.source}.")
    return "\n".join(lines)


def frame(plan: "Plan") -> "pd.DataFrame":
    """One row per parameter, with numbers and laws."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "parameter": p.name,
                "shape": p.shape,
                "base_shape": p.base_shape,
                "role": str(p.role),
                "branch": p.branches[-1] if p.branches else "",
                "m_in": p.ratios.fan_in,
                "m_out": p.ratios.fan_out,
                "r": p.ratios.depth,
                "family": str(p.family),
                "own_init": plan.own_laws[p.name].law if p.name in plan.own_laws else "",
                "folded": p.folded,
                "init": p.init,
                "lr": p.lr,
                "epsilon": p.epsilon,
                "decay": p.decay,
                "init_law": str(p.laws.init),
                "lr_law": str(p.laws.lr),
                "epsilon_law": str(p.laws.epsilon),
                "decay_law": str(p.laws.decay),
            }
            for p in plan.prescriptions
        ]
    )
