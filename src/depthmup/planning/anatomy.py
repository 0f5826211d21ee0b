"""Anatomy: each parameter's role and size ratios, each multiplier's place, from model and base.

Which dimensions grow comes from comparing shapes; what they mean (fan-in, fan-out, a table's rows)
and which residual branch a parameter lies in come from the dataflow.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import nn

from depthmup.planning.declared import (
    BranchHints,
    DeclaredRole,
    RoleHints,
    check_role_patterns,
    declared_branches,
    declared_role,
)
from depthmup.planning.depth_ratios import Membership, StreamDepth, from_dataflow, from_declarations
from depthmup.planning.matching import Match, UnrelatedModels, match_models
from depthmup.planning.own_constants import (
    OwnConstants,
    attributed,
    counterparts,
    equal,
    in_logits,
    unattributed,
)
from depthmup.planning.roles import (
    Growth,
    NotUnderstood,
    kind_and_ratios,
    lookup_use,
    matrix_use,
    structural_uses,
)
from depthmup.planning.sites import Site, Where, growing_sums, product_sites, temperatures
from depthmup.rules import Kind, Ratios, Role
from depthmup.tracing import (
    Carriers,
    ExampleInputs,
    Facts,
    Hook,
    How,
    Product,
    TraceError,
    Use,
    pattern_of,
    plain_name,
    read,
    unwrapped,
)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A model measured against its base.

    ``temperatures`` are the parameters that multiply products of activations, ``positive`` the
    branches of deeper streams that end in a nonlinearity of positive mean.
    """

    places: tuple[Place, ...]
    sites: tuple[Site, ...]
    notes: tuple[str, ...]
    temperatures: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    depths: tuple[StreamDepth, ...] = ()


def anatomy(
    model: nn.Module,
    base: nn.Module,
    *,
    example_inputs: ExampleInputs | None = None,
    base_inputs: ExampleInputs | None = None,
    branches: BranchHints | None = None,
    roles: RoleHints | None = None,
    depth: float | None = None,
    read_before: tuple[Facts, Facts] | None = None,
) -> Anatomy:
    """Compare a model with its base, parameter by parameter.

    Args:
        model: to be trained.
        base: the same architecture in the size whose hyperparameters are known.
        example_inputs: arguments of one forward pass.
        base_inputs: the same for the base, where they differ.
        branches: where the residual branches are, if the dataflow does not show it.
        roles: what single parameters are, if their use does not show it.
        depth: how many times as deep the model is, in place of the additions that are counted.
        read_before: what ``tracing.read`` gave for the model and for the base.

    Raises:
        UnrelatedModels: the base is not the same architecture in another size.
        TraceError: the forward pass cannot be followed, and no branches were declared.
        NotUnderstood: a parameter is used in a way that fixes no role; declare it.
    """
    model, base = unwrapped(model), unwrapped(base)
    match = match_models(model, base)
    names, base_of = _tied_names(model, base, match)
    shapes = {plain_name(n): tuple(p.shape) for n, p in model.named_parameters()}
    base_shapes = {plain_name(n): tuple(p.shape) for n, p in base.named_parameters()}
    growth = {
        name: Growth(name=name, shape=shapes[name], base_shape=base_shapes[base_of[name]])
        for name in names
    }
    check_role_patterns(roles, names)
    declared = declared_branches(model, branches)
    base_declared = declared_branches(base, branches)
    facts, base_facts = read_before if read_before is not None else (None, None)
    failure = None
    if facts is None and example_inputs is not None:
        try:
            facts = read(model, example_inputs)
            base_facts = read(base, base_inputs if base_inputs is not None else example_inputs)
        except TraceError as problem:
            failure = problem
    if (facts is None or base_facts is None) and not declared:
        if failure is not None:
            raise failure
        raise ValueError(
            "Expected example_inputs, the arguments of one forward pass (only shapes and types "
            "matter), to find the residual branches in the dataflow; got None. Pass e.g. "
            "example_inputs=(tokens,), or declare the branches: branches={'layers.*.attention': "
            "('layers.*.norm1',), ...}."
        )
    notes: list[str] = []
    pairs: list[tuple[Product, Product]] = []
    if facts is not None and base_facts is not None:
        uses = dict(facts.uses)
        pairs = list(counterparts(facts, base_facts, match))
        owned, base_owned = in_logits(pairs)
        own = (
            attributed(facts.constants, owned),
            attributed(base_facts.constants, base_owned),
        )
        if branches is None:
            found = from_dataflow(facts, base_facts, base_of, own, depth)
        else:
            found = from_declarations(declared, base_declared, depth)
    else:
        why = str(failure).split(". If it")[0] if failure is not None else "No example_inputs"
        notes.append(
            f"{why}. Roles follow from shapes and module types, branches from what was declared; "
            "every branch multiplier stays explicit, and matrices of which no dimension grows "
            "count as hidden. Constants that the model itself multiplies by are not seen, and "
            "attention logits take no factor: if the size of heads grows, divide by it in the "
            "model, or grow their number instead."
        )
        uses = structural_uses(model)
        found = from_declarations(declared, base_declared, depth)
    notes += found.notes
    if not found.sites and match.deeper:
        raise NotUnderstood(
            f"The model repeats {', '.join(map(repr, match.deeper))} more often than the base, but "
            "no residual addition was found in its forward pass, so no depth rule applies. Give "
            "both the same depth, or declare the branches: branches={'layers.*.attention': ()}."
        )
    left_out = [
        name
        for name in _repeated(base_of)
        if name not in found.inside
        and name not in found.beside
        and matrix_use(uses.get(name, ())) is not None
        and declared_role(name, roles) is None
    ]
    if left_out and (declared or branches is not None):
        notes.append(_outside(left_out))
    elif left_out:
        raise NotUnderstood(_outside(left_out))
    if facts is not None and base_facts is not None and branches is None:
        on_stream = [
            name
            for name in names
            if name not in found.inside
            and declared_role(name, roles) is None
            and _grows_with_depth(name, base_of, facts, base_facts)
        ]
        if on_stream and not any(s.normalized for s in facts.residuals.streams):
            notes.append(_each_layer(on_stream))
    frozen = {plain_name(name) for name, p in model.named_parameters() if not p.requires_grad}
    places = []
    for name in names:
        used = uses.get(name, ())
        role, ratios, inside = _place(name, used, growth[name], found, roles, frozen=name in frozen)
        places.append(
            Place(
                name=name,
                names=names[name],
                shape=shapes[name],
                base_name=base_of[name],
                base_shape=growth[name].base_shape,
                role=role,
                ratios=ratios,
                branches=inside,
                embeds=lookup_use(uses.get(name, ())) is not None,
            )
        )
    if facts is not None and base_facts is not None:
        unnamed = {n: g for n, g in growth.items() if declared_role(n, roles) is None}
        notes += _unused(uses, unnamed, frozen)
    notes += _mixed_growth(growth)
    sites = list(found.sites)
    if facts is not None and base_facts is not None:
        sites += _scale_sites(facts, base_facts, own, places)
        sites += product_sites(facts, pairs)
        notes += growing_sums(pairs)
        notes += _unattributed(own, match)
    return Anatomy(
        places=tuple(places),
        sites=tuple(sites),
        notes=tuple(notes),
        temperatures=temperatures(pairs),
        positive=facts.positive_branches
        if facts is not None and any(d.ratio > 1 for d in found.depths)
        else (),
        depths=found.depths,
    )


def _tied_names(
    model: nn.Module, base: nn.Module, match: Match
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """All names of each distinct parameter, and the base parameter it corresponds to."""

    def groups(of: nn.Module) -> dict[int, list[str]]:
        result: dict[int, list[str]] = {}
        for name, p in of.named_parameters(remove_duplicate=False):
            result.setdefault(id(p), []).append(plain_name(name))
        return result

    first = {name: same[0] for same in groups(base).values() for name in same}
    names: dict[str, tuple[str, ...]] = {}
    base_of: dict[str, str] = {}
    for same in groups(model).values():
        theirs = {first[match.parameters[name]] for name in same}
        if len(theirs) > 1:
            raise UnrelatedModels(
                f"{' and '.join(same)} are one tied parameter in the model but "
                f"{' and '.join(sorted(theirs))} are separate in the base. Tie both or neither."
            )
        names[same[0]] = tuple(same)
        base_of[same[0]] = theirs.pop()
    by_base: dict[str, list[str]] = {}
    for name, aliases in names.items():
        # Siblings matched to one base layer share their counterpart; names at one place do not.
        for alias in aliases:
            by_base.setdefault(match.parameters[alias], []).append(name)
    for base_name, ours in by_base.items():
        twins = {n for n, f in first.items() if f == first[base_name]}
        if len(twins) > 1:
            owners = {name for twin in twins for name in by_base.get(twin, [])}
            if len(owners) > 1 and len(set(ours)) == 1:
                raise UnrelatedModels(
                    f"{' and '.join(sorted(twins))} are one tied parameter in the base but "
                    f"{' and '.join(sorted(owners))} are separate in the model. Tie both or "
                    "neither."
                )
    return names, base_of


def _repeated(base_of: Mapping[str, str]) -> list[str]:
    """Parameters of layers that the model repeats more often than the base."""
    copies = Counter(base_of.values())
    return [name for name, theirs in base_of.items() if copies[theirs] > 1]


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
    patterns = list(dict.fromkeys(map(pattern_of, names)))
    more = f" and {len(patterns) - 3} more" if len(patterns) > 3 else ""
    return (
        f"{', '.join(patterns[:3])}{more} act on the stream itself once per layer, outside of "
        "every branch (gains of the stream, vectors that each layer adds), so their effects add up "
        "over depth and no depth rule covers them: they take no depth factor. Put them inside a "
        "branch, or check their learning rate at the target depth."
    )


def _outside(names: list[str]) -> str:
    patterns = list(dict.fromkeys(map(pattern_of, names)))
    more = f" and {len(patterns) - 3} more" if len(patterns) > 3 else ""
    return (
        f"The model repeats {', '.join(patterns[:3])}{more} more often than the base, but outside "
        "of every residual branch (stream + branch) that was found or declared, so no depth rule "
        "covers them. Write the addition plainly, with no factor on the stream, use the same "
        "depth, declare the branches: branches={'layers.*.attention': ('layers.*.norm1',), ...}, "
        f"or, if they need no depth factor, say so: roles={{{patterns[0]!r}: 'hidden'}}."
    )


def _place(
    name: str,
    uses: tuple[Use, ...],
    growth: Growth,
    found: Membership,
    hints: RoleHints | None,
    *,
    frozen: bool,
) -> tuple[Role, Ratios, tuple[str, ...]]:
    declared: DeclaredRole | None = declared_role(name, hints)
    if not uses and declared is None:
        if frozen:
            return Role(kind=Kind.VECTOR), Ratios(), ()
        if _is_vector(growth):
            return Role(kind=Kind.VECTOR), Ratios(fan_out=growth.along(growth.growing)), ()
    labels, depth, shared = found.inside.get(name, ((), 1.0, False))
    kind, fans, tied = kind_and_ratios(growth, uses, declared, stacked=name in found.stacked)
    role = Role(
        kind=kind,
        in_branch=bool(labels),
        last=name in found.last and bool(labels),
        tied=tied and kind is Kind.READOUT,
        shared=shared,
    )
    return role, replace(fans, depth=depth), labels


def _is_vector(growth: Growth) -> bool:
    """Whether a shape has one dimension at most, so that its role needs no use to show it."""
    return sum(size != 1 for size in growth.shape) <= 1


def _unused(
    uses: Mapping[str, tuple[Use, ...]], growth: Mapping[str, Growth], frozen: set[str]
) -> Iterator[str]:
    idle = [n for n, g in growth.items() if not uses.get(n) and n not in frozen and _is_vector(g)]
    if idle:
        more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
        yield (
            f"{idle[0]}{more} has no influence on the output for these example_inputs (a mask "
            "token, perhaps). It is planned as a vector outside of all branches; pass inputs that "
            "use it if it lies in one."
        )


def _mixed_growth(growth: Mapping[str, Growth]) -> Iterator[str]:
    wider = [g for g in growth.values() if any(r > 1 for r in g.ratios)]
    narrower = [g for g in growth.values() if any(r < 1 for r in g.ratios)]
    if wider and narrower:
        yield (
            f"The base is narrower in some dimensions (first: {wider[0].words}) and wider in "
            f"others (first: {narrower[0].words}). Every parameter follows its own ratios."
        )


def _scale_sites(
    facts: Facts, base: Facts, own: tuple[OwnConstants, OwnConstants], places: list[Place]
) -> Iterator[Site]:
    """Readouts and embeddings: where Laws.forward applies; and the model's own constants."""
    for place in places:
        uses, base_uses = facts.uses[place.name], base.uses[place.base_name]
        growth = {
            use: own[0].of(use) / own[1].of(base_uses[min(i, len(base_uses) - 1)])
            for i, use in enumerate(uses)
            if base_uses
        }
        lookups = [use for use in uses if use.how is How.LOOKUP]
        product = matrix_use(uses) if place.role.kind is Kind.READOUT else None
        single = (place.name,) if len(uses) == 1 else ()
        if product is not None:
            folds = single or _before_readout(facts, place.name)
            yield _scale_site(
                Where.READOUT, place, growth.get(product, 1.0), product.hooks, folds=folds
            )
        rest = [use for use in uses if use is not product and use not in lookups]
        for where, alike in ((Where.INPUT, lookups), (Where.CONSTANT, rest)):
            factors = [growth.get(use, 1.0) for use in alike]
            if all(equal(factor, 1.0) for factor in factors):
                continue
            alone = len(alike) == len(uses)
            if not all(equal(f, factors[0]) for f in factors) or not (alone or alike is lookups):
                raise NotUnderstood(
                    f"{place.name} is used several times, with constants that follow the size of "
                    f"the model differently ({', '.join(f'{f:.4g}' for f in growth.values())} "
                    "times the base's). Use the same constant everywhere, or none that follows "
                    "size."
                )
            hooks = tuple(dict.fromkeys(hook for use in alike for hook in use.hooks))
            hookable = where is Where.INPUT and all(use.hooks for use in alike)
            yield _scale_site(
                where,
                place,
                factors[0],
                hooks if hookable else (),
                folds=(place.name,) if alone else (),
            )


def _scale_site(
    where: Where, place: Place, own: float, hooks: tuple[Hook, ...], *, folds: tuple[str, ...]
) -> Site:
    """Where the factor of one weight goes, and how the model's own constants around it grow."""
    return Site(
        where=where,
        label=place.name,
        ratios=place.ratios,
        own=own,
        folds=folds,
        hooks=hooks,
        parameter=place.name,
    )


def _before_readout(facts: Facts, name: str) -> tuple[str, ...]:
    """The gain and bias of a last norm that feeds a tied readout alone, and carry its factor."""
    carriers = facts.tied.get(name, Carriers())
    for placement in carriers.parameters:
        if all(len(facts.uses[n]) == 1 for n in placement.parameters):
            return tuple(sorted(placement.parameters))
    return ()


def _unattributed(own: tuple[OwnConstants, OwnConstants], match: Match) -> Iterator[str]:
    """A note on numbers that follow size and belong to nothing that a rule covers."""
    numbers = list(unattributed(*own, match))
    if numbers:
        module, here, there = numbers[0]
        more = f", and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        yield (
            f"The model multiplies by a number that follows its size at {pattern_of(module)} "
            f"({here:.6g} against {there:.6g} in the base{more}), where no rule says what to make "
            "of it. The plan leaves it as it is: use the same number in both, or put it beside a "
            "weight or at the end of a branch, where the plan takes it into account."
        )
