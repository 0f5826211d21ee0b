"""Work: how many multiplications a forward pass takes."""

import math

from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.operations import ATTENTION, CONVOLUTIONS, MATRIX_PRODUCTS


def multiplications(graph: Graph) -> int:
    """Those of matrix products, convolutions and fused attention."""
    return sum(_of(graph, node) for node in graph.nodes)


def _of(graph: Graph, node: Node) -> int:
    if node.op in MATRIX_PRODUCTS:
        left = graph.shape(node.args[MATRIX_PRODUCTS[node.op]])
        return math.prod(node.shape) * left[-1]
    if node.op in CONVOLUTIONS:
        places, kernel = (graph.shape(ref) for ref in node.args[:2])
        transposed = node.args[6]
        return math.prod(places if transposed else node.shape) * math.prod(kernel[1:])
    if node.op.startswith(ATTENTION):
        queries, keys = (graph.shape(ref) for ref in node.args[:2])
        return 2 * math.prod(queries) * keys[-2]
    return 0
