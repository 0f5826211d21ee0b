"""Comparison: the forward pass of a model beside that of its base."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from depthmup.planning.matching import Match
from depthmup.planning.options import ReadBefore
from depthmup.planning.own_constants import (
    OwnConstants,
    attributed,
    in_logits,
    paired_products,
)
from depthmup.planning.pair import Pair
from depthmup.planning.roles import NotUnderstood, structural_uses
from depthmup.tracing import ExampleInputs, Facts, Product, TraceError, Use, patterns_of, read

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
    """Set the products and the constants of two models side by side."""
    products = tuple(paired_products(facts, base, match))
    owned, base_owned = in_logits(products)
    return Comparison(
        facts=facts,
        base=base,
        products=products,
        own=(attributed(facts, owned), attributed(base, base_owned)),
    )


@dataclass(frozen=True, kw_only=True)
class ForwardPasses:
    """What forward passes of a model and its base show.

    ``comparison`` is None if one of them could not be followed; ``uses`` of the parameters then
    follow from types of modules. ``branching`` is the comparison again, unless the branches were
    declared in place of those that it shows. ``positive`` are branches of the model that end in a
    nonlinearity of positive mean; ``notes`` say what is not known.
    """

    comparison: Comparison | None = None
    branching: Comparison | None = None
    uses: Mapping[str, tuple[Use, ...]]
    positive: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def read_both(
    pair: Pair,
    *,
    example_inputs: ExampleInputs | None,
    base_inputs: ExampleInputs | None = None,
    read_before: ReadBefore = (None, None),
    numbers: Numbers = ({}, {}),
) -> ForwardPasses:
    """Follow one forward pass of each model, unless that was done before."""
    facts, base = read_before
    failure = None
    if example_inputs is not None:
        inputs = example_inputs if base_inputs is None else base_inputs
        try:
            facts = facts or read(pair.model, example_inputs, numbers[0])
            base = base or read(pair.base, inputs, numbers[1])
        except TraceError as problem:
            failure = problem
    if facts is not None and base is not None:
        _refuse_unknown(facts, "model")
        _refuse_unknown(base, "base")
        comparison = compare(facts, base, pair.match)
        return ForwardPasses(
            comparison=comparison,
            branching=None if pair.overruled else comparison,
            uses=facts.uses,
            positive=facts.positive_branches,
            notes=tuple(_notes(facts, base)),
        )
    if not pair.branches[0]:
        raise failure or ValueError(
            "Expected example_inputs, the arguments of one forward pass (only shapes and types "
            "matter), to find the residual branches in the dataflow; got None. Pass e.g. "
            "example_inputs=(tokens,), or declare the branches: branches={'layers.*.attention': "
            "('layers.*.norm1',), ...}."
        )
    return ForwardPasses(
        uses=structural_uses(pair.model),
        positive=facts.positive_branches if facts is not None else (),
        notes=(_untraced(failure),),
    )


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


def _notes(facts: Facts, base: Facts) -> Iterator[str]:
    """Notes on buffers of several entries without values, on values, and on noise in weights."""
    names = [name or "a tensor that is no buffer" for name in facts.graph.unsure]
    if names:
        yield (
            f"The model multiplies by {patterns_of(names, most=3)}, whose values are not at hand "
            "on the meta device. If that is one number which follows the size of the model, the "
            "plan does not see it: plan on the CPU, or build the model inside "
            "depthmup.planning.recorded and pass what it saw as drawn=."
        )
    if facts.graph.by_values or base.graph.by_values:
        yield (
            "The forward pass depends on the values of its inputs. The plan is of what it computes "
            "from these example_inputs: pass those of a real call, from which every part of the "
            "model is used."
        )
    if facts.noisy:
        yield (
            f"{patterns_of(facts.noisy, most=3)} multiply noise that is drawn anew at every call. "
            "They are planned as matrices, whose rate 1/m_in is right for one draw; what they add "
            "over fresh draws grows as its root alone, so that the noise adapts more slowly in "
            "wide models."
        )


def _untraced(failure: TraceError | None) -> str:
    """A note on what a plan does not know that rests on shapes and declarations alone."""
    said = "No example_inputs" if failure is None else str(failure)
    why = re.split(r"\. (?:If it|Not given|Pass the)", said)[0]  # the rest is a remedy
    return (
        f"{why}. Roles follow from shapes and module types, branches from what was declared; "
        "every branch multiplier stays explicit, and matrices of which no dimension grows "
        "count as hidden. Constants that the model itself multiplies by are not seen, and "
        "attention logits take no factor: if the size of heads grows, divide by it in the "
        "model, or grow their number instead."
    )
