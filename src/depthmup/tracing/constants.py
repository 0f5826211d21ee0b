"""A model's own constants: the numbers by which its forward pass multiplies around a parameter."""

from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.operations import TRANSPARENT
from depthmup.tracing.parameter_uses import Use


def own_factor(graph: Graph, node: Node) -> float | None:
    """The number by which an operation multiplies its one other operand, if it does just that."""
    if node.op not in ("mul", "div"):
        return None
    numbers = [graph.number(argument) for argument in node.args[:2]]
    known = [number for number in numbers if number is not None]
    if len(known) != 1 or not known[0] or (node.op == "div" and numbers[1] is None):
        return None
    return known[0] if node.op == "mul" else 1 / known[0]


def scaled_behind(graph: Graph, node: int) -> list[int]:
    """The node, and those behind it as far as constants and shapes alone change."""
    chain = [node]
    while len(graph.consumers[node]) == 1:
        node = graph.consumers[node][0]
        this = graph.nodes[node]
        if own_factor(graph, this) is None and this.op not in TRANSPARENT:
            break
        chain.append(node)
    return chain


def scale_around(graph: Graph, use: Use) -> float:
    """The product of the constants by which the model multiplies around a use.

    Behind a lookup or a matrix and before a matrix, as far as nothing but shapes changes and
    nothing else reads the tensor: ``embed(x) * sqrt(width)``, ``head(x / width)``.
    """
    scale = 1.0
    for node in scaled_behind(graph, use.node)[1:]:
        scale *= own_factor(graph, graph.nodes[node]) or 1.0
    if use.activation is not None:
        node = use.activation
        while True:
            factor = own_factor(graph, graph.nodes[node])
            if factor is None and graph.nodes[node].op not in TRANSPARENT:
                break
            scale *= factor or 1.0
            node = _operand(graph, graph.nodes[node])
    return scale


def _operand(graph: Graph, node: Node) -> int:
    """The operand that is not a number."""
    return next((ref for ref in node.inputs if graph.number(ref) is None), node.inputs[0]).node
