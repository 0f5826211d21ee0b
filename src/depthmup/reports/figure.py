"""Figures for a paper or a slide: the size of a column, type of 8 or 9 points, a caption beside."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from depthmup.records import Check, Study
from depthmup.records.certificate import Certificate
from depthmup.records.finding import in_percent
from depthmup.reports.certificate_charts import certificate_words, excess_loss_chart, law_chart
from depthmup.reports.check_page import growth_chart
from depthmup.reports.files import save_chart, write_text
from depthmup.reports.sentences import headline
from depthmup.reports.study_charts import STUDY_CHARTS
from depthmup.reports.study_rows import transfers
from depthmup.reports.theme import FIGURES, Style

Kind = Literal["paper", "slide"]
Name = str
"""A key of ``STUDY_CHARTS``."""


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
        save_chart(self.chart, path, points=True)
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
            learning rate; ``loss``, the best loss against size; ``drift``, the drifts;
            ``training``, the loss over training; ``search``, the drift's interval as the search
            went on.
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
    style = _style_of(kind)
    known = [key for key, chart in STUDY_CHARTS.items() if chart.charts(study)]
    if name not in known:
        raise ValueError(f"Expected a figure's name, one of {', '.join(known)}; got {name!r}.")
    verdicts = "; ".join(
        f"{t.title} {t.verdict.value}, {in_percent(t.drift)}" for t in transfers(study)
    )
    caption = (
        f"{STUDY_CHARTS[name].words(study)[1]} {headline(study)} Change per doubling of "
        f"{study.axis}: {verdicts}."
    )
    return Figure(chart=STUDY_CHARTS[name].figure(study, style), caption=caption)


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

    draw = law_chart if name == "law" else excess_loss_chart
    caption = f"{certificate_words(certificate)[name][1]} {certificate_headline(certificate)}"
    return Figure(chart=draw(certificate, style=_style_of(kind)), caption=caption)


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
    style, columns = _style_of(kind), 2 if kind == "paper" else 4
    assert isinstance(style.width, int)
    width = style.width // columns - 46  # less the labels of its axis
    panel = replace(style, width=width, height=round(width * 0.7))
    return Figure(
        chart=growth_chart(check, columns=columns, style=panel),
        caption=(
            "Every observable against width and depth, as a multiple of its value at the smallest "
            f"size, a line per seed; dashed, what {check.scheme} predicts. {check.headline}"
        ),
    )


def _style_of(kind: str) -> Style:
    if kind not in FIGURES:
        raise ValueError(f"Expected a kind of figure, paper or slide; got {kind!r}.")
    return FIGURES[kind]
