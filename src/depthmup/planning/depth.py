"""Depth ratios: which residual branches a parameter belongs to, and how much deeper they are."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from depthmup.planning.comparison import Comparison
from depthmup.planning.declared import DeclaredBranch
from depthmup.planning.matching import UnrelatedModels
from depthmup.planning.own_constants import OwnConstants
from depthmup.planning.pair import Pair
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sites import Multiplier, Where, branch_sites
from depthmup.rules import Ratios
from depthmup.tracing import Facts, Hook, Residuals, Use, pattern_of, patterns_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamDepth:
    """How deep one residual stream is: its additions in the model and in the base.

    ``ratio`` is what the plan uses for r; it is ``additions / base_additions`` unless declared.
    """

    label: str
    additions: int
    base_additions: int
    ratio: float


# The labels of the branches a parameter lies in, outermost first; its depth ratio; whether all
# branches share it.
Standing: TypeAlias = tuple[tuple[str, ...], float, bool]


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Where parameters stand in branches, and what those multiply.

    ``beside`` are those that serve some branches, and what is outside of them as well, which needs
    no depth factor. ``stacked`` are those in branches that were declared, or that are one of
    several of their stream.
    """

    sites: tuple[Multiplier, ...]
    inside: Mapping[str, Standing]
    stacked: frozenset[str]
    notes: tuple[str, ...] = ()
    depths: tuple[StreamDepth, ...] = ()
    beside: frozenset[str] = frozenset()

    @cached_property
    def last(self) -> frozenset[str]:
        """The parameters that can carry the multiplier of a branch."""
        return frozenset(name for site in self.sites for name in site.folds)


def membership_of(
    pair: Pair, branching: Comparison | None, declared: float | None = None
) -> Membership:
    """Parameters in residual branches, and those branches' multipliers.

    The depth ratio of a parameter is that of its branch's stream, times those of the branches this
    one lies inside. Of declared branches, depth is how many modules match a pattern. ``declared``
    is the depth ratio of all streams that lie inside no branch, if it is not to be counted.
    """
    if branching is None:
        return _from_declarations(*pair.branches, declared)
    return _from_dataflow(branching, pair.base_of, declared)


def _from_dataflow(
    comparison: Comparison, base_of: Mapping[str, str], declared: float | None
) -> Membership:
    facts, residuals = comparison.facts, comparison.facts.residuals
    base = comparison.base
    streams, branches = counterparts(facts, base, base_of)
    _same_evaluations(residuals, base.residuals, branches)
    depths = _stream_depths(residuals, base.residuals, streams, declared)
    own = {b.index: depths[residuals.stream_of(b.index)].ratio for b in residuals.branches}
    of_base = {there: depths[here].ratio for here, there in streams.items()}
    alone = {*range(len(residuals.streams))} - streams.keys()
    standings = _standings(
        facts, base, base_of, own, of_base, branches, counted=declared is None,
        alone=frozenset(b for index in alone for b in residuals.streams[index].branches),
    )  # fmt: skip
    inside: dict[str, Standing] = {}
    everywhere: list[str] = []  # serving all branches, and what is outside of them
    beside: list[str] = []  # serving some branches, and what is outside of them
    for name, (standing, alike) in standings.items():
        if not all(use.branches for use in facts.uses[name]):
            # One branch in many and what is outside of them: planned as the latter.
            if alike and not _serves_all(facts, name):
                beside.append(name)
                continue
            everywhere += [] if alike else [name]
        if standing is not None:
            inside[name] = standing
    notes = [*_normalized_streams(residuals, depths)]
    notes += [_in_and_out(everywhere)] if everywhere else []
    notes += [*_scaled_streams(residuals, depths)] or _skips(residuals, base.residuals)
    notes += _forgotten_streams(residuals, depths)
    constants = _growth_of_constants(comparison.own, residuals, branches)
    return Membership(
        sites=branch_sites(facts, own, constants),
        inside=inside,
        stacked=frozenset(
            name for name in standings if len(_stage_of(residuals, facts.innermost(name))) > 1
        ),
        notes=tuple(notes),
        depths=_told(residuals, depths),
        beside=frozenset(beside),
    )


def _stage_of(residuals: Residuals, branch: int) -> tuple[int, ...]:
    """The branches of a stage, whether its stream was taken apart or grows as a whole."""
    stream = residuals.streams[residuals.stream_of(branch)]
    return next((s.branches for s in stream.stages if branch in s.branches), stream.branches)


def _told(residuals: Residuals, depths: Sequence[StreamDepth]) -> tuple[StreamDepth, ...]:
    """The depths of streams outside of all branches, and of those inside that grow, once each."""
    kinds: dict[object, StreamDepth] = {}
    for index, depth in enumerate(depths):
        if not residuals.first(index).parents and depth.base_additions:
            kinds[index] = depth
        elif depth.ratio != 1:
            kinds.setdefault((pattern_of(depth.label), depth.ratio), depth)
    return tuple(kinds.values())


_BESIDE = (
    "branches that nest in another way. Blocks beside each other, whose outputs are averaged or "
    "summed, are no depth, and no rule covers their number: use as many as in the base. Of layers "
    "one after another, "
)


def _streams_of(residuals: Residuals, pairs: Sequence[tuple[int, bool]]) -> Iterator[int]:
    return (residuals.stream_of(branch) for branch, _ in pairs)


def counterparts(
    facts: Facts, base: Facts, base_of: Mapping[str, str]
) -> tuple[dict[int, int], dict[int, int]]:
    """Streams and branches with their counterparts in the base, by most votes of parameters.

    One addition of which the base shows none is left out.
    """
    residuals, of_base = facts.residuals, base.residuals
    votes: dict[int, Counter[int]] = {}
    alike: dict[int, Counter[int]] = {}
    for name, pairs in facts.users.items():
        base_pairs = base.users.get(base_of[name], ())
        # What serves one stream alone says better which one it is than what serves several: one
        # such vote outweighs all others together.
        alone = len({of_base.stream_of(other) for other, _ in base_pairs}) == 1
        weight = len(facts.users) * len(residuals.branches) if alone else 1
        for branch, _ in pairs:
            for other, _ in base_pairs:
                if of_base.level(other) == residuals.level(branch):
                    stream = residuals.stream_of(branch)
                    votes.setdefault(stream, Counter())[of_base.stream_of(other)] += weight
                    # Of the evaluations of a step, which all use the same, the same one.
                    same = residuals.branches[branch].nth == of_base.branches[other].nth
                    alike.setdefault(branch, Counter())[other] += 1 + same
    # A stream without votes shares no parameter with the base: its depth cannot be compared.
    for index, own in enumerate(residuals.streams):
        if index not in votes:
            served = [n for n, of in facts.users.items() if index in {*_streams_of(residuals, of)}]
            nested = any(base_of[name] in base.users for name in served)
            if len(own.branches) == 1 and not nested and not residuals.first(index).parents:
                continue  # no depth: a shortcut that is a matrix to a size which the base has too
            raise UnrelatedModels(
                f"The residual branch {residuals.first(index).label} of the model has no "
                "counterpart in the base, where the same parameters lie in "
                + (
                    _BESIDE + _declare("declare")
                    if nested
                    else "no branch. Use a base with at least one such block."
                )
            )
    # Loops that run the same blocks tie: where both models have as many streams, by their order.
    in_order = len(residuals.streams) == len(of_base.streams)
    streams = {}
    for index, of in sorted(votes.items()):
        most = [other for other, count in of.items() if count == max(of.values())]
        streams[index] = index if in_order and index in most else most[0]
    return streams, {branch: others.most_common(1)[0][0] for branch, others in alike.items()}


def _same_evaluations(
    residuals: Residuals, base: Residuals, counterparts: Mapping[int, int]
) -> None:
    """Refuse steps that evaluate their function more often than those of the base."""
    for here, there in counterparts.items():
        ours, theirs = residuals.branches[here], base.branches[there]
        points, base_points = (1 + len(b.evaluations) for b in (ours, theirs))
        if points != base_points:
            raise NotUnderstood(
                f"A step at {ours.label} evaluates its function at {points} points, and at "
                f"{base_points} in the base: no rule covers their number. Use the same number in "
                "both, and more steps for a deeper model."
            )


def _stream_depths(
    residuals: Residuals,
    base: Residuals,
    counterparts: Mapping[int, int],
    declared: float | None,
) -> list[StreamDepth]:
    """The depth of every stream; a declared ratio is that of streams which lie in no branch."""
    depths = []
    patterns = Counter(pattern_of(residuals.first(i).label) for i in counterparts)
    for index, stream in enumerate(residuals.streams):
        label, outer = residuals.first(index).label, not residuals.first(index).parents
        if index not in counterparts:
            depths.append(StreamDepth(label=label, additions=1, base_additions=0, ratio=1.0))
            continue
        base_depth = base.streams[counterparts[index]].depth
        depths.append(
            StreamDepth(
                # Stages of one pattern are told apart by where each begins.
                label=pattern_of(label) if patterns[pattern_of(label)] == 1 else label,
                additions=stream.depth,
                base_additions=base_depth,
                ratio=declared if declared and outer else stream.depth / base_depth,
            )
        )
    return depths


def _standings(
    facts: Facts,
    base: Facts,
    base_of: Mapping[str, str],
    ratios: Mapping[int, float],
    of_base: Mapping[int, float],
    counterparts: Mapping[int, int],
    *,
    counted: bool,
    alone: frozenset[int],
) -> dict[str, tuple[Standing | None, bool]]:
    """Where every parameter that branches use stands (None: outside of them), and whether as many
    branches use it in the base.

    ``ratios`` are the depth ratios of the branches, ``of_base`` those of the streams of the base;
    ``counted``: they are those of the additions. ``alone`` are branches that the base has not.
    """
    residuals = facts.residuals
    copies = Counter(base_of.values())
    deeper = counted and len(residuals.branches) != len(base.residuals.branches)
    starts = {facts.usage.derived.get(b.stream) for b in residuals.branches if not b.parents}
    standings: dict[str, tuple[Standing | None, bool]] = {}
    for name in facts.users:
        if name in starts:  # a learned token with which a stream outside of all branches begins
            continue
        base_name, innermost = base_of[name], facts.innermost(name)
        if innermost in alone:
            continue
        level, chain = residuals.level(innermost), residuals.chain(innermost)
        labels = tuple(branch.label for branch in chain)
        ratio = math.prod(ratios[branch.index] for branch in chain)
        if deeper and ratio == 1 and copies[base_name] > 1:
            raise NotUnderstood(_unknown_depth(name, residuals, base.residuals))
        times, base_times = facts.times(name, level), base.times(base_name, level)
        if not base_times:
            raise UnrelatedModels(
                f"Parameter {name} lies in the residual branch {labels[-1]} of the model, and "
                f"its counterpart {base_name} in no branch of the base. Build both with the same "
                "code. Where the first block reads learned tokens and the rest of its stream one "
                f"by one, its additions are not seen: {_declare('declare')}"
            )
        if times == base_times or ratio == 1:
            outside = len(facts.users[name]) > 1 and _ends_another_stream(facts, name)
            standings[name] = None if outside else (labels, ratio, False), times == base_times
            continue
        # If it serves all branches of the streams that its counterpart serves; minus infinity where
        # a stream of the base has no counterpart.
        served = {b for b, _ in base.users[base_name]}
        alike = {b for b, there in counterparts.items() if there in served}
        of_streams = {facts.residuals.stream_of(b) for b in alike}
        # All of a kind, beside some of another.
        if len(of_streams) == 1 and alike == {b for b, _ in facts.users[name]}:
            standings[name] = _several_times(facts, name, labels, ratio), False
            continue
        streams = (base.residuals.stream_of(b) for b in served)
        expected = sum(of_base.get(stream, -math.inf) for stream in streams)
        if not (math.isclose(times / base_times, ratio) or math.isclose(times, expected)):
            raise NotUnderstood(
                f"Parameter {name} is used in {times} branches of the model and {base_times} "
                f"of the base while depth grows {ratio:g}-fold. Expected as many, or a number that "
                "grows with depth. Use a base that shares layers in the same pattern, or of the "
                "same depth. Where the last layer gives fewer outputs that are read, "
                f"{_declare('declare')}"
            )
        standings[name] = _several_times(facts, name, labels, times / base_times), False
    return standings


def _serves_all(facts: Facts, name: str) -> bool:
    """Whether all branches of a stream use a parameter, of several: as many as the depth is."""
    innermost = facts.innermost(name)
    branches = facts.residuals.streams[facts.residuals.stream_of(innermost)].branches
    return len(branches) > 1 and {*branches} <= {branch for branch, _ in facts.users[name]}


def _several_times(
    facts: Facts, name: str, labels: tuple[str, ...], ratio: float
) -> Standing | None:
    """Where a parameter stands that more branches use than in the base."""
    uses = facts.uses[name]
    # A stack of layers in one parameter, or what a part of it is made for.
    if _one_slice_each(uses) or all(use.divided for use in uses):
        return labels, ratio, False
    return None if _ends_another_stream(facts, name) else (labels, ratio, True)


def _ends_another_stream(facts: Facts, name: str) -> bool:
    """Whether it is the end of a stream that branches of another one read: an encoder's last norm.

    Read by several branches, it lies in none of them; a matrix with a call for each is theirs.
    """
    feeds = all(feeds for _, feeds in facts.users[name])
    several = any(len(use.branches) > 1 for use in facts.uses[name])
    return feeds and several and any(use.reads_stream for use in facts.uses[name])


def _growth_of_constants(
    own_constants: tuple[OwnConstants, OwnConstants],
    residuals: Residuals,
    counterparts: Mapping[int, int],
) -> dict[int, float]:
    """How the model's own constant at the end of each branch grows against the base's."""
    constants, base_constants = (own.branches for own in own_constants)
    return {
        b.index: constants[b.index] / base_constants[counterparts[b.index]]
        if b.index in counterparts
        else constants[b.index]
        for b in residuals.branches
    }


def _unknown_depth(name: str, residuals: Residuals, base: Residuals) -> str:
    return (
        f"The model repeats {pattern_of(name)} more often than the base and has other "
        f"residual additions ({len(residuals.branches)} against {len(base.branches)}), but "
        "as many along the stream of that parameter, so its depth is not understood. Say "
        f"how much deeper the model is: depth=... {_declare('Or declare')}"
    )


def _normalized_streams(residuals: Residuals, depths: Sequence[StreamDepth]) -> Iterator[str]:
    told = set[str]()
    for stream, depth in zip(residuals.streams, depths, strict=True):
        label = residuals.branches[stream.branches[0]].label
        if not stream.normalized or depth.ratio == 1 or pattern_of(label) in told:
            continue
        told.add(pattern_of(label))
        yield (
            f"The stream of {label} is normalized after "
            "its additions (post-norm). Each norm rescales the whole sum, so a branch "
            "multiplier sets how much of the stream a branch replaces, not how the sum grows; "
            "the depth rules were derived for streams that are not normalized. Of one network so "
            "planned the best rate stayed under Adam, and fell by a tenth per doubling of depth "
            "under SGD. Check the transfer of this model before relying on it."
        )


def _scaled_streams(residuals: Residuals, depths: Sequence[StreamDepth]) -> Iterator[str]:
    for stream, depth in zip(residuals.streams, depths, strict=True):
        if stream.factor != 1 and not stream.normalized and depth.ratio != 1:
            yield (
                f"The stream of {residuals.branches[stream.branches[0]].label} is itself "
                f"multiplied by {stream.factor:.4g} from one addition to the next, with no norm "
                "between, so that what a layer adds does not stay as it is up to the end. The "
                "depth rules were derived for streams that do. Check the transfer of this model "
                "before relying on it."
            )


def _skips(residuals: Residuals, base: Residuals) -> Iterator[str]:
    if len(residuals.skips) > len(base.skips):
        yield (
            f"Earlier points of a stream are added to it again in {len(residuals.skips)} places, "
            f"and in {len(base.skips)} of the base (the skips of a U-net). The depth rules were "
            "derived for streams to which branches alone are added. Check the transfer of this "
            "model before relying on it."
        )


def _forgotten_streams(residuals: Residuals, depths: Sequence[StreamDepth]) -> Iterator[str]:
    for stream, depth in zip(residuals.streams, depths, strict=True):
        forgets = [residuals.branches[i] for i in stream.branches if residuals.branches[i].forgets]
        if forgets and not stream.normalized and depth.ratio != 1:
            yield (
                f"Each layer takes away a part of the stream that it replaces, at "
                f"{pattern_of(forgets[0].label)}: x + t (f(x) - x). A branch multiplier of 1/L "
                "keeps the stream; a larger one, as L^(-1/2) of Depth-muP, lets deep models forget "
                "what was put in. Use completep for this model."
            )


def _in_and_out(names: list[str]) -> str:
    return (
        f"{patterns_of(names, most=1)} serves every branch and what is outside of the branches as "
        "well. It takes the depth factor of its branches, the largest with which they stay stable; "
        "what is outside alone would let it learn faster in deep models. Separate parameters would "
        "give each its own."
    )


def _one_slice_each(uses: tuple[Use, ...]) -> bool:
    """Whether every use reads an entry of its own along one axis: layer i of [layers, ...]."""
    return bool(uses[0].slices) and len({use.slices for use in uses}) == len(uses)


def refuse_further_outputs(branches: tuple[DeclaredBranch, ...], facts: Facts) -> None:
    """Refuse declared modules of which a further output is added to a stream, without a factor."""
    further = {module for module, which in facts.added if which}
    for branch in branches:
        if branch.module in further:
            raise NotUnderstood(
                f"{branch.module} is declared to be a branch and returns several tensors that are "
                f"added to streams; the multiplier is for the first alone. {_declare('Declare')} "
                "Here that is a module inside, which gives them one by one."
            )


def _declare(start: str) -> str:
    return (
        f"{start} the modules whose outputs are added to the stream, and what else belongs to "
        "each: branches={'layers.*.attention.out': ('layers.*.attention', 'layers.*.norm1'), ...}."
    )


def _from_declarations(
    model: tuple[DeclaredBranch, ...], base: tuple[DeclaredBranch, ...], declared: float | None
) -> Membership:
    counts = Counter(branch.family for branch in model)
    base_counts = Counter(branch.family for branch in base)
    for branch in model:
        if branch.family not in base_counts:
            raise UnrelatedModels(
                f"The branch {branch.module} is declared in the model, but the base has no module "
                f"matching {branch.family!r}."
            )
    ratios = {family: declared or n / base_counts[family] for family, n in counts.items()}
    inside: dict[str, Standing] = {
        name: ((branch.module,), ratios[branch.family], False)
        for branch in model
        for name in branch.parameters
    }
    return Membership(
        sites=tuple(
            Multiplier(
                where=Where.BRANCH,
                label=branch.module,
                ratios=Ratios(depth=ratios[branch.family]),
                hooks=(Hook(module=branch.module, side="output"),),
            )
            for branch in model
        ),
        inside=inside,
        stacked=frozenset(inside),
        depths=tuple(
            StreamDepth(
                label=family,
                additions=additions,
                base_additions=base_counts[family],
                ratio=ratios[family],
            )
            for family, additions in counts.items()
        ),
    )
