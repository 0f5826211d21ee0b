"""Reproducing claims: everything they ask for, done once, then judged one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from depthmup.paper.claim import Claim, Experiment, Scale, Setting
from depthmup.records import Cell, Evidence, Task
from depthmup.sweep import Executor, Job, Progress, Store, StoreError, run, training
from depthmup.training import Placement

Planned = Sequence[tuple[Claim, Experiment]]


def plan_claims(claims: Sequence[Claim], setting: Setting) -> Planned:
    """The experiment of every claim at a setting; what cannot be run is refused here."""
    return [(claim, claim.experiment(setting)) for claim in claims]


def reproduce(
    planned: Planned,
    *,
    store: Store,
    executor: Executor,
    placement: Placement | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
    about: Mapping[str, object] | None = None,
) -> int:
    """Train and measure what the store does not hold, each once; the number of those.

    Args:
        planned: claims with their experiments.
        store: that results go to.
        executor: that runs them.
        placement: devices and engines.
        tell: told the progress.
        about: what is recorded beside every result.
    """
    measures = {
        measure.task.key: measure for _, experiment in planned for measure in experiment.measures
    }

    def jobs(missing: Sequence[Any]) -> list[Job]:
        tasks = [measures[item.key] for item in missing if isinstance(item, Task)]
        cells = [item for item in missing if isinstance(item, Cell)]
        todo: list[Job] = [*tasks, *training(cells, placement=placement)]
        left = {item.key for item in missing}
        for _, experiment in planned:
            for job in experiment.trials:  # those that claims share go to the first
                if unclaimed := left.intersection(job.keys):
                    left -= unclaimed
                    todo.append(job.only(unclaimed))
        # The longest first: what is left at the end, when workers run out of jobs, is short.
        return sorted(todo, key=lambda job: -job.work)

    # By key: what several claims ask for is done once.
    asked = {item.key: item for _, experiment in planned for item in experiment.asked}
    return run(
        tuple(asked.values()), store=store, executor=executor, jobs=jobs, tell=tell, about=about
    )


def judge(
    planned: Planned,
    store: Store,
    *,
    scale: str,
    environment: Mapping[str, Any],
    config: Mapping[str, Any] | None = None,
    command: Callable[[Claim], str] = lambda claim: f"depthmup reproduce {claim.name}",
) -> Evidence:
    """The evidence, from a store that holds all results.

    Args:
        planned: claims with their experiments.
        store: with all of their results.
        scale: by name.
        environment: what they were measured on.
        config: options of the command.
        command: what reproduces one claim.

    Raises:
        StoreError: results are missing; of which claim, and that the work resumes.
    """
    for claim, experiment in planned:
        if missing := store.missing(experiment.asked):
            raise StoreError(
                f"{len(missing)} of {len(experiment.asked)} results of {claim.name} are not in "
                f"{store.path} yet. Run `depthmup reproduce` again to finish them."
            )
    findings = tuple(
        claim.finding(experiment, store, command=command(claim)) for claim, experiment in planned
    )
    if scale == Scale.PAPER:  # there is no larger scale to advise
        findings = tuple(replace(finding, remedy="") for finding in findings)
    return Evidence(
        scale=scale,
        findings=findings,
        environment=environment,
        config=config or {},
    )
