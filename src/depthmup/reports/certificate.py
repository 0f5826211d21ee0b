"""A certificate in words, as text and as a section of a page."""

import math
import textwrap as wrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from depthmup.records import Certificate, Study, Verdict
from depthmup.records.finding import change, in_percent, percent, ranged, rate
from depthmup.records.sizes import size_number, size_text
from depthmup.records.text import aligned, begin, counted
from depthmup.reports.certificate_charts import CERTIFICATE_CHARTS
from depthmup.reports.figure import Figure, Kind, figure_style, picture
from depthmup.reports.page import Card, Section, Table
from depthmup.reports.picture import Picture
from depthmup.reports.sentences import PLACES, UNKNOWN, advice, holding, number, rate_interval

MOST_ROWS = 12
"""Sizes that text lists one by one."""

_MOVES = {
    Verdict.TRANSFERS: "The base's {} transfers to the target",
    Verdict.DRIFTS: "The best {} drifts from base to target",
    Verdict.UNDECIDED: "Whether the best {} drifts from base to target is undecided",
}


def certificate_headline(certificate: Certificate) -> str:
    """What to do, in one sentence, or that nothing is certified."""
    where = size_text(certificate.target)
    if not certificate.issued:
        return f"No {certificate.tuned.name} is certified for {where}."
    best, name = certificate.value, certificate.tuned.name
    sign = " " if name[0].isalpha() else " = "
    return f"Train at {where} with {name}{sign}{ranged(best)}."


def at_target(studies: Sequence[Study], certificates: Sequence[Certificate]) -> list[str]:
    """The value to train the target with, in a sentence."""
    found = certified(studies, certificates)
    return [] if found is None else [certificate_headline(found)]


def to_use(studies: Sequence[Study], certificates: Sequence[Certificate]) -> list[str]:
    """What to do, at the target and at the sizes measured; empty where nothing transfers."""
    return [*at_target(studies, certificates), *filter(None, [advice(*studies)])]


def certified(studies: Sequence[Study], certificates: Sequence[Certificate]) -> Certificate | None:
    """What is issued for the target: the only one, or that of the scheme that transfers."""
    best = holding(*studies)
    for c in certificates:
        if c.issued and (len(certificates) == 1 or (best is not None and c.scheme == best.scheme)):
            return c
    return None


def certificate_sentences(certificate: Certificate) -> tuple[str, ...]:
    """The sentences below the headline: excess losses, drift, and what was measured."""
    measured = _measured_on(certificate)
    if not certificate.issued:
        return (*(f"{r.reason} {r.advice}" for r in certificate.refusals), measured)
    regret = certificate.base_regret
    keeping = f"Keeping {certificate.tuned.the} of {size_text(certificate.base)} costs"
    if math.isinf(regret.high):
        base_cost = f"{keeping} {percent(regret.value)}, and may diverge."
        if math.isinf(regret.value):
            base_cost = f"{keeping} more than can be said: training is likely to diverge."
    elif regret.low > 10:
        base_cost = f"{keeping} more than ten times the loss."
    else:
        base_cost = f"{keeping} {ranged(regret, percent)}."
    bound = (
        f"Expected excess loss over retuning there: at most {percent(certificate.penalty.high)}."
        if math.isfinite(certificate.penalty.high)
        else (
            "The excess loss over retuning there has no bound: "
            f"{certificate.tuned.bound} may diverge."
        )
    )
    slopes = ", ".join(f"{in_percent(s.estimate)} {s.along}" for s in certificate.slopes)
    moves = _MOVES[certificate.verdict].format(certificate.tuned.name)
    return (
        *_untried(certificate),
        bound,
        base_cost,
        f"{moves}: {slopes}{_up_to(certificate)}.",
        measured,
    )


def _untried(certificate: Certificate) -> list[str]:
    """A sentence where the value at the target lies beyond all that were tried anywhere."""
    low, high = min(certificate.log2_lrs), max(certificate.log2_lrs)
    if low <= certificate.predicted.value <= high:
        return []
    tuned, unit = certificate.tuned, certificate.rate_unit
    least, most = (rate(unit * 2.0**k) for k in (low, high))
    return [f"No run used such {tuned.plural}: only {least} to {most} were tried. Train near it."]


def _up_to(certificate: Certificate) -> str:
    """The largest size measured; beyond it the law is an extrapolation."""
    largest = ", ".join(
        f"{axis} {size_number(max(o.size[axis] for o in certificate.optima))}"
        for s in certificate.slopes
        for axis in (s.axis, *s.together)
    )
    beyond = " and ".join(
        f"{n:.2g} doubling{'' if f'{n:.2g}' == '1' else 's'} of {axis}"
        for axis, n in certificate.doublings_beyond.items()
        if n > 0
    )
    return f", measured up to {largest}" + (f"; the target is {beyond} beyond" if beyond else "")


def certificate_text(certificate: Certificate, *, width: int = 100) -> str:
    """The certificate as aligned lines for the terminal.

    Args:
        certificate: to be shown.
        width: of the lines below the first.

    Returns:
        Lines of text.

    Example:
        >>> from depthmup.reports import example_certificate
        >>> print(certificate_text(example_certificate()).splitlines()[0])
        Depth-muP: Train at width 64 and depth 256 with learning rate 2.0e-3 (1.6e-3 to 2.7e-3).
    """
    name = certificate.title or certificate.scheme
    lines = [(f"{name}: " if name else "") + certificate_headline(certificate), ""]
    lines += [
        wrap.fill(s, width=width, initial_indent="  ", subsequent_indent="    ")
        for s in certificate_sentences(certificate)
    ]
    axes = tuple(certificate.base)
    table = [(*axes, f"best {certificate.tuned.word}", "interval", "curvature", "loss", "place")]
    table += [
        (*r["size"], r["rate"], r["interval"], r["curvature"], r["loss"], r["place"].value)
        for r in _rows(certificate)[:MOST_ROWS]
    ]
    lines += ["", *aligned(table, left=())]
    if more := len(certificate.optima[MOST_ROWS:]):
        lines += [f"Not shown: {counted(more, 'size')}. --json has all."]
    if facts := metric_facts(certificate):
        lines += ["", *(f"{label}: {text}" for label, text in facts)]
    return "\n".join(lines)


def certificate_section(certificate: Certificate, *, name: str = "certificate") -> Section:
    """The certificate as a section of a page.

    Args:
        certificate: to be shown.
        name: that its charts' elements begin with, which tells sections of one page apart.

    Returns:
        What to do, the charts, the optima, and how well the values transfer.

    Example:
        >>> from depthmup.reports import example_certificate
        >>> [plot.name for plot in certificate_section(example_certificate()).plots]
        ['certificate-law', 'certificate-penalty']
    """
    issued, tuned = certificate.issued, certificate.tuned
    sentences = certificate_sentences(certificate)
    shown = ["law"] * bool(certificate.law) + ["penalty"] * bool(certificate.penalty_curve)
    plots = [
        replace(CERTIFICATE_CHARTS[each](certificate), name=f"{name}-{each}") for each in shown
    ]
    axes = tuple(certificate.base)
    numbers = [
        {
            **{begin(axis): at for axis, at in zip(axes, row["size"], strict=True)},
            f"Best {tuned.name}": row["rate"],
            "Interval": row["interval"],
            "Curvature": row["curvature"],
            "Loss there": row["loss"],
            "Place": PLACES[row["place"]],
        }
        for row in _rows(certificate)
    ]
    card = Card(
        title=certificate_headline(certificate),
        verdict="certified" if issued else "refused",
        aside=certificate.title or certificate.scheme,
        text=sentences if issued else sentences[:-1],
        notes=() if issued else sentences[-1:],
    )
    return Section(
        cards=[card],
        plots=plots,
        layout="pair",
        # Of a refusal the optima stand in the numbers of the verdicts, axis by axis.
        table=Table(
            rows=numbers,
            name="Optima by size",
            numbers={*(numbers[0] if numbers else {})} - {"Place"},
            faint=("Interval",),
        )
        if issued
        else None,
        facts={"": dict(metric_facts(certificate))},
    )


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
    plot = CERTIFICATE_CHARTS[name](certificate)
    caption = f"{plot.lead} {certificate_headline(certificate)}"
    return Figure(chart=picture([plot], figure_style(kind)), caption=caption)


def certificate_picture(certificate: Certificate) -> Picture:
    """The law up to the target as a picture of its own, with its words."""
    plot = CERTIFICATE_CHARTS["law"](certificate)
    return picture([plot], title=plot.title, lead=wrap.wrap(plot.lead, 100))


def metric_facts(certificate: Certificate) -> list[tuple[str, str]]:
    """The three transfer metrics as pairs of a label and a text; none if nothing was certified."""
    metrics = certificate.metrics
    if metrics is None:
        return []
    robust = "; ".join(f"{in_percent(s.estimate)} {s.along}" for s in metrics.robustness)
    return [
        ("Fit: usual distance from a straight law", change(metrics.fit_error).replace("+", "±")),
        ("Robustness: change of the curvature", robust),
        (
            f"Excess loss at the horizon: the base's {certificate.tuned.word} at 16 times the "
            "largest size",
            ranged(metrics.horizon_penalty, percent),
        ),
    ]


def _rows(certificate: Certificate) -> list[dict[str, Any]]:
    return [
        {
            "size": [size_number(o.size[axis]) for axis in certificate.base],
            "rate": (
                rate(certificate.rate_unit * 2.0**o.log2_lr.value) if o.log2_lr.known else UNKNOWN
            ),
            "interval": rate_interval(o.log2_lr, certificate.rate_unit),
            "curvature": number(o.curvature.value, 3),
            "loss": number(o.loss.value, 3),
            "place": o.place,
        }
        for o in certificate.optima
    ]


def _measured_on(certificate: Certificate) -> str:
    axes, optima = list(certificate.base), certificate.optima
    each = ", ".join("x".join(size_number(o.size[a]) for a in axes) for o in optima)
    sizes = f"{each} ({' x '.join(axes)})"
    if len(optima) > MOST_ROWS:
        ends = {
            a: [size_number(end(o.size[a] for o in optima)) for end in (min, max)] for a in axes
        }
        spans = ", ".join(f"{axis} {low} to {high}" for axis, (low, high) in ends.items())
        sizes = f"{len(optima)} sizes ({spans})"
    scheme = f" under {certificate.scheme}" if certificate.scheme else ""
    values = "Rates" if certificate.tuned.is_learning_rate else "Values"
    runs = f"{len(certificate.log2_lrs)} {certificate.tuned.plural}, "
    runs += counted(certificate.seeds, "seed")
    if made := certificate.config.get("random_runs"):
        runs = f"{made} runs in cells around these sizes"
    return (
        f"Measured{scheme} on {sizes}, {runs}, by {certificate.measure}. "
        + (f"{values} are those of the base, which the scheme scales; i" if scheme else "I")
        + "ntervals hold 90%."
    )
