"""Stages of a stream that grow differently: each has its own depth ratio.

Where one stage of a residual network is made deeper and the others are not (ResNet-101 beside
ResNet-50, a language model behind a vision tower that stays as it is), what the layers of a stage
add up to is set by their own number. One ratio for the whole stream would divide the branches of
the stages that stay by more and more, until they vanish.
"""

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from depthmup.planning.comparison import Comparison
from depthmup.planning.depth import counterparts
from depthmup.planning.matching import UnrelatedModels
from depthmup.tracing import Facts, Residuals, Stream


def by_stage(comparison: Comparison, base_of: Mapping[str, str]) -> Comparison:
    """Both models with streams taken apart into stages, where those do not all grow alike.

    A stream stays whole if its stages are not those of one stream in the base, one by one: then the
    stages themselves are what is repeated, and one ratio is all that can be said.
    """
    facts, base = comparison.facts, comparison.base
    if not any(stream.stages for stream in facts.residuals.streams):
        return comparison
    parts, base_parts = _taken_apart(facts), _taken_apart(base)
    try:
        match, _ = counterparts(parts, base_parts, base_of)
    except UnrelatedModels:
        return comparison
    if len(match) < len(parts.residuals.streams):
        return comparison
    streams, base_streams = _whole(facts.residuals), _whole(base.residuals)
    apart: dict[int, int] = {}  # streams to take apart -> those of the base
    for index, stream in enumerate(facts.residuals.streams):
        pairs = [(i, match[i]) for i, of in enumerate(streams) if of == index]
        base_stages = {j for _, j in pairs}
        ratios = {
            Fraction(parts.residuals.streams[i].depth, base_parts.residuals.streams[j].depth)
            for i, j in pairs
        }
        if not stream.stages or len(ratios) == 1:
            continue  # it has no parts, or all grow alike
        of_base = {base_streams[j] for j in base_stages}
        if len(base_stages) < len(pairs) or len(of_base) > 1:
            continue  # two stages are one in the base, or they are of several streams there
        whole = min(of_base)
        if base_streams.count(whole) == len(base_stages):
            apart[index] = whole
    if not apart or len(set(apart.values())) < len(apart):
        return comparison
    return replace(
        comparison,
        facts=_taken_apart(facts, {*apart}),
        base=_taken_apart(base, {*apart.values()}),
    )


def _whole(residuals: Residuals) -> list[int]:
    """For each stage of all streams, in their order, the stream that it is of."""
    return [i for i, stream in enumerate(residuals.streams) for _ in stream.stages or (stream,)]


def _taken_apart(facts: Facts, which: set[int] | None = None) -> Facts:
    """Facts whose streams (those of these indices) are the stages of the streams."""
    streams: list[Stream] = []
    for index, stream in enumerate(facts.residuals.streams):
        split = stream.stages and (which is None or index in which)
        streams += stream.stages if split else (stream,)
    return replace(facts, residuals=replace(facts.residuals, streams=tuple(streams)))
