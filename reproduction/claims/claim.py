"""A claim of the paper: what to run at which scale, and how to judge what comes out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from depthmup.records import Cell, Data, Run, Task
from depthmup.rules import DEPTH_MUP, Scheme
from depthmup.sweep import Store, Train
from reproduction.evidence import Comparison, Finding, Picture
from reproduction.runs import Measure


class Scale(StrEnum):
    """How much to spend: half an hour or an hour on two cores, or the paper's own sizes."""

    LAPTOP = "laptop"
    MEDIUM = "medium"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a claim is tested with.

    ``data`` is what networks are trained on (the paper: CIFAR-10), ``images`` what the linear
    networks of the limits are (MNIST). ``depth_mup`` is the rule that claims about Depth-muP are
    tested on; tests plant wrong ones. ``sizes`` replace settings of every grid, such as its
    width; tests run small ones.
    """

    scale: Scale = Scale.LAPTOP
    data: Data = field(default_factory=Data)
    images: Data = field(default_factory=Data)
    depth_mup: Scheme = DEPTH_MUP
    sizes: Mapping[str, Any] = field(default_factory=dict)

    def choose(self, *, laptop: Any, medium: Any, paper: Any) -> Any:
        """The value for this scale."""
        return {Scale.LAPTOP: laptop, Scale.MEDIUM: medium, Scale.PAPER: paper}[self.scale]


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What follows from the results: numbers against what was accepted, and pictures."""

    comparisons: tuple[Comparison, ...]
    pictures: tuple[Picture, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What an experiment asks for next; nothing at its end.

    Attributes:
        missing: runs and tasks that the store does not hold.
        rest: the work that is expected after them.
        done: what the store holds of the rounds after the first.
        narrows: whether the claim can be judged without what is missing, if less sharply.
    """

    missing: tuple[Run | Task, ...] = ()
    rest: float = 0.0
    done: tuple[Run | Task, ...] = ()
    narrows: bool = False


def nothing(store: Store) -> Ahead:
    """What follows an experiment of one round."""
    return Ahead()


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A claim at one setting: cells to train, tasks to measure, and what follows from them.

    ``trials`` are stacks of trials, of models that are no residual MLPs. ``then`` says what to
    train once all of these are there: it follows from the records that were asked for before and
    from nothing else, so that a stopped experiment goes on where it was, and any number of workers
    trains the same. Most experiments have one round, and nothing follows.
    ``conclude`` reads from the store alone. What is cheap (computed in a second or two) may be
    computed there; everything else is a cell or a task, so that it is kept and shared.
    """

    conclude: Callable[[Store], Conclusion]
    cells: tuple[Cell, ...] = ()
    measures: tuple[Measure, ...] = ()
    trials: tuple[Train, ...] = ()
    then: Callable[[Store], Ahead] = nothing
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> tuple[Run | Task, ...]:
        """What the first round asks for."""
        tasks = (measure.task for measure in self.measures)
        return (*self.cells, *tasks, *(trial for job in self.trials for trial in job.runs))

    def ahead(self, store: Store) -> Ahead:
        """What to do next, given what a store holds."""
        missing = tuple(store.missing(self.asked))
        return Ahead(missing=missing) if missing else self.then(store)


def values_of(store: Store, task: Task) -> Mapping[str, Any]:
    """What a task gave; for conclusions, which are drawn when everything is there."""
    result = store.get(task)
    # ``judge`` refuses a store that lacks any result, before it draws conclusions.
    assert result is not None
    return result.values


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One figure or claim: two sentences on what it shows, and its experiment at any setting.

    ``remedy`` says what would decide it where the laptop cannot; ``revised``, in a sentence, what
    was changed of it after a first result.
    """

    name: str
    title: str
    shows: str
    source: str
    experiment: Callable[[Setting], Experiment]
    group: str = "figures"
    remedy: str = "Run it at a larger scale: --scale medium or --scale paper."
    revised: str = ""

    def finding(self, experiment: Experiment, store: Store, *, command: str = "") -> Finding:
        """The claim's finding, from a store that holds all of its results."""
        conclusion = experiment.conclude(store)
        return Finding(
            claim=self.name,
            title=self.title,
            shows=self.shows,
            source=self.source,
            comparisons=conclusion.comparisons,
            pictures=conclusion.pictures,
            notes=conclusion.notes,
            remedy=self.remedy,
            revised=self.revised,
            group=self.group,
            config=experiment.config,
            command=command,
        )
