"""What no sweep can be: refused before a list of its runs is made, which memory could not hold."""

import math
from collections.abc import Sequence

RUNS = 10**7
"""Runs of a sweep: at a millisecond each, what keeps track of them takes three hours."""

OCTAVES = 500
"""log2 of a learning rate, up or down: schemes multiply it, and single numbers end at 1023."""


def check_runs(*factors: int) -> None:
    """Refuse a sweep of more runs than can be kept track of.

    Raises:
        ValueError: how many there would be.
    """
    runs = math.prod(factors)
    if runs > RUNS:
        raise ValueError(
            f"Expected a sweep of at most {RUNS:,} runs; this one has {runs:,}. Take fewer seeds, "
            "sizes or learning rates, or several sweeps."
        )


def check_octaves(log2_lrs: Sequence[float]) -> None:
    """Refuse learning rates that are no numbers any more when a scheme has scaled them.

    Raises:
        ValueError: one is beyond 2^500 or below 2^-500.
    """
    if not all(abs(k) <= OCTAVES for k in log2_lrs):  # NaN is not either
        raise ValueError(
            f"Expected learning rates from 2^-{OCTAVES} to 2^{OCTAVES}; got log2 rates of "
            f"{', '.join(f'{k:g}' for k in log2_lrs)}."
        )
