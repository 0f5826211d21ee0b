"""Terms of logits: tables of relative positions and biases that are added to a product.

What multiplies the sum behind them (1/sqrt(head size), mostly) is the product's, whose multiplier
is chosen with it in mind, and multiplies each of the other terms as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.operations import HOMOGENEOUS
from depthmup.tracing.parameter_uses import How, Usage
from depthmup.tracing.products import Product, scaling_before

# Rows of relative positions are shifted into place by padding and views.
_MOVES = HOMOGENEOUS | {"cat", "as_strided", "add", "sub"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """The nodes on which numbers stand that multiply a term of logits beside their product.

    ``behind`` the sum; ``before`` on the activation that a table is multiplied with (the queries).
    """

    behind: frozenset[int]
    before: frozenset[int] = frozenset()


def find_terms(
    graph: Graph, usage: Usage, products: Iterable[Product]
) -> Mapping[tuple[str, int], Term]:
    """Uses of parameters that are terms of a sum with a product, by parameter and node."""
    where: dict[int, tuple[Product, int]] = {}  # a node behind a product: which, and how far
    for product in products:
        for steps, node in enumerate(product.behind):
            if graph.nodes[node].op in ("add", "sub"):
                where.setdefault(node, (product, steps))
    terms = {}
    for name, uses in usage.uses.items():
        for use in uses:
            joint = _joint(graph, use.node, where)
            if joint is None:
                continue
            product, steps = where[joint]
            behind = frozenset(product.behind[steps + 1 :]) & product.between
            before = frozenset[int]()
            if use.how is How.MATRIX and use.activation is not None:
                reads = next(r for r in graph.nodes[use.node].inputs if r.node == use.activation)
                before = scaling_before(graph, usage, reads)
            terms[name, use.node] = Term(behind=behind, before=before)
    return terms


def _joint(graph: Graph, node: int, where: Mapping[int, object]) -> int | None:
    """The sum of logits that a tensor goes into unchanged but for its place, if there is one."""

    def passes(this: Node, _: object) -> bool:
        return this.op in _MOVES or this.index in graph.factors

    behind = (this.index for this in graph.forward(node, passes, alone=True))
    return next((n for n in (node, *behind) if n in where), None)
