"""How a measurement went: which runs were made in which order, and what was known after each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from depthmup.records.finding import UNKNOWN, Estimate

Values: TypeAlias = float | tuple[float, ...]
"""The log2 of a tuned value at the base, or of several that are tuned together."""

Asked = tuple[Mapping[str, float], Values, tuple[int, ...]]
"""A size, the log2 of a value at the base, and the seeds that were trained with it in one round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRound:
    """One round of one scheme: its runs, the reason for them, and the drifts known afterwards.

    ``work`` is what the runs took, in parameters times steps; ``drifts`` are by axis.
    """

    number: int
    scheme: str
    why: str
    asked: tuple[Asked, ...]
    work: float
    drifts: Mapping[str, Estimate]

    def drift(self, axis: str) -> Estimate:
        """The drift along an axis as it was known; unknown before there were two sizes."""
        return self.drifts.get(axis, UNKNOWN)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchStory:
    """All rounds, why each scheme's search ended, and what a grid would have taken.

    Runs that schemes share count once. The grid has ``grid_rates`` rates and ``grid_seeds``
    seeds at every size.
    """

    rounds: tuple[SearchRound, ...]
    ended: Mapping[str, str]
    runs: int
    work: float
    grid_rates: int
    grid_seeds: int
    grid_runs: int
    grid_work: float

    @property
    def saved(self) -> float:
        """How many times the work of the search the grid would have taken."""
        return self.grid_work / self.work if self.work else float("nan")
