"""Normalization to length one: the entries of such a vector shrink as its size grows.

A vector of n coordinates that is divided by its p-norm has entries of size n^(-1/p), as if the
model multiplied a vector of entries of order one by that number. A norm that divides by the root of
the mean square (RMSNorm, LayerNorm) is no such thing. n shares of one,
as a softmax gives them or a division by their sum, are of size 1/n as well, where they multiply n
others one by one or a matrix reads them.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import (
    MAPS,
    POSITIVE,
    REDUCTIONS,
    RESHAPES,
    SAME,
    SOFTMAX,
    TRANSPARENT,
)

# From a length to what it divides: shapes, limits, an epsilon and a root.
_STEPS = 10
_PASSES = SAME | RESHAPES | {"expand", "unsqueeze", "clamp", "clamp_min", "maximum", "add"}
_NORMS = frozenset({"linalg_vector_norm", "norm"})


@dataclass(frozen=True, kw_only=True, slots=True)
class UnitLength:
    """What was normalized to length one, and the size of an entry: (coordinates)^(-1/p).

    ``dims`` are the dimensions that it was taken over. ``shares``: it was divided by the
    sum of its entries' sizes.
    """

    of: Ref
    factor: float
    dims: tuple[int, ...] = ()
    shares: bool = False


def unit_length(graph: Graph, node: Node) -> UnitLength | None:
    """Whether an operation divides a tensor by its own length; None if it does not."""
    if node.op not in ("mul", "div") or len(node.args) < 2:
        return None
    left, right = node.args[0], node.args[1]
    if not (isinstance(left, Ref) and isinstance(right, Ref)):
        return None
    for whole, length in ((left, right), (right, left))[: 2 if node.op == "mul" else 1]:
        norm = _norm(graph, length, inverse=node.op == "mul")
        if norm is not None and any(_same(graph, of, whole) for of in _summed(graph, norm)):
            return replace(norm, of=whole)
    return None


def _summed(graph: Graph, norm: UnitLength) -> tuple[Ref, ...]:
    """What may be divided by a length: shares that were summed, or signed ones without their sizes.

    The sum of absolute values is the 1-norm of what has these values.
    """
    made = graph.nodes[source_of(graph, norm.of).node]
    return (norm.of, made.inputs[0]) if norm.shares and made.op == "abs" else (norm.of,)


def _same(graph: Graph, one: Ref, other: Ref) -> bool:
    """Whether two tensors are one, or were computed alike: exp(z) / exp(z).sum()."""
    left, right = source_of(graph, one), source_of(graph, other)
    if left == right:
        return True
    nodes = graph.nodes[left.node], graph.nodes[right.node]
    return nodes[0].op in MAPS and nodes[0].op == nodes[1].op and nodes[0].args == nodes[1].args


def share(graph: Graph, node: Node) -> float | None:
    """The size of an entry, 1/n, if an operation gives n shares of one; None if it does not."""
    if node.op in SOFTMAX:
        return 1 / size_along(graph, node.inputs[0], node.args[1])
    unit = unit_length(graph, node)
    return unit.factor if unit is not None and unit.shares else None


def softmax_gate(graph: Graph, node: Node) -> UnitLength | None:
    """Whether shares of one multiply as many entries one by one, and nothing sums them up again."""
    if node.op != "mul" or not all(isinstance(arg, Ref) for arg in node.args[:2]):
        return None
    left, right = node.inputs
    for gate, of in ((left, right), (right, left)):
        *_, source = graph.back(gate.node, TRANSPARENT)
        size = math.prod(node.shape)
        alike = all(math.prod(shape) == size for shape in (source.shape, graph.shape(of)))
        size_of_one = share(graph, source)
        if size_of_one is None or not alike or of.node == gate.node:
            continue
        moved = graph.forward(node.index, lambda this, _: this.op in TRANSPARENT)
        behind = [node.index, *(this.index for this in moved)]
        if any(graph.nodes[n].op in REDUCTIONS for b in behind for n in graph.consumers[b]):
            return None  # a weighted mean
        return UnitLength(of=of, factor=size_of_one)
    return None


def _norm(graph: Graph, ref: Ref, *, inverse: bool) -> UnitLength | None:
    """The tensor of which another is the length (or, ``inverse``, one over the length)."""
    root = False
    for _ in range(_STEPS):
        node = graph.nodes[ref.node]
        if node.op in _NORMS and not inverse:
            return _of_norm(graph, node)
        if node.op == "sum" and not inverse:
            return _of_sum(graph, node) if root else _of_shares(graph, node)
        exponent = graph.number(node.args[1]) if node.op == "pow" else None
        if node.op == "sqrt" or exponent == 0.5:
            root = True
        elif node.op == "rsqrt" or exponent == -0.5:
            root, inverse = True, not inverse
        elif node.op == "reciprocal":
            inverse = not inverse
        elif node.op not in _PASSES:
            return None
        operands = [r for r in node.inputs if graph.number(r) is None]
        if len(operands) != 1:
            return None
        ref = operands[0]
    return None


def _of_norm(graph: Graph, node: Node) -> UnitLength | None:
    order = node.args[1] if len(node.args) > 1 and node.args[1] is not None else 2
    order = graph.number(order)
    dims = node.args[2] if len(node.args) > 2 else None
    if order is None or order <= 0:
        return None
    size = size_along(graph, node.inputs[0], dims)
    return UnitLength(
        of=node.inputs[0],
        factor=size ** (-1 / order) if order < math.inf else 1.0,
        shares=order == 1,
        dims=dimensions(graph, node.inputs[0], dims),
    )


def _of_sum(graph: Graph, node: Node) -> UnitLength | None:
    of = squared(graph, graph.nodes[node.inputs[0].node])
    if of is None:
        return None
    dims = node.args[1] if len(node.args) > 1 else None
    return UnitLength(
        of=of,
        factor=size_along(graph, node.inputs[0], dims) ** -0.5,
        dims=dimensions(graph, node.inputs[0], dims),
    )


def _of_shares(graph: Graph, node: Node) -> UnitLength | None:
    """The tensor that an operation sums, if no entry of it is negative."""
    of = node.inputs[0]
    made = graph.nodes[source_of(graph, of).node]
    if made.op not in POSITIVE and squared(graph, made) is None:
        return None
    dims = node.args[1] if len(node.args) > 1 else None
    return UnitLength(
        of=of,
        factor=1 / size_along(graph, of, dims),
        dims=dimensions(graph, of, dims),
        shares=True,
    )


def squared(graph: Graph, node: Node) -> Ref | None:
    """The tensor that an operation squares, entry by entry, if it does."""
    power = node.op == "pow" and len(node.args) > 1 and graph.number(node.args[1]) == 2
    product = node.op == "mul" and node.args[0] == node.args[1]
    return node.inputs[0] if node.op == "square" or power or product else None


def size_along(graph: Graph, ref: Ref, dims: Any) -> int:
    """How many entries a tensor has along dimensions; along all of them where none is named."""
    shape = graph.shape(ref)
    return math.prod(shape[d] for d in dimensions(graph, ref, dims))


def dimensions(graph: Graph, ref: Ref, dims: Any) -> tuple[int, ...]:
    """The dimensions of a tensor that are named, from 0 on; all of them where none is."""
    rank = len(graph.shape(ref))
    chosen = range(rank) if dims in (None, [], ()) else dims
    return tuple(d % rank for d in ([chosen] if isinstance(chosen, int) else chosen))


def source_of(graph: Graph, ref: Ref) -> Ref:
    """The tensor before copies and changes of type."""
    while graph.nodes[ref.node].op in SAME | RESHAPES and graph.nodes[ref.node].inputs:
        ref = graph.nodes[ref.node].inputs[0]
    return ref
