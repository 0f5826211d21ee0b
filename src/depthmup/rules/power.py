"""Monomials of the size ratios: the only way in which a scaling rule may depend on size."""

import math
import reprlib
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TypeAlias

Exponent: TypeAlias = Fraction | int | str | float


LARGEST = 1000
"""Of an exponent's size and of a text's length: published ones are below 10."""


def exponent(value: Exponent, *, name: str = "exponent") -> Fraction:
    """The exact rational that ``value`` denotes.

    Floats are read as they print, so ``0.6`` is 3/5 and not the nearest binary fraction.

    Args:
        value: a number, a Fraction, or a text such as "1/2".
        name: of the exponent, for the message of an error.

    Returns:
        The rational.

    Raises:
        ValueError: not a finite rational number, or one beyond any sense.

    Example:
        >>> exponent("1/2"), exponent(0.6), exponent(-1)
        (Fraction(1, 2), Fraction(3, 5), Fraction(-1, 1))
    """
    if type(value) is Fraction and value.denominator <= LARGEST >= abs(value.numerator):
        return value  # exact and in range, as of nearly all laws
    try:
        # "1e99999999" is a short text and a number of 10^8 digits.
        text = str(value) if isinstance(value, float | str) else ""
        if len(text) > LARGEST or abs(int(text.lower().partition("e")[2] or 0)) > LARGEST:
            raise ValueError
        exact = Fraction(text or value)
        if abs(exact) > LARGEST or exact.denominator > 10**LARGEST:
            raise ValueError
        return exact
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        raise ValueError(
            f"Expected {name} to be a rational number such as 1/2, 0.5 or -1, of at most "
            f"{LARGEST}; got {reprlib.repr(value)}."
        ) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratios:
    """Sizes as multiples of the base model's, all dimensionless and positive.

    ``fan_in`` and ``fan_out`` are those of one weight matrix (1 where that dimension does not
    grow; a vector has only a ``fan_out``), ``depth`` is that of the residual stream, ``batch``
    and ``duration`` (examples seen) are those of the run. ``experts`` and ``active`` are those of a
    mixture of experts: how many there are, and how many of them each example passes through.
    """

    fan_in: float = 1.0
    fan_out: float = 1.0
    depth: float = 1.0
    batch: float = 1.0
    duration: float = 1.0
    experts: float = 1.0
    active: float = 1.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"Multiples of the base model must be positive and finite; got "
                    f"{field.name}={value!r}. Pass target/base, e.g. depth=64 / 8."
                )


# How each ratio is written in tables and explanations.
_SYMBOLS = {
    "fan_in": "m_in",
    "fan_out": "m_out",
    "depth": "r",
    "batch": "b",
    "duration": "d",
    "experts": "E",
    "active": "K",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Power:
    """``fan_in**a * fan_out**b * depth**c * ...`` with exact rational exponents.

    Powers form a group under ``*``; ``Power()`` is the constant 1.

    Attributes:
        fan_in, fan_out: exponents of the two sides of a matrix.
        depth: exponent of the depth.
        batch, duration: exponents of the batch size, and of the duration in tokens.
        experts, active: exponents of the number of experts, and of those that a token sees.

    Example:
        >>> hidden_init = Power(fan_in=Fraction(-1, 2))
        >>> hidden_init.at(Ratios(fan_in=4, fan_out=4, depth=2))
        0.5
        >>> str(hidden_init * Power(depth=Fraction(-1)))
        'm_in^-1/2 r^-1'
    """

    fan_in: Fraction = Fraction(0)
    fan_out: Fraction = Fraction(0)
    depth: Fraction = Fraction(0)
    batch: Fraction = Fraction(0)
    duration: Fraction = Fraction(0)
    experts: Fraction = Fraction(0)
    active: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        for field in fields(self):
            exact = exponent(getattr(self, field.name), name=f"the exponent of {field.name}")
            object.__setattr__(self, field.name, exact)

    def at(self, ratios: Ratios) -> float:
        """The factor at these sizes; exactly 1 at the base.

        Raises:
            ValueError: a factor that is no floating-point number.
        """
        # 1.0 to any power is 1.0 in floating point as well: nothing is rounded at the base.
        try:
            result: float = math.prod(
                getattr(ratios, field.name) ** float(getattr(self, field.name))
                for field in fields(self)
                if getattr(self, field.name)
            )
        except OverflowError:
            result = math.inf
        if not 0 < result < math.inf:
            sizes = ", ".join(
                f"{_SYMBOLS[f.name]} = {getattr(ratios, f.name):g}"
                for f in fields(self)
                if getattr(self, f.name)
            )
            raise ValueError(
                f"Expected exponents and ratios whose factor a number can hold; {self} at {sizes} "
                "is beyond floating point. Take smaller exponents, or sizes that are closer."
            )
        return result

    def __mul__(self, other: "Power") -> "Power":
        return Power(
            **{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        )

    def __pow__(self, power: Exponent) -> "Power":
        by = exponent(power)
        return Power(**{f.name: getattr(self, f.name) * by for f in fields(self)})

    def __truediv__(self, other: "Power") -> "Power":
        return self * other**-1

    def __str__(self) -> str:
        parts = []
        for field in fields(self):
            by = getattr(self, field.name)
            if by:
                symbol = _SYMBOLS[field.name]
                parts.append(symbol if by == 1 else f"{symbol}^{by}")
        return " ".join(parts) or "1"


ONE = Power()
