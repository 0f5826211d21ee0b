"""Weights that are rounded in units of their own size: q(w / s) s, with s = mean |w| or max |w|.

Whatever q is, twice the weight gives twice the result, as of the weight itself: it stands for it.
So the degree of each tensor that one parameter makes is followed: w^1, s^1, (w / s)^0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import RESHAPES, SAME

_LINEAR = SAME | RESHAPES | {"abs", "neg", "mean", "sum", "amax", "amin", "expand", "unsqueeze"}
_LINEAR |= {"squeeze", "max", "min", "clamp_min", "linalg_vector_norm", "norm"}
# Of degree 0 whatever bends stays of degree 0.
_BENDS = frozenset({"round", "floor", "ceil", "clamp", "tanh", "sign", "trunc", "where"})
# The most that is added to a divisor to keep it from zero, or that limits it.
_EPSILON = 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Rescaled:
    """Tensors that stand for a parameter, each with its node; ``inside``: nodes that make them."""

    parameters: Mapping[int, int]
    inside: frozenset[int]


def find_rescaled(graph: Graph) -> Rescaled:
    """Every weight that is rounded in units of its own size, and used only so."""
    found: dict[int, int] = {}
    inside: set[int] = set()
    for parameter in graph.parameters.values():
        degrees = _degrees(graph, parameter)
        for index, degree in degrees.items():
            node = graph.nodes[index]
            scaled = degree == 1 and node.op in ("mul", "div") and _of_size(graph, node, degrees)
            if not scaled or node.shape != graph.nodes[parameter].shape:
                continue
            made = graph.between(parameter, index) - {parameter, index}
            if all({*graph.consumers[n]} <= made | {index} for n in made):
                found[index] = parameter
                inside |= made
    return Rescaled(parameters=found, inside=frozenset(inside))


def _of_size(graph: Graph, node: Node, degrees: Mapping[int, int]) -> bool:
    """Whether a tensor of degree 0 is multiplied by a size, or divided by one over it."""
    read = [ref.node for ref in node.inputs if ref.node in degrees]
    whole = [n for n in read if degrees[n] == 0 and graph.nodes[n].shape == node.shape]
    return len(read) == 2 and len(whole) == 1


def _degrees(graph: Graph, parameter: int) -> dict[int, int]:
    """The degrees of what a parameter makes alone, as far as they are known."""
    degrees = {parameter: 1}

    def follows(node: Node, held: object) -> bool:
        degree = _degree(graph, node, degrees)
        if degree is not None:
            degrees[node.index] = degree
        return degree is not None

    for _ in graph.forward(parameter, follows):
        pass
    return degrees


def _degree(graph: Graph, node: Node, degrees: Mapping[int, int]) -> int | None:
    def of(argument: object) -> int | None:
        if isinstance(argument, Ref) and graph.number(argument) is None:
            return degrees.get(argument.node)
        return 0

    known = [degrees[ref.node] for ref in node.inputs if ref.node in degrees]
    if len(known) < len([ref for ref in node.inputs if graph.number(ref) is None]):
        return None
    if node.op == "reciprocal":
        return -known[0]
    if node.op in ("mul", "div"):
        left, right = of(node.args[0]), of(node.args[1])
        if left is None or right is None:
            return None
        return left + right if node.op == "mul" else left - right
    if node.op in ("add", "sub", "clamp_min") and len(known) == 1:
        number = next((n for a in node.args[1:2] if (n := graph.number(a)) is not None), None)
        small = number is not None and abs(number) <= _EPSILON
        return known[0] if small or known[0] == 0 else None
    if node.op in ("add", "sub"):
        return known[0] if len({*known}) == 1 else None
    if node.op in ("clamp",) and known[0] == 1:
        limits = [graph.number(a) for a in node.args[1:3] if a is not None]
        return 1 if all(n is not None and 0 <= n <= _EPSILON for n in limits) else None
    if node.op in _LINEAR:
        return known[0]
    return 0 if node.op in _BENDS and known[0] == 0 else None
