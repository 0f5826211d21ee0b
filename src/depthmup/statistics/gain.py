"""How much better one variant is than another at every size, at a target, and what becomes of it.

The gain of B over A at a size is the difference of their log losses there,

    g = log loss_A - log loss_B,

*tuned*, each at its own minimum, or *as trained*, each at the value that its minimum at the base
hands on. Errors of the fits of both add up; what seeds have of their own cancels where both were
trained with the same ones. The course of the gain over sizes is ``posterior.level_law``'s.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.posterior.intervals import CONFIDENCE, Array, together
from depthmup.posterior.law import Size
from depthmup.posterior.level_law import Course, Frontier
from depthmup.posterior.mixture import NormalMixture
from depthmup.records import UNKNOWN, Estimate, Place
from depthmup.records.gain import Gain, GainVerdict, SizeGain
from depthmup.records.note import Note
from depthmup.records.sizes import size_text
from depthmup.statistics.directions import Directions, volume
from depthmup.statistics.runs import Runs

PREDICTION = 0.9
"""Confidence at a target that was not trained."""

DRAWS = 1_000

MOST_SIZES = 32
"""Sizes of which a gain is told: the time grows with their cube."""

SHARE = 0.5
"""Of the base's gain, that a target must keep."""

FLAT = 0.05
"""Share of draws in which a frontier may rise, from which on no size is worth anything."""

NONE = Estimate(value=0.0, low=0.0, high=0.0)

FARTHEST = 64.0
"""Times the size, beyond which a gain's worth is no number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Two variants at the sizes at which both have an optimum inside their grids."""

    a: Runs
    b: Runs

    @cached_property
    def sizes(self) -> list[Size]:
        """By volume, the smallest first; of many it and the largest."""
        there = [dict(size) for size, ok in zip(self.a.sizes, self.a.inside, strict=True) if ok]
        own = [dict(size) for size, ok in zip(self.b.sizes, self.b.inside, strict=True) if ok]
        common = sorted((size for size in there if size in own), key=volume)
        return [*common[:1], *common[1:][1 - MOST_SIZES :]]

    @cached_property
    def base(self) -> Size:
        """The base of a design, else the smallest size."""
        base = self.a.base
        return base if base is not None and dict(base) in self.sizes else self.sizes[0]

    @cached_property
    def where(self) -> Directions:
        """The sizes in doublings from the base, along the axes that vary among them."""
        return Directions(base=self.base, sizes=self.sizes)

    @property
    def axes(self) -> tuple[str, ...]:
        return self.where.axes

    def reaches(self, target: Size) -> bool:
        """Whether it differs from the sizes along axes alone that vary among them."""
        return all(target.get(a, n) == n for a, n in self.base.items() if a not in self.axes)

    def _at(self, runs: Runs, sizes: Sequence[Size]) -> list[int]:
        """Numbers of sizes among those of a variant that train."""
        own = [dict(runs.sizes[i]) for i in runs.trains]
        return [own.index(dict(size)) for size in sizes]

    @cached_property
    def course(self) -> Course:
        """Of the tuned gain."""
        course = self.frontier(self.b).over(self.frontier(self.a), paired=self.paired)
        return course.none_at([i for i, size in enumerate(self.sizes) if self.coincide(size)])

    def coincide(self, size: Size) -> bool:
        """Whether both are one at a size, as schemes at their base: what both trained agrees.

        One rate at which both diverge is no evidence; two losses are.
        """
        one, other = (
            {(x, seed): loss for x, seed, loss in runs.at_size(size)} for runs in (self.a, self.b)
        )
        both = one.keys() & other.keys()
        agree = all(one[run] == other[run] for run in both)
        return agree and sum(math.isfinite(one[run]) for run in both) > 1

    @cached_property
    def paired(self) -> bool:
        """Whether both were trained with the same seeds."""
        return bool(self.a.seeds) and self.a.seeds == self.b.seeds

    def frontier(self, runs: Runs) -> Frontier:
        """One variant's own best losses."""
        return runs.minima.frontier(self._at(runs, self.sizes), self.where.doublings(self.sizes))


def gain_of(
    b: Runs,
    a: Runs,
    *,
    target: Size | None = None,
    share: float = SHARE,
    among: int = 1,
) -> Gain:
    """The gain of ``b`` over ``a``; verdict and ``why`` are about the target.

    Without a target it is the largest size that was trained. ``among`` candidates one is picked
    from: intervals hold for all of them at once (Bonferroni). Refused where no size has an optimum
    of both inside their grids, and where a target lies off the sizes' axes.
    """
    pair = Compared(a=a, b=b)
    if not pair.sizes:
        raise ValueError(
            f"Expected a size at which both have an optimum; got none. {_nothing_common(a, b)}"
        )
    target = _checked(pair, target)
    trained = dict(target) in pair.sizes
    measured, predicted = (together(among, c) for c in (CONFIDENCE, PREDICTION))
    s = pair.where.doublings(pair.sizes)
    tuned = pair.course.of(np.eye(len(s)))
    carried = Carried(pair=pair)
    rows = [
        SizeGain(size=size, tuned=NONE, as_trained=NONE)
        if pair.coincide(size) and dict(size) == dict(pair.base)
        else SizeGain(
            size=size,
            tuned=_part(tuned, i).estimate(measured),
            as_trained=carried.at(_part(tuned, i), size, measured),
        )
        for i, size in enumerate(pair.sizes)
    ]
    start = pair.sizes.index(dict(pair.base))
    if trained:
        at_target = rows[pair.sizes.index(dict(target))]
        here, carries = at_target.tuned, at_target.as_trained
    else:
        there = pair.course.of(_unit(len(s) + 1, -1), pair.where.doublings([target]))
        here, carries = there.estimate(predicted), carried.at(there, target, predicted)
    slope = _slope(pair, target, predicted)
    verdict, why = judge(rows[start].tuned, here, slope, share)
    return Gain(
        of=b.name,
        over=a.name,
        sizes=tuple(rows),
        base=dict(pair.base),
        target=dict(target),
        trained=trained,
        tuned=here,
        as_trained=carries,
        slope=slope,
        worth=dict(_worth(pair, target, predicted)),
        share=share,
        among=among,
        verdict=verdict,
        why=why,
        reservations=tuple(_reservations(pair)),
    )


def baselines(names: Sequence[str], over: str = "") -> dict[str, str]:
    """Every candidate's baseline: the first variant unless ``over`` names one, or a part of names.

    Where variants differ in two things, a candidate's baseline shares all with it but ``over``:
    over adam, "sp muon" is compared with "sp adam". Refused where nothing has that name.
    """
    if over and len(names) < 2:
        raise ValueError(
            f"Expected several variants for a gain over {over!r}; got {names[0]!r} alone."
        )
    parts = {name: _PARTS.split(name) for name in names}
    if not over:
        first = parts[names[0]]
        alike = {name for name in names if len(parts[name]) == len(first) > 1}
        # Of two things that vary, one changes at a time.
        near = [n for n in names if sum(a != b for a, b in zip(parts[n], first, strict=False)) == 1]
        return dict.fromkeys(near if len(alike) == len(names) else names[1:], names[0])
    if over in names:
        return {name: over for name in names if name != over}
    found = {
        name: base
        for base in names
        for before, after in _around(parts[base], _PARTS.split(over))
        for name in names
        if len(parts[name]) > len(before) + len(after)
        and parts[name][: len(before)] == before
        and parts[name][len(parts[name]) - len(after) :] == after
        and not _around(parts[name], _PARTS.split(over))
    }
    if not found:
        raise ValueError(
            f"Expected over to name one of {', '.join(map(repr, names))}, or a part of them; got "
            f"{over!r}."
        )
    return found


_PARTS = re.compile(r",? ")
"""Between the words of a variant's name."""


def _around(parts: list[str], words: list[str]) -> list[tuple[list[str], list[str]]]:
    """What stands before and after some words of a name, wherever they stand in it.

    >>> _around(["sp", "adam", "0.1"], ["adam"])
    [(['sp'], ['0.1'])]
    """
    ends = range(len(words), len(parts) + 1)
    places = [(end - len(words), end) for end in ends if parts[end - len(words) : end] == words]
    return [(parts[:start], parts[end:]) for start, end in places]


def gains(variants: Sequence[Runs], *, over: str = "", target: Size | None = None) -> list[Gain]:
    """The gain of every variant over its baseline, as ``over`` names it."""
    if len(variants) < 2:
        return []
    return gains_of(variants, baselines([each.name for each in variants], over), target=target)


def gains_of(
    variants: Sequence[Runs],
    pairs: Mapping[str, str],
    *,
    target: Size | None = None,
    looks: int = 1,
) -> list[Gain]:
    """The gains of candidates over their baselines; none of those that share no size with it.

    Intervals hold for all candidates and at all ``looks`` at once (Bonferroni). Random designs have
    none: no two of their runs stand at one size.
    """
    runs = {each.name: each for each in variants if each.sizes and not each.gathered}
    found = []
    for name, base in pairs.items():
        if name not in runs or base not in runs:
            continue
        pair = Compared(a=runs[base], b=runs[name])
        if pair.sizes:
            there = target if target is not None and pair.reaches(target) else None
            found.append(gain_of(runs[name], runs[base], target=there, among=looks * len(pairs)))
    return found


def without_gain(variants: Sequence[Runs], found: Sequence[Gain], over: str) -> tuple[Note, ...]:
    """Why candidates have no gain over the baseline that was asked for."""
    if not over:
        return ()
    runs = {each.name: each for each in variants}
    told = {gain.of for gain in found}
    return tuple(
        Note(
            text=f"No gain: {_nothing_common(runs[base], runs[name])}",
            scheme=name,
        )
        for name, base in baselines(list(runs), over).items()
        if name not in told and runs[name].sizes and runs[base].sizes
    )


def level_of(runs: Runs, target: Size) -> Estimate:
    """The tuned loss of one variant at a target, with its 90% interval."""
    pair = Compared(a=runs, b=runs)
    if not pair.sizes:
        raise ValueError(f"Expected an optimum inside the grid at some size; {runs.name} has none.")
    target = _checked(pair, target)
    course = pair.frontier(runs).course
    there = course.of(_unit(len(course.s) + 1, -1), pair.where.doublings([target]))
    return there.estimate(PREDICTION).exp("loss")


def _unit(count: int, at: int) -> Array:
    row = np.zeros((1, count))
    row[0, at] = 1.0
    return row


def _part(mixture: NormalMixture, i: int) -> NormalMixture:
    index = slice(i, i + 1)
    return NormalMixture(
        mean=mixture.mean[index], deviation=mixture.deviation[index], weight=mixture.weight[index]
    )


def _checked(pair: Compared, target: Size | None) -> Size:
    """A target that names every axis, on the way that the sizes know."""
    if target is None:
        return pair.sizes[-1]
    if unknown := [a for a in target if a not in pair.base]:
        raise ValueError(
            f"Expected a target in the axes {', '.join(pair.base)}; got {', '.join(unknown)} too."
        )
    whole = {**pair.base, **{axis: float(n) for axis, n in target.items()}}
    if not pair.reaches(whole):
        moved = [a for a, n in pair.base.items() if a not in pair.axes and whole[a] != n]
        raise ValueError(
            f"Expected a target along {' and '.join(pair.axes) or 'no axis'}, which varies among "
            f"the sizes that both have; got another {', '.join(moved)}."
        )
    return whole


def _nothing_common(a: Runs, b: Runs) -> str:
    """Why two variants have no gain."""
    both = f"{b.title} and {a.title}"
    if a.gathered or b.gathered:
        return f"{both} are random designs, no two runs of which stand at one size."
    own = [dict(size) for size in a.sizes]
    if not any(dict(size) in own for size in b.sizes):
        return f"{both} share no size: train both at the same sizes."
    return f"{both} have no size with an optimum inside both grids: extend the grids."


def _slope(pair: Compared, target: Size, confidence: float) -> Estimate:
    """Of the law, without what sizes scatter by, from base to target."""
    places = pair.where.doublings([pair.base, target])
    doublings = float(places[1].sum() - places[0].sum())
    if not doublings:
        return UNKNOWN
    row = np.concatenate([np.zeros(len(pair.sizes)), [-1.0, 1.0]])[None] / doublings
    found = pair.course.of(row, places, scatter=False)
    return found.estimate(confidence, "nats per doubling")


@dataclass(frozen=True, kw_only=True, eq=False)
class Carried:
    """What each variant loses at a size by the value that its base hands on."""

    pair: Compared

    def at(self, tuned: NormalMixture, size: Size, confidence: float) -> Estimate:
        """The gain as trained: the tuned one, less what ``b`` loses, and what ``a`` loses back."""
        if dict(size) == dict(self.pair.base):
            return tuned.estimate(confidence)
        rng = np.random.default_rng(0)
        gain = tuned.quantiles(rng.permutation(_SHARES))
        lost_a, lost_b = (
            self._lost(runs, size, rng.permutation(_SHARES)) for runs in (self.pair.a, self.pair.b)
        )
        # Where both diverge nothing is gained or lost.
        some = np.isfinite(lost_a) | np.isfinite(lost_b)
        if not some.any():
            return UNKNOWN
        gain = gain[some] + lost_a[some] - lost_b[some]
        tail = (1 - confidence) / 2
        # Between a finite and an infinite draw there is nothing.
        low, value, high = np.quantile(gain, [tail, 0.5, 1 - tail], method="inverted_cdf")
        return Estimate(value=float(value), low=float(low), high=float(high))

    def _lost(self, runs: Runs, size: Size, shares: Array) -> Array:
        """Draws of the rise at the base's value."""
        found = runs.minima
        own = [dict(runs.sizes[i]) for i in runs.trains]
        start = own.index(dict(self.pair.base))
        if dict(size) in own:
            i = own.index(dict(size))
            row = np.zeros((1, len(own)))
            row[0, start], row[0, i] = 1.0, -1.0
            away = found.posterior.of_sizes(row).quantiles(shares)
            return np.asarray(found.excess(i, away))
        place = self._place(runs, size)
        there = found.posterior.of_law(np.ones((1, 1)), place, scatter=True).quantiles(shares)
        return found.posterior.rise_at(place, float(found.at[start]) - there)

    def _place(self, runs: Runs, size: Size) -> Array:
        """A size in the doublings of a variant's posterior."""
        own = [runs.sizes[i] for i in runs.trains]
        start = runs.base or {a: min(s[a] for s in own) for a in own[0]}
        return Directions(base=start, sizes=own).doublings([size])


_SHARES = (np.arange(DRAWS) + 0.5) / DRAWS


def _worth(pair: Compared, target: Size, confidence: float) -> Iterator[tuple[str, Estimate]]:
    """By axis, how many times larger ``a`` must be at the target for the loss that ``b`` has there.

    By the slope of its own frontier over the last doubling before the target; none where that may
    be flat.
    """
    frontier = pair.frontier(pair.a).course
    place = pair.where.doublings([target])
    rng = np.random.default_rng(0)
    gain = pair.course.of(_unit(len(pair.sizes) + 1, -1), place).quantiles(rng.permutation(_SHARES))
    for number, axis in enumerate(pair.axes):
        before = place.copy()
        before[0, number] -= 1
        row = np.concatenate([np.zeros(len(pair.sizes)), [-1.0, 1.0]])[None]
        falls = frontier.of(row, np.concatenate([before, place]), scatter=False)
        slope = falls.quantiles(rng.permutation(_SHARES))
        if (slope >= 0).mean() > FLAT:
            continue
        with np.errstate(over="ignore", divide="ignore"):
            times = np.exp2(np.clip(-gain / np.minimum(slope, -1e-9), -99, 99))
        tail = (1 - confidence) / 2
        low, value, high = (float(v) for v in np.quantile(times, [tail, 0.5, 1 - tail]))
        if 1 / FARTHEST < value < FARTHEST:
            yield axis, Estimate(value=value, low=low, high=high, unit=f"times the {axis}")


def judge(
    base: Estimate, target: Estimate, slope: Estimate, share: float
) -> tuple[GainVerdict, str]:
    """The verdict on a gain by the target's interval, against that share of the base's.

    Of a lead that is the other's the same is said in mirror: it fades or crosses, or there is no
    gain at all.
    """
    verdict = GainVerdict
    if base.low > 0:
        if target.high < 0:
            return verdict.CROSSES, "At the target all of its interval lies below 0."
        if target.low > share * base.value:
            grows = slope.known and slope.low > 0
            why = f"At the target all of its interval lies above {share:g} of the base's."
            return (verdict.GROWS if grows else verdict.HOLDS), why
        if target.high < share * base.value:
            return (
                verdict.FADES,
                f"At the target all of its interval lies below {share:g} of the base's.",
            )
        return verdict.UNDECIDED, f"The target's interval holds {share:g} of the base's gain."
    if base.high < 0:
        if target.low > 0:
            return verdict.CROSSES, "It is worse at the base, and better at the target."
        if target.high < 0:
            return verdict.WORSE, "It is worse at the base, and at the target."
        return verdict.UNDECIDED, "It is worse at the base; the target's interval holds 0."
    if target.high < 0:
        return verdict.WORSE, "There is no gain at the base, and at the target it is worse."
    if target.low > max(share * base.value, 0.0) and slope.known and slope.low > 0:
        return verdict.GROWS, "There is none at the base that is clear, and one at the target."
    return verdict.UNDECIDED, "The base's interval holds 0: there is no gain yet that could hold."


def _reservations(pair: Compared) -> Iterator[str]:
    """Why a gain may not be what it seems."""
    a, b = pair.a, pair.b
    counts = []
    for runs in (a, b):
        tried = (~np.isnan(runs.curves.losses)).any(-1).sum(-1)
        counts.append(int(tried.sum()))
        if (tried < 2).all():
            yield f"One value was tried for {runs.title}: the gain may be its tuning."
        edges = [s for s, p in zip(runs.sizes, runs.optima.places(), strict=True) if p.at_edge]
        if edges:
            some = ", ".join(size_text(size) for size in edges[:3])
            yield (
                f"The grid of {runs.title} ends at its optimum at {some}"
                f"{' and elsewhere' if len(edges) > 3 else ''}: these sizes are left out."
            )
        if any(p is Place.FAILED for p in runs.optima.places()):
            yield f"{runs.title} does not train at every size."
    if max(counts) > 1.5 * min(counts):
        fewer, more = (a, b) if counts[0] < counts[1] else (b, a)
        yield (
            f"{fewer.title} was tuned on {min(counts)} values, {more.title} on {max(counts)}: "
            "the one with more was searched more finely."
        )
    if not pair.paired:
        yield "Seeds are not paired: intervals are wider than with the same seeds for both."
    if pair.course.seeds.freedom < 1:
        yield "With one seed, intervals rest on how sizes scatter."
