"""Bounds on a sweep, checked before its runs are listed, which might not fit into memory."""

import math
from collections.abc import Sequence

from depthmup.records import LEARNING_RATE, Tuned

RUNS = 10**7
"""Most runs of a sweep: at a millisecond per run, the bookkeeping alone takes three hours."""

VARIANTS = 10**4
"""Most variants of a sweep: schemes times optimizers, multipliers, decays and run rules."""

LARGEST_SIZE = 2**80
"""Of an axis, such as tokens; larger ones overflow where they are multiplied."""

OCTAVES = 500
"""Largest log2 of a learning rate, up or down. Doubles end at 2^1023, and schemes multiply rates:
this leaves as much room again."""


def check_runs(*factors: int) -> None:
    """Refuse a sweep of more than ``RUNS`` runs, given factors of their number."""
    runs = math.prod(factors)
    if runs > RUNS:
        raise ValueError(
            f"Expected a sweep of at most {RUNS:,} runs; this one has {runs:,}. Take fewer seeds, "
            "sizes or learning rates, or several sweeps."
        )


def check_variants(*factors: int) -> None:
    """Refuse a sweep of more than ``VARIANTS`` variants, given factors of their number."""
    variants = math.prod(factors)
    if variants > VARIANTS:
        raise ValueError(
            f"Expected a sweep of at most {VARIANTS:,} variants; this one has {variants:,}. Take "
            "fewer multipliers or weight decays, or several sweeps."
        )


def check_octaves(log2_values: Sequence[float], what: Tuned = LEARNING_RATE) -> None:
    """Refuse values that would overflow or vanish when a scheme scales them."""
    if not all(abs(k) <= OCTAVES for k in log2_values):  # NaN fails this too
        raise ValueError(
            f"Expected {what.plural} from 2^-{OCTAVES} to 2^{OCTAVES}; got log2 {what.word}s of "
            f"{', '.join(f'{k:g}' for k in log2_values)}."
        )
