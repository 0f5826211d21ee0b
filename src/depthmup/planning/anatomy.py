"""Anatomy: each parameter's role and size ratios, each multiplier's place, from model and base.

Which dimensions grow comes from comparing shapes; what they mean (fan-in, fan-out, a table's rows)
and which residual branch a parameter lies in come from the dataflow.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import nn

from depthmup.planning.declared import (
    BranchHints,
    DeclaredBranch,
    DeclaredRole,
    RoleHints,
    declared_branches,
    declared_role,
)
from depthmup.planning.folding import into_parameters, onto_modules
from depthmup.planning.graph import Branch, find_branches
from depthmup.planning.kinds import (
    Flow,
    Growth,
    NotUnderstood,
    flow_of,
    kind_and_ratios,
    structural_uses,
)
from depthmup.planning.matching import Match, UnrelatedModels, match_models
from depthmup.planning.names import plain_name, unwrapped
from depthmup.planning.sites import (
    Attention,
    Hook,
    Site,
    Traced,
    Where,
    attentions,
    branch_placements,
    hooks_of,
    input_hook,
    logit_scale,
    lookup_use,
    matrix_use,
    output_hook,
    own_scale,
)
from depthmup.planning.trace import ExampleInputs, TraceError, trace
from depthmup.planning.uses import Use, find_uses
from depthmup.rules import Kind, Ratios, Role


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One parameter: what it is, how it grew, where it stands.

    ``branches`` are the labels of the branches it lies in, outermost first; ``names`` all its names
    where it is tied.
    """

    name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    base_name: str
    base_shape: tuple[int, ...]
    role: Role
    ratios: Ratios
    branches: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Anatomy:
    """A model measured against its base."""

    places: tuple[Place, ...]
    sites: tuple[Site, ...]
    notes: tuple[str, ...]


def anatomy(
    model: nn.Module,
    base: nn.Module,
    *,
    example_inputs: ExampleInputs | None = None,
    base_inputs: ExampleInputs | None = None,
    branches: BranchHints | None = None,
    roles: RoleHints | None = None,
) -> Anatomy:
    """Compare a model with its base, parameter by parameter.

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
    declared = declared_branches(model, branches)
    base_declared = declared_branches(base, branches)
    traced, base_traced, failure = None, None, None
    if example_inputs is not None:
        try:
            traced = read(model, example_inputs)
            base_traced = read(base, base_inputs if base_inputs is not None else example_inputs)
        except TraceError as problem:
            failure = problem
    if (traced is None or base_traced is None) and not declared:
        if failure is not None:
            raise failure
        raise ValueError(
            "Expected example_inputs, the arguments of one forward pass (only shapes and types "
            "matter), to find the residual branches in the dataflow; got None. Pass e.g. "
            "example_inputs=(tokens,), or declare the branches: branches={'layers.*.attention': "
            "('layers.*.norm1',), ...}."
        )
    notes: list[str] = []
    if traced is not None and base_traced is not None:
        uses = dict(traced.usage.uses)
        if branches is None:
            found = _from_dataflow(traced, base_traced, base_of, match)
        else:
            found = _from_declarations(declared, base_declared)
    else:
        why = str(failure).split(". If it")[0] if failure is not None else "No example_inputs"
        notes.append(
            f"{why}. Roles follow from shapes and module types, branches from what was declared; "
            "every multiplier stays explicit, and matrices of which no dimension grows count as "
            "hidden."
        )
        uses = structural_uses(model)
        found = _from_declarations(declared, base_declared)
    notes += found.notes
    if not found.sites and match.deeper:
        raise NotUnderstood(
            f"The model repeats {', '.join(map(repr, match.deeper))} more often than the base, but "
            "no residual addition was found in its forward pass, so no depth rule applies. Give "
            "both the same depth, or declare the branches: branches={'layers.*.attention': ()}."
        )
    flow = flow_of(traced) if traced is not None else None
    places = []
    for name in names:
        role, ratios, inside = _place(name, uses.get(name, ()), growth[name], flow, found, roles)
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
            )
        )
    notes += _mixed_growth(growth)
    sites = list(found.sites)
    if traced is not None and base_traced is not None:
        sites += _scale_sites(traced, base_traced, places)
        sites += _logit_sites(traced, base_traced, match)
    return Anatomy(places=tuple(places), sites=tuple(sites), notes=tuple(notes))


def read(model: nn.Module, inputs: ExampleInputs) -> Traced:
    """Trace a model and find its uses of parameters and its residual branches."""
    graph = trace(model, inputs)
    usage = find_uses(graph)
    return Traced(graph=graph, usage=usage, residuals=find_branches(graph, usage))


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Where parameters stand in branches: labels (outermost first), depth ratio, shared, last."""

    sites: tuple[Site, ...]
    inside: Mapping[str, tuple[tuple[str, ...], float, bool]]
    last: frozenset[str]
    notes: tuple[str, ...] = ()


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


def _from_dataflow(
    traced: Traced, base: Traced, base_of: Mapping[str, str], match: Match
) -> _Found:
    ours, theirs = traced.residuals, base.residuals
    holders, base_holders = _holders(traced), _holders(base)
    stream_ratio: dict[int, float] = {}
    votes: dict[int, dict[int, int]] = {}
    level = {b.index: len(b.parents) for b in ours.branches}
    base_level = {b.index: len(b.parents) for b in theirs.branches}
    for name, pairs in holders.items():
        for branch, _ in pairs:
            for other, _ in base_holders.get(base_of[name], ()):
                if base_level[other] == level[branch]:
                    count = votes.setdefault(ours.stream_of(branch), {})
                    theirs_index = theirs.stream_of(other)
                    count[theirs_index] = count.get(theirs_index, 0) + 1
    for index, stream in enumerate(ours.streams):
        if index not in votes:
            label = ours.branches[stream.branches[0]].label
            raise UnrelatedModels(
                f"The residual branch {label} of the model has no counterpart in the base, where "
                "the same parameters lie in no branch. Use a base with at least one such block."
            )
        best = max(votes[index], key=lambda s: votes[index][s])
        stream_ratio[index] = stream.depth / theirs.streams[best].depth

    def chain(branch: Branch) -> tuple[Branch, ...]:
        outer = sorted((ours.branches[i] for i in branch.parents), key=lambda b: len(b.parents))
        return (*outer, branch)

    own = {b.index: stream_ratio[ours.stream_of(b.index)] for b in ours.branches}
    total = {b.index: math.prod(own[c.index] for c in chain(b)) for b in ours.branches}
    inside: dict[str, tuple[tuple[str, ...], float, bool]] = {}
    for name, pairs in holders.items():
        innermost = max((b for b, _ in pairs), key=lambda i: (len(ours.branches[i].parents), -i))
        labels = tuple(c.label for c in chain(ours.branches[innermost]))
        r = total[innermost]
        uses = {u.node for u in traced.usage.uses[name]}
        elsewhere = uses - _nodes_inside(traced, uses)
        if elsewhere:
            raise NotUnderstood(
                f"Parameter {name} is used both inside residual branches (first in {labels[-1]}) "
                "and outside of them, so no depth rule covers it. Use separate parameters."
            )
        times = len({b for b, _ in pairs if level[b] == level[innermost]})
        base_pairs = base_holders.get(base_of[name], ())
        base_times = len({b for b, _ in base_pairs if base_level[b] == level[innermost]})
        if not base_times:
            raise UnrelatedModels(
                f"Parameter {name} lies in the residual branch {labels[-1]} of the model, and its "
                f"counterpart {base_of[name]} in no branch of the base. Build both with the same "
                "code."
            )
        if times == base_times or r == 1:
            inside[name] = (labels, r, False)
        elif math.isclose(times / base_times, r):
            if all(feeds for _, feeds in pairs) and _reads_a_stream(traced, uses):
                continue  # the end of another stream: an encoder's last norm, read by all branches
            inside[name] = (labels, r, True)
        else:
            raise NotUnderstood(
                f"Parameter {name} is used in {times} branches of the model and {base_times} of "
                f"the base while depth grows {r:g}-fold. Expected as many, or a number that "
                "grows with depth. Use a base that shares layers in the same pattern."
            )
    placed = branch_placements(traced, {i: Ratios(depth=r) for i, r in own.items()})
    # Branches that end in the same weights (tied across depth) are one site: the weights carry the
    # multiplier once.
    distinct: dict[object, Site] = {}
    for b in ours.branches:
        folds, hooks = placed[b.index]
        key = (level[b.index], own[b.index], folds) if folds else b.index
        site = Site(
            where=Where.BRANCH,
            label=b.label,
            ratios=Ratios(depth=own[b.index]),
            folds=folds,
            hooks=hooks,
        )
        distinct.setdefault(key, site)
    sites = tuple(distinct.values())
    notes = [
        f"The stream of {ours.branches[s.branches[0]].label} is normalized after its additions "
        "(post-norm). Each norm rescales the whole sum, so a branch multiplier sets how much of "
        "the stream a branch replaces, not how the sum grows; the depth rules were derived for "
        "streams that are not normalized. Check the transfer of this model before relying on it."
        for s in ours.streams
        if s.normalized
    ]
    last = frozenset(name for folds, _ in placed.values() for name in folds)
    return _Found(sites=sites, inside=inside, last=last, notes=tuple(notes))


def _holders(traced: Traced) -> dict[str, list[tuple[int, bool]]]:
    """The branches that use each parameter, and whether it only feeds them from the side."""
    at: dict[int, list[tuple[int, bool]]] = {}
    used = {use.node for uses in traced.usage.uses.values() for use in uses}
    for branch in traced.residuals.branches:
        for node in branch.path & used:
            at.setdefault(node, []).append((branch.index, False))
        for node in branch.feeders & used:
            at.setdefault(node, []).append((branch.index, True))
    result = {}
    for name, uses in traced.usage.uses.items():
        pairs = [pair for use in uses for pair in at.get(use.node, ())]
        if pairs:
            result[name] = list(dict.fromkeys(pairs))
    return result


def _nodes_inside(traced: Traced, nodes: set[int]) -> set[int]:
    return {
        node
        for node in nodes
        for branch in traced.residuals.branches
        if node in branch.path or node in branch.feeders
    }


def _reads_a_stream(traced: Traced, nodes: set[int]) -> bool:
    additions = {b.addition for b in traced.residuals.branches}
    return any(traced.graph.ancestors(node) & additions for node in nodes)


def _from_declarations(
    ours: tuple[DeclaredBranch, ...], theirs: tuple[DeclaredBranch, ...]
) -> _Found:
    counts: dict[str, int] = {}
    base_timess: dict[str, int] = {}
    for branch in ours:
        counts[branch.family] = counts.get(branch.family, 0) + 1
    for branch in theirs:
        base_timess[branch.family] = base_timess.get(branch.family, 0) + 1
    sites, inside = [], {}
    for branch in ours:
        if branch.family not in base_timess:
            raise UnrelatedModels(
                f"The branch {branch.module} is declared in the model, but the base has no module "
                f"matching {branch.family!r}."
            )
        r = counts[branch.family] / base_timess[branch.family]
        sites.append(
            Site(
                where=Where.BRANCH,
                label=branch.module,
                ratios=Ratios(depth=r),
                hooks=(Hook(module=branch.module, side="output"),),
            )
        )
        for name in branch.parameters:
            inside[name] = ((branch.module,), r, False)
    return _Found(sites=tuple(sites), inside=inside, last=frozenset())


def _place(
    name: str,
    uses: tuple[Use, ...],
    growth: Growth,
    flow: Flow | None,
    found: _Found,
    hints: RoleHints | None,
) -> tuple[Role, Ratios, tuple[str, ...]]:
    declared: DeclaredRole | None = declared_role(name, hints)
    labels, depth, shared = found.inside.get(name, ((), 1.0, False))
    kind, fans, tied = kind_and_ratios(growth, uses, flow, declared)
    role = Role(
        kind=kind,
        in_branch=bool(labels),
        last=name in found.last and bool(labels),
        tied=tied and kind is Kind.READOUT,
        shared=shared,
    )
    return role, replace(fans, depth=depth), labels


def _mixed_growth(growth: Mapping[str, Growth]) -> Iterator[str]:
    wider = [g for g in growth.values() if any(r > 1 for r in g.ratios)]
    narrower = [g for g in growth.values() if any(r < 1 for r in g.ratios)]
    if wider and narrower:
        yield (
            f"The base is narrower in some dimensions (first: {wider[0].words}) and wider in "
            f"others (first: {narrower[0].words}). Every parameter follows its own ratios."
        )


def _scale_sites(traced: Traced, base: Traced, places: list[Place]) -> Iterator[Site]:
    """Readouts and embeddings: where Laws.forward applies, and the model's own constants."""
    for place in places:
        uses = traced.usage.uses[place.name]
        base_uses = base.usage.uses[place.base_name]
        product, lookup = matrix_use(uses), lookup_use(uses)
        if place.role.kind is Kind.READOUT and product is not None:
            theirs = matrix_use(base_uses)
            own = own_scale(traced, product) / (own_scale(base, theirs) if theirs else 1.0)
            yield Site(
                where=Where.READOUT,
                label=place.name,
                ratios=place.ratios,
                own=own,
                folds=(place.name,) if len(uses) == 1 else (),
                hooks=input_hook(traced, product),
                parameter=place.name,
            )
        if lookup is not None and not place.role.in_branch:
            theirs = lookup_use(base_uses)
            own = own_scale(traced, lookup) / (own_scale(base, theirs) if theirs else 1.0)
            if not math.isclose(own, 1.0, rel_tol=1e-9):
                yield Site(
                    where=Where.INPUT,
                    label=place.name,
                    ratios=place.ratios,
                    own=own,
                    folds=(place.name,) if len(uses) == 1 else (),
                    hooks=output_hook(traced, lookup),
                    parameter=place.name,
                )


def _logit_sites(traced: Traced, base: Traced, match: Match) -> Iterator[Site]:
    """Attention whose head size grows."""
    in_base: dict[str, list[Attention]] = {}
    for theirs in attentions(base):
        in_base.setdefault(theirs.module, []).append(theirs)
    seen: dict[str, int] = {}
    for ours in attentions(traced):
        nth = seen[ours.module] = seen.get(ours.module, -1) + 1
        counterparts = in_base.get(match.modules.get(ours.module, ""), [])
        if nth >= len(counterparts):
            continue
        theirs = counterparts[nth]
        ratio = ours.head / theirs.head
        if ratio == 1:
            continue
        graph, usage = traced.graph, traced.usage
        folds: tuple[str, ...] = ()
        for placement in into_parameters(graph, usage, ours.query, ours.reader, after=ours.after):
            if all(len(usage.uses[name]) == 1 for name in placement.parameters):
                folds = tuple(sorted(placement.parameters))
                break
        explicit = next(onto_modules(graph, usage, ours.query, ours.reader, after=ours.after), None)
        yield Site(
            where=Where.LOGITS,
            label=ours.module,
            ratios=Ratios(fan_in=ratio),
            # The law is relative to the usual 1/sqrt(head size).
            own=logit_scale(traced, ours) / logit_scale(base, theirs) * math.sqrt(ratio),
            folds=folds,
            hooks=hooks_of(explicit) if explicit is not None else (),
        )
