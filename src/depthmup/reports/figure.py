"""Figures for a paper or a slide: the size of a column, type of 8 or 9 points, a caption beside."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from depthmup.records import Check, Study
from depthmup.records.certificate import Certificate
from depthmup.records.packages import need
from depthmup.reports.by_size import loss_against_size, optimum_against_size
from depthmup.reports.certificate_charts import excess_loss_chart, law_chart
from depthmup.reports.charts import drift, rate_panel
from depthmup.reports.files import save_chart, write_text
from depthmup.reports.growth import growth_chart
from depthmup.reports.sentences import headline, number
from depthmup.reports.slices import drawn
from depthmup.reports.study_rows import base_size, transfers
from depthmup.reports.theme import configured

Kind = Literal["paper", "slide"]
Name = Literal["transfer", "rates", "loss", "drift"]

_INCH = 72
"""Units of a chart per inch: a PDF takes them for points, and so says the SVG."""


@dataclass(frozen=True, kw_only=True)
class _Size:
    inches: float
    points: float
    aspect: float = 0.68

    @property
    def width(self) -> int:
        return round(self.inches * _INCH)

    @property
    def type_size(self) -> float:
        return self.points


KINDS: Mapping[str, _Size] = {
    "paper": _Size(inches=3.25, points=8),
    "slide": _Size(inches=5.5, points=9, aspect=0.6),
}
"""A column of a two-column paper, and half of a slide or the width of a one-column paper."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart without a title, and the caption that says what it shows.

    Attributes:
        chart: an Altair chart.
        caption: what it shows, with the numbers.
    """

    chart: Any
    caption: str

    def save(self, path: str | Path) -> Path:
        """Write the figure, and its caption beside it as .txt.

        Args:
            path: a file that ends in .svg, .pdf, .png or .html; text stays text in the first two.

        Returns:
            The path of the caption.

        Raises:
            ValueError: another suffix.
        """
        path = Path(path)
        save_chart(self.chart, path)
        caption = path.with_suffix(".txt")
        write_text(caption, self.caption + "\n")
        return caption

    def _repr_html_(self) -> str:
        import html

        import vl_convert

        picture = vl_convert.vegalite_to_svg(self.chart.to_json())
        return f"<figure>{picture}<figcaption>{html.escape(self.caption)}</figcaption></figure>"


def study_figure(study: Study, name: Name = "transfer", *, kind: Kind = "paper") -> Figure:
    """A figure of a measurement.

    Args:
        study: to draw.
        name: ``transfer``, the best learning rate against size; ``rates``, the loss against
            learning rate; ``loss``, the best loss against size; ``drift``, the drifts.
        kind: ``paper``, 3.25 inches wide with type of 8 points, or ``slide``, 5.5 with 9.

    Returns:
        The figure; ``save`` writes it.

    Raises:
        ValueError: an unknown name or kind.

    Example:
        >>> from depthmup.reports import example_study
        >>> figure = study_figure(example_study(), "drift", kind="slide")
        >>> "Depth-muP transfers" in figure.caption
        True
    """
    size = _size_of(kind)
    if name not in _STUDY:
        raise ValueError(f"Expected a figure's name, one of {', '.join(_STUDY)}; got {name!r}.")
    draw, says = _STUDY[name]
    chart = _set(draw(study if name == "drift" else drawn(study), size), size)
    verdicts = "; ".join(
        f"{t.title} {t.verdict.value}, drift {number(t.drift.value)} "
        f"[{number(t.drift.low)}, {number(t.drift.high)}]"
        for t in transfers(study)
    )
    named = {
        "axis": study.axis,
        "base": base_size(study),
        "band": number(study.tolerance),
        "tuned": study.tuned.name,
    }
    caption = (
        f"{says.format(**named)} "
        f"{headline(study)} In octaves per doubling of {study.axis}: {verdicts}."
    )
    return Figure(chart=chart, caption=caption)


def certificate_figure(
    certificate: Certificate, name: Literal["law", "penalty"] = "law", *, kind: Kind = "paper"
) -> Figure:
    """A figure of a certificate: the law up to the target, or what a learning rate costs there.

    Args:
        certificate: to draw.
        name: which of the two.
        kind: paper or slide.

    Returns:
        The figure.

    Example:
        >>> from depthmup.reports import example_certificate
        >>> figure = certificate_figure(example_certificate(), "penalty")
        >>> figure.caption.startswith("The loss above the best at the target")
        True
    """
    from depthmup.reports.certificate import certificate_headline

    size = _size_of(kind)
    draw = law_chart if name == "law" else excess_loss_chart
    says = (
        f"The best {certificate.tuned.name} of each size with its 90% interval over seeds; dashed, "
        "the fitted law with its 90% band; diamond, the prediction."
        if name == "law"
        else "The loss above the best at the target, as predicted, with its 90% band."
    )
    chart = draw(certificate, width=size.width, height=round(size.width * size.aspect))
    return Figure(chart=_set(chart, size), caption=f"{says} {certificate_headline(certificate)}")


def check_figure(check: Check, *, kind: Kind = "paper") -> Figure:
    """The coordinate check as small multiples.

    Args:
        check: to draw.
        kind: paper (two panels beside each other) or slide (four).

    Returns:
        The figure.

    Example:
        >>> from depthmup.reports import example_check
        >>> figure = check_figure(example_check())
        >>> "Every observable against width and depth" in figure.caption
        True
    """
    from depthmup.reports.check_page import check_headline

    size, columns = _size_of(kind), 2 if kind == "paper" else 4
    panel = size.width // columns - 46  # less the labels of its axis
    chart = growth_chart(check, columns=columns, width=panel, height=round(panel * 0.7))
    return Figure(
        chart=_set(chart, size, fit=False),
        caption=(
            "Every observable against width and depth, as a multiple of its value at the smallest "
            f"size, a line per seed; dashed, what {check.scheme} predicts. {check_headline(check)}"
        ),
    )


def _size_of(kind: str) -> _Size:
    if kind not in KINDS:
        raise ValueError(f"Expected a kind of figure, paper or slide; got {kind!r}.")
    return KINDS[kind]


def _by_size(draw: Callable[..., Any]) -> Callable[[Study, _Size], Any]:
    return lambda study, size: draw(study, width=size.width, height=round(size.width * size.aspect))


def _rates(study: Study, size: _Size) -> Any:
    """One panel per scheme, two beside each other."""
    import altair as alt

    from depthmup.reports.chart_layers import window_param

    schemes = transfers(study)
    columns = 2 if len(schemes) > 1 else 1
    width = (size.width - 46) // columns - 32
    panels = [
        rate_panel(
            study, t.scheme, width=width, height=round(width * 0.85), legend=True
        ).properties(
            title=alt.TitleParams(text=t.title, fontSize=size.type_size, anchor="middle", offset=3)
        )
        for t in schemes
    ]
    chart = alt.concat(*panels, columns=columns, spacing=8)
    return configured(chart.add_params(window_param(study, None)))


_STUDY: Mapping[str, tuple[Callable[[Study, _Size], Any], str]] = {
    "transfer": (
        _by_size(optimum_against_size),
        "The best {tuned} at each {axis}, with its interval over seeds. Grey: up to {band} "
        "octaves per doubling away from {axis} {base}; triangles: on the edge of the grid; "
        "crosses: nothing trains.",
    ),
    "rates": (
        _rates,
        "Training loss against {tuned}; the band is the interval over seeds, diamonds are "
        "the optima, the dashed line stands at the optimum of {axis} {base}.",
    ),
    "loss": (
        _by_size(loss_against_size),
        "The loss at each {axis}'s own best {tuned}, with its interval over seeds.",
    ),
    "drift": (
        lambda study, size: drift(study, width=size.width),
        "Drift of the best {tuned} per doubling of {axis}, with 95% intervals; the grey "
        "band is plus or minus {band} octaves.",
    ),
}


class _Spec:
    """A finished Vega-Lite specification, as ``save_chart`` takes charts."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def to_dict(self, **_: Any) -> dict[str, Any]:
        return self._spec

    def to_json(self, **_: Any) -> str:
        import json

        return json.dumps(self._spec)

    def save(self, path: str, *, format: str, scale_factor: float = 1) -> None:
        """Write the picture, as ``alt.Chart.save`` does.

        Args:
            path: of the file, which is overwritten.
            format: svg or pdf, whose lengths are in points; all else is written as png.
            scale_factor: unused, though charts take it: a png is 4 times as large as the chart.
        """
        need("A picture", "vl_convert")
        import vl_convert

        text = self.to_json()
        if format == "svg":
            picture = re.sub(
                r'(<svg[^>]*?) width="([\d.]+)" height="([\d.]+)"',
                r'\1 width="\2pt" height="\3pt"',
                vl_convert.vegalite_to_svg(text),
                count=1,
            )
            Path(path).write_text(picture, encoding="utf-8")
        elif format == "pdf":
            Path(path).write_bytes(vl_convert.vegalite_to_pdf(text))
        else:
            Path(path).write_bytes(vl_convert.vegalite_to_png(text, scale=4))


def _set(chart: Any, size: _Size, *, fit: bool = True) -> _Spec:
    """The chart in this size of type, without its title, and with rates as powers of two."""
    spec = chart.to_dict(validate=False)
    spec.pop("title", None)
    if fit and not {"concat", "hconcat", "vconcat", "facet"} & spec.keys():
        spec["autosize"] = {"type": "fit", "contains": "padding"}
    config = spec.setdefault("config", {})
    # On the right, room for half of the last tick's label in fonts wider than the one measured.
    config["padding"] = {"left": 5, "top": 1, "right": 9, "bottom": 1}
    for part in ("axis", "legend", "title", "text"):
        config.setdefault(part, {})
    for key in ("labelFontSize", "titleFontSize"):
        config["axis"][key] = config["legend"][key] = size.type_size
    config["axis"]["titlePadding"] = 4
    config["legend"]["symbolSize"] = 40
    config["title"] |= {"fontSize": size.type_size, "offset": 3}
    config["text"]["fontSize"] = size.type_size
    _walk(spec, size)
    return _Spec(spec)


def _walk(node: Any, size: _Size) -> None:
    if isinstance(node, list):
        for inner in node:
            _walk(inner, size)
        return
    if not isinstance(node, dict):
        return
    if "fontSize" in node and "mark" not in node:
        node["fontSize"] = size.type_size
    if isinstance(title := node.get("title"), str) and _LOG2.search(title):
        node["title"] = _LOG2.sub("", title)
        node.setdefault("axis", {})
        if isinstance(node["axis"], dict):
            node["axis"]["labelExpr"] = _POWER_OF_TWO
            node["axis"].pop("format", None)
    if isinstance(mark := node.get("mark"), dict):
        for key, part in _MARKS.items():
            if isinstance(mark.get(key), int | float):
                mark[key] = mark[key] * part
    for key, inner in node.items():
        if isinstance(inner, str) and "width <" in inner:
            node[key] = _ROOM.sub(_more_room, _ANY_WIDTH.sub("width < 100", inner))
        elif key != "values":
            _walk(inner, size)


_MARKS = {"size": 0.3, "strokeWidth": 0.55}
"""Marks beside those of a page, whose charts are more than twice as wide."""

_ANY_WIDTH = re.compile(r"width < \d+")
"""Pages drop labels in narrow charts, where a legend stands above; a figure has no other."""


_LOG2 = re.compile(r"\blog2 ")
"""What the titles of axes of log2 values say, whose ticks become powers of two."""

_ROOM = re.compile(r"\? ([\d.e+]+) : ([\d.e+]+)")


def _more_room(ends: "re.Match[str]") -> str:
    """The end of a size axis, farther out: words beside lines are wider here against the chart."""
    plain, labelled = float(ends[1]), float(ends[2])
    return f"? {plain!r} : {labelled * (labelled / plain) ** 1.15!r}"


def _superscript() -> str:
    """A Vega expression for the tick's value in raised digits."""
    expression = "format(datum.value, '.3~f')"
    for digit, raised in zip("-\N{MINUS SIGN}0123456789.", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹˙", strict=True):
        expression = f"replace({expression}, /{'[.]' if digit == '.' else digit}/g, '{raised}')"
    return f"'2' + {expression}"


_POWER_OF_TWO = _superscript()
