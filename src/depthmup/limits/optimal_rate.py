"""How SGD's best learning rate moves with depth, predicted by the kernel at initialization.

The rule: with lambda(L) the largest eigenvalue of the tangent kernel of an infinitely wide network
at initialization, per unit of the learning rate at the base,

    eta*(L) lambda(L) = constant,      so      eta*(L) = eta*(L_0) lambda(L_0) / lambda(L).

It is exact for one step of gradient descent on a linear network, holds to a percent for a few, and
is a rule, no theorem, beyond: docs/studies/predict.md says where it fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from depthmup.limits.kernel import Block, checked_depth, kernel
from depthmup.rules import HIDDEN_IN_BRANCH, Family, Ratios, Scheme
from depthmup.rules import scheme as scheme_named


@dataclass(frozen=True, kw_only=True)
class OptimalRate:
    """The predicted optimum at every depth, relative to the base's.

    ``curvatures``: lambda_max(Theta) / N per unit of the learning rate at the base; ``factors``:
    the best learning rate over the base's, both in the scheme's own units, so that 1 means that
    the base's learning rate is best. A depth at which the kernel overflows has the factor 0.

    Attributes:
        scheme: by its name.
        base_depth: where the learning rate is known.
        depths: for which it is predicted.
        base_curvature: that of the base.
    """

    scheme: str
    base_depth: int
    depths: tuple[int, ...]
    curvatures: tuple[float, ...]
    base_curvature: float

    @property
    def factors(self) -> tuple[float, ...]:
        return tuple(self.base_curvature / curvature for curvature in self.curvatures)

    @property
    def octaves(self) -> tuple[float, ...]:
        """log2 of the factors."""
        return tuple(math.log2(f) if f > 0 else -math.inf for f in self.factors)

    @property
    def drift(self) -> float:
        """Octaves of learning rate per doubling of depth, a least-squares slope; nan for one."""
        x = np.log2(np.asarray(self.depths, float))
        x = x - x.mean()
        return float(x @ np.asarray(self.octaves) / (x @ x)) if x.any() else math.nan

    @property
    def edges(self) -> tuple[float, ...]:
        """2 / curvature: beyond it gradient descent on half the mean squared error is unstable."""
        return tuple(2 / curvature for curvature in self.curvatures)


def optimal_rate(
    inputs: ArrayLike,
    *,
    depths: Sequence[int],
    base_depth: int,
    scheme: str | Scheme = "depth-mup",
    block: Block | None = None,
    multiplier: float = 1.0,
    lr_input: float = 0.0,
    lr_readout: float = 0.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> OptimalRate:
    """Predict SGD's best learning rate at other depths from the base's; nothing is trained.

    Args:
        inputs: xi, (N, d_in), scaled so that U has entries N(0, 1); a hundred or so are enough.
        depths: where to predict, numbers of residual branches.
        base_depth: where the best learning rate is known.
        scheme: a name such as "completep", "alpha,gamma", or a ``rules.Scheme``.
        block: what a branch computes; one matrix without activation unless given.
        multiplier: of every branch at the base, the paper's a.
        lr_input, lr_readout: learning rates of U and V over that of the matrices in branches, in
            the units of ``limits.linear``; frozen unless given.
        progress: told how many layers of how many are done, after each depth.

    Returns:
        Curvatures and the factors of the best learning rate.

    Raises:
        ValueError: depths that are no positive integers, a multiplier that is not positive, a base
            that explodes or does not learn, or what ``limits.kernel`` refuses.

    Example:
        >>> rates = optimal_rate([[1.0]], depths=(4, 16, 64), base_depth=4, scheme="1/2,0",
        ...                      multiplier=0.25)
        >>> [round(factor, 2) for factor in rates.factors]  # about L^-1/2: (1/2, 0) drifts
        [1.0, 0.48, 0.23]

    *Source:* the kernel is standard; that its scale predicts the drift of the optimum was derived
    and measured for this package (docs/studies/predict.md).
    """
    chosen = scheme_named(scheme)
    depths, base_depth = tuple(map(checked_depth, depths)), checked_depth(base_depth)
    if not depths:
        raise ValueError("Expected at least one depth to predict, e.g. depths=(8, 16, 32).")
    if not 0 < multiplier < math.inf:
        raise ValueError(f"Expected the multiplier to be positive and finite; got {multiplier}.")

    # The base first: where it explodes no other depth is worth its time.
    todo = list(dict.fromkeys((base_depth, *depths)))
    curvatures: dict[int, float] = {}
    for depth in todo:
        ratios = Ratios(depth=depth / base_depth)
        with np.errstate(over="ignore", invalid="ignore"):
            tangent = kernel(
                inputs,
                depth=depth,
                block=block,
                branch=multiplier * chosen.branch.at(ratios),
                lr=chosen.laws(HIDDEN_IN_BRANCH, Family.RAW).lr.at(ratios),
                lr_input=lr_input,
                lr_readout=lr_readout,
            )
        curvatures[depth] = tangent.largest
        # The keys are depths, and a kernel costs one pass over its layers.
        progress(sum(curvatures), sum(todo))
        if depth == base_depth and not 0 < tangent.largest < math.inf:
            raise ValueError(
                f"The network of the base, of depth {base_depth}, "
                + ("explodes" if tangent.largest else "does not learn: inputs or all rates are 0")
                + " at initialization, so there is no learning rate to compare with. Use a "
                "shallower base, a smaller multiplier, or inputs and rates that are not 0."
            )
    return OptimalRate(
        scheme=chosen.title,
        base_depth=base_depth,
        depths=depths,
        curvatures=tuple(curvatures[depth] for depth in depths),
        base_curvature=curvatures[base_depth],
    )
