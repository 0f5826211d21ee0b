"""Residual branches, found in the dataflow: where something is added to what it was made from."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import (
    ADDITIONS,
    CUTS,
    NONLINEAR,
    NORMALIZING,
    POOLED,
    TRANSPARENT,
    ZEROS,
)
from depthmup.tracing.parameter_uses import How, Usage

# Shapes, masks and copies between a bias on logits and the softmax.
_MASKS = 6


@dataclass(frozen=True, kw_only=True)
class ResidualBranch:
    """One residual addition: ``addition = stream + output``, output made from ``origin``.

    ``origin`` is the point of the stream that the branch reads (the stream's operand itself, or
    an earlier point of it in parallel blocks). ``path`` are the nodes from there to ``output``;
    ``feeders`` those that only feed the path from the side (projections of an encoder's output,
    tables of relative positions). ``parents`` are the branches this one lies inside, by index.
    ``scale`` is the number by which the stream is multiplied between ``origin`` and the addition:
    ``scale * x + f(x)`` is ``scale`` times what a branch with the multiplier ``1 / scale`` gives.
    ``forgets``: it takes away from the stream what it replaces, as in x + t (f(x) - x).
    ``evaluations`` are the branches that evaluate the same function for the same step, at other
    points (Runge-Kutta): they are multiplied alike, and lie in none of each other.
    """

    index: int
    addition: int
    stream: int
    output: int
    origin: int
    label: str = ""
    path: frozenset[int] = field(default=frozenset(), repr=False)
    feeders: frozenset[int] = field(default=frozenset(), repr=False)
    parents: tuple[int, ...] = ()
    evaluations: tuple[int, ...] = ()
    scale: float = 1.0
    forgets: bool = False

    @property
    def nth(self) -> int:
        """Which evaluation of its step this is, from 0."""
        return sum(other < self.index for other in self.evaluations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """Consecutive residual additions, and how many of them lie on the longest path.

    ``normalized``: a norm stands on the stream between its additions (post-norm). ``factor`` is the
    number other than 1 by which the stream itself is multiplied from one addition to the next.
    ``stages`` are the parts that a matrix on the stream (or a norm, a whole network beside it)
    sets apart, where there are several.
    """

    branches: tuple[int, ...]
    depth: int
    normalized: bool
    factor: float = 1.0
    stages: tuple["Stream", ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Residuals:
    """All residual branches of a model, and the streams they make up.

    Attributes:
        branches: of the forward pass, in order.
        streams: chains of additions, each with its branches.
    """

    branches: tuple[ResidualBranch, ...]
    streams: tuple[Stream, ...]

    def stream_of(self, branch: int) -> int:
        return next(i for i, s in enumerate(self.streams) if branch in s.branches)

    def first(self, stream: int) -> ResidualBranch:
        """The first branch that is added to a stream."""
        return self.branches[self.streams[stream].branches[0]]

    def level(self, branch: int) -> int:
        """How many branches this one lies inside."""
        return len(self.branches[branch].parents)

    def chain(self, branch: int) -> tuple[ResidualBranch, ...]:
        """The branches that this one lies inside, outermost first, and itself."""
        outer = sorted(self.branches[branch].parents, key=self.level)
        return tuple(self.branches[index] for index in (*outer, branch))


def find_branches(graph: Graph, usage: Usage) -> Residuals:
    """Every residual addition of the traced model.

    An ``add`` of two tensors is one when an operand (the stream) is an ancestor of the other (the
    branch's output) and the path between them uses parameters; when the stream's operand is itself
    a residual addition and the branch reads an earlier point of the same stream (parallel
    blocks); or when both were made from a common ancestor, one by a single projection to
    another shape and the other by several matrices with a nonlinearity between (the projection
    shortcut of residual convolutional networks).

    Args:
        graph: of the traced model.
        usage: which operations use which parameters.

    Returns:
        The additions, in the order of the dataflow.

    Example:
        >>> import torch
        >>> from depthmup.tracing.trace import trace
        >>> from depthmup.tracing.parameter_uses import find_uses
        >>> class Block(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return x + super().forward(x).relu()
        >>> model = torch.nn.Sequential(Block(4, 4), Block(4, 4))
        >>> graph = trace(model, torch.zeros(2, 4))
        >>> [branch.label for branch in find_branches(graph, find_uses(graph)).branches]
        ['0', '1']
    """
    finder = _Finder(graph, usage)
    additions: list[ResidualBranch] = []
    streams: dict[int, int] = {}  # addition -> its stream operand
    for node in graph.nodes:
        if node.op not in ADDITIONS or len(node.args) < 2 or _of_logits(graph, node.index):
            continue
        left, right = node.args[0], node.args[1]
        if not (isinstance(left, Ref) and isinstance(right, Ref)) or left.node == right.node:
            continue
        match = finder.residual(node, left.node, right.node, streams)
        if match is not None:
            streams[node.index] = match.stream
            additions.append(match)
    return _assemble(graph, usage, additions)


def _of_logits(graph: Graph, node: int) -> bool:
    """Whether a sum is only a softmax's to read, but for masks: a bias of positions on logits.

    One that all layers share lies before each, and is made from a layer's stream by none.
    """

    def passes(this: Node, _: object) -> bool:
        return "softmax" in this.op or this.op in TRANSPARENT | {"add", "where", "masked_fill"}

    behind = islice(graph.forward(node, passes, alone=True), _MASKS)
    return any("softmax" in this.op for this in behind)


class _Finder:
    """Decides of one addition whether it is residual."""

    def __init__(self, graph: Graph, usage: Usage) -> None:
        self.graph = graph
        self.used_at: dict[int, list[How]] = {}
        for uses in usage.uses.values():
            for use in uses:
                self.used_at.setdefault(use.node, []).append(use.how)
        self.constant, self.derived = usage.constant, usage.derived
        self.ignored = usage.weights
        # Sums that weigh two points of one stream, and the later of these.
        self.weighted: dict[int, int] = {}

    def residual(
        self, addition: Node, left: int, right: int, streams: Mapping[int, int]
    ) -> ResidualBranch | None:
        """The addition, if it adds the output of a branch to the stream that the branch reads."""
        # Either operand may be the stream; written x + f(x), it is the left one. What is taken
        # away, as in f(x) - x, is none.
        for stream, output in ((left, right), (right, left))[: 1 if addition.op == "sub" else 2]:
            if output in self.ignored or self.graph.nodes[stream].shape != addition.shape:
                continue
            if stream in self.ignored and not self.begins(stream):
                continue
            if self.gained(output) in streams:  # the stream itself, with a gain: no branch
                continue
            for origin, scale in self._points(stream, streams):
                if origin <= output and self.graph.descends(output, origin):
                    path = self.graph.between(origin, output)
                    # Without parameters it is no branch: x + dropout(x), or a mean that is added;
                    # nor with a gain alone: a * x + b * x0 weighs two points of one stream.
                    if not any(node in self.used_at for node in path):
                        break
                    if self.gains_only(path):
                        self.weighted[addition.index] = stream
                        return None
                    # x + (x + f(x)) weighs two points of one stream as well.
                    if output in streams and stream in dict(self._points(output, streams)):
                        self.weighted[addition.index] = output
                        return None
                    if stream not in streams and self._reads(origin, path, streams):
                        break
                    if self._of_another(output, path | {origin}, streams):
                        break
                    return ResidualBranch(
                        index=len(streams),
                        addition=addition.index,
                        stream=stream,
                        output=output,
                        origin=origin,
                        path=frozenset(path),
                        scale=scale,
                    )
        if {left, right} & self.ignored:
            return None
        return self._projection(addition, left, right, streams)

    def begins(self, node: int) -> bool:
        """Whether a stream may begin with a tensor that no input made.

        With zeros; with a learned token that is added once. What is added again and again is a
        table of positions.
        """
        if node in self.constant:
            return self.graph.nodes[self.graph.origin(node)].op in ZEROS
        name = self.derived.get(node)
        additions = [
            reader
            for index, parameter in self.derived.items()
            if parameter == name
            for reader in self.graph.consumers[index]
            if self.graph.nodes[reader].op in ADDITIONS and reader not in self.ignored
        ]
        return len(additions) == 1

    def _points(self, stream: int, streams: Mapping[int, int]) -> Iterable[tuple[int, float]]:
        """The stream's operand, and what the stream was before each step that made it.

        Steps are residual additions, operations that leave the values alone (a copy before an
        in-place addition), sums that weigh it with an earlier point, multiplications by gains, and
        those by numbers, whose product comes with each point.
        """
        scale = 1.0
        yield stream, scale
        while True:
            if stream in streams:
                stream = streams[stream]
            elif stream in self.weighted:
                stream = self.weighted[stream]
            elif stream in self.ignored:
                return
            else:
                number, before = _step_back(self.graph, stream)
                if before is None:
                    before = self.gained(stream)
                if before is None:
                    before = self.shifted(stream)
                if before is None:
                    return
                scale *= number
                stream = before
            yield stream, scale

    def _reads(self, origin: int, path: set[int], streams: Mapping[int, int]) -> bool:
        """Whether a matrix made a tensor from a stream that the path from it joins again.

        The values of the first layer, which later layers add to their own, are no stream: what
        they gave to it is only one term of what later values are made of.
        """
        *_, source = self.graph.back(origin, TRANSPARENT | CUTS)
        joins = (streams[a] for a in path & streams.keys())
        return bool(self._is_matrix(source.index)) and any(
            stream not in path | {origin} and self.graph.descends(source.index, stream)
            for stream in joins
        )

    def _of_another(self, output: int, path: set[int], streams: Mapping[int, int]) -> bool:
        """Whether an output is itself a stream, which comes from elsewhere: two streams in a sum.

        At the end of a reversible network, whose streams are added to each other's branches.
        """
        while output in streams and output in path:
            output = streams[output]
        return output not in path

    def gains_only(self, path: Iterable[int]) -> bool:
        """Whether nothing happens along a path but multiplication by gains and numbers."""
        return all(
            self.gained(node) is not None or _step_back(self.graph, node)[1] is not None
            for node in path
        )

    def gained(self, node: int) -> int | None:
        """What a learned gain of one number, or one for each coordinate, multiplies."""
        shape = self.graph.nodes[node].shape
        return self._beside(node, "mul", (1, *shape[-1:], *shape[1:2]))

    def shifted(self, node: int) -> int | None:
        """What a learned vector is added to, one number for each coordinate."""
        return self._beside(node, "add", self.graph.nodes[node].shape[-1:])

    def _beside(self, node: int, op: str, entries: Sequence[int]) -> int | None:
        """What stands beside the one learned input, of so many numbers, of an operation."""
        this = self.graph.nodes[node]
        learned = [r for r in this.inputs if r.node in self.derived]
        others = [r.node for r in this.inputs if r.node not in self.ignored]
        if this.op != op or len(learned) != 1 or len(others) != 1:
            return None
        return others[0] if math.prod(self.graph.shape(learned[0])) in entries else None

    def _projection(
        self, addition: Node, left: int, right: int, streams: Mapping[int, int]
    ) -> ResidualBranch | None:
        graph = self.graph
        for shortcut, output in ((left, right), (right, left))[: 1 if addition.op == "sub" else 2]:
            # Walk the shortcut back through one projection: it must be a plain chain.
            chain, node, matrices = [], shortcut, 0
            while (back := self._activation(node)) is not None or matrices == 0:
                chain.append(node)
                matrices += self._is_matrix(node)
                if back is None or graph.nodes[node].op in NONLINEAR or matrices > 1:
                    matrices = 0 if back is None else matrices
                    break
                node = back
                if matrices == 1 and graph.descends(output, node):
                    break
            if matrices != 1 or not graph.descends(output, node) or node in chain:
                continue
            # A projection to the same shape is a second branch, not a shortcut.
            if graph.nodes[node].shape == graph.nodes[shortcut].shape:
                continue
            if node not in self._behind_a_matrix:  # what is put in is no stream yet
                continue
            path = graph.between(node, output)
            if self._modulates(path, chain, node, streams):
                continue
            # The stage of a pyramid, whose layers add to a stream of their own, is no branch.
            if any(graph.nodes[a].module != addition.module for a in path & streams.keys()):
                continue
            # One matrix on each side is a sum of two projections: neither is the branch.
            in_series = self._in_series(path)
            nonlinear = any(graph.nodes[i].op in NONLINEAR for i in path)
            if in_series >= 2 and nonlinear:
                return ResidualBranch(
                    index=len(streams),
                    addition=addition.index,
                    stream=shortcut,
                    output=output,
                    origin=node,
                    path=frozenset(path),
                )
        return None

    def _modulates(
        self, path: set[int], shortcut: list[int], source: int, streams: Mapping[int, int]
    ) -> bool:
        """Whether a shortcut only shifts a stream (FiLM): its source is no point of that stream.

        The same matrix gives the shift and the gain, or the path from the source joins a stream
        that does not come from it.
        """
        joins = (a for a in path & streams.keys() if streams[a] not in path | {source})
        return bool(path & set(shortcut)) or any(joins)

    @cached_property
    def _behind_a_matrix(self) -> set[int]:
        """Matrix products and lookups, and all that was made from what they gave."""
        starts = {n for n, hows in self.used_at.items() if {How.MATRIX, How.LOOKUP} & {*hows}}
        return self.graph.downstream(starts)

    def _is_matrix(self, node: int) -> int:
        return int(How.MATRIX in self.used_at.get(node, ()))

    def _activation(self, node: int) -> int | None:
        """The one operand that is neither a parameter nor a constant."""
        sources = {ref.node for ref in self.graph.nodes[node].inputs} - self.ignored
        return sources.pop() if len(sources) == 1 else None

    def _in_series(self, path: set[int]) -> int:
        longest: dict[int, int] = {}
        for node in sorted(path):
            before = [longest[r.node] for r in self.graph.nodes[node].inputs if r.node in longest]
            longest[node] = max(before, default=0) + self._is_matrix(node)
        return max(longest.values(), default=0)


def _step_back(graph: Graph, node: int) -> tuple[float, int | None]:
    """What a tensor was before a number multiplied it, or its place alone changed; and by what."""
    this = graph.nodes[node]
    thinned = this.op == "slice" and len(this.args) > 4 and this.args[4] != 1
    if (thinned or this.op in TRANSPARENT | POOLED) and this.inputs:
        return 1.0, this.inputs[0].node
    if this.op == "cat":  # beside zeros
        tensors = [r for r in this.inputs if graph.nodes[graph.origin(r.node)].op not in ZEROS]
        return 1.0, tensors[0].node if len(tensors) == 1 else None
    tensors = [a for a in this.args[:2] if isinstance(a, Ref) and graph.number(a) is None]
    if node in graph.factors:
        return graph.factors[node], tensors[0].node
    # Python's sum starts from the number 0.
    if this.op == "add" and len(tensors) == 1 and 0 in this.args[:2]:
        return 1.0, tensors[0].node
    return 1.0, None


def _assemble(graph: Graph, usage: Usage, additions: list[ResidualBranch]) -> Residuals:
    """The branches of additions, completed by what only all of them together show."""
    inside = [
        tuple(b.index for b in additions if b is not a and _nested(graph, usage, a, b, additions))
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
    for b in additions:
        others = {
            a.addition for a in additions if a.addition in b.path and b.index not in inside[a.index]
        }
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
    if not begins and inner.origin in usage.weights:
        elsewhere = graph.downstream([inner.addition]) - graph.downstream([outer.addition])
        begins = elsewhere <= outer.path | {outer.output, outer.addition}
    goes_on = any(
        a.origin == inner.addition and a.addition not in outer.path and a is not outer
        for a in additions
    )
    return begins and not goes_on


def _evaluates(
    usage: Usage, inner: ResidualBranch, outer: ResidualBranch, additions: Sequence[ResidualBranch]
) -> bool:
    """Whether ``inner`` adds up the point at which a step's function is evaluated once more.

    Both leave the same point of the stream, with the same weights, and no stream goes on from
    the inner one: y + h f(y + h/2 f(y)).
    """

    def weights(nodes: frozenset[int]) -> set[str]:
        return {u.parameter for uses in usage.uses.values() for u in uses if u.node in nodes}

    if inner.stream != outer.stream or any(a.stream == inner.addition for a in additions):
        return False
    return weights(inner.path) <= weights(outer.path - inner.path)


def _label(graph: Graph, usage: Usage, path: frozenset[int], output: int) -> str:
    """The common prefix of the modules whose parameters the branch uses, or of its parameters."""
    names = [
        use.parameter.rsplit(".", 1)[0] if "." in use.parameter else ""
        for uses in usage.uses.values()
        for use in uses
        if use.node in path and use.how is How.MATRIX
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
        number, before = _doubled(graph, node, by_addition) or _step_back(graph, node)
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
