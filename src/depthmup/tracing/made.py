"""Made: what operations make of one parameter, and which of its axes each dimension consists of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import (
    COMPLEX_PAIRS,
    FOURIER,
    KEEPS_AXES,
    MAPS,
    RESHAPES,
    SAME,
)

# For each dimension of a tensor made from one parameter: the parameter's axes it consists of.
Labels: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A tensor made from one parameter: by which axes it is labelled, and how it was made.

    ``picked``: its rows were looked up by an index. ``directed``: it was divided by the lengths of
    its rows, and multiplied by gains. ``transformed`` are the axes of its Fourier transforms.

    In a composed weight, ``reader`` is the node that first puts it beside other parameters,
    ``through`` are the axes that a product with another sums over, and ``gain`` says that it
    multiplies a matrix entry by entry.
    """

    parameter: str
    labels: Labels
    slices: tuple[tuple[int, int], ...] = ()
    bent: bool = False
    picked: bool = False
    directed: bool = False
    transformed: tuple[int, ...] = ()
    reader: int | None = None
    through: tuple[int, ...] = ()
    gain: bool = False


def made_from_one(
    graph: Graph, node: Node, sources: list[int], known: Mapping[int, Made]
) -> Made | None:
    """What an operation makes of one parameter alone, if it does."""
    tensors = [known.get(source) for source in sources]
    first = tensors[0]
    if first is None:
        return None
    lookup = _picked_labels(graph, node, sources[0], first)
    if lookup is not None:
        return replace(first, labels=lookup, picked=True)
    if any(t is None or t.parameter != first.parameter for t in tensors) or node.op == "index":
        return None
    old = graph.nodes[sources[0]].shape
    labels = carried_labels(graph, node, first.labels, old)
    if labels is None:
        return None
    slices = resolved(node, sources[0], first)
    if node.op in ("select", "unbind"):
        dim = (node.args[1] if len(node.args) > 1 else 0) % len(first.labels)
        index = node.args[2] % old[dim] if node.op == "select" else -1
        slices = (*slices, *((axis, index) for axis in first.labels[dim]))
    bent = first.bent or bends(node)
    transformed = first.transformed
    if node.op in FOURIER:
        transformed += axes_of(first.labels, [d % len(old) for d in node.args[1]])
    return replace(first, labels=labels, slices=slices, bent=bent, transformed=transformed)


def resolved(node: Node, source: int, tensor: Made) -> tuple[tuple[int, int], ...]:
    """The slices of which a node reads: which of ``unbind``'s outputs, only its reader says."""
    output = node.reads(source).output
    return tuple((axis, output if index < 0 else index) for axis, index in tensor.slices)


_STRAIGHT = frozenset({"neg", "clamp"})


def bends(node: Node) -> bool:
    """Whether an operation is a nonlinearity of each entry."""
    return node.op in MAPS - _STRAIGHT


LOOKUPS = frozenset({"embedding", "index_select", "index"})


def _picked_labels(graph: Graph, node: Node, source: int, tensor: Made) -> Labels | None:
    """The labels of rows that are looked up along the first dimension of a stack of matrices."""
    if node.op not in LOOKUPS or node_of(node.args[0]) != source or tensor.picked:
        return None
    if node.op == "index_select" and node.args[1] != 0:
        return None
    if node.op == "index" and any(index is not None for index in node.args[1][1:]):
        return None
    rest = tensor.labels[1:]
    return ((),) * (len(node.shape) - len(rest)) + rest


def _split_view(labels: Labels, old: Sequence[int], new: Sequence[int]) -> Labels | None:
    """Carry labels through a reshape, by matching runs of dimensions of equal product."""
    result: list[tuple[int, ...]] = []
    i = j = 0
    while j < len(new) or i < len(old):
        first_i, first_j = i, j
        size_old = old[i] if i < len(old) else 1
        size_new = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while size_old != size_new:
            if size_old < size_new and i < len(old):
                size_old, i = size_old * old[i], i + 1
            elif size_new < size_old and j < len(new):
                size_new, j = size_new * new[j], j + 1
            else:
                return None
        axes = tuple(a for dim in range(first_i, i) if old[dim] != 1 for a in labels[dim])
        result += [axes if new[dim] != 1 else () for dim in range(first_j, j)]
    return tuple(result)


# "zero" is a part of a bias that is set to zero.
_CUTS = frozenset(
    {
        "slice",
        "split",
        "split_with_sizes",
        "chunk",
        "narrow",
        "unsafe_split",
        "unsafe_chunk",
        "zero",
    }
)


def carried_labels(graph: Graph, node: Node, labels: Labels, old: tuple[int, ...]) -> Labels | None:
    """The labels of what ``node`` makes of a tensor with these labels; None if it is not a view."""
    rank, args = len(labels), node.args
    new = list(labels)
    if node.op in SAME | MAPS | KEEPS_AXES or graph.kept(node) is not None:
        return labels
    if node.op in COMPLEX_PAIRS:
        return labels[:-1] if node.op == "view_as_complex" else (*labels, ())
    if node.op == "t":
        return tuple(reversed(labels))
    if node.op == "transpose":
        a, b = args[1] % rank, args[2] % rank
        new[a], new[b] = new[b], new[a]
        return tuple(new)
    if node.op == "permute":
        return tuple(labels[d % rank] for d in args[1])
    if node.op in RESHAPES:
        return _split_view(labels, old, node.shape)
    if node.op in ("expand", "repeat"):
        return ((),) * (len(node.shape) - rank) + labels
    if node.op == "unsqueeze":
        new.insert(args[1] % (rank + 1), ())
        return tuple(new)
    if node.op == "squeeze":
        dims = args[1:] and args[1]
        where = [dims] if isinstance(dims, int) else list(dims or range(rank))
        gone = {d % rank for d in where if old[d % rank] == 1}
        return tuple(label for d, label in enumerate(labels) if d not in gone)
    if node.op in _CUTS or "upsample" in node.op:  # a table of positions, at another resolution
        return labels
    if node.op in ("select", "unbind"):
        dim = (args[1] if len(args) > 1 else 0) % rank
        return tuple(label for d, label in enumerate(labels) if d != dim)
    if node.op in ("mul", "add", "sub", "div", "rsub"):
        if len(node.shape) == rank:
            return labels
        return ((),) * (len(node.shape) - rank) + labels
    return None


def node_of(argument: Any) -> int | None:
    return argument.node if isinstance(argument, Ref) else None


def axes_of(labels: Labels, dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({axis for dim in dims for axis in labels[dim]}))
