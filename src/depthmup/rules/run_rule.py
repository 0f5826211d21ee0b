"""A published rule of the run: how learning rate and settings follow size, batch and duration.

    lr* ~ prod_axis size_axis ** exponent

There is no settled rule for batch and tokens: published exponents in tokens run from -0.56 to
+0.31, those in the rank of adapters from -1/2 to +0.21. Part of it is a difference of question,
which stands with each rule: what was done to the batch while tokens grew, what the optimizer was.
An axis is any name of which a rule speaks. Schemes (``rules.catalogue``) are about single
parameters; a rule here is about the rate that a training run is started with, and what moves with
it. A rule that speaks of batch and duration alone goes with every scheme: together they train.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType

from depthmup.rules.power import ONE, Power
from depthmup.rules.scheme import RunLaws

CALLED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "width": ("d_model", "hidden_size", "n_embd", "dim", "hidden_dim"),
        "depth": ("n_layers", "num_layers", "n_layer", "layers", "num_hidden_layers"),
        "parameters": ("params", "n_params", "num_params", "num_parameters", "N", "n", "size"),
        "tokens": (
            "n_tokens", "train_tokens", "total_tokens", "D", "duration", "data", "examples",
        ),
        "batch": ("batch_size", "bs", "global_batch_size"),
        "steps": (
            "n_steps", "num_steps", "max_steps", "train_steps", "total_steps", "global_step",
            "_step", "iterations",
        ),
        "compute": ("flops", "C"),
        "rank": ("lora_rank", "lora_r", "r"),
        "loops": ("n_loops", "recurrence"),
        "experts": ("n_experts", "num_experts"),
        "repetition": ("n_rep",),
        "sequence": ("seq_len", "sequence_length", "context_length", "n_ctx"),
    }
)  # fmt: skip
"""Other names by which people call an axis, most usual first. D is that of scaling laws; d may be a
width."""

_AXIS_OF = {name: axis for axis, names in CALLED.items() for name in names}


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
    TABULATED = "fitted here to its source's table of runs"
    DERIVED = "derived here from its source's condition"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """An exponent as its source states it, with the source's own interval where it gives one."""

    value: Fraction
    low: Fraction | None = None
    high: Fraction | None = None


_OF_RUN: Mapping[str, Power] = MappingProxyType(
    {
        "batch": Power(batch=Fraction(1)),
        "tokens": Power(duration=Fraction(1)),
        "steps": Power(batch=Fraction(-1), duration=Fraction(1)),
    }
)
"""Axes of the run in the ratios of ``Power``, whose duration is in tokens."""


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
        key: the name by which training asks for it, such as ``"sde"``; empty where it says too
            little, or too much, to train by.
        beside: what else it moves: weight decay, epsilon and the decay rates of averages.
        best_batch: exponents of the best batch, by axis.
    """

    name: str
    exponents: Mapping[str, Stated]
    setting: str
    reach: str
    source: str
    standing: Standing
    batch: Batch = Batch.UNSAID
    key: str = ""
    beside: RunLaws = field(default_factory=RunLaws)
    best_batch: Mapping[str, Stated] = field(default_factory=dict)

    def speaks_of(self, axis: str) -> bool:
        return axis in self.exponents

    @property
    def laws(self) -> RunLaws:
        """What it prescribes as batch and duration grow, as factors on the base's values.

        Raises:
            ValueError: the rule speaks of another axis, along which a scheme has laws of its own.

        Example:
            >>> from depthmup.rules import run_rule
            >>> rule = run_rule("sde")
            >>> str(rule.laws.lr), str(rule.laws.one_minus_beta)
            ('b^1/2 d^-1/2', 'b d^-1')
        """
        if others := [axis for axis in self.exponents if axis not in _OF_RUN]:
            raise ValueError(
                f"Expected a run rule of {', '.join(_OF_RUN)} alone; {self.name!r} speaks of "
                f"{', '.join(others)}, too. Take one that has a key, such as 'sde'."
            )
        lr = ONE
        for axis, stated in self.exponents.items():
            lr = lr * _OF_RUN[axis] ** stated.value
        return replace(self.beside, lr=lr)

    def along(self, axis: str, *, fixed: str = "", quantity: str = "lr") -> Fraction | None:
        """The exponent along an axis.

        At fixed steps tokens grow with the batch, so that both exponents act.

        Args:
            axis: by its name here.
            fixed: "tokens" or "steps", which stay as the batch grows.
            quantity: "lr", another one of ``RunLaws``, or "batch", the best one.

        Returns:
            The exponent; None where the rule does not say.

        Example:
            >>> from depthmup.rules import run_rule
            >>> rule = run_rule("sde")
            >>> rule.along("batch", fixed="tokens"), rule.along("batch", fixed="steps")
            (Fraction(1, 2), Fraction(0, 1))
            >>> rule.along("tokens", quantity="one_minus_beta")
            Fraction(-1, 1)
        """
        stated = self.stated_of(quantity)
        if axis == "steps" and axis not in stated and "tokens" in stated:
            tokens = stated["tokens"]
            # Tokens are steps times the batch: a constant, or itself steps^p with p = e (1 + p).
            return tokens / (1 - tokens) if quantity == "batch" else tokens
        if axis not in stated:
            return None
        if axis == "batch" and fixed == "steps":
            return stated["batch"] + stated["tokens"] if "tokens" in stated else None
        if axis == "batch" and fixed not in ("tokens", "steps"):
            return None
        return stated[axis]

    def stated_of(self, quantity: str) -> dict[str, Fraction]:
        """The exponents of a quantity by axis, of which it says something."""
        if quantity in ("lr", "batch"):
            stated = self.exponents if quantity == "lr" else self.best_batch
            return {axis: each.value for axis, each in stated.items()}
        power: Power = getattr(self.beside, quantity, ONE)
        # Laws of the run take N as width^2 depth: a rule of N says nothing of either alone.
        of_size = {"width": power.fan_in, "depth": power.depth}
        if power.fan_in == 2 * power.depth:
            of_size = {"parameters": power.depth}
        exponents = {**of_size, "batch": power.batch, "tokens": power.duration}
        return {axis: exponent for axis, exponent in exponents.items() if exponent}


def canonical(axis: str) -> str:
    """An axis by its name here; one that is unknown stays as it is.

    Args:
        axis: as a person or a paper calls it.

    Returns:
        The name used here.

    Example:
        >>> canonical("Params"), canonical("D"), canonical("d"), canonical("vocabulary")
        ('parameters', 'tokens', 'd', 'vocabulary')
    """
    name = axis.strip()
    return _AXIS_OF.get(name) or _AXIS_OF.get(name.lower(), name.lower())
