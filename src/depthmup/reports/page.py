"""One self-contained HTML page from a study: opens offline, asks no server for anything."""

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

from depthmup.records import Place, Study, Transfer, Verdict, Window
from depthmup.records.certificate import Certificate
from depthmup.reports.by_size import loss_against_size, optimum_against_size
from depthmup.reports.certificate import certificate_section
from depthmup.reports.chart_layers import window_param
from depthmup.reports.charts import drift, rate_panel
from depthmup.reports.html import facts, library, page_spec, render, script_json
from depthmup.reports.search_story import narrowing, story_of
from depthmup.reports.sentences import (
    best_rate,
    headline,
    interval,
    is_larger_better,
    number,
    regret_sentence,
    significant,
)
from depthmup.reports.study_rows import base_size, question, size_of, transfers
from depthmup.reports.style import (
    VERDICT_COLOURS,
    configured,
    scheme_colours,
    size_colours,
)

_PLACES = {
    Place.INTERIOR: "inside the grid",
    Place.LOW_EDGE: "low edge: extend the grid downwards",
    Place.HIGH_EDGE: "high edge: extend the grid upwards",
    Place.FAILED: "nothing trains",
}


def page(study: Study, *more: Study, certificates: Sequence[Certificate] = ()) -> str:
    """Studies as one HTML page: verdicts, charts with a slider over training, tables, set-up.

    Several studies are those of one measurement along several axes, over the same windows of
    training. Scripts are inlined and a content security policy forbids all connections, so that the
    page can be mailed, archived and opened from a disk. Text from the study is escaped.

    Args:
        study: whose verdicts stand first.
        more: further axes or variants.
        certificates: of the target, shown before the verdicts.

    Returns:
        HTML that opens offline.

    Example:
        >>> from depthmup.reports import example_study
        >>> page(example_study()).startswith("<!doctype html>")
        True
    """
    from markupsafe import Markup

    studies = (study, *more)
    parts = [_part(s, prefix=f"{s.axis}-" if i else "") for i, s in enumerate(studies)]
    specs = [
        {part["prefix"] + name: spec for name, spec in study_specs(s).items()}
        for part, s in zip(parts, studies, strict=True)
    ]
    sections = [
        certificate_section(certificate, identity=f"certificate-{i}" if i else "certificate")
        for i, certificate in enumerate(certificates)
    ]
    specs += [section.charts for section in sections]
    of_windows = zip(*map(_verdicts, studies), strict=True)
    return render(
        "page.html.j2",
        title=study.title,
        headline=" ".join(headline(s) for s in studies),
        question=max(map(question, studies), key=len),
        parts=parts,
        certificates=[Markup(section.html) for section in sections],
        windows=[_steps(window) for window in study.windows],
        elsewhere=_elsewhere(studies),
        config=facts(study.config, leave={"command", "question", "tuned"}),
        environment=facts(study.environment),
        command=_command(study),
        charts=script_json({name: spec for charts in specs for name, spec in charts.items()}),
        labels=script_json([_steps(window) for window in study.windows]),
        verdicts=script_json([[word for part in row for word in part] for row in of_windows]),
        library=library(),
    )


def _elsewhere(studies: Iterable[Study]) -> str:
    """Which steps those of a window are in runs of another length than the base's."""
    lengths = {
        curve.size.get("steps", curve.size.get("tokens", 1) / curve.size.get("batch", 1))
        for study in studies
        for window in study.windows
        for curve in window.curves
    }
    return " of the base’s run, and the same part of every other" if len(lengths) > 1 else ""


def _part(study: Study, *, prefix: str) -> dict[str, Any]:
    """What the page shows of one study; ``prefix`` keeps its elements apart from another's."""
    schemes = scheme_colours(study)
    return {
        "prefix": prefix,
        "tuned": study.tuned,
        "axis": study.axis,
        "is_larger_better": is_larger_better(study.axis),
        "base": base_size(study),
        "tolerance": number(study.tolerance),
        "story": story_of(study),
        "sizes": size_colours(study),
        "schemes": [
            {
                "title": t.title,
                "colour": schemes[t.scheme],
                "exponents": f"α = {t.alpha}, γ = {t.gamma}",
                "verdict": t.verdict.value,
                "symbol": _symbol(t),
                "tone": VERDICT_COLOURS[t.verdict.value],
                "regret": regret_sentence(study, t),
                "why": t.why,
                "panel": f"{prefix}panel-{i}",
                "optima": [
                    {
                        "size": size_of(study, o),
                        "rate": best_rate(o),
                        "interval": interval(o.log2_lr),
                        "loss": significant(o.loss.value),
                        "loss_interval": interval(o.loss, 3),
                        "place": _PLACES[o.place],
                        "usual": o.place is Place.INTERIOR,
                    }
                    for o in t.optima
                ],
            }
            for i, t in enumerate(transfers(study))
        ],
    }


def study_legends(study: Study) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Labels and colours of the sizes, and of the schemes.

    Args:
        study: to be shown.

    Returns:
        Labels with their colours.

    Example:
        >>> from depthmup.reports import example_study
        >>> sizes, schemes = study_legends(example_study())
        >>> [label for label, colour in sizes], [label for label, colour in schemes]
        (['8', '16', '32', '64'], ['Depth-muP', 'SP'])
    """
    sizes = tuple((str(size), colour) for size, colour in size_colours(study).items())
    colours = scheme_colours(study)
    return sizes, tuple((t.title, colours[t.scheme]) for t in transfers(study))


def study_specs(study: Study) -> dict[str, Any]:
    """The Vega-Lite specification of every chart on the page, by its element's id.

    Args:
        study: to be shown.

    Returns:
        Specifications by element.

    Example:
        >>> from depthmup.reports import example_study
        >>> sorted(study_specs(example_study()))
        ['drift', 'loss', 'narrowing', 'optimum', 'panel-0', 'panel-1']
    """
    wide: dict[str, Any] = {"width": "container", "window": None}
    charts = {
        f"panel-{i}": configured(
            rate_panel(study, t.scheme, width="container").add_params(window_param(study, None))
        )
        for i, t in enumerate(transfers(study))
    }
    charts["drift"] = drift(study, **wide)
    charts["optimum"] = optimum_against_size(study, **wide)
    charts["loss"] = loss_against_size(study, **wide)
    if study.search is not None:
        charts["narrowing"] = narrowing(study, **wide)
    return {name: page_spec(chart) for name, chart in charts.items()}


def _verdicts(study: Study) -> list[list[dict[str, str]]]:
    """Per window and scheme, in the headline's order: the verdict of that window, and its colour.

    Empty where a window does not hold the scheme.
    """
    rows = []
    for window in study.windows:
        verdicts = {t.scheme: t.verdict.value for t in window.transfers}
        words = [verdicts.get(t.scheme, "") for t in transfers(study)]
        rows.append([{"text": word, "tone": VERDICT_COLOURS.get(word, "")} for word in words])
    return rows


def _symbol(transfer: Transfer) -> str:
    if transfer.verdict is Verdict.DRIFTS:
        return "↘" if transfer.drift.value < 0 else "↗"
    return "✓" if transfer.verdict is Verdict.TRANSFERS else "?"


def _steps(window: Window) -> str:
    return f"{window.start}–{window.stop}"


def _command(study: Study) -> str:
    """The command that repeats the measurement, if the configuration holds one."""
    command = study.config.get("command", "")
    if isinstance(command, Sequence) and not isinstance(command, str):
        return shlex.join(str(part) for part in command)
    return str(command or "")
