"""A policy of initialization: one rule by which all matrices of both models were drawn.

Codes that draw every matrix alike (``for p in parameters: if p.ndim > 1: init(p)``) give each one
the same number times a power of its fans, as torch counts them:

    std = g,  g / sqrt(fan_in),  g / sqrt((fan_in + fan_out) / 2),  g / sqrt(fan_out),  g / fan_in.

Matrices of different shapes tell these apart together where a small one alone would not.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import TypeAlias

from depthmup.planning.measured import Measured

# Errors of sizes are no smaller: quantiles stand for distributions.
_ROUNDING = 1e-3

Shape: TypeAlias = Sequence[int]
Policy: TypeAlias = Callable[[Shape, Shape], float]
"""The ratio of a matrix's size to that of its counterpart, from the shapes of both."""


def _fans(shape: Shape) -> tuple[int, int]:
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


_RULES: Mapping[str, Callable[[int, int], float]] = MappingProxyType(
    {
        "fixed": lambda into, out: 1.0,
        "fan-in": lambda into, out: into**-0.5,
        "fan-in and fan-out": lambda into, out: ((into + out) / 2) ** -0.5,
        "fan-out": lambda into, out: out**-0.5,
        "mean field": lambda into, out: 1 / into,
    }
)


def _ratio(rule: Callable[[int, int], float], shape: Shape, base: Shape) -> float:
    return rule(*_fans(shape)) / rule(*_fans(base))


def policy_of(drawn: Iterable[tuple[Shape, Measured]], *, sigmas: float) -> Policy | None:
    """The rule that all matrices fit, as the ratio of sizes of two shapes; None if none does.

    Of several that fit the nearest.
    """
    matrices = [(shape, size) for shape, size in drawn if len(shape) > 1 and size.rms > 0]
    if len({_fans(shape) for shape, _ in matrices}) < 2:
        return None
    fits: dict[float, Callable[[int, int], float]] = {}
    for rule in _RULES.values():
        logs = [math.log(size.rms / rule(*_fans(shape))) for shape, size in matrices]
        weights = [1 / max(size.error, _ROUNDING) ** 2 for _, size in matrices]
        gain = fmean(logs, weights)
        off = [w * (log - gain) ** 2 for log, w in zip(logs, weights, strict=True)]
        if max(off) <= sigmas**2:
            fits.setdefault(sum(off), rule)
    return partial(_ratio, fits[min(fits)]) if fits else None
