"""Streams that are scaled so that they stay a mean: x <- a_i x + b_i f_i, read by norms alone.

Divided by the product of the a_j up to there, such a stream is y <- y + c f_i, with

    c = b_i / (a_1 ... a_i)

for every layer, and a norm reads y as it reads x. A running mean has a_i = sqrt((i - 1) / i),
b_i = 1 / sqrt(i) and c = 1: it is x + f to the letter.
"""

import math
from dataclasses import replace

from depthmup.tracing.constants import Constants
from depthmup.tracing.graph import Graph
from depthmup.tracing.operations import AFFINE_NORMS, TRANSPARENT
from depthmup.tracing.residuals import ResidualBranch, Residuals, Stream

# Numbers of a model in single precision.
_EQUAL = 1e-6


def telescoped(
    graph: Graph, residuals: Residuals, constants: Constants
) -> tuple[Residuals, Constants]:
    """The same, with what a layer adds in units of the stream at its start where that telescopes.

    The multipliers of one stream must be alike so, and differ from each other as they are written.
    """
    alphas, streams = [*constants.alphas], [*residuals.streams]
    for index, stream in enumerate(streams):
        before = _before(residuals, stream)
        if before is None or not _read_by_norms(graph, [residuals.branches[i] for i in before]):
            continue
        own = {
            i: alphas[i] * math.prod(constants.factors[n] for n in constants.branches[i])
            for i in before
        }
        if _alike([*own.values()]) or not _alike([own[i] / before[i] for i in before]):
            continue
        for i, product in before.items():
            alphas[i] /= product
        streams[index] = replace(stream, factor=1.0)
    return (
        replace(residuals, streams=tuple(streams)),
        replace(constants, alphas=tuple(alphas)),
    )


def _before(residuals: Residuals, stream: Stream) -> dict[int, float] | None:
    """By what the stream was multiplied before each of its additions; None if it never is.

    Additions must follow one another, each to what the one before gave.
    """
    product, found = 1.0, dict[int, float]()
    last: ResidualBranch | None = None
    for index in stream.branches:
        branch = residuals.branches[index]
        if last is not None and branch.origin < last.addition:
            return None
        found[index] = product
        product, last = product * branch.scale, branch
    return found if product != 1 else None


def _alike(values: list[float]) -> bool:
    return all(math.isclose(v, values[0], rel_tol=_EQUAL) for v in values)


def _read_by_norms(graph: Graph, branches: list[ResidualBranch]) -> bool:
    """Whether norms alone read the stream, beside the additions and the numbers on it."""
    held = {node for b in branches for node in (b.addition, b.stream)}
    for branch in branches[1:]:
        held |= graph.between(branch.origin, branch.stream)
    held |= {n.index for n in graph.forward([*held], lambda this, _: this.op in TRANSPARENT)}
    readers = {n for index in held for n in graph.consumers[index]} - held
    first = branches[0]
    readers -= graph.between(first.origin, first.stream)
    return bool(readers) and all(graph.nodes[n].op in AFFINE_NORMS for n in readers)
