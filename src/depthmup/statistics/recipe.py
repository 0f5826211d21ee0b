"""From runs with several tuned values to a recipe: joint optima, drifts, costs and verdicts."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import TypeAlias

import numpy as np

from depthmup.posterior.bowl import lowest
from depthmup.posterior.intervals import CONFIDENCE, Array, Index
from depthmup.posterior.law import Size
from depthmup.posterior.mixture import NormalMixture
from depthmup.posterior.recipe import RecipePosterior
from depthmup.records import UNKNOWN, Estimate, Place, Tuned, Verdict
from depthmup.records.finding import change, change_span, verdict_of
from depthmup.records.judgement import Answer, Judgement
from depthmup.records.recipe import Contour, Recipe, RecipeAlong, RecipeOptimum, RecipeRun, combined
from depthmup.statistics.drift import drift_unit
from depthmup.statistics.minimum import doublings_of
from depthmup.statistics.study import Claim, answer, judgement
from depthmup.statistics.table import slices

MARGIN = 0.02
"""Excess loss, as a fraction, below which a whole recipe costs nothing to carry over."""

PREDICTION = 0.9
"""Of intervals at a target."""

DRAWS = 1200
"""Of minima and shapes, for costs."""

SIMPLE = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Exponents of combinations that a person can use."""

NEARLY = 1.25
"""Times the least deviation of any combination that a simple one may have."""

FAR_BETTER = 0.5
"""Of the deviation of the best-known single value: a combination is only told if it has less."""

RAISED = 0.01
"""Nats above the best loss at which contours are drawn."""

CORNERS, FEW = 240, 96
"""Corners of a contour, of two values and of more, whose least heights take longer."""

SHARP = 1e-5
"""Of what is drawn: how near a contour is to its height."""

FOLLOWED = 240
"""Draws for the cost of following a published rule: an interval's ends to a fifth of their size."""

Claims: TypeAlias = Callable[[str, Tuned], Iterable[Claim]]
"""What published rules say of a value along an axis."""


def _nobody(axis: str, one: Tuned) -> tuple[Claim, ...]:
    return ()


def recipe(
    found: RecipePosterior,
    sizes: Sequence[Size],
    tuned: Sequence[Tuned],
    *,
    name: str,
    title: str,
    tolerance: float,
    target: Size | None = None,
    notes: Sequence[str] = (),
    claims: Claims = _nobody,
) -> Recipe:
    """The recipe of one variant by its posterior; ``sizes`` are those of its runs.

    ``claims`` are what published rules say of a value along an axis.
    """
    trials = found.trials
    exponents = _combination(found)
    optima = _optima(found, sizes, exponents)
    largest = int(np.argmax(trials.s.sum(-1)))
    axes = _varied(sizes)
    along = tuple(
        replace(
            each,
            rules=_rules(found, sizes, tuned, optima, each, name, tolerance, claims),
        )
        for each in _moves(found, sizes, tuned, optima, exponents, tolerance)
    )
    return Recipe(
        name=name,
        title=title,
        tuned=tuple(tuned),
        exponents=exponents,
        optima=optima,
        along=along,
        factor_two=_factor_two(found, largest),
        target=None if target is None else _at(found, sizes, target, exponents),
        noise=found.noise,
        tolerance=tolerance,
        runs=tuple(
            RecipeRun(
                size=dict(sizes[i]), log2=tuple(map(float, x)), loss=float(np.exp(y)), seed=int(j)
            )
            for i, x, y, j in zip(trials.size, trials.x, trials.y, trials.seed, strict=True)
        ),
        contours=_contours(found, sizes),
        raised=math.expm1(RAISED),
        notes=(*notes, *_unmoved(sizes, axes, along)),
    )


def moves(
    found: RecipePosterior, sizes: Sequence[Size], tuned: Sequence[Tuned], tolerance: float
) -> tuple[RecipeAlong, ...]:
    """How the joint optimum moves along every axis, with verdicts; no costs of single values."""
    exponents = _combination(found)
    optima = _optima(found, sizes, exponents)
    return _moves(found, sizes, tuned, optima, exponents, tolerance, alone=False)


def _varied(sizes: Sequence[Size]) -> list[str]:
    return [a for a in sizes[0] if len({size[a] for size in sizes}) > 1]


def _moves(
    found: RecipePosterior,
    sizes: Sequence[Size],
    tuned: Sequence[Tuned],
    optima: Sequence[RecipeOptimum],
    exponents: Sequence[float],
    tolerance: float,
    *,
    alone: bool = True,
) -> tuple[RecipeAlong, ...]:
    arms = ((axis, _arms(sizes, axis)) for axis in _varied(sizes))
    return tuple(
        _along(found, sizes, tuned, optima, exponents, axis, members, tolerance, alone=alone)
        for axis, members in arms
        if members
    )


def _log2(sizes: Sequence[Size]) -> Array:
    return np.asarray(np.log2([[float(size[a]) for a in sizes[0]] for size in sizes]), float)


def _combination(found: RecipePosterior) -> tuple[float, ...]:
    """Exponents of the combination that is known best, where it is known far better than values.

    Simple ones where these are as good; the largest is 1.
    """
    covariance = found.covariance.mean(0)
    values = len(covariance)
    lengths, vectors = np.linalg.eigh(covariance)
    single = float(np.sqrt(np.diag(covariance).min()))

    def deviation(weights: Array) -> float:
        return float(np.sqrt(weights @ covariance @ weights / (weights @ weights)))

    if deviation(vectors[:, 0]) > FAR_BETTER * single:
        return ()
    simple = [
        np.array(row)
        for row in product(SIMPLE, repeat=values)
        if max(map(abs, row)) == 1 and next(w for w in row if w) > 0
    ]
    best = min(simple, key=lambda row: (round(deviation(row), 9), -np.abs(row).sum()))
    if deviation(best) <= NEARLY * np.sqrt(max(lengths[0], 0.0)):
        return tuple(map(float, best))
    exact = vectors[:, 0] / vectors[np.abs(vectors[:, 0]).argmax(), 0]
    return tuple(float(round(w, 2)) for w in exact)


def _estimates(
    mixture: NormalMixture, unit: str = "", confidence: float = CONFIDENCE
) -> list[Estimate]:
    ends = zip(*mixture.interval(confidence), strict=True)
    return [Estimate(value=float(m), low=float(a), high=float(b), unit=unit) for a, m, b in ends]


def _rows(values: int, exponents: Sequence[float]) -> Array:
    """Weights of every value, and of the combination."""
    return np.concatenate(
        [np.eye(values), np.array(exponents or np.zeros((0, values))).reshape(-1, values)]
    )


def _optima(
    found: RecipePosterior, sizes: Sequence[Size], exponents: Sequence[float]
) -> tuple[RecipeOptimum, ...]:
    trials, values = found.trials, found.trials.values
    rows = _rows(values, exponents)
    every = np.concatenate([np.kron(np.eye(len(sizes))[i], rows) for i in range(len(sizes))])
    told = _estimates(found.minima.of_sizes(every))
    result = []
    for i, size in enumerate(sizes):
        own = told[i * len(rows) : (i + 1) * len(rows)]
        x = trials.x[trials.size == i]
        places, free = [], []
        for estimate, low, high in zip(own[:values], x.min(0), x.max(0), strict=True):
            beyond = Place.LOW_EDGE if estimate.value < low else Place.HIGH_EDGE
            places.append(Place.INTERIOR if low <= estimate.value <= high else beyond)
            free.append(bool(estimate.high - estimate.low >= high - low))
        result.append(
            RecipeOptimum(
                size=dict(size),
                log2=tuple(own[:values]),
                combination=own[values] if exponents else UNKNOWN,
                places=tuple(places),
                free=tuple(free),
            )
        )
    return tuple(result)


def _at(
    found: RecipePosterior, sizes: Sequence[Size], target: Size, exponents: Sequence[float]
) -> RecipeOptimum:
    """The joint optimum at a size that was not trained: of the law, with its scatter."""
    trained = _log2(sizes)
    place = _log2([sizes[0], target])[1:] - trained.min(0)
    place = place[:, np.ptp(trained, axis=0) > 0]
    values = found.trials.values
    rows = _rows(values, exponents)
    told = _estimates(found.minima.of_law(rows, place, scatter=True), confidence=PREDICTION)
    return RecipeOptimum(
        size=dict(target),
        log2=tuple(told[:values]),
        combination=told[values] if exponents else UNKNOWN,
        places=(Place.INTERIOR,) * values,
        free=(False,) * values,
    )


def _values_of(sizes: Sequence[Size]) -> Array:
    return np.array([[size[a] for a in sizes[0]] for size in sizes], float)


def _arms(sizes: Sequence[Size], axis: str) -> list[Index]:
    """Sizes that differ along one axis alone, increasing; all where others grow in step with it."""
    if found := slices(_values_of(sizes), list(sizes[0]).index(axis)):
        return found
    s = doublings_of(sizes)
    if np.linalg.matrix_rank(s - s.mean(0), tol=1e-6) == 1:
        return [np.array(sorted(range(len(sizes)), key=lambda i: sizes[i][axis]), np.int64)]
    return []


def _slope(sizes: Sequence[Size], axis: str, arms: Sequence[Index]) -> Array:
    """Weights of all sizes in the least-squares slope that slices share."""
    row = np.zeros(len(sizes))
    for members in arms:
        x = np.log2([sizes[i][axis] for i in members])
        row[members] += x - x.mean()
    return np.asarray(row / (row @ row))


def _spread(slope: Array, rows: Array) -> Array:
    """Weights of values, (answers, values), at every size, (answers, sizes * values)."""
    return np.asarray(np.kron(slope, rows), float)


def _along(
    found: RecipePosterior,
    sizes: Sequence[Size],
    tuned: Sequence[Tuned],
    optima: Sequence[RecipeOptimum],
    exponents: Sequence[float],
    axis: str,
    arms: Sequence[Index],
    tolerance: float,
    *,
    alone: bool,
) -> RecipeAlong:
    values = found.trials.values
    slope = _slope(sizes, axis, arms)
    mixture = found.minima.of_sizes(_spread(slope, _rows(values, exponents)))
    told = _estimates(mixture)
    units = [drift_unit(axis, one) for one in tuned]
    drifts = tuple(
        Estimate(value=e.value, low=e.low, high=e.high, unit=unit)
        for e, unit in zip(told, units, strict=False)
    )
    free = _free(optima, arms)
    verdicts = tuple(
        Verdict.UNDECIDED if loose else verdict_of(drift, -tolerance, tolerance)
        for drift, loose in zip(drifts, free, strict=True)
    )
    longest = max(arms, key=lambda m: sizes[m[-1]][axis] / sizes[m[0]][axis])
    base, largest = int(longest[0]), int(longest[-1])
    carried, costs = _carried(found, base, largest, alone=alone)
    verdict, why = _judged(found, tuned, drifts, verdicts, free, carried, slope, axis, tolerance)
    return RecipeAlong(
        axis=axis,
        base=dict(sizes[base]),
        largest=dict(sizes[largest]),
        drifts=drifts,
        verdicts=verdicts,
        combination=told[values] if exponents else UNKNOWN,
        carried=carried,
        alone=costs,
        verdict=verdict,
        why=why,
    )


def _free(optima: Sequence[RecipeOptimum], arms: Sequence[Index]) -> list[bool]:
    """Values that the runs bound at fewer than half of the sizes along an axis."""
    used = sorted({int(i) for members in arms for i in members})
    return [sum(free) * 2 > len(used) for free in zip(*(optima[i].free for i in used), strict=True)]


def _cost(nats: Array) -> Estimate:
    """The median of excess losses as fractions, with its interval."""
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(over="ignore"):  # far up a wall a loss has no bound
        low, value, high = np.expm1(np.quantile(nats, [tail, 0.5, 1 - tail]))
    return Estimate(value=float(value), low=float(low), high=float(high), unit="fraction of loss")


def _carried(
    found: RecipePosterior, base: int, largest: int, *, alone: bool
) -> tuple[Estimate, tuple[Estimate, ...]]:
    """Excess loss at one size with another's recipe, and with each value of it."""
    values, rng = found.trials.values, np.random.default_rng(0)
    rows = np.zeros((values, found.trials.sizes, values))
    for value in range(values):
        rows[value, base, value], rows[value, largest, value] = 1.0, -1.0
    away = found.minima.draws(rows.reshape(values, -1), DRAWS, rng)
    asked = range(values) if alone else ()
    whole, *each = found.drawn(found.trials.s[[largest]], away, rng, alone=asked)
    return _cost(whole), tuple(map(_cost, each)) if alone else ()


def _rules(
    found: RecipePosterior,
    sizes: Sequence[Size],
    tuned: Sequence[Tuned],
    optima: Sequence[RecipeOptimum],
    along: RecipeAlong,
    name: str,
    tolerance: float,
    claims: Claims,
) -> tuple[tuple[Judgement, ...], ...]:
    """The published rules that speak of every value along an axis, judged by its drift.

    None where other axes grow in step with this one. A value that the runs do not bound tells
    nothing of any rule.
    """
    arms = slices(_values_of(sizes), list(sizes[0]).index(along.axis))
    if not arms:
        return tuple(() for _ in tuned)
    free = _free(optima, arms)
    base, largest = (list(map(dict, sizes)).index(dict(s)) for s in (along.base, along.largest))
    doublings = math.log2(along.largest[along.axis] / along.base[along.axis])
    result = []
    for value, (one, drift) in enumerate(zip(tuned, along.drifts, strict=True)):
        spoken = list(claims(along.axis, one))
        moved = np.array([float(claim.exponent) * doublings for claim in spoken])
        costs = _followed(found, base, largest, value, moved)
        answers = [
            Answer.UNDECIDED if free[value] else answer(drift, float(claim.exponent), tolerance)
            for claim in spoken
        ]
        told = zip(spoken, answers, costs, strict=True)
        result.append(tuple(judgement(name, along.axis, *each) for each in told))
    return tuple(result)


def _followed(
    found: RecipePosterior, base: int, largest: int, value: int, moved: Array
) -> list[Estimate]:
    """Excess loss at one size with another's value moved by some octaves, others tuned again."""
    if not len(moved):
        return []
    values, rng = found.trials.values, np.random.default_rng(0)
    row = np.zeros((found.trials.sizes, values))
    row[base, value], row[largest, value] = 1.0, -1.0
    away = found.minima.draws(row.reshape(1, -1), FOLLOWED, rng)[:, 0]
    every = np.zeros((FOLLOWED * len(moved), values))
    # Neighbours share a shape: rules alternate, so that each has all shapes.
    every[:, value] = (away[:, None] + moved).ravel()
    nats = found.drawn(found.trials.s[[largest]], every, rng, alone=(value,))[1 + value]
    return [_cost(own) for own in nats.reshape(FOLLOWED, -1).T]


def _factor_two(found: RecipePosterior, size: int) -> tuple[Estimate, ...]:
    values, rng = found.trials.values, np.random.default_rng(0)
    sides = np.repeat([-1.0, 1.0], DRAWS // 2)[:, None] * np.ones(values)
    # Neighbours share a shape: sides alternate, so that each shape has both.
    sides = sides.reshape(2, -1, values).swapaxes(0, 1).reshape(-1, values)
    _, *alone = found.drawn(found.trials.s[[size]], sides, rng, alone=range(values))
    return tuple(_cost(nats.reshape(-1, 2).mean(-1)) for nats in map(np.asarray, alone))


def _judged(
    found: RecipePosterior,
    tuned: Sequence[Tuned],
    drifts: Sequence[Estimate],
    verdicts: Sequence[Verdict],
    free: Sequence[bool],
    carried: Estimate,
    slope: Array,
    axis: str,
    tolerance: float,
) -> tuple[Verdict, str]:
    """The recipe's verdict along an axis.

    One value that drifts is enough, or one combination that the runs bound. Values that are
    undecided alone hold nothing up where every bounded combination stays and carrying the whole
    recipe over costs nothing.
    """
    inside = change_span(-tolerance, tolerance)
    named = list(zip(tuned, drifts, verdicts, strict=True))
    known = bounded(found)
    # Their drifts count in octaves of the plane: of combinations of unit length.
    moves = _estimates(found.minima.of_sizes(_spread(slope, known))) if len(known) else []
    judged = [verdict_of(move, -tolerance, tolerance) for move in moves]
    if drifting := [(one.name, d) for one, d, v in named if v is Verdict.DRIFTS]:
        return Verdict.DRIFTS, f"Per doubling of {axis} the best {_moving(drifting)}."
    words = [combined(tuple(tuned), _scaled(way)) for way in known]
    lengths = [float(np.abs(way).max()) for way in known]
    if drifting := [
        (what, _times(move, 1 / length))
        for what, move, length, v in zip(words, moves, lengths, judged, strict=True)
        if v is Verdict.DRIFTS
    ]:
        return Verdict.DRIFTS, f"Per doubling of {axis} the best {_moving(drifting)}."
    if all(v is Verdict.TRANSFERS for v in verdicts):
        return Verdict.TRANSFERS, f"Every best value stays within {inside} per doubling of {axis}."
    open_ = [one.name for one, _, v in named if v is Verdict.UNDECIDED]
    apart = f"The runs do not decide the {' and the '.join(open_)} alone."
    if len(known) and all(v is Verdict.TRANSFERS for v in judged) and carried.high < MARGIN:
        return Verdict.TRANSFERS, (
            f"{apart} The best {' and '.join(words)} stays, and the base's recipe costs at most "
            f"{carried.high:.1%} of the loss at the largest size."
        )
    loose = [one.name for one, is_free in zip(tuned, free, strict=True) if is_free]
    if open_ := [name for name in open_ if name not in loose]:
        return Verdict.UNDECIDED, (
            f"The interval of the best {' and '.join(open_)} per doubling of {axis} is neither "
            f"inside nor outside {inside}."
        )
    unbounded = f"The runs do not bound the {' and the '.join(loose)} alone."
    if not len(known):
        return Verdict.UNDECIDED, f"{unbounded} No combination is known either."
    return Verdict.UNDECIDED, (
        f"{unbounded} What the base's recipe costs is not known well enough: "
        f"{carried.low:.1%} to {carried.high:.1%}."
    )


def bounded(found: RecipePosterior) -> Array:
    """Combinations of unit length that the runs bound, (combinations, values), the best first."""
    lengths, vectors = np.linalg.eigh(found.covariance.mean(0))
    most = np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0)
    vectors = vectors * np.sign(most)
    reach = np.linalg.norm(np.ptp(found.trials.x, axis=0)) / math.sqrt(len(lengths))
    return np.asarray(vectors.T[2 * 1.96 * np.sqrt(np.maximum(lengths, 0.0)) < reach / 2], float)


def _scaled(way: Array) -> tuple[float, ...]:
    """Exponents of which the largest is 1; small ones are none."""
    exponents = way / way[np.abs(way).argmax()]
    return tuple(float(round(w, 1)) for w in exponents)


def _times(estimate: Estimate, scale: float) -> Estimate:
    ends = (scale * end for end in (estimate.low, estimate.value, estimate.high))
    low, value, high = ends
    return Estimate(value=value, low=low, high=high)


def _moving(moves: Sequence[tuple[str, Estimate]]) -> str:
    return " and ".join(
        f"{what} moves by {change(move.value)} ({change_span(move.low, move.high)})"
        for what, move in moves
    )


def _contours(found: RecipePosterior, sizes: Sequence[Size]) -> tuple[Contour, ...]:
    """Where the loss is ``RAISED`` above its best, as far as the runs reach, of every pair.

    Other values are at their best there: what is drawn is the valley's shadow on the plane.
    """
    angles = np.linspace(0, 2 * math.pi, (CORNERS if found.trials.values == 2 else FEW) + 1)
    around = np.tile(np.column_stack([np.cos(angles), np.sin(angles)]), (len(sizes), 1))
    places = np.repeat(found.trials.s, len(angles), 0)
    reach = float(np.ptp(found.trials.x, axis=0).max())
    result = []
    for pair in combinations(range(found.trials.values), 2):
        low, high = np.zeros(len(around)), np.full(len(around), reach)
        while (high - low).max() > SHARP * reach:
            middle = (low + high) / 2
            below = lowest(found.bowl, pair, around * middle[:, None], places) < RAISED
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        corners = np.repeat(found.middle[:, list(pair)], len(angles), 0) + around * low[:, None]
        for size, points in zip(sizes, np.split(corners, len(sizes)), strict=True):
            ends = tuple((float(a), float(b)) for a, b in points)
            result.append(Contour(size=dict(size), points=ends, pair=pair))
    return tuple(result)


def _unmoved(sizes: Sequence[Size], axes: Sequence[str], along: Sequence[RecipeAlong]) -> list[str]:
    """A sentence on axes along which no drift can be told."""
    told = {each.axis for each in along}
    lacking = [axis for axis in axes if axis not in told]
    if not lacking:
        return []
    return [f"No two sizes differ in {' or '.join(lacking)} alone, so their drift is not told."]
