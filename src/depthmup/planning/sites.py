"""Sites: the places of a forward pass that a scheme multiplies by a factor."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from depthmup.planning.comparison import Comparison
from depthmup.planning.own_constants import equal
from depthmup.rules import ONE, Power, Ratios
from depthmup.tracing import Carriers, Facts, Hook, Placement, pattern_of


class Where(StrEnum):
    """Which law multiplies a site."""

    BRANCH = "branch"  # Scheme.branch
    READOUT = "readout"  # Laws.forward of the readout
    INPUT = "input"  # Laws.forward of the embedding; there to undo a model's own scale
    CONSTANT = "own constant"  # no law: there to undo a model's own scale of any other weight
    EXPERTS = "sum over experts"  # 1/K, where nothing averages the active experts
    LOGITS = "attention logits"  # WidthRule.attention_logits


@dataclass(frozen=True, kw_only=True, slots=True)
class Multiplier:
    """One forward multiplier: a place to multiply, to which a scheme gives law and value.

    ``value = base * law.at(ratios) / own``, where ``own`` is how the model's own constant there
    already grows and ``base`` is what the person chose for the base. Either parameters carry it
    (``folds``) or hooks on modules do; before a scheme decides, both are those that could.
    ``times``: how often they multiply the site (2 where both operands of a product pass them), so
    that they carry the root of the value.

    Attributes:
        where: a parameter's use, the logits of attention, or a branch.
        label: in words; of a parameter's use its name.
        ratios: by how much sizes grew there; not known of plans that an older release saved.
        value: of the multiplier at this size.
        law: how it depends on size.
        hooks: which apply it; none where parameters carry it.
    """

    where: Where
    label: str
    ratios: Ratios = field(default_factory=Ratios)
    value: float = 1.0
    law: Power = ONE
    own: float = 1.0
    base: float = 1.0
    folds: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    times: int = 1


def branch_sites(
    facts: Facts, depth: Mapping[int, float], own: Mapping[int, float]
) -> tuple[Multiplier, ...]:
    """One site for every branch; one for all that end alike, in loops or tied across depth."""
    # Equal up to single precision, in which solvers compute their steps.
    growths = {i: (depth[i], float(f"{own[i]:.5g}")) for i in depth}
    # The evaluations of a step read each other: what carries one multiplier carries all of them.
    carriers = {
        b.index: facts.carriers[b.index]
        if all(growths[i] == growths[b.index] for i in b.evaluations)
        else Carriers()
        for b in facts.residuals.branches
    }
    folds, hooks = _folds(facts, carriers, growths), _hooks(facts, carriers, growths)
    distinct: dict[object, Multiplier] = {}
    for branch in facts.residuals.branches:
        i = branch.index
        site = Multiplier(
            where=Where.BRANCH,
            label=branch.label,
            ratios=Ratios(depth=depth[i]),
            own=own[i],
            folds=tuple(sorted(folds[i])),
            hooks=hooks[i] or facts.on_parameters(sorted(folds[i])),
        )
        # A branch whose output the whole of another ends in multiplies it once more.
        around = sum(folds[parent] == folds[i] for parent in branch.parents)
        ends = site.folds or site.hooks
        key = (around, depth[i], ends) if ends else i
        distinct.setdefault(key, site)
    return tuple(distinct.values())


# By branch: the ratio of its depth, and of its own constant.
Growths: TypeAlias = Mapping[int, tuple[float, float]]


def _folds(
    facts: Facts, carriers: Mapping[int, Carriers], growths: Growths
) -> dict[int, frozenset[str]]:
    """For each branch the parameters that can carry its multiplier.

    A parameter can when all its uses are last in branches with the same multiplier.
    """
    uses = {name: {(name, use.reader) for use in same} for name, same in facts.uses.items()}
    candidates = {i: those.parameters for i, those in carriers.items()}
    chosen: dict[int, Placement] = {}
    for index, placements in candidates.items():
        for placement in placements:
            if all(uses[name] <= placement.uses for name in placement.parameters):
                chosen[index] = placement
                break
    # Layers tied across depth: the same parameters are last in every branch.
    rest = {i: p[0] for i, p in candidates.items() if i not in chosen and p}
    for index, placement in rest.items():
        alike = [p for i, p in (rest | chosen).items() if growths[i] == growths[index]]
        covered = frozenset().union(*(p.uses for p in alike))
        if all(uses[name] <= covered for name in placement.parameters):
            chosen[index] = placement
    return {i: chosen[i].parameters if i in chosen else frozenset() for i in candidates}


def _hooks(
    facts: Facts, carriers: Mapping[int, Carriers], growths: Growths
) -> dict[int, tuple[Hook, ...]]:
    """For each branch the outputs of modules to multiply.

    A module that runs several times can carry a multiplier if it is the same each time. Where none
    gives the branch's output, one that returns the stream with the branch added will do.
    """
    explicit = {i: those.modules for i, those in carriers.items()}
    hooked: dict[object, set[int]] = {}
    for index, placement in explicit.items():
        for call, _ in placement.calls if placement is not None else ():
            hooked.setdefault((call.name, growths[index]), set()).add(call.first)
    around = Counter(facts.around)
    alone = {name for name, count in around.items() if name and count == facts.runs[name]}

    def hooks(index: int, placement: Placement | None) -> tuple[Hook, ...]:
        if placement is None:
            around = facts.around[index]
            return (Hook(module=around, side="addition"),) if around in alone else ()
        every_time = all(
            len(hooked[call.name, growths[index]]) == facts.runs[call.name]
            for call, _ in placement.calls
        )
        return placement.hooks if every_time else ()

    return {index: hooks(index, placement) for index, placement in explicit.items()}


def growing_sums(comparison: Comparison) -> Iterator[str]:
    """A note on sums of an activation's coordinates whose number grows."""
    for product, counterpart in comparison.products:
        ratio = product.size / counterpart.size
        evened = equal(product.scale * product.size, counterpart.scale * counterpart.size)
        if product.total and not product.distance and ratio != 1 and not evened:
            yield (
                f"The model sums {ratio:g} times as many coordinates as the base at "
                f"{pattern_of(product.module) or 'its top level'}, with no weight on them, so that "
                "training lets the sum grow as much; no rule covers it and it takes no factor. "
                "Take the mean, or divide by their number."
            )
            return


def temperatures(comparison: Comparison) -> tuple[str, ...]:
    """The parameters that multiply products of activations: each must start as the base's."""
    return tuple(sorted({name for product, _ in comparison.products for name in product.gains}))
