"""Optima whose drift a claim is about, found by the search of ``depthmup transfer``.

A search trains the rates and seeds that tell most, until the interval of the drift lies inside or
outside of the region that the claim accepts, or until nothing could change that any more
(docs/studies/adaptive.md). Where a figure shows whole curves, it begins with their grid, and
adds what the verdict lacks: rates between those of the grid around an optimum, and seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

from depthmup.records import Estimate, Study, Window
from depthmup.rules import Scheme
from depthmup.statistics import LOOKS, together
from depthmup.sweep import (
    Auto,
    SearchState,
    Store,
    Sweep,
    advance,
    begin_with,
    drift_found,
)
from reproduction.claims.claim import Ahead, Conclusion, Experiment, Setting
from reproduction.claims.common import changed, judged, judged_from, networks, sweep_experiment
from reproduction.evidence import Accepted

SEARCHED_REVISED = (
    "The optima were first those of a grid of whole octaves, with a few seeds; now a search adds "
    "rates and seeds, up to 32, where the verdict is open."
)


MOST_SEEDS = 32
"""Seeds of a rate at most: where they leave a drift open, its claim is open."""

TOGETHER = together(sum(look <= MOST_SEEDS for look in LOOKS))
"""Confidence of the interval at each look, so that all of them hold in 95% of cases: a search that
stops at the first look that decides ends by chance where the truth is an edge of the region."""


@dataclass(frozen=True, kw_only=True)
class Sought:
    """The drift of one scheme's optimum in one window of training, and what is accepted of it.

    Attributes:
        sweep: along depth, with a grid of rates or with ``Auto``.
        scheme: whose optimum.
        accepted: the region; its edges are what an interval must not straddle.
        stop: step at which the window ends; the last of training unless given.
        depths: over which the drift is; all of the sweep's unless given.
    """

    sweep: Sweep
    scheme: Scheme
    accepted: Accepted
    stop: int | None = None
    depths: tuple[int, ...] = ()

    @property
    def window(self) -> slice:
        """Steps over which losses are averaged."""
        design = self.sweep.design
        stop = self.stop or design.steps
        return slice(stop - design.window, stop)

    def begun(self, store: Store) -> SearchState:
        """The search before its first round."""
        alone = changed(self.sweep, schemes=(self.scheme,))
        state = SearchState(
            sweep=_searched(alone),
            region=(self.accepted.low, self.accepted.high),
            whole=True,  # a claim is about all of its depths
            persistent=True,
            confidence=TOGETHER,
            sizes=tuple({**alone.design.base, "depth": depth} for depth in self.depths),
            window=self.window,
        )
        return state if alone.design.auto else begin_with(state, alone, store)


def _searched(sweep: Sweep) -> Sweep:
    """A sweep whose grid is searched further."""
    design = sweep.design
    if design.auto is not None or not isinstance(design.grid, tuple):
        return sweep
    middle = design.grid[len(design.grid) // 2]
    seeds = max(design.seeds, MOST_SEEDS)
    return replace(sweep, design=replace(design.with_grid(Auto(start=middle)), seeds=seeds))


def in_late_windows(
    sweep: Sweep, expected: Sequence[tuple[Scheme, Accepted]]
) -> tuple[Sought, ...]:
    """The drifts of schemes in every window of the second half of training, in time order."""
    steps, window = sweep.design.steps, sweep.design.window
    stops = [stop for stop in range(steps, 0, -window) if 2 * (stop - window) >= steps]
    return tuple(
        Sought(sweep=sweep, scheme=scheme, accepted=accepted, stop=stop)
        for stop in reversed(stops)
        for scheme, accepted in expected
    )


_REPLAYED = WeakKeyDictionary[Store, dict[tuple[int, ...], tuple[Any, ...]]]()
"""By store what was sought, and how far its searches were: records stay, and so does what follows.
"""


def replayed(sought: Sequence[Sought], store: Store) -> tuple[SearchState, ...]:
    """The searches of one claim, as far as a store has their records."""
    known, key = _REPLAYED.setdefault(store, {}), tuple(map(id, sought))
    _, states = known.get(key) or (sought, [one.begun(store) for one in sought])
    states = tuple(_advanced(state, store) for state in states)
    known[key] = sought, states
    return states


def _advanced(state: SearchState, store: Store) -> SearchState:
    """A search after the rounds whose records are there; a round that is not whole stays next."""
    left = tuple(store.missing(state.pending))
    return replace(state, pending=left) if left else advance(state, store)


def ahead(sought: Sequence[Sought], store: Store) -> Ahead:
    """What searches ask for next, each run once."""
    states = replayed(sought, store)
    return Ahead(
        missing=tuple(dict.fromkeys(chain.from_iterable(state.pending for state in states))),
        rest=sum(state.rest for state in states),
        done=tuple(dict.fromkeys(chain.from_iterable(state.records for state in states))),
        narrows=all(state.records and not state.rest for state in states),
    )


def drift_of(one: Sought, sought: Sequence[Sought], store: Store) -> Estimate:
    """The drift that one search of a claim found."""
    return _found(one, replayed(sought, store)[sought.index(one)])


def _found(one: Sought, state: SearchState) -> Estimate:
    return drift_found(state, state.sweep.design.variant(one.scheme.name), "depth")


def searched_study(sought: Sequence[Sought], store: Store) -> Study:
    """The study of what was sought: each drift from the runs that its own search asked for.

    Drifts over some of the depths are no part of it.
    """
    sweep = sought[0].sweep
    windows = {}
    if sweep.design.auto is None:
        windows = {window.stop: window for window in judged(sweep, store).windows}
    for one, state in zip(sought, replayed(sought, store), strict=True):
        if one.depths:
            continue
        study = judged_from(state.sweep, state.records, steps=(one.window,))
        (window,) = study.windows
        drift = _found(one, state)
        found = tuple(replace(t, drift=drift) if drift.known else t for t in window.transfers)
        window = replace(window, transfers=found)
        windows[window.stop] = _with(windows.get(window.stop), window, one.scheme.name)
    return replace(study, windows=tuple(windows.values()))


def _with(before: Window | None, window: Window, scheme: str) -> Window:
    """A window with one scheme's curves and transfer in the place of those before."""
    if before is None:
        return window
    others = [transfer.scheme for transfer in before.transfers]
    curves = [curve for curve in before.curves if curve.scheme != scheme]
    transfers = {transfer.scheme: transfer for transfer in (*before.transfers, *window.transfers)}
    return replace(
        window,
        curves=(*curves, *window.curves),
        transfers=tuple(transfers[name] for name in dict.fromkeys((*others, scheme))),
    )


def searched_networks(setting: Setting, *, start: float, **changes: Any) -> Sweep:
    """The paper's common set-up, whose learning rates are found as the sweep goes.

    ``start`` is the log2 of the first one, in units of muP's; ``seeds`` are the most of any rate.
    """
    grid = networks(setting, log2_lrs=(start,), **{"seeds": MOST_SEEDS, **changes})
    (rate,) = grid.design.lrs if isinstance(grid.design.lrs, tuple) else ()
    return changed(grid, lrs=Auto(start=rate))


def searched_experiment(
    sought: Sequence[Sought],
    *grids: Sweep,
    conclude: Callable[[Store], Conclusion],
    **config: Any,
) -> Experiment:
    """An experiment whose runs are found as it goes, beside or after those of grids."""
    sweeps: list[Sweep] = []
    for sweep in (*(one.sweep for one in sought), *grids):
        if sweep not in sweeps:  # drifts of several schemes or windows are of one sweep
            sweeps.append(sweep)
    first = [sweep for sweep in sweeps if sweep.design.auto is None]
    return replace(
        sweep_experiment(*first, conclude=conclude),
        then=lambda store: ahead(sought, store),
        config={**config, "sweeps": [sweep.to_dict() for sweep in sweeps]},
    )
