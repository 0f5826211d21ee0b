"""Stages: the parts of a residual stream between which something else than an addition stands.

A matrix on the stream (between the stages of a convolutional network, between an encoder of images
and the language model that reads them), a norm on a stream that has none elsewhere (a last norm,
behind which a head adds once more), a whole network with a stream of its own beside it (the lower
half of a U): what layers add before it does not add up with what layers add behind it.
"""

from dataclasses import replace
from functools import partial

from depthmup.tracing.graph import Graph, Node
from depthmup.tracing.operations import LENGTHS, NORMALIZING, TRANSPARENT
from depthmup.tracing.parameter_uses import How, Usage
from depthmup.tracing.residuals import ResidualBranch, Residuals, Stream
from depthmup.tracing.streams import up_to

_ROOTS = LENGTHS | {"sqrt"}
# From a division back to the root in it.
_BEFORE_ROOTS = TRANSPARENT | {"clamp_min", "clamp", "add"}


def with_stages(graph: Graph, usage: Usage, residuals: Residuals) -> Residuals:
    """The same branches and streams, each stream with the stages it consists of.

    Example:
        >>> import torch
        >>> from depthmup.tracing import read
        >>> class Block(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return x + super().forward(x).relu()
        >>> layers = Block(4, 4), Block(4, 4), torch.nn.Linear(4, 8), Block(8, 8)
        >>> [stream] = read(torch.nn.Sequential(*layers), torch.zeros(2, 4)).residuals.streams
        >>> [stage.depth for stage in stream.stages]
        [2, 1]
    """
    matrices = usage.nodes(How.MATRIX)
    # A branch that holds a stream of its own is a stage by itself.
    networks = {parent for branch in residuals.branches for parent in branch.parents}
    streams = []
    for stream in residuals.streams:
        cuts = matrices if stream.normalized else matrices | _norms(graph)
        stages = _stages(graph, residuals, stream, cuts, networks)
        streams.append(replace(stream, stages=stages) if len(stages) > 1 else stream)
    return replace(residuals, streams=tuple(streams))


def _norms(graph: Graph) -> set[int]:
    """The nodes that normalize, be it by one operation or by a length written out."""
    return {
        node.index
        for node in graph.nodes
        if node.op in NORMALIZING or (node.op in ("mul", "div") and _has_root(graph, node))
    }


def _has_root(graph: Graph, node: Node) -> bool:
    return any(
        this.op in _ROOTS for ref in node.inputs for this in graph.back(ref.node, _BEFORE_ROOTS)
    )


def _stages(
    graph: Graph, residuals: Residuals, stream: Stream, cuts: set[int], networks: set[int]
) -> tuple[Stream, ...]:
    branches = [residuals.branches[index] for index in stream.branches]
    by_addition = {branch.addition: branch for branch in branches}
    ends = cuts | by_addition.keys()
    stage_of: dict[int, int] = {}  # branch -> the first branch of its stage
    behind: dict[frozenset[int], int] = {}  # additions of a whole network -> the stage behind them
    depth: dict[int, int] = {}
    for branch in branches:
        before = _before(graph, residuals, branch, by_addition, ends)
        direct = before - networks
        depth[branch.index] = 1
        if branch.index in networks or not before:
            same = (stage_of[i] for i in branch.evaluations if i in stage_of)
            stage_of[branch.index] = next(same, branch.index)
        elif not direct:
            stage_of[branch.index] = behind.setdefault(frozenset(before), branch.index)
        else:
            first = min(stage_of[index] for index in direct)
            merged = {stage_of[index] for index in direct}
            stage_of |= {i: first for i, stage in stage_of.items() if stage in merged}
            stage_of[branch.index] = first
            depth[branch.index] += max(depth[index] for index in direct)
    members: dict[int, list[int]] = {}
    for index, first in stage_of.items():
        members.setdefault(first, []).append(index)
    return tuple(
        Stream(
            branches=tuple(indices),
            depth=max(depth[index] for index in indices),
            normalized=stream.normalized,
            factor=stream.factor,
        )
        for indices in members.values()
    )


def _before(
    graph: Graph,
    residuals: Residuals,
    branch: ResidualBranch,
    by_addition: dict[int, ResidualBranch],
    ends: set[int],
) -> set[int]:
    """The branches that are added before this one, with nothing between that begins a stage."""
    # A branch inside another starts where that other starts.
    within = [residuals.branches[parent].path for parent in branch.parents]
    reached = graph.back(branch.stream, partial(up_to, ends, within))
    return {by_addition[node.index].index for node in reached if node.index in by_addition}
