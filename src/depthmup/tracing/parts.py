"""Parts of a module's output: queries inside one matrix for queries, keys and values.

A tensor that was cut out of a module's output by views, slices and permutations alone is a set of
the output's coordinates. Running those operations on the numbers of the coordinates, in place of
their values, says exactly which.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from depthmup.tracing.graph import Graph, Hook, ModuleCall, Node, Ref
from depthmup.tracing.operations import CUTS, MATRIX_PRODUCTS, RESHAPES, SAME
from depthmup.tracing.parameter_uses import Usage, Use

_MOVES = (
    SAME
    | RESHAPES
    | CUTS
    | frozenset({"t", "transpose", "permute", "unsqueeze", "squeeze", "expand"})
)
# Larger example inputs are not worth the memory of their coordinates' numbers.
_LARGEST = 1 << 26


def part_hook(graph: Graph, usage: Usage, tensor: Ref, reader: int) -> tuple[Hook, ...]:
    """The part of a module's output, or of its weights, that is ``tensor`` for ``reader`` alone.

    Empty if there is none: something other than cuts, views and constants stands between, or
    another reader sees the same coordinates.
    """
    ref: Ref | None = tensor
    while ref is not None:
        for call, index in _calls_giving(graph, ref, reader):
            ranges = _ranges(graph, ref, tensor, reader)
            if ranges is not None:
                return (Hook(module=call.name, side="output", index=index, part=ranges),)
        nodes = _affine(graph, usage, ref)
        if nodes:
            return _parameters(graph, usage, nodes, tensor, reader)
        ref = _before(graph, usage, ref)
    return ()


def _affine(graph: Graph, usage: Usage, ref: Ref) -> list[int]:
    """The operations by which a tensor is W x + b: the addition of b, if there is one, and W x."""
    nodes = [ref.node]
    this = graph.nodes[ref.node]
    size = this.shapes[ref.output][-1:]
    if this.op == "add":
        activations = [r for r in this.inputs if r.node not in usage.derived]
        if len(activations) != 1 or len(this.inputs) != 2:
            return []
        ref = activations[0]
    while (this := graph.nodes[ref.node]).op in SAME | RESHAPES and this.shape[-1:] == size:
        if ref.node != nodes[0] and len(graph.consumers[ref.node]) != 1:
            return []
        ref = this.inputs[0]
    if ref.node != nodes[0] and len(graph.consumers[ref.node]) != 1:
        return []
    return [*nodes, ref.node] if graph.nodes[ref.node].op in MATRIX_PRODUCTS else []


def summed_apart(graph: Graph, use: Use) -> bool:
    """Whether the matrices of a batch (one for each head) are summed over behind the product.

    The sum over all of them may stand in a line of its own: each is then a part of the fan-in.
    """
    shape = graph.nodes[use.node].shape
    if not use.batch or not shape or torch.Size(shape).numel() > _LARGEST:
        return False
    numbers = torch.arange(shape[0], dtype=torch.int32, device="cpu")
    ref, coordinates = Ref(use.node), numbers.view(-1, *[1] * (len(shape) - 1)).expand(shape)
    while len(readers := graph.consumers[ref.node]) == 1:
        node = graph.nodes[readers[0]]
        if node.op == "sum" and len(node.args) > 1 and isinstance(node.args[1], list | tuple):
            dims = {dim % coordinates.ndim for dim in node.args[1]}
            kept = [0 if dim in dims else slice(None) for dim in range(coordinates.ndim)]
            alone = bool((coordinates[tuple(kept)] == 0).all())
            return alone and math.prod(coordinates.shape[d] for d in dims) == shape[0]
        moved = _moved(graph, node, ref, coordinates)
        if moved is None or len(moved) != 1:
            return False
        ref, coordinates = Ref(node.index), moved[0]
    return False


def _parameters(
    graph: Graph, usage: Usage, nodes: list[int], tensor: Ref, reader: int
) -> tuple[Hook, ...]:
    """The rows of a weight, and of its bias, that make ``tensor``, where no module gives it."""
    whole, hooks = Ref(nodes[0]), []
    size = graph.shape(whole)[-1]
    for name, uses in usage.uses.items():
        here = [use for use in uses if use.node in nodes]
        if not here:
            continue
        shape = graph.nodes[graph.parameters[name]].shape
        axes = here[0].fan_out
        if len(uses) != 1 or len(axes) != 1 or shape[axes[0]] != size or here[0].bent:
            return ()
        module, _, key = name.rpartition(".")
        hooks.append((module, key, axes[0]))
    ranges = _ranges(graph, whole, tensor, reader) if hooks else None
    if ranges is None:
        return ()
    return tuple(
        Hook(module=module, side="parameter", part=ranges, dim=dim, parameter=key)
        for module, key, dim in hooks
    )


def _calls_giving(graph: Graph, ref: Ref, reader: int) -> Iterator[tuple[ModuleCall, int]]:
    for call, index in graph.returned.get(ref, ()):
        if call.name and not call.first <= reader < call.end:
            yield call, index


def _before(graph: Graph, usage: Usage, ref: Ref) -> Ref | None:
    node = graph.nodes[ref.node]
    moves = node.op in _MOVES or node.index in graph.factors
    if not moves or ref.node in usage.derived:
        return None
    return next((r for r in node.inputs if r.node not in usage.constant), None)


def _ranges(
    graph: Graph, whole: Ref, tensor: Ref, reader: int
) -> tuple[tuple[int, int], ...] | None:
    """Which coordinates of the last dimension of ``whole`` are ``tensor``, and nothing else."""
    shape = graph.shape(whole)
    if not shape or torch.Size(shape).numel() > _LARGEST:
        return None
    numbers = torch.arange(shape[-1], dtype=torch.int32, device="cpu").expand(shape)
    chosen, others = torch.zeros(2, shape[-1], dtype=torch.bool, device="cpu")
    todo: list[tuple[Ref, Tensor]] = [(whole, numbers)]
    while todo:
        ref, coordinates = todo.pop()
        for index in graph.consumers[ref.node]:
            node = graph.nodes[index]
            if ref not in node.inputs:
                continue
            if index == reader and ref == tensor:
                if node.inputs.count(ref) != 1:
                    return None
                _mark(chosen, coordinates)
                continue
            moved = _moved(graph, node, ref, coordinates)
            if moved is None:
                _mark(others, coordinates)
            else:
                todo += [(Ref(index, i), part) for i, part in enumerate(moved)]
    if not chosen.any() or (chosen & others).any():
        return None
    return _runs(chosen)


def _mark(marks: Tensor, coordinates: Tensor) -> None:
    for axis, stride in enumerate(coordinates.stride()):  # of an axis that repeats them, one does
        if stride == 0:
            coordinates = coordinates.narrow(axis, 0, 1)
    marks.index_fill_(0, coordinates.reshape(-1).long(), True)


def _moved(graph: Graph, node: Node, ref: Ref, coordinates: Tensor) -> list[Tensor] | None:
    """What an operation makes of the coordinates; None if it does more than move them."""
    if node.index in graph.factors:
        return [coordinates]
    if node.op not in _MOVES or len(node.inputs) != 1:
        return None
    if node.op in SAME:
        return [coordinates]
    if node.op in RESHAPES:
        return [coordinates.reshape(node.shape)]
    args = [coordinates if arg == ref else arg for arg in node.args]
    result = getattr(torch.ops.aten, node.op)(*args, **node.kwargs)
    return [result] if isinstance(result, Tensor) else list(result)


def _runs(marks: Tensor) -> tuple[tuple[int, int], ...]:
    """Consecutive marks as (start, stop)."""
    edges = torch.nn.functional.pad(marks.char(), (1, 1)).diff().nonzero().reshape(-1).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))
