"""Products of two activations: queries and keys, two towers; what they sum over may grow.

A product of two activations is what no parameter's law covers: a sum over n coordinates that learn
to agree is of size n. Each is described with the model's own constants on its operands and behind
it, whatever it feeds (a softmax, another nonlinearity, the output).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from depthmup.tracing.carriers import Carriers, carriers_of
from depthmup.tracing.graph import Graph, Hook, Node, Ref
from depthmup.tracing.lengths import size_along, source_of, squared, unit_length
from depthmup.tracing.operations import (
    ADDITIONS,
    ATTENTION,
    HOMOGENEOUS,
    MATRIX_PRODUCTS,
    SOFTMAX,
    TRANSPARENT,
)
from depthmup.tracing.parameter_uses import How, Usage, alpha_of
from depthmup.tracing.parts import part_hook, summed_apart
from depthmup.tracing.residuals import Residuals

# Masks, biases, soft caps, limits and shifts: their slope is one where logits are small.
_AROUND_LOGITS = ADDITIONS | frozenset(
    {"where", "masked_fill", "slice", "tanh", "clamp", "clamp_min", "clamp_max"}
)
_DISTANCES = frozenset({"_cdist_forward", "_euclidean_dist", "cdist"})
_TERMS = ADDITIONS | {"cat", "stack"}
# The most that is added to a divisor to keep it from zero.
_EPSILON = 1e-2
# Shapes, an epsilon, limits and a count of terms stand between a sum and the root of it.
_STATISTIC_STEPS = 6
# From a softmax to what it weights: dropout, masks, renormalization; so many of them at most.
_WEIGHT_STEPS = 20
_KEEPS_WEIGHTS = TRANSPARENT | {"mul", "div", "where", "masked_fill", "add", "repeat", "slice"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """A sum over ``size`` coordinates of one activation times another.

    ``constant`` is the model's own number behind the product and ``scale`` that times those on
    both operands; ``between`` and ``scaling`` are the nodes on which they stand. An operand that is
    normalized to length one counts as scaled by size^-1/2. ``gains`` are the parameters that
    multiply the result (a learned temperature). ``softmax``: it feeds one. ``weighted``: an
    operand is itself a softmax, so that the sum is a mean; or one such product is divided by
    another of the same query, so that what multiplies both cancels (linear attention).
    ``distance``: it is no product, but a distance. ``total``: it is a sum of the coordinates of one
    activation, and no product.
    ``projection``: it multiplies the direction that it was taken along, (y . u) u with |u| = 1.
    ``carriers`` say where a multiplier of the query, or of the key, can go, and ``parts`` which
    part of a module's output either is. ``behind`` are the nodes from the product to the next
    operation that mixes or bends, in order. ``beside`` are the nodes of other products that read
    either operand of this one, ``node``: what multiplies the operand multiplies them alike.
    ``learned`` are the parameters from which alone an operand is made: it may be a weight.
    """

    module: str
    size: int
    constant: float
    scale: float
    between: frozenset[int] = field(repr=False)
    scaling: frozenset[int] = field(repr=False)
    gains: frozenset[str]
    softmax: bool = False
    weighted: bool = False
    distance: bool = False
    total: bool = False
    projection: bool = False
    carriers: tuple[Carriers, Carriers] = field(default=(Carriers(), Carriers()), repr=False)
    parts: tuple[tuple[Hook, ...], tuple[Hook, ...]] = ((), ())
    behind: tuple[int, ...] = field(default=(), repr=False)
    node: int = -1
    beside: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    learned: frozenset[str] = frozenset()


def find_products(graph: Graph, usage: Usage, residuals: Residuals) -> Iterator[Product]:
    """Every product of two activations, and every sum of one, in the order of the forward pass."""
    inside = {n: b.origin for b in residuals.branches for n in b.path}
    weights, live = usage.weights, graph.live
    multiplied = usage.nodes(How.MATRIX)
    cancelling = _cancelling(graph)
    apart = {u.node for of in usage.uses.values() for u in of if summed_apart(graph, u)}
    multiplying = {n.index for n in graph.nodes if _operands(graph, n) is not None}
    put_in = [n.index for n in graph.nodes if n.op == "input"]
    active = graph.downstream(put_in) | {*put_in}
    for node in graph.nodes:
        if node.op == "sum" and node.index in live:
            total = _total(graph, usage, node, multiplied)
            if total is not None and graph.origin(node.inputs[0].node) not in apart:
                yield total
            continue
        operands = _operands(graph, node)
        if operands is None or any(ref.node in weights for ref in operands):
            continue
        product = _multiplied(graph, usage, node, *_size(graph, node, operands))
        scales, scaling = zip(*(_way(graph, usage, ref) for ref in operands), strict=True)
        after = inside.get(node.index, -1)
        others = [
            multiplying.intersection(graph.consumers[ref.node]) - {node.index} for ref in operands
        ]
        query, key = (
            carriers_of(graph, usage, ref, node.index, after=after, beside=beside)
            for ref, beside in zip(operands, others, strict=True)
        )
        parts: list[tuple[Hook, ...]] = [(), ()]
        # Where a whole tensor can carry the multiplier, no part of one is needed.
        if not any(carriers.parameters or carriers.modules for carriers in (query, key)):
            parts = [part_hook(graph, usage, ref, node.index) for ref in operands]
        yield replace(
            product,
            scale=product.constant * scales[0] * scales[1],
            scaling=product.between.union(*scaling),
            softmax=product.softmax or node.op.startswith(ATTENTION),
            weighted=node.index in cancelling or any(_is_softmax(graph, r) for r in operands),
            distance=node.op in _DISTANCES,
            projection=any(_projects(graph, ref, product.behind) for ref in operands),
            carriers=(query, key),
            parts=(parts[0], parts[1]),
            node=node.index,
            beside=(frozenset(others[0]), frozenset(others[1])),
            learned=_learned(graph, usage, active, operands[0])
            or _learned(graph, usage, active, operands[1]),
        )


def _learned(graph: Graph, usage: Usage, active: set[int], ref: Ref) -> frozenset[str]:
    """The parameters from which a tensor is made, if nothing that was put in is."""
    if ref.node in active:
        return frozenset()

    def before(node: Node) -> Iterator[int]:
        if node.index not in usage.derived:
            yield from (source.node for source in node.inputs)

    made = graph.back(ref.node, before)
    return frozenset(usage.derived[n.index] for n in made if n.index in usage.derived)


def _cancelling(graph: Graph) -> set[int]:
    """Products of one query of which one is divided by the other: phi(q) KV / phi(q) K."""

    def origins(node: Node) -> set[int]:
        return {graph.origin(ref.node) for ref in _operands(graph, node) or ()}

    def back(start: int) -> Iterator[int]:
        """The products behind which shapes, numbers and sums alone stand."""
        before = partial(_plain, graph)
        return (node.index for node in graph.back(start, before) if origins(node))

    found = set[int]()
    for node in graph.nodes:
        whole, divisor = _divided(graph, node)
        for above in back(whole) if divisor >= 0 else ():
            below = {
                n for n in back(divisor) if origins(graph.nodes[n]) & origins(graph.nodes[above])
            }
            found |= below | ({above} if below else set())
    return found


def _divided(graph: Graph, node: Node) -> tuple[int, int]:
    """What an operation divides by what, be it as a product with one over it; else -1 twice."""
    tensors = [a.node for a in node.args[:2] if isinstance(a, Ref)]
    if len(tensors) == 2 and node.op == "div":
        return tensors[0], tensors[1]
    for whole, other in (tensors, tensors[::-1]) if len(tensors) == 2 and node.op == "mul" else ():
        for this in graph.back(other, partial(_plain, graph)):
            if this.op == "reciprocal":
                return whole, this.inputs[0].node
    return -1, -1


def _plain(graph: Graph, node: Node) -> Iterator[int]:
    """What a tensor was before its shape changed, a number multiplied it, or epsilon was added."""
    tensors = [ref.node for ref in node.inputs if graph.number(ref) is None]
    numbers = [n for n in map(graph.number, node.args[:2]) if n is not None]
    epsilon = node.op == "add" and all(abs(n) <= _EPSILON for n in numbers)
    keeps = epsilon or node.op in TRANSPARENT | {"clamp", "clamp_min", "sum"}
    if (keeps or node.index in graph.factors) and len(tensors) == 1:
        yield tensors[0]


def _total(graph: Graph, usage: Usage, node: Node, multiplied: set[int]) -> Product | None:
    """A sum of an activation's coordinates, if it is no product's and no statistic of a norm."""
    weights = usage.weights
    ref = node.inputs[0]
    summed = graph.nodes[ref.node]
    is_product = summed.op == "mul" and (
        summed.index in multiplied or _operands(graph, summed) is not None
    )
    if ref.node in weights or is_product or _is_statistic(graph, node):
        return None
    size = size_along(graph, ref, node.args[1] if len(node.args) > 1 else None)
    difference = _is_squared_difference(graph, usage, summed)
    return replace(_multiplied(graph, usage, node, size, 1.0), distance=difference, total=True)


def _is_squared_difference(graph: Graph, usage: Usage, node: Node) -> bool:
    of = squared(graph, node)
    if of is None or graph.nodes[of.node].op != "sub":
        return False
    return len({ref.node for ref in graph.nodes[of.node].inputs} - usage.constant) == 2


def _is_statistic(graph: Graph, node: Node) -> bool:
    """Whether a sum is what something is divided by, or a root or a logarithm is taken of."""
    index = node.index
    for _ in range(_STATISTIC_STEPS):
        readers = [graph.nodes[n] for n in graph.consumers[index]]
        for this in readers:
            divides = this.op == "div" and this.args[1] in (Ref(index), *node.inputs[1:])
            if divides or this.op in ("sqrt", "rsqrt", "reciprocal", "log", "pow"):
                return True
        on = [
            this.index
            for this in readers
            if this.op in TRANSPARENT | {"add", "clamp", "clamp_min", "maximum"}
            or this.index in graph.factors
        ]
        if len(on) != 1:
            return False
        index = on[0]
    return False


def _projects(graph: Graph, along: Ref, path: tuple[int, ...]) -> bool:
    """Whether a product along a vector is multiplied with it again, and with it by no length.

    As (y . u) u of a vector of length one, or (y . x) x / (x . x).
    """
    source = source_of(graph, along)

    def reads(node: Node) -> int:
        return sum(source_of(graph, ref) == source for ref in node.inputs)

    def of_square(ref: Ref) -> bool:
        made = graph.back(ref.node, TRANSPARENT | {"add", "clamp_min", "sum"})
        return any(node.op == "mul" and reads(node) == 2 for node in made)

    nodes = [graph.nodes[n] for n in path]
    again = any(node.op == "mul" and reads(node) == 1 for node in nodes)
    divided = any(node.op == "div" and of_square(node.inputs[-1]) for node in nodes)
    return again and (divided or unit_length(graph, graph.nodes[source.node]) is not None)


def _operands(graph: Graph, node: Node) -> tuple[Ref, Ref] | None:
    """The two activations that an operation sums the product of, if it does."""
    if node.op.startswith(ATTENTION) or node.op in _DISTANCES:
        first, second = node.args[0], node.args[1]
    elif node.op in MATRIX_PRODUCTS:
        at = MATRIX_PRODUCTS[node.op]
        first, second = node.args[at], node.args[at + 1]
    elif node.op in ("dot", "mv") or (node.op == "mul" and _sums(graph, node) is not None):
        first, second = node.args[0], node.args[1]
    else:
        return None
    if not (isinstance(first, Ref) and isinstance(second, Ref)):
        return None
    # x * x, summed, is a norm.
    return None if node.op == "mul" and first == second else (first, second)


def _sums(graph: Graph, node: Node) -> Node | None:
    """The sum or mean over one dimension that alone reads a product taken entry by entry."""
    readers = graph.consumers[node.index]
    reader = graph.nodes[readers[0]] if len(readers) == 1 else None
    if reader is None or reader.op not in ("sum", "mean") or len(reader.args) < 2:
        return None
    if any(not isinstance(a, Ref) or graph.number(a) is not None for a in node.args[:2]):
        return None
    dims = reader.args[1]
    return reader if isinstance(dims, (list, tuple)) and len(dims) == 1 else None


def _size(graph: Graph, node: Node, operands: tuple[Ref, Ref]) -> tuple[int, float]:
    """What is summed over, and the constant of the operation itself."""
    if node.op == "mul":
        total = _sums(graph, node)
        assert total is not None
        size = node.shape[total.args[1][0]]
        return size, 1 / size if total.op == "mean" else 1.0
    size = graph.shape(operands[0])[-1]
    if node.op.startswith(ATTENTION):
        given = node.kwargs.get("scale")
        return size, float(given) if given is not None else size**-0.5
    return size, alpha_of(node)


def _multiplied(graph: Graph, usage: Usage, product: Node, size: int, constant: float) -> Product:
    """A product with what multiplies it, as far as the next operation that mixes or bends."""
    live = graph.live
    scale, nodes, gains = 1.0, set[int](), set[str]()
    # Forwards, reader by reader: the first one that multiplies, or leaves the values alone, is
    # followed.
    node = product.index if product.op != "mul" else graph.consumers[product.index][0]
    path: list[int] = []
    while True:
        readers = [graph.nodes[n] for n in graph.consumers[node] if n in live]
        following = None
        for this in readers:
            factor = graph.factors.get(this.index)
            others = [r.node for r in this.inputs if r.node != node]
            gained = this.op in ("mul", "div") and any(n in usage.derived for n in others)
            masked = this.op == "mul" and all(n in usage.constant for n in others)
            # A gate or a temperature that is computed from the data, and not from the product.
            gated = this.op in ("mul", "div") and not any(graph.descends(n, node) for n in others)
            if factor is not None:
                scale *= factor
                nodes.add(this.index)
            elif gained:  # a learned temperature, and the constants on it
                gain = next(n for n in others if n in usage.derived)
                numbers = graph.factors.keys() & usage.on_parameter(graph, gain)
                scale *= math.prod(graph.factors[n] for n in sorted(numbers, reverse=True))
                nodes |= numbers
                gains.add(usage.derived[gain])
            elif not (masked or gated or this.op in TRANSPARENT | _AROUND_LOGITS | {"cat"}):
                continue
            following = this.index
            break
        if following is None:
            ends = {this.op for this in readers}
            return Product(
                module=product.module,
                size=size,
                constant=constant * scale,
                scale=constant * scale,
                between=frozenset(nodes),
                scaling=frozenset(nodes),
                gains=frozenset(gains),
                softmax=bool(ends & (SOFTMAX | {"_log_softmax"})),
                behind=tuple(path),
            )
        node = following
        path.append(node)


def _way(graph: Graph, usage: Usage, ref: Ref) -> tuple[float, frozenset[int]]:
    """The number that multiplies an operand since a matrix or a norm made it, and its nodes."""
    scale, nodes = 1.0, set[int]()
    weights = usage.weights
    # Backwards to the matrix or the norm: what is multiplied before it does not reach the product
    # unchanged, or is the weight's own.
    while True:
        node = graph.nodes[ref.node]
        tensors = [r for r in node.inputs if r.node not in weights]
        factor = graph.factors.get(node.index)
        if factor is not None:
            scale *= factor
            nodes.add(node.index)
        elif (unit := unit_length(graph, node)) is not None:
            return scale * unit.factor, frozenset({*nodes, node.index})
        elif node.op in ("mul", "div"):  # a gain, a rotation's cosine
            if len(tensors) != 1:
                break
        elif node.op not in HOMOGENEOUS - {"sum", "mean", "cumsum"} and node.op not in _TERMS:
            break
        if not tensors:
            break
        ref = tensors[0]
    return scale, frozenset(nodes)


def scaling_before(graph: Graph, usage: Usage, ref: Ref) -> frozenset[int]:
    """The nodes on which numbers stand that multiply a tensor since a matrix or a norm made it."""
    return _way(graph, usage, ref)[1]


def _is_softmax(graph: Graph, ref: Ref) -> bool:
    """Whether an operand is what a softmax gave, masked, dropped out or renormalized."""
    before = islice(graph.back(ref.node, _KEEPS_WEIGHTS), _WEIGHT_STEPS)
    return any(node.op in SOFTMAX for node in before)
