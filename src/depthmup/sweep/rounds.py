"""Training in rounds, until a plan asks for nothing more."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from depthmup.sweep.run import Progress
from depthmup.sweep.store import Store
from depthmup.sweep.strategy import Plan, advance

Tell: TypeAlias = Callable[[Progress], None]
Train: TypeAlias = Callable[[Sequence[Any], Tell], None]
"""Trains runs that a store does not hold, and tells their progress."""


def train_rounds(plan: Plan, store: Store, *, train: Train, tell: Tell) -> Plan:
    """Train what a plan asks for, round by round, to its end or the end of its budget of seconds.

    Args:
        plan: of a sweep whose learning rates are found as it goes.
        store: of its runs.
        train: trains the runs of a round.
        tell: called with the progress of the whole. The number of runs is what the plan expects: it
            shrinks when a verdict is decided, and grows when an optimum is hard to find.

    Returns:
        The plan, with nothing pending unless its seconds are over.
    """
    started = time.monotonic()
    auto = plan.sweep.design.auto
    seconds = math.inf if auto is None or auto.seconds is None else auto.seconds
    plan = advance(plan, store)
    if plan.done:
        train((), tell)  # notes the session
    while plan.pending and time.monotonic() - started < seconds:
        train(plan.pending, _of_the_whole(plan, tell, started))
        plan = advance(plan, store)
    return plan


def _of_the_whole(plan: Plan, tell: Tell, started: float) -> Tell:
    """Tells the progress of one round as that of everything that the plan expects."""
    work = plan.sweep.model.work
    pending = math.fsum(work(run) for run in plan.pending)
    done, runs = plan.work, len(plan.records)
    total = done + pending + plan.rest

    def told(progress: Progress) -> None:
        tell(
            Progress(
                done=runs + progress.done,
                cells=runs + len(plan.pending) + plan.rest_runs,
                fraction=(done + progress.fraction * pending) / total if total else 1.0,
                elapsed=time.monotonic() - started,
                open=True,
            )
        )

    return told
