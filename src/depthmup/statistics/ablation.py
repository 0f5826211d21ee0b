"""Which single rule is needed: what one change does to the optimum and the loss of large networks.

A variant that lacks one rule is the whole one at the base. So its sweep needs the largest size
along each axis alone: there both have an optimum, of which the change of the drift is

    (k_without - k_with) / log2(size / base)    octaves per doubling,

and a gain (``statistics.gain``), tuned and as trained. Both are bounded by runs of the same rates
and seeds, without their common noise (``statistics.paired``): that decides where the change is
small, and the posterior of both variants' runs where it is large.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from depthmup.posterior import Curves, posterior
from depthmup.posterior.law import Size
from depthmup.records import LEARNING_RATE, UNKNOWN, Axis, Estimate, Place, Tuned
from depthmup.records.ablation import Ablation, AlongAxis, Need
from depthmup.statistics.along import along_axis
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.gain import gain_of
from depthmup.statistics.paired import Pairs
from depthmup.statistics.runs import Runs

MARGIN = 0.02
"""Nats of the loss, about 2%: what a rule must be worth to be needed, and what it may be worth to
be without effect. Seeds of small networks differ by about as much."""


def ablations(
    variants: Sequence[Runs],
    changes: Mapping[str, str],
    whole: str,
    axes: Sequence[Axis],
    *,
    added: bool = False,
    tolerance: float = TOLERANCE,
    tuned: Tuned = LEARNING_RATE,
) -> tuple[Ablation, ...]:
    """What every rule does, the costliest to leave out first; ``changes`` are rules by variant."""
    runs = {each.name: each for each in variants}
    found = []
    for name, rule in changes.items():
        along = [
            each
            for axis in axes
            for each in _along(runs[name], runs[whole], axis, tolerance, tuned, added=added)
        ]
        verdicts = {each.verdict for each in along}
        verdict = next((v for v in _FIRST if v in verdicts), Need.UNDECIDED)
        found.append(
            Ablation(
                rule=rule, of=name, over=whole, added=added, along=tuple(along), verdict=verdict
            )
        )
    return tuple(sorted(found, key=_cost))


_FIRST = (Need.NEEDED, Need.UNDECIDED, Need.HARMFUL, Need.NO_EFFECT)
"""Of the verdicts along several axes, the one of all."""

_ORDER = (Need.NEEDED, Need.HARMFUL, Need.UNDECIDED, Need.NO_EFFECT)


def _cost(one: Ablation) -> tuple[int, float]:
    """Verdicts in their order, and in each the largest change of the loss first."""
    lost = [abs(a.as_trained.value) for a in one.along if not math.isnan(a.as_trained.value)]
    return _ORDER.index(one.verdict), -max(lost, default=0.0)


def _along(
    one: Runs, whole: Runs, axis: Axis, tolerance: float, what: Tuned, *, added: bool
) -> Iterator[AlongAxis]:
    """One rule along an axis at the largest size that both trained; nothing if it does not act."""
    common = [size for size in _arm(one, axis) if size in _arm(whole, axis)]
    if not common or one.at_size(common[-1]) == whole.at_size(common[-1]):
        return
    size = common[-1]
    places = [_place(runs, size) for runs in (one, whole)]
    along = along_axis(whole, axis)
    before, drift = UNKNOWN if along is None else along.drift(what), UNKNOWN
    change, tuned, as_trained = UNKNOWN, UNKNOWN, UNKNOWN
    if Place.FAILED in places and len({*places}) > 1:
        end = -math.inf if places[0] is Place.FAILED else math.inf
        tuned = as_trained = Estimate(value=end, low=end, high=end)
    elif places == [Place.INTERIOR, Place.INTERIOR]:
        change, tuned, as_trained = _compared(one, whole, axis, size)
        drift = _sum(before, change)
    moved = _moved(drift, before, change, tolerance)
    verdict, why = _judge(places, moved, change, tuned, as_trained, tolerance)
    if added:
        verdict, why = _mirrored(verdict, why, moved, change, tolerance)
    yield AlongAxis(
        axis=axis,
        size=size,
        whole=before,
        drift=drift,
        change=change,
        tuned=tuned,
        as_trained=as_trained,
        verdict=verdict,
        why=why,
    )


_MIRRORED = {Need.NEEDED: Need.HARMFUL, Need.HARMFUL: Need.NEEDED}


def _mirrored(
    verdict: Need, why: str, moved: bool | None, change: Estimate, tolerance: float
) -> tuple[Need, str]:
    """The verdict on a rule that was added: what makes things worse is better left out, and a drift
    that shrinks is what a rule is for.
    """
    if verdict not in _MIRRORED and moved is False and change.outside(-tolerance, tolerance):
        return Need.NEEDED, f"The drift shrinks by more than {tolerance:g} octaves per doubling."
    return _MIRRORED.get(verdict, verdict), why


def _arm(runs: Runs, axis: Axis) -> list[Size]:
    """The sizes beyond the base that differ from it along an axis alone, increasing."""
    base = runs.base or min(runs.sizes, key=lambda size: math.prod(size.values()))
    others = [a for a in base if a != axis]
    on_arm = [
        dict(size)
        for size in runs.sizes
        if size[axis] > base[axis] and all(size[a] == base[a] for a in others)
    ]
    return sorted(on_arm, key=lambda size: size[axis])


def _place(runs: Runs, size: Size) -> Place:
    return runs.optima.places()[[dict(own) for own in runs.sizes].index(dict(size))]


def _doublings(runs: Runs, axis: Axis, size: Size) -> float:
    start = runs.base[axis] if runs.base is not None else min(s[axis] for s in runs.sizes)
    return math.log2(size[axis] / start)


def _compared(
    one: Runs, whole: Runs, axis: Axis, size: Size
) -> tuple[Estimate, Estimate, Estimate]:
    """The change of the drift, and the gain of ``one`` over ``whole``, tuned and as trained."""
    gain, pairs = gain_of(one, whole, target=size), Pairs.of(one, whole, size)
    doublings = _doublings(whole, axis, size)
    moved = _between(_apart(one, whole, doublings, size), *pairs.moved)
    change = Estimate(
        value=moved.value / doublings,
        low=moved.low / doublings,
        high=moved.high / doublings,
        unit=f"octaves per doubling of {axis}",
    )
    lost = pairs.difference(_handed_on(whole))
    as_trained = Estimate(value=-lost.value, low=-lost.high, high=-lost.low)
    return (
        change,
        _between(gain.tuned, *pairs.tuned),
        gain.as_trained if math.isnan(lost.value) else as_trained,
    )


def _between(found: Estimate, low: float, high: float) -> Estimate:
    """An estimate that is known to lie between two bounds, each NaN or infinite where unknown."""
    low = -math.inf if math.isnan(low) else low
    high = math.inf if math.isnan(high) else high
    value = min(max(found.value, low), high)
    if found.high < low or found.low > high:  # what pairs say rests on less
        return Estimate(value=value, low=low, high=high)
    return Estimate(value=value, low=max(found.low, low), high=min(found.high, high))


def _handed_on(whole: Runs) -> float:
    """The best value at the base, NaN where it does not train."""
    base = whole.base or min(whole.sizes, key=lambda size: math.prod(size.values()))
    trained = [dict(whole.sizes[i]) for i in whole.trains]
    return float(whole.minima.at[trained.index(dict(base))]) if dict(base) in trained else math.nan


def _sum(before: Estimate, change: Estimate) -> Estimate:
    """A drift and its change, as if their errors were independent."""
    low = math.hypot(before.value - before.low, change.value - change.low)
    high = math.hypot(before.high - before.value, change.high - change.value)
    value = before.value + change.value
    return Estimate(value=value, low=value - low, high=value + high, unit=before.unit)


def _apart(one: Runs, whole: Runs, doublings: float, size: Size) -> Estimate:
    """How far both minima lie apart, by one posterior of the size's runs under both."""
    rows = []
    for runs in (whole, one):
        i = [dict(own) for own in runs.sizes].index(dict(size))
        rows.append((runs.curves.log2_lrs[i], runs.curves.losses[i]))
    seeds = max(losses.shape[-1] for _, losses in rows)
    padded = [
        np.pad(y, ((0, 0), (0, seeds - y.shape[-1])), constant_values=math.nan) for _, y in rows
    ]
    found = posterior(Curves.of([x for x, _ in rows], padded), np.array([[0.0], [doublings]]))
    return found.estimate(np.array([-1.0, 1.0]))


def _moved(drift: Estimate, before: Estimate, change: Estimate, tolerance: float) -> bool | None:
    """Whether the optimum drifts by more for the change: None where that is open."""
    if not change.known:
        return None
    if change.inside(-tolerance, tolerance):
        return False
    if not change.outside(-tolerance, tolerance):
        return None
    return abs(drift.value) > abs(before.value) if drift.known and before.known else None


def _judge(
    places: Sequence[Place],
    moved: bool | None,
    change: Estimate,
    tuned: Estimate,
    as_trained: Estimate,
    tolerance: float,
) -> tuple[Need, str]:
    """The verdict on leaving one rule out, and why."""
    if places[0] is Place.FAILED and places[1] is not Place.FAILED:
        return Need.NEEDED, "With this change no value trains at the largest size."
    if places[1] is Place.FAILED and places[0] is not Place.FAILED:
        return Need.HARMFUL, "With this change alone the largest size trains."
    if places[0] is places[1] is Place.FAILED:
        return Need.UNDECIDED, "No value trains at the largest size, changed or not."
    if places[0] != Place.INTERIOR or places[1] != Place.INTERIOR:
        return Need.UNDECIDED, "An optimum lies at an edge of its grid."
    if moved:
        return Need.NEEDED, f"The drift grows by more than {tolerance:g} octaves per doubling."
    if as_trained.high < -MARGIN:
        return Need.NEEDED, "The loss at the value that the base hands on is higher."
    if as_trained.low > MARGIN:
        return Need.HARMFUL, "The loss at the value that the base hands on is lower."
    if moved is None and not change.outside(-tolerance, tolerance):
        return Need.UNDECIDED, "The change of the drift is not known well enough."
    if tuned.low > MARGIN and as_trained.low > -MARGIN:
        return Need.HARMFUL, "The tuned loss is lower."
    if as_trained.inside(-MARGIN, MARGIN):
        return Need.NO_EFFECT, "Neither the optimum nor the loss changes beyond its margin."
    return Need.UNDECIDED, "The change of the loss is not known well enough."
