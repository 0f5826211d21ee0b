"""A plan as people read it: a table, on narrow screens blocks of lines, HTML, a data frame."""

import io
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from depthmup.planning.content import PlanContent
from depthmup.planning.depth import StreamDepth
from depthmup.planning.experts import MixtureGrowth
from depthmup.planning.prescribe import Prescription
from depthmup.planning.settings import WITH_EPSILON
from depthmup.planning.sites import Multiplier
from depthmup.rules import Power
from depthmup.tracing import pattern_of

if TYPE_CHECKING:
    import pandas as pd

_WIDEST = 10_000
_NARROWEST = 40
"""Columns below which lines are not folded further: the longest law would come apart."""
_INDENT = "    "
_FACTORS = ("init", "lr", "epsilon", "decay")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Parameters that share a row: the same pattern of names, the same factors."""

    pattern: str
    first: Prescription
    count: int
    own: str


def rows(plan: PlanContent) -> list[Row]:
    """Prescriptions grouped over repeated layers."""
    grouped: dict[tuple[object, ...], list[Prescription]] = {}
    hooked = _hooked(plan)
    for p in plan.prescriptions:
        own = plan.own_laws[p.name].law if p.name in plan.own_laws else ""
        key = (
            pattern_of(p.name), p.shape, p.base_shape, p.role, p.ratios, p.folded, p.family,
            p.converted, tuple((m.value, m.law) for m in hooked.get(p.name, ())), own,
        )  # fmt: skip
        grouped.setdefault(key, []).append(p)
    patterns = [_pattern([p.name for p in members]) for members in grouped.values()]
    several = {pattern for pattern, times in Counter(patterns).items() if times > 1}
    return [
        Row(
            pattern=_pattern([p.name for p in members], listed=pattern in several),
            first=members[0],
            count=len(members),
            own=str(key[-1]),
        )
        for pattern, (key, members) in zip(patterns, grouped.items(), strict=True)
    ]


_LISTED = 4
"""Numbers of layers from which on a pattern leaves some out."""


def _pattern(names: Sequence[str], *, listed: bool = False) -> str:
    """What names have in common: ``*``, or the numbers ``listed``, where they differ.

    >>> _pattern(["h.0.mlp.2.bias", "h.1.mlp.2.bias"])
    'h.*.mlp.2.bias'
    >>> _pattern(["h.1.bias", "h.3.bias"], listed=True)
    'h.{1,3}.bias'
    """
    parts = []
    for segments in zip(*(name.split(".") for name in names), strict=True):
        numbers = [*dict.fromkeys(segments)]
        if len(numbers) > 1 and listed:
            shown = numbers if len(numbers) <= _LISTED else [*numbers[:2], "...", numbers[-1]]
            parts.append(f"{{{','.join(shown)}}}")
        else:
            parts.append("*" if len(numbers) > 1 else numbers[0])
    return ".".join(parts)


def table(plan: PlanContent) -> Table:
    """The plan as a Rich table; each factor stands above its law."""
    grouped = rows(plan)
    measured = any(row.own for row in grouped)
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
    for row in grouped:
        p = row.first
        cells = [
            Text(row.pattern + (f"  x{row.count}" if row.count > 1 else "")),
            Text(f"{sizes_text(p.shape)}\n<- {sizes_text(p.base_shape)}"),
            Text(str(p.role)),
        ]
        if measured:
            cells.append(Text(row.own))
        init, *rest = (_cell(*each) for each in factor_texts(p).values())
        cells += [init, Text("\n".join(forward(plan, p))), *rest]
        result.add_row(*cells)
    return result


def page(plan: PlanContent, width: int = _WIDEST) -> Group | Text:
    """The plan for a Rich console: the table where it fits the width, else blocks of lines."""
    if natural_width(plan) > width:
        return Text(narrow_text(plan, width))
    return Group(table(plan), Text(caption(plan)))


def natural_width(plan: PlanContent) -> int:
    """The columns that the table takes if nothing in it is folded."""
    console = _console()
    return Measurement.get(console, console.options, table(plan)).maximum


def _console() -> Console:
    """One that writes plain text to memory."""
    return Console(
        file=io.StringIO(),
        width=_WIDEST,
        color_system=None,
        highlight=False,
        force_jupyter=False,
    )


def text(plan: PlanContent, width: int | None = None) -> str:
    """The plan as plain text, in which no column is ever dropped."""
    if width is not None and natural_width(plan) > width:
        return narrow_text(plan, width)
    console = _console()
    console.width = natural_width(plan)
    console.print(page(plan))
    output = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in output.splitlines())


def narrow_text(plan: PlanContent, width: int) -> str:
    """The plan in lines of at most ``width`` columns: each factor stands above its law."""
    width = max(width, _NARROWEST)
    column = (width - len(_INDENT)) // len(_FACTORS)
    lines = [f"{plan.title} for {plan.optimizer}", ""]
    lines += [_INDENT + "".join(name.ljust(column) for name in _FACTORS).rstrip(), "-" * width]
    for row in rows(plan):
        lines += _block(plan, row, width, column)
    lines.append("")
    for line in caption(plan).splitlines():
        lines += textwrap.wrap(line, width)
    return "\n".join(lines)


def _block(plan: PlanContent, row: Row, width: int, column: int) -> list[str]:
    p = row.first
    repeats = f"  x{row.count}" if row.count > 1 else ""
    facts = [str(p.role), f"{sizes_text(p.shape)} <- {sizes_text(p.base_shape)}"]
    if row.own:
        facts.append(f"own init {row.own}")
    multiplier = forward(plan, p)
    facts += [f"{a} ({b})" for a, b in zip(multiplier[::2], multiplier[1::2], strict=True)]
    lines = textwrap.wrap(row.pattern + repeats, width) + textwrap.wrap(
        "; ".join(facts), width, initial_indent="  ", subsequent_indent="  "
    )
    cells = [[value, *textwrap.wrap(law, column - 1)] for value, law in factor_texts(p).values()]
    for i in range(max(map(len, cells))):
        parts = [cell[i] if i < len(cell) else "" for cell in cells]
        lines.append((_INDENT + "".join(part.ljust(column) for part in parts)).rstrip())
    return lines


def html(plan: PlanContent) -> str:
    """One row for each kind of parameter, the factors above their laws, the source below.

    Without scripts or styles of its own; every name is escaped.
    """
    names = ("parameter", "shape, base's", "role", "own init", "multiplier", *_FACTORS)
    head = "".join(f"<th scope='col'>{name}</th>" for name in names)
    body = []
    for row in rows(plan):
        p = row.first
        cells = [
            f"<code>{escape(row.pattern)}</code>{f' x{row.count}' if row.count > 1 else ''}",
            f"{sizes_text(p.shape)}<br>{sizes_text(p.base_shape)}",
            escape(str(p.role)),
            escape(row.own),
            "<br>".join(escape(line) for line in forward(plan, p)),
        ]
        cells += [
            f"{value}<br><small>{escape(law)}</small>" for value, law in factor_texts(p).values()
        ]
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    notes = "".join(f"<p>{escape(line)}</p>" for line in caption(plan).splitlines())
    title = f"{escape(plan.title)} for {escape(plan.optimizer)}"
    return (
        f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{notes}"
    )


def sizes_text(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def number(value: float) -> str:
    return f"{value:.4g}"


def _cell(value: str, law: str) -> Text:
    cell = Text(value)
    if law:
        cell.append("\n" + law, style="dim")
    return cell


def law_text(law: Power, *beside: str) -> str:
    """A law and what stands beside it, such as a power of the folded multiplier."""
    return " ".join(filter(None, ("" if law == Power() else str(law), *beside)))


def factors(p: Prescription) -> dict[str, tuple[float, str] | None]:
    """Each factor of a parameter and the law that it follows; None where it has none."""
    folded = p.folded != 1
    epsilon = f"A^-{p.family.response.epsilon_degree}" if folded else ""
    return {
        "init": (p.init, law_text(p.laws.init, "A" if folded else "")),
        "lr": (p.lr, law_text(p.laws.lr, letter(p, 1), "c" if p.converted != 1 else "")),
        "epsilon": (p.epsilon, law_text(p.laws.epsilon, epsilon))
        if p.family in WITH_EPSILON
        else None,
        "decay": (
            p.decay,
            law_text(p.laws.decay, letter(p, -1), "c^-1" if p.converted != 1 else ""),
        ),
    }


def factor_texts(p: Prescription) -> dict[str, tuple[str, str]]:
    """Each factor as it is printed, and its law; "-" where a parameter has none."""
    return {
        name: ("-", "") if factor is None else (number(factor[0]), factor[1])
        for name, factor in factors(p).items()
    }


def letter(p: Prescription, sign: int) -> str:
    """How a rate (sign 1) or a decay (-1) follows the multiplier that the parameter carries."""
    power = sign * (1 + p.family.degree - p.family.weight_degree) * (p.folded != 1)
    return "" if power == 0 else "A" if power == 1 else f"A^{power}"


def forward(plan: PlanContent, p: Prescription) -> list[str]:
    """The multiplier that the parameter carries, or that hooks apply where it ends.

    A hook acts on many parameters and stands beside one: the last matrix of its module.
    """
    if carried := [m for m in plan.multipliers if p.name in m.folds]:
        laws = " ".join(str(m.law) for m in carried)
        return [f"A = {number(p.folded)}", f"{laws}, folded"]
    explicit = _hooked(plan).get(p.name, ())
    return [line for m in explicit for line in (f"{number(m.value)} by hook", str(m.law))]


def _hooked(plan: PlanContent) -> dict[str, list[Multiplier]]:
    """Multipliers that stay hooks, by the parameter beside which each is listed."""
    under: dict[str, list[Prescription]] = {}
    for p in plan.prescriptions:
        for label in {p.name, *(p.branches if p.role.in_branch else ())}:
            under.setdefault(label, []).append(p)
    found: dict[str, list[Multiplier]] = {}
    for m in plan.multipliers:
        if m.hooks and m.label in under:
            inside = [p for p in under[m.label] if p.name.startswith(f"{m.hooks[0].module}.")]
            those = inside or under[m.label]
            matrices = [p for p in those if len(p.shape) > 1] or those
            found.setdefault(matrices[-1].name, []).append(m)
    return found


def caption(plan: PlanContent) -> str:
    lines = [
        f"Source: {plan.source}. Factors multiply the base model's values; m_in, m_out: fan-in and "
        "fan-out as multiples of the base's, r: depth, A: multiplier folded into the parameter."
    ]
    if plan.tuned_with:
        lines.append(
            f"Learning rates are multiples of {plan.tuned_with}'s at the base; c: factor by which "
            f"a step of {plan.optimizer} has the same size there."
        )
    lines += [_depth(stream) for stream in plan.depths]
    lines += [_experts(mixture) for mixture in plan.mixtures]
    explicit = [m for m in plan.multipliers if m.hooks]
    if explicit:
        kinds = dict.fromkeys(str(m.where) for m in explicit)
        lines.append(f"{len(explicit)} multipliers stay explicit, as hooks: {', '.join(kinds)}.")
    lines += [f"Note: {note}" for note in plan.notes]
    lines += [plan.proof] * bool(plan.proof)
    return "\n".join(lines)


def _depth(stream: StreamDepth) -> str:
    additions = "addition" if stream.additions == 1 else "additions"
    of = f" of {stream.label}" if stream.label.strip("*.") else ""  # of an unnamed Sequential
    counted = (
        f"Depth: {stream.additions} residual {additions} on the stream{of}, "
        f"{stream.base_additions} in the base"
    )
    declared = stream.ratio != stream.additions / stream.base_additions
    return f"{counted}; r = {stream.ratio:.4g}{', as declared' if declared else ''}."


def _experts(mixture: MixtureGrowth) -> str:
    shared = "; beside them a shared one, which is a dense layer" if mixture.shared else ""
    mean = "" if mixture.averaged else "; their weights do not sum to one, so the sum takes 1/K"
    return f"Experts of {mixture.router}: {mixture}{shared}{mean}."


def frame(plan: PlanContent) -> "pd.DataFrame":
    """One row per parameter, with numbers and laws."""
    try:
        import pandas as pd
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "A table needs pandas, which is not installed here: pip install 'depthmup[tables]'."
        ) from None

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
