"""Attention: every softmax over products of queries and keys, and the constants on the way."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from depthmup.tracing.branches import Residuals
from depthmup.tracing.carriers import (
    Carriers,
    carriers_of,
    own_constant,
)
from depthmup.tracing.constants import own_factor
from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.operations import CONVOLUTIONS, MATRIX_PRODUCTS, NORMALIZING, TRANSPARENT
from depthmup.tracing.parameter_uses import Usage

# Masks, biases, soft caps, limits and shifts: their slope is one where logits are small.
_AROUND_LOGITS = frozenset(
    {"add", "sub", "where", "masked_fill", "slice", "tanh", "clamp", "clamp_min", "clamp_max"}
)
_SOFTMAX = ("_softmax", "_safe_softmax")
_FUSED = "_scaled_dot_product"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """One attention: the module it runs in, its head size, its operands and who reads them.

    ``scale`` is the product of the model's own constants in the logits, those on queries and keys
    included. ``carriers`` say where a multiplier of the queries can go.
    """

    module: str
    head: int
    scale: float
    query: int
    key: int
    reader: int
    after: int
    carriers: Carriers = field(repr=False)


def find_attentions(graph: Graph, usage: Usage, residuals: Residuals) -> Iterator[Attention]:
    """Every softmax over products of queries and keys."""
    inside = {n: b.origin for b in residuals.branches for n in b.path}
    for node in graph.nodes:
        if node.op.startswith(_FUSED):
            query, key = node.args[0].node, node.args[1].node
            given = node.kwargs.get("scale")
            head = graph.nodes[query].shape[-1]
            constant = float(given) if given is not None else head**-0.5
            reader = node.index
        elif node.op in _SOFTMAX:
            product = _product_before(graph, usage, node)
            if product is None:
                continue
            reader, constant = product
            query, key = (ref.node for ref in graph.nodes[reader].inputs[-2:])
        else:
            continue
        after = inside.get(reader, -1)
        yield Attention(
            module=node.module,
            head=graph.nodes[query].shape[-1],
            scale=constant
            * math.prod(
                own_constant(graph, usage, operand, reader, after=after) for operand in (query, key)
            ),
            query=query,
            key=key,
            reader=reader,
            after=after,
            carriers=carriers_of(graph, usage, query, reader, after=after),
        )


def _product_before(graph: Graph, usage: Usage, softmax: Node) -> tuple[int, float] | None:
    """The product of two activations that a softmax normalizes, and the constants between."""
    ignored = usage.constant | usage.derived.keys()
    scale, node = 1.0, softmax.args[0].node
    while True:
        this = graph.nodes[node]
        if this.op in ("bmm", "baddbmm"):
            factors: list[Any] = list(this.args[-2:] if this.op == "bmm" else this.args[1:3])
            return (node, scale) if not any(f.node in ignored for f in factors) else None
        factor = own_factor(graph, this)
        if factor is not None:
            scale *= factor
        elif this.op not in TRANSPARENT | _AROUND_LOGITS:
            return None
        before = [
            r.node
            for r in this.inputs
            if r.node not in ignored and graph.nodes[r.node].shape == this.shape
        ] or [r.node for r in this.inputs[:1]]
        if not before:
            return None
        node = before[0]


def find_unread_logits(graph: Graph, usage: Usage) -> Iterator[tuple[str, int]]:
    """Softmaxes behind products of activations whose way there is not understood.

    Gives the module and the size that the product sums over.
    """
    ignored = usage.constant | usage.derived.keys()
    ends = MATRIX_PRODUCTS.keys() | CONVOLUTIONS | NORMALIZING | {"embedding", *_SOFTMAX}
    for softmax in graph.nodes:
        if softmax.op not in _SOFTMAX or _product_before(graph, usage, softmax) is not None:
            continue
        todo, visited = [softmax.args[0].node], set(ignored)
        while todo:
            node = graph.nodes[todo.pop()]
            if node.index in visited:
                continue
            visited.add(node.index)
            factors = [ref.node for ref in node.inputs[-2:]]
            if node.op in ("bmm", "baddbmm") and not ignored.intersection(factors):
                yield softmax.module, graph.nodes[factors[0]].shape[-1]
                break
            if node.op not in ends and not node.op.startswith(_FUSED):
                todo += [ref.node for ref in node.inputs]
