"""A plan on a screen that is narrower than its table: the same facts, in blocks of lines."""

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from depthmup.planning.display.table import Row
    from depthmup.planning.plan import Plan

_INDENT = "    "
_NARROWEST = 40
"""Columns below which lines are not folded further: the longest law would come apart."""


def text(plan: "Plan", width: int) -> str:
    """The plan in lines of at most ``width`` columns."""
    from depthmup.planning.display.table import caption, rows

    width = max(width, _NARROWEST)
    shown = rows(plan)
    column = (width - len(_INDENT)) // 4
    names = ("init", "lr", "epsilon", "decay")
    lines = [f"{plan.title} for {plan.optimizer}", ""]
    lines += [_INDENT + "".join(name.ljust(column) for name in names).rstrip(), "-" * width]
    for row in shown:
        lines += _block(plan, row, width, column)
    lines.append("")
    for line in caption(plan).splitlines():
        lines += textwrap.wrap(line, width)
    return "\n".join(lines)


def _block(plan: "Plan", row: "Row", width: int, column: int) -> list[str]:
    from depthmup.planning.display.table import factors, forward, number, sizes_text

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
    cells = []
    for factor in factors(p).values():
        value, law = factor or (None, "")
        shown = "-" if value is None else number(value)
        cells.append([shown, *textwrap.wrap(law, column - 1)])
    for i in range(max(map(len, cells))):
        parts = [cell[i] if i < len(cell) else "" for cell in cells]
        lines.append((_INDENT + "".join(part.ljust(column) for part in parts)).rstrip())
    return lines
