"""Pair: a model beside its base, as far as names, shapes and declarations tell."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from depthmup.planning.declared import (
    BranchHints,
    DeclaredBranch,
    DeclaredRole,
    RoleHints,
    declared_branches,
    declared_roles,
)
from depthmup.planning.matching import Match, UnrelatedModels, tied_names
from depthmup.planning.roles import Growth
from depthmup.tracing import plain_name, unwrapped


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A model beside its base, before any forward pass.

    ``names`` are all names of each parameter by its first, ``base_of`` the first name of its
    counterpart, ``growth`` its shape in both. ``roles`` and ``branches`` (of the model, of the
    base) are what a person declared; ``overruled`` says that branches were declared to stand in
    place of those that the dataflow shows. ``frozen`` are parameters that are not trained.
    """

    model: nn.Module
    base: nn.Module
    match: Match
    names: Mapping[str, tuple[str, ...]]
    base_of: Mapping[str, str]
    growth: Mapping[str, Growth]
    roles: Mapping[str, DeclaredRole]
    branches: tuple[tuple[DeclaredBranch, ...], tuple[DeclaredBranch, ...]]
    overruled: bool
    frozen: frozenset[str]


def paired(
    model: nn.Module,
    base: nn.Module,
    *,
    branches: BranchHints | None = None,
    roles: RoleHints | None = None,
) -> Pair:
    """Match a model with its base."""
    model, base = unwrapped(model), unwrapped(base)
    match = Match(model, base)
    names, base_of = tied_names(model, base, match)
    return Pair(
        model=model,
        base=base,
        match=match,
        names=names,
        base_of=base_of,
        growth=_growth(model, base, base_of),
        roles=declared_roles(roles, names),
        branches=(declared_branches(model, branches), declared_branches(base, branches)),
        overruled=branches is not None,
        frozen=frozenset(plain_name(n) for n, p in model.named_parameters() if not p.requires_grad),
    )


def _growth(model: nn.Module, base: nn.Module, base_of: Mapping[str, str]) -> dict[str, Growth]:
    """The shape of each parameter in both models."""
    shapes, base_shapes = (
        {plain_name(name): tuple(p.shape) for name, p in part.named_parameters()}
        for part in (model, base)
    )
    growth = {
        name: Growth(name=name, shape=shapes[name], base_shape=base_shapes[counterpart])
        for name, counterpart in base_of.items()
    }
    for one in growth.values():
        if any(b == 0 != a for a, b in zip(one.shape, one.base_shape, strict=True)):
            raise UnrelatedModels(
                f"A dimension of {one.words} has no entries in the base. Use a larger base."
            )
    return growth
