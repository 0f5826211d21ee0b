"""The runs that tell most next, from the losses so far: fewest runs to a verdict on transfer.

The cheapest size comes first. It is scanned over eight octaves, and its optimum bracketed by rates
a factor of two apart. Every other size starts with three rates around the optimum that the smaller
ones predict. A verdict that is decided ends the search, and one of "drifts" ends the climb to
larger sizes. Where all sizes are
measured and the verdict is open, what comes next is what narrows the interval most for its cost:
more seeds for all sizes, or half steps at some. So it is before a larger size, where it would
decide "drifts" for less than that size begins with: without this rule 25 simulated searches of a
clear drift cost a quarter more. Where nothing could decide, the search ends.

What is asked for follows from the losses alone, not from how they came about, so that a search can
be resumed, replayed, or begun with a table of other runs. The losses of unfinished runs are not
among them: the best rate moves as training goes on (docs/studies/adaptive.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from depthmup.records import Verdict
from depthmup.records.text import counted
from depthmup.statistics.bracket import Losses, second_valley
from depthmup.statistics.search import EXHAUSTED, Ask, Round, Search
from depthmup.statistics.sharpening import FINEST, Sharpening

FEWEST = 3
"""Sizes from which a drift is judged before the largest one is reached."""

FAR = 1.5
"""Octaves from the nearest size's optimum beyond which one seed looks whether a prediction holds:
where optima move so fast it often misses, or nothing trains. The other seeds follow at the rates of
the bracket, so that no verdict changes."""

BRACKETED = "every size has its optimum"
"""Where minima alone are wanted."""

CERTIFIED = 4
"""Seeds that a prediction for a target wants, at rates half an octave apart: it hands out a rate,
and the lowest point of a lopsided valley lies beside the centre of three points. Of certificates
from four seeds it was measured how often they hold (docs/studies/calibration.md)."""


def next_round(search: Search, losses: Sequence[Losses]) -> Round:
    """The runs that tell most next, from the cheapest size to the largest; none at the end."""
    if len(losses) != len(search.sizes):
        raise ValueError(
            f"Expected losses of each of the {len(search.sizes)} sizes; got {len(losses)}. Give an "
            "empty mapping for a size without runs."
        )
    search = replace(search, losses=losses)
    verdict_alone = not (search.complete or search.whole or search.minima)
    to_the_end = search.precision is not None or not verdict_alone
    ended: dict[str, str] = {}  # axes along which no larger size is needed, and why
    reached: list[int] = []
    for i in search.order:
        arms = [axis for axis in search.axes if i in search.arm(axis)]
        if reached and arms and all(axis in ended for axis in arms):
            continue
        step = None if to_the_end else _instead_of(search, i, arms, reached)
        step = step or _at_size(search, i)
        if step is not None:
            return step
        if search.brackets[i].lowest is None:
            if not reached and not search.only:
                return Round(why=f"{search.named(i)}: no {search.tuned.name} trains.")
            ended |= {axis: f"{search.named(i)} does not train" for axis in arms}
            continue
        reached.append(i)
        if not to_the_end:
            ended |= {axis: "drifts" for axis in arms if _drifts(search, axis, reached)}
    return _sharpen(search, reached, ended)


def _instead_of(
    search: Search, i: int, arms: Sequence[str], reached: Sequence[int]
) -> Round | None:
    """Runs at the sizes reached that would decide "drifts" for less than size i begins with."""
    if len(arms) != 1 or len(search.brackets[i].rates):
        return None
    arm = search.arm(arms[0])
    sizes = [j for j in arm if j in reached]
    begun = [j for j in arm if len(search.brackets[j].rates)]
    if len(sizes) < max(FEWEST, len(begun)):
        return None
    sharper = Sharpening(search=search, axis=arms[0], sizes=sizes)
    return sharper.decisive(most=3 * search.look * search.costs[i])


def _at_size(search: Search, i: int) -> Round | None:
    """What is missing at a size; none if it is bracketed by rates with all seeds."""
    bracket = search.brackets[i]
    first = i == search.order[0] and not search.only
    begun = max((bracket.seeds_at(float(k)) for k in bracket.rates), default=0)
    # Where runs have begun, the way goes on from them.
    predicted = math.nan if begun else _predicted(search, i)
    rates = [search.rounded(k) for k in bracket.next_rates(predicted, first=first)]
    rates = [k for k in rates if k <= math.log2(search.tuned.most)]
    if rates:
        # The search itself takes one seed until the way is known; then all start together.
        known = sum(j in search.closed for axis in search.axes for j in search.arm(axis)) > 1
        seeds = begun or (search.look if known and not _far(search, i, predicted) else 1)
        if len(bracket.rates) and bracket.lowest is None:
            seeds = 1  # looks for a rate that trains at all
        why = "a scan for its optimum" if first else "around the predicted optimum"
        if len(bracket.rates):
            why = "on to its optimum"
        return _round(
            search,
            search.missing(i, rates, min(seeds, search.look)),
            f"{search.named(i)}: {why}",
            i,
        )
    if bracket.lowest is None:
        return None
    if not bracket.closed:
        way = "below" if bracket.at == bracket.rates[0] else "above"
        return Round(
            why=f"{search.named(i)}: the optimum lies {way} the {len(bracket.rates)} "
            f"{search.tuned.plural} that were tried. Give {search.grid}= a grid that holds it."
        )
    if first and (valleys := second_valley(bracket.rates, bracket.averages)):
        between = bracket.rates[(bracket.rates >= min(valleys)) & (bracket.rates <= max(valleys))]
        # One seed's noise looks like a second valley where the first is nearly flat.
        if asks := search.missing(i, between, min(CERTIFIED, search.looks[-1])):
            return _round(search, asks, f"{search.named(i)}: one valley or two", i)
        one, other = (f"2^{k:g}" for k in valleys)
        return Round(
            why=f"{search.named(i)}: the curve has two valleys, at {one} and {other}, and "
            f"which is lower may change with size. Give {search.grid}= a grid that spans both."
        )
    if asks := search.missing(i, bracket.window, search.look):
        return _round(search, asks, f"{search.named(i)}: {counted(search.look, 'seed')}", i)
    return None


def _round(search: Search, asks: tuple[Ask, ...], why: str, at: int) -> Round:
    """A round, and the cost of the sizes that follow with three rates each."""
    later = search.order[search.order.index(at) + 1 :]
    new = [j for j in later if not len(search.brackets[j].rates)]
    return Round(
        asks=asks,
        why=why if asks else f"{why}{EXHAUSTED}.",
        rest=3 * search.look * sum(search.costs[j] for j in new),
    )


def _predicted(search: Search, i: int) -> float:
    """The optimum that the sizes measured so far predict for one: the nearer count more.

    A law over all sizes would be biased where it bends. Directions that no two sizes show are
    taken to be flat.
    """
    if i in search.expected:
        return search.expected[i]
    others = [j for j in search.closed if j != i]
    if not others:
        return search.start
    centres = np.array([_centre(search, j) for j in others])
    away = np.array([search.position(j) - search.position(i) for j in others])
    root = 2.0 ** -np.abs(away).sum(-1)
    design = np.column_stack([np.ones(len(others)), away])
    mean = float((root**2 * centres).sum() / (root**2).sum())
    return mean + float((np.linalg.pinv(design * root[:, None]) @ (root * (centres - mean)))[0])


def _centre(search: Search, i: int) -> float:
    """A size's optimum: by the posterior, or where its lowest rate lies."""
    if i in search.sharp:
        return float(search.posterior.minimum[search.sharp.index(i)])
    return search.brackets[i].at


def _far(search: Search, i: int, predicted: float) -> bool:
    """Whether a prediction is so far from the nearest size's optimum that it may well miss."""
    others = [j for j in search.closed if j != i]
    here = search.position(i)
    nearest = min(others, key=lambda j: float(np.abs(search.position(j) - here).sum()))
    return abs(predicted - search.brackets[nearest].at) > FAR


def _drifts(search: Search, axis: str, reached: Sequence[int]) -> bool:
    """Whether the sizes reached along an axis show that the optimum drifts."""
    arm = search.arm(axis)
    begun = [i for i in arm if len(search.brackets[i].rates)]
    sizes = [i for i in arm if i in reached]
    # Sizes that were measured belong to the verdict, whatever the smaller ones would say alone.
    if len(sizes) < max(min(FEWEST, len(arm)), len(begun)):
        return False
    return search.verdict(axis, sizes) is Verdict.DRIFTS


def _sharpen(search: Search, reached: Sequence[int], ended: Mapping[str, str]) -> Round:
    """All sizes are bracketed: what else an open verdict needs."""
    if search.complete:
        # Also where seeds moved the lowest rate, which leaves its bracket open on one side.
        halvings = [int(search.brackets[i].spacing > FINEST) for i in reached]
        steps = [search.half_steps(i, n) for i, n in zip(reached, halvings, strict=True)]
        if asks := tuple(ask for of_size in steps for ask in of_size):
            return Round(asks=asks, why="half steps at every size, for the prediction")
        if search.look < min(CERTIFIED, search.looks[-1]):
            return search.more_seeds(reached)
    if search.minima:
        return Round(why=BRACKETED)
    reasons = []
    for axis in search.axes:
        sizes = [i for i in search.arm(axis) if i in reached]
        failed = ended.get(axis, "drifts")
        also = "" if failed == "drifts" else f", {failed}"
        if len(sizes) < 2:
            reasons.append(f"{axis}: fewer than two sizes have an optimum{also}")
            continue
        step = Sharpening(search=search, axis=axis, sizes=sizes).next_step()
        if step.asks:
            return step
        reasons.append(f"{axis}: {step.why}{also}")
    return Round(why="; ".join(reasons) + ".")
