"""One table or matrix for all layers, of whose output each layer reads a part of its own."""

import math

from depthmup.tracing.branches import Residuals
from depthmup.tracing.graph import Graph
from depthmup.tracing.operations import ELEMENTWISE, LENGTHS, MAPS, RESHAPES, SAME, TRANSPARENT
from depthmup.tracing.parameter_uses import Use

# Cuts, and where among their arguments the dimension stands that they cut.
_CUTS = {"select": 1, "slice": 1}
_CUTS_APART = {"unbind": 1, "split": 2, "split_with_sizes": 2}
_PASSES = TRANSPARENT | ELEMENTWISE | LENGTHS | MAPS | SAME | RESHAPES


def is_divided(graph: Graph, residuals: Residuals, use: Use) -> bool:
    """Whether branches each read another part of what an operation gives.

    Embeddings of each layer in one table of [vocabulary, layers * size] are as many tables; a
    condition that all layers read is one, even where it is cut into shift, gain and gate.
    """
    readers = []
    for part in _parts(graph, use):
        indices = {b.index for b in residuals.branches if part & b.path or part & b.feeders}
        readers += [indices] if indices else []
    return len(readers) > 1 and sum(map(len, readers)) == len(set().union(*readers))


def _parts(graph: Graph, use: Use) -> list[set[int]]:
    """The nodes that read each part into which the parameter's own axes are cut behind a use."""
    parts: list[set[int]] = []
    shape = graph.nodes[graph.parameters[use.parameter]].shape
    size = math.prod(shape[axis] for axis in use.fan_out)
    reached, todo = {use.node}, [use.node]
    while todo:
        source = todo.pop()
        for index in graph.consumers[source]:
            this, before = graph.nodes[index], graph.nodes[source].shape
            if this.op in _CUTS.keys() | _CUTS_APART.keys():
                at = (_CUTS | _CUTS_APART)[this.op]
                dim = (this.args[at] if len(this.args) > at else 0) % len(before)
                # What stands before the cut is a batch: a gain of [size] there is not cut.
                if math.prod(before[dim:]) != size:
                    continue
            if this.op in _CUTS:
                parts.append({index})
            elif this.op in _CUTS_APART:
                of_output: dict[int, set[int]] = {}
                for reader in graph.consumers[index]:
                    for ref in graph.nodes[reader].inputs:
                        if ref.node == index:
                            of_output.setdefault(ref.output, set()).add(reader)
                parts += of_output.values()
            elif this.op in _PASSES and index not in reached:
                reached.add(index)
                todo.append(index)
    return parts
