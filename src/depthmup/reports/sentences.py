"""Findings in words, and numbers formatted for people."""

import math
import textwrap

from depthmup.records import (
    Axis,
    Estimate,
    JointLaw,
    Optimum,
    Place,
    Study,
    Transfer,
    Verdict,
    Window,
)
from depthmup.records.certificate import Certificate
from depthmup.records.finding import change, change_span, in_percent, ranged, rate
from depthmup.records.printable import printable
from depthmup.records.sizes import size_number, size_text
from depthmup.reports.study_rows import base_size, size_of, transfers

UNKNOWN = "–"

PLACES = {
    Place.INTERIOR: "inside the grid",
    Place.LOW_EDGE: "low edge: extend the grid downwards",
    Place.HIGH_EDGE: "high edge: extend the grid upwards",
    Place.FAILED: "nothing trains",
}
"""Where an optimum lies, in words."""

_COMPARED = {
    "depth": "deeper",
    "width": "wider",
    "tokens": "more data",
    "steps": "longer",
    "parameters": "larger",
}


def is_larger_better(axis: Axis) -> str:
    """The question that best losses along an axis answer."""
    return f"Is {_COMPARED.get(axis, f'a larger {axis}')} better?"


def of_command(study: Study) -> bool:
    """Whether a person's command trained the runs: it logs as many losses as it likes."""
    return study.config.get("untrained_loss") is False


def loss_word(study: Study) -> str:
    """The loss that was judged: the column of a table or of a command's log, in its own word."""
    if study.headline.stop and not of_command(study):
        return "training loss"
    return printable(str(study.config.get("loss") or "loss"))[:40]


def share(study: Study, steps: float) -> float:
    """Steps; of a command, whose steps nobody counted, percent of the run."""
    return round(100 * steps / study.headline.stop, 1) if of_command(study) else steps


def window_words(study: Study, window: Window) -> str:
    """A window of training in words: its steps, or its share of a command's run."""
    if of_command(study):
        return f"{share(study, window.start):.0f}–{share(study, window.stop):.0f}% of the run"
    return f"steps {window.start}–{window.stop}"


def number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign; a dash where it is unknown.

    Args:
        value: any number, or None.
        digits: after the point.

    Returns:
        The text.

    Example:
        >>> number(-2.914), number(float("nan")), number(-0.001)
        ('−2.91', '–', '0.00')
    """
    if math.isnan(value):
        return UNKNOWN
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−")


def rate_interval(log2: Estimate, unit: float = 1.0) -> str:
    """``[low, high]`` of a value whose log2 is estimated, empty where there is none."""
    if math.isnan(log2.low) or math.isnan(log2.high):
        return ""
    plain = log2.exp2(unit)
    return f"[{rate(plain.low)}, {rate(plain.high)}]"


def significant(value: float) -> str:
    """A loss: three decimals, or three significant digits where decimals would hide it."""
    if not math.isfinite(value) or value == 0 or 0.001 <= abs(value) < 1000:
        return number(value, 3)
    return f"{value:.3g}".replace("-", "−", 1) if value < 0 else f"{value:.3g}"


def interval(estimate: Estimate, digits: int = 2) -> str:
    """The interval as ``[low, high]``, empty where there is none.

    Args:
        estimate: whose interval it is.
        digits: after the point.

    Returns:
        The text.

    Example:
        >>> interval(Estimate(value=-0.5, low=-0.61, high=-0.4))
        '[−0.61, −0.40]'
    """
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return ""
    return f"[{number(estimate.low, digits)}, {number(estimate.high, digits)}]"


def duration(seconds: float) -> str:
    """Seconds as a person would say them.

    Args:
        seconds: at least 0, or infinite.

    Returns:
        Words.

    Example:
        >>> duration(75), duration(7260)
        ('1 min 15 s', '2 h 1 min')
    """
    if seconds == float("inf"):
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def best_rate(optimum: Optimum) -> str:
    """The best value of what is tuned; on the grid's edge the bound that its runs leave."""
    best = optimum.log2_lr
    if optimum.place is Place.FAILED or not best.known:
        return UNKNOWN
    bound = {Place.LOW_EDGE: ("≤ ", best.high), Place.HIGH_EDGE: ("≥ ", best.low)}
    sign, value = bound.get(optimum.place, ("", best.value))
    return sign + rate(2.0 ** (value if math.isfinite(value) else best.value))


def together_sentence(study: Study) -> str:
    """What all groups of a table show together along the axis; empty where they are few."""
    together, axis = study.together, study.axis
    if together is None:
        return ""
    mean, new = together.mean, together.new_group
    verdict = {
        Verdict.TRANSFERS: "transfers",
        Verdict.DRIFTS: "drifts",
        Verdict.UNDECIDED: "is undecided",
    }[together.verdict]
    return (
        f"All {together.groups} groups together: the best {study.tuned.name} {verdict}, "
        f"{change(mean.value)} per doubling of {axis} ({change_span(mean.low, mean.high)}). "
        f"A new group's lies in {change_span(new.low, new.high)}."
    )


def _alone(schemes: tuple[Transfer, ...]) -> str:
    """How many groups have which verdict by themselves."""
    words = {
        Verdict.TRANSFERS: "transfer",
        Verdict.DRIFTS: "drift",
        Verdict.UNDECIDED: "are undecided",
    }
    verdicts = [transfer.verdict for transfer in schemes]
    counts = [f"{verdicts.count(v)} {word}" for v, word in words.items() if v in verdicts]
    return f"By themselves {'all ' if len(counts) == 1 else ''}{_join(counts)}."


def headline(study: Study) -> str:
    """The study's result: that of all groups where they are many, else one sentence."""
    schemes = transfers(study)
    if together := together_sentence(study):
        return f"{together} {_alone(schemes)}"
    good = [t.title for t in schemes if t.verdict is Verdict.TRANSFERS]
    open_ = [t.title for t in schemes if t.verdict is Verdict.UNDECIDED]
    base, largest = base_size(study), _largest(study, schemes)
    reach = f"along {study.axis}"  # a budget may be spent before a second size is reached
    if largest > base:
        below = [size_of(study, o) for t in schemes for o in t.optima if size_of(study, o) < base]
        both_ways = [size_number(end) for end in (*sorted(below)[:1], largest)]
        reach = f"from {study.axis} {size_number(base)} to {' and '.join(both_ways)}"
    if not schemes:
        return "No scheme was measured."
    best = f"best {study.tuned.name}"
    if len(schemes) == 1:
        return {
            Verdict.TRANSFERS: f"The {best} transfers {reach}.",
            Verdict.DRIFTS: f"The {best} drifts {reach}.",
            Verdict.UNDECIDED: f"Whether the {best} transfers {reach} is undecided.",
        }[schemes[0].verdict]
    if good:
        verb = "transfers its" if len(good) == 1 else "transfer their"
        text = f"{_join(good)} {verb} {best} {reach}"
        others = len(schemes) - len(good) - len(open_)
        if others:
            text += f"; {others} other{'s drift' if others > 1 else ' drifts'}"
    elif len(open_) < len(schemes):
        text = f"No scheme is shown to transfer its {best} {reach}"
    else:
        return f"Whether any scheme transfers its {best} {reach} is undecided."
    return text + (f"; undecided: {_join(open_)}." if open_ else ".")


def first_lines(study: Study, width: int) -> list[str]:
    """The study's result in lines of which the first is short, however many groups there are."""
    whole = headline(study)
    if len(whole) <= width:
        return [whole]
    if study.together is not None:
        first, _, rest = whole.partition(" (")
        return [f"{first}.", *textwrap.wrap(f"95% interval {rest.replace(').', '.', 1)}", width)]
    schemes = transfers(study)
    words = {
        Verdict.TRANSFERS: ("transfers", "transfer"),
        Verdict.DRIFTS: ("drifts", "drift"),
        Verdict.UNDECIDED: ("is undecided", "are undecided"),
    }
    counts = {v: sum(t.verdict is v for t in schemes) for v in words}
    said = [f"{n} {words[v][n > 1]}" for v, n in counts.items() if n]
    first = f"Best {study.tuned.name} along {study.axis}, {len(schemes)} groups: {_join(said)}."
    good = [t.title for t in schemes if t.verdict is Verdict.TRANSFERS]
    return [first, *textwrap.wrap(f"It transfers for {_join(good)}.", width)] if good else [first]


def holding(study: Study, *more: Study) -> Transfer | None:
    """The first scheme that transfers along every axis from a known value at the base."""
    for first in transfers(study):
        along = [t for s in (study, *more) for t in transfers(s) if t.scheme == first.scheme]
        if at_base(study, first) and all(t.verdict is Verdict.TRANSFERS for t in along):
            return first
    return None


def advice(study: Study, *more: Study) -> str:
    """What to do, where a scheme transfers along every axis: the value, and where it holds."""
    best = holding(study, *more)
    if best is None or (at := at_base(study, best)) is None:
        return ""
    along = [(s, t) for s in (study, *more) for t in transfers(s) if t.scheme == best.scheme]
    with_scheme = f" with {best.title}" if len(transfers(study)) > 1 else ""
    reach = [
        f"from {s.axis} {size_number(base_size(s))} to {size_number(_largest(s, (t,)))}"
        for s, t in along
    ]
    return f"Use {study.tuned.name} {rate(2.0**at.value)}{with_scheme}. It holds {_join(reach)}."


def base_sentence(study: Study, transfer: Transfer) -> str:
    """The best value at the base, in plain numbers; empty where it is unknown."""
    optimum = base_optimum(study, transfer)
    if optimum is None:
        return ""
    at, where = optimum.log2_lr, f"{study.axis} {size_number(base_size(study))}"
    if len(transfer.slices) > 1:  # others have values of their own
        where = size_text(optimum.size)
    best = ranged(at.exp2()) if interval(at) else rate(2.0**at.value)
    return f"Best {study.tuned.name} at {where}: {best}."


def at_base(study: Study, transfer: Transfer) -> Estimate | None:
    """The log2 of the best value at the base, unless it is unknown or a bound."""
    optimum = base_optimum(study, transfer)
    return None if optimum is None else optimum.log2_lr


def base_optimum(study: Study, transfer: Transfer) -> Optimum | None:
    """The optimum at the base, unless it is unknown or a bound."""
    base = base_size(study)
    for optimum in transfer.optima:
        if size_of(study, optimum) == base and optimum.place is Place.INTERIOR:
            return optimum if optimum.log2_lr.known else None
    return None


def regret_sentence(study: Study, transfer: Transfer) -> str:
    """The excess loss of the base's best value at the largest size; empty if nothing trains."""
    axis, largest, base = study.axis, _largest(study, (transfer,)), base_size(study)
    end, start = f"{axis} {size_number(largest)}", f"{axis} {size_number(base)}"
    the = study.tuned.the
    at_largest = [o.place for o in transfer.optima if size_of(study, o) == largest]
    if not at_largest or Place.FAILED in at_largest:
        return ""
    if math.isinf(transfer.regret.value):
        return f"With {the} of {start}, training diverges at {end}."
    if not transfer.regret.known:
        return f"The excess loss at {end} could not be measured."
    text, excess = f"At {end}, {the} of {start} costs", transfer.regret
    if not interval(excess):
        return f"{text} {significant(excess.value)} in loss."
    if excess.low <= _nothing(transfer) < excess.high < math.inf:
        # Seeds cannot tell it from nothing.
        return f"{text} at most {significant(excess.high)} in loss."
    between = f"{significant(excess.low)} to {significant(excess.high)}"
    return f"{text} {significant(excess.value)} in loss ({between})."


def excess_loss(transfer: Transfer) -> str:
    """The excess loss of the base's value, or zero."""
    value = transfer.regret.value
    return significant(0.0 if abs(value) < _nothing(transfer) else value)


def _nothing(transfer: Transfer) -> float:
    """A ten-thousandth of the loss, which is none that matters."""
    losses = (o.loss.value for o in transfer.optima if math.isfinite(o.loss.value))
    return 1e-4 * min(losses, default=0.0)


def cost(estimate: Estimate) -> str:
    """A price in units of the loss."""
    if math.isnan(estimate.value):
        return "–"
    if math.isinf(estimate.value):
        low = significant(estimate.low)
        return (
            f"more than {low} in loss: it may diverge" if estimate.low < math.inf else "it diverges"
        )
    # Where there is an interval, digits that it does not resolve say nothing.
    value = number(estimate.value, 3) if interval(estimate) else significant(estimate.value)
    return f"{value} in loss {interval(estimate, 3)}"


def bend_sentence(bend: Estimate) -> str:
    """Whether a drift changes along its axis, where that is shown; else nothing."""
    if not bend.known or not bend.outside(0, 0):
        return ""
    return f" With every doubling this change itself moves by {in_percent(bend)}."


def law_sentence(law: JointLaw) -> str:
    """The law of all axes, where there are several, and what an error of an octave costs."""
    terms = law.exponents
    known = [f"{t.axis} {in_percent(t.estimate)}" for t in terms if t.estimate.known]
    # Axes that always change together have no exponents of their own.
    open_ones = [t.axis for t in terms if not t.estimate.known]
    known += [f"{' and '.join(open_ones)} not told apart"] if open_ones else []
    rests = (
        " It rests on all runs at once, as too few sizes have an optimum of their own."
        if law.pooled
        else ""
    )
    octave = (
        f" At the largest size, halving the best value costs {cost(law.half)}, doubling it "
        f"{cost(law.twice)}."
        if law.half.known
        else ""
    )
    if len(terms) == 1:  # its exponent is the drift, which has been said
        return octave.strip()
    return f"All axes at once, per doubling: {', '.join(known)}.{rests}{octave}"


def span_sentence(certificate: Certificate) -> str:
    """How far published rules disagree at the target; empty where none speaks of it."""
    if not certificate.rules:
        return ""
    rates = sorted((r.rate, r.rule) for r in certificate.rules)
    low, high = rates[0], rates[-1]
    return (
        f"Published rules, started from the best value at the base, prescribe from "
        f"{rate(low[0])} ({low[1]}) to {rate(high[0])} ({high[1]}) there: "
        f"a factor of {high[0] / low[0]:.2g} apart."
    )


def rules_title(study: Study) -> str:
    """What the rules speak of; where the drift depends on other axes, of all their values."""
    others = {
        other: None
        for transfer in transfers(study)
        for other, change in transfer.interactions.items()
        if study.together is None and change.outside(0, 0)
    }
    everywhere = f", at every {' and '.join(others)}" if others else ""
    return f"Published rules along {study.axis}{everywhere}"


def rejected_sentence(study: Study, scheme: str) -> str:
    """Which published rules a scheme's drift rejects; empty where none."""
    names = [r.rule for r in study.rules if r.scheme == scheme and r.answer.value == "rejected"]
    if not names:
        return ""
    return f"Rules that these runs reject along {study.axis}: {'; '.join(dict.fromkeys(names))}."


def _largest(study: Study, schemes: tuple[Transfer, ...]) -> float:
    return max((size_of(study, o) for t in schemes for o in t.optima), default=0)


def _join(names: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def folded(title: str, columns: int = 16) -> str:
    """A title in lines for a label of a chart, which is cut where it is longer than its room."""
    return "\n".join(textwrap.wrap(title, columns, break_on_hyphens=False)) or title
