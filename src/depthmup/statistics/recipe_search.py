"""What a search for joint optima of several values asks for, and where it stands.

The cheapest size begins with a cross and corners about a person's own values, and walks downhill
where the best run lies at their edge. Every other size begins at the optimum that smaller ones
predict, with a run on either side along each principal direction of the valley. Where all sizes
have their optimum and the verdict is open, what comes next narrows the asked answer most for its
cost: seeds at a size, or runs nearer or farther along a direction. No full grid is ever asked for.

What is asked for follows from the losses alone, as in ``statistics.next_run``.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, product

import numpy as np

from depthmup.posterior.bowl import heights
from depthmup.posterior.curve import average
from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.posterior.law import Size
from depthmup.posterior.recipe import RecipePosterior, recipe_posterior
from depthmup.posterior.trials import Guess, Trials, first_guess
from depthmup.records import Tuned, Verdict
from depthmup.records.finding import change_span
from depthmup.records.recipe import RecipeAlong
from depthmup.records.search import Values
from depthmup.records.text import counted
from depthmup.statistics.bracket import GRAIN
from depthmup.statistics.drift import TOLERANCE
from depthmup.statistics.minimum import doublings_of
from depthmup.statistics.next_run import CERTIFIED, FEWEST
from depthmup.statistics.recipe import MARGIN, bounded, moves
from depthmup.statistics.search import LOOKS, MOST_SEEDS, Ask, Round

CROSS, CORNER = 2.0, 1.5
"""Octaves from a person's own values at which the cheapest size is tried first."""

STEP = 2.0
"""Octaves by which the search goes on where the best run lies at the edge."""

NEAREST, FARTHEST = 1.0, 3.0
"""Octaves from a predicted optimum at which its sides are tried."""

RISE = 0.04
"""Nats by which a side is to be higher, between these distances."""

ALONGSIDE, HALFWAY = (0.5, math.inf), (0.25, 0.75)
"""Of that distance: a run that lies so far to one side shows it; and its beginning."""

NEAR = 0.4
"""Octaves within which a run is not repeated beside another one."""

MOST_WALKS = 8
"""Rounds in which the first size may walk downhill."""

MOST_MOVES = 3
"""Times that a size is tried anew about a better estimate of its optimum."""

SCALES = (0.5, 1.5)
"""Of the usual distance, at which a direction may be tried, too."""

GRID_VALUES, GRID_SEEDS = 9, 3
"""Of every value, and of every run: the full grid to which a search is compared."""

SHARE = 0.1
"""Of that grid: a search that is open after so many runs ends, unless a budget names more."""

AT_ONCE = 1 / 3
"""Of the runs so far, that a round which narrows has: later ones follow from its losses."""

Losses = Mapping[tuple[float, ...], Sequence[float]]
"""One size's losses by the log2 of all values, each by seed."""


@dataclass(frozen=True, kw_only=True)
class RecipeSearch:
    """What is searched, the joint optima of one scheme and how they move; and where it stands.

    Attributes:
        sizes, costs, base, axes, seeds, tolerance, complete, chance, grain: as in ``Search``.
        start: log2 of every value at which the search starts.
        tuned: the values.
        most_values: log2 of the largest that is tried of every value; by default what it can be.
        price: of a run, by the index of its size and its log2 values; by default its size's cost.
        most: runs of the whole search, where a person names them.
        losses: of every size, so far.
    """

    sizes: tuple[Size, ...]
    costs: tuple[float, ...]
    base: Size
    axes: tuple[str, ...]
    start: tuple[float, ...]
    tuned: tuple[Tuned, ...]
    seeds: int = MOST_SEEDS
    tolerance: float = TOLERANCE
    complete: bool = False
    chance: float = math.inf
    grain: float = GRAIN
    most_values: tuple[float, ...] = ()
    price: Callable[[int, Values], float] | None = field(default=None, compare=False, repr=False)
    most: int | None = None
    losses: Sequence[Losses] = field(default=(), repr=False)

    @property
    def runs(self) -> int:
        """So far."""
        return sum(len(row) for of_size in self.losses for row in of_size.values())

    @property
    def limit(self) -> int:
        """Runs that it may take to narrow an answer."""
        grid = GRID_VALUES**self.values * GRID_SEEDS * len(self.sizes)
        return self.most or int(SHARE * grid)

    @property
    def values(self) -> int:
        return len(self.tuned)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Indices of sizes, the cheapest first."""
        return tuple(sorted(range(len(self.sizes)), key=lambda i: (self.costs[i], i)))

    @cached_property
    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds that a size may have."""
        return (*(look for look in LOOKS if look < self.seeds), self.seeds)

    def arm(self, axis: str) -> list[int]:
        """Indices of the sizes along an axis, the others at the base's, in increasing order."""
        along = [
            i
            for i, size in enumerate(self.sizes)
            if all(size[other] == self.base[other] for other in self.base if other != axis)
        ]
        return sorted(along, key=lambda i: self.sizes[i][axis])

    def named(self, i: int) -> str:
        """A size in words."""
        varied = [a for a in self.base if len({size[a] for size in self.sizes}) > 1]
        return ", ".join(f"{a} {self.sizes[i][a]}" for a in varied or self.base)

    @cached_property
    def recipe_name(self) -> str:
        """The values in words."""
        *others, last = (one.name for one in self.tuned)
        return f"{', '.join(others)} and {last}"

    # Places of one size.

    def places(self, i: int) -> Array:
        """log2 of what was tried at a size, (places, values)."""
        return np.array(list(self.losses[i]), float).reshape(-1, self.values)

    def levels(self, i: int) -> Array:
        """Their average log losses, infinite where a run diverged or nothing is learned."""
        rows = [np.asarray(row, float) for row in self.losses[i].values()]
        if not rows:
            return np.zeros(0)
        values = np.full((len(rows), max(map(len, rows))), math.nan)
        for at, row in enumerate(rows):
            values[at, : len(row)] = row
        with np.errstate(invalid="ignore", divide="ignore"):
            found = average(np.log(values))
        return np.where(found < math.log(self.chance), found, math.inf)

    def seeds_at(self, i: int) -> Index:
        """The seeds of every place of a size."""
        counts = [int((~np.isnan(np.asarray(row, float))).sum()) for row in self.losses[i].values()]
        return np.array(counts, np.int64)

    def trains(self, i: int) -> bool:
        """Whether any run of a size does."""
        return bool(np.isfinite(self.levels(i)).any())

    def rounded(self, places: Array) -> Array:
        """Places on the grain, within what values can be."""
        start = np.array(self.start)
        most = np.array(self.most_values or [math.log2(one.most) for one in self.tuned])
        steps = np.round((np.atleast_2d(places) - start) / self.grain)
        found = np.minimum(start + steps * self.grain, most)
        whole = np.array([one.is_whole for one in self.tuned])
        found[:, whole] = np.log2(np.maximum(np.round(2.0 ** found[:, whole]), 1.0))
        return np.asarray(np.round(found, 9))

    def cost(self, i: int, values: Values) -> float:
        """Of a run at a size."""
        return self.price(i, values) if self.price else self.costs[i]

    def best(self, i: int) -> tuple[float, ...]:
        """The best place of a size so far; the start before it has runs."""
        levels = self.levels(i)
        return tuple(map(float, self.places(i)[levels.argmin()])) if len(levels) else self.start

    def asks(self, i: int, places: Array, seeds: int, *, anew: bool = False) -> tuple[Ask, ...]:
        """The missing ones of the first seeds at some places; near others only if ``anew``."""
        found: dict[Ask, None] = {}
        have = self.places(i)
        for place in self.rounded(places):
            if not anew and len(have) and np.abs(have - place).max(-1).min() < NEAR:
                place = have[np.abs(have - place).max(-1).argmin()]
            first, *others = map(float, place)
            row = np.asarray(self.losses[i].get((first, *others), ()), float)
            for seed in range(seeds):
                if seed >= len(row) or np.isnan(row[seed]):
                    ask = Ask(size=i, log2_lr=first, beside=tuple(others), seed=seed)
                    found[ask] = None
        return tuple(found)

    def trials(self, sizes: Sequence[int]) -> Trials:
        """All runs of some sizes, as the posterior takes them."""
        runs = sorted(
            (number, place, seed, float(loss))
            for number, i in enumerate(sizes)
            for place, row in self.losses[i].items()
            for seed, loss in enumerate(row)
            if not math.isnan(loss)
        )
        size, place, seed, loss = zip(*runs, strict=True)
        return Trials(
            x=np.array(place, float),
            y=np.log(np.array(loss)),
            size=np.array(size, np.int64),
            seed=np.array(seed, np.int64),
            s=doublings_of([self.sizes[i] for i in sizes]),
        )

    def known(self, sizes: Sequence[int]) -> "Known":
        """What some sizes show, kept from one round to the next."""
        rows = (tuple((k, tuple(row)) for k, row in self.losses[i].items()) for i in sizes)
        key = (self.sizes, tuple(sizes), self.tuned, self.tolerance, *rows)
        text = repr(key)
        if text not in _KNOWN:
            while len(_KNOWN) >= REMEMBERED:
                del _KNOWN[next(iter(_KNOWN))]
            _KNOWN[text] = Known(search=self, reached=tuple(sizes))
        return _KNOWN[text]


REMEMBERED = 32
_KNOWN: dict[str, "Known"] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What some sizes show of the valley, and of how its minimum moves."""

    search: RecipeSearch
    reached: tuple[int, ...]

    @cached_property
    def found(self) -> RecipePosterior:
        return recipe_posterior(self.search.trials(self.reached))

    @cached_property
    def along(self) -> tuple[RecipeAlong, ...]:
        """By axis, with verdicts."""
        sizes = [self.search.sizes[i] for i in self.reached]
        return moves(self.found, sizes, self.search.tuned, self.search.tolerance)

    @cached_property
    def valley(self) -> "Valley":
        """By the posterior; by a parabola of a single size."""
        if len(self.reached) == 1:
            return valley_of_one(first_guess(self.search.trials(self.reached)))
        return valley_of(self.found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Valley:
    """What is known of the valley at some sizes: where it is lowest, its directions and sides.

    Attributes:
        middle: log2 of the joint optima, (sizes, values).
        directions: principal ones as rows.
        reach: octaves along each at which its sides are tried, (values,).
    """

    middle: Array
    directions: Array
    reach: Array

    def around(self, centre: Array, scale: float = 1.0) -> Array:
        """A place and its sides, (1 + 2 values, values)."""
        away = scale * self.reach[:, None] * self.directions
        return np.concatenate([centre[None], centre + away, centre - away])

    def sides(
        self, centre: Array, places: Array, between: tuple[float, float] = ALONGSIDE
    ) -> Flags:
        """Which sides of a place others show, so far away as a share of the reach, (2, values)."""
        along = (places - centre) @ self.directions.T / self.reach
        low, high = between
        shown = [((low <= side) & (side <= high)).any(0) for side in (along, -along)]
        return np.asarray(np.stack(shown), bool)


def valley_of(found: RecipePosterior) -> Valley:
    """By the posterior of two sizes or more."""
    s = found.trials.s.mean(0)[None]
    directions = found.bowl.rotations(s)[0][0]

    def rise(way: Array, far: float) -> float:
        both = np.stack([way, -way]) * far
        return float(heights(found.bowl, both, np.repeat(s, 2, 0)).height.mean())

    return Valley(middle=found.middle, directions=directions, reach=_reach(directions, rise))


def valley_of_one(guess: Guess) -> Valley:
    """By a parabola of one size."""
    curvatures, directions = guess.directions
    rises = dict(zip(map(tuple, directions), curvatures, strict=True))
    reach = _reach(directions, lambda way, far: float(rises[tuple(way)]) * far**2 / 2)
    return Valley(middle=guess.centre, directions=directions, reach=reach)


def _reach(directions: Array, rise: Callable[[Array, float], float]) -> Array:
    steps = np.arange(NEAREST, FARTHEST + 0.25, 0.25)
    return np.array(
        [next((far for far in steps if rise(way, far) >= RISE), FARTHEST) for way in directions]
    )


def next_recipes(search: RecipeSearch, losses: Sequence[Losses]) -> Round:
    """The runs that tell most next, from the cheapest size to the largest; none at the end."""
    search = replace(search, losses=losses)
    ended: dict[str, str] = {}  # axes along which no larger size is needed, and why
    reached: list[int] = []
    for i in search.order:
        arms = [axis for axis in search.axes if i in search.arm(axis)]
        if reached and arms and all(axis in ended for axis in arms):
            continue
        step = _at_size(search, i, reached) if reached else _first_size(search, i)
        if step is not None:
            return step
        if not search.trains(i):
            if not reached:
                return Round(why=f"{search.named(i)}: no {search.recipe_name} train.")
            ended |= {axis: f"{search.named(i)} does not train" for axis in arms}
            continue
        reached.append(i)
        if len(reached) >= FEWEST and not search.complete:
            found = search.known(reached).along
            drifting = {a.axis for a in found if a.verdict is Verdict.DRIFTS}
            ended |= {axis: "drifts" for axis in arms if axis in drifting}
    if len(reached) < 2:
        return Round(why="fewer than two sizes have an optimum.")
    return _sharpen(search, search.known(reached), ended)


def _round(search: RecipeSearch, asks: tuple[Ask, ...], why: str, at: int) -> Round:
    """A round, and the cost of the sizes that follow."""
    later = search.order[search.order.index(at) + 1 :]
    new = [j for j in later if not search.losses[j]]
    runs, best = (1 + 2 * search.values) * search.looks[0], search.best(at)
    return Round(
        asks=asks,
        why=f"{search.named(at)}: {why}",
        rest=runs * math.fsum(search.cost(j, best) for j in new),
    )


def cross_and_corners(values: int) -> Array:
    """Octaves from the start, the start itself first."""
    each = np.eye(values)
    corners = np.array(list(product((-CORNER, CORNER), repeat=values)))
    return np.concatenate([np.zeros((1, values)), CROSS * each, -CROSS * each, corners])


def _first_size(search: RecipeSearch, i: int) -> Round | None:
    """The cheapest size: a cross and corners, a walk downhill, and the sides of its optimum."""
    start = np.array(search.start)
    first = search.rounded(start + cross_and_corners(search.values))
    if asks := search.asks(i, first, 1, anew=True):
        return _round(search, asks, "a cross and corners about your values", i)
    if not search.trains(i):
        # Rates that diverge are the usual reason.
        lower = search.places(i).min(0)
        if (start - lower).max() < MOST_WALKS * STEP:
            asks = search.asks(i, (lower - STEP)[None], 1, anew=True)
            return _round(search, asks, "lower, to values that train", i)
        return None
    places, levels = search.places(i), search.levels(i)
    walked = len(places) - len(first) < MOST_WALKS * (2**search.values - 1)
    if walked and (asks := search.asks(i, _downhill(search, places, levels), 1, anew=True)):
        return _round(search, asks, "on to its optimum", i)
    valley = search.known([i]).valley
    if step := _about(search, i, valley, 0, "its optimum"):
        return step
    return _shape(search, i, valley)


def _most_places(search: RecipeSearch) -> int:
    """Places with seeds from which on a size's estimate may move as it likes."""
    return (1 + 2 * search.values) * (1 + MOST_MOVES)


def _shape(search: RecipeSearch, i: int, valley: Valley) -> Round | None:
    """Runs half as far from the optimum: sides alone tell it from a lopsided valley's hardly."""
    places, seeds = search.places(i), search.seeds_at(i)
    if (seeds >= search.looks[0]).sum() >= _most_places(search):
        return None
    centre = valley.middle[0]
    # Whatever lies about half as far to a side shows it: a flat direction's middle moves.
    shown = valley.sides(centre, places[seeds >= search.looks[0]], HALFWAY)
    asks = search.asks(i, valley.around(centre, SCALES[0])[1:][~shown.ravel()], search.looks[0])
    return _round(search, asks, "the shape of its valley", i) if asks else None


def _downhill(search: RecipeSearch, places: Array, levels: Array) -> Array:
    """Places a step beyond the best one, along values of which it is the most extreme."""
    best = places[levels.argmin()]
    ways = []
    for value in range(search.values):
        others = places[:, value]
        if best[value] > others.max() - NEAR:
            ways.append((value, STEP))
        elif best[value] < others.min() + NEAR:
            ways.append((value, -STEP))
    away = [
        sum((step * np.eye(search.values)[value] for value, step in some), np.zeros(search.values))
        for count in range(1, len(ways) + 1)
        for some in combinations(ways, count)
    ]
    return search.rounded(best + np.array(away)) if away else np.zeros((0, search.values))


def _at_size(search: RecipeSearch, i: int, reached: Sequence[int]) -> Round | None:
    """What is missing at a further size; none if all sides of its optimum are there."""
    if not search.losses[i]:
        valley = search.known(reached).valley
        centre = _predicted(search, i, reached, valley.middle)
        asks = search.asks(i, valley.around(centre), search.looks[0])
        return _round(search, asks, "around the predicted optimum", i)
    if not search.trains(i):
        start = search.places(i)[0]
        lower = search.places(i).min(0)
        if (start - lower).max() < MOST_MOVES * STEP + FARTHEST:
            return _round(search, search.asks(i, (lower - STEP)[None], 1), "lower", i)
        return None
    valley = search.known([*reached, i]).valley
    return _about(search, i, valley, len(reached), "on to its optimum")


def _about(search: RecipeSearch, i: int, valley: Valley, at: int, why: str) -> Round | None:
    """The sides of a size's optimum that no run shows, with as many seeds as others have."""
    centre = valley.middle[at]
    places, seeds = search.places(i), search.seeds_at(i)
    look = search.looks[0]
    if (seeds >= look).sum() >= _most_places(search):
        return None
    shown = valley.sides(centre, places[seeds >= look])
    diverged = places[~np.isfinite(search.levels(i))]
    if len(diverged):
        shown = shown | valley.sides(centre, diverged)
    if shown.all():
        return None
    around = valley.around(centre)
    wanted = np.r_[True, ~shown.ravel()]
    asks = search.asks(i, around[wanted], look)
    return _round(search, asks, why, i) if asks else None


def _predicted(search: RecipeSearch, i: int, reached: Sequence[int], middle: Array) -> Array:
    """The joint optimum that others predict: the nearer count more, as in ``next_run``."""
    here = np.log2([search.sizes[i][a] / search.base[a] for a in search.base])
    away = np.array(
        [np.log2([search.sizes[j][a] / search.base[a] for a in search.base]) for j in reached]
    )
    away = away - here
    root = 2.0 ** -np.abs(away).sum(-1)[:, None]
    mean = (root**2 * middle).sum(0) / (root**2).sum()
    design = np.column_stack([np.ones(len(away)), away]) * root
    return np.asarray(mean + (np.linalg.pinv(design) @ (root * (middle - mean)))[0])


def _sharpen(search: RecipeSearch, known: Known, ended: Mapping[str, str]) -> Round:
    """All sizes have their optimum: what else an open verdict needs."""
    if search.complete:
        look = min(CERTIFIED, search.looks[-1])
        step = tuple(ask for i in known.reached for ask in _seeds(search, i, look))
        if step:
            why = f"{counted(look, 'seed')} at every size, for the prediction"
            return Round(asks=step, why=why)
    reasons = []
    for along in known.along:
        why = ended.get(along.axis, "")
        also = f", {why}" if why and why != "drifts" else ""
        if along.verdict is not Verdict.UNDECIDED:
            reasons.append(f"{along.axis}: {along.verdict.value} is decided{also}")
            continue
        following = Narrowing(search=search, known=known, along=along).next_step()
        if following.asks:
            return following
        reasons.append(f"{along.axis}: {following.why}{also}")
    return Round(why="; ".join(reasons) + ".")


def _main(search: RecipeSearch, i: int) -> Array:
    """The places of a size that have the most seeds: seeds are added there."""
    seeds = search.seeds_at(i)
    several = seeds >= min(search.looks[0], int(seeds.max()))
    return search.places(i)[several]


def _seeds(search: RecipeSearch, i: int, look: int) -> tuple[Ask, ...]:
    return search.asks(i, _main(search, i), look)


@dataclass(frozen=True, kw_only=True, eq=False)
class FurtherRuns:
    """Runs that may come next, and the information that they add to a size's optimum."""

    size: int
    asks: tuple[Ask, ...]
    told: Array
    why: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Narrowing:
    """An axis whose verdict is open: which runs would narrow it most for their cost."""

    search: RecipeSearch
    known: Known
    along: RecipeAlong

    @cached_property
    def slope(self) -> Array:
        """Weights of sizes in the slope along the axis, (sizes,)."""
        reached = self.known.reached
        row = np.zeros(len(reached))
        arm = [reached.index(i) for i in self.search.arm(self.along.axis) if i in reached]
        x = np.log2([self.search.sizes[reached[at]][self.along.axis] for at in arm])
        row[arm] = x - x.mean()
        return np.asarray(row / (row @ row))

    def ways(self) -> Iterator[tuple[Array, Array]]:
        """What may decide: weights of all minima, and the distances that are to be resolved.

        One value or combination that drifts; or all values that are open; or all combinations that
        the runs bound, and what the whole recipe costs.
        """
        along, tolerance = self.along, self.search.tolerance
        undecided = [verdict is Verdict.UNDECIDED for verdict in along.verdicts]
        values = np.eye(self.search.values)[undecided]
        combinations = bounded(self.known.found)
        kept = []
        for ways in (values, combinations):
            if not len(ways):
                continue
            rows = np.asarray(np.kron(self.slope, ways), float)
            move = np.abs(rows @ self.known.found.middle.ravel())
            half = self.left(rows, np.zeros((rows.shape[1],) * 2))
            need = np.asarray(np.abs(tolerance - move), float)
            for i in np.flatnonzero(move > tolerance):
                yield rows[[i]], need[[i]]
            if (move <= tolerance).all():
                kept.append((rows[half > need], need[half > need]))
        if len(values) and (move_of := kept[:1]):
            yield move_of[0]
        if len(combinations) and len(kept) == 1 + bool(len(values)):
            cost = self._of_cost() if along.carried.high >= MARGIN else (kept[-1][0][:0], ())
            if along.carried.value < MARGIN:
                rows, need = kept[-1]
                yield np.concatenate([rows, cost[0]]), np.concatenate([need, cost[1]])

    def _of_cost(self) -> tuple[Array, Array]:
        """Steps from the base to the largest size along every direction, and those that cost."""
        known, found = self.known, self.known.found
        sizes = [dict(self.search.sizes[i]) for i in known.reached]
        ends = np.zeros(len(sizes))
        base, largest = sizes.index(dict(self.along.base)), sizes.index(dict(self.along.largest))
        ends[base], ends[largest] = -1.0, 1.0
        s = np.repeat(found.trials.s[[largest]], 2, 0)
        rows, need = [], []
        for way, far in zip(known.valley.directions, known.valley.reach, strict=True):
            rise = float(heights(found.bowl, np.stack([way, -way]) * far, s).height.mean())
            rows.append(np.kron(ends, way))
            need.append(far * math.sqrt(MARGIN / max(rise, 1e-9)))
        moved = np.array(rows) @ found.middle.ravel()
        return np.array(rows), np.maximum(np.array(need) - np.abs(moved), 0.0)

    def left(self, rows: Array, told: Array) -> Array:
        """Half-widths of answers with further information, (rows,)."""
        covariance = self.known.found.minima.covariance
        inner = np.eye(len(covariance)) + covariance @ told
        solved = np.linalg.solve(inner, covariance)
        variance = np.einsum("ai,ij,aj->a", rows, solved, rows)
        return np.asarray(1.96 * np.sqrt(np.maximum(variance, 0.0)))

    def _told(self, at: int, places: Array, before: Index, after: int) -> Array:
        """The information of further seeds at places of a size on all minima."""
        found, values = self.known.found, self.search.values
        there = np.repeat(found.trials.s[[at]], len(places), 0)
        rises = heights(found.bowl, self.known.valley.middle[at] - places, there)
        misfit = (found.misfit * rises.height) ** 2

        def weight(seeds: Array) -> Array:
            return seeds / (seeds * misfit + found.noise**2)

        gained = weight(np.maximum(before, after).astype(float)) - weight(before.astype(float))
        matrix = np.zeros((len(self.known.reached) * values,) * 2)
        own = slice(at * values, (at + 1) * values)
        slope = rises.slope - np.average(rises.slope, axis=0, weights=np.maximum(gained, 1e-12))
        matrix[own, own] = np.einsum("n,ni,nj->ij", gained, slope, slope)
        return matrix

    def steps(self) -> Iterator[FurtherRuns]:
        """All that may come next: more seeds at a size, or nearer and farther runs."""
        search, valley = self.search, self.known.valley
        for at, i in enumerate(self.known.reached):
            places, main = search.places(i), _main(search, i)
            of = dict(zip(map(tuple, places), map(int, search.seeds_at(i)), strict=True))
            before = np.array([of[tuple(place)] for place in main])
            for later in [look for look in search.looks if look > before.min()]:
                yield FurtherRuns(
                    size=i,
                    asks=search.asks(i, main, later),
                    told=self._told(at, main, before, later),
                    why=counted(later, "seed"),
                )
            look = max(int(before.min()), search.looks[0])
            for scale, value in product(SCALES, range(search.values)):
                away = scale * valley.reach[value] * valley.directions[value]
                pair = search.rounded(valley.middle[at] + np.stack([away, -away]))
                if (np.abs(places[:, None] - pair).max(-1).min(0) < NEAR).any():
                    continue
                yield FurtherRuns(
                    size=i,
                    asks=search.asks(i, pair, look),
                    told=self._told(at, pair, np.zeros(2, np.int64), look),
                    why="nearer runs" if scale < 1 else "farther runs",
                )

    def next_step(self) -> Round:
        """The runs that narrow its answers most for their cost, or why none are needed."""
        steps = [step for step in self.steps() if step.asks]
        plans = [plan for way in self.ways() if (plan := self._plan(*way, steps))]
        if not plans:
            spans = "; ".join(
                f"{one.name} {change_span(drift.low, drift.high)}"
                for one, drift in zip(self.search.tuned, self.along.drifts, strict=True)
            )
            return Round(why=f"undecided at {spans}, and no further runs would decide it")
        chosen = self._first_part(min(plans, key=self._cost))
        if not chosen:
            return Round(why=self._spent)
        asks = dict.fromkeys(ask for step in chosen for ask in step.asks)
        words = dict.fromkeys(f"{self.search.named(step.size)}: {step.why}" for step in chosen)
        return Round(asks=tuple(asks), why="; ".join(words))

    @property
    def _spent(self) -> str:
        runs, limit = self.search.runs, self.search.limit
        return f"undecided after {runs} runs (limit {limit}); a budget of more goes on"

    def _first_part(self, steps: Sequence[FurtherRuns]) -> list[FurtherRuns]:
        """The first steps of a plan, which tell most, as far as runs are left."""
        runs, limit = self.search.runs, self.search.limit
        chosen, asked = list[FurtherRuns](), 0
        for step in steps:
            if runs + asked + len(step.asks) > limit:
                break
            chosen.append(step)
            asked += len(step.asks)
            if asked >= AT_ONCE * runs:
                break
        return chosen

    def _cost(self, steps: Sequence[FurtherRuns]) -> float:
        return math.fsum(
            self.search.cost(ask.size, ask.values) for step in steps for ask in step.asks
        )

    def _plan(self, rows: Array, need: Array, steps: Sequence[FurtherRuns]) -> list[FurtherRuns]:
        """The runs that are expected to resolve some answers; none where no runs would."""
        nothing = np.zeros((rows.shape[1],) * 2)
        now = self.left(rows, nothing)
        # Runs to come may still move the answers, by a standard error or so.
        reach, told, chosen = need + now / 2, nothing, list[FurtherRuns]()
        left, rest = now, list(steps)
        while rest and (left > need).any():
            # Of what is not narrow enough, and only as far as it has to be.
            worth = [
                float(
                    np.maximum(left - np.maximum(self.left(rows, told + step.told), need), 0).sum()
                )
                / self._cost([step])
                for step in rest
            ]
            at = int(np.argmax(worth))
            if worth[at] <= 0:
                break
            chosen.append(step := rest[at])
            told = told + step.told
            # A size has one number of seeds: what was chosen stands for fewer ones.
            seeds = step.why.endswith(("seed", "seeds"))
            rest = [
                other
                for other in rest
                if other is not step
                and not (seeds and other.size == step.size and other.why.endswith("seeds"))
            ]
            left = self.left(rows, told)
        if not chosen and len(steps) and (now <= need).all():
            return [max(steps, key=lambda step: float(np.trace(step.told)) / self._cost([step]))]
        return chosen if (left <= reach).all() else []
