"""Starts: how a model's own initialization depends on its size, from all that is known of it."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import nn

from depthmup.planning.initializers import Drawn
from depthmup.planning.measured import (
    Measured,
    Sizes,
    known_sizes,
    set_numbers,
    sizes_of,
)
from depthmup.planning.own_init import OwnInit, OwnLaw, UnrecognizedInit, laws_of
from depthmup.planning.prescribe import Prescription
from depthmup.tracing import parameters, pattern_of, plain_name

Draws: TypeAlias = tuple[Mapping[str, Drawn], Mapping[str, Drawn]]


def own_start(
    model: nn.Module,
    base: nn.Module,
    prescriptions: Sequence[Prescription],
    *,
    gains: Sequence[str],
    own_init: OwnInit | None,
    drawn: Draws | None,
) -> tuple[Mapping[str, OwnLaw], Mapping[str, Measured], Sizes, tuple[str, ...]]:
    """How each parameter's start depends on size: declared, drawn, or measured.

    Beside these laws: the sizes of the model that are known without measuring, those of the base
    (none where it has no values), and notes, among them what ``initialize`` would refuse. A
    parameter of ``gains`` multiplies products of activations: one number each, so what it is set to
    is its size.
    """
    base_names = {p.name: p.base_name for p in prescriptions}
    draws, base_draws = drawn or ({}, {})
    draws = {**set_numbers(model, gains), **draws}
    base_draws = {**set_numbers(base, [base_names[name] for name in gains]), **base_draws}
    notes: tuple[str, ...] = ()
    unknown = [n for n in gains if parameters(base)[base_names[n]].is_meta]
    if unknown and not all(base_names[name] in base_draws for name in unknown):
        notes += (_unknown_start(unknown),)
    known = known_sizes(model, draws)
    sizes, base_sizes = sizes_of(model, known), sizes_of(base, known_sizes(base, base_draws))
    laws: Mapping[str, OwnLaw] = {}
    try:
        laws, more = laws_of(prescriptions, own_init, sizes, base_sizes)
        notes += more
    except UnrecognizedInit as problem:  # parameter groups do not depend on it
        notes += (f"initialize would refuse: {problem}",)
    return laws, known, base_sizes or Sizes(measured={}), notes


def numbers_of(drawn: Draws | None) -> tuple[dict[str, float], dict[str, float]]:
    """What was drawn as one value, by name, for the model and for the base."""
    model, base = (
        {plain_name(name): d.constant for name, d in one.items() if d.constant is not None}
        for one in drawn or ({}, {})
    )
    return model, base


def _unknown_start(names: Sequence[str]) -> str:
    return (
        f"{pattern_of(names[0])} multiplies a product of activations, and how "
        "it starts in the base is not known, as that is on the meta device. It is taken to start "
        "as own_init says; where it starts at 1/sqrt(head size), pass a base with values."
    )
