"""A model's own constants: the numbers by which its forward pass multiplies, and where they stand.

A constant may belong to the branch at whose end it stands, to the matrix or table behind which it
stands, or to the matrix that reads what it scales. A sum that is multiplied is multiplied in all
its terms.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.lengths import share, softmax_gate, unit_length
from depthmup.tracing.operations import (
    ADDITIONS,
    CONVOLUTIONS,
    HOMOGENEOUS,
    MATRIX_PRODUCTS,
    REDUCTIONS,
    TRANSPARENT,
)
from depthmup.tracing.parameter_uses import How, Usage, Use
from depthmup.tracing.products import Product, scaling_before
from depthmup.tracing.residuals import ResidualBranch, Residuals

_TO_THE_ROOT = frozenset({"add", "mul", "div", "clamp", "clamp_min", "maximum"})
# How far behind a constant the root of a norm may stand: mean, epsilon, root, and shapes.
_NORM_STEPS = 6

# Rows of relative positions are shifted into place by padding and views.
_MOVES = HOMOGENEOUS | ADDITIONS | {"cat", "as_strided"}

_Before: TypeAlias = Callable[[Node], list[int]]
"""The tensors before a node that a walk back along numbers, gains and shapes may go to."""


@dataclass(frozen=True, kw_only=True)
class Constants:
    """The numbers that multiply in a forward pass, and the places to which each may belong.

    ``factors`` maps nodes to numbers. ``branches`` are the nodes at the end of each branch,
    ``alphas`` the numbers inside their additions, divided by those on the stream since the branch
    left it, which stand at the nodes ``stream``. ``behind`` and ``before`` are the nodes around
    each use of a parameter, by its name and node.
    ``terms`` are the uses that are added to a product of activations, with the nodes of numbers
    that multiply both. ``lengths`` are the nodes that normalize to length one: the number is the
    size of an entry. ``normed`` are numbers that multiply what was so normalized, each with it.
    """

    factors: Mapping[int, float]
    branches: tuple[tuple[int, ...], ...]
    alphas: tuple[float, ...]
    behind: Mapping[tuple[str, int], tuple[int, ...]]
    before: Mapping[tuple[str, int], tuple[int, ...]]
    stream: frozenset[int] = frozenset()
    terms: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)
    lengths: frozenset[int] = frozenset()
    normed: Mapping[int, int] = field(default_factory=dict)


def scaled_behind(graph: Graph, node: int) -> list[int]:
    """The node, and those behind it as far as constants and shapes alone change."""

    def passes(this: Node, _: object) -> bool:
        return this.index in graph.factors or this.op in TRANSPARENT

    return [node, *(this.index for this in graph.forward(node, passes, alone=True))]


def find_constants(
    graph: Graph, usage: Usage, residuals: Residuals, products: Iterable[Product] = ()
) -> Constants:
    """Every constant factor of the forward pass, and to what it may belong.

    Constants that make a mean of a sum or stand in the statistics of a norm are left out.
    """
    live = graph.live
    lengths = {
        node.index: unit
        for node in graph.nodes
        if node.index in live
        and node.index not in usage.derived
        and (unit := unit_length(graph, node)) is not None
    }
    gates = {
        node.index: gate
        for node in graph.nodes
        if node.index in live and (gate := softmax_gate(graph, node)) is not None
    }
    shrinking = lengths | gates
    # Shares that a matrix of parameters reads; what a softmax reads is no multiple of them.
    read = {u.activation for of in usage.uses.values() for u in of if u.how is How.MATRIX}
    shares = {
        source.index: factor
        for node in (n for n in read if n is not None)
        for source in [[*graph.back(node, TRANSPARENT)][-1]]
        if source.index not in lengths and (factor := share(graph, source)) is not None
    }
    factors = (
        {
            node.index: factor
            for node in graph.nodes
            if node.index in live
            and node.index not in usage.constant
            and (factor := graph.factors.get(node.index)) is not None
            and (node.index in usage.derived or not _of_a_mean_or_norm(graph, node.index))
        }
        | {index: unit.factor for index, unit in shrinking.items()}
        | shares
    )

    def before(node: Node) -> list[int]:
        """The one tensor that a number, gain, length or softmax multiplies, or of another shape.

        Nothing if the operation does anything else.
        """
        if node.index in shrinking:
            return [shrinking[node.index].of.node]
        if node.op not in TRANSPARENT | {"mul", "div"}:
            return []
        operands = [r.node for r in node.inputs if not _is_weight(usage, r.node)]
        return operands if len(operands) == 1 else []

    ends = [_end_of_branch(graph, before, b.addition, b.output) for b in residuals.branches]
    return Constants(
        factors=factors,
        branches=tuple(tuple(n for n in nodes if n in factors) for nodes, _ in ends),
        alphas=tuple(
            alpha / b.scale for (_, alpha), b in zip(ends, residuals.branches, strict=True)
        ),
        stream=frozenset(n for b in residuals.branches for n in _on_stream(graph, b) & {*factors}),
        behind=_behind_uses(graph, usage, factors),
        before=_before_uses(graph, usage, factors, before),
        terms=_terms(graph, usage, products),
        lengths=frozenset(lengths),
        normed={
            node: length
            for node in factors
            if node not in lengths
            for length in (made.index for made in graph.back(node, before))
            if length in lengths
        },
    )


def _on_stream(graph: Graph, branch: ResidualBranch) -> set[int]:
    """The nodes between the point that a branch leaves and the addition, if a number stands there.

    That number is a part of the branch's own multiplier (``ResidualBranch.scale``).
    """
    return graph.between(branch.origin, branch.stream) if branch.scale != 1 else set()


def _end_of_branch(
    graph: Graph, before: _Before, addition: int, output: int
) -> tuple[list[int], float]:
    """The nodes from a branch's output back over constants, gains and shapes; ``alpha`` in add."""
    this = graph.nodes[addition]
    alpha = this.kwargs.get("alpha", this.args[2] if len(this.args) > 2 else 1)
    second = isinstance(this.args[1], Ref) and this.args[1].node == output
    chain = []
    for node in graph.back(output, before):
        if len(graph.consumers[node.index]) != 1:
            break
        chain.append(node.index)
    return chain, float(alpha) if second and isinstance(alpha, (int, float)) else 1.0


def _is_weight(usage: Usage, node: int) -> bool:
    return node in usage.derived or node in usage.constant


def _behind_uses(
    graph: Graph, usage: Usage, factors: Mapping[int, float]
) -> dict[tuple[str, int], tuple[int, ...]]:
    """For every use the constants on the parameter itself, and those behind the operation."""
    lookups = usage.nodes(How.LOOKUP)

    def passes(this: Node, held: Container[int]) -> bool:
        if this.index in graph.factors or this.op in TRANSPARENT:
            return True
        others = [r.node for r in this.inputs if r.node not in held]
        return this.op in ADDITIONS and all(
            _is_weight(usage, other) or graph.origin(other) in lookups for other in others
        )

    behind: dict[tuple[str, int], tuple[int, ...]] = {}
    for name, uses in usage.uses.items():
        for use in uses:
            operands = [r.node for r in graph.nodes[use.reader].inputs]
            own = [n for n in operands if usage.derived.get(n) == use.parameter][:1]
            nodes = usage.on_parameter(graph, own)
            if use.how is not How.ELEMENTWISE or _is_added(graph, use):
                behind_it = graph.forward(use.node, passes, alone=True)
                nodes += [this.index for this in behind_it]
            behind[name, use.node] = tuple(n for n in nodes if n in factors)
    return behind


def _is_added(graph: Graph, use: Use) -> bool:
    """Whether the parameter is a term of a sum: a bias, a table of positions."""
    node = graph.nodes[use.node]
    return node.op in ADDITIONS | MATRIX_PRODUCTS.keys() | CONVOLUTIONS


def _before_uses(
    graph: Graph, usage: Usage, factors: Mapping[int, float], before: _Before
) -> dict[tuple[str, int], tuple[int, ...]]:
    """For every matrix the constants on what it reads, where matrices alone read that.

    A constant on the stream is nobody's: what the next branch adds to is multiplied by it, too.
    """
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    matrices = usage.nodes(How.MATRIX)

    def for_matrices(node: int) -> bool:
        return all(
            reader in matrices or (before(graph.nodes[reader]) == [node] and for_matrices(reader))
            for reader in graph.consumers[node]
        )

    for name, uses in usage.uses.items():
        for use in uses:
            read = use.activation if use.how is How.MATRIX else None
            found[name, use.node] = tuple(
                node.index
                for node in graph.back([] if read is None else read, before)
                if node.index in factors and for_matrices(node.index)
            )
    return found


def _of_a_mean_or_norm(graph: Graph, node: int) -> bool:
    """Whether a constant makes a mean of a sum, or stands in the statistics of a norm."""
    if any(graph.nodes[graph.origin(r.node)].op in REDUCTIONS for r in graph.nodes[node].inputs):
        return True
    todo = [(node, 0)]
    while todo:
        index, steps = todo.pop()
        this = graph.nodes[index]
        if this.op in ("sqrt", "rsqrt"):
            return True
        if steps == 0 or (steps < _NORM_STEPS and this.op in TRANSPARENT | _TO_THE_ROOT):
            todo += [(reader, steps + 1) for reader in graph.consumers[index]]
    return False


def _terms(
    graph: Graph, usage: Usage, products: Iterable[Product]
) -> dict[tuple[str, int], frozenset[int]]:
    """Uses of parameters that are terms of a sum with a product, with the nodes of numbers on both.

    Tables of relative positions and biases that are added to logits: what multiplies the sum behind
    them (1/sqrt(head size), mostly) is the product's, whose multiplier is chosen with it in mind,
    and multiplies each of the other terms as well; so does what multiplies the activation that a
    table reads (the queries).
    """
    where: dict[int, tuple[Product, int]] = {}  # a node behind a product: which, and how far
    for product in products:
        for steps, node in enumerate(product.behind):
            if graph.nodes[node].op in ADDITIONS:
                where.setdefault(node, (product, steps))
    terms = {}
    for name, uses in usage.uses.items():
        for use in uses:
            joint = _joint(graph, use.node, where)
            if joint is None:
                continue
            product, steps = where[joint]
            numbers = frozenset(product.behind[steps + 1 :]) & product.between
            if use.how is How.MATRIX and use.activation is not None:
                numbers |= scaling_before(graph, usage, graph.nodes[use.node].reads(use.activation))
            terms[name, use.node] = numbers
    return terms


def _joint(graph: Graph, node: int, where: Mapping[int, object]) -> int | None:
    """The sum of logits that a tensor goes into unchanged but for its place, if there is one."""

    def passes(this: Node, _: object) -> bool:
        return this.op in _MOVES or this.index in graph.factors

    behind = (this.index for this in graph.forward(node, passes, alone=True))
    return next((n for n in (node, *behind) if n in where), None)
