"""Places: what each parameter of a model is, how it grew from the base, and where it stands."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from depthmup.planning.comparison import Comparison, ForwardPasses
from depthmup.planning.declared import DeclaredRole
from depthmup.planning.depth import Membership, Standing
from depthmup.planning.pair import Pair
from depthmup.planning.roles import (
    Growth,
    MixturePart,
    NotUnderstood,
    kind_and_ratios,
    matrix_use,
    narrows,
    structural_uses,
)
from depthmup.rules import Kind, Part, Ratios, Role
from depthmup.tracing import Facts, How, Use, pattern_of, patterns_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterPlace:
    """One parameter: what it is, how it grew, where it stands.

    ``branches`` are the labels of the branches it lies in, outermost first; ``names`` all its names
    where it is tied.

    Attributes:
        name, shape: of the parameter.
        base_name, base_shape: of its counterpart.
        role: what it is in the theory.
        ratios: by how much its dimensions grew.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    base_name: str
    base_shape: tuple[int, ...]
    role: Role
    ratios: Ratios
    branches: tuple[str, ...] = ()


def parameter_places(
    pair: Pair, reading: ForwardPasses, membership: Membership, parts: Mapping[str, MixturePart]
) -> tuple[tuple[ParameterPlace, ...], tuple[str, ...]]:
    """The place of every parameter, and notes on those that no rule covers."""
    notes: list[str] = []
    outside = _repeated_outside(pair, reading, membership, parts)
    if outside:
        if not pair.branches[0] and not pair.overruled:
            raise NotUnderstood(_no_depth_rule(outside, reading.branching))
        seen = reading.comparison.facts if pair.overruled and reading.comparison else None
        dropped = [name for name in outside if seen is not None and name in seen.users]
        if seen is not None and dropped:
            notes.append(_dropped(dropped, seen))
        rest = [name for name in outside if name not in dropped]
        notes += [_no_depth_rule(rest, None)] if rest else []
    on_stream: dict[str, tuple[float, bool]] = {}
    if reading.branching is not None:
        notes += _summed(pair, reading.branching.facts)
        on_stream = _on_the_stream(pair, reading, reading.branching, membership)
    idle = _without_influence(pair, reading)
    if idle:
        notes.append(_planned_like_neighbours(list(idle)))
        inside = {**membership.inside, **_near(idle, pair, reading, membership)}
        membership = replace(membership, inside=inside)
        reading = replace(reading, uses={**reading.uses, **idle})
    places = tuple(
        _place(name, pair, reading, membership, parts.get(name), on_stream.get(name))
        for name in pair.names
    )
    if reading.comparison is not None:
        places = _unless_multiplied(places, reading.comparison.facts)
        _refuse_mixed_inputs(pair, reading.comparison)
    notes += _mixed_growth(pair.growth)
    return places, tuple(notes)


def _unless_multiplied(
    places: tuple[ParameterPlace, ...], facts: Facts
) -> tuple[ParameterPlace, ...]:
    """Matrices to a fixed size start as hidden ones where two outputs of such are multiplied.

    Each of n^-1/2, their product would be of 1/n, and what either learns of n^-1/2.
    """
    both = facts.multiplied(
        [p.name for p in places if p.role.narrows and p.role.part != Part.ROUTER]
    )
    return tuple(
        replace(p, role=replace(p.role, narrows=False)) if p.name in both else p for p in places
    )


def _place(
    name: str,
    pair: Pair,
    reading: ForwardPasses,
    membership: Membership,
    mixture: MixturePart | None,
    on_stream: tuple[float, bool] | None,
) -> ParameterPlace:
    growth, uses = pair.growth[name], reading.uses.get(name, ())
    declared = pair.roles.get(name)
    place = ParameterPlace(
        name=name,
        names=pair.names[name],
        shape=growth.shape,
        base_name=pair.base_of[name],
        base_shape=growth.base_shape,
        role=Role(kind=Kind.VECTOR),
        ratios=Ratios(),
    )
    if name in pair.frozen and not uses and declared is None:
        return place
    if any(use.viewed for use in uses) and declared in (None, DeclaredRole(kind=Kind.HIDDEN)):
        growth = _as_matrix(growth, uses, _base_uses(name, pair, reading))
    labels, depth, shared = membership.inside.get(name, ((), *(on_stream or (1.0, False))))
    stacked = name in membership.stacked
    kind, fans, tied = kind_and_ratios(
        growth,
        uses,
        declared,
        stacked=stacked,
        # A shared expert is a dense layer.
        mixture=None if mixture is None or mixture.part is Part.SHARED else mixture,
    )
    if labels and uses and all(use.divided for use in uses):
        # Its rows are those of all layers: each branch reads as many as in the base.
        fans = replace(fans, fan_out=fans.fan_out / depth)
    role = Role(
        kind=kind,
        in_branch=bool(labels),
        on_stream=on_stream is not None,
        last=name in membership.last and bool(labels),
        tied=tied and kind is Kind.READOUT,
        shared=shared,
        part=mixture.part if mixture is not None and declared is None else None,
        narrows=narrows(growth, kind, fans, uses, stacked=stacked, mixture=mixture),
    )
    return replace(place, role=role, ratios=replace(fans, depth=depth), branches=labels)


def _base_uses(name: str, pair: Pair, reading: ForwardPasses) -> tuple[Use, ...]:
    of = reading.comparison
    return tuple(of.base.uses[pair.base_of[name]]) if of is not None else ()


def _as_matrix(growth: Growth, uses: tuple[Use, ...], base_uses: tuple[Use, ...]) -> Growth:
    """The growth of a flat vector as that of the matrices as which all of its uses read it."""
    found = [
        Growth(name=growth.name, shape=use.viewed, base_shape=of_base.viewed)
        for use, of_base in zip(uses, base_uses, strict=False)
        if use.viewed and len(use.viewed) == len(of_base.viewed)
    ]
    alike = len({matrix.ratios for matrix in found}) == 1
    if not alike or len(found) != len(uses) or len(uses) != len(base_uses):
        raise NotUnderstood(
            f"Parameter {growth.name} ({growth.words}) holds entries of several matrices, or a "
            "matrix and what is none, in one flat vector: one rate for all of them is right for "
            "none. Give each a parameter of its own."
        )
    return found[0]


def _refuse_mixed_inputs(pair: Pair, comparison: Comparison) -> None:
    """Refuse a matrix that reads coordinates of which some grow and others do not.

    What reads n growing coordinates learns at 1/n and what reads fixed ones at 1: one learning rate
    for both would let the fixed ones vanish.
    """
    for name in [name for name in pair.names if name not in pair.roles]:
        base_uses = comparison.base.uses[pair.base_of[name]]
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


def _repeated_outside(
    pair: Pair, reading: ForwardPasses, membership: Membership, parts: Iterable[str]
) -> list[str]:
    """Matrices of layers that the model repeats more often than the base, outside of branches."""
    # A layer is repeated where several parameters have one counterpart.
    copies = Counter(pair.base_of.values())
    exempt = {*pair.roles, *parts, *membership.inside, *membership.beside}
    return [
        name
        for name, counterpart in pair.base_of.items()
        if copies[counterpart] > 1
        and name not in exempt
        and matrix_use(reading.uses.get(name, ())) is not None
    ]


def _no_depth_rule(names: list[str], branching: Comparison | None) -> str:
    """What to do about matrices that repeat outside of every branch."""
    start = (
        f"The model repeats {patterns_of(names, most=3)} more often than the base, but outside "
        "of every residual branch (stream + branch) that was found or declared, so no depth rule "
        "covers them. "
    )
    if branching is not None and (summed := branching.facts.summed(names)):
        return start + (
            f"The outputs of {patterns_of(summed, most=3)} are summed over layers: the sum grows "
            "with depth as a stream does. Declare all modules whose outputs are added up, with "
            f"what belongs to each: branches={_all_branches(branching.facts, summed)}."
        )
    return start + (
        "Write the addition plainly, with no factor on the stream, use the same "
        "depth, declare the branches: branches={'layers.*.attention': ('layers.*.norm1',), ...}, "
        f"or, if they need no depth factor, say so: roles={{{pattern_of(names[0])!r}: 'hidden'}}."
    )


def _all_branches(facts: Facts, summed: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The branches that were found and modules of which outputs are summed, as declarations."""
    declared: dict[str, tuple[str, ...]] = {}
    for branch in facts.residuals.branches:
        names = sorted(
            (use.node, pattern_of(name.rpartition(".")[0]))
            for name, uses in facts.uses.items()
            for use in uses
            if (branch.index, False) in use.branches
        )
        modules = list(dict.fromkeys(module for _, module in names))
        if modules:
            declared.setdefault(modules[-1], tuple(modules[:-1]))
    return declared | {pattern_of(name.rpartition(".")[0]): () for name in summed}


def _summed(pair: Pair, facts: Facts) -> Iterator[str]:
    """A note on matrices, declared to need no depth factor, whose outputs add up over layers."""
    copies = Counter(pair.base_of.values())
    roles = [name for name in pair.roles if copies[pair.base_of[name]] > 1]
    if names := facts.summed([name for name in roles if not facts.users.get(name)]):
        yield (
            f"The outputs of {patterns_of(names, most=3)} are summed over layers, and take no "
            "depth factor as they were declared: unless the model divides that sum by their "
            "number, what training changes in it grows with depth. Declare them as branches."
        )


def _dropped(names: list[str], facts: Facts) -> str:
    """What lies in branches that the forward pass shows, and in none that was declared."""
    branches = [facts.residuals.branches[facts.innermost(name)].index for name in names]
    modules = [facts.carriers[index].modules for index in branches]
    ends = [hook.module for placement in modules if placement for hook in placement.hooks]
    instead = f" ({patterns_of(ends, most=3)})" if ends else ""
    return (
        f"{patterns_of(names, most=3)} lie in residual branches that the forward pass shows, and "
        "that were not declared. Declared branches stand in place of all others, so these take no "
        f"depth factor. Declare the modules whose outputs are added{instead} as well, with what "
        "belongs to each, or leave out branches=."
    )


def _on_the_stream(
    pair: Pair, reading: ForwardPasses, comparison: Comparison, membership: Membership
) -> dict[str, tuple[float, bool]]:
    """What acts on the stream itself in every layer: its depth ratio, and whether layers share it.

    The ratio is that of the branches which lie nearest, of all streams, or else how many more uses
    there are than in the base.
    """
    facts, base = comparison.facts, comparison.base
    exempt = {*pair.roles, *membership.inside, *membership.beside}
    outside = [name for name in pair.names if name not in exempt]
    copies = Counter(pair.base_of.values())
    kinds: set[str] = set()
    shared: set[str] = set()
    for name in outside:
        uses, base_uses = facts.uses[name], base.uses[pair.base_of[name]]
        if any(use.how is How.MATRIX for use in uses):
            continue
        reads = any(use.reads_stream for use in uses)
        more = len(uses) > len(base_uses)
        sliced = more and any(use.slices for use in uses)
        if more and reads and not sliced and not facts.users.get(name):
            shared.add(name)
        if sliced or (reads and copies[pair.base_of[name]] > 1):
            # The first layer's, which reads what no branch was added to yet, is one of its kind.
            kinds.add(pattern_of(name))
    acting = [name for name in outside if name in shared or pattern_of(name) in kinds]
    beside = _beside(acting, pair, reading, membership)
    found = {}
    for name in acting:
        nearest = {standing[1] for standing in beside[name] if standing is not None}
        ratios = nearest or {depth.ratio for depth in membership.depths}
        counted = len(facts.uses[name]) / len(base.uses[pair.base_of[name]])
        found[name] = (ratios.pop() if len(ratios) == 1 else counted, name in shared)
    return found


def _without_influence(pair: Pair, reading: ForwardPasses) -> dict[str, tuple[Use, ...]]:
    """The uses that module types imply for trained parameters that no input reaches."""
    if reading.comparison is None:
        return {}
    idle = [
        name
        for name in pair.names
        if not (reading.uses.get(name) or name in pair.roles or name in pair.frozen)
    ]
    # An expert or a layer that these inputs skip, beside others that they use, needs the
    # multipliers and the share of depth that those take: it is refused.
    used = {_likeness(pair.growth[name]) for name in pair.names if reading.uses.get(name)}
    implied = structural_uses(pair.model) if idle else {}
    known = {name: _implied(pair.growth[name], implied[name]) for name in idle}
    return {
        name: uses
        for name, uses in known.items()
        if uses and (uses[0].how is How.ELEMENTWISE or _likeness(pair.growth[name]) not in used)
    }


def _likeness(growth: Growth) -> tuple[str, tuple[int, ...]]:
    """What experts and layers of one kind share: a shape, and a name but for its numbers."""
    return re.sub(r"\d+", "*", growth.name), growth.shape


def _implied(growth: Growth, uses: tuple[Use, ...]) -> tuple[Use, ...]:
    """The uses that a module's type tells; where it tells none, one dimension at most may grow."""
    known = tuple(use for use in uses if use.how is not How.UNKNOWN)
    if known or len(growth.growing) > 1:
        return known
    return (replace(uses[0], how=How.ELEMENTWISE, fan_out=growth.growing),)


def _near(
    idle: Iterable[str], pair: Pair, reading: ForwardPasses, membership: Membership
) -> dict[str, Standing]:
    """The branch of each idle parameter: the one in which all matrices nearest to it lie."""
    found: dict[str, Standing] = {}
    for name, standings in _beside(idle, pair, reading, membership).items():
        if len(standings) == 1 and (standing := next(iter(standings))) is not None:
            found[name] = standing
    return found


def _beside(
    names: Iterable[str], pair: Pair, reading: ForwardPasses, membership: Membership
) -> dict[str, set[Standing | None]]:
    """Where the matrices of the innermost module around a parameter that has any stand."""
    of_modules: defaultdict[str, set[Standing | None]] = defaultdict(set)
    for name in pair.names:
        if matrix_use(reading.uses.get(name, ())) is not None:
            for module in _modules_around(name):
                of_modules[module].add(membership.inside.get(name))
    return {
        name: next((of_modules[m] for m in _modules_around(name) if m in of_modules), set())
        for name in names
    }


def _modules_around(name: str) -> Iterator[str]:
    """The modules that a parameter lies in, innermost first, without the model itself."""
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _planned_like_neighbours(idle: list[str]) -> str:
    """A note on parameters that no input reaches; of frozen ones nothing need be said."""
    which = f"{idle[0]} has" if len(idle) == 1 else f"{idle[0]} and {len(idle) - 1} more have"
    return (
        f"{which} no influence on the tensors that the model returns for these example_inputs (a "
        "mask token, an unused layer, a part of a distribution). Kind and branch follow from the "
        "module's type and the matrices beside it; no multiplier of branches or attention logits "
        "is applied. If training uses it, pass inputs that do."
    )


def _mixed_growth(growth: Mapping[str, Growth]) -> Iterator[str]:
    """A note on a base that is narrower in some dimensions and wider in others."""
    wider = [g for g in growth.values() if any(r > 1 for r in g.ratios)]
    narrower = [g for g in growth.values() if any(r < 1 for r in g.ratios)]
    if wider and narrower:
        yield (
            f"The base is narrower in some dimensions (first: {wider[0].words}) and wider in "
            f"others (first: {narrower[0].words}). Every parameter follows its own ratios."
        )
