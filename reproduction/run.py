"""Reproducing claims: everything they ask for, done once, then judged one by one."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from depthmup.records import Cell, Task
from depthmup.sweep import Executor, Job, Progress, Store, StoreError, run, training
from depthmup.training import Backend
from reproduction.claims.claim import Ahead, Claim, Experiment, Scale, Setting, nothing
from reproduction.evidence import Evidence
from reproduction.prices import spent

Planned = Sequence[tuple[Claim, Experiment]]


def plan_claims(claims: Sequence[Claim], setting: Setting) -> Planned:
    """The experiment of every claim at a setting; what cannot be run is refused here."""
    return [(claim, claim.experiment(setting)) for claim in claims]


def reproduce(
    planned: Planned,
    *,
    store: Store,
    executor: Executor,
    backend: Backend | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
    about: Mapping[str, object] | None = None,
    most_runs: float = math.inf,
    seconds: float = math.inf,
) -> int:
    """Train and measure what the store does not hold, each once; the number of those.

    Experiments go on side by side, a round of all of them at a time, until none asks for more.
    After ``most_runs`` or ``seconds`` no round begins without which a claim can be judged.
    """
    running = [experiment for _, experiment in planned]
    searches = any(experiment.then is not nothing for experiment in running)
    why = "searches go on until their verdicts are decided" if searches else ""
    started, done = time.monotonic(), 0
    # By key: what several claims ask for is done once. What is there already counts as done.
    items = {item.key: item for experiment in running for item in experiment.asked}
    items |= _missing([experiment.ahead(store) for experiment in running])
    count = 0
    while True:
        asked = tuple(items.values())
        todo = _jobs(planned, store.missing(asked), backend)
        count += run(  # the first one notes the session, whatever there is to do
            asked,
            store=store,
            executor=executor,
            jobs=lambda missing, todo=todo: todo,  # type: ignore[misc]
            tell=lambda progress, done=done: tell(  # type: ignore[misc]
                replace(progress, done=done + progress.done, cells=done + progress.cells, why=why)
            ),
            about=about,
        )
        done += len(asked)
        spent = count >= most_runs or time.monotonic() - started >= seconds
        both = [(experiment, experiment.ahead(store)) for experiment in running]
        both = [(one, ahead) for one, ahead in both if ahead.missing]
        both = [(one, ahead) for one, ahead in both if not (spent and ahead.narrows)]
        if not both:
            return count
        running = [one for one, _ in both]
        items = _missing([ahead for _, ahead in both])


def _missing(aheads: Sequence[Ahead]) -> dict[str, Any]:
    return {item.key: item for ahead in aheads for item in ahead.missing}


def _jobs(planned: Planned, missing: Sequence[Any], backend: Backend | None) -> list[Job]:
    """The jobs of what is missing, the longest first: what is left at the end is short."""
    measures = {
        measure.task.key: measure for _, experiment in planned for measure in experiment.measures
    }
    tasks = [measures[item.key] for item in missing if isinstance(item, Task)]
    cells = [item for item in missing if isinstance(item, Cell)]
    todo: list[Job] = [*tasks, *training(cells, backend=backend)]
    left = {item.key for item in missing}
    for _, experiment in planned:
        for job in experiment.trials:  # those that claims share go to the first
            if unclaimed := left.intersection(job.keys):
                left -= unclaimed
                todo.append(job.only(unclaimed))
    return sorted(todo, key=lambda job: -job.work)


def judge(
    planned: Planned,
    store: Store,
    *,
    scale: str,
    environment: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    command: Callable[[Claim], str] = lambda claim: f"depthmup reproduce {claim.name}",
) -> Evidence:
    """The evidence, from a store that holds all results."""
    going_on = {}
    for claim, experiment in planned:
        ahead = experiment.ahead(store)
        going_on[claim.name] = len(ahead.missing)
        if ahead.missing and not ahead.narrows:
            raise StoreError(
                f"{len(ahead.missing)} results of {claim.name} are not in {store.path} yet. Run "
                "`depthmup reproduce` again to finish them."
            )
    costs = spent(planned, store)
    seconds = math.fsum(session["seconds"] for session in store.sessions())
    findings = tuple(
        replace(
            claim.finding(experiment, store, command=command(claim)),
            runs=costs[claim.name][0],
            seconds=seconds * costs[claim.name][1],
            going_on=going_on[claim.name],
        )
        for claim, experiment in planned
    )
    if scale == Scale.PAPER:  # there is no larger scale to advise
        findings = tuple(replace(finding, remedy="") for finding in findings)
    return Evidence(
        scale=scale,
        findings=findings,
        environment=environment,
        config=config or {},
    )
