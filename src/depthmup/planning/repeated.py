"""What a model repeats more often than its base inside of one residual branch."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from depthmup.planning.comparison import Comparison
from depthmup.planning.depth import Membership
from depthmup.planning.own_constants import equal
from depthmup.planning.pair import Pair
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sites import Multiplier
from depthmup.tracing import pattern_of

Branches: TypeAlias = Mapping[str, frozenset[int]]
"""For every parameter, the indices of the residual branches that it lies in."""


def repeated_inside(
    pair: Pair, branching: Comparison | None, membership: Membership, experts: Collection[str]
) -> tuple[str, ...]:
    """Containers that repeat more children than the base's inside of one residual branch."""
    deeper = [c for c in pair.match.deeper if _holds_others(pair, c, experts)]
    if not membership.sites and deeper:
        raise NotUnderstood(
            f"The model repeats {', '.join(map(repr, deeper))} more often than the base, but "
            "no residual addition was found in its forward pass, so no depth rule applies. Give "
            "both the same depth, or declare the branches: branches={'layers.*.attention': ()}. A "
            "gate on the stream, (1 - t) * x + t * f(x), is a residual branch where it is written "
            "x + self.branch(t * (f(x) - x)), with self.branch = depthmup.Branch(); alpha = 1 "
            "alone keeps such a stream from being forgotten in deep models."
        )
    inside = _in_one_branch(deeper, _branches(pair, branching))
    if inside and branching is None:
        raise NotUnderstood(
            f"{repeated_words(inside)}, and a declaration does not say how they are put "
            "together. Experts are recognized in the dataflow: leave out branches= and pass "
            "example_inputs, or give both models the same number."
        )
    return inside


def repeated_note(containers: Iterable[str]) -> Iterator[str]:
    """A note on what repeats inside of one residual branch, which no rule covers."""
    if named := [*containers]:
        yield (
            f"{repeated_words(named)}. No rule is known for that but those for experts that a "
            "router weights: their number takes no factor, and a mean over them stays as it is."
        )


def _holds_others(pair: Pair, container: str, experts: Collection[str]) -> bool:
    """Whether there is more in a container than experts; one without parameters may be a layer."""
    start = f"{container}." if container else ""
    inside = {name for name in pair.names if name.startswith(start)}
    return not inside or not inside <= {*experts}


def _branches(pair: Pair, branching: Comparison | None) -> Branches:
    """The branches that parameters lie in, by any of their uses or as they were declared."""
    if branching is None:
        return {
            name: frozenset(i for i, b in enumerate(pair.branches[0]) if name in b.parameters)
            for name in pair.names
        }
    uses = branching.facts.uses
    return {
        name: frozenset(index for use in uses.get(name, ()) for index, _ in use.branches)
        for name in pair.names
    }


def _in_one_branch(deeper: Iterable[str], branches_of: Branches) -> tuple[str, ...]:
    """Containers whose children all lie in one and the same branch: experts, or a deeper branch."""
    result = []
    for container in deeper:
        start = f"{container}." if container else ""
        children: dict[str, set[frozenset[int]]] = {}
        for name, branches in branches_of.items():
            if name.startswith(start):
                children.setdefault(name[len(start) :].split(".")[0], set()).add(branches)
        shared = set[frozenset[int]]().union(*children.values())
        if len(children) > 1 and len(shared) == 1 and shared != {frozenset[int]()}:
            result.append(container)
    return tuple(result)


def repeated_words(containers: Iterable[str]) -> str:
    """The containers in a sentence, without its end.

    Example:
        >>> repeated_words(["layers.0.experts", "layers.1.experts"])
        'layers.*.experts repeats its modules more often than the base inside of one residual \
branch'
    """
    patterns = dict.fromkeys(map(pattern_of, containers))
    return (
        f"{', '.join(patterns)} repeats its modules more often than the base inside of one "
        "residual branch"
    )


def with_numbers_left(
    pair: Pair, sites: Iterable[Multiplier], containers: Collection[str]
) -> Iterator[Multiplier]:
    """Sites of branches, a model's own 1/E or E^-1/2 over E repeated modules being none of depth's.

    Such a number averages what is repeated and stays; a branch with any other number that follows
    size could mean both.
    """
    base_names = pair.base_of.values()
    for site in sites:
        inside = [c for c in containers if any(f.startswith(f"{c}.") for f in site.folds)]
        if not inside or equal(site.own, 1.0):
            yield site
            continue
        ratios = {
            len(_children(site.folds, c)) / len(_children(base_names, pair.match.modules[c]))
            for c in inside
        }
        if not any(equal(site.own * ratio**power, 1.0) for ratio in ratios for power in (1.0, 0.5)):
            raise NotUnderstood(
                f"{repeated_words(inside)}, and the branch {site.label} is multiplied by a number "
                f"that is {site.own:.4g} times the base's: what follows depth in it and what the "
                "number of modules cannot be told apart. Give both models the same number."
            )
        yield replace(site, own=1.0)


def _children(names: Iterable[str], container: str) -> set[str]:
    start = f"{container}."
    return {name[len(start) :].split(".")[0] for name in names if name.startswith(start)}
