"""The runs that tell most next, from the losses so far: fewest runs to a verdict on transfer.

The cheapest size comes first. It is scanned over eight octaves, and its optimum bracketed by rates
a factor of two apart. Every other size starts with three rates around the optimum that the smaller
ones predict. A verdict that is decided ends the search, and one of "drifts" ends the climb to
larger sizes; ``looks`` makes the intervals true although one stops at them. Where all sizes are
measured and the verdict is open, what comes next is what narrows the interval most for its cost:
more seeds for all sizes, or half steps at some. So it is before a larger size, where it would
decide "drifts" for less than that size begins with. Where nothing could decide, the search ends.

What is asked for follows from the losses alone, not from how they came about, so that a search can
be resumed, replayed, or begun with a table of other runs. The losses of unfinished runs are not
among them: the best rate moves as training goes on (docs/adaptive.md).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.records import Verdict
from depthmup.statistics.bracket import STEP, Bracket, Losses, second_valley
from depthmup.statistics.curve import Curves
from depthmup.statistics.intervals import Array, around, student
from depthmup.statistics.looks import SPENT, line_of, looked_at, seeds_part, shallow
from depthmup.statistics.misfit import FIT, ONE_SIDED
from depthmup.statistics.optimum import Optima, optima
from depthmup.statistics.parabola import SPACINGS
from depthmup.statistics.search import Ask, Done, Round, Search

FEWEST = 3
"""Sizes from which a drift is judged before the largest one is reached."""

FAR = 1.5
"""Octaves from the nearest size's optimum beyond which one seed looks whether a prediction holds:
where optima move so fast it often misses, or nothing trains. The other seeds follow at the rates of
the bracket, so that no verdict changes."""

FINEST, FINEST_WALLED = 0.5, 0.25
"""Octaves between the rates of a bracket that was made finer; beside a divergence, and elsewhere,
finer rates would show the optimum no better than other sizes are known."""

FARTHER = math.hypot(FIT, ONE_SIDED / SPACINGS / 2)
"""What a bracket with two points on one side and one on the other misses, in spacings."""

_OF_REGION = {Verdict.TRANSFERS: "inside the region", Verdict.DRIFTS: "outside of the region"}
"""What a verdict says where the region is another than that of staying."""

CERTIFIED = 4
"""Seeds that a prediction for a target wants, at rates half an octave apart: it hands out a rate,
and the lowest point of a lopsided valley lies beside the centre of three points. Of certificates
from four seeds it was measured how often they hold (docs/calibration.md)."""


def next_round(search: Search, losses: Sequence[Losses]) -> Round | Done:
    """The runs that tell most next.

    Args:
        search: what is searched.
        losses: of each size by log2 learning rate, so far; by seed, infinite where a run diverged
            and NaN where it was not made.

    Returns:
        Runs that are not among the losses, or why no more are needed.

    Example:
        >>> search = Search(sizes=({"depth": 4}, {"depth": 8}), costs=(1.0, 2.0),
        ...     base={"depth": 4}, axes=("depth",), start=-6.0)
        >>> [ask.log2_lr for ask in next_round(search, [{}, {}]).asks]
        [-10.0, -9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0]

    Raises:
        ValueError: losses of another number of sizes.
    """
    if len(losses) != len(search.sizes):
        raise ValueError(
            f"Expected losses of each of the {len(search.sizes)} sizes; got {len(losses)}. Give an "
            "empty mapping for a size without runs."
        )
    step = _State(search=search, losses=losses).next_round()
    if isinstance(step, Round) and not step.asks:
        return Done(why=f"{step.why}: undecided, and every run that could be asked for was made.")
    return step


@dataclass(frozen=True, kw_only=True)
class _State:
    """Losses so far, and what follows from them."""

    search: Search
    losses: Sequence[Losses]

    @cached_property
    def brackets(self) -> list[Bracket]:
        return [Bracket(losses=of_size, chance=self.search.chance) for of_size in self.losses]

    @cached_property
    def closed(self) -> list[int]:
        """Sizes whose optimum lies between two rates."""
        return [i for i in self.search.order if self.brackets[i].closed]

    @cached_property
    def look(self) -> int:
        """The number of seeds that the sizes measured so far have, or are about to have.

        Half of them have it: where a bracket moves on, its new rates are behind all others.
        """
        seeds = sorted(self.brackets[i].seeds for i in self.closed)
        common = seeds[len(seeds) // 2] if seeds else 0
        looks = self.search.looks
        return max([look for look in looks if look <= common], default=looks[0])

    def fitted(self, sizes: Sequence[int]) -> Optima:
        return optima(curves_of([self.losses[i] for i in sizes], chance=self.search.chance))

    def next_round(self) -> Round | Done:
        search = self.search
        ended: dict[str, str] = {}  # axes along which no larger size is needed, and why
        reached: list[int] = []
        for i in search.order:
            arms = [axis for axis in search.axes if i in search.arm(axis)]
            if reached and arms and all(axis in ended for axis in arms):
                continue
            step = self._instead_of(i, arms, reached) or self._at_size(i)
            if step is not None:
                return step
            bracket = self.brackets[i]
            if bracket.lowest is None:
                if not reached:
                    return Done(why=f"{self._named(i)}: no {search.tuned.name} trains.")
                ended |= {axis: f"{self._named(i)} does not train" for axis in arms}
                continue
            reached.append(i)
            if not (search.complete or search.precision or search.whole):
                ended |= {axis: "drifts" for axis in arms if self._drifts(axis, reached)}
        return self._sharpen(reached, ended)

    def _instead_of(self, i: int, arms: Sequence[str], reached: Sequence[int]) -> Round | None:
        """Runs at the sizes reached that would decide "drifts" for less than size i begins with."""
        search = self.search
        wanted = search.complete or search.precision or search.whole
        if wanted or len(arms) != 1 or len(self.brackets[i].rates):
            return None
        arm = search.arm(arms[0])
        sizes = [j for j in arm if j in reached]
        begun = [j for j in arm if len(self.brackets[j].rates)]
        if len(sizes) < max(FEWEST, len(begun)):
            return None
        sharper = _Sharper(state=self, axis=arms[0], sizes=sizes)
        return sharper.decisive(most=3 * self.look * search.costs[i])

    def _at_size(self, i: int) -> Round | Done | None:
        """What is missing at a size; none if it is bracketed by rates with all seeds."""
        search, bracket = self.search, self.brackets[i]
        first = i == search.order[0]
        predicted = self._predicted(i)
        rates = [search.rounded(k) for k in bracket.next_rates(predicted, first=first)]
        rates = [k for k in rates if k <= math.log2(search.tuned.most)]
        if rates:
            # The search itself takes one seed until the way is known; then all start together.
            known = sum(j in self.closed for axis in search.axes for j in search.arm(axis)) > 1
            begun = max((bracket.seeds_at(float(k)) for k in bracket.rates), default=0)
            seeds = begun if begun else (self.look if known and not self._far(i, predicted) else 1)
            if len(bracket.rates) and bracket.lowest is None:
                seeds = 1  # looks for a rate that trains at all
            why = "a scan for its optimum" if first else "around the predicted optimum"
            if len(bracket.rates):
                why = "on to its optimum"
            return self._round(
                self._asks(i, rates, min(seeds, self.look)),
                f"{self._named(i)}: {why}",
                i,
            )
        if bracket.lowest is None:
            return None
        if not bracket.closed:
            way = "below" if bracket.at == bracket.rates[0] else "above"
            return Done(
                why=f"{self._named(i)}: the optimum lies {way} the {len(bracket.rates)} "
                f"{search.tuned.plural} that were tried. Give {search.grid}= a grid that holds it."
            )
        if first and (valleys := second_valley(bracket.rates, bracket.averages)):
            between = bracket.rates[
                (bracket.rates >= min(valleys)) & (bracket.rates <= max(valleys))
            ]
            # One seed's noise looks like a second valley where the first is nearly flat.
            if asks := self._asks(i, between, min(CERTIFIED, search.looks[-1])):
                return self._round(asks, f"{self._named(i)}: one valley or two", i)
            one, other = (f"2^{k:g}" for k in valleys)
            return Done(
                why=f"{self._named(i)}: the curve has two valleys, at {one} and {other}, and which "
                f"is lower may change with size. Give {search.grid}= a grid that spans both."
            )
        if asks := self._asks(i, bracket.window, self.look):
            return self._round(asks, f"{self._named(i)}: {self.look} seeds", i)
        return None

    def _asks(self, i: int, rates: Sequence[float] | Array, seeds: int) -> tuple[Ask, ...]:
        """The missing ones of the first seeds at some rates."""
        asks = []
        for k in map(float, rates):
            row = np.asarray(self.losses[i].get(k, ()), float)
            asks += [
                Ask(size=i, log2_lr=k, seed=seed)
                for seed in range(seeds)
                if seed >= len(row) or np.isnan(row[seed])
            ]
        return tuple(asks)

    def _round(self, asks: tuple[Ask, ...], why: str, at: int) -> Round:
        """A round, and the cost of the sizes that follow with three rates each."""
        later = self.search.order[self.search.order.index(at) + 1 :]
        new = [j for j in later if not len(self.brackets[j].rates)]
        runs_of_size = 3 * self.look
        return Round(
            asks=asks,
            why=why,
            rest=runs_of_size * sum(self.search.costs[j] for j in new),
            rest_runs=runs_of_size * len(new),
        )

    def _named(self, i: int) -> str:
        sizes, base = self.search.sizes, self.search.base
        varied = [axis for axis in base if len({size[axis] for size in sizes}) > 1]
        return ", ".join(f"{axis} {sizes[i][axis]}" for axis in varied or base)

    def _predicted(self, i: int) -> float:
        """The optimum that the sizes measured so far predict for one: the nearer count more.

        A law over all sizes would be biased where it bends. Directions that no two sizes show are
        taken to be flat.
        """
        others = [j for j in self.closed if j != i]
        if not others:
            return self.search.start
        centres = self.fitted(others).centre
        away = np.array([self.search.position(j) - self.search.position(i) for j in others])
        root = 2.0 ** -np.abs(away).sum(-1)
        design = np.column_stack([np.ones(len(others)), away])
        mean = float((root**2 * centres).sum() / (root**2).sum())
        return mean + float((np.linalg.pinv(design * root[:, None]) @ (root * (centres - mean)))[0])

    def _far(self, i: int, predicted: float) -> bool:
        """Whether a prediction is so far from the nearest size's optimum that it may well miss."""
        others = [j for j in self.closed if j != i]
        here = self.search.position(i)
        nearest = min(others, key=lambda j: float(np.abs(self.search.position(j) - here).sum()))
        return abs(predicted - self.brackets[nearest].at) > FAR

    def _drifts(self, axis: str, reached: Sequence[int]) -> bool:
        """Whether the sizes reached along an axis show that the optimum drifts."""
        arm = self.search.arm(axis)
        begun = [i for i in arm if len(self.brackets[i].rates)]
        sizes = [i for i in arm if i in reached]
        # Sizes that were measured belong to the verdict, whatever the smaller ones would say alone.
        if len(sizes) < max(min(FEWEST, len(arm)), len(begun)):
            return False
        return self._verdict(axis, sizes) is Verdict.DRIFTS

    def _verdict(self, axis: str, sizes: Sequence[int]) -> Verdict:
        slope = looked_at(self._positions(axis, sizes), self.fitted(sizes))
        drift, (low, high) = around(float(slope.value), float(slope.half)), self.search.edges
        if drift.outside(low, high):
            return Verdict.DRIFTS
        inside = drift.inside(low, high) and len(sizes) == len(self.search.arm(axis))
        return Verdict.TRANSFERS if inside else Verdict.UNDECIDED

    def _positions(self, axis: str, sizes: Sequence[int]) -> Array:
        return np.log2([self.search.sizes[i][axis] for i in sizes])

    def _sharpen(self, reached: Sequence[int], ended: Mapping[str, str]) -> Round | Done:
        """All sizes are bracketed: what else an open verdict needs."""
        search = self.search
        if search.complete:
            # Also where seeds moved the lowest rate, which leaves its bracket open on one side.
            halvings = [int(self.brackets[i].spacing > FINEST) for i in reached]
            steps = [self.half_steps(i, n) for i, n in zip(reached, halvings, strict=True)]
            if asks := tuple(ask for of_size in steps for ask in of_size):
                return Round(asks=asks, why="half steps at every size, for the prediction")
            if self.look < min(CERTIFIED, search.looks[-1]):
                return self.more_seeds(reached)
        reasons = []
        for axis in search.axes:
            sizes = [i for i in search.arm(axis) if i in reached]
            failed = ended.get(axis, "drifts")
            also = "" if failed == "drifts" else f", {failed}"
            if len(sizes) < 2:
                reasons.append(f"{axis}: fewer than two sizes have an optimum{also}")
                continue
            step = _Sharper(state=self, axis=axis, sizes=sizes).next_step()
            if isinstance(step, Round):
                return step
            reasons.append(f"{axis}: {step.why}{also}")
        return Done(why="; ".join(reasons) + ".")

    def half_steps(self, i: int, halvings: int = 1) -> tuple[Ask, ...]:
        """Runs that fill a size's bracket with rates so many times closer, out to its ends."""
        bracket = self.brackets[i]
        step = bracket.spacing / 2**halvings
        reach = round(STEP / step)
        rates = [round(bracket.at + k * step, 9) for k in range(-reach, reach + 1)]
        new = [k for k in rates if np.abs(bracket.rates - k).min() > STEP / 16]
        return self._asks(i, new, self.look)

    def far_rate(self, i: int) -> tuple[Ask, ...]:
        """Runs at a rate two steps from the lowest, on the side of a bracket that hardly rises."""
        bracket = self.brackets[i]
        return self._asks(i, [bracket.far], self.look) if bracket.gentle else ()

    def more_seeds(self, sizes: Sequence[int]) -> Round:
        look = next(look for look in self.search.looks if look > self.look)
        asks = [ask for i in sizes for ask in self._asks(i, self.brackets[i].window, look)]
        return Round(asks=tuple(asks), why=f"{look} seeds at every size")


@dataclass(frozen=True, kw_only=True)
class _Sharper:
    """One axis whose sizes are all bracketed: is it decided, and what would decide it?"""

    state: _State
    axis: str
    sizes: Sequence[int]

    @cached_property
    def fitted(self) -> Optima:
        return self.state.fitted(self.sizes)

    @cached_property
    def row(self) -> Array:
        return np.asarray(line_of(self._positions, self.fitted).rows[1])

    @property
    def _positions(self) -> Array:
        return self.state._positions(self.axis, self.sizes)

    def _half(self, look: int, misfit: Array) -> float:
        """The half-width that so many seeds and such errors of the fits would leave."""
        if look < 2:
            return float(looked_at(self._positions, self.fitted).half)
        of_misfit = float(student(math.inf)) * float(np.sqrt((self.row**2 * misfit**2).sum()))
        return math.hypot(self._of_seeds(look), of_misfit)

    def _of_seeds(self, look: int) -> float:
        if look < 2:
            return float(looked_at(self._positions, self.fitted).half)
        state = self.state
        decides = state.search.precision is None
        return float(seeds_part(self.fitted, self.row, state.look, planned=look, decides=decides))

    def next_step(self) -> Round | Done:
        state, search = self.state, self.state.search
        slope = looked_at(self._positions, self.fitted, decides=search.precision is None)
        value, half = float(slope.value), float(slope.half)
        if search.precision is not None:
            need, slack = search.precision, 0.0
            if half <= need:
                return Done(why=f"the interval is ±{half:.3f}, within the ±{need:g} asked for")
        else:
            verdict = state._verdict(self.axis, self.sizes)
            if verdict is not Verdict.UNDECIDED:
                word = verdict.value if search.region is None else _OF_REGION[verdict]
                return Done(
                    why=f"{word} is decided after {state.look} seeds, at {value:+.3f} ± {half:.3f}"
                )
            if search.complete:
                return Done(why=f"all sizes have {state.look} seeds")
            # Seeds to come may still move the drift, by a standard error or so.
            error = self._of_seeds(state.look) / float(student(math.inf, SPENT))
            low, high = search.edges
            need, slack = min(abs(value - low), abs(value - high)), error
            part = len(self.sizes) < len(search.arm(self.axis))
            if part and low <= value <= high:
                return Done(why=f"at {value:+.3f} ± {half:.3f} where it trains")
        if not math.isfinite(half):
            return self._more_or_shallow()
        misfit = self.fitted.misfit
        finest = np.array([self._least(i, misfit[n]) for n, i in enumerate(self.sizes)])
        hopeless = self._half(search.looks[-1], finest) > need + slack
        if hopeless and search.precision is None:
            return Done(
                why=f"undecided at {value:+.3f} ± {half:.3f}, and neither {search.looks[-1]} seeds "
                "nor finer steps would change that"
            )
        return self._best_step(need, half)[0]

    def decisive(self, most: float) -> Round | None:
        """Runs that are expected to decide "drifts" at the sizes measured, if there are any.

        Args:
            most: what they may cost: a larger size would tell more, for so much.
        """
        state, search = self.state, self.state.search
        slope = looked_at(self._positions, self.fitted)
        value, half, (low, high) = float(slope.value), float(slope.half), search.edges
        need = max(value - high, low - value)
        if need <= 0:
            return None
        later = [look for look in search.looks if look > state.look]
        if math.isfinite(half):
            step, left = self._best_step(need, half)
        elif later and not shallow(self.fitted, state.look, planned=later[0]):
            step, left = state.more_seeds(self.sizes), self._half(later[0], self.fitted.misfit)
        else:
            return None
        if isinstance(step, Done) or left > need:
            return None
        return step if sum(search.costs[ask.size] for ask in step.asks) < most else None

    def _more_or_shallow(self) -> Round | Done:
        """Where the valleys are no deeper than seeds scatter, more seeds alone can help."""
        state = self.state
        if state.look < state.search.looks[-1]:
            return state.more_seeds(self.sizes)
        what = state.search.tuned
        return Done(why=f"seeds scatter more than {what.the} matters around some optimum")

    def _halvings(self, i: int) -> int:
        """How many times the steps of a size's bracket may still be halved."""
        bracket = self.state.brackets[i]
        finest = FINEST_WALLED if bracket.walled else FINEST
        return max(0, round(math.log2(bracket.spacing / finest)))

    def _best_step(self, need: float, half: float) -> tuple[Round | Done, float]:
        """The steps that narrow the interval most for their cost, until they would decide.

        With the half-width that is expected after them.
        """
        state, search, look = self.state, self.state.search, self.state.look
        misfit = self.fitted.misfit.copy()
        worth: dict[int, tuple[float, tuple[Ask, ...], float]] = {}
        for n, i in enumerate(self.sizes):
            for asks, error in (self._farther(i, misfit[n]), self._finer(i, misfit[n])):
                finer = self._with_finer(n, error, misfit)
                gain = half**2 - self._half(look, finer) ** 2
                value = gain / (max(len(asks), 1) * search.costs[i])
                if asks and (n not in worth or value > worth[n][0]):
                    worth[n] = (value, asks, error)
        later = [other for other in search.looks if other > look]
        if later:
            more = state.more_seeds(self.sizes)
            gain = half**2 - self._half(later[0], misfit) ** 2
            cost = sum(search.costs[ask.size] for ask in more.asks)
            if not worth or gain / cost > max(of_size[0] for of_size in worth.values()):
                return more, self._half(later[0], misfit)
        asks_so_far: tuple[Ask, ...] = ()
        for n, (value, asks, error) in sorted(worth.items(), key=lambda item: -item[1][0]):
            if asks_so_far and (search.precision or value <= 0 or self._half(look, misfit) <= need):
                break
            asks_so_far += asks
            misfit[n] = error
        if not asks_so_far:
            return Done(why=f"undecided: ±{half:.3f} after all seeds and finer steps"), half
        named = dict.fromkeys(state._named(ask.size) for ask in asks_so_far)
        why = f"rates between and beside those at {'; '.join(named)}"
        return Round(asks=asks_so_far, why=why), self._half(look, misfit)

    def _least(self, i: int, misfit: float) -> float:
        """The misfit that more rates could leave at a size."""
        step, any_far = self.state.brackets[i].spacing, any(map(self.state.far_rate, self.sizes))
        return (min(misfit, FARTHER * step) if any_far else misfit) / 2.0 ** self._halvings(i)

    def _farther(self, i: int, misfit: float) -> tuple[tuple[Ask, ...], float]:
        """Runs that tell a bracket's gentle side, and the misfit if that side is no flat one."""
        asks = self.state.far_rate(i)
        return asks, min(misfit, FARTHER * self.state.brackets[i].spacing) if asks else misfit

    def _with_finer(self, n: int, error: float, misfit: Array) -> Array:
        """All misfits once one size's is known better: they share how steep a side looks."""
        shared = self.fitted.steep[n] ** 2 / len(self.sizes)
        finer = np.sqrt(
            np.maximum(
                misfit**2 - shared * self.fitted.spacing**2, (FIT * self.fitted.spacing) ** 2
            )
        )
        finer[n] = min(finer[n], error)
        return np.asarray(np.minimum(finer, misfit))

    def _finer(self, i: int, misfit: float) -> tuple[tuple[Ask, ...], float]:
        """Runs that make a size's bracket finer, or as wide on both sides, and the misfit then."""
        for halvings in range(min(self._halvings(i), 1) + 1):
            asks = self.state.half_steps(i, halvings)
            if asks:
                step = self.state.brackets[i].spacing / 2**halvings
                return asks, misfit / 2 if halvings else min(misfit, FIT * step)
        return (), misfit


def curves_of(losses: Sequence[Losses], *, chance: float = math.inf) -> Curves:
    """The curves that are fitted: the rates of every size's bracket, with the seeds that all have.

    Args:
        losses: of each size by log2 learning rate.
        chance: the loss of guessing.

    Returns:
        The curves; a size whose bracket is not closed has all its rates.

    Example:
        >>> curves_of([{-2.0: [1.4], -1.0: [1.1, 1.2], 0.0: [1.0, 1.1], 1.0: [1.2, 1.1]}]).losses
        array([[[1.1, 1.2],
                [1. , 1.1],
                [1.2, 1.1]]])
    """
    grids, values = [], []
    for of_size in losses:
        bracket = Bracket(losses=of_size, chance=chance)
        fitted = bracket.closed and bracket.seeds > 0
        rows = np.isin(bracket.rates, bracket.window) if fitted else bracket.rates < math.inf
        inside = bracket.values[rows][:, : bracket.seeds] if fitted else bracket.values
        # While seeds are missing, those that all rates have may put the lowest rate at an end.
        if fitted and not _interior(inside):
            rows, inside = bracket.rates < math.inf, bracket.values
        grids.append(bracket.rates[rows])
        values.append(inside)
    return Curves.of(grids, values)


def _interior(losses: Array) -> bool:
    """Whether the lowest rate of (rates, seeds) is neither the first nor the last."""
    with np.errstate(invalid="ignore"):
        mean = np.log(losses).mean(-1)
    return 0 < int(mean.argmin()) < len(mean) - 1


def walk(search: Search, losses: list[dict[float, list[float]]]) -> Iterator[Round | Done]:
    """The rounds of a search, each after the losses of the one before were put in, to its end.

    Args:
        search: what is searched.
        losses: of each size, to which the caller adds.
    """
    while True:
        step = next_round(search, losses)
        yield step
        if isinstance(step, Done):
            return
