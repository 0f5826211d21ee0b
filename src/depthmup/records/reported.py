"""Which of the losses that a run reported counts: the last, the least, one step's, or an error."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_STEPS = re.compile(
    r"_?((n|num|max|train|training|total|global|last|final|current|optimizer)_)?"
    r"(steps?|iters?|iterations?|epochs?|updates?)(_(seen|done|taken|since_restore))?"
)


def counts_steps(column: str) -> bool:
    """Whether a column is called as trainers and trackers call a count of steps."""
    return bool(_STEPS.fullmatch(last_part(column)))


def step_of(row: Mapping[str, Any], number: int) -> Any:
    """What a row of a log has as its step, a count of steps before one of epochs; else its number.

    Example:
        >>> step_of({"epoch": 2, "step": 40, "loss": 3.1}, 5), step_of({"loss": 3.1}, 5)
        (40, 5)
    """
    counts = [c for c in row if counts_steps(str(c)) and row[c] not in ("", None)]
    return row[min(counts, key=lambda c: "step" not in c.lower())] if counts else number


def last_part(name: str) -> str:
    """The last part of a tracker's name: ``config.lr``, ``params/lr`` and ``lr`` are alike.

    As are ``Val Loss`` and ``val_loss``, or ``# Layers`` and ``n_layers``; what stands in brackets
    is a unit or a remark.
    """
    bare = re.sub(r"\([^)]*\)|\[[^]]*\]", "", name).strip().lower()
    bare = re.sub(r"^(#|no\.|number of)\s*", "n_", bare)
    return re.sub(r"[\s-]+", "_", re.split(r"[./]|params_", bare)[-1])


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A column and what is read of it.

    ``NAME`` is its last value, ``NAME:min`` the least, ``NAME@STEP`` that of a step; ``1-NAME`` is
    the error of an accuracy, and ``100-NAME`` of one in percent.

    Example:
        >>> Wanted.of("1-accuracy@2000")
        Wanted(text='1-accuracy@2000', name='accuracy', least=False, step=2000.0, less_than=1.0)
    """

    text: str
    name: str
    least: bool = False
    step: float | None = None
    less_than: float | None = None

    @staticmethod
    def of(text: str, names: Collection[str] = ()) -> "Wanted":
        """What a text means; a column of just that name comes first."""
        if text in names:
            return Wanted(text=text, name=text)
        name, step, least, less = text, None, False, None
        if match := re.fullmatch(r"(.+)@(\d+(?:\.\d+)?(?:e\+?\d+)?)", name):
            name, step = match[1], float(match[2])
        elif name.endswith(":min"):
            name, least = name.removesuffix(":min"), True
        if name not in names and (match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*-\s*(.+)", name)):
            less, name = float(match[1]), match[2]
        return Wanted(text=text, name=name, least=least, step=step, less_than=less)

    def curve(self, points: Sequence[tuple[float, float]]) -> list[float]:
        """The losses up to the one that counts, which stands last; none of a step that lacks.

        A run that ended in nan diverged, whatever was least.
        """
        if self.step is not None:
            at = next((i for i, (step, _) in enumerate(points) if step == self.step), -1)
            points = points[: at + 1]
        values = [value for _, value in points]
        if self.less_than is not None:
            values = [self.less_than - value for value in values]
        if not self.least:
            return values
        lowest, least = math.inf, []
        for value in values:
            lowest = min(lowest, value) if math.isfinite(value) else lowest
            least.append(lowest if math.isfinite(value) else value)
        return least

    def value(self, points: Sequence[tuple[float, float]]) -> float | None:
        """The loss that counts."""
        return values[-1] if (values := self.curve(points)) else None
