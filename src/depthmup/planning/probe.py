"""Which family an unknown optimizer belongs to: what its update does when something is scaled."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from depthmup.rules import Family

MakeOptimizer: TypeAlias = Callable[[list[nn.Parameter]], torch.optim.Optimizer]

# The first steps show initial states and corrections of them; all that is compared has as many.
_STEPS = 3
_SIZES = (32, 128)
# Exponents of published optimizers are multiples of 1/2: what lies between is another one.
_NEAR = 0.1
# By which gradient, weight or shape is scaled: a power of two, so that scaling rounds nothing.
_FACTOR = 8.0
# Newton-Schulz leaves singular values between 0.7 and 1.2; gradients and signs have 0.1 and less.
_FLAT = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """What was measured of an optimizer, and the family that agrees with it; None if none does.

    ``gradient`` and ``weight`` are the exponents of the update's size in the size of the gradient
    and of the weight; ``fan_in`` and ``fan_out`` those of its spectral norm when one side of a
    square matrix grows, for aligned gradients with entries of one size; ``flatness`` is the ratio
    of the smallest to the largest singular value of an update, near 1 if it is orthogonalized.

    Attributes:
        family: that agrees with all of these, or None.
        why: in words.
    """

    gradient: float
    weight: float
    fan_in: float
    fan_out: float
    flatness: float
    family: Family | None
    why: str

    def __str__(self) -> str:
        name = "no family" if self.family is None else f"family {self.family}"
        return (
            f"{name}: {self.why} (update ~ gradient^{self.gradient:.2f} weight^{self.weight:.2f}, "
            f"norm ~ fan_in^{self.fan_in:.2f} fan_out^{self.fan_out:.2f}, flatness "
            f"{self.flatness:.2f})"
        )


def family_of(optimizer: MakeOptimizer | torch.optim.Optimizer) -> Probe:
    """Measure what the update of an optimizer is proportional to, and name its family.

    Trains single matrices for three steps each, with gradients that are given: at other scales of
    the gradient and of the weight, at other shapes, with aligned and with random gradients.

    Args:
        optimizer: a function from a list of parameters to an optimizer, such as
            ``lambda parameters: Lion(parameters, lr=1e-3)``, or an optimizer, whose class and
            settings are used. Weight decay is switched off.

    Returns:
        The measured exponents, and the family or None.

    Raises:
        ValueError: the optimizer moves nothing, or its steps are not finite.

    Example:
        >>> family_of(lambda parameters: torch.optim.NAdam(parameters, lr=1e-3)).family
        <Family.ENTRYWISE: 'entrywise'>

    *Source:* the principle of TP6 (arXiv 2310.02244) Definition 6.1: whatever an update follows,
    its learning rate must undo.
    """
    make = _factory(optimizer)
    small, large = _SIZES
    base = _update(make, small, small, aligned=True)
    gradient = _slope(_norm(base), _norm(_update(make, small, small, aligned=True, g=_FACTOR)))
    weight = _slope(_norm(base), _norm(_update(make, small, small, aligned=True, w=_FACTOR)))
    into, out = _growth(make, (small, large)), _growth(make, (large, small))
    values = torch.linalg.svdvals(_update(make, small, small, aligned=False))
    flatness = float(values[-1] / values[0])
    family, why = _matching(gradient, weight, into, out, flatness)
    return Probe(
        gradient=gradient,
        weight=weight,
        fan_in=into,
        fan_out=out,
        flatness=flatness,
        family=family,
        why=why,
    )


def _factory(optimizer: MakeOptimizer | torch.optim.Optimizer) -> MakeOptimizer:
    if not isinstance(optimizer, torch.optim.Optimizer):
        return optimizer
    cls: Any = type(optimizer)
    known = inspect.signature(cls).parameters
    # torch's AdamW has settings that its constructor does not take.
    settings = {k: v for k, v in optimizer.defaults.items() if k in known}
    return lambda parameters: cls(parameters, **settings)


def _update(
    make: MakeOptimizer, rows: int, columns: int, *, aligned: bool, g: float = 1.0, w: float = 1.0
) -> Tensor:
    """What a few steps do to a matrix whose gradient stays the same.

    Entries of the weight and of the gradient have size one times ``w`` and ``g``. An aligned
    gradient is an outer product of signs; one that is not has singular values from 1 to 10.
    """
    generator = torch.Generator().manual_seed(rows + 1000 * columns)
    left, right = (torch.randn(n, 1, generator=generator).sign() for n in (rows, columns))
    if aligned:
        gradient = left @ right.T
    else:
        left = torch.linalg.qr(torch.randn(rows, columns, generator=generator))[0]
        right = torch.linalg.qr(torch.randn(columns, columns, generator=generator))[0]
        gradient = rows**0.5 * (left * torch.linspace(0.2, 2.0, columns)) @ right
    # Of exactly one size, so that sizes of different matrices compare.
    start = torch.randn(rows, columns, generator=generator)
    start = start / start.square().mean().sqrt() * w
    p = nn.Parameter(start.clone())
    optimizer = make([p])
    for group in optimizer.param_groups:  # decay is no part of the update
        group.update({"weight_decay": 0.0} if "weight_decay" in group else {})
    for _ in range(_STEPS):
        p.grad = gradient * g
        optimizer.step()
    moved = p.detach() - start
    if not bool(moved.isfinite().all()) or float(moved.abs().max()) == 0:
        raise ValueError(
            f"{type(optimizer).__name__} moved a {rows} x {columns} matrix by nothing or by "
            "something that is not finite in three steps. Expected an optimizer that steps by "
            "p.grad, with a learning rate for which training is stable and without warm-up."
        )
    return moved.double()


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def _slope(before: float, after: float, ratio: float = _FACTOR) -> float:
    return math.log(after / before) / math.log(ratio)


def _growth(make: MakeOptimizer, shape: tuple[int, int]) -> float:
    """The exponent of the update's norm when one side of a square matrix grows to ``shape``."""
    small, _ = _SIZES
    before, after = (_norm(_update(make, *s, aligned=True)) for s in ((small, small), shape))
    return _slope(before, after, math.prod(shape) / small**2)


_HALF = Fraction(1, 2)
# Exponents of the norm of an update in fan-in and in fan-out, from a square matrix on, for
# gradients that are outer products of signs, of norm sqrt(fan_in * fan_out); and whether it is
# orthogonalized.
_GROWTH: Mapping[Family, tuple[Fraction, Fraction, bool]] = {
    Family.RAW: (_HALF, _HALF, False),
    Family.ENTRYWISE: (_HALF, _HALF, False),
    Family.RELATIVE: (_HALF, _HALF, False),
    Family.SPECTRAL: (Fraction(0), _HALF, True),
    Family.SPECTRAL_RMS: (_HALF, _HALF, True),
    Family.SPECTRAL_RATIO: (-_HALF, _HALF, True),
    Family.SPECTRAL_UNIT: (Fraction(0), Fraction(0), True),
    Family.SPHERE: (_HALF, _HALF, True),
}


def _matching(
    gradient: float, weight: float, into: float, out: float, flatness: float
) -> tuple[Family | None, str]:
    for family, (fan_in, fan_out, orthogonal) in _GROWTH.items():
        pairs = (
            (gradient, family.degree),
            (weight, family.weight_degree),
            (into, fan_in),
            (out, fan_out),
        )
        near = all(abs(value - float(exponent)) <= _NEAR for value, exponent in pairs)
        if near and (flatness > _FLAT) == orthogonal:
            return family, "all that was measured agrees"
    return None, "what was measured is that of no family here, so no rule is known"
