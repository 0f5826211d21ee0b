"""More seeds where a claim is open: the error of 5% is spent evenly over the looks.

Whoever looks at a 95% interval after every few seeds and stops when it suits is wrong too often
(docs/studies/adaptive.md). So an experiment that may be looked at k times takes intervals of
1 - 0.05 / k at every look, all of which hold the truth in 95% of cases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from depthmup.statistics import together
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
    """An experiment that gets more seeds where its conclusion is open."""
    confidence = together(len(looks))
    built = {seeds: build(seeds, confidence) for seeds in looks}

    def last(store: Store) -> tuple[Experiment, Ahead]:
        """The experiment at the last look that has its runs, and what the next one lacks."""
        whole = built[looks[0]].experiment
        for seeds, look in built.items():
            if missing := look.experiment.ahead(store).missing:
                return whole, Ahead(missing=missing, done=whole.asked, narrows=seeds > looks[0])
            whole = look.experiment
            if seeds == looks[-1] or not _open(look.compare(store)):
                break
        return whole, Ahead(done=whole.asked)

    first = built[looks[0]].experiment
    return Experiment(
        conclude=lambda store: last(store)[0].conclude(store),
        cells=first.cells,
        then=nothing if len(looks) == 1 else lambda store: last(store)[1],
        config={**first.config, "looks": list(looks)},
    )


def _open(comparisons: Sequence[Comparison]) -> bool:
    """Whether more seeds may decide: nothing speaks against the claim, and something is open."""
    verdicts = {c.verdict for c in comparisons if c.decisive}
    return Reproduction.UNDECIDABLE in verdicts and Reproduction.NOT_REPRODUCED not in verdicts
