"""The scheme of a plan: the one that was named, or the one that suits a model's blocks."""

from collections.abc import Iterator, Sequence

from depthmup.planning.anatomy import Anatomy
from depthmup.planning.experts import MixtureGrowth, not_covered
from depthmup.planning.parameters import ParameterPlace
from depthmup.rules import DEPTH_MUP, Kind, RunRule, Scheme, completep, with_experts, with_run
from depthmup.tracing import pattern_of


def chosen_scheme(
    named: Scheme | None, run: str | RunRule | None, anatomy: Anatomy
) -> tuple[Scheme, tuple[str, ...]]:
    """The scheme that was named or the model's default, with its rule of the run, and notes."""
    scheme, why = (named, "") if named is not None else _default(anatomy.places, anatomy.mixtures)
    if run is not None:
        scheme = with_run(scheme, run)
    notes = [*not_covered(anatomy.mixtures, scheme, anatomy.repeated)]
    notes += [why] if why else []
    notes += _positive_branch(anatomy.positive, scheme)
    notes += _shared_branch(anatomy.places, scheme)
    return scheme, tuple(notes)


def _default(
    places: Sequence[ParameterPlace], mixtures: Sequence[MixtureGrowth]
) -> tuple[Scheme, str]:
    """The scheme that block depth asks for, and a note that says so.

    Branches of one matrix (or of several side by side, all of them the last): Depth-muP, which is
    proven for them. Two matrices in series or more: no rule keeps everything, and alpha = 1
    transfers most reliably. Where all layers are one and the same, alpha = 1 alone is stable. Where
    the number of experts grows, it has the rule ``moe`` for them.

    *Source:* TP6 (arXiv 2310.02244) Sections 4 and 9; arXiv 2603.00541 for blocks of two or more.
    """
    scheme, why = _by_block_depth(places)
    if any(mixture.experts != mixture.base_experts for mixture in mixtures):
        return with_experts(scheme, "moe"), (
            f"{why} The number of experts grows, for which the rule 'moe' is taken."
        )
    return scheme, why


def _by_block_depth(places: Sequence[ParameterPlace]) -> tuple[Scheme, str]:
    deep = [
        branches
        for branches, inside in _matrices(places).items()
        if len(inside) > 1 and not all(parameter.role.last for parameter in inside)
    ]
    shared = _shared(places)
    if shared:
        return completep(), (
            f"No scheme was named; the branch {shared[0]} has the same weights in every layer, so "
            "CompleteP's (alpha = 1) is taken."
        )
    if not deep:
        return DEPTH_MUP, (
            "No scheme was named; no branch has two matrices in series, so Depth-muP's is taken."
        )
    return completep(), (
        f"No scheme was named; the branch {deep[0][-1]} has two matrices in series or more, so "
        "CompleteP's (alpha = 1) is taken. The scheme depth-mup is for branches of one."
    )


def _matrices(places: Sequence[ParameterPlace]) -> dict[tuple[str, ...], list[ParameterPlace]]:
    """The matrices of each branch, by the labels of the branches it lies in."""
    matrices: dict[tuple[str, ...], list[ParameterPlace]] = {}
    for parameter in places:
        if parameter.role.in_branch and parameter.role.kind is not Kind.VECTOR:
            matrices.setdefault(parameter.branches, []).append(parameter)
    return matrices


def _shared(places: Sequence[ParameterPlace]) -> list[str]:
    """The branches of which all matrices are those of every other layer, and the depth grows."""
    return [
        branches[-1]
        for branches, inside in _matrices(places).items()
        if all(p.role.shared and p.ratios.depth > 1 for p in inside)
    ]


def _shared_branch(places: Sequence[ParameterPlace], scheme: Scheme) -> Iterator[str]:
    """A note on layers with the same weights, where a scheme lets their sum grow.

    The same function of a stream that changes little from layer to layer adds up as L, and what
    differs as sqrt(L), which is what alpha below 1 counts on. Measured at the start, 8 to 512
    layers of two matrices under alpha = 1/2: the stream grows from 2.8 to 20 where branches
    normalize what they read (with weights of their own 1.4 throughout), and exponentially where
    they do not.
    """
    shared = _shared(places)
    if shared and 0 < scheme.alpha < 1:
        yield (
            f"The branch {shared[0]} has the same weights in every layer, so what layers add does "
            f"not cancel: the stream grows with depth under {scheme.title}, as "
            f"depth^{1 - scheme.alpha} or faster. Take scheme='completep' (alpha = 1), which is "
            "stable for such layers."
        )


def _positive_branch(labels: Sequence[str], scheme: Scheme) -> Iterator[str]:
    """A note on branches whose sums do not cancel, where a scheme lets them grow.

    L branches of mean m add up to L m, and only their deviations to sqrt(L), which is what alpha
    below 1 counts on.
    """
    if labels and 0 < scheme.alpha < 1:
        yield (
            f"The branch {pattern_of(labels[0])} ends in a nonlinearity whose mean is positive, "
            "so what branches add does not cancel: at the start the stream grows as "
            f"depth^{1 - scheme.alpha} under {scheme.title}. Subtract the mean over features "
            "from the branch (as the paper does), put the nonlinearity before the matrix, or take "
            "scheme='completep' (alpha = 1)."
        )
