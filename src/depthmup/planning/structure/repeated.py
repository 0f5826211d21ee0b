"""What a model repeats more often than its base inside of one residual branch."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from depthmup.planning.structure.declared import DeclaredBranch
from depthmup.planning.structure.matching import Match
from depthmup.planning.structure.own_constants import equal
from depthmup.planning.structure.roles import NotUnderstood
from depthmup.planning.structure.sites import Site
from depthmup.tracing import Use, pattern_of

Membership = Mapping[str, frozenset[int]]
"""For every parameter, the indices of the residual branches that it lies in."""


def in_declared(names: Iterable[str], branches: Sequence[DeclaredBranch]) -> Membership:
    """The declared branches that parameters lie in.

    Args:
        names: of the parameters.
        branches: as a person declared them.
    """
    return {
        name: frozenset(i for i, branch in enumerate(branches) if name in branch.parameters)
        for name in names
    }


def in_traced(names: Iterable[str], uses: Mapping[str, Sequence[Use]]) -> Membership:
    """The branches of the dataflow that parameters lie in, by any of their uses.

    Args:
        names: of the parameters.
        uses: of each.
    """
    return {
        name: frozenset(index for use in uses.get(name, ()) for index, _ in use.branches)
        for name in names
    }


def repeated_in_branches(deeper: Iterable[str], branches_of: Membership) -> list[str]:
    """Containers whose children all lie in one and the same branch: experts, or a deeper branch.

    Args:
        deeper: containers that have more children than the base's.
        branches_of: for every parameter, the residual branches that it lies in.
    """
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
    return result


def repeated_text(containers: Iterable[str]) -> str:
    """The containers in a sentence, without its end.

    Example:
        >>> repeated_text(["layers.0.experts", "layers.1.experts"])
        'layers.*.experts repeats its modules more often than the base inside of one residual \
branch'
    """
    patterns = dict.fromkeys(map(pattern_of, containers))
    return (
        f"{', '.join(patterns)} repeats its modules more often than the base inside of one "
        "residual branch"
    )


def with_numbers_left(
    sites: Iterable[Site], containers: Iterable[str], match: Match, base_names: Iterable[str]
) -> Iterator[Site]:
    """Sites of branches, a model's own 1/E or E^-1/2 over E repeated modules being none of depth's.

    Such a number averages what is repeated and stays; a branch with any other number that follows
    size could mean both.

    Args:
        sites: of the branches.
        containers: that repeat their modules more often inside of one branch.
        match: of the model and its base.
        base_names: of the base's parameters.

    Raises:
        NotUnderstood: the number of a branch follows neither.
    """
    names_of_base = [*base_names]
    for site in sites:
        inside = [c for c in containers if any(f.startswith(f"{c}.") for f in site.folds)]
        if not inside or equal(site.own, 1.0):
            yield site
            continue
        ratios = {
            len(_children(site.folds, c)) / len(_children(names_of_base, match.modules[c]))
            for c in inside
        }
        if not any(equal(site.own * ratio**power, 1.0) for ratio in ratios for power in (1.0, 0.5)):
            raise NotUnderstood(
                f"{repeated_text(inside)}, and the branch {site.label} is multiplied by a number "
                f"that is {site.own:.4g} times the base's: what follows depth in it and what the "
                "number of modules cannot be told apart. Give both models the same number."
            )
        yield replace(site, own=1.0)


def _children(names: Iterable[str], container: str) -> set[str]:
    start = f"{container}."
    return {name[len(start) :].split(".")[0] for name in names if name.startswith(start)}
