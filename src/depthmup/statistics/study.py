"""One study for all runs, whoever made them: how the optimum of a variant moves along an axis.

A ``window`` judges every variant by its ``Transfer``; published rules are ``judged`` by the same
drift, and ``far_sizes`` notes what agrees with no law.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, SupportsFloat

import numpy as np

from depthmup.posterior.intervals import geometric_means
from depthmup.posterior.law import Size
from depthmup.records import (
    LEARNING_RATE,
    UNKNOWN,
    Axis,
    Curve,
    Estimate,
    Optimum,
    Point,
    Transfer,
    Tuned,
    Verdict,
    Window,
)
from depthmup.records.finding import rate
from depthmup.records.judgement import Answer, Judgement
from depthmup.records.note import Defect, Note
from depthmup.records.sizes import size_number
from depthmup.records.text import begin
from depthmup.statistics.along import Along, along_axis
from depthmup.statistics.drift import change_of_shape, drift_unit, judge
from depthmup.statistics.interaction import crossed, interaction, interaction_sentence
from depthmup.statistics.runs import FEWEST_RATES, Runs
from depthmup.statistics.slips import slipped_rates, trained


def window(
    variants: Sequence[Runs],
    axis: Axis,
    *,
    tolerance: float,
    tuned: Tuned = LEARNING_RATE,
    steps: slice = slice(0, 0),
    planned: Sequence[float] = (),
) -> Window:
    """Curves and verdicts of all variants along an axis, of losses over some steps."""
    lines = [along_axis(runs, axis) for runs in variants]
    parts = [along.runs.at(along.index) for along in lines if along is not None]
    transfers = [
        transfer_of(runs, axis, along, tolerance=tolerance, tuned=tuned, planned=planned)
        for runs, along in zip(variants, lines, strict=True)
    ]
    return Window(
        start=steps.start,
        stop=steps.stop,
        curves=tuple(curve for part in parts for curve in curves_of_sizes(part)),
        transfers=tuple(_with_shared_optima(variants, transfers)),
    )


def _with_shared_optima(
    variants: Sequence[Runs], transfers: Sequence[Transfer]
) -> Iterator[Transfer]:
    """Variants with the same runs at a size, as schemes at the base, have one optimum there."""
    keys = []
    for runs, transfer in zip(variants, transfers, strict=True):
        keys.append([(tuple(o.size.items()), runs.at_size(o.size)) for o in transfer.optima])
    counts = [int((~np.isnan(runs.curves.losses)).sum()) for runs in variants]
    optima = shared_optima(keys, [transfer.optima for transfer in transfers], counts)
    for transfer, of_variant in zip(transfers, optima, strict=True):
        yield replace(transfer, optima=of_variant)


def shared_optima(
    keys: Sequence[Sequence[Hashable]], optima: Sequence[Sequence[Optimum]], runs: Sequence[int]
) -> list[tuple[Optimum, ...]]:
    """The optima of variants, of which equal keys name the same runs: one for each key.

    Every variant's posterior estimates it from these runs and from sizes of its own: that of the
    variant with most runs has the most evidence. The narrowest would be chosen for its chance.
    """
    found: dict[Hashable, Optimum] = {}
    for i in sorted(range(len(keys)), key=lambda i: -runs[i]):
        for key, optimum in zip(keys[i], optima[i], strict=True):
            found.setdefault(key, optimum)
    return [tuple(found[key] for key in of_variant) for of_variant in keys]


def curves_of_sizes(part: Runs) -> tuple[Curve, ...]:
    """The curve of every size, every run in it: geometric means over the seeds that did not
    diverge, with t intervals of the logarithm.
    """
    losses = part.curves.losses
    low, value, high = geometric_means(losses)
    seeds, diverged = (~np.isnan(losses)).sum(-1), np.isinf(losses).sum(-1)

    def point(i: int, k: int) -> Point:
        loss = UNKNOWN
        if seeds[i, k] > diverged[i, k]:
            ends = float(low[i, k]), float(value[i, k]), float(high[i, k])
            loss = Estimate(low=ends[0], value=ends[1], high=ends[2])
        rate = float(part.curves.log2_lrs[i, k])
        runs, wild = int(seeds[i, k]), int(diverged[i, k])
        return Point(log2_lr=rate, loss=loss, seeds=runs, diverged=wild)

    return tuple(
        Curve(
            scheme=part.name,
            size=dict(size),
            points=tuple(point(i, int(k)) for k in np.flatnonzero(seeds[i])),
        )
        for i, size in enumerate(part.sizes)
    )


def transfer_of(
    runs: Runs,
    axis: Axis,
    along: Along | None,
    *,
    tolerance: float,
    tuned: Tuned = LEARNING_RATE,
    planned: Sequence[float] = (),
) -> Transfer:
    """How a variant's optimum moves along an axis; ``planned`` are the values that were to be."""
    question = (runs.question or {}).get(axis, f"the best {tuned.name} against {axis}")
    empty = Transfer(
        scheme=runs.name,
        title=runs.title,
        alpha=runs.alpha,
        gamma=runs.gamma,
        optima=(),
        drift=replace(UNKNOWN, unit=drift_unit(axis, tuned)),
        regret=UNKNOWN,
        verdict=Verdict.UNDECIDED,
        why=runs.problem or f"No two sizes differ in {axis} alone.",
        question=question,
    )
    if along is None:
        if planned:
            why = f"The search ended before its first run along {axis}."
            return replace(empty, drift=UNKNOWN, why=why)
        return empty
    drift = along.drift(tuned)
    verdict, why = judge(
        along.optima,
        drift,
        seeds=runs.curves[runs.trains].fewest_seeds,
        tolerance=tolerance,
        axis=axis,
        tuned=tuned,
    )
    if drift.known and axis in (varied := list(runs.varied(np.array(runs.trains)))):
        turn = runs.minima.posterior.turn(varied.index(axis))
        why += change_of_shape(turn, drift, along.middle, tolerance=tolerance, axis=axis)
    if len(along.optima) < len(planned):
        why += f" {begin(axis)} {planned[-1]} was not trained."
    if others := [other for other in along.together if other != axis]:
        verb, all_of = ("changes", "both") if len(others) == 1 else ("change", "all")
        why += f" {begin(' and '.join(others))} {verb} with it: the drift is of {all_of} together."
    changes = dict(_interactions(runs, axis, tuned))
    why += "".join(interaction_sentence(axis, other, change) for other, change in changes.items())
    depends = along.depends
    for other, change in depends.changes.items():
        changes[other] = replace(change, unit=f"{drift_unit(axis, tuned)} and of {other}")
        if other in depends.certain:
            why += interaction_sentence(axis, other, change, depends.at_ends(other, drift))
    # What holds in the middle of the other axes need not hold at their ends.
    most = max(abs(each.value) for each in depends.everywhere(drift))
    if verdict is Verdict.TRANSFERS and most > tolerance:
        verdict = Verdict.UNDECIDED
    return replace(
        empty,
        optima=along.optima,
        drift=drift,
        regret=replace(along.excess(), unit="loss"),
        verdict=verdict,
        why=why,
        interactions=changes,
        bend=along.bend,
        slices=tuple(tuple(int(i) for i in member) for member in along.members),
        together=along.together,
    )


def _interactions(runs: Runs, axis: Axis, tuned: Tuned) -> Iterator[tuple[Axis, Estimate]]:
    """How the drift along an axis changes with every other one, where sizes grow along both."""
    base = runs.base
    if base is None:
        return
    for other in base:
        sizes = crossed(runs.sizes, base, (axis, other)) if other != axis else ()
        if sizes:
            change = interaction(runs, sizes, base, (axis, other))
            yield other, replace(change, unit=f"{drift_unit(axis, tuned)} and of {other}")


class Claim(Protocol):
    """What a published rule says of an axis (``rules.claims``)."""

    @property
    def rule(self) -> str: ...
    @property
    def exponent(self) -> SupportsFloat: ...
    @property
    def setting(self) -> str: ...
    @property
    def reach(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def standing(self) -> str: ...
    @property
    def elsewhere(self) -> bool: ...


def judged(
    runs: Runs, axis: Axis, drift: Estimate, claims: Iterable[Claim], tolerance: float
) -> tuple[Judgement, ...]:
    """Every published rule that speaks of an axis, judged by what was measured along it.

    None where nothing was measured, or other axes changed with this one. Where the drift depends on
    another axis, an answer is the same at both of its ends, or open.
    """
    along = along_axis(runs, axis)
    if along is None or along.together or not drift.known:
        return ()
    # The cost of following a rule is that over the widest range that was measured.
    ends = along.ends
    x = along.x
    judgements = []
    for claim in claims:
        exponent = float(claim.exponent)
        answers = {answer(each, exponent, tolerance) for each in along.depends.everywhere(drift)}
        found = Answer.UNDECIDED if len(answers) > 1 else answers.pop()
        price = UNKNOWN
        if ends is not None and ends[0] != ends[1]:
            price = along.cost(*ends, exponent * float(x[ends[1]] - x[ends[0]]))
        judgements.append(judgement(runs.name, axis, claim, found, price))
    return tuple(judgements)


def judgement(name: str, axis: Axis, claim: Claim, found: Answer, cost: Estimate) -> Judgement:
    """What measurements of a variant say of one claim, which may be of other runs."""
    return Judgement(
        scheme=name,
        rule=claim.rule,
        axis=axis,
        exponent=float(claim.exponent),
        answer=Answer.ELSEWHERE if claim.elsewhere else found,
        cost=cost,
        setting=claim.setting,
        reach=claim.reach,
        source=claim.source,
        standing=claim.standing,
    )


def answer(drift: Estimate, exponent: float, tolerance: float) -> Answer:
    """Consistent if the whole interval is within the tolerance of a rule, rejected if none is.

    Example:
        >>> answer(Estimate(value=-0.4, low=-0.5, high=-0.35), -0.45, 0.15)
        <Answer.CONSISTENT: 'consistent'>
    """
    agrees = drift.within(exponent - tolerance, exponent + tolerance)
    return {True: Answer.CONSISTENT, False: Answer.REJECTED, None: Answer.UNDECIDED}[agrees]


def far_sizes(runs: Runs, axis: Axis, tuned: Tuned = LEARNING_RATE) -> tuple[Note, ...]:
    """Sizes whose best value is octaves off the law of all others: kept, and noted."""
    along = along_axis(runs, axis)
    if along is None:
        return ()
    at = np.full(len(runs.sizes), np.nan)
    at[runs.trains] = runs.minima.at
    at, runs = at[along.index], runs.at(along.index)
    fitted = runs.optima
    positions, x, spacing = np.log2(runs.array), fitted.curves.log2_lrs, fitted.spacing
    centre = np.where(runs.inside, fitted.centre, np.nan)
    # One or two rates far from their optimum are sound, unless they trained as well as others.
    well = trained(positions, x, fitted.log_losses, centre, spacing)
    telling = ((~np.isnan(x)).sum(-1) >= FEWEST_RATES) | well
    lows, highs = (np.where(telling, end(x, -1), np.nan) for end in (np.nanmin, np.nanmax))
    slipped = slipped_rates(positions, centre, lows, highs, spacing, well)
    found = {
        i: f"is {2.0**octaves:.3g} times that of the law of all other sizes: another unit, or "
        "another law there. It is kept."
        for i, octaves in slipped.items()
    }
    # The law may win over a size's own runs, where these are few beside how far it lies.
    for i in np.flatnonzero(runs.inside & ((at < lows) | (at > highs))):
        own = f"{rate(2.0 ** float(centre[i]))} by its own runs"
        found.setdefault(int(i), f"is {own}, which the fit of all sizes contradicts. Fit it apart.")
    return tuple(
        Note(
            text=f"The best {tuned.name} of size {_in_words(runs.sizes[i])} {what}",
            scheme=runs.name,
            defect=Defect.FAR,
            count=1,
            size=tuple(runs.sizes[i].items()),
        )
        for i, what in sorted(found.items())
    )


def _in_words(size: Size) -> str:
    return ", ".join(f"{axis} {size_number(n)}" for axis, n in size.items())
