"""Residual branches, found in the dataflow: where something is added to what it was made from."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

from depthmup.tracing.graph import Graph, Node, Ref
from depthmup.tracing.operations import ADDITIONS, CUTS, NONLINEAR, TRANSPARENT, ZEROS
from depthmup.tracing.parameter_uses import How, Usage
from depthmup.tracing.residuals import ResidualBranch, Residuals
from depthmup.tracing.streams import assembled, step_back

# Shapes, masks and copies between a bias on logits and the softmax.
_MASKS = 6


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
    return replace(assembled(graph, usage, additions), skips=tuple(finder.skips))


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
        self.graph, self.usage = graph, usage
        self.matrices, self.lookups = usage.nodes(How.MATRIX), usage.nodes(How.LOOKUP)
        self.constant, self.derived = usage.constant, usage.derived
        self.ignored = usage.weights
        # Sums that weigh two points of one stream, and the later of these.
        self.weighted: dict[int, int] = {}
        self.skips: list[int] = []  # of these, those without a gain

    def residual(
        self, addition: Node, left: int, right: int, streams: Mapping[int, int]
    ) -> ResidualBranch | None:
        """The addition, if it adds the output of a branch to the stream that the branch reads."""
        if addition.op == "sub" and self._interpolates(addition.index, right):
            return None
        later, skips = self._weighs(addition, left, right, streams)
        if later is not None:
            self.weighted[addition.index] = later
            if skips and self.gained(left) is None and self.gained(right) is None:
                self.skips.append(addition.index)
            return None
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
                    # Without parameters it is no branch: a mean that is added.
                    if not any(node in self.usage.at for node in path):
                        break
                    if origin == stream and not self._same_part(addition, origin, path):
                        break
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

    def _same_part(self, addition: Node, origin: int, path: set[int]) -> bool:
        """Whether a branch reads what it is added to, of the tensors that ``unbind`` gives.

        The input of a recurrent layer's step, to which it adds what it made of earlier inputs, is
        no stream.
        """
        if self.graph.nodes[origin].op != "unbind":
            return True
        added = {ref.output for ref in addition.inputs if ref.node == origin}
        readers = (ref for n in path for ref in self.graph.nodes[n].inputs if ref.node == origin)
        return any(ref.output in added for ref in readers)

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
                number, before = self._multiplied(stream)
                if before is None:
                    before = self.shifted(stream)
                if before is None:
                    return
                scale *= number
                stream = before
            yield stream, scale

    def _interpolates(self, difference: int, taken: int) -> bool:
        """Whether what is taken from a tensor comes back beside a gated difference: f + z (x - f).

        That is a step of a GRU: a gate on the stream, and none that things are added to.
        """
        nodes, origin = self.graph.nodes, self.graph.origin
        gated = [
            n
            for n in self.graph.consumers[difference]
            if nodes[n].op == "mul" and not self.ignored & {ref.node for ref in nodes[n].inputs}
        ]
        behind = [nodes[n] for g in gated for n in self.graph.consumers[g] if nodes[n].op == "add"]
        return any(origin(taken) == origin(ref.node) for add in behind for ref in add.inputs)

    def _weighs(
        self, addition: Node, left: int, right: int, streams: Mapping[int, int]
    ) -> tuple[int | None, bool]:
        """The later of two points of one stream, if a sum weighs them; and if branches are between.

        a x + b x0, and x + (x + f(x)); both with gains or numbers, or without. Of two that have
        neither the difference is no point of their stream.
        """
        if {left, right} & self.ignored:
            return None, False
        for stream, output in ((left, right), (right, left)):
            if self.graph.nodes[stream].shape != addition.shape:
                continue
            makers = [output]
            while (before := self._multiplied(makers[-1])[1]) is not None:
                makers.append(before)
            skips = False
            for point, _ in self._points(stream, streams):
                skips |= point in streams
                if point in makers:
                    if addition.op == "sub" and point == output:
                        break
                    return stream, skips
                if point < makers[-1]:  # as is all that made it
                    break
        return None, False

    def _multiplied(self, node: int) -> tuple[float, int | None]:
        """What a tensor was before a number, which comes with it, or a gain multiplied it."""
        number, before = step_back(self.graph, node)
        return number, self.gained(node) if before is None else before

    def _reads(self, origin: int, path: set[int], streams: Mapping[int, int]) -> bool:
        """Whether a matrix or a table made a tensor, and the path from it joins another stream.

        The values of the first layer, which later layers add to their own, are no stream: what
        they gave to it is only one term of what later values are made of. Nor are the embeddings
        that several layers add to their values.
        """
        *_, source = self.graph.back(origin, TRANSPARENT | CUTS)
        joined = {streams[a] for a in path & streams.keys()} - path - {origin}
        if source.index in self.lookups:
            held = [source.index]
            held += [n.index for n in self.graph.forward(held, lambda n, _: n.op in TRANSPARENT)]
            readers = {n for index in held for n in self.graph.consumers[index]}
            return len(joined) > 0 and sum(self.graph.nodes[n].op == "add" for n in readers) > 1
        return source.index in self.matrices and any(
            self.graph.descends(source.index, stream) for stream in joined
        )

    def _of_another(self, output: int, path: set[int], streams: Mapping[int, int]) -> bool:
        """Whether an output is itself a stream, which comes from elsewhere: two streams in a sum.

        At the end of a reversible network, whose streams are added to each other's branches.
        """
        while output in streams and output in path:
            output = streams[output]
        return output not in path

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
        # One number beside every coordinate is no stream: the value in a dueling head.
        if graph.nodes[left].shape != graph.nodes[right].shape:
            return None
        for shortcut, output in ((left, right), (right, left))[: 1 if addition.op == "sub" else 2]:
            # Walk the shortcut back through one projection: it must be a plain chain.
            chain, node, matrices = [], shortcut, 0
            while (back := self._activation(node)) is not None or matrices == 0:
                chain.append(node)
                matrices += node in self.matrices
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
        return self.graph.downstream(self.usage.nodes(How.MATRIX, How.LOOKUP))

    def _activation(self, node: int) -> int | None:
        """The one operand that is neither a parameter nor a constant."""
        sources = {ref.node for ref in self.graph.nodes[node].inputs} - self.ignored
        return sources.pop() if len(sources) == 1 else None

    def _in_series(self, path: set[int]) -> int:
        longest: dict[int, int] = {}
        for node in sorted(path):
            before = [longest[r.node] for r in self.graph.nodes[node].inputs if r.node in longest]
            longest[node] = max(before, default=0) + (node in self.matrices)
        return max(longest.values(), default=0)
