"""A plan as an HTML table, for notebooks and pages."""

from html import escape
from typing import TYPE_CHECKING

from depthmup.planning.display.table import caption, factors, forward, number, rows, sizes_text

if TYPE_CHECKING:
    from depthmup.planning.plan import Plan


def table(plan: "Plan") -> str:
    """One row for each kind of parameter, the factors above their laws, the source below."""
    names = ("parameter", "shape, base's", "role", "own init", "multiplier")
    factor_names = ("init", "lr", "epsilon", "decay")
    head = "".join(f"<th scope='col'>{name}</th>" for name in (*names, *factor_names))
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
        for factor in factors(p).values():
            value, law = factor or (None, "")
            shown = "-" if value is None else number(value)
            cells.append(f"{shown}<br><small>{escape(law)}</small>")
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    notes = "".join(f"<p>{escape(line)}</p>" for line in caption(plan).splitlines())
    title = f"{escape(plan.title)} for {escape(plan.optimizer)}"
    return (
        f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{notes}"
    )
