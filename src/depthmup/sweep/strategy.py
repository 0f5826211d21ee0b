"""What a sweep whose rates are found as it goes trains next, replayed from the records it has.

Rounds follow from records alone (``statistics.next_run``), and the records of one round are all
there before the next is asked for. So a sweep that was stopped, or that another machine began, goes
on where it was: the rounds are replayed, and only what has no record is trained. The order is the
same whatever the number of workers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from depthmup.records import Estimate, Record
from depthmup.records.finding import change_span
from depthmup.records.grammar import either
from depthmup.records.search import Asked, SearchRound, SearchStory, Values
from depthmup.statistics import (
    CONFIDENCE,
    TOLERANCE,
    Ask,
    Round,
    Search,
    next_round,
)
from depthmup.statistics.bracket import Losses
from depthmup.statistics.drift import drift_unit
from depthmup.statistics.next_run import BRACKETED
from depthmup.statistics.recipe_search import CROSS, GRID_VALUES, RecipeSearch, next_recipes
from depthmup.statistics.recipe_search import GRID_SEEDS as RECIPE_SEEDS
from depthmup.statistics.sharpening import Sharpening
from depthmup.sweep.design import Design, Size, Variant
from depthmup.sweep.narrowing import narrowing, narrowing_rules
from depthmup.sweep.store import Store
from depthmup.sweep.study import positive_loss_over
from depthmup.sweep.sweep import Sweep

GRID_RATES, GRID_SEEDS = 8, 3
"""The grid to which the search's work is compared: the usual rates and seeds without it."""

OUT_OF_BUDGET = "the budget is spent"

OfSize: TypeAlias = Mapping[Any, Sequence[float]]
"""Losses of one size by seed, of a log2 value or of several."""

AnySearch: TypeAlias = Search | RecipeSearch


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """What was asked for so far (``sweep``), and what is to be trained next (``pending``).

    Attributes:
        region, whole, persistent, confidence: as in ``statistics.Search``.
        sizes: those whose optima are searched; all unless given.
        over: where gains over a variant are what is searched, its name or a part of it.
        target: the size that a prediction, or a gain, is about.
        window: steps over which losses are averaged; the last of training unless given.
        rest: the work expected after the pending runs.
        why: the pending runs are made, for the first variant whose search goes on.
        ended: by variant, why its search is over.
    """

    sweep: Sweep
    tolerance: float = TOLERANCE
    target: Size | None = None
    region: tuple[float, float] | None = None
    whole: bool = False
    persistent: bool = False
    confidence: float = CONFIDENCE
    sizes: tuple[Size, ...] = ()
    over: str = ""
    window: slice | None = None
    pending: tuple[Any, ...] = ()
    rest: float = 0.0
    why: str = ""
    rounds: tuple[SearchRound, ...] = ()
    ended: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[Any, Record[Any]] = field(default_factory=dict, repr=False)
    losses: Mapping[str, Sequence[OfSize]] = field(default_factory=dict, repr=False)

    @property
    def done(self) -> bool:
        return not self.pending

    @property
    def work(self) -> float:
        """The work of all runs that have records."""
        return math.fsum(self.sweep.work(run) for run in self.records)


def begin_with(state: SearchState, grid: Sweep, store: Store) -> SearchState:
    """The search that begins with the runs of a grid, all of which a store holds."""
    records, sizes = store.records(grid.runs), state.sweep.design.all_sizes
    losses = {
        variant.name: [
            {
                log2_lr: [_loss(state, run, records[run]) for run in curve]
                for log2_lr, curve in zip(grid.design.log2_values, curves, strict=True)
            }
            for curves in grid.points(variant, sizes)
        ]
        for variant in state.sweep.design.variants
    }
    return _with_records(state, records, losses)


def _with_records(
    state: SearchState, records: Mapping[Any, Record[Any]], losses: Mapping[str, Sequence[OfSize]]
) -> SearchState:
    """The state with all these records, and the losses by variant, size and log2 rate."""
    asked = {
        (name, i): {log2_lr: len(seeds) for log2_lr, seeds in of_size.items()}
        for name, sizes in losses.items()
        for i, of_size in enumerate(sizes)
    }
    sweep = replace(state.sweep, asked=asked)
    return replace(state, sweep=sweep, pending=(), records=records, losses=losses)


REACH, STEPS = 10, 8
"""Octaves about the rates of a replay within which further runs of a store are looked for, and how
many to an octave: the grain of all searches."""


def with_all_stored(state: SearchState, store: Store) -> SearchState:
    """The search with every run of its sweep that a store holds, whoever asked for it.

    An earlier version asked for other runs: they were paid for, and count.
    """
    sweep, sizes = state.sweep, state.sweep.design.all_sizes
    records, losses = {**state.records}, dict[str, Sequence[OfSize]]()
    if sweep.design.beside:  # no version asked for others
        return state
    for variant in sweep.design.variants:
        start = _start_of_one(sweep.design, variant)
        known = [k for of_size in state.losses.get(variant.name, ()) for k in of_size] or [start]
        low, high = min(known) - REACH, max(known) + REACH
        steps = range(math.ceil((low - start) * STEPS), math.floor((high - start) * STEPS) + 1)
        rates = sorted({*known, *(round(start + step / STEPS, 9) for step in steps)})
        found: list[dict[float, list[float]]] = [{} for _ in sizes]
        for seed in range(sweep.design.seeds):
            # A seed is trained where the one before was.
            asked = {
                sweep.run(variant, size, k, seed): (i, k)
                for i, size in enumerate(sizes)
                for k in (rates if seed == 0 else found[i])
                if seed == 0 or len(found[i][k]) == seed
            }
            lacking = set(store.missing(asked))
            stored = store.records([run for run in asked if run not in lacking])
            for run, record in stored.items():
                i, k = asked[run]
                records[run] = record
                found[i].setdefault(k, []).append(_loss(state, run, record))
            if not stored:
                break
        losses[variant.name] = found
    return _with_records(state, records, losses)


def _loss(state: SearchState, run: Any, record: Record[Any]) -> float:
    """A run's mean loss over the window that the search is about."""
    design = state.sweep.design
    window = state.window or slice(design.steps - design.window, design.steps)
    return positive_loss_over(run, record, window, steps=design.steps)


def advance(state: SearchState, store: Store, *, rounds: float = math.inf) -> SearchState:
    """Replay the rounds that a store has the records of, up to the first that it has not."""
    while rounds > 0:
        state, steps = _steps(state)
        if not steps:
            return replace(state, pending=(), rest=0.0)
        new = [run for run in _runs_of(steps) if run not in state.records]
        if over := _over_budget(state, new):
            ended = {**state.ended}
            for name, (search, _, _) in steps.items():
                ended[name] = over + _twice(search, state.losses.get(name, ()))
            return replace(state, pending=(), rest=0.0, ended=ended)
        missing = tuple(store.missing(new))
        if missing:
            rounds_next = [step for _, step, _ in steps.values()]
            return replace(
                state,
                pending=missing,
                rest=math.fsum(step.rest for step in rounds_next),
                why=rounds_next[0].why,
            )
        state = _absorbed(state, steps, store.records(new))
        rounds -= 1
    return state


def _runs_of(steps: Mapping[str, "_Step"]) -> list[Any]:
    """The runs of a round, those that variants share once."""
    return [*{run: None for _, _, asked in steps.values() for run in asked.values()}]


def check_budget(state: SearchState) -> None:
    """Refuse a budget that the first round of a search exceeds."""
    auto = state.sweep.design.auto
    if auto is None:  # a grid has no budget
        return
    _, steps = _steps(state)
    first = _runs_of(steps)
    if not _over_budget(state, first):
        return
    work = math.fsum(state.sweep.work(run) for run in first)
    too_few = auto.runs is not None and auto.runs < len(first)
    least = f"{len(first)} runs" if too_few else f"{work:.3g} of work"
    if state.sweep.design.beside:
        raise ValueError(
            f"Expected a budget of at least {least}: the first round is a cross and corners about "
            "your values at the smallest size. Give more, or tune fewer values."
        )
    raise ValueError(
        f"Expected a budget of at least {least}: the first round scans the learning rates of the "
        f"smallest size, for each scheme. Give more, or a grid: {either('lrs=...', '--lrs ...')}."
    )


_Step: TypeAlias = tuple[AnySearch, Round, Mapping[Ask, Any]]
"""What is searched for one variant, its next round, and the run of every ask."""


def _steps(state: SearchState) -> tuple[SearchState, dict[str, _Step]]:
    """The next round of every variant whose search goes on, and the state with those that end."""
    steps, ended = dict[str, _Step](), dict(state.ended)
    waiting: dict[str, Search] = {}
    whole = state.sweep.design.variants[0].name
    for variant in state.sweep.design.variants:
        if variant.name in ended:
            continue
        if variant.name in state.sweep.design.changed and whole not in ended:
            continue  # it begins at the optima of the whole scheme
        if state.sweep.design.beside:
            together = recipe_search_of(state, variant)
            step = next_recipes(together, together.losses)
            if step.asks:
                steps[variant.name] = _step(state, variant, together, step)
            else:
                ended[variant.name] = step.why
            continue
        search = _with_losses(state, variant)
        step = next_round(search, search.losses)
        if step.asks:
            steps[variant.name] = _step(state, variant, search, step)
        elif step.why == BRACKETED:
            waiting[variant.name] = search
        else:
            ended[variant.name] = step.why
    if waiting and not steps:
        rounds, over = _narrowing(state, waiting)
        ended |= over
        for name, step in rounds.items():
            variant = state.sweep.design.variant(name)
            steps[name] = _step(state, variant, _with_losses(state, variant), step)
    return replace(state, ended=ended), steps


def _with_losses(state: SearchState, variant: Variant) -> Search:
    """What is searched for one variant, and where it stands."""
    none: list[Losses] = [{} for _ in state.sweep.design.all_sizes]
    losses = state.losses.get(variant.name) or none
    return replace(search_of(state, variant), losses=losses)


def _narrowing(
    state: SearchState, waiting: Mapping[str, Search]
) -> tuple[dict[str, Round], dict[str, str]]:
    """The next round of what has its optima and is open, and why the rest is at its end."""
    sweep, design = state.sweep, state.sweep.design
    if not design.changed:
        return narrowing(sweep, state.records, waiting, over=state.over, target=state.target)
    whole = _with_losses(state, design.variants[0])
    return narrowing_rules(sweep, state.records, waiting, whole, tolerance=state.tolerance)


def _step(state: SearchState, variant: Variant, search: AnySearch, step: Round) -> _Step:
    """A round with its runs."""
    sizes = state.sweep.design.all_sizes
    return (
        search,
        step,
        {ask: state.sweep.run(variant, sizes[ask.size], ask.values, ask.seed) for ask in step.asks},
    )


def search_of(state: SearchState, variant: Variant) -> Search:
    """What is searched for one variant of a sweep."""
    sweep, design = state.sweep, state.sweep.design
    auto = design.auto
    if auto is None or auto.start is None:
        raise ValueError("Expected a design whose values are found from a start; got none.")
    start = _start_of_one(design, variant)
    at_base = state.losses.get(variant.name) and sweep.rates(variant, design.base)
    changed = variant.name in design.changed
    sizes = sweep.sizes_of(variant) if changed else state.sizes
    only = tuple(map(design.all_sizes.index, sizes))
    return Search(
        sizes=design.all_sizes,
        costs=tuple(sweep.work(sweep.run(variant, s, start, 0)) for s in design.all_sizes),
        base=design.base,
        axes=design.axes,
        start=start,
        seeds=design.seeds,
        tolerance=state.tolerance,
        region=state.region,
        # What rules do is seen at the largest size, which the whole scheme needs, too.
        whole=state.whole or bool(design.changed),
        persistent=state.persistent,
        confidence=state.confidence,
        precision=None if changed else auto.precision,
        complete=state.target is not None and not changed,
        minima=bool(state.over) or changed,
        only=only,
        expected=_expected(state, only) if changed else {},
        chance=sweep.chance(state.records, variant) if at_base else math.inf,
        tuned=design.tune,
    )


def recipe_search_of(state: SearchState, variant: Variant) -> RecipeSearch:
    """What is searched where several values are tuned together, and where it stands."""
    sweep, design = state.sweep, state.sweep.design
    start = _start(design, variant)
    at_base = state.losses.get(variant.name) and sweep.rates(variant, design.base)
    none: list[OfSize] = [{} for _ in design.all_sizes]
    return RecipeSearch(
        sizes=design.all_sizes,
        costs=tuple(sweep.work(sweep.run(variant, s, start, 0)) for s in design.all_sizes),
        base=design.base,
        axes=design.axes,
        start=start if isinstance(start, tuple) else (start,),
        tuned=design.tuned,
        most_values=tuple(math.log2(design.most(one)) for one in design.tuned),
        price=lambda i, values: sweep.work(sweep.run(variant, design.all_sizes[i], values, 0)),
        seeds=design.seeds,
        tolerance=state.tolerance,
        complete=state.target is not None,
        chance=sweep.chance(state.records, variant) if at_base else math.inf,
        most=None if design.auto is None else design.auto.runs,
        losses=state.losses.get(variant.name) or none,
    )


def _expected(state: SearchState, sizes: Sequence[int]) -> dict[int, float]:
    """The best rates of the whole scheme, whose runs those of its rules are compared with."""
    whole = _with_losses(state, state.sweep.design.variants[0])
    return {i: whole.brackets[i].at for i in sizes if i in whole.closed}


def _over_budget(state: SearchState, new: Sequence[Any]) -> str:
    """Why the next round is not to be made; empty if it is."""
    auto, runs = state.sweep.design.auto, len(state.records)
    if auto is None:
        return ""
    if auto.runs is not None and runs + len(new) > auto.runs:
        return f"{OUT_OF_BUDGET}: {runs} of {auto.runs} runs, and the next round has {len(new)}"
    work, next_work = state.work, math.fsum(state.sweep.work(run) for run in new)
    if auto.work is not None and work + next_work > auto.work:
        return (
            f"{OUT_OF_BUDGET}: {work:.3g} of {auto.work:.3g}, the next round takes {next_work:.3g}"
        )
    return ""


def _twice(search: AnySearch, losses: Sequence[OfSize]) -> str:
    """What twice the runs at the sizes measured so far would buy: twice the seeds there."""
    told = list[str]()
    if isinstance(search, RecipeSearch):
        return ""
    search = replace(search, losses=losses) if losses else search
    for axis in search.axes if losses else ():
        sizes = [i for i in search.arm(axis) if i in search.sharp]
        if len(sizes) < 2:
            continue
        step = Sharpening(search=search, axis=axis, sizes=sizes)
        asks = [
            ask
            for i in sizes
            for ask in search.missing(i, search.brackets[i].window, 2 * search.look)
        ]
        if asks:
            half = step.left_at_last(asks)
            told.append(f"{change_span(-half, half)} around it along {axis}")
    return f"; twice the seeds at the sizes so far would give {', '.join(told)}" if told else ""


def _absorbed(
    state: SearchState, steps: Mapping[str, _Step], new: Mapping[Any, Record[Any]]
) -> SearchState:
    """The state after a round whose records are there."""
    records = {**state.records, **new}
    losses = {name: [dict(of_size) for of_size in sizes] for name, sizes in state.losses.items()}
    counted: set[Any] = set(state.records)
    rounds = []
    number = max((r.number for r in state.rounds), default=0) + 1
    for name, (search, step, runs) in steps.items():
        of_variant = losses.setdefault(name, [{} for _ in search.sizes])
        work = 0.0
        for ask, run in runs.items():
            row = list(of_variant[ask.size].get(ask.values, ()))
            row += [math.nan] * (ask.seed + 1 - len(row))
            row[ask.seed] = _loss(state, run, records[run])
            of_variant[ask.size][ask.values] = row
            work += 0.0 if run in counted else state.sweep.work(run)
            counted.add(run)
        rounds.append(
            SearchRound(
                number=number,
                scheme=name,
                why=step.why,
                asked=_listed(search, step),
                work=work,
                drifts={}
                if isinstance(search, RecipeSearch)
                else {axis: drift_so_far(search, of_variant, axis) for axis in search.axes},
            )
        )
    return _with_records(replace(state, rounds=(*state.rounds, *rounds)), records, losses)


def _listed(search: AnySearch, step: Round) -> tuple[Asked, ...]:
    points: dict[tuple[int, Values], list[int]] = {}
    for ask in step.asks:
        points.setdefault((ask.size, ask.values), []).append(ask.seed)
    return tuple(
        (dict(search.sizes[size]), values, tuple(seeds)) for (size, values), seeds in points.items()
    )


def drift_so_far(search: Search, losses: Sequence[Losses], axis: str) -> Estimate:
    """The drift along an axis from the sizes whose optimum is bracketed; unknown with one."""
    search = replace(search, losses=losses)
    sizes = [i for i in search.arm(axis) if i in search.sharp]
    return replace(search.drift(axis, sizes), unit=drift_unit(axis, search.tuned))


def drift_found(state: SearchState, variant: Variant, axis: str) -> Estimate:
    """The drift along an axis over the sizes that were searched, by the runs there are."""
    return drift_so_far(search_of(state, variant), state.losses[variant.name], axis)


def story(state: SearchState) -> SearchStory:
    """How the search went, for the page."""
    sweep, design = state.sweep, state.sweep.design
    grid: dict[Any, float] = {}
    for variant in design.variants:
        for size in sweep.sizes_of(variant):
            run = sweep.run(variant, size, _start(design, variant), 0)
            grid[run] = sweep.work(run)  # once where variants share their runs
    rates, seeds = GRID_RATES, GRID_SEEDS
    if design.beside:
        rates, seeds = GRID_VALUES ** len(design.tuned), RECIPE_SEEDS
    per_size = rates * seeds
    return SearchStory(
        rounds=state.rounds,
        ended=state.ended,
        runs=len(state.records),
        work=state.work,
        grid_rates=rates,
        grid_seeds=seeds,
        grid_runs=per_size * len(grid),
        grid_work=per_size * math.fsum(grid.values()),
    )


def outline(sweep: Sweep) -> tuple[Any, ...]:
    """A run of every variant at every size, for checks before anything is trained."""
    design = sweep.design
    unique = {
        sweep.run(variant, size, values, 0): None
        for variant in design.variants
        for size in sweep.sizes_of(variant)
        for values in _first_values(design, variant)
    }
    return tuple(unique)


def _first_values(design: Design, variant: Variant) -> tuple[Values, ...]:
    """Where a search starts, and with the largest batch that its first round has."""
    start = _start(design, variant)
    if not isinstance(start, tuple) or "batch" not in design.counted:
        return (start,)
    far = [
        min(k + CROSS, math.log2(design.most(one))) if one.key == "batch" else k
        for one, k in zip(design.tuned, start, strict=True)
    ]
    return (start, tuple(far))


def _start(design: Design, variant: Variant) -> Values:
    """log2 of the values from which a variant's optimum is looked for; of one for a grid."""
    if not design.beside:
        return _start_of_one(design, variant)
    start = design.auto.start if design.auto else None
    if not isinstance(start, Mapping):
        raise ValueError("Expected a design whose values are found from a start; got none.")
    return tuple(round(math.log2(start[one.key]), 9) for one in design.tuned)


def _start_of_one(design: Design, variant: Variant) -> float:
    if design.auto is None or design.auto.start is None:
        return 0.0
    return round(math.log2(design.auto.start_of(variant.optimizer)), 9)
