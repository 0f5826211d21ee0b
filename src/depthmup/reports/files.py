"""Writing files whole: a reader never sees half of one."""

import os
from pathlib import Path
from typing import Any

CHART_FORMATS = (".html", ".svg", ".pdf", ".png")


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def save_chart(chart: Any, path: Path) -> None:
    """Write one chart; the file's suffix says how. HTML is self-contained and opens offline;
    titles and data are escaped.

    Raises:
        ValueError: another suffix.
    """
    kind = path.suffix.lower()
    if kind not in CHART_FORMATS:
        raise ValueError(
            f"Expected a chart file to end in {', '.join(CHART_FORMATS)}; got {path.name!r}."
        )
    if kind == ".html":
        from depthmup.reports.html import library, render, script_json

        spec = script_json(chart.to_dict())
        page = render("chart.html.j2", title=path.stem, spec=spec, library=library())
        write_text(path, page)
    else:
        chart.save(str(path), format=kind[1:], scale_factor=2 if kind == ".png" else 1)
