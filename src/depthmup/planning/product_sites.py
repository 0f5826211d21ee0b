"""Products of activations over a dimension that grows: what carries their multiplier."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from depthmup.planning.comparison import Comparison
from depthmup.planning.own_constants import equal
from depthmup.planning.parameters import ParameterPlace
from depthmup.planning.roles import NotUnderstood
from depthmup.planning.sites import Multiplier, Where
from depthmup.rules import Kind, Ratios
from depthmup.tracing import Facts, Hook, Product, pattern_of


def product_sites(comparison: Comparison, places: Sequence[ParameterPlace]) -> Iterator[Multiplier]:
    """Products of activations over a growing dimension, attention logits first of all.

    Their sum must not grow: the product's constants together follow 1 / size. What matrices alone
    make, multiplied with each other, is a matrix as well, and no activation.
    """
    matrices = {p.name for p in places if p.role.kind in (Kind.HIDDEN, Kind.READOUT)}
    wanted: list[_Wanted] = []
    for product, counterpart in comparison.products:
        ratio = product.size / counterpart.size
        evened = equal(product.scale * product.size, counterpart.scale * counterpart.size)
        if product.distance and ratio != 1 and not (product.total and evened):
            raise NotUnderstood(
                f"A distance between activations at {pattern_of(product.module)} sums over a "
                f"dimension that grows {ratio:g}-fold, and no rule says by what. Normalize the "
                "vectors to length one first, or compute distances in a dimension that is the same "
                "in the base."
            )
        own = (
            product.scale / counterpart.scale
            if ratio != 1
            else product.constant / counterpart.constant
        )
        skipped = product.weighted or product.distance or product.total or product.projection
        skipped |= bool(product.learned) and product.learned <= matrices
        if not skipped and not (ratio == 1 and equal(own, 1)):
            # The law is relative to the usual 1/sqrt(head size).
            wanted.append(_Wanted(product=product, ratio=ratio, own=own * math.sqrt(ratio)))
    yield from _carried(comparison.facts, wanted)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """A product that takes a multiplier: how its dimension grew, and its own constant."""

    product: Product
    ratio: float
    own: float


_Carrier: TypeAlias = frozenset[str] | tuple[Hook, ...]
"""Parameters, or outputs of modules (or parts of them)."""


def _carried(facts: Facts, wanted: Sequence[_Wanted]) -> Iterator[Multiplier]:
    """A site for every product, or one for all products that the same parameters feed.

    What carries a multiplier may feed several products, and both operands of one: two sentences
    that one encoder reads, the scores of several candidates. It can if it feeds nothing else, and
    if all of them are multiplied alike and equally often.
    """
    nodes = {one.product.node for one in wanted}
    offers = [_offered(one.product, nodes) for one in wanted]
    covered: dict[_Carrier, set[object]] = {}
    fed: dict[_Carrier, Counter[int]] = {}
    for index, of in enumerate(offers):
        for carrier, what in of:
            covered.setdefault(carrier, set()).update(what)
            fed.setdefault(carrier, Counter())[index] += 1

    def times(carrier: _Carrier) -> int:
        """How often it multiplies each product that it feeds; 0 if it cannot."""
        those = {(n, wanted[i].ratio, wanted[i].own) for i, n in fed[carrier].items()}
        beside = {n for i in fed[carrier] for side in wanted[i].product.beside for n in side}
        within = {wanted[i].product.node for i in fed[carrier]}
        alone = _feeds_nothing_else(facts, carrier, covered[carrier])
        return next(iter(those))[0] if alone and len(those) == 1 and beside <= within else 0

    done: set[int] = set()
    for index, one in enumerate(wanted):
        if index in done:
            continue
        able = {carrier: n for carrier, _ in offers[index] if (n := times(carrier))}
        names = next((c for c in able if isinstance(c, frozenset)), frozenset[str]())
        hooks = next((c for c in able if isinstance(c, tuple)), ())
        folds = tuple(sorted(names))
        if names:
            done |= {*fed[names]}
            if not hooks or able[hooks] != able[names] or fed[hooks] != fed[names]:
                hooks = facts.on_parameters(folds)
        yield Multiplier(
            where=Where.LOGITS,
            label=one.product.module,
            ratios=Ratios(fan_in=one.ratio),
            own=one.own,
            folds=folds,
            hooks=hooks,
            times=able[names] if names else able.get(hooks, 1),
        )


def _offered(product: Product, wanted: set[int]) -> list[tuple[_Carrier, frozenset[object]]]:
    """What could carry a product's multiplier, parameters first, and what of it feeds the product.

    An operand that a product without a multiplier reads as well offers nothing.
    """
    sides = [i for i in (0, 1) if product.beside[i] <= wanted]
    found: list[tuple[_Carrier, frozenset[object]]] = []
    for i in sides:
        found += [(p.parameters, frozenset(p.uses)) for p in product.carriers[i].parameters]
    for i in sides:
        if (placement := product.carriers[i].modules) is not None:
            found.append((placement.hooks, frozenset(placement.calls)))
    found += [(product.parts[i], frozenset({(product.node, i)})) for i in sides if product.parts[i]]
    return found


def _feeds_nothing_else(facts: Facts, carrier: _Carrier, covered: set[object]) -> bool:
    """Whether all uses of parameters, or all calls of modules, are among those that feed products.

    A part of a module's output is of one call each time.
    """
    if isinstance(carrier, frozenset):
        uses = {(name, use.reader) for name in carrier for use in facts.uses[name]}
        return uses <= covered
    modules = {hook.module for hook in carrier}
    return sum(facts.runs[name] for name in modules) == len(covered)
