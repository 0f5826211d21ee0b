"""Streams: what residual additions make up together, and what only all of them show of each."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import NORMALIZING, POOLED, SAME, TRANSPARENT, ZEROS
from depthmup.tracing.parameter_uses import How, Usage, alpha_of
from depthmup.tracing.residuals import ResidualBranch, Residuals, Stream


def assembled(graph: Graph, usage: Usage, additions: list[ResidualBranch]) -> Residuals:
    """The branches of additions, completed by what only all of them together show."""
    own = [a for a in additions if not _is_a_term(graph, usage, a, additions)]
    additions = [replace(a, index=index) for index, a in enumerate(own)]
    at: dict[int, list[ResidualBranch]] = {}
    for a in additions:
        at.setdefault(a.addition, []).append(a)
    # Few additions lie on the path of another: of all pairs there are as many as layers squared.
    on_path = [[a for node in at.keys() & b.path for a in at[node]] for b in additions]
    around: dict[int, list[ResidualBranch]] = {}
    for b, on in zip(additions, on_path, strict=True):
        for a in on:
            around.setdefault(a.index, []).append(b)
    inside = [
        tuple(
            b.index
            for b in around.get(a.index, ())
            if b is not a and _nested(graph, usage, a, b, additions)
        )
        for a in additions
    ]
    # Points at which a step evaluates its function again are no streams inside the step.
    points = [
        {j for j in around if _evaluates(usage, additions[i], additions[j], additions)}
        for i, around in enumerate(inside)
    ]
    inside = [tuple(j for j in around if j not in points[i]) for i, around in enumerate(inside)]
    steps = [
        of | {j for j, other in enumerate(points) if i in other} for i, of in enumerate(points)
    ]
    # What another stream gives a branch to read is not the branch's own.
    paths = []
    for b, on in zip(additions, on_path, strict=True):
        others = {a.addition for a in on if b.index not in inside[a.index]}
        paths.append(_own_path(graph, b.path, b.output, others))
    # Streams and what happens inside branches are not feeders of another branch.
    begun = usage.weights.union(*({a.addition, a.stream, a.origin} for a in additions))
    begun_or_inside = begun.union(*paths)
    # What a branch reads from the side (a mask's network, a condition) is made outside of every
    # stream: the walk goes back to the inputs, and stops where a stream or another branch begins.
    branches = []
    for branch, path, parents in zip(additions, paths, inside, strict=True):
        apart = begun if parents else begun_or_inside
        feeding = graph.back(path, partial(_feeding, graph, apart, path))
        branches.append(
            replace(
                branch,
                forgets=_forgets(graph, branch.stream, branch.output),
                label=_label(graph, usage, path, branch.output),
                path=path,
                feeders=frozenset({node.index for node in feeding} - path),
                parents=parents,
                evaluations=tuple(sorted(steps[branch.index])),
            )
        )
    return Residuals(branches=tuple(branches), streams=_streams(graph, branches))


def _forgets(graph: Graph, stream: int, output: int) -> bool:
    """Whether an output is, but for gains and gates, something less the stream."""

    def multiplied(node: Node) -> Iterator[int]:
        if node.op in TRANSPARENT | {"mul", "div"}:
            yield from (ref.node for ref in node.inputs)

    less = (node.args[1] for node in graph.back(output, multiplied) if node.op == "sub")
    origin = graph.origin(stream)
    return any(isinstance(ref, Ref) and graph.origin(ref.node) == origin for ref in less)


def _feeding(
    graph: Graph, apart: Container[int], path: Container[int], node: Node
) -> Iterator[int]:
    """What a node is made from that is neither apart, nor on a path, nor put in."""
    for ref in node.inputs:
        outside = ref.node not in apart and ref.node not in path
        if outside and graph.nodes[ref.node].op != "input":
            yield ref.node


def _own_path(graph: Graph, path: frozenset[int], output: int, others: set[int]) -> frozenset[int]:
    """The part of a path behind the additions of other streams."""
    if not others - {output}:
        return path
    mine = path - others
    own = graph.back(output, lambda node: {ref.node for ref in node.inputs} & mine)
    return frozenset(node.index for node in own)


def _nested(
    graph: Graph,
    usage: Usage,
    inner: ResidualBranch,
    outer: ResidualBranch,
    additions: Iterable[ResidualBranch],
) -> bool:
    """Whether one addition belongs to a stream inside of the branch of another.

    In reversible networks a branch of one stream reads another stream: that passes through the
    branch, but neither begins nor ends in it. A stream that begins with a learned token lies in the
    branch that alone reads it, as inducing points that collect what the branch attends to.
    """
    if inner.addition not in outer.path:
        return False
    begins = inner.origin in outer.path or inner.origin == outer.origin
    if not begins and (
        inner.origin in usage.weights or _of_a_network(graph, inner, outer, additions)
    ):
        elsewhere = graph.downstream([inner.addition]) - graph.downstream([outer.addition])
        begins = elsewhere - usage.weights <= outer.path | {outer.output, outer.addition}
    goes_on = any(
        a.origin == inner.addition and a.addition not in outer.path and a is not outer
        for a in additions
    )
    return begins and not goes_on and not _returned_beside(graph, inner, outer)


def _of_a_network(
    graph: Graph,
    inner: ResidualBranch,
    outer: ResidualBranch,
    additions: Iterable[ResidualBranch],
) -> bool:
    """Whether a stream from the side is one of several in the network that a branch consists of.

    The edges of a graph beside its nodes, where the answer is added to what was put in.
    """
    if graph.nodes[graph.origin(outer.origin)].op != "input":
        return False
    others = [a for a in additions if a is not inner]
    before = any(a.addition == inner.stream and a.addition not in outer.path for a in others)
    behind = any(a.stream == inner.addition and a.addition not in outer.path for a in others)
    network = any(
        outer.path >= {a.origin, a.addition} and a.origin != inner.addition for a in others
    )
    return network and not before and not behind


def _returned_beside(graph: Graph, inner: ResidualBranch, outer: ResidualBranch) -> bool:
    """Whether a stream ends in an output of the model that another's addition is no part of.

    Streams that read each other (sequences and pairs) end in heads of their own.
    """
    if len(graph.outputs) < 2:
        return False
    elsewhere = graph.downstream([inner.addition]) - graph.downstream([outer.addition])
    return any(ref.node in elsewhere for ref in graph.outputs)


def _is_a_term(
    graph: Graph, usage: Usage, sum_: ResidualBranch, additions: Sequence[ResidualBranch]
) -> bool:
    """Whether what is put in is added once more, inside of a branch alone: h + tanh(W h + u).

    Made from u as well, h is no branch of it: nothing goes on from their sum. Nor does anything
    from x + W y, where y was made from an earlier point of x, in x + tanh(x + W y).
    """
    behind = graph.downstream([sum_.addition])
    if sum_.origin != sum_.stream and any(
        sum_.stream == a.stream
        and sum_.addition in a.path
        and behind - graph.downstream([a.addition]) <= a.path | {a.addition}
        for a in additions
    ):
        return True
    streams = {a.stream for a in additions}
    points = {a.addition for a in additions}
    if sum_.origin in usage.weights or sum_.addition in streams or sum_.stream in points:
        return False
    return any(
        sum_.addition in a.path
        and sum_.origin not in a.path | {a.origin}
        and behind - graph.downstream([a.addition]) <= a.path | {a.addition}
        for a in additions
    )


def _evaluates(
    usage: Usage, inner: ResidualBranch, outer: ResidualBranch, additions: Sequence[ResidualBranch]
) -> bool:
    """Whether ``inner`` adds up the point at which a step's function is evaluated once more.

    Both leave the same point of the stream, with the same weights, and no stream goes on from
    the inner one: y + h f(y + h/2 f(y)).
    """

    def weights(nodes: frozenset[int]) -> set[str]:
        return {use.parameter for node in nodes for use in usage.at.get(node, ())}

    if inner.stream != outer.stream or any(a.stream == inner.addition for a in additions):
        return False
    return weights(inner.path) <= weights(outer.path - inner.path)


def _label(graph: Graph, usage: Usage, path: frozenset[int], output: int) -> str:
    """The common prefix of the modules whose parameters the branch uses, or of its parameters."""
    names = [
        use.parameter.rsplit(".", 1)[0] if "." in use.parameter else ""
        for node in path
        for use in usage.at.get(node, ())
        if use.how is How.MATRIX
    ] or [graph.nodes[output].module]
    common = names[0].split(".")
    for name in names[1:]:
        parts = name.split(".")
        keep = 0
        while keep < min(len(common), len(parts)) and common[keep] == parts[keep]:
            keep += 1
        common = common[:keep]
    return ".".join(common) or graph.nodes[output].module or "model"


def _doubled(
    graph: Graph, node: int, by_addition: Mapping[int, ResidualBranch]
) -> tuple[float, int] | None:
    """The addition x + f(x) of a sum x + (x + f(x)), in which the stream counts twice."""
    this = graph.nodes[node]
    operands = {ref.node for ref in this.inputs} if this.op == "add" else set()
    for last in operands & by_addition.keys():
        if by_addition[last].stream in operands:
            return 2.0, last
    return None


def _factor(
    graph: Graph, branch: ResidualBranch, by_addition: Mapping[int, ResidualBranch]
) -> float:
    """By what the stream is multiplied since the addition before, if nothing else happens to it."""
    node, product = branch.stream, 1.0
    while node not in by_addition:
        number, before = _doubled(graph, node, by_addition) or step_back(graph, node)
        if before is None:
            return 1.0
        node, product = before, product * number
    return product


def up_to(ends: Container[int], within: Sequence[Container[int]], node: Node) -> Iterator[int]:
    """What a node that is no end is made from, as far as it lies within all paths."""
    for ref in node.inputs if node.index not in ends else ():
        if all(ref.node in path for path in within):
            yield ref.node


def _up_to_additions(
    graph: Graph,
    ends: Container[int],
    within: Sequence[Container[int]],
    by_addition: Mapping[int, ResidualBranch],
    node: Node,
) -> Iterator[int]:
    """As ``up_to``; of x + (x + f(x)) the later point of the stream alone."""
    doubled = _doubled(graph, node.index, by_addition)
    yield from up_to(ends, within, node) if doubled is None else (doubled[1],)


def _streams(graph: Graph, branches: list[ResidualBranch]) -> tuple[Stream, ...]:
    by_addition = {branch.addition: branch for branch in branches}
    siblings: dict[tuple[int, ...], dict[int, int]] = {}  # parents -> addition -> branch
    for branch in branches:
        siblings.setdefault(branch.parents, {})[branch.addition] = branch.index
    depth: dict[int, int] = {}
    group: dict[int, int] = {}
    links: dict[int, dict[tuple[int, ...], bool]] = {}  # additions that follow the same, once
    # Back from each addition to those before it on the same stream. Where an addition follows
    # several, their streams are one.
    for branch in branches:
        ends = siblings[branch.parents]
        # A branch inside another starts where that other starts.
        within = [branches[parent].path for parent in branch.parents]
        back = partial(_up_to_additions, graph, ends, within, by_addition)
        reached = [*graph.back(branch.stream, back)]
        before = [ends[node.index] for node in reached if node.index in ends]
        normalized = any(node.op in NORMALIZING for node in reached if node.index not in ends)
        depth[branch.index] = 1 + max((depth[i] for i in before), default=0)
        # Evaluations for one step are on its stream, wherever that begins.
        joined = [*before, *(i for i in branch.evaluations if i in group)]
        group[branch.index] = group[joined[0]] if joined else branch.index
        for i in joined[1:]:
            merged, merged_into = group[i], group[branch.index]
            group.update({k: merged_into for k, v in group.items() if v == merged})
            if merged != merged_into:
                links[merged_into] = links.get(merged_into, {}) | links.pop(merged, {})
        if before:
            links.setdefault(group[branch.index], {})[tuple(before)] = normalized
    members: dict[int, list[int]] = {}
    for index, root in group.items():
        members.setdefault(root, []).append(index)
    return tuple(
        Stream(
            branches=tuple(sorted(indices)),
            depth=max(depth[i] for i in indices),
            # Half: a stage of a convolutional network may begin with one norm of its own.
            normalized=2 * sum(links.get(root, {}).values()) > len(links.get(root, {})),
            factor=next(
                (k for i in indices if (k := _factor(graph, branches[i], by_addition)) != 1), 1
            ),
        )
        for root, indices in members.items()
    )


def step_back(graph: Graph, node: int) -> tuple[float, int | None]:
    """What a tensor was before a number multiplied it, or its place alone changed; and by what."""
    this = graph.nodes[node]
    thinned = this.op == "slice" and len(this.args) > 4 and this.args[4] != 1
    if (thinned or this.op in TRANSPARENT | POOLED) and this.inputs:
        return 1.0, this.inputs[0].node
    tensors = [a for a in this.args[:2] if isinstance(a, Ref) and graph.number(a) is None]
    if node in graph.factors:
        return graph.factors[node], tensors[0].node
    if this.op == "cat":
        tensors = list(this.inputs)
    elif this.op != "add" or not all(a == 0 for a in this.args[:2] if a not in tensors):
        return 1.0, None
    # Beside zeros, or the number 0 from which Python's sum starts.
    made = [t for t in tensors if graph.nodes[graph.origin(t.node)].op not in ZEROS]
    if len(made) == 1:
        return 1.0, made[0].node
    # x + x: at the turning point of a U, where the last that is kept meets itself.
    same = {[*graph.back(t.node, SAME)][-1].index for t in made}
    if this.op == "add" and len(same) == 1:
        return 1.0 + alpha_of(this), same.pop()
    return 1.0, None
