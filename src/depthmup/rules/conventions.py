"""Sizes of steps: a learning rate that was tuned with one optimizer, for another one."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from depthmup.rules.family import Family
from depthmup.rules.optimizers import STEPS, named

OF_MATRICES: Mapping[Family, Callable[[int, int], float]] = MappingProxyType(
    {
        # sqrt(max(1, rows/columns)) U V^T, of which U V^T has entries of max(rows, columns)^-1/2.
        Family.SPECTRAL: lambda rows, columns: columns**-0.5,
        Family.SPECTRAL_RMS: lambda rows, columns: 0.2,
        Family.SPECTRAL_RATIO: lambda rows, columns: math.sqrt(rows / columns / max(rows, columns)),
        Family.SPECTRAL_UNIT: lambda rows, columns: max(rows, columns) ** -0.5,
        Family.SHAMPOO: lambda rows, columns: max(rows, columns) ** -0.5,
    }
)
"""The same of matrices, by rows and columns, for updates that are a multiple of U V^T.

*Source:* Jordan 2024 (Muon); Liu et al. 2025 (arXiv 2502.16982, Section 2.2) for 0.2; Ahn et al.
2025 (arXiv 2504.05295, Dion).
"""


def converted_lr(
    lr: float, shape: tuple[int, ...], *, given: str, wanted: str, norm: float | None = None
) -> float:
    """The learning rate under which another optimizer takes steps of the same size.

        lr_wanted = lr_given step_given(shape) / step_wanted(shape)

    with the root mean square of a step's entries at learning rate 1. Exact between forms of Muon: a
    step is the same to rounding. From AdamW it is the usual one, as the size of Adam's step depends
    on the gradients' noise. Matrices of different shapes have different rates, and need a group for
    each; ``PlanOptions(tuned_with=...)`` converts a whole plan. So that decoupled decay stays the
    same, divide it by the factor of the rate.

    *Source:* Jordan 2024 (Muon); Liu et al. 2025 (arXiv 2502.16982, Section 2.2).

    Args:
        lr: the rate that is known.
        shape: rows and columns of the matrix, (out, in). A vector's, between optimizers that step
            entry by entry.
        given, wanted: optimizers by name or family: ``muon`` (torch's default, ``original``),
            ``muon-rms`` (``match_rms_adamw``, Kimi's), ``dion``, ``spectral-unit`` (no factor),
            ``muonh`` (the update has the weight's norm), ``adamw``, ``lion``.
        norm: Frobenius norm of the weight, for ``muonh``.

    Returns:
        The rate of the wanted optimizer for this matrix.

    Raises:
        ValueError: an optimizer whose steps are of no known size, or a shape that is none.

    Example:
        >>> round(converted_lr(0.02, (1024, 256), given="muon", wanted="muon-rms"), 9)
        0.00625
    """
    if not 0 < lr < math.inf:
        raise ValueError(f"Expected a positive learning rate; got {lr!r}.")
    return lr * step_size(given, shape, norm=norm) / step_size(wanted, shape, norm=norm)


def step_size(optimizer: str, shape: tuple[int, ...], *, norm: float | None = None) -> float:
    """The root mean square of a step's entries at learning rate 1.

    Args:
        optimizer: by name or family, as of ``converted_lr``.
        shape: of the parameter; rows and columns of a matrix.
        norm: Frobenius norm of the weight, for ``muonh``.

    Returns:
        The size; one value for any optimizer that steps entry by entry.

    Raises:
        ValueError: an optimizer whose steps are of no known size, or a shape that is none.

    Example:
        >>> step_size("muon", (1024, 256)), step_size("lion", (8,))
        (0.0625, 1.0)

    *Source:* ``STEPS`` and ``OF_MATRICES``.
    """
    if not shape or any(not isinstance(n, int) or n < 1 for n in shape):
        raise ValueError(f"Expected the rows and columns of a matrix; got {tuple(shape)}.")
    name, family = named(optimizer)
    if name in STEPS:
        return STEPS[name]
    if family is not Family.SPHERE and family not in OF_MATRICES:
        raise ValueError(
            f"Expected an optimizer whose steps are of a known size: {', '.join(STEPS)}, or one "
            f"that takes a multiple of U V^T; got {optimizer!r}, of the family {family}. Tune its "
            "rate by itself."
        )
    if len(shape) != 2:
        raise ValueError(
            f"Expected the rows and columns of a matrix, which {optimizer} trains; got "
            f"{tuple(shape)}."
        )
    if family in OF_MATRICES:
        return OF_MATRICES[family](*shape)
    if norm is None or not 0 < norm < math.inf:
        raise ValueError(
            f"{optimizer} takes steps of the weight's norm. Give it: norm=weight.norm().item()."
        )
    return norm / math.sqrt(math.prod(shape))
