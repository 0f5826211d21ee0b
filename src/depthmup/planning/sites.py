"""Sites: the places of a forward pass that a scheme multiplies by a factor."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from depthmup.planning.matching import Match
from depthmup.rules import Ratios
from depthmup.tracing import Attention, Facts, Hook, Placement, Use, pattern_of


class Where(StrEnum):
    """Which law multiplies a site."""

    BRANCH = "branch"  # Scheme.branch
    READOUT = "readout"  # Laws.forward of the readout
    INPUT = "input"  # Laws.forward of the embedding; there to undo a model's own scale
    LOGITS = "attention logits"  # WidthRule.attention_logits


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """One place to multiply. ``own`` is how the model's own constant there already grows.

    ``folds`` are the parameters that carry the multiplier when folded (empty: it cannot be),
    ``hooks`` the tensors to multiply when it is kept explicit (empty: it cannot be).
    """

    where: Where
    label: str
    ratios: Ratios
    own: float = 1.0
    folds: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    parameter: str | None = None


def branch_sites(facts: Facts, depth: Mapping[int, float]) -> tuple[Site, ...]:
    """One site for every branch; ``depth`` has the depth ratio of each.

    Branches that end in the same weights (tied across depth) are one site: the weights carry the
    multiplier once.
    """
    folds, hooks = _folds(facts, depth), _hooks(facts, depth)
    distinct: dict[object, Site] = {}
    for branch in facts.residuals.branches:
        i = branch.index
        site = Site(
            where=Where.BRANCH,
            label=branch.label,
            ratios=Ratios(depth=depth[i]),
            folds=tuple(sorted(folds[i])),
            hooks=hooks[i],
        )
        key = (len(branch.parents), depth[i], site.folds) if site.folds else i
        distinct.setdefault(key, site)
    return tuple(distinct.values())


def _folds(facts: Facts, depth: Mapping[int, float]) -> dict[int, frozenset[str]]:
    """For each branch the parameters that can carry its multiplier.

    A parameter can when all its uses are last in branches with the same multiplier.
    """
    uses = {name: {(name, use.node) for use in same} for name, same in facts.uses.items()}
    candidates = {i: carriers.parameters for i, carriers in enumerate(facts.carriers)}
    chosen: dict[int, Placement] = {}
    for index, placements in candidates.items():
        for placement in placements:
            if all(uses[name] <= placement.uses for name in placement.parameters):
                chosen[index] = placement
                break
    # Layers tied across depth: the same parameters are last in every branch.
    rest = {i: p[0] for i, p in candidates.items() if i not in chosen and p}
    for index, placement in rest.items():
        alike = [p for i, p in rest.items() if depth[i] == depth[index]]
        covered = frozenset().union(*(p.uses for p in alike))
        if all(uses[name] <= covered for name in placement.parameters):
            chosen[index] = placement
    return {i: chosen[i].parameters if i in chosen else frozenset() for i in candidates}


def _hooks(facts: Facts, depth: Mapping[int, float]) -> dict[int, tuple[Hook, ...]]:
    """For each branch the outputs of modules to multiply.

    A module that runs several times can carry a multiplier if it is the same each time.
    """
    explicit = {i: carriers.modules for i, carriers in enumerate(facts.carriers)}
    hooked: dict[tuple[str, float], set[int]] = {}
    for index, placement in explicit.items():
        for call, _ in placement.calls if placement is not None else ():
            hooked.setdefault((call.name, depth[index]), set()).add(call.first)
    return {
        index: placement.hooks
        if placement is not None
        and all(
            len(hooked[call.name, depth[index]]) == facts.runs[call.name]
            for call, _ in placement.calls
        )
        else ()
        for index, placement in explicit.items()
    }


def scale_site(
    where: Where, name: str, ratios: Ratios, uses: Iterable[Use], use: Use, base: Use | None
) -> Site:
    """Where a readout's or an embedding's factor goes, and the model's own constants there."""
    return Site(
        where=where,
        label=name,
        ratios=ratios,
        own=use.scale / (base.scale if base is not None else 1.0),
        folds=(name,) if len(tuple(uses)) == 1 else (),
        hooks=use.hooks,
        parameter=name,
    )


def logit_sites(facts: Facts, base: Facts, match: Match) -> Iterator[Site]:
    """Attention whose head size grows."""
    in_base: dict[str, list[Attention]] = {}
    for attention in base.attentions:
        in_base.setdefault(attention.module, []).append(attention)
    count: dict[str, int] = {}
    for attention in facts.attentions:
        nth = count[attention.module] = count.get(attention.module, -1) + 1
        counterparts = in_base.get(match.modules.get(attention.module, ""), [])
        if nth >= len(counterparts):
            continue
        counterpart = counterparts[nth]
        ratio = attention.head / counterpart.head
        if ratio == 1:
            continue
        carriers = attention.carriers
        folds = next(
            (p for p in carriers.parameters if all(len(facts.uses[n]) == 1 for n in p.parameters)),
            Placement(),
        )
        yield Site(
            where=Where.LOGITS,
            label=attention.module,
            ratios=Ratios(fan_in=ratio),
            # The law is relative to the usual 1/sqrt(head size).
            own=attention.scale / counterpart.scale * math.sqrt(ratio),
            folds=tuple(sorted(folds.parameters)),
            hooks=carriers.modules.hooks if carriers.modules is not None else (),
        )


def unread_logits(facts: Facts, base: Facts, match: Match) -> Iterator[str]:
    """A note on attention whose head size grows and whose logits take no factor."""
    in_base = dict(base.unread_logits)
    growing = {}
    for module, head in facts.unread_logits:
        base_head = in_base.get(match.modules.get(module, ""), head)
        if base_head != head:
            growing[module] = head / base_head
    if growing:
        module, ratio = next(iter(growing.items()))
        yield (
            f"The size of heads grows {ratio:g}-fold at {pattern_of(module)}, but the attention "
            "logits take no factor: what stands between their product and the softmax is not only "
            "constants, masks, shifts and limits. Unless it undoes that growth itself, divide the "
            "product by the head size instead of its root, use scaled_dot_product_attention, or "
            "grow the number of heads."
        )


# Former names of what ``tracing.read`` gives as values.
Traced = Facts


def attentions(facts: Facts) -> tuple[Attention, ...]:
    return facts.attentions


def hooks_of(placement: Placement) -> tuple[Hook, ...]:
    return placement.hooks
