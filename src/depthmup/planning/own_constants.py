"""Own constants: which number of a model's forward pass belongs to which multiplier or weight.

A number that is the same in the base needs nothing. One that follows size is part of a
parametrization that the model brings along, and is divided out, so that a scheme's own factor
counts once. Each number belongs to one place: the logits of a growing attention come first, then
the end of a branch, then the matrix or table before it, then the matrix behind it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from depthmup.planning.matching import Match
from depthmup.tracing import Facts, Product, Use, pattern_of

# Constants that models compute in double precision agree to 1e-15; different ones differ by more.
_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True)
class OwnConstants:
    """The product of the numbers of each branch, of each use (by parameter and node), and the
    numbers that belong to neither, each with its module; ``experts`` those on sums over experts,
    by their router."""

    branches: tuple[float, ...]
    uses: Mapping[tuple[str, int], float]
    others: tuple[tuple[str, float], ...]
    experts: Mapping[str, float] = field(default_factory=dict)

    def of(self, use: Use) -> float:
        return self.uses.get((use.parameter, use.node), 1.0) * use.scale


def attributed(facts: Facts, owned: frozenset[int]) -> OwnConstants:
    """Give every number to one place; those of ``owned`` nodes are the logits'.

    What is added to logits is multiplied by their numbers as well, which are then also its own.
    """
    constants = facts.constants
    factors, taken = constants.factors, set(owned | constants.stream)

    def product(nodes: tuple[int, ...]) -> float:
        return math.prod(factors[n] for n in nodes if n not in taken)

    branches = []
    for alpha, nodes in zip(constants.alphas, constants.branches, strict=True):
        branches.append(alpha * product(nodes))
        taken.update(nodes)
    logits = {
        key: math.prod(factors[n] for n in nodes & owned if n in factors)
        for key, nodes in constants.terms.items()
    }
    uses = {key: product(nodes) * logits.get(key, 1.0) for key, nodes in constants.behind.items()}
    taken.update(*constants.behind.values())
    # Several matrices may read one scaled tensor (queries, keys and values): it scales them all.
    uses = {key: scale * product(constants.before[key]) for key, scale in uses.items()}
    taken.update(*constants.before.values())
    # A vector of length one that no matrix reads is compared by its direction, or is an output.
    # Numbers behind it make a norm of it: they and the size of its entries are one number.
    free = constants.lengths - taken
    taken |= constants.lengths
    experts = {}
    for mixture in facts.mixtures:
        numbers = [facts.graph.factors[n] for n in mixture.scaling if n not in taken]
        experts[mixture.router] = math.prod(numbers)
    taken.update(*(mixture.scaling for mixture in facts.mixtures))
    others: dict[int, float] = {}
    for node in (n for n in factors if n not in taken):
        length = constants.normed.get(node)
        if length not in free:
            others[node] = factors[node]
        else:
            others[length] = others.get(length, factors[length]) * factors[node]
    return OwnConstants(
        branches=tuple(branches),
        uses=uses,
        others=tuple((facts.graph.nodes[n].module, f) for n, f in others.items()),
        experts=experts,
    )


def paired_products(facts: Facts, base: Facts, match: Match) -> Iterator[tuple[Product, Product]]:
    """Products of activations in the model, each with that of the base in the same place."""
    in_base: dict[str, list[Product]] = {}
    for product in base.products:
        in_base.setdefault(product.module, []).append(product)
    count: dict[str, int] = {}
    for product in facts.products:
        nth = count[product.module] = count.get(product.module, -1) + 1
        candidates = in_base.get(match.modules.get(product.module, ""), [])
        if candidates:  # more often here: a loop over layers in one module
            yield product, candidates[min(nth, len(candidates) - 1)]


def in_logits(pairs: Iterable[tuple[Product, Product]]) -> tuple[frozenset[int], frozenset[int]]:
    """The nodes whose numbers are those of products, in the model and in the base.

    Numbers on the operands are their weights' own unless the product sums over a growing dimension.
    """
    nodes: tuple[set[int], set[int]] = set(), set()
    for pair in pairs:
        grows = pair[0].size != pair[1].size
        for side, product in zip(nodes, pair, strict=True):
            side.update(product.scaling if grows else product.between)
    return frozenset(nodes[0]), frozenset(nodes[1])


def equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_TOLERANCE)


def unattributed(own: OwnConstants, base: OwnConstants, match: Match) -> Iterator[str]:
    """A note on numbers that follow size and belong to nothing that a rule covers."""
    in_base: dict[str, list[float]] = {}
    for module, number in base.others:
        in_base.setdefault(module, []).append(number)
    count: dict[str, int] = {}
    numbers = []  # (module, in the model, in the base)
    for module, number in own.others:
        nth = count[module] = count.get(module, -1) + 1
        others = in_base.get(match.modules.get(module, ""), [])
        if nth < len(others) and not equal(number, others[nth]):
            numbers.append((module, number, others[nth]))
    if numbers:
        module, number, base_number = numbers[0]
        more = f", and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        yield (
            f"The model multiplies by a number that follows its size at {pattern_of(module)} "
            f"({number:.6g} against {base_number:.6g} in the base{more}), where no rule says "
            "what to make of it. The plan leaves it as it is: use the same number in both, or put "
            "it beside a weight or at the end of a branch, where the plan takes it into account."
        )
