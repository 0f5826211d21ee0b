"""Training in rounds, until the search asks for nothing more."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from depthmup.sweep.run import Progress
from depthmup.sweep.store import Store
from depthmup.sweep.strategy import SearchState, advance

Tell: TypeAlias = Callable[[Progress], None]
Train: TypeAlias = Callable[[Sequence[Any], Tell], None]
"""Trains runs that a store does not hold, and tells their progress."""


def train_rounds(state: SearchState, store: Store, *, train: Train, tell: Tell) -> SearchState:
    """Train what a search asks for, round by round, to its end or the end of its budget of seconds.

    Progress counts the runs that are expected: fewer when a verdict is decided, more when an
    optimum is hard to find.
    """
    started = time.monotonic()
    auto = state.sweep.design.auto
    seconds = math.inf if auto is None or auto.seconds is None else auto.seconds
    state = advance(state, store)
    if state.done:
        train((), tell)  # notes the session
    while state.pending and time.monotonic() - started < seconds:
        train(state.pending, _of_the_whole(state, tell, started))
        state = advance(state, store)
    return state


def _of_the_whole(state: SearchState, tell: Tell, started: float) -> Tell:
    """Tells the progress of one round as that of everything that the state expects."""
    work = state.sweep.model.work
    pending = math.fsum(work(run) for run in state.pending)
    done, runs = state.work, len(state.records)
    total = done + pending + state.rest

    def told(progress: Progress) -> None:
        tell(
            Progress(
                done=runs + progress.done,
                cells=runs + len(state.pending) + state.rest_runs,
                fraction=(done + progress.fraction * pending) / total if total else 1.0,
                elapsed=time.monotonic() - started,
                open=True,
            )
        )

    return told
