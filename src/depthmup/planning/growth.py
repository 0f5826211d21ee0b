"""Growth: exponents of every family's updates, and the family that measured ones agree with."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from depthmup.rules import Family, Kind

# Exponents of published optimizers are multiples of 1/2: what lies between is another one.
NEAR = 0.1
# Newton-Schulz leaves singular values between 0.7 and 1.2; gradients and signs have 0.1 and less.
FLAT = 0.4


def two_digits(value: float) -> str:
    """A measured number, without the sign of a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


_HALF = Fraction(1, 2)
# Exponents of the norm of an update in fan-in, in fan-out and in both together, from a square
# matrix on, for gradients that are outer products of signs, of norm sqrt(fan_in * fan_out); and
# whether it is orthogonalized.
_GROWTH: Mapping[Family, tuple[Fraction, Fraction, Fraction, bool]] = {
    Family.RAW: (_HALF, _HALF, Fraction(1), False),
    Family.ENTRYWISE: (_HALF, _HALF, Fraction(1), False),
    Family.RELATIVE: (_HALF, _HALF, Fraction(1), False),
    Family.SPECTRAL: (Fraction(0), _HALF, Fraction(0), True),
    Family.SPECTRAL_RMS: (_HALF, _HALF, _HALF, True),
    Family.SPECTRAL_RATIO: (-_HALF, _HALF, Fraction(0), True),
    Family.SPECTRAL_UNIT: (Fraction(0), Fraction(0), Fraction(0), True),
    Family.SPHERE: (_HALF, _HALF, _HALF, True),
}


def expected(family: Family, kind: Kind, dimensions: int) -> tuple[dict[str, float], bool | None]:
    """The exponents of a family, as they are measured; whether updates are orthogonalized.

    None where a family does not decide that.
    """
    degrees = {"gradient": float(family.degree), "weight": float(family.weight_degree)}
    if dimensions == 1:
        return {**degrees, "fan_in": 0.0, "fan_out": 0.0, "both": 0.0}, None
    if family in _GROWTH:
        into, out, both, orthogonal = _GROWTH[family]
        flat = orthogonal if dimensions == 2 else None
    else:
        size = family.response.size(kind)
        into, out, flat = size.fan_in + _HALF, size.fan_out + _HALF, None
        both = into + out
    return {**degrees, "fan_in": float(into), "fan_out": float(out), "both": float(both)}, flat


def differing(
    exponents: Mapping[str, float], wanted: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    """Exponents that are not as they are expected, in words; and what each is expected to be."""
    for key, value in wanted.items():
        if not abs(exponents[key] - value) <= NEAR:
            of = "its updates follow" if key in _SIZES else "the norm of its updates follows"
            side = "both sides" if key == "both" else key
            yield f"{of} {side}^{two_digits(exponents[key])}", f"{value:g}"


_SIZES = ("gradient", "weight")


def spread(flatness: float, orthogonal: bool) -> tuple[str, str]:
    """That updates are orthogonalized and must not be, or the reverse, in the same way."""
    said = f"small singular values of its updates are {two_digits(flatness)} of the largest"
    return said, f"{'more' if orthogonal else 'less'} than {FLAT}"


def matching(
    dimensions: int, exponents: Mapping[str, float], flat: Sequence[float]
) -> tuple[Family | None, str]:
    """The family that grows as was measured, or None; and in words why, or what the nearest has."""
    nearest: list[tuple[int, str]] = []
    for family in _GROWTH:
        wanted, orthogonal = expected(family, Kind.HIDDEN, dimensions)
        unlike = [*differing(exponents, wanted)]
        if orthogonal is not None and {f > FLAT for f in flat} != {orthogonal}:
            unlike.append(spread(min(flat), orthogonal))
        if not unlike:
            return family, "all that was measured agrees"
        listed = "; ".join(f"{said} ({family}: {value})" for said, value in unlike)
        nearest.append((len(unlike), listed))
    return None, f"no family has all that was measured: {min(nearest)[1]}"
