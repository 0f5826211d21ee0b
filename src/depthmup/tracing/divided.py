"""One table or matrix for all layers, of whose output each layer reads a part of its own."""

import math
from collections.abc import Container, Sequence

from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.operations import ELEMENTWISE, LENGTHS, MAPS, RESHAPES, SAME, TRANSPARENT
from depthmup.tracing.parameter_uses import Use
from depthmup.tracing.residuals import Residuals

# Cuts, and where among their arguments the dimension stands that they cut.
_CUTS = {"select": 1, "slice": 1}
_CUTS_APART = {"unbind": 1, "split": 2, "split_with_sizes": 2}
_PASSES = TRANSPARENT | ELEMENTWISE | LENGTHS | MAPS | SAME | RESHAPES


def sizes_cut(graph: Graph) -> frozenset[int]:
    """How many numbers stand, in tensors that are cut somewhere, from the cut dimension on."""
    return frozenset(
        math.prod(before[_dimension(node, before) :])
        for node in graph.nodes
        if node.op in _CUTS or node.op in _CUTS_APART
        for before in [graph.nodes[ref.node].shape for ref in node.inputs]
        if before
    )


def _dimension(node: Node, before: Sequence[int]) -> int:
    """The dimension that an operation cuts, of a tensor of this shape."""
    at = (_CUTS | _CUTS_APART)[node.op]
    return int(node.args[at] if len(node.args) > at else 0) % len(before)


def is_divided(graph: Graph, residuals: Residuals, use: Use, sizes: Container[int]) -> bool:
    """Whether branches each read another part of what an operation gives.

    ``sizes`` are those of ``sizes_cut``: what is never cut need not be followed.

    Embeddings of each layer in one table of [vocabulary, layers * size] are as many tables; a
    condition that all layers read is one, even where it is cut into shift, gain and gate.
    """
    readers = []
    shape = use.shape(graph)
    size = math.prod(shape[axis] for axis in use.fan_out)
    for part in _parts(graph, use, size) if size in sizes else ():
        indices = {b.index for b in residuals.branches if part & b.path or part & b.feeders}
        readers += [indices] if indices else []
    return len(readers) > 1 and sum(map(len, readers)) == len(set().union(*readers))


def _parts(graph: Graph, use: Use, size: int) -> list[set[int]]:
    """The nodes that read each part into which the parameter's own axes are cut behind a use."""
    passed = graph.forward(use.node, lambda node, _: node.op in _PASSES)
    parts: list[set[int]] = []
    for source in (use.node, *(node.index for node in passed)):
        before = graph.nodes[source].shape
        for index in graph.consumers[source]:
            this = graph.nodes[index]
            cuts = this.op in _CUTS or this.op in _CUTS_APART
            # What stands before the cut is a batch: a gain of [size] there is not cut.
            if not cuts or math.prod(before[_dimension(this, before) :]) != size:
                continue
            if this.op in _CUTS:
                parts.append({index})
                continue
            of_output: dict[int, set[int]] = {}
            for reader in graph.consumers[index]:
                for ref in graph.nodes[reader].inputs:
                    if ref.node == index:
                        of_output.setdefault(ref.output, set()).add(reader)
            parts += of_output.values()
    return parts
