"""Comparison: the forward pass of a model beside that of its base."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from depthmup.planning.structure.matching import Match
from depthmup.planning.structure.own_constants import (
    OwnConstants,
    attributed,
    counterparts,
    in_logits,
)
from depthmup.planning.structure.roles import NotUnderstood
from depthmup.tracing import ExampleInputs, Facts, Product, TraceError, patterns_of, read

# What buffers of one value hold, by name, in a model and in its base.
Numbers: TypeAlias = tuple[Mapping[str, float], Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The dataflow of a model beside that of its base.

    ``products`` are the model's products of activations, each with the base's in the same place;
    ``own`` are the constants of both.
    """

    facts: Facts
    base: Facts
    products: tuple[tuple[Product, Product], ...]
    own: tuple[OwnConstants, OwnConstants]


def compare(facts: Facts, base: Facts, match: Match) -> Comparison:
    """Set the products and the constants of two models side by side.

    Args:
        facts: of the model.
        base: of the base.
        match: which module corresponds to which.
    """
    products = tuple(counterparts(facts, base, match))
    owned, base_owned = in_logits(products)
    return Comparison(
        facts=facts,
        base=base,
        products=products,
        own=(attributed(facts, owned), attributed(base, base_owned)),
    )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What forward passes of both models show, or why they could not be followed."""

    facts: Facts | None = None
    base_facts: Facts | None = None
    failure: TraceError | None = None

    @property
    def complete(self) -> bool:
        """Whether both forward passes were followed."""
        return self.facts is not None and self.base_facts is not None

    def compared(self, match: Match) -> Comparison | None:
        """The two side by side; None if one of them is missing."""
        if self.facts is None or self.base_facts is None:
            return None
        return compare(self.facts, self.base_facts, match)


def read_both(
    model: nn.Module,
    base: nn.Module,
    example_inputs: ExampleInputs | None,
    base_inputs: ExampleInputs | None,
    read_before: tuple[Facts, Facts] | None,
    numbers: Numbers = ({}, {}),
) -> Reading:
    """Follow one forward pass of each model, unless that was done before.

    Args:
        model: to be trained.
        base: its base.
        example_inputs: arguments of the model's forward pass; None: nothing is followed.
        base_inputs: those of the base, where they differ.
        read_before: what ``tracing.read`` gave for both.
        numbers: what buffers of one value hold in either, where they are on meta.

    Raises:
        NotUnderstood: the forward pass multiplies by a number whose value is not at hand.
    """
    if read_before is not None:
        return Reading(facts=read_before[0], base_facts=read_before[1])
    if example_inputs is None:
        return Reading()
    facts = None
    try:
        facts = read(model, example_inputs, numbers[0])
        given = base_inputs if base_inputs is not None else example_inputs
        base_facts = read(base, given, numbers[1])
    except TraceError as problem:
        return Reading(facts=facts, failure=problem)
    _refuse_unknown(facts, "model")
    _refuse_unknown(base_facts, "base")
    return Reading(facts=facts, base_facts=base_facts)


def _refuse_unknown(facts: Facts, which: str) -> None:
    names = [name or "a tensor that is no buffer" for name in facts.graph.unknown]
    if names:
        raise NotUnderstood(
            f"The {which} multiplies by a number that has no value on the meta device: "
            f"{patterns_of(names, most=3)}. Whether it follows the size of the model cannot be "
            "told. Build the model inside depthmup.planning.recorded and pass what it saw as "
            "drawn=, give that buffer its value (module.scale = torch.tensor(...)), make the "
            "number a float, or plan a model on the CPU."
        )


def unsure_numbers(facts: Facts) -> Iterator[str]:
    """A note on buffers of several entries by which the model multiplies, on the meta device."""
    names = [name or "a tensor that is no buffer" for name in facts.graph.unsure]
    if names:
        yield (
            f"The model multiplies by {patterns_of(names, most=3)}, whose values are not at hand "
            "on the meta device. If that is one number which follows the size of the model, the "
            "plan does not see it: plan on the CPU, or build the model inside "
            "depthmup.planning.recorded and pass what it saw as drawn=."
        )


def untraced(failure: TraceError | None) -> str:
    """A note on what a plan does not know that rests on shapes and declarations alone."""
    why = str(failure).split(". If it")[0] if failure is not None else "No example_inputs"
    return (
        f"{why}. Roles follow from shapes and module types, branches from what was declared; "
        "every branch multiplier stays explicit, and matrices of which no dimension grows "
        "count as hidden. Constants that the model itself multiplies by are not seen, and "
        "attention logits take no factor: if the size of heads grows, divide by it in the "
        "model, or grow their number instead."
    )
