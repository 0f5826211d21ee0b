"""More seeds where a claim is open: the error of 5% is spent evenly over the looks.

Whoever looks at a 95% interval after every few seeds and stops when it suits is wrong too often
(docs/studies/adaptive.md). So an experiment that may be looked at k times takes intervals of
1 - 0.05 / k at every look, all of which hold the truth in 95% of cases.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from depthmup.statistics import CONFIDENCE, student
from depthmup.sweep import Store
from reproduction.claims.claim import Ahead, Experiment, nothing
from reproduction.evidence import Comparison, Reproduction


@dataclass(frozen=True, kw_only=True)
class Look:
    """An experiment of one round, and its comparisons alone, which say whether it is decided."""

    experiment: Experiment
    compare: Callable[[Store], Sequence[Comparison]]


Build: TypeAlias = Callable[[int, float], Look]
"""The look at so many seeds, with intervals of such a confidence."""


def with_looks(build: Build, looks: Sequence[int]) -> Experiment:
    """An experiment that gets more seeds where its conclusion is open and they could decide it."""
    confidence = 1 - (1 - CONFIDENCE) / len(looks)
    built = {seeds: build(seeds, confidence) for seeds in looks}

    def last(store: Store) -> tuple[Experiment, Ahead]:
        """The experiment at the last look that has its runs, and what the next one lacks."""
        whole = built[looks[0]].experiment
        for seeds, look in built.items():
            if missing := look.experiment.ahead(store).missing:
                return whole, Ahead(missing=missing, done=whole.asked, narrows=seeds > looks[0])
            whole = look.experiment
            if seeds == looks[-1] or not _more_may_decide(
                look.compare(store), seeds, looks[-1], confidence
            ):
                break
        return whole, Ahead(done=whole.asked)

    first = built[looks[0]].experiment
    return Experiment(
        conclude=lambda store: last(store)[0].conclude(store),
        cells=first.cells,
        then=nothing if len(looks) == 1 else lambda store: last(store)[1],
        config={**first.config, "looks": list(looks)},
    )


def _more_may_decide(
    comparisons: Sequence[Comparison], seeds: int, most: int, confidence: float
) -> bool:
    """Whether the claim is open, and the most seeds could decide all that is open of it."""
    decisive = [c for c in comparisons if c.decisive]
    if any(c.verdict is Reproduction.NOT_REPRODUCED for c in decisive):
        return False
    opened = [c for c in decisive if c.verdict is Reproduction.UNDECIDABLE]
    return bool(opened) and all(_within_reach(c, seeds, most, confidence) for c in opened)


def _within_reach(comparison: Comparison, seeds: int, most: int, confidence: float) -> bool:
    """Whether the interval that the most seeds would leave clears the nearest edge.

    A half-width shrinks as the error, seeds^-1/2, and as Student's t. Seeds to come may still move
    the value by a standard error or so.
    """
    estimate, accepted = comparison.ours, comparison.accepted
    half = (estimate.high - estimate.low) / 2
    if not math.isfinite(half):  # one seed decides whether it exists, which it may not of more
        return math.isfinite(estimate.value)
    t_now, t_then = (float(student(n - 1, confidence)) for n in (seeds, most))
    error = half / t_now
    away = min(abs(estimate.value - edge) for edge in (accepted.low, accepted.high))
    return t_then * error * math.sqrt(seeds / most) <= away + error
