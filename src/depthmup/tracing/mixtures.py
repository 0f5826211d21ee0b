"""Mixtures of experts: routers, the experts they weight, and how many of them are active.

A router is a matrix whose output, one number for each expert, is squashed (softmax, sigmoid) and
weights what the experts made; where not all of them are active, the largest numbers are picked on
the way. It is followed forwards from the matrix: the router's numbers may be normalized, picked,
sorted and reshaped, until they multiply an activation that they are no part of.
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import MATRIX_PRODUCTS, SOFTMAX, TRANSPARENT, ZEROS
from depthmup.tracing.parameter_uses import How, Usage, Use
from depthmup.tracing.router_noise import draws_noise, may_route, noise_parameters

_SQUASHES = SOFTMAX | {"sigmoid"}
_PICKS = frozenset({"topk", "argmax", "max"})
# Of these the first argument is what the result is made of; the others say which part.
_ROWS = frozenset({"index", "gather", "index_select"})
_ADDS = frozenset(
    {"add", "sum", "mean", "index", "index_add", "index_put", "stack", "cat", "alias"}
)
_KEEPS_NUMBERS = (
    TRANSPARENT
    | _SQUASHES
    | _PICKS
    | _ROWS
    | {"add", "sub", "mul", "div", "neg", "exp", "log", "sum", "mean", "amax", "pow", "sqrt"}
    | {"clamp", "clamp_min", "where", "masked_fill", "scatter", "scatter_add", "index_put"}
    | {"select", "slice", "split", "split_with_sizes", "unbind", "sort", "stack", "cat", "alias"}
    | {"eq", "ne", "ge", "gt", "le", "lt", "one_hot", "any", "floor_divide", "abs", "maximum"}
    | {"logical_and", "logical_not", "bitwise_and", "bitwise_not", "minimum", "cumsum"}
)


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """One router and the experts that it weights.

    There are ``total`` experts, of which ``active`` take part. ``matrices`` and ``vectors`` are the
    experts' parameters; those of ``last`` stand directly before the weighting. ``axes`` are the
    axes of a parameter that count experts, where it holds several of them. ``shared`` are the
    parameters of experts that everything passes through, ``beside`` those of the router beside its
    matrix: biases, and those that set the size of noise that it adds to its numbers.
    ``averaged``: the weights sum to one, or to less; if not, their sum grows with ``active``.
    ``renormalized``: those of the active experts sum to one, whatever the router says. ``scaling``
    are the nodes of the model's own numbers that multiply what one expert adds.
    """

    router: str
    total: int
    active: int
    averaged: bool
    renormalized: bool = False
    beside: frozenset[str] = frozenset()
    matrices: frozenset[str] = frozenset()
    vectors: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    scaling: frozenset[int] = frozenset()
    axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Numbers:
    """What is known of a router's numbers at one node."""

    squashed: bool = False
    averaged: bool = False
    renormalized: bool = False
    picked: int = 0
    scaling: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weighting:
    """Where the router's numbers multiply an activation."""

    node: int
    activation: int
    numbers: _Numbers


def find_mixtures(graph: Graph, usage: Usage) -> tuple[Mixture, ...]:
    """Every mixture of experts of a forward pass, by its router."""
    if not any(node.op in _SQUASHES for node in graph.nodes):
        return ()
    mixtures, noisy = [], draws_noise(graph)
    for uses in usage.uses.values():
        if len(uses) == 1 and may_route(graph, uses[0]):
            mixture = _mixture(graph, usage, uses[0], noisy=noisy)
            mixtures += [mixture] if mixture is not None else []
    return tuple(mixtures)


def _mixture(graph: Graph, usage: Usage, router: Use, *, noisy: bool) -> Mixture | None:
    """The mixture that a matrix is the router of, if it is one."""
    total = graph.nodes[router.node].shape[-1]
    assert router.activation is not None
    root = graph.origin(router.activation)
    noise_of = partial(noise_parameters, graph, usage, total=total, root=root) if noisy else None
    numbers, weightings, noise = _followed(graph, usage, router.node, noise_of)
    if not weightings:
        return None
    apart = graph.ancestors(root)
    weightings = [one for w in weightings for one in _each(graph, w, total)]
    sources = [
        graph.ancestors(w.activation, apart=apart) - apart - numbers.keys() for w in weightings
    ]
    matrices = _experts(graph, [[*_uses(usage, nodes)] for nodes in sources], total)
    ahead = _ahead(graph, usage, [w.node for w in weightings], total)
    ahead += _ahead_one_by_one(graph, usage, weightings, total)
    matrices |= {use for use in ahead if use.how is How.MATRIX}
    if not matrices or _gate_features(graph, weightings, ahead, total):
        return None
    nodes = {use.node for use in matrices}
    # Of what stands before a matrix, only the experts' own parts are asked for.
    first = min(use.node for use in matrices | {*ahead})
    before = frozenset[int]().union(*(graph.ancestors(n, after=first - 1) - {n} for n in nodes))
    last = {use for use in matrices if use.node not in before}
    beside = {*_uses(usage, frozenset[int]().union(*sources))}
    vectors = _vectors(graph, beside, nodes, weightings) | {*ahead} - matrices
    ends = _vectors(graph, beside, {use.node for use in last}, weightings)
    ends |= {use for use in {*ahead} - matrices if use.node not in before}
    starts = [use.node for use in last & {*ahead}] or [w.node for w in weightings]
    after, mean = _summed(graph, usage, starts)
    biases = {use.parameter for use in _uses(usage, {*numbers}) if use.how is How.ELEMENTWISE}
    parts = {use.parameter for use in matrices | vectors} | biases | noise | {router.parameter}
    return Mixture(
        router=router.parameter,
        total=total,
        active=min((w.numbers.picked for w in weightings if w.numbers.picked), default=total),
        averaged=mean or any(w.numbers.averaged for w in weightings),
        renormalized=any(w.numbers.renormalized for w in weightings),
        beside=noise | biases,
        matrices=frozenset(use.parameter for use in matrices),
        vectors=frozenset(use.parameter for use in vectors),
        last=frozenset(use.parameter for use in last | ends),
        shared=frozenset(_shared(graph, usage, router, root, parts)),
        scaling=after | weightings[0].numbers.scaling,
        axes={
            use.parameter: axes
            for use in matrices | vectors
            if (axes := _counting(graph, use, total))
        },
    )


def _followed(
    graph: Graph, usage: Usage, start: int, noise_of: Callable[[int], frozenset[str]] | None
) -> tuple[dict[int, _Numbers], list[_Weighting], frozenset[str]]:
    """The nodes that hold a router's numbers, where these multiply an activation, and the
    parameters of noise that is added to them."""
    numbers = {start: _Numbers()}
    noise = set[str]()

    def foreign(node: Node) -> set[int]:
        """What an operation reads beside the router's numbers, but for noise on them."""
        others = {ref.node for ref in node.inputs} - usage.weights - numbers.keys()
        if noise_of is None or node.op != "add" or not others:
            return others
        of_noise = [noise_of(n) for n in others]
        if not all(of_noise):
            return others
        noise.update(*of_noise)
        return set()

    def known(node: Node) -> _Numbers:
        inputs = {ref.node for ref in node.inputs} & numbers.keys()
        return _joined(node, [numbers[n] for n in sorted(inputs)])

    for node in graph.forward(start, lambda this, _: not foreign(this) and _kept(this, numbers)):
        numbers[node.index] = _behind_operation(graph, node, known(node), numbers)
    weightings = []
    ends = {reader for n in numbers for reader in graph.consumers[n]} - numbers.keys()
    for node in (graph.nodes[n] for n in sorted(ends)):
        activation = _weighted(node, numbers, foreign(node))
        if activation is not None and known(node).squashed:
            weighting = _Weighting(node=node.index, activation=activation, numbers=known(node))
            weightings.append(weighting)
    return numbers, weightings, frozenset(noise)


def _joined(node: Node, parts: Sequence[_Numbers]) -> _Numbers:
    """What is known of numbers that an operation puts together."""
    picked = [part.picked for part in parts] or [0]
    if node.op in ("cat", "stack"):  # the first choice, and the second
        number = sum(picked)
    elif node.op in ("add", "sub", "div"):  # less the largest one: that picks none
        number = min(picked)
    else:
        number = max(picked)
    return _Numbers(
        squashed=any(part.squashed for part in parts),
        averaged=any(part.averaged for part in parts),
        renormalized=any(part.renormalized for part in parts),
        picked=number,
        scaling=frozenset[int]().union(*(part.scaling for part in parts)),
    )


def _weighted(node: Node, numbers: Mapping[int, _Numbers], foreign: Collection[int]) -> int | None:
    """The activation that an operation multiplies by the router's numbers."""
    if node.op != "mul" and node.op not in MATRIX_PRODUCTS:
        return None
    at = MATRIX_PRODUCTS.get(node.op, 0)
    factors = [a.node for a in node.args[at : at + 2] if isinstance(a, Ref)]
    if not any(n in numbers for n in factors):  # they only say which rows belong together
        return None
    return next((n for n in factors if n in foreign), None)


def _kept(node: Node, numbers: Mapping[int, _Numbers]) -> bool:
    """Whether what an operation gives is the router's numbers still."""
    if node.op not in _KEEPS_NUMBERS or node.op in ZEROS:
        return False
    first = node.args[0] if node.args else None
    return node.op not in _ROWS or (isinstance(first, Ref) and first.node in numbers)


def _behind_operation(
    graph: Graph, node: Node, known: _Numbers, numbers: Mapping[int, _Numbers]
) -> _Numbers:
    """What is known of the router's numbers behind one more operation."""
    tensors = [a for a in node.args[:2] if isinstance(a, Ref) and a.node in numbers]
    divided = node.op == "div" and len(tensors) == 2
    picked = known.picked
    if node.op == "topk":
        picked = int(node.args[1])
    elif node.op in _PICKS and len(node.args) > 1:
        picked = 1
    averages = node.op in SOFTMAX or divided
    return _Numbers(
        squashed=known.squashed or node.op in _SQUASHES,
        averaged=known.averaged or averages,
        renormalized=known.renormalized or (averages and known.picked > 0),
        picked=picked,
        # What multiplies them before they are normalized does not count.
        scaling=frozenset()
        if averages or not known.squashed
        else known.scaling | ({node.index} & graph.factors.keys()),
    )


def _each(graph: Graph, weighting: _Weighting, total: int) -> list[_Weighting]:
    """A weighting of all experts at once as one for each, where their outputs were stacked."""
    node = graph.nodes[graph.origin(weighting.activation)]
    if node.op not in ("stack", "cat") or len(node.inputs) != total:
        return [weighting]
    return [replace(weighting, activation=ref.node) for ref in node.inputs]


def _ahead(graph: Graph, usage: Usage, starts: Sequence[int], total: int) -> list[Use]:
    """Parameters of experts behind the weighting: what they read was weighted, or what lies
    between their matrices."""

    def counted(node: Node) -> list[Use]:
        return [use for use in usage.at.get(node.index, ()) if _counting(graph, use, total)]

    def weighted(node: Node, held: Container[int]) -> bool:
        parameters = {use.parameter for use in counted(node)}
        return all(
            ref.node in held
            or ref.node in usage.constant
            or usage.derived.get(ref.node) in parameters
            for ref in node.inputs
        )

    return [use for node in graph.forward(starts, weighted) for use in counted(node)]


def _ahead_one_by_one(
    graph: Graph,
    usage: Usage,
    weightings: Sequence[_Weighting],
    total: int,
) -> Iterator[Use]:
    """Parameters of experts that are modules of their own, behind the weighting of what each reads.

    An expert ends where what it gives is added to what another one gives.
    """
    starts = {w.node for w in weightings}
    if not len(weightings) == len(starts) == total:
        return

    def weighted(node: Node, held: Container[int]) -> bool:
        return all(ref.node in held or ref.node in usage.weights for ref in node.inputs)

    for start in sorted(starts):
        for node in graph.forward(start, weighted):
            yield from usage.at.get(node.index, ())


def _gate_features(
    graph: Graph, weightings: Sequence[_Weighting], ahead: Sequence[Use], total: int
) -> bool:
    """Whether numbers gate what one matrix reads, such as the heads of attention, each by its own.

    Nothing selects or averages, and the matrix sums over what is gated as over its other inputs:
    its fan-in grows with the number of gates, which is all that dense rules ask for.
    """
    if any(w.numbers.picked or w.numbers.averaged for w in weightings):
        return False
    return any({*_counting(graph, use, total)} & {*use.fan_in} for use in ahead)


def _summed(graph: Graph, usage: Usage, starts: Sequence[int]) -> tuple[frozenset[int], bool]:
    """The model's own numbers on the sum over experts, and whether it is a mean.

    Every expert's part is multiplied alike: where parts are added, the numbers of one stand for
    those of all.
    """
    numbers: dict[int, frozenset[int]] = {start: frozenset() for start in starts}
    mean, last = False, starts[0]

    def adds(node: Node, held: Container[int]) -> bool:
        passes = node.op in TRANSPARENT | _ADDS or node.index in graph.factors
        return passes and all(ref.node in held or ref.node in usage.constant for ref in node.inputs)

    for node in graph.forward(starts, adds):
        mean |= node.op == "mean"
        first = min({ref.node for ref in node.inputs} - usage.constant)
        numbers[node.index] = numbers[first] | ({node.index} & graph.factors.keys())
        last = node.index
    return numbers[last], mean


def _experts(graph: Graph, sources: Sequence[Sequence[Use]], total: int) -> set[Use]:
    """The matrices of experts among those that made what is weighted.

    Either one tensor holds those of all experts, or every expert is weighted by itself, and is what
    no other one is made of.
    """
    matrices = [{use for use in uses if use.how is How.MATRIX} for uses in sources]
    every, first = set[Use]().union(*matrices), matrices[0]
    counted = {use for use in every if _counting(graph, use, total)}
    if counted or len(matrices) != total:
        return counted
    return every - first.intersection(*matrices)


def _uses(usage: Usage, nodes: Collection[int]) -> Iterator[Use]:
    for node in sorted(set(nodes) & usage.at.keys()):
        yield from usage.at[node]


def _vectors(
    graph: Graph,
    beside: Collection[Use],
    matrices: Collection[int],
    weightings: Sequence[_Weighting],
) -> set[Use]:
    """What acts entry by entry between matrices of experts and the weighting of what they give."""
    nodes = {*matrices}
    for start in matrices:
        for weighting in weightings:
            if start <= weighting.activation:
                nodes |= graph.between(start, weighting.activation)
    return {
        use
        for use in beside
        if (use.how is How.ELEMENTWISE and use.node in nodes)
        # Biases of several experts, of which those of the active ones are looked up.
        or (use.how is How.LOOKUP and nodes & {*graph.consumers[use.node]})
    }


def _counting(graph: Graph, use: Use, total: int) -> tuple[int, ...]:
    """The axes of a parameter that count experts: over which a product repeats, or that are
    sliced or looked up."""
    shape = use.shape(graph)
    if use.how is not How.MATRIX:
        return (0,) if len(shape) > 1 and shape[0] == total else ()
    axes = {*use.batch, *(axis for axis, _ in use.slices)}
    for fan in (use.fan_in, use.fan_out):
        # One product for all of them: they read the same, or what they give is summed.
        axes |= {0} & {*fan} if len(fan) > 1 and len(shape) == 3 else set()
    axes |= {0} - {*use.fan_in, *use.fan_out} if use.picked else set()
    return tuple(sorted(axis for axis in axes if shape[axis] == total))


def _shared(
    graph: Graph, usage: Usage, router: Use, root: int, parts: Collection[str]
) -> Iterator[str]:
    """Parameters beside the experts: of the same branch, behind what the router reads."""
    mine = {index for index, _ in router.branches}
    beside = {
        name: [use.node for use in uses]
        for name, uses in usage.uses.items()
        if mine and uses and all(mine == {index for index, _ in use.branches} for use in uses)
    }
    end = max((node for nodes in beside.values() for node in nodes), default=root)
    behind = {node.index for node in graph.forward(root, lambda this, _: this.index <= end)}
    for name, nodes in beside.items():
        if behind.issuperset(nodes) and name not in parts:
            yield name
