"""A fit of a table as text for the terminal: what was asked, what is said, what was left out."""

import math
import textwrap
from collections.abc import Sequence

from depthmup.records import Estimate, Fit, GroupFit, Place, Verdict
from depthmup.records.printable import printable
from depthmup.reports.certificate import certificate_headline, certificate_sentences, rate
from depthmup.reports.sentences import interval, number, significant

WIDTH = 100
SHOWN = 24
"""Optima that are printed; the page and the frames have all."""


def fit_headline(fit: Fit) -> str:
    """The result in one sentence for each group.

    Groups that could not be fitted are counted.
    """
    done = [group for group in fit.groups if not group.problem]
    sentences = [group_headline(fit, group) for group in done]
    if failed := len(fit.groups) - len(done):
        sentences.append(f"{failed} group{'s' if failed > 1 else ''} could not be fitted.")
    return " ".join(sentences)


def group_headline(fit: Fit, group: GroupFit) -> str:
    """Which way one group's best value goes along each axis."""
    moves = []
    for measured in group.exponents:
        if measured.verdict is Verdict.DRIFTS:
            moves.append(f"moves as {measured.axis}^{number(measured.exponent.value)}")
        elif measured.verdict is Verdict.TRANSFERS:
            moves.append(f"stays along {measured.axis}")
        else:
            moves.append(f"is undecided along {measured.axis}")
    beyond = f", beyond {fit.scheme}" if fit.scheme else ""
    name = f"{group.name}: the" if group.name else "The"
    return f"{name} best {fit.tuned} {', '.join(moves) or 'cannot be compared'}{beyond}."


def fit_text(fit: Fit) -> str:
    """Everything, group by group."""
    lines = [fit_headline(fit), ""]
    lines.append(
        f"{printable(fit.title)}: {fit.rows:,} rows, {fit.excluded:,} left out; intervals hold 95%."
    )
    for group in fit.groups:
        lines += ["", *_group(fit, group)]
    lines += ["", *(_wrapped(note) for note in fit.notes)] if fit.notes else []
    return printable_lines("\n".join(lines))


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


def _group(fit: Fit, group: GroupFit) -> list[str]:
    if group.problem:
        return [_wrapped(f"{group.name or 'The table'} could not be fitted: {group.problem}")]
    seeds = f"{group.seeds} seed{'s' if group.seeds > 1 else ''}"
    lines = [f"{group.name or 'All runs'}: {group.runs:,} runs, {len(group.optima)} sizes, {seeds}"]
    lines += ["", *exponent_lines(group)]
    lines += ["", *_optima(fit, group)]
    if group.judgements:
        lines += ["", *_rules(group)]
    said = [*(f.sentence for f in group.findings), *group.confounded]
    if said:
        lines += ["", "What was wrong with the table:", *(_wrapped(s, "  - ") for s in said)]
    if group.prediction is not None:
        lines += ["", certificate_headline(group.prediction)]
        lines += [_wrapped(s, "  ") for s in certificate_sentences(group.prediction)]
        if group.at_target:
            lines += ["", _wrapped(span_sentence(group))]
    return lines


def exponent_lines(group: GroupFit) -> list[str]:
    """What each axis does, and the question that the number answers."""
    rows = [("axis", "exponent", "95%", "verdict", "keeping the smallest size's costs")]
    for m in group.exponents:
        rows.append(
            (
                m.axis,
                number(m.exponent.value),
                interval(m.exponent),
                m.verdict.value,
                cost(m.kept_cost),
            )
        )
    lines = aligned(rows, left={0, 3})
    for m in group.exponents:
        lines.append(_wrapped(f"{m.axis}: {m.question}. {m.why}{bend_sentence(m.bend)}", "  "))
    if group.joint is not None and len(group.joint.exponents) > 1:
        terms = (*group.joint.exponents, *group.joint.interactions)
        told = ", ".join(
            f"{t.axis} {number(t.estimate.value)} {interval(t.estimate)}" for t in terms
        )
        lines.append(_wrapped(f"All axes at once: {told}.", "  "))
    return lines


def bend_sentence(bend: Estimate) -> str:
    """Whether an exponent changes along its axis.

    Example:
        >>> bend_sentence(Estimate(value=0.1, low=0.05, high=0.15))
        ' The exponent changes by 0.10 per doubling [0.05, 0.15].'
    """
    if not bend.known:
        return ""
    change = f"{number(bend.value)} per doubling {interval(bend)}"
    if bend.outside(0, 0):
        return f" The exponent changes by {change}."
    return f" That the exponent changes is not shown: {change}."


def cost(estimate: Estimate) -> str:
    """A price in nats.

    Example:
        >>> cost(Estimate(value=0.012, low=0.0, high=0.03)), cost(Estimate(
        ...     value=math.inf, low=1.0, high=math.inf))
        ('0.012 nats [0.000, 0.030]', 'more than 1.000 nats: it may diverge')
    """
    if math.isnan(estimate.value):
        return "–"
    if math.isinf(estimate.value):
        low = significant(estimate.low)
        return f"more than {low} nats: it may diverge" if estimate.low < math.inf else "it diverges"
    return f"{significant(estimate.value)} nats {interval(estimate, 3)}"


def span_sentence(group: GroupFit) -> str:
    """How far the published rules disagree at the target."""
    rates = sorted((r.rate, r.rule) for r in group.at_target)
    low, high = rates[0], rates[-1]
    return (
        f"Published rules, started from the best value at the base, prescribe from {rate(low[0])} "
        f"({low[1]}) to {rate(high[0])} ({high[1]}) there: "
        f"{math.log2(high[0] / low[0]):.1f} octaves apart."
    )


def _optima(fit: Fit, group: GroupFit) -> list[str]:
    axes = list(group.optima[0].size)
    rows = [(*axes, f"best {fit.tuned}", "95%", "loss there", "place")]
    for o in group.optima[:SHOWN]:
        sign = {Place.LOW_EDGE: "≤ ", Place.HIGH_EDGE: "≥ "}.get(o.place, "")
        ends = f"[{rate(2.0**o.log2_lr.low)}, {rate(2.0**o.log2_lr.high)}]"
        known = o.log2_lr.known
        rows.append(
            (
                *(f"{v:g}" for v in o.size.values()),
                sign + rate(2.0**o.log2_lr.value) if known else "–",
                ends if known else "",
                significant(o.loss.value),
                o.place.value,
            )
        )
    lines = aligned(rows, left={len(axes) + 3})
    more = len(group.optima) - SHOWN
    return lines + ([f"... and {more} sizes more"] if more > 0 else [])


def _rules(group: GroupFit) -> list[str]:
    rows = [("published rule", "axis", "exponent", "these data", "following it costs", "source")]
    for j in group.judgements:
        rows.append((j.rule, j.axis, number(j.exponent), j.answer.value, cost(j.cost), j.source))
    return aligned(rows, left={0, 1, 3, 4, 5})


def aligned(rows: Sequence[tuple[str, ...]], left: set[int]) -> list[str]:
    """Rows with columns of one width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, width=WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent)
    )
