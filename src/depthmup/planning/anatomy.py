"""Anatomy: each parameter's role and size ratios, each multiplier's place, from model and base.

Which dimensions grow comes from comparing shapes; what they mean (fan-in, fan-out, a table's rows)
and which residual branch a parameter lies in come from the dataflow.
"""

from dataclasses import dataclass, replace

from torch import nn

from depthmup.planning.comparison import Numbers, read_both
from depthmup.planning.declared import BranchHints, RoleHints
from depthmup.planning.depth import StreamDepth, membership_of, refuse_further_outputs
from depthmup.planning.experts import MixtureGrowth, mixture_sites, mixtures_of
from depthmup.planning.options import ReadBefore
from depthmup.planning.own_constants import unattributed
from depthmup.planning.pair import paired
from depthmup.planning.parameters import ParameterPlace, parameter_places
from depthmup.planning.product_sites import product_sites
from depthmup.planning.repeated import repeated_inside, repeated_note, with_numbers_left
from depthmup.planning.roles import lookup_use
from depthmup.planning.sites import Multiplier, growing_sums, temperatures
from depthmup.planning.stages import by_stage
from depthmup.planning.weight_sites import weight_sites
from depthmup.tracing import ExampleInputs, multiplications


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A model measured against its base.

    ``temperatures`` are the parameters that multiply products of activations, ``positive`` the
    branches of deeper streams that end in a nonlinearity of positive mean. ``mixtures`` are those
    of experts; ``repeated`` are containers that look like one and have no router. ``embeddings``
    are the parameters of which rows are looked up, beside any other use; ``columns_out`` are
    those whose outputs are no rows, as of matrices stored (in, out). ``work`` is how many
    multiplications a forward pass takes, where one was followed.

    Attributes:
        places: of every parameter: its counterpart, role and ratios.
        sites: where forward multipliers can stand.
        notes: what a reader should know.
        depths: the depth ratio of each residual stream.
    """

    places: tuple[ParameterPlace, ...]
    sites: tuple[Multiplier, ...]
    notes: tuple[str, ...]
    temperatures: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    depths: tuple[StreamDepth, ...] = ()
    mixtures: tuple[MixtureGrowth, ...] = ()
    repeated: tuple[str, ...] = ()
    embeddings: frozenset[str] = frozenset()
    columns_out: frozenset[str] = frozenset()
    work: int | None = None


def anatomy(
    model: nn.Module,
    base: nn.Module,
    *,
    example_inputs: ExampleInputs | None = None,
    base_inputs: ExampleInputs | None = None,
    branches: BranchHints | None = None,
    roles: RoleHints | None = None,
    depth: float | None = None,
    read_before: ReadBefore = (None, None),
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

    Example:
        >>> import torch
        >>> small = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 2))
        >>> large = nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 2))
        >>> for place in anatomy(large, small, example_inputs=torch.zeros(1, 4)).places:
        ...     print(place.name, place.role.kind.value, place.base_shape, place.shape)
        0.weight input (16, 4) (64, 4)
        0.bias vector (16,) (64,)
        1.weight readout (2, 16) (2, 64)
        1.bias vector (2,) (2,)
    """
    pair = paired(model, base, branches=branches, roles=roles)
    reading = read_both(
        pair,
        example_inputs=example_inputs,
        base_inputs=base_inputs,
        read_before=read_before,
        numbers=numbers,
    )
    if reading.branching is not None and depth is None:
        reading = replace(reading, branching=by_stage(reading.branching, pair.base_of))
    if pair.overruled and reading.comparison is not None:
        refuse_further_outputs(pair.branches[0], reading.comparison.facts)
    membership = membership_of(pair, reading.branching, depth)
    mixtures, parts = mixtures_of(pair, reading.comparison)
    inside = repeated_inside(pair, reading.branching, membership, parts)
    sites = [*with_numbers_left(pair, membership.sites, inside)]
    notes = [*reading.notes, *membership.notes, *repeated_note(inside)]
    places, unsure = parameter_places(pair, reading, membership, parts)
    notes += unsure
    gains: tuple[str, ...] = ()
    if (comparison := reading.comparison) is not None:
        gains = temperatures(comparison)
        notes += [*growing_sums(comparison), *unattributed(*comparison.own, pair.match)]
        sites += weight_sites(comparison, places)
        sites += product_sites(comparison, places)
        sites += mixture_sites(pair, comparison, parts)
    return Anatomy(
        places=places,
        sites=tuple(sites),
        notes=tuple(notes),
        temperatures=gains,
        positive=reading.positive if any(s.ratio > 1 for s in membership.depths) else (),
        depths=membership.depths,
        mixtures=mixtures,
        repeated=inside,
        embeddings=frozenset(n for n, uses in reading.uses.items() if lookup_use(uses) is not None),
        columns_out=frozenset(
            n
            for n, uses in reading.uses.items()
            if any(u.fan_out and 0 not in u.fan_out for u in uses)
        ),
        work=None if comparison is None else multiplications(comparison.facts.graph),
    )
