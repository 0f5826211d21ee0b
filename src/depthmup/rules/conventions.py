"""Learning rates between optimizers of matrices, whose updates differ by a factor of the shape."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from depthmup.rules.family import Family
from depthmup.rules.optimizers import family

_Scale = Callable[[int, int], float]

SCALES: Mapping[Family, _Scale] = MappingProxyType(
    {
        Family.SPECTRAL: lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
        Family.SPECTRAL_RMS: lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
        Family.SPECTRAL_RATIO: lambda rows, columns: math.sqrt(rows / columns),
        Family.SPECTRAL_UNIT: lambda rows, columns: 1.0,
        # Entries of an Adam step are taken for 0.2, as are those of the update of muon-rms.
        Family.ENTRYWISE: lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
    }
)
"""What multiplies U V^T in an update with learning rate 1.

*Source:* Jordan 2024 (Muon); Liu et al. 2025 (arXiv 2502.16982, Section 2.2) for 0.2, the usual
root mean square of AdamW's updates, and for taking AdamW's rate as it is; Ahn et al. 2025
(arXiv 2504.05295, Dion).
"""


def converted_lr(
    lr: float, shape: tuple[int, int], *, given: str, wanted: str, norm: float | None = None
) -> float:
    """The learning rate under which another optimizer of matrices takes the same step.

        lr_wanted = lr_given scale_given(rows, columns) / scale_wanted(rows, columns)

    Exact between forms of Muon: a step is the same to rounding. From AdamW to Muon it is the usual
    one, as the size of Adam's step depends on the gradients' noise. Matrices of different shapes
    have different rates, and need a group for each. So that decoupled decay stays the same,
    divide it by the factor of the rate.

    *Source:* Jordan 2024 (Muon); Liu et al. 2025 (arXiv 2502.16982, Section 2.2).

    Args:
        lr: the rate that is known.
        shape: rows and columns of the matrix, (out, in).
        given, wanted: optimizers by name or family: ``muon`` (torch's default, ``original``),
            ``muon-rms`` (``match_rms_adamw``, Kimi's), ``dion``, ``spectral-unit`` (no factor),
            ``muonh`` (the update has the weight's norm), ``adamw``.
        norm: Frobenius norm of the weight, for ``muonh``.

    Returns:
        The rate of the wanted optimizer for this matrix.

    Raises:
        ValueError: an optimizer without such a factor, or a shape that is none.

    Example:
        >>> converted_lr(0.02, (1024, 256), given="muon", wanted="muon-rms")
        0.00625
    """
    rows, columns = _checked(shape)
    if not 0 < lr < math.inf:
        raise ValueError(f"Expected a positive learning rate; got {lr!r}.")
    factor = _scale(given, rows, columns, norm) / _scale(wanted, rows, columns, norm)
    return lr * factor


def _scale(name: str, rows: int, columns: int, norm: float | None) -> float:
    known = family(name)
    if known is Family.SPHERE:
        if norm is None or not 0 < norm < math.inf:
            raise ValueError(
                f"{name} takes steps of the weight's norm. Give it: norm=weight.norm().item()."
            )
        # U V^T has the Frobenius norm sqrt(min(rows, columns)).
        return norm / math.sqrt(min(rows, columns))
    if known not in SCALES:
        raise ValueError(
            f"Expected an optimizer whose step is a multiple of U V^T, or AdamW; got {name!r}, of "
            f"the family {known}. Tune its rate by itself."
        )
    return SCALES[known](rows, columns)


def _checked(shape: tuple[int, int]) -> tuple[int, int]:
    if len(shape) != 2 or any(not isinstance(n, int) or n < 1 for n in shape):
        raise ValueError(f"Expected the rows and columns of a matrix; got {tuple(shape)}.")
    return shape
