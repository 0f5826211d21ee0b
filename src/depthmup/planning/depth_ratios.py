"""Depth ratios: which residual branches a parameter belongs to, and how much deeper they are."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from depthmup.planning.declared import DeclaredBranch
from depthmup.planning.matching import UnrelatedModels
from depthmup.planning.own_constants import OwnConstants
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sites import Site, Where, branch_sites
from depthmup.rules import Ratios
from depthmup.tracing import Branch, Facts, Hook, Residuals, Use, pattern_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamDepth:
    """How deep one residual stream is: its additions in the model and in the base.

    ``ratio`` is what the plan uses for r; it is ``additions / base_additions`` unless declared.
    """

    label: str
    additions: int
    base_additions: int
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Where parameters stand in branches: labels (outermost first), depth ratio, shared, last.

    ``beside`` are those that serve some branches, and what is outside of them as well, which needs
    no depth factor. ``stacked`` are those in branches that were declared, or that are one of
    several of their stream.
    """

    sites: tuple[Site, ...]
    inside: Mapping[str, tuple[tuple[str, ...], float, bool]]
    last: frozenset[str]
    stacked: frozenset[str]
    notes: tuple[str, ...] = ()
    depths: tuple[StreamDepth, ...] = ()
    beside: frozenset[str] = frozenset()


def from_dataflow(
    facts: Facts,
    base: Facts,
    base_of: Mapping[str, str],
    own_constants: tuple[OwnConstants, OwnConstants],
    declared: float | None = None,
) -> Membership:
    """Parameters in residual branches that were found, and those branches' multipliers.

    The depth ratio of a parameter is that of its branch's stream, times those of the branches this
    one lies inside.

    Args:
        facts: of the model.
        base: of the base.
        base_of: the name of each parameter's counterpart.
        own_constants: of the model and of the base.
        declared: the depth ratio of all streams that lie inside no branch, if not to be counted.

    Raises:
        UnrelatedModels: a branch has no counterpart in the base.
        NotUnderstood: a parameter is in and out of branches, or shared in another pattern.
    """
    ours, theirs = facts.residuals, base.residuals
    holders, base_holders = _holders(facts), _holders(base)
    stream_ratio: dict[int, float] = {}
    depths: list[StreamDepth] = []
    counterpart: dict[int, int] = {}  # stream -> that of the base
    votes: dict[int, Counter[int]] = {}
    alike: dict[int, Counter[int]] = {}  # branch -> branches of the base with the same parameters
    level = {b.index: len(b.parents) for b in ours.branches}
    base_level = {b.index: len(b.parents) for b in theirs.branches}
    for name, pairs in holders.items():
        base_pairs = base_holders.get(base_of[name], ())
        # What serves one stream alone says better which one it is than what serves several.
        alone = len({theirs.stream_of(other) for other, _ in base_pairs}) == 1
        weight = len(holders) * len(ours.branches) if alone else 1
        for branch, _ in pairs:
            for other, _ in base_pairs:
                if base_level[other] == level[branch]:
                    votes.setdefault(ours.stream_of(branch), Counter())[
                        theirs.stream_of(other)
                    ] += weight
                    alike.setdefault(branch, Counter())[other] += 1
    for index, stream in enumerate(ours.streams):
        if index not in votes:
            label = ours.branches[stream.branches[0]].label
            raise UnrelatedModels(
                f"The residual branch {label} of the model has no counterpart in the base, where "
                "the same parameters lie in no branch. Use a base with at least one such block."
            )
        best = counterpart[index] = votes[index].most_common(1)[0][0]
        base_depth = theirs.streams[best].depth
        outer = not level[stream.branches[0]]
        stream_ratio[index] = declared if declared and outer else stream.depth / base_depth
        if outer:
            label = pattern_of(ours.branches[stream.branches[0]].label)
            ratio = stream_ratio[index]
            depths.append(
                StreamDepth(
                    label=label, additions=stream.depth, base_additions=base_depth, ratio=ratio
                )
            )

    def chain(branch: Branch) -> tuple[Branch, ...]:
        outer = sorted((ours.branches[i] for i in branch.parents), key=lambda b: len(b.parents))
        return (*outer, branch)

    own = {b.index: stream_ratio[ours.stream_of(b.index)] for b in ours.branches}
    total = {b.index: math.prod(own[c.index] for c in chain(b)) for b in ours.branches}
    inside: dict[str, tuple[tuple[str, ...], float, bool]] = {}
    stacked: set[str] = set()
    copies = Counter(base_of.values())
    deeper = declared is None and len(ours.branches) != len(theirs.branches)
    both: list[str] = []  # serving all branches, and what is outside of them
    outside: list[str] = []  # serving some branches, and what is outside of them
    starts = {facts.usage.derived.get(b.stream) for b in ours.branches}
    for name, pairs in holders.items():
        if name in starts:  # a learned token with which a stream begins
            continue
        innermost = max((b for b, _ in pairs), key=lambda i: (len(ours.branches[i].parents), -i))
        labels = tuple(c.label for c in chain(ours.branches[innermost]))
        r = total[innermost]
        if len(ours.streams[ours.stream_of(innermost)].branches) > 1:
            stacked.add(name)
        if deeper and r == 1 and copies[base_of[name]] > 1:
            raise NotUnderstood(
                f"The model repeats {pattern_of(name)} more often than the base and has other "
                f"residual additions ({len(ours.branches)} against {len(theirs.branches)}), but "
                "as many along the stream of that parameter, so its depth is not understood. Say "
                "how much deeper the model is: depth=..., or declare the branches: "
                "branches={'layers.*.attention': ()}."
            )
        uses = facts.uses[name]
        times = len({b for b, _ in pairs if level[b] == level[innermost]})
        base_pairs = base_holders.get(base_of[name], ())
        base_times = len({b for b, _ in base_pairs if base_level[b] == level[innermost]})
        if not base_times:
            raise UnrelatedModels(
                f"Parameter {name} lies in the residual branch {labels[-1]} of the model, and its "
                f"counterpart {base_of[name]} in no branch of the base. Build both with the same "
                "code."
            )
        if not all(use.branches for use in uses):
            if times == base_times:  # of one branch in many, and of what is outside: as the latter
                outside.append(name)
                continue
            both.append(name)
        if times == base_times or r == 1:
            inside[name] = (labels, r, False)
        elif math.isclose(times / base_times, r) or math.isclose(
            times, _expected(theirs, base_pairs, counterpart, stream_ratio)
        ):
            r = times / base_times
            if _one_slice_each(uses):  # a stack of layers in one parameter
                inside[name] = (labels, r, False)
                continue
            if all(feeds for _, feeds in pairs) and any(use.reads_stream for use in uses):
                continue  # the end of another stream: an encoder's last norm, read by all branches
            inside[name] = (labels, r, True)
        else:
            raise NotUnderstood(
                f"Parameter {name} is used in {times} branches of the model and {base_times} of "
                f"the base while depth grows {r:g}-fold. Expected as many, or a number that "
                "grows with depth. Use a base that shares layers in the same pattern."
            )
    here, there = (constants.branches for constants in own_constants)
    constants = {
        b.index: here[b.index] / there[alike[b.index].most_common(1)[0][0]]
        if b.index in alike
        else here[b.index]
        for b in ours.branches
    }
    sites = branch_sites(facts, own, constants)
    notes = [
        f"The stream of {ours.branches[s.branches[0]].label} is normalized after its additions "
        "(post-norm). Each norm rescales the whole sum, so a branch multiplier sets how much of "
        "the stream a branch replaces, not how the sum grows; the depth rules were derived for "
        "streams that are not normalized. Check the transfer of this model before relying on it."
        for s in ours.streams
        if s.normalized
    ]
    notes += [_in_and_out(both)] if both else []
    notes += [
        f"The stream of {ours.branches[s.branches[0]].label} is itself multiplied by {s.kept:.4g} "
        "from one addition to the next, with no norm between, so that what a layer adds does not "
        "stay as it is up to the end. The depth rules were derived for streams that do. Check the "
        "transfer of this model before relying on it."
        for i, s in enumerate(ours.streams)
        if s.kept != 1 and not s.normalized and stream_ratio[i] != 1
    ]
    return Membership(
        sites=sites,
        inside=inside,
        last=frozenset(name for site in sites for name in site.folds),
        stacked=frozenset(stacked),
        notes=tuple(notes),
        depths=tuple(depths),
        beside=frozenset(outside),
    )


def _expected(
    base: Residuals,
    pairs: Iterable[tuple[int, bool]],
    counterpart: Mapping[int, int],
    ratios: Mapping[int, float],
) -> float:
    """How many branches a parameter of all branches serves, where their streams differ in depth.

    Minus infinity where a stream of the base has no counterpart.
    """
    of_base = {there: ratios[here] for here, there in counterpart.items()}
    branches = {branch for branch, _ in pairs}
    return sum(of_base.get(base.stream_of(branch), -math.inf) for branch in branches)


def _in_and_out(names: list[str]) -> str:
    patterns = list(dict.fromkeys(map(pattern_of, names)))
    more = f" and {len(patterns) - 1} more" if len(patterns) > 1 else ""
    return (
        f"{patterns[0]}{more} serves every branch and what is outside of the branches as well. It "
        "takes the depth factor of its branches, the largest with which they stay stable; what is "
        "outside alone would let it learn faster in deep models. Separate parameters would give "
        "each its own."
    )


def _one_slice_each(uses: tuple[Use, ...]) -> bool:
    """Whether every use reads an entry of its own along one axis: layer i of [layers, ...]."""
    return bool(uses[0].slices) and len({use.slices for use in uses}) == len(uses)


def _holders(facts: Facts) -> dict[str, list[tuple[int, bool]]]:
    """The branches that use each parameter, and whether it only feeds them from the side."""
    holders = {
        name: list(dict.fromkeys(pair for use in uses for pair in use.branches))
        for name, uses in facts.uses.items()
    }
    return {name: pairs for name, pairs in holders.items() if pairs}


def from_declarations(
    ours: tuple[DeclaredBranch, ...],
    theirs: tuple[DeclaredBranch, ...],
    declared: float | None = None,
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
        r = declared or counts[branch.family] / base_counts[branch.family]
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
        sites=tuple(sites),
        inside=inside,
        last=frozenset(),
        stacked=frozenset(inside),
        depths=tuple(
            StreamDepth(
                label=family,
                additions=counts[family],
                base_additions=base_counts[family],
                ratio=declared or counts[family] / base_counts[family],
            )
            for family in counts
        ),
    )
