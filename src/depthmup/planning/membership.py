"""Membership: which residual branches each parameter belongs to, and how much deeper they are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from depthmup.planning.declared import DeclaredBranch
from depthmup.planning.graph import Branch
from depthmup.planning.kinds import NotUnderstood
from depthmup.planning.matching import UnrelatedModels
from depthmup.planning.sites import Hook, Site, Traced, Where, branch_placements
from depthmup.rules import Ratios


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Where parameters stand in branches: labels (outermost first), depth ratio, shared, last.

    ``stacked`` are those in branches that were declared, or that are one of several of their
    stream.
    """

    sites: tuple[Site, ...]
    inside: Mapping[str, tuple[tuple[str, ...], float, bool]]
    last: frozenset[str]
    stacked: frozenset[str]
    notes: tuple[str, ...] = ()


def from_dataflow(traced: Traced, base: Traced, base_of: Mapping[str, str]) -> Membership:
    """Parameters in residual branches that were found, and those branches' multipliers.

    The depth ratio of a parameter is that of its branch's stream, times those of the branches this
    one lies inside. ``base_of`` names each parameter's counterpart.

    Raises:
        UnrelatedModels: a branch has no counterpart in the base.
        NotUnderstood: a parameter is in and out of branches, or shared in another pattern.
    """
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
    stacked: set[str] = set()
    for name, pairs in holders.items():
        innermost = max((b for b, _ in pairs), key=lambda i: (len(ours.branches[i].parents), -i))
        labels = tuple(c.label for c in chain(ours.branches[innermost]))
        r = total[innermost]
        if len(ours.streams[ours.stream_of(innermost)].branches) > 1:
            stacked.add(name)
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
    return Membership(
        sites=sites,
        inside=inside,
        last=last,
        stacked=frozenset(stacked),
        notes=tuple(notes),
    )


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


def from_declarations(
    ours: tuple[DeclaredBranch, ...], theirs: tuple[DeclaredBranch, ...]
) -> Membership:
    """Parameters in declared branches; depth is how many modules match a pattern."""
    counts: dict[str, int] = {}
    base_counts: dict[str, int] = {}
    for branch in ours:
        counts[branch.family] = counts.get(branch.family, 0) + 1
    for branch in theirs:
        base_counts[branch.family] = base_counts.get(branch.family, 0) + 1
    sites, inside = [], {}
    for branch in ours:
        if branch.family not in base_counts:
            raise UnrelatedModels(
                f"The branch {branch.module} is declared in the model, but the base has no module "
                f"matching {branch.family!r}."
            )
        r = counts[branch.family] / base_counts[branch.family]
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
    return Membership(
        sites=tuple(sites), inside=inside, last=frozenset(), stacked=frozenset(inside)
    )
