"""Where to look in a model: the modules that show the stream, its branches and attention."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from depthmup.diagnostics.labels import Labels, labels_of
from depthmup.diagnostics.observations import Key, MeasuringPoint, Points
from depthmup.rules import Observable
from depthmup.tracing import (
    ExampleInputs,
    Facts,
    Graph,
    How,
    ModuleCall,
    Product,
    Ref,
    ResidualBranch,
    Residuals,
    Stream,
    onto_modules,
    parameters,
    pattern_of,
    read,
    unwrapped,
)
from depthmup.tracing.operations import TRANSPARENT

FRACTIONS = (0.5, 1.0)
# Keys of all places are changed alike, if at all.
_UNCHANGED = TRANSPARENT | {"repeat", "repeat_interleave"}


def locate(model: nn.Module, inputs: ExampleInputs) -> Points:
    """Find in the dataflow which modules' inputs and outputs are the stream and the branches.

    Branches and points of the stream that no module takes in or gives out cannot be hooked; they
    are named in ``hidden_from_view``.

    Args:
        model: to be read.
        inputs: of one forward pass.

    Returns:
        Where to observe the stream and the branches.

    Example:
        >>> import torch
        >>> from depthmup.models import ResidualMLP
        >>> net = ResidualMLP(inputs=4, width=8, depth=4, outputs=2, multiplier=0.5)
        >>> points = locate(net, torch.zeros(2, 4))
        >>> points.branches, sorted({str(p.key.observable) for p in points.points})
        (4, ['branch output', 'stream'])
    """
    return points_of(read(unwrapped(model), inputs), model)


def stages_of(traced: Facts) -> list[Stream]:
    """The stages of all streams, in order."""
    return [stage for stream in traced.residuals.streams for stage in stream.stages or (stream,)]


def growing_streams(sizes: Sequence[Facts]) -> list[Stream | None]:
    """The stage of all streams that grows most, at every size; None where all grow alike.

    A tower of fixed depth below layers that grow is half of a shallow network, and little of a deep
    one: at half of the depth of both there are different things. So there are where a group has
    more layers than a shallow network has groups.
    """
    stages = [stages_of(of) for of in sizes]
    if not stages[0]:
        return [None] * len(sizes)
    kinds = [dict(enumerate(of)) for of in stages]
    if len({*map(len, stages)}) > 1:
        kinds = [_deepest_of_each_kind(of.residuals) for of in sizes]
    shared = [kind for kind in kinds[0] if all(kind in of for of in kinds)]
    depths = {kind: [of[kind].depth for of in kinds] for kind in shared}
    growth = {kind: max(along) / min(along) for kind, along in depths.items()}
    if len({*growth.values()}) < 2:
        return [None] * len(sizes)
    most = max(growth, key=lambda kind: growth[kind])
    return [of[most] for of in kinds]


def _deepest_of_each_kind(residuals: Residuals) -> dict[Any, Stream]:
    """The deepest of the streams that begin with branches of one pattern."""
    found: dict[Any, Stream] = {}
    for index, stream in enumerate(residuals.streams):
        kind = pattern_of(residuals.first(index).label)
        found[kind] = max(found.get(kind, stream), stream, key=lambda of: of.depth)
    return found


def points_of(
    traced: Facts,
    model: nn.Module,
    main: Stream | None = None,
    apart: frozenset[str] = frozenset(),
) -> Points:
    """The same, from a model's dataflow that was read before; of one of its stages alone."""
    labels = labels_of(model, branches=(b.label for b in traced.residuals.branches), apart=apart)
    branches = [b for b in traced.residuals.branches if not b.parents]
    hidden: list[str] = []
    points: list[MeasuringPoint] = []
    for branch in branches:
        point = _branch_point(traced, branch, labels)
        if point is None:
            hidden.append(labels(branch.label))
        else:
            points.append(replace(point, branch=branch.label))
    main = main or max(traced.residuals.streams, key=lambda s: s.depth, default=None)
    depth = main.depth if main is not None else 0
    if main is not None:
        additions = [traced.residuals.branches[i].addition for i in main.branches]
        for fraction in FRACTIONS:
            label = f"stream at {fraction:g} of depth"
            point = _stream_point(traced, additions, fraction, label)
            if point is None:
                hidden.append(label)
            else:
                points.append(point)
    products = traced.attentions
    queries, keys = (_makers(products, operand) for operand in (0, 1))
    vectors = {n for n, p in parameters(unwrapped(model)).items() if p.ndim == 1}
    undone = traced.undone & vectors
    of_keys = {n for p in products if p.softmax for n in _unturned(traced, p)}
    others = parameters(unwrapped(model)).keys() - traced.centered
    return Points(
        points=tuple(points),
        attention=tuple(a.module for a in products),
        heads=tuple(a.size for a in products),
        branches=depth,
        hidden_from_view=tuple(dict.fromkeys(hidden)),
        queries_and_keys=frozenset(map(labels, queries | keys)),
        keys_biases=frozenset(map(labels, (keys - queries) & vectors)),
        undone=frozenset(map(labels, undone)) - {*map(labels, vectors - undone)},
        keys=frozenset(map(labels, of_keys)),
        centered=frozenset(map(labels, traced.centered)) - {*map(labels, others)},
        apart=apart,
    )


def _makers(products: Sequence[Product], operand: int) -> set[str]:
    """The parameters that make the queries (0), or the keys (1), and nothing else."""
    nearest = (attention.carriers[operand].parameters[:1] for attention in products)
    return {name for placements in nearest for p in placements for name in p.parameters}


def _unturned(traced: Facts, product: Product) -> frozenset[str]:
    """The parameters of keys that no norm and no rotation by their place changes."""
    graph, uses = traced.graph, [u for of in traced.uses.values() for u in of]
    for made in product.carriers[1].parameters[:1]:
        beyond = {ref.node for ref in made.scaled} - {node for _, node in made.uses}
        if all(graph.nodes[n].op in _UNCHANGED or n in graph.factors for n in beyond):
            matrices = {u.parameter for u in uses if u.how is How.MATRIX}
            return made.parameters & matrices
    return frozenset()


def _branch_point(traced: Facts, branch: ResidualBranch, labels: Labels) -> MeasuringPoint | None:
    """The module whose output is the branch, up to constants; or one that adds it to the stream."""
    graph, usage = traced.graph, traced.usage
    output = Ref(branch.output)
    for placement in onto_modules(graph, usage, output, branch.addition, after=branch.origin):
        if len(placement.calls) != 1:
            continue
        hook, (call, index) = placement.hooks[0], next(iter(placement.calls))
        scaled = frozenset(ref.node for ref in placement.scaled)
        if not _is_resized(traced, scaled - {call.outputs[index].node}):
            key = Key(observable=Observable.BRANCH, module=labels(hook.module))
            return MeasuringPoint(
                key=key,
                module=hook.module,
                side="output",
                index=hook.index,
                scale=placement.scale,
                call=_nth(graph, call),
            )
    # x + f(x) where f has no module of its own: what the module that adds gives, less its input.
    for call in graph.calls:
        into = [i for i, ref in enumerate(call.inputs) if ref.node == branch.stream]
        out = [i for i, ref in enumerate(call.outputs) if ref.node == branch.addition]
        if into and out and call.name:
            key = Key(observable=Observable.BRANCH, module=labels(call.name))
            return MeasuringPoint(
                key=key,
                module=call.name,
                side="difference",
                index=out[0],
                subtracted=into[0],
                call=_nth(graph, call),
            )
    return None


def _nth(graph: Graph, call: ModuleCall) -> int:
    """Which of a module's calls this is, in the order in which they end."""
    return [other for other in graph.calls if other.name == call.name].index(call)


def _is_resized(traced: Facts, nodes: frozenset[int]) -> bool:
    """Whether parameters, or other activations, change the size of what passes these nodes.

    A multiplier may go past them, but what is seen before them is not what is added.
    """
    for index in nodes:
        varied = [
            ref.node
            for ref in traced.graph.nodes[index].inputs
            if ref.node not in traced.usage.constant and ref.node not in nodes
        ]
        beside = [node for node in varied if node in traced.usage.derived]
        if beside or len(varied) > 1:
            return True
    return False


def _stream_point(
    traced: Facts, additions: list[int], fraction: float, label: str
) -> MeasuringPoint | None:
    """The module that takes in, or gives out, the stream there or (if none does) just before."""
    # Where no module shows the stream at the very addition, the one before is as good: it differs
    # by one branch in L.
    last = max(round(fraction * len(additions)), 1)
    key = Key(observable=Observable.STREAM, module=label)
    for addition in reversed(additions[max(last - 2, 0) : last]):
        for call in traced.graph.calls:
            if not call.name:
                continue
            for side, refs in (("input", call.inputs), ("output", call.outputs)):
                for index, ref in enumerate(refs):
                    if ref.node == addition:
                        return MeasuringPoint(
                            key=key,
                            module=call.name,
                            side=side,
                            index=index,
                            call=_nth(traced.graph, call),
                        )
    return None
