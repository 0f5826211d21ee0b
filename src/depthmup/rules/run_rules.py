"""Published rules of the best learning rate: how one global rate follows size, batch and duration.

    lr* ~ prod_axis size_axis ** exponent

There is no settled rule for batch and tokens: published exponents in tokens run from -0.56 to
+0.31. Part of it is a difference of question, which stands with each rule: what was done to the
batch while tokens grew, what the optimizer was. Schemes (``rules.catalogue``) are about single
parameters; a rule here is about the rate that a training run is started with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType

AXES = ("width", "depth", "parameters", "compute", "batch", "tokens", "steps", "experts")
"""The axes that rules speak of, by their names in this package."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "n": "parameters", "params": "parameters", "size": "parameters", "duration": "tokens",
        "data": "tokens", "examples": "tokens", "batch_size": "batch", "flops": "compute",
    }
)  # fmt: skip
"""Other names by which people call an axis."""


class Batch(StrEnum):
    """What a rule takes the batch to be while other axes change."""

    OWN = "has an exponent of its own"
    FIXED = "held"
    BEST = "at its own optimum"
    UNSAID = "not said"


class Standing(StrEnum):
    """How well a rule's statement is known here."""

    TABLE = "read in its source's table"
    TEXT = "read in its source's text"
    CODE = "read in its source's code"
    NOTES = "from notes on its source"
    ABSTRACT = "from its source's abstract"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """An exponent as its source states it, with the source's own interval where it gives one."""

    value: Fraction
    low: Fraction | None = None
    high: Fraction | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRule:
    """One published rule.

    Attributes:
        name: short, unique.
        exponents: by axis; an axis that is not named is one that the rule does not speak of.
        batch: what the batch does while the other axes change.
        setting: optimizer, parametrization, and whatever else it presupposes.
        reach: the range in which its source measured or derived it.
        source: where it is stated.
        standing: how well that is known here.
        scheme: the parametrization that a rule of width or depth belongs to; empty for rules that
            belong to none.
    """

    name: str
    exponents: Mapping[str, Stated]
    setting: str
    reach: str
    source: str
    standing: Standing
    batch: Batch = Batch.UNSAID
    scheme: str = ""
    notes: str = field(default="")

    def speaks_of(self, axis: str) -> bool:
        return axis in self.exponents

    def along(self, axis: str, *, held: str = "") -> Fraction | None:
        """The exponent along an axis; ``held``: "tokens" or "steps", which stay as batch grows.

        At held steps tokens grow with the batch, so that both exponents act. None where the rule
        does not say.

        Example:
            >>> rule = next(r for r in RUN_RULES if r.name == "Complete(d)P")
            >>> rule.along("batch", held="tokens"), rule.along("batch", held="steps")
            (Fraction(1, 2), Fraction(0, 1))
        """
        stated = self.exponents
        if axis == "steps" and axis not in stated:
            # At a held batch tokens are steps times a constant.
            return stated["tokens"].value if "tokens" in stated else None
        if axis not in stated:
            return None
        if axis == "batch" and held == "steps":
            return stated["batch"].value + stated["tokens"].value if "tokens" in stated else None
        if axis == "batch" and held not in ("tokens", "steps"):
            return None
        return stated[axis].value


def _exactly(**exponents: str) -> Mapping[str, Stated]:
    return MappingProxyType({axis: Stated(value=Fraction(v)) for axis, v in exponents.items()})


_STEP_LAW = MappingProxyType(
    {
        "parameters": Stated(
            value=Fraction("-0.712"), low=Fraction("-0.774"), high=Fraction("-0.655")
        ),
        "tokens": Stated(value=Fraction("0.307"), low=Fraction("0.271"), high=Fraction("0.345")),
    }
)

RUN_RULES: tuple[RunRule, ...] = (
    RunRule(
        name="one rate for all widths",
        exponents=_exactly(width="0"),
        setting="muP and its descendants, by their base's rate",
        reach="any width, as the limit is approached",
        source="TP5 (arXiv 2203.03466) Table 3",
        standing=Standing.TABLE,
        scheme="mup",
    ),
    RunRule(
        name="one over the width",
        exponents=_exactly(width="-1"),
        setting="Adam, one global rate, hidden matrices of a standard parametrization",
        reach="widths at which hidden matrices decide",
        source="TP5 (arXiv 2203.03466) Table 3: Adam's hidden row",
        standing=Standing.TABLE,
    ),
    RunRule(
        name="one rate for all depths",
        exponents=_exactly(depth="0"),
        setting="Depth-muP and CompleteP, by their base's rate",
        reach="any depth, as the limit is approached",
        source="TP6 (arXiv 2310.02244) Tables 1 and 2; CompleteP (arXiv 2505.01618) Table 1",
        standing=Standing.TABLE,
        scheme="depth-mup",
    ),
    RunRule(
        name="one over the root of the depth",
        exponents=_exactly(depth="-1/2"),
        setting="Adam's rate inside branches that are multiplied by L^-1/2",
        reach="blocks of one layer",
        source="TP6 (arXiv 2310.02244) Table 1",
        standing=Standing.TABLE,
    ),
    RunRule(
        name="Step Law",
        exponents=_STEP_LAW,
        setting="AdamW, standard parametrization, final rate held; intervals of their bootstrap",
        reach="59M to 1B parameters, to 1e11 tokens",
        source="arXiv 2503.04715",
        standing=Standing.NOTES,
        batch=Batch.BEST,
    ),
    RunRule(
        name="DeepSeek",
        exponents=_exactly(compute="-0.125"),
        setting="AdamW, multi-step schedule, batch by compute^0.3271",
        reach="1e17 to 2e19 FLOPs",
        source="arXiv 2401.02954",
        standing=Standing.NOTES,
        batch=Batch.BEST,
    ),
    RunRule(
        name="Microsoft horizons",
        exponents=_exactly(parameters="-0.23", tokens="-0.32"),
        setting="AdamW, cosine schedule; muP alone does not remove the drift with tokens",
        reach="50M parameters and more, 25e9 tokens and more",
        source="arXiv 2409.19913",
        standing=Standing.NOTES,
        batch=Batch.FIXED,
    ),
    RunRule(
        name="Complete(d)P",
        exponents=_exactly(batch="1/2", tokens="-1/2"),
        setting="AdamW; decay, epsilon and betas follow by the same table",
        reach="batch 1/8 to 4 times the base's; tokens to 32 times",
        source="arXiv 2512.22382 Table 1",
        standing=Standing.TABLE,
        batch=Batch.OWN,
        scheme="complete-dp",
    ),
    RunRule(
        name="square root of the batch",
        exponents=_exactly(batch="1/2"),
        setting="Adam: betas and epsilon follow (1 - beta ~ batch, epsilon ~ batch^-1/2)",
        reach="batches below the critical one",
        source="arXiv 2205.10287",
        standing=Standing.NOTES,
        batch=Batch.OWN,
    ),
    RunRule(
        name="proportional to the batch",
        exponents=_exactly(batch="1"),
        setting="SGD, below the critical batch",
        reach="batches to 8192 on ImageNet",
        source="arXiv 1706.02677",
        standing=Standing.ABSTRACT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="one rate for all batches",
        exponents=_exactly(batch="0"),
        setting="AdamW: decay follows the batch, not the rate",
        reach="610M parameters, batches 63 to 2016",
        source="Power Lines, arXiv 2505.13738",
        standing=Standing.NOTES,
        batch=Batch.OWN,
    ),
    RunRule(
        name="HyperP",
        exponents=_exactly(batch="1/2", tokens="-0.32"),
        setting="MuonH on the sphere, no decay; a batch exponent of 0.558 was measured",
        reach="208M parameters, 10.4e9 to 166e9 tokens",
        source="arXiv 2603.28743 eq. 8; microsoft/ArchScale",
        standing=Standing.CODE,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Marin MuonH",
        exponents=_exactly(width="-0.15", batch="1/2", tokens="-0.395"),
        setting="MuonH",
        reach="17 runs, widths 512 to 2048",
        source="marin-community/marin #5951",
        standing=Standing.NOTES,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Scion",
        exponents=_exactly(batch="0.62", tokens="-0.56"),
        setting="Scion",
        reach="as its source's",
        source="arXiv 2510.03871",
        standing=Standing.TEXT,
        batch=Batch.OWN,
    ),
    RunRule(
        name="Scion, batch at its optimum",
        exponents=MappingProxyType(
            {
                "tokens": Stated(
                    value=Fraction("-0.28"), low=Fraction("-0.35"), high=Fraction("-0.21")
                )
            }
        ),
        setting="Scion, batch by tokens^0.45",
        reach="as its source's",
        source="arXiv 2510.03871",
        standing=Standing.TEXT,
        batch=Batch.BEST,
    ),
    RunRule(
        name="LMO theory",
        exponents=_exactly(steps="-1/2"),
        setting="norm-bounded updates, held batch",
        reach="a convergence bound",
        source="arXiv 2603.15958",
        standing=Standing.NOTES,
        batch=Batch.FIXED,
    ),
)
"""In the order of what they speak of: width, depth, size and tokens, batch.

*Source:* each rule's own. Exponents are as their sources print them.
"""


def rules_of(axis: str) -> tuple[RunRule, ...]:
    """The rules that speak of an axis, by its name here or a common other one.

    Example:
        >>> [rule.name for rule in rules_of("depth")]
        ['one rate for all depths', 'one over the root of the depth']
    """
    named = canonical(axis)
    return tuple(
        rule
        for rule in RUN_RULES
        if rule.speaks_of(named) or (named == "steps" and rule.speaks_of("tokens"))
    )


def canonical(axis: str) -> str:
    """An axis by its name here; one that is unknown stays as it is.

    Example:
        >>> canonical("Params"), canonical("width"), canonical("vocabulary")
        ('parameters', 'width', 'vocabulary')
    """
    lower = axis.strip().lower()
    return ALIASES.get(lower, lower)
