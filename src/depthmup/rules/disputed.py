"""Laws of plans from which sources depart: both, as data."""

from dataclasses import dataclass
from fractions import Fraction

from depthmup.rules.power import Power
from depthmup.rules.run_rule import Standing


@dataclass(frozen=True, kw_only=True, slots=True)
class Disputed:
    """One law of the plans and another one that a source has for the same.

    Attributes:
        what: the quantity.
        here, there: the laws of the plans and of the source.
        because: why the plans have theirs.
        source: where the other one stands.
        standing: how well the source's statement is known.

    Example:
        >>> str(DISPUTED[0].here), str(DISPUTED[0].there)
        ('m_in^-1', 'm_in^-1/2')

    *Source:* of the other law, ``source``.
    """

    what: str
    here: Power
    there: Power
    because: str
    source: str
    standing: Standing


DISPUTED = (
    Disputed(
        what="start of an adapter's A, from the width to a fixed rank, with B at zero",
        here=Power(fan_in=Fraction(-1)),
        there=Power(fan_in=Fraction(-1, 2)),
        because=(
            "layers below that are trained move A's output by n^1/2 from a start of n^-1/2; "
            "sources look at one layer, whose input stays"
        ),
        source="Hu et al. 2021, its code (loralib): A starts as nn.Linear does",
        standing=Standing.CODE,
    ),
)
"""What is known to be in dispute. *Source:* each one's own, which stands with it."""
