"""A finished measurement of transfer: all that a page, a table or a file shows."""

from collections.abc import Mapping
from dataclasses import dataclass

from depthmup.records.ablation import Ablation
from depthmup.records.finding import Estimate, Transfer
from depthmup.records.gain import Gain
from depthmup.records.judgement import AcrossGroups, JointLaw, Judgement
from depthmup.records.note import Note
from depthmup.records.search import SearchStory
from depthmup.records.tuned import LEARNING_RATE, Tuned

Axis = str
"""The axis along which sizes grow in a study, such as depth; the other axes stay at the base."""

RUN_AXES: tuple[Axis, ...] = ("batch", "steps", "tokens")
"""Axes of the run and not of its network: they change no weight's shape. Batch and steps give the
tokens, in whatever the batch counts, so that a size names two of the three at most."""


def plural(axis: Axis) -> str:
    """Several values of an axis."""
    if axis.endswith("s"):
        return axis
    return axis + ("es" if axis.endswith(("ch", "x")) else "s")


def sizes_along(axis: Axis) -> str:
    """Several values of an axis in a sentence, where "more steps" would be a longer run."""
    return "durations" if axis in ("steps", "tokens") else plural(axis)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The loss at one learning rate of one curve: the mean over seeds, with its interval.

    ``log2_lr`` is log2 of the value at the base of what is tuned, the learning rate unless the
    study says otherwise.
    ``diverged`` of ``seeds`` runs did not reach the end of the window; where none reached it, the
    loss is unknown.

    Attributes:
        loss: with its interval.
    """

    log2_lr: float
    loss: Estimate
    seeds: int
    diverged: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Loss against what is tuned, for one scheme and size; a size has a value for every axis.

    Attributes:
        scheme: by its name.
        size: by axis.
        points: from the smallest value to the largest.
    """

    scheme: str
    size: Mapping[str, float]
    points: tuple[Point, ...]

    @property
    def depth(self) -> float:
        return self.size["depth"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Curves and verdicts of runs judged by their mean loss over steps [start, stop).

    Attributes:
        start, stop: steps; both zero where a table has the losses alone.
        curves: one for each scheme and size.
        transfers: one for each scheme.
    """

    start: int
    stop: int
    curves: tuple[Curve, ...]
    transfers: tuple[Transfer, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A measurement of transfer: the windows in time order, the last one being the headline.

    ``config`` and ``environment`` say how it was run and on what, in values that JSON has.
    ``search`` is how it went, where learning rates were found as the sweep went. ``tuned`` is the
    hyperparameter whose best value is followed: what is said of learning rates holds for it.

    Attributes:
        title: of the measurement.
        windows: in time order.
        training: earlier windows of a search, with curves alone: their best values lie elsewhere.
        tolerance: octaves per doubling within which an optimum counts as staying.
        axis: along which sizes grow.
        rules: published rules that speak of the axis, judged by the last window.
        laws: of all axes at once, one for each variant that has one.
        notes: what a reader must know of the runs.
        together: what all groups of a table show together, where they are many.
        gains: of variants over one of them, at all sizes; in the first study of several.
        ablations: what each rule of the scheme does along all axes; in the first study, too.
    """

    title: str
    windows: tuple[Window, ...]
    tolerance: float
    config: Mapping[str, object]
    environment: Mapping[str, object]
    axis: Axis = "depth"
    search: SearchStory | None = None
    tuned: Tuned = LEARNING_RATE
    rules: tuple[Judgement, ...] = ()
    laws: tuple[JointLaw, ...] = ()
    notes: tuple[Note, ...] = ()
    training: tuple[Window, ...] = ()
    together: AcrossGroups | None = None
    gains: tuple[Gain, ...] = ()
    ablations: tuple[Ablation, ...] = ()

    @property
    def headline(self) -> Window:
        return self.windows[-1]
