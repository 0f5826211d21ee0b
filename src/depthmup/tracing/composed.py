"""Composed weights: matrices that a model makes of several parameters before it uses them.

x (W + c B A)^T is x W^T + c (x A^T) B^T: a sum of matrices acts as each of its terms, a product of
matrices as one after the other, and a gain of rows or columns as a gain of what goes in or comes
out. So each parameter is used by the matrix product at the end as if it stood there alone.
"""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.made import Labels, Made, bends, carried_labels, node_of
from depthmup.tracing.operations import CONVOLUTIONS, MATRIX_PRODUCTS

_SUMS = frozenset({"add", "sub", "cat", "stack", "complex"})
_PRODUCTS = frozenset({"mm", "bmm", "matmul"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A weight made from several parameters, for the operation at the node ``reader``.

    ``terms`` are the parameters with the axes that each dimension of the weight consists of.
    ``inside`` are the nodes that make it.
    """

    weight: int
    reader: int
    terms: tuple[Made, ...]
    inside: frozenset[int]


def find_composed(
    graph: Graph, tensors: Mapping[int, Made], computed: Container[int], constant: Container[int]
) -> Iterator[Composed]:
    """The composed weights by which activations are multiplied, and that nothing else reads.

    ``computed`` are the nodes made from several parameters alone, and ``tensors`` those made from
    one. A product of matrices counts as a weight only beside a matrix to which it is added: by
    itself it may as well be a learned input that was projected.
    """
    every = list(_weights(graph, tensors, computed, constant))
    outputs = {ref.node for ref in graph.outputs}
    inside = frozenset().union(*(weight.inside for weight in every)) - outputs
    products = {weight.reader for weight in every}
    unread = {n for n, readers in enumerate(graph.consumers) if not readers} - outputs
    for weight in every:
        readers = {n for index in weight.inside for n in graph.consumers[index]}
        if weight.inside <= inside and readers <= inside | products | unread:
            yield weight


def _weights(
    graph: Graph, tensors: Mapping[int, Made], computed: Container[int], constant: Container[int]
) -> Iterator[Composed]:
    composer = _Composer(graph, tensors, constant)
    for node in graph.nodes:
        if node.op in MATRIX_PRODUCTS:
            at = MATRIX_PRODUCTS[node.op]
            activation, weight = map(node_of, node.args[at : at + 2])
        elif node.op in CONVOLUTIONS:
            activation, weight = map(node_of, node.args[:2])
        else:
            continue
        if weight not in computed or weight is None or activation is None:
            continue
        made = tensors.get(activation)
        if activation in computed or (made is not None and not made.picked):
            continue
        composer.inside = set()
        terms = composer.terms(weight)
        if terms is not None:
            inside = frozenset(composer.inside)
            yield Composed(weight=weight, reader=node.index, terms=terms, inside=inside)


class _Composer:
    def __init__(self, graph: Graph, tensors: Mapping[int, Made], constant: Container[int]) -> None:
        self.graph, self.tensors, self.constant = graph, tensors, constant
        self.inside: set[int] = set()

    def terms(self, index: int, *, products: bool = False) -> tuple[Made, ...] | None:
        """The parameters that a tensor is made from, or None if not by these operations alone."""
        if index in self.tensors:
            made = self.tensors[index]
            return None if made.picked or made.directed else (made,)
        node = self.graph.nodes[index]
        made_of = (ref.node for ref in node.inputs if ref.node not in self.constant)
        operands = list(dict.fromkeys(made_of))
        found: tuple[Made, ...] | None
        if len(operands) == 1:
            found = self._moved(node, operands[0], products=products)
        elif node.op in _SUMS:
            found = self._sum(node, operands)
        elif node.op == "mul" and len(operands) == 2:
            found = self._gained(node, operands)
        elif node.op in _PRODUCTS and len(operands) == 2 and products:
            found = self._product(node)
        else:
            found = None
        if found is not None:
            self.inside.add(index)
        return found

    def _read(self, node: Node, operand: int, *, products: bool = False) -> list[Made] | None:
        """The terms of an operand, which this node reads first where it is made from one."""
        terms = self.terms(operand, products=products)
        if terms is None:
            return None
        rank, shape = len(node.shape), self.graph.nodes[operand].shape
        return [
            replace(
                term,
                labels=((),) * (rank - len(shape)) + term.labels,
                reader=node.index if operand in self.tensors else term.reader,
            )
            for term in terms
        ]

    def _moved(self, node: Node, operand: int, *, products: bool) -> tuple[Made, ...] | None:
        """The terms of a view, a multiple or a masked part of a composed tensor."""
        terms = self.terms(operand, products=products)
        if terms is None or operand in self.tensors:
            return None
        shape = self.graph.nodes[operand].shape
        moved = [carried_labels(self.graph, node, term.labels, shape) for term in terms]
        if node.op in ("select", "unbind") or any(labels is None for labels in moved):
            return None
        return tuple(
            replace(term, labels=labels, bent=term.bent or bends(node))
            for term, labels in zip(terms, moved, strict=True)
            if labels is not None
        )

    def _sum(self, node: Node, operands: list[int]) -> tuple[Made, ...] | None:
        alone = [self._read(node, operand) for operand in operands]
        beside = any(terms is not None and _is_matrix(terms) for terms in alone)
        every: list[Made] = []
        for operand, found in zip(operands, alone, strict=True):
            terms = found or (self._read(node, operand, products=True) if beside else None)
            if terms is None:
                return None
            every += terms
        if node.op == "stack":
            dim = node.args[1] if len(node.args) > 1 else 0
            every = [replace(t, labels=_with_one_more(t.labels, dim)) for t in every]
        return tuple(every)

    def _gained(self, node: Node, operands: list[int]) -> tuple[Made, ...] | None:
        """A matrix times a gain of its rows or columns, which alone is smaller than the product."""
        entries = math.prod(node.shape)
        smaller = [math.prod(self.graph.nodes[operand].shape) < entries for operand in operands]
        if sum(smaller) != 1:
            return None
        gain, matrix = operands if smaller[0] else reversed(operands)
        of_gain, of_matrix = self._read(node, gain), self._read(node, matrix, products=True)
        if of_gain is None or of_matrix is None or not _is_matrix(of_matrix):
            return None
        return (*of_matrix, *(replace(term, gain=True) for term in of_gain))

    def _product(self, node: Node) -> tuple[Made, ...] | None:
        left, right = (ref.node for ref in node.inputs[:2])
        terms = [self._read(node, operand, products=True) for operand in (left, right)]
        if terms[0] is None or terms[1] is None:
            return None
        if {t.parameter for t in terms[0]} & {t.parameter for t in terms[1]}:
            return None  # a square: its size is not that of the parameter
        # In x A B the axis that both share is what A gives and B reads: in the product it stands
        # for A where B's other axis is, and for B where A's is.
        return (
            *(replace(t, through=(*t.through, *t.labels[-1])) for t in terms[0]),
            *(replace(t, through=(*t.through, *t.labels[-2])) for t in terms[1]),
        )


def _is_matrix(terms: list[Made]) -> bool:
    """Whether one of the terms is a matrix by itself: every dimension consists of its axes."""
    return any(all(t.labels[-2:]) and len(t.labels) > 1 and not t.through for t in terms)


def _with_one_more(labels: Labels, dim: int) -> Labels:
    at = dim % (len(labels) + 1)
    return (*labels[:at], (), *labels[at:])
