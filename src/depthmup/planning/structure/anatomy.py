"""Anatomy: each parameter's role and size ratios, each multiplier's place, from model and base.

Which dimensions grow comes from comparing shapes; what they mean (fan-in, fan-out, a table's rows)
and which residual branch a parameter lies in come from the dataflow.
"""

from dataclasses import dataclass

from torch import nn

from depthmup.planning.structure.comparison import Numbers, read_both, unsure_numbers, untraced
from depthmup.planning.structure.declared import (
    BranchHints,
    RoleHints,
    declared_branches,
    declared_roles,
)
from depthmup.planning.structure.depth_ratios import StreamDepth, from_dataflow, from_declarations
from depthmup.planning.structure.matching import match_models, tied_names
from depthmup.planning.structure.mixtures import (
    MixtureGrowth,
    containers,
    mixture_sites,
    mixtures_of,
)
from depthmup.planning.structure.own_constants import unattributed_note
from depthmup.planning.structure.places import (
    Place,
    growth_of,
    mixed_growth,
    mixed_inputs,
    no_depth_rule,
    on_the_stream,
    places,
    repeated_outside,
    unused,
)
from depthmup.planning.structure.repeated import (
    in_declared,
    in_traced,
    repeated_in_branches,
    repeated_text,
    with_numbers_left,
)
from depthmup.planning.structure.roles import NotUnderstood, structural_uses
from depthmup.planning.structure.sites import Site, growing_sums, product_sites, temperatures
from depthmup.planning.structure.stages import by_stage
from depthmup.planning.structure.weight_sites import weight_sites
from depthmup.tracing import ExampleInputs, Facts, plain_name, unwrapped


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A model measured against its base.

    ``temperatures`` are the parameters that multiply products of activations, ``positive`` the
    branches of deeper streams that end in a nonlinearity of positive mean. ``mixtures`` are those
    of experts.
    """

    places: tuple[Place, ...]
    sites: tuple[Site, ...]
    notes: tuple[str, ...]
    temperatures: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    depths: tuple[StreamDepth, ...] = ()
    mixtures: tuple[MixtureGrowth, ...] = ()


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
    numbers: Numbers = ({}, {}),
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
        numbers: what buffers of one value hold in both, where they are on meta.

    Returns:
        Roles, ratios and branches of the model beside its base.

    Raises:
        UnrelatedModels: the base is not the same architecture in another size.
        TraceError: the forward pass cannot be followed, and no branches were declared.
        NotUnderstood: a parameter is used in a way that fixes no role; declare it.
    """
    model, base = unwrapped(model), unwrapped(base)
    match = match_models(model, base)
    names, base_of = tied_names(model, base, match)
    declared = declared_roles(roles, names)
    hints = declared_branches(model, branches), declared_branches(base, branches)
    reading = read_both(model, base, example_inputs, base_inputs, read_before, numbers)
    if not reading.complete and not hints[0]:
        raise reading.failure or ValueError(
            "Expected example_inputs, the arguments of one forward pass (only shapes and types "
            "matter), to find the residual branches in the dataflow; got None. Pass e.g. "
            "example_inputs=(tokens,), or declare the branches: branches={'layers.*.attention': "
            "('layers.*.norm1',), ...}."
        )
    comparison = reading.compared(match)
    notes: list[str] = [] if comparison is not None else [untraced(reading.failure)]
    uses = dict(comparison.facts.uses) if comparison is not None else structural_uses(model)
    # Branches that are declared stand in place of those that the dataflow shows.
    traced = comparison if branches is None else None
    if traced is not None and depth is None:
        traced = by_stage(traced, base_of)
    if traced is None:
        membership = from_declarations(*hints, depth)
    else:
        membership = from_dataflow(traced, base_of, depth)
    notes += membership.notes
    growth = growth_of(model, base, base_of)
    mixtures = mixtures_of(comparison, growth, base_of)
    of_experts = containers(match.deeper, mixtures.parts, names)
    deeper = [name for name in match.deeper if name not in of_experts]
    if not membership.sites and deeper:
        raise NotUnderstood(
            f"The model repeats {', '.join(map(repr, deeper))} more often than the base, but "
            "no residual addition was found in its forward pass, so no depth rule applies. Give "
            "both the same depth, or declare the branches: branches={'layers.*.attention': ()}."
        )
    branches_of = (
        in_declared(names, hints[0]) if traced is None else in_traced(names, traced.facts.uses)
    )
    inside = repeated_in_branches(deeper, branches_of)
    if inside:
        if traced is None:
            raise NotUnderstood(
                f"{repeated_text(inside)}, and a declaration does not say how they are put "
                "together. Experts are recognized in the dataflow: leave out branches= and pass "
                "example_inputs, or give both models the same number."
            )
        notes.append(
            f"{repeated_text(inside)}. No rule is known for that but those for experts that a "
            "router weights: their number takes no factor, and a mean over them stays as it is."
        )
    outside = repeated_outside(base_of, uses, membership, {*declared, *mixtures.parts})
    if outside and not hints[0] and branches is None:
        raise NotUnderstood(no_depth_rule(outside))
    notes += [no_depth_rule(outside)] if outside else []
    if traced is not None:
        notes += on_the_stream(names, base_of, traced, membership, declared)
    frozen = frozenset(plain_name(n) for n, p in model.named_parameters() if not p.requires_grad)
    located = places(names, base_of, growth, uses, membership, declared, frozen, mixtures.parts)
    if comparison is not None:
        notes += unused(uses, {n: g for n, g in growth.items() if n not in declared}, frozen)
    notes += mixed_growth(growth)
    sites = [*with_numbers_left(membership.sites, inside, match, base_of.values())]
    if comparison is not None:
        mixed_inputs(names, base_of, comparison, declared)
        sites += [*weight_sites(comparison, located), *product_sites(comparison)]
        sites += mixture_sites(comparison, mixtures, base_of)
        notes += growing_sums(comparison)
    gains = temperatures(comparison) if comparison is not None else ()
    if comparison is not None:
        notes += unattributed_note(comparison.own, match)
        notes += unsure_numbers(comparison.facts)
    grows = any(stream.ratio > 1 for stream in membership.depths)
    return Anatomy(
        places=located,
        sites=tuple(sites),
        notes=tuple(notes),
        temperatures=gains,
        positive=reading.facts.positive_branches if reading.facts is not None and grows else (),
        depths=membership.depths,
        mixtures=mixtures.growth,
    )
