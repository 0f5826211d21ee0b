"""What a reader must know of the runs behind a study: notes, and what is wrong with rows."""

from dataclasses import dataclass
from enum import StrEnum


class Defect(StrEnum):
    """What is wrong with a row, a size or a slice of a table; each is counted and listed."""

    MISSING = "a number is missing"
    NOT_POSITIVE = "a size or a rate is not positive"
    RATE = "a rate beyond any sense"
    IMPOSSIBLE = "a loss that cannot be"
    SHORT = "cut short"
    UNFINISHED = "did not finish"
    CHECKPOINT = "a checkpoint before a run's end"
    DUPLICATE = "a row stands twice"
    REPEATED = "a run stands twice with different losses"
    UNIT = "another unit than the rest"
    DIVERGED = "diverged"
    EDGE = "optimum at the edge of the grid"
    FAILED = "nothing trains"
    FEW = "fewer than three rates"
    FAR = "far from the law of the others"


EXCLUDED = frozenset(
    {
        Defect.MISSING,
        Defect.NOT_POSITIVE,
        Defect.RATE,
        Defect.IMPOSSIBLE,
        Defect.SHORT,
        Defect.UNFINISHED,
        Defect.CHECKPOINT,
        Defect.DUPLICATE,
        Defect.UNIT,
    }
)
"""Defects whose rows are left out. The other ones are told, and used for what they say: a diverged
run bounds the rates that train, an optimum at an edge bounds an optimum."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """What a reader must know of the runs behind a study.

    Attributes:
        text: a sentence.
        scheme: the variant that it is about; empty for all.
        defect: what is wrong, from a fixed list, if anything is.
        count: of the rows or sizes that it is about.
        rows: numbers of a table's rows, from 1, the first ones of many.
        size: pairs of axis and value, where it is about one size alone.
    """

    text: str
    scheme: str = ""
    defect: Defect | None = None
    count: int = 0
    rows: tuple[int, ...] = ()
    size: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Excluded:
    """A row of a table that is left out, and why."""

    row: int
    group: str
    defect: Defect
    reason: str
