"""Places: what each parameter of a model is, how it grew from the base, and where it stands."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from depthmup.planning.structure.comparison import Comparison
from depthmup.planning.structure.declared import DeclaredRole
from depthmup.planning.structure.depth_ratios import Membership
from depthmup.planning.structure.roles import (
    Growth,
    MixturePart,
    NotUnderstood,
    kind_and_ratios,
    lookup_use,
    matrix_use,
)
from depthmup.rules import Kind, Part, Ratios, Role
from depthmup.tracing import Facts, How, Use, pattern_of, patterns_of, plain_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One parameter: what it is, how it grew, where it stands.

    ``branches`` are the labels of the branches it lies in, outermost first; ``names`` all its names
    where it is tied; ``embeds`` says that rows of it are looked up, beside any other use.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    base_name: str
    base_shape: tuple[int, ...]
    role: Role
    ratios: Ratios
    branches: tuple[str, ...] = ()
    embeds: bool = False


def growth_of(model: nn.Module, base: nn.Module, base_of: Mapping[str, str]) -> dict[str, Growth]:
    """The shape of each parameter in both models.

    Args:
        model: whose parameters they are.
        base: its base.
        base_of: the name of each parameter's counterpart.
    """
    shapes, base_shapes = (
        {plain_name(name): tuple(p.shape) for name, p in part.named_parameters()}
        for part in (model, base)
    )
    return {
        name: Growth(name=name, shape=shapes[name], base_shape=base_shapes[counterpart])
        for name, counterpart in base_of.items()
    }


def places(
    names: Mapping[str, tuple[str, ...]],
    base_of: Mapping[str, str],
    growth: Mapping[str, Growth],
    uses: Mapping[str, tuple[Use, ...]],
    membership: Membership,
    declared: Mapping[str, DeclaredRole],
    frozen: frozenset[str],
    parts: Mapping[str, MixturePart],
) -> tuple[Place, ...]:
    """The place of every parameter.

    Args:
        names: all names of each parameter, by its first.
        base_of: the name of its counterpart.
        growth: its shape in both.
        uses: what the forward pass, or its module, does with it.
        membership: which branches it lies in.
        declared: roles that need not be found out.
        frozen: parameters that are not trained.
        parts: of mixtures of experts, by name.

    Raises:
        NotUnderstood: a parameter is used in a way that fixes no role.
    """
    result = []
    for name in names:
        role, ratios, branches = _role(
            growth[name],
            uses.get(name, ()),
            membership,
            declared.get(name),
            parts.get(name),
            frozen=name in frozen,
        )
        result.append(
            Place(
                name=name,
                names=names[name],
                shape=growth[name].shape,
                base_name=base_of[name],
                base_shape=growth[name].base_shape,
                role=role,
                ratios=ratios,
                branches=branches,
                embeds=lookup_use(uses.get(name, ())) is not None,
            )
        )
    return tuple(result)


def _role(
    growth: Growth,
    uses: tuple[Use, ...],
    membership: Membership,
    declared: DeclaredRole | None,
    mixture: MixturePart | None,
    *,
    frozen: bool,
) -> tuple[Role, Ratios, tuple[str, ...]]:
    """The role of one parameter, its ratios, and the branches it lies in."""
    if not uses and declared is None:
        if frozen:
            return Role(kind=Kind.VECTOR), Ratios(), ()
        if _is_vector(growth):
            return Role(kind=Kind.VECTOR), Ratios(fan_out=growth.along(growth.growing)), ()
    name = growth.name
    labels, depth, shared = membership.inside.get(name, ((), 1.0, False))
    kind, fans, tied = kind_and_ratios(
        growth,
        uses,
        declared,
        stacked=name in membership.stacked,
        # A shared expert is a dense layer.
        mixture=None if mixture is None or mixture.part is Part.SHARED else mixture,
    )
    role = Role(
        kind=kind,
        in_branch=bool(labels),
        last=name in membership.last and bool(labels),
        tied=tied and kind is Kind.READOUT,
        shared=shared,
        part=mixture.part if mixture is not None and declared is None else None,
    )
    return role, replace(fans, depth=depth), labels


def _is_vector(growth: Growth) -> bool:
    """Whether a shape has one dimension at most, so that its role needs no use to show it."""
    return sum(size != 1 for size in growth.shape) <= 1


def mixed_inputs(
    names: Iterable[str],
    base_of: Mapping[str, str],
    comparison: Comparison,
    declared: Iterable[str],
) -> None:
    """Refuse a matrix that reads coordinates of which some grow and others do not.

    What reads n growing coordinates learns at 1/n and what reads fixed ones at 1: one learning rate
    for both would let the fixed ones vanish.

    Args:
        names: of the parameters.
        base_of: the name of each one's counterpart.
        comparison: the dataflow of both models.
        declared: parameters whose role was declared.

    Raises:
        NotUnderstood: there is such a matrix.
    """
    for name in set(names) - {*declared}:
        base_uses = comparison.base.uses[base_of[name]]
        for i, use in enumerate(comparison.facts.uses[name]):
            base_use = base_uses[min(i, len(base_uses) - 1)] if base_uses else use
            if len(use.pieces) != len(base_use.pieces):
                continue
            growth = [a / b for a, b in zip(use.pieces, base_use.pieces, strict=True)]
            if len(set(growth)) > 1:
                raise NotUnderstood(_mixed(name, use.pieces, growth))


def _mixed(name: str, pieces: Sequence[int], growth: Sequence[float]) -> str:
    parts = ", ".join(
        f"{size} ({ratio:g}-fold)" for size, ratio in zip(pieces, growth, strict=True)
    )
    return (
        f"{name} reads coordinates put together from parts that grow differently: {parts}. The "
        "learning rate that is right for those that grow lets the others vanish, and no rate "
        "serves both. Give each part a matrix of its own and add the results, which computes the "
        "same: self.a(x) + self.b(y) in place of self.linear(torch.cat([x, y], -1)). To plan it "
        f"by its whole fan-in all the same, declare it: roles={{{name!r}: 'hidden'}} (or readout)."
    )


def repeated_outside(
    base_of: Mapping[str, str],
    uses: Mapping[str, tuple[Use, ...]],
    membership: Membership,
    declared: Iterable[str],
) -> list[str]:
    """Matrices of layers that the model repeats more often than the base, outside of branches.

    Args:
        base_of: the name of each parameter's counterpart.
        uses: what the forward pass does with each parameter.
        membership: which branches each lies in.
        declared: parameters whose role was declared, which need no branch.
    """
    # A layer is repeated where several parameters have one counterpart.
    copies, exempt = Counter(base_of.values()), {*declared, *membership.inside, *membership.beside}
    return [
        name
        for name, counterpart in base_of.items()
        if copies[counterpart] > 1
        and name not in exempt
        and matrix_use(uses.get(name, ())) is not None
    ]


def no_depth_rule(names: list[str]) -> str:
    """What to do about matrices that repeat outside of every branch."""
    return (
        f"The model repeats {patterns_of(names, most=3)} more often than the base, but outside "
        "of every residual branch (stream + branch) that was found or declared, so no depth rule "
        "covers them. Write the addition plainly, with no factor on the stream, use the same "
        "depth, declare the branches: branches={'layers.*.attention': ('layers.*.norm1',), ...}, "
        f"or, if they need no depth factor, say so: roles={{{pattern_of(names[0])!r}: 'hidden'}}."
    )


def on_the_stream(
    names: Iterable[str],
    base_of: Mapping[str, str],
    comparison: Comparison,
    membership: Membership,
    declared: Iterable[str],
) -> Iterator[str]:
    """A note on what acts on the stream itself once per layer, which no depth rule covers.

    Args:
        names: of the parameters.
        base_of: the name of each one's counterpart.
        comparison: the dataflow of both models.
        membership: which branches each parameter lies in.
        declared: parameters whose role was declared.
    """
    exempt = {*declared, *membership.inside}
    facts, base = comparison.facts, comparison.base
    acting = [
        name
        for name in names
        if name not in exempt and _grows_with_depth(name, base_of, facts, base)
    ]
    # A norm on the stream undoes what gains on it add up to.
    if acting and not any(stream.normalized for stream in facts.residuals.streams):
        yield _each_layer(acting)


def _grows_with_depth(name: str, base_of: Mapping[str, str], facts: Facts, base: Facts) -> bool:
    """Whether something that is no matrix acts once per layer, in parameters or in slices."""
    uses, base_uses = facts.uses[name], base.uses[base_of[name]]
    if any(use.how is How.MATRIX for use in uses):
        return False
    copies = Counter(base_of.values())
    repeated = copies[base_of[name]] > 1 and any(use.reads_stream for use in uses)
    sliced = len(uses) > len(base_uses) and any(use.slices for use in uses)
    return repeated or sliced


def _each_layer(names: list[str]) -> str:
    return (
        f"{patterns_of(names, most=3)} act on the stream itself once per layer, outside of "
        "every branch (gains of the stream, vectors that each layer adds), so their effects add up "
        "over depth and no depth rule covers them: they take no depth factor. Put them inside a "
        "branch, or check their learning rate at the target depth."
    )


def unused(
    uses: Mapping[str, tuple[Use, ...]], growth: Mapping[str, Growth], frozen: frozenset[str]
) -> Iterator[str]:
    """A note on vectors without influence on the output.

    Args:
        uses: what the forward pass does with each parameter.
        growth: shapes of those whose role was not declared.
        frozen: parameters that are not trained, of which nothing need be said.
    """
    idle = [n for n, g in growth.items() if not uses.get(n) and n not in frozen and _is_vector(g)]
    if idle:
        more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
        yield (
            f"{idle[0]}{more} has no influence on the output for these example_inputs (a mask "
            "token, perhaps). It is planned as a vector outside of all branches; pass inputs that "
            "use it if it lies in one."
        )


def mixed_growth(growth: Mapping[str, Growth]) -> Iterator[str]:
    """A note on a base that is narrower in some dimensions and wider in others."""
    wider = [g for g in growth.values() if any(r > 1 for r in g.ratios)]
    narrower = [g for g in growth.values() if any(r < 1 for r in g.ratios)]
    if wider and narrower:
        yield (
            f"The base is narrower in some dimensions (first: {wider[0].words}) and wider in "
            f"others (first: {narrower[0].words}). Every parameter follows its own ratios."
        )
