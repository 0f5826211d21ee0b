"""Distributions of a tensor's entries, as far as an initializer tells: values, or a size alone.

A distribution is held as its quantiles at evenly spaced probabilities. What an operation makes of
the entries it makes of the quantiles, so scales, clamps and logarithms need no formulas.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

# Midpoints of this many equal shares stand for a distribution; its tails beyond are corrected for.
_QUANTILES = 1024


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Entries of a tensor: equally likely values, or their root mean square alone.

    ``settled``: no chance is involved; then a tensor with values can be measured exactly.
    ``draw``: two tensors of one draw, entry by entry in the same order, have their quantiles in the
    same order as well.
    """

    values: Tensor | None = None
    rms: float | None = None
    settled: bool = False
    draw: object | None = None

    @property
    def one(self) -> float | None:
        """The one value, if all entries have it."""
        if self.values is None or bool((self.values != self.values[0]).any()):
            return None
        return float(self.values[0])

    @property
    def size(self) -> float | None:
        """The root mean square of the entries."""
        if self.values is not None:
            return float(self.values.square().mean().sqrt())
        return self.rms

    @property
    def kurtosis(self) -> float | None:
        """About zero; None where only the size is known."""
        if self.values is None:
            return None
        square = self.values.square().mean()
        return float(self.values.pow(4).mean() / square**2) if square > 0 else 1.0


SETTLED = Distribution(settled=True)
"""No chance is involved, and the values are not known."""

PROBABILITIES = (torch.arange(_QUANTILES, dtype=torch.float64) + 0.5) / _QUANTILES
_NORMAL = torch.special.ndtri(PROBABILITIES)
_NORMAL = _NORMAL / _NORMAL.square().mean().sqrt()  # for the tails that quantiles leave out


def constant(value: float) -> Distribution:
    """All entries alike."""
    return Distribution(values=torch.tensor([float(value)], dtype=torch.float64), settled=True)


def normal(mean: float = 0.0, std: float = 1.0) -> Distribution:
    """As ``Tensor.normal_``."""
    return Distribution(values=mean + std * _NORMAL)


def uniform(low: float = 0.0, high: float = 1.0) -> Distribution:
    """As ``Tensor.uniform_``."""
    # The midpoints of N intervals have 1 - 1/N^2 of the variance.
    values = (PROBABILITIES - 0.5) / math.sqrt(1 - _QUANTILES**-2)
    return Distribution(values=(low + high) / 2 + (high - low) * values)


def truncated_normal(mean: float, std: float, low: float, high: float) -> Distribution:
    """As ``nn.init.trunc_normal_``: a normal variable, given that it lies in an interval."""
    if std == 0:
        return constant(mean)
    ends = torch.tensor([(low - mean) / std, (high - mean) / std], dtype=torch.float64)
    start, end = torch.special.ndtr(ends)
    values = torch.special.ndtri(start + (end - start) * PROBABILITIES)
    if float(start) < 1e-6 and float(end) > 1 - 1e-6:
        return normal(mean, std)
    return Distribution(values=(mean + std * values).clamp(low, high))


def orthogonal(rows: int, columns: int, gain: float) -> Distribution:
    """As ``nn.init.orthogonal_``: rows or columns, whichever are fewer, of length ``gain``."""
    return Distribution(rms=abs(gain) * max(rows, columns) ** -0.5)


# Entry by entry: what they make of values they make of equally likely values.
ENTRYWISE = frozenset(
    {
        *("mul", "div", "add", "sub", "rsub", "neg", "abs", "sign", "square", "sqrt", "rsqrt"),
        *("exp", "expm1", "log", "log1p", "log2", "log10", "pow", "reciprocal", "erf", "erfinv"),
        *("clamp", "clamp_min", "clamp_max", "tanh", "sigmoid", "sin", "cos", "softplus"),
        *("floor", "ceil", "round", "true_divide", "minimum", "maximum", "logit", "atanh"),
    }
)
IN_ORDER = frozenset({"clone", "_to_copy", "contiguous", "alias", "detach", "lift_fresh_copy"})
REORDERED = frozenset(
    {
        *("repeat", "expand", "flip", "roll", "permute", "transpose", "t", "view", "reshape"),
        *("_unsafe_view", "unsqueeze", "squeeze", "tile", "cat", "stack", "repeat_interleave"),
    }
)
SERIES = frozenset({"arange", "linspace", "logspace"})


def series(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Distribution | None:
    """Numbers in a row, made anew with values: the tensor itself may have none.

    None where an argument is a tensor, or where there are no values.
    """
    if any(isinstance(a, Tensor) for a in args):
        return None
    plain = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "layout")}
    values = getattr(torch, name)(*args, **plain, device="cpu").double().reshape(-1)
    if not len(values):
        return None
    return Distribution(values=values, settled=True, draw=object())


def entrywise(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], inputs: Sequence[Any]
) -> Distribution | None:
    """The law of ``op(x, y, ...)`` where all tensors but those of one draw are constant.

    ``inputs`` are ``args`` with laws in the place of tensors, None for a tensor of unknown law.
    """
    # Assumed to have no zeros, as the diagonal by whose signs ``orthogonal_`` multiplies.
    if name == "sign" and inputs[0] is None:
        return Distribution(values=torch.tensor([-1.0, 1.0], dtype=torch.float64))
    laws = [law for a, law in zip(args, inputs, strict=True) if isinstance(a, Tensor)]
    if any(law is None for law in laws) or not laws:
        return None
    varied = [law for law in laws if law.one is None]
    settled = all(law.settled for law in laws)
    draws = {law.draw for law in varied}
    if len(varied) > 1 and (len(draws) > 1 or None in draws):
        return _signed(name, varied) or (SETTLED if settled else None)
    if varied and varied[0].values is None:
        return _scaled(name, inputs, varied[0])
    # Constants without dimensions, so that they stand beside any number of values.
    values = [_plain(law) if isinstance(a, Tensor) else law for a, law in zip(args, inputs)]  # noqa: B905
    options = {k: v for k, v in kwargs.items() if k in ("alpha", "min", "max", "rounding_mode")}
    operation = getattr(torch, name, None) or getattr(nn.functional, name)
    result = operation(*values, **options).reshape(-1)
    return Distribution(values=result, settled=settled, draw=varied[0].draw if varied else None)


def common(laws: Sequence[Distribution | None], *, in_order: bool) -> Distribution | None:
    """The law of a copy, or of several tensors of one law joined to one."""
    first = laws[0] if laws else None
    if first is None or any(law is None for law in laws):
        return None
    if all(law is first for law in laws):
        return first if in_order else replace(first, draw=None)
    settled = all(law.settled for law in laws if law is not None)
    sizes = {law.size for law in laws if law is not None}
    if len(sizes) == 1 and None not in sizes:
        return Distribution(rms=sizes.pop(), settled=settled)
    return SETTLED if settled else None


def held(law: Distribution, dtype: torch.dtype) -> Distribution | None:
    """The law of entries as a type of numbers holds them: those that have a fraction lose it."""
    if dtype.is_floating_point or dtype.is_complex:
        return law
    if law.values is not None:
        whole = law.values == law.values.trunc()
        if bool((whole if dtype is not torch.bool else law.values == law.values.bool()).all()):
            return law
    return SETTLED if law.settled else None


def _plain(law: Distribution) -> Tensor | None:
    return law.values if law.one is None else torch.tensor(law.one, dtype=torch.float64)


def _signed(name: str, varied: Sequence[Distribution]) -> Distribution | None:
    """A tensor times signs keeps its size."""
    signs = [x for x in varied if x.values is not None and bool((x.values.abs() == 1).all())]
    others = [law for law in varied if all(law is not sign for sign in signs)]
    if name == "mul" and len(others) == 1 and others[0].size is not None:
        return Distribution(rms=others[0].size)
    return None


def _scaled(name: str, inputs: Sequence[Any], law: Distribution) -> Distribution | None:
    """A tensor of which only the root mean square is known, times a constant."""
    if name == "neg" and law.rms is not None:
        return law
    other = inputs[1] if inputs[0] is law and len(inputs) == 2 else inputs[0]
    factor = other.one if isinstance(other, Distribution) else other
    if law.rms is not None and isinstance(factor, int | float):
        if name == "mul":
            return Distribution(rms=law.rms * abs(factor), settled=law.settled)
        if name == "div" and inputs[0] is law:
            return Distribution(rms=law.rms / abs(factor), settled=law.settled)
    return SETTLED if law.settled else None
