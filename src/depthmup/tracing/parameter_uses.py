"""How each parameter is used: which of its axes are summed over, which remain, which are looked up.

A parameter is followed through transpositions, views and slices to the operations that combine it
with activations; the axes of those operations are then read back as the parameter's own.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from depthmup.tracing.composed import Composed, find_composed
from depthmup.tracing.graph import Graph, Hook, Node
from depthmup.tracing.made import LOOKUPS, Labels, Made, axes_of, made_from_one, node_of, resolved
from depthmup.tracing.operations import (
    COMPARISONS,
    CONVOLUTIONS,
    ELEMENTWISE,
    MATRIX_PRODUCTS,
    REDUCTIONS,
    SHAPED,
    STANDARDIZING,
)
from depthmup.tracing.rescaled import find_rescaled


class How(StrEnum):
    """The three ways of using a parameter that scaling rules tell apart, and what is left."""

    MATRIX = "matrix"  # a sum over some of its axes: matrix product, convolution
    LOOKUP = "lookup"  # rows picked by an index: embedding
    ELEMENTWISE = "elementwise"  # gains, biases, added embeddings
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """One operation that combines a parameter with activations.

    ``fan_in`` are the parameter's axes that are summed over (or indexed), ``fan_out`` those that
    remain, ``batch`` those over which the operation is repeated (experts). ``slices`` are the axes
    of which it reads one entry, and which (a layer of a stack). ``activation`` is the operand the
    parameter acts on; ``scale`` what the operation itself multiplies by (a mean over n: 1/n).
    ``bent``: a nonlinearity stands between the parameter and the operation. ``picked``: it acts
    after rows of it were looked up (the matrices of some experts). ``joined`` is the operation that
    first puts it beside other parameters, where a weight is composed of several.

    The rest says where the operation stands, once the whole model is read: its name; whether it
    ``leads`` to a matrix and ``follows`` one (or a lookup); whether a norm takes its
    output alone (``normalized``); ``pieces``, the sizes of the tensors that were put together into
    what a matrix reads; whether it is ``grouped``: repeated over groups of coordinates, as a matrix
    for each head is; whether what it gives is ``divided`` among branches, a part for each; whether
    it uses the parameter's direction alone (``directed``), as a weight norm does;
    ``transformed`` are the axes along which the parameter went through a Fourier transform;
    ``cosine`` are those along which it is divided by its length, to be multiplied with activations
    of length one for the output; ``viewed`` is the shape of the matrix where one axis of the
    parameter is both sides of it, a flat vector's: its axes are then those of this shape; whether
    it ``reads_stream``, behind a residual addition; the ``branches`` it lies in, by index, each
    with whether it only feeds that branch from the side;
    ``hooks``, the tensor of a module to multiply where the parameter cannot be.
    """

    parameter: str
    node: int
    how: How
    fan_in: tuple[int, ...] = ()
    fan_out: tuple[int, ...] = ()
    batch: tuple[int, ...] = ()
    slices: tuple[tuple[int, int], ...] = ()
    activation: int | None = None
    scale: float = 1.0
    bent: bool = False
    picked: bool = False
    joined: int | None = None
    op: str = "a module of unknown type"
    leads: bool = False
    normalized: bool = False
    follows: bool = True
    reads_stream: bool = False
    branches: tuple[tuple[int, bool], ...] = ()
    hooks: tuple[Hook, ...] = ()
    pieces: tuple[int, ...] = ()
    grouped: bool = False
    divided: bool = False
    directed: bool = False
    transformed: tuple[int, ...] = ()
    cosine: tuple[int, ...] = ()
    viewed: tuple[int, ...] = ()

    @property
    def standardized(self) -> bool:
        """Whether its entries are brought to one size before anything else reads them."""
        return self.how is How.UNKNOWN and self.op in STANDARDIZING

    @property
    def traced(self) -> bool:
        """Whether a forward pass showed it, not the type of a module."""
        return self.node >= 0

    def shape(self, graph: Graph) -> tuple[int, ...]:
        """That of which its axes are."""
        return self.viewed or graph.nodes[graph.parameters[self.parameter]].shape

    @property
    def reader(self) -> int:
        """The first operation that reads what one parameter alone was made into."""
        return self.node if self.joined is None else self.joined


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Every use of every parameter, and the tensors made from a single parameter alone.

    ``derived`` maps a node made from one parameter (and constants) to that parameter's name;
    ``composed`` are the nodes of weights that are made from several, ``rescaled`` those of weights
    that are rounded in units of their own size.
    """

    uses: Mapping[str, tuple[Use, ...]]
    derived: Mapping[int, str]
    constant: frozenset[int]
    composed: frozenset[int] = frozenset()
    rescaled: frozenset[int] = frozenset()

    @cached_property
    def weights(self) -> frozenset[int]:
        """The nodes that no activation made: constants, and what parameters became."""
        return self.constant | self.derived.keys() | self.composed

    @cached_property
    def at(self) -> Mapping[int, Sequence[Use]]:
        """The uses that each operation makes of parameters."""
        at: dict[int, list[Use]] = {}
        for uses in self.uses.values():
            for use in uses:
                at.setdefault(use.node, []).append(use)
        return at

    def nodes(self, *hows: How) -> set[int]:
        """The operations that use parameters in one of these ways."""
        return {node for node, uses in self.at.items() if any(use.how in hows for use in uses)}

    def on_parameter(self, graph: Graph, start: int | Iterable[int]) -> list[int]:
        """From a tensor made from a parameter back to it, without it: where it is multiplied."""

        def before(this: Node) -> list[int]:
            return [r.node for r in this.inputs if r.node in self.derived][:1]

        return [this.index for this in graph.back(start, before) if this.op != "parameter"]


def find_uses(graph: Graph) -> Usage:
    """Follow every parameter to the operations that use it.

    Args:
        graph: of the traced model.

    Returns:
        The uses of every parameter.

    Example:
        >>> import torch
        >>> from depthmup.tracing.trace import trace
        >>> usage = find_uses(trace(torch.nn.Linear(3, 5), torch.zeros(2, 3)))
        >>> usage.uses["weight"][0].fan_in, usage.uses["weight"][0].fan_out
        ((1,), (0,))
    """
    names = {index: name for name, index in graph.parameters.items()}
    tensors: dict[int, Made] = {}
    derived: dict[int, str] = {}
    constant: set[int] = set()
    computed: set[int] = set()  # from several parameters, and from nothing that was put in
    gains: list[tuple[Use, str]] = []  # of weight norms, each with its direction
    uses: dict[str, list[Use]] = {name: [] for name in graph.parameters}
    rescaled = find_rescaled(graph)
    for node in graph.nodes:
        if node.index in rescaled.inside:
            continue
        if (of := rescaled.parameters.get(node.index)) is not None:
            tensors[node.index], derived[node.index] = tensors[of], derived[of]
            continue
        if node.op == "parameter":
            axes = tuple((axis,) for axis in range(len(node.shape)))
            derived[node.index] = names.get(node.index, node.name)
            tensors[node.index] = Made(parameter=derived[node.index], labels=axes)
            continue
        if node.op in ("buffer", "constant") or (not node.inputs and node.op != "input"):
            constant.add(node.index)
            continue
        if node.op == "input":
            continue
        sources = [ref.node for ref in node.inputs if ref.node not in constant]
        if not sources or node.op in SHAPED:
            constant.add(node.index)
            continue
        directed = _made_of_direction_and_gain(node, sources, tensors)
        if directed is not None:
            tensors[node.index], gain = directed
            gains.append((gain, directed[0].parameter))
            computed.add(node.index)
            continue
        carried = made_from_one(graph, node, sources, tensors)
        if carried is not None:
            tensors[node.index] = carried
            # No factor folds into a direction, and rows that were looked up are activations.
            if not (carried.picked or carried.directed):
                derived[node.index] = carried.parameter
            if not carried.picked or tensors[sources[0]].picked:
                continue
        if all(source in derived or source in computed for source in sources):
            computed.add(node.index)
        # A check of a parameter's own values is no use of it.
        checked = node.op in COMPARISONS and len(sources) == 1
        for source in () if checked else dict.fromkeys(sources):
            if source in tensors:
                use = _use(graph, node, source, tensors[source], derived)
                if use is not None:
                    uses[tensors[source].parameter].append(use)
    # What is returned as it is, such as the deviations of a policy's actions.
    for made in (tensors[ref.node] for ref in graph.outputs if ref.node in tensors):
        if not uses[made.parameter] and not made.picked:
            use = Use(
                parameter=made.parameter,
                node=graph.parameters[made.parameter],
                how=How.ELEMENTWISE,
                fan_out=axes_of(made.labels, range(len(made.labels))),
            )
            uses[made.parameter].append(use)
    for gain, direction in gains:
        uses[gain.parameter].append(_sized(graph, gain, direction, uses[direction]))
    weights = _computed_weights(graph, computed, derived)
    found = {
        name: _without_lengths(
            graph,
            [
                replace(use, how=How.UNKNOWN, fan_out=())
                if use.how is How.ELEMENTWISE and use.node in weights and _fills(graph, use)
                else use
                for use in _without_picking(_with_influence(graph, same))
            ],
        )
        for name, same in uses.items()
    }
    weights_of_several = [
        weight
        for weight in find_composed(graph, tensors, computed, constant)
        if _tells_nothing(weight, found)
    ]
    for weight in weights_of_several:
        _as_terms(graph, weight, found, derived)
    return Usage(
        uses={name: tuple(same) for name, same in found.items()},
        derived=derived,
        constant=frozenset(constant),
        composed=frozenset().union(*(weight.inside for weight in weights_of_several)),
        rescaled=frozenset(rescaled.parameters),
    )


_WEIGHT_NORMS = frozenset({"_weight_norm_interface", "_weight_norm"})


def _made_of_direction_and_gain(
    node: Node, sources: list[int], known: Mapping[int, Made]
) -> tuple[Made, Use] | None:
    """The matrix g v / |v| of a weight norm, and how it uses g: one number along one axis of v."""
    tensors = [known.get(source) for source in sources]
    dim = node.args[2] if len(node.args) > 2 else 0
    if node.op not in _WEIGHT_NORMS or len(tensors) != 2 or dim < 0:
        return None
    direction, gain = tensors
    if direction is None or gain is None or direction.bent or gain.bent:
        return None
    as_it_comes = direction.labels == tuple((axis,) for axis in range(len(direction.labels)))
    if not as_it_comes or len({direction.parameter, gain.parameter}) < 2:
        return None
    use = Use(parameter=gain.parameter, node=node.index, how=How.ELEMENTWISE, fan_out=(dim,))
    return replace(direction, directed=True), use


def _sized(graph: Graph, gain: Use, direction: str, uses: Sequence[Use]) -> Use:
    """The use of a weight norm's gain, with the size of entries that the norm leaves to it.

    Over the fan-in alone (one gain for each output) it leaves a matrix's own, 1 / sqrt(fan-in).
    Over outputs as well (one gain for each place of a kernel) it leaves less.
    """
    shape = graph.nodes[graph.parameters[direction]].shape
    summed = [use.fan_in for use in uses if use.how is How.MATRIX]
    if not summed:
        return gain
    normed = math.prod(shape) / math.prod(shape[axis] for axis in gain.fan_out)
    return replace(gain, scale=(math.prod(shape[axis] for axis in summed[0]) / normed) ** 0.5)


_BAGS = frozenset({"_embedding_bag", "_embedding_bag_forward_only"})


def _tells_nothing(weight: Composed, uses: Mapping[str, list[Use]]) -> bool:
    """Whether what makes a weight does not say how a parameter is used, as it does of a gain.

    What multiplies the output of a table's other use, the embedding, would multiply all terms.
    """
    of_terms = [use for term in weight.terms for use in uses[term.parameter]]
    return any(
        use.how is How.UNKNOWN and use.node in weight.inside for use in of_terms
    ) and not any(use.how is How.LOOKUP for use in of_terms)


def _as_terms(
    graph: Graph, weight: Composed, uses: dict[str, list[Use]], derived: Mapping[int, str]
) -> None:
    """Let every parameter of a composed weight be used where that is, and not where it is made."""
    node = graph.nodes[weight.reader]
    for name in {term.parameter for term in weight.terms}:
        uses[name] = [use for use in uses[name] if use.node not in weight.inside]
    for term in weight.terms:
        use = _use(graph, node, weight.weight, term, derived)
        assert use is not None
        if term.gain:
            rest = {*range(len(graph.nodes[graph.parameters[term.parameter]].shape))}
            rest -= {axis for axis, _ in term.slices}
            out = tuple(sorted(rest))
            use = replace(use, how=How.ELEMENTWISE, fan_in=(), fan_out=out, batch=())
        leads = bool({*use.fan_out} & {*term.through})
        use = replace(use, joined=term.reader, leads=leads)
        if use not in uses[term.parameter]:
            uses[term.parameter].append(use)


def _with_influence(graph: Graph, uses: list[Use]) -> list[Use]:
    """Without those that only decide (the nearest entry of a codebook), where others do not."""
    return [use for use in uses if use.node in graph.live] or uses


def _without_picking(uses: list[Use]) -> list[Use]:
    """Without the lookups of what then acts as a matrix."""
    matrices = any(use.picked for use in uses)
    return [use for use in uses if not (matrices and use.how is How.LOOKUP)]


def _without_lengths(graph: Graph, uses: list[Use]) -> list[Use]:
    """Without the sums by which a norm by hand divides what is then added or multiplied."""
    entrywise = any(use.how is How.ELEMENTWISE for use in uses)
    return [
        use
        for use in uses
        if not (entrywise and use.how is How.UNKNOWN and graph.nodes[use.node].op in REDUCTIONS)
    ]


def _computed_weights(graph: Graph, computed: set[int], derived: Mapping[int, str]) -> set[int]:
    """Tensors computed from several parameters, entry by entry, that act on activations."""
    weights: set[int] = set()
    for index in sorted(computed, reverse=True):
        for reader in map(graph.nodes.__getitem__, graph.consumers[index]):
            factors = _factors(reader)
            if factors:  # what a matrix makes of a learned input is an activation
                acts = index in factors and not all(f in computed or f in derived for f in factors)
            else:
                acts = reader.index in weights
            if acts:
                weights.add(index)
    return weights


def _factors(node: Node) -> list[int | None]:
    """The two factors of a matrix product or a convolution; nothing for other operations."""
    if node.op in MATRIX_PRODUCTS:
        at = MATRIX_PRODUCTS[node.op]
        return [node_of(argument) for argument in node.args[at : at + 2]]
    if node.op in CONVOLUTIONS or node.op in ("mv", "dot"):
        return [node_of(argument) for argument in node.args[:2]]
    return []


def _fills(graph: Graph, use: Use) -> bool:
    """Whether a parameter is as large as what an operation makes of it, so that it is no gain."""
    shape = use.shape(graph)
    result = graph.nodes[use.node]
    collected = result.op in ("cat", "stack")
    return len(shape) > 1 and (collected or math.prod(shape) >= math.prod(result.shape))


def alpha_of(node: Node, name: str = "alpha") -> float:
    """The number by which ``addmm`` and its like multiply the product (or, ``beta``, the sum)."""
    number = node.kwargs.get(name, 1)
    return float(number) if isinstance(number, (int, float)) else 1.0


def _use(
    graph: Graph, node: Node, source: int, tensor: Made, derived: Mapping[int, str]
) -> Use | None:
    """How one operation uses a tensor made from a parameter; None if rows of it are activations."""
    slices = resolved(node, source, tensor)
    if tensor.picked:
        product = _product(node, source, tensor.labels, derived)
        if product is None or not (product.fan_in and product.fan_out):
            return None
        # One axis of a table that is read as both sides of a matrix tells neither's growth.
        if set(product.fan_in) & set(product.fan_out):
            product = replace(product, how=How.UNKNOWN, fan_in=(), fan_out=())
        return replace(product, parameter=tensor.parameter, slices=slices, picked=True)
    rest = set(range(len(graph.nodes[graph.parameters[tensor.parameter]].shape)))
    rest -= {axis for axis, _ in slices}

    def read(labels: Labels) -> Use | None:
        return _product(node, source, labels, derived) or _lookup(node, source, labels)

    use = read(tensor.labels)
    if use is not None and {*use.fan_in} & {*use.fan_out}:
        viewed = graph.nodes[source].shapes[node.reads(source).output]
        use = read(tuple((d,) for d in range(len(viewed))))
        use = use and replace(use, viewed=viewed)
    if use is None and node.op in ELEMENTWISE | MATRIX_PRODUCTS.keys() | CONVOLUTIONS:
        use = _summed(graph, node, source, tensor.labels)
    if use is None:
        how = How.ELEMENTWISE if _entrywise(node, source) else How.UNKNOWN
        out = tuple(sorted(rest)) if how is How.ELEMENTWISE else ()
        added = alpha_of(node, "beta") if node.op in MATRIX_PRODUCTS else 1.0
        use = Use(parameter="", node=node.index, how=how, fan_out=out, scale=added)
    return replace(
        use,
        parameter=tensor.parameter,
        slices=slices,
        bent=tensor.bent,
        directed=tensor.directed,
        transformed=tensor.transformed,
    )


def _entrywise(node: Node, source: int) -> bool:
    if node.op in CONVOLUTIONS:
        return node_of(node.args[2]) == source
    if node.op in MATRIX_PRODUCTS:
        return MATRIX_PRODUCTS[node.op] == 1 and node_of(node.args[0]) == source
    return node.op in ELEMENTWISE


def _matrix(
    node: Node,
    labels: Labels,
    into: Sequence[int],
    out: Sequence[int],
    activation: int | None,
    *,
    batch: Sequence[int] = (),
    scale: float = 1.0,
) -> Use:
    """A use that sums over some dimensions of a tensor, leaves others and repeats over the rest."""
    return Use(
        parameter="",
        node=node.index,
        how=How.MATRIX,
        fan_in=axes_of(labels, into),
        fan_out=axes_of(labels, out),
        batch=axes_of(labels, batch),
        activation=activation,
        scale=scale,
    )


def _product(node: Node, source: int, labels: Labels, derived: Mapping[int, str]) -> Use | None:
    """A use as one factor of a matrix product or as the kernel of a convolution."""
    rank = len(labels)
    if node.op in MATRIX_PRODUCTS:
        at = MATRIX_PRODUCTS[node.op]
        left, right = node_of(node.args[at]), node_of(node.args[at + 1])
        if at and node_of(node.args[0]) == source:
            return None
        if left in derived and right in derived and source == left:
            # A learned input of a matrix (a query, a class token), whose rows are its batch.
            return Use(
                parameter="",
                node=node.index,
                how=How.ELEMENTWISE,
                fan_out=axes_of(labels, [rank - 1]),
                batch=axes_of(labels, range(rank - 1)),
            )
        into, out = (rank - 2, rank - 1) if right == source else (rank - 1, rank - 2)
        other, scale = left if right == source else right, alpha_of(node)
        return _matrix(node, labels, [into], [out], other, batch=range(rank - 2), scale=scale)
    if node.op in ("mv", "dot"):
        return _matrix(node, labels, [rank - 1], range(rank - 1), _beside(node, source))
    if node.op == "_trilinear" and node_of(node.args[1]) == source:  # nn.Bilinear
        return _matrix(node, labels, [1, 2], [0], node_of(node.args[0]))
    if node.op in CONVOLUTIONS and node_of(node.args[1]) == source:
        into, out = (0, 1) if node.args[6] else (1, 0)  # transposed, or not
        return _matrix(node, labels, [into, *range(2, rank)], [out], node_of(node.args[0]))
    return None


def _beside(node: Node, source: int) -> int | None:
    """What an operation reads beside a tensor."""
    return next((ref.node for ref in node.inputs if ref.node != source), None)


def _lookup(node: Node, source: int, labels: Labels) -> Use | None:
    """A use as a table of which rows are picked."""
    if node.op not in LOOKUPS | _BAGS or node_of(node.args[0]) != source:
        return None
    picked = [0]
    if node.op == "index_select":
        picked = [node.args[1] % len(labels)]
    elif node.op == "index":
        picked = [d for d, index in enumerate(node.args[1]) if index is not None]
    rest = [d for d in range(len(labels)) if d not in picked]
    return Use(
        parameter="",
        node=node.index,
        how=How.LOOKUP,
        fan_in=axes_of(labels, picked),
        fan_out=axes_of(labels, rest),
    )


def _summed(graph: Graph, node: Node, source: int, labels: Labels) -> Use | None:
    """A product entry by entry that only a sum over some of the parameter's axes reads."""
    readers = graph.consumers[node.index]
    reader = graph.nodes[readers[0]] if len(readers) == 1 else None
    if node.op != "mul" or reader is None or reader.op not in ("sum", "mean"):
        return None
    rank = len(node.shape)
    dims = reader.args[1] if len(reader.args) > 1 and reader.args[1] else range(rank)
    dims = [d % rank for d in ([dims] if isinstance(dims, int) else dims)]
    aligned = ((),) * (rank - len(labels)) + labels
    if not axes_of(aligned, dims):
        return None
    rest = [d for d in range(rank) if d not in dims]
    scale = 1 / math.prod(node.shape[d] for d in dims) if reader.op == "mean" else 1.0
    return _matrix(node, aligned, dims, rest, _beside(node, source), scale=scale)
