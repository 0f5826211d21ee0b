"""Do finite networks approach the limits? Trained networks of growing size against the theory.

A network of width n differs from its infinite-width limit by order n^-1/2, and one of depth L from
its infinite-depth limit by order 1/L. Both are measured here on the networks of ``factored``, which
share nothing with ``limits``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from depthmup import limits
from depthmup.records import Estimate
from depthmup.rules import exponent
from depthmup.statistics import student
from reproduction.intervals import slope_weights
from reproduction.probes.factored import Blocks, Trained, train_factored


@dataclass(frozen=True, kw_only=True)
class Approach:
    """Distances from a limit at growing sizes.

    ``errors`` (sizes,) root mean square over runs and entries; ``slope`` that of log error against
    log size with a 95 % interval; ``expected`` what the theory says it is.

    Attributes:
        sizes: of the networks.
    """

    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    slope: Estimate
    expected: float

    @property
    def agrees(self) -> bool:
        """Whether the expected slope lies in the measured interval, and errors do fall."""
        return self.slope.low <= self.expected <= self.slope.high and self.slope.high < 0


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How networks approach a limit: their outputs, and the RMS of x at every layer.

    Attributes:
        outputs, rms: how each approaches its limit.
    """

    outputs: Approach
    rms: Approach


MOST_RUNS = 100_000


def agreement_with_width(
    steps: Sequence[limits.Step],
    blocks: Blocks | None = None,
    *,
    widths: Sequence[int],
    depth: int,
    runs: int = 8,
    next_order: bool = False,
) -> Agreement:
    """Networks of growing width against the infinite-width limit at their depth.

    Where the limit is exact (linear networks) the error falls to zero. Elsewhere it is averaged
    over neurons or particles, and falls to their error.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> result = agreement_with_width(
        ...     steps, Blocks(block_depth=2), widths=[32, 64], depth=2, runs=2
        ... )
        >>> result.outputs.expected
        -0.5

    *Source:* the theory's side of arXiv 2310.02244, Figure 8; expected slope -1/2 (a central limit
    theorem over the n entries).
    """
    if not widths or min(widths) < 1 or runs > MOST_RUNS:
        raise ValueError(
            f"Expected widths of at least 1 and at most {MOST_RUNS:,} runs; got "
            f"{list(widths)} and {runs if runs <= MOST_RUNS else 'more runs'}."
        )
    _check_runs(runs)
    blocks = blocks or Blocks()
    solution = _limit(steps, blocks, depth)
    exact = np.concatenate(solution.outputs), np.concatenate(solution.rms, axis=1)

    def gap(width: int, run: int) -> tuple[float, float]:
        return _gap(train_factored(steps, blocks, width=width, depth=depth, seed=run), exact)

    squares = np.array([[gap(width, run) for run in range(runs)] for width in widths])
    return Agreement(
        outputs=approach(widths, squares[..., 0], expected=-0.5, next_order=next_order),
        rms=approach(widths, squares[..., 1], expected=-0.5, next_order=next_order),
    )


def agreement_with_depth(
    steps: Sequence[limits.Step],
    blocks: Blocks | None = None,
    *,
    depths: Sequence[int],
    neurons: limits.Neurons | None = None,
) -> Approach:
    """Networks of infinite width and growing depth against the infinite-depth limit.

    Linear ones have no noise at all, nonlinear ones with two matrices per block that of their
    ``neurons``. The interval has the corrections of the next order in 1/depth, bounded by how far
    local slopes are from each other.

    Example:
        >>> from depthmup import limits
        >>> steps = [limits.Step([[1.0]], limits.mse([[0.5]]))] * 2
        >>> blocks = Blocks(lr=0.5, block_depth=2)
        >>> result = agreement_with_depth(steps, blocks, depths=[16, 32, 64])
        >>> round(result.slope.value, 1), result.slope.value < 0
        (-1.0, True)

    *Source:* the theory's side of arXiv 2310.02244, Figure 9; expected slope -1.
    """
    blocks = blocks or Blocks()
    if blocks.activation != "identity" and blocks.block_depth == 1:
        raise ValueError(
            "At finite depth the infinite-width limit with one matrix per block is known to many "
            f"digits for linear networks only; got activation={blocks.activation!r}. Pass "
            "block_depth=2."
        )
    exact, *values = (
        np.concatenate(_limit(steps, blocks, depth, neurons).outputs)
        for depth in (math.inf, *depths)
    )
    errors = np.sqrt(np.square(np.array(values) - exact).mean(axis=(1, 2)))
    alpha = exponent(blocks.alpha, name="alpha")
    slowest = -1.0 if alpha in (Fraction(1, 2), 1) else max(-1.0, 1.0 - 2.0 * float(alpha))
    sizes = np.log(np.asarray(depths, dtype=float))
    local = np.diff(np.log(errors)) / np.diff(sizes)
    margin = float(local.max() - local.min()) + 1e-9
    return _slope(depths, errors, float(np.log(errors) @ slope_weights(sizes)), margin, slowest)


def _limit(
    steps: Sequence[limits.Step],
    blocks: Blocks,
    depth: float,
    neurons: limits.Neurons | None = None,
) -> limits.Solution:
    """The limit of infinite width at this depth, of either kind of block."""
    asked = limits.problem(
        steps,
        depth=depth,
        lr=blocks.lr,
        activation=blocks.activation,
        block_depth=blocks.block_depth,
        branch=limits.Branch(multiplier=blocks.multiplier, width_ratio=blocks.width_ratio),
        alpha=blocks.alpha,
        gamma=blocks.gamma,
        optimizer=limits.SGD(lr_second=blocks.lr_second),
    )
    return limits.solve(asked, neurons if asked.averages is limits.Sobol else None)


def approach(
    sizes: Sequence[int], squares: np.ndarray, *, expected: float, next_order: bool = False
) -> Approach:
    """The slope of log RMS error against log size, with a bootstrap over runs.

    The mean squared distance of random networks from their limit is a/n + b/n^2 + ...: at the small
    sizes the second term bends the line, and a slope over all of them differs from -1/2 by more
    than the scatter of runs. With ``next_order`` the interval is wider by what a fit of

        log error = c + s log n + d/n

    moves the slope s: an estimate of that bias, from the same runs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> widths = [64, 128, 256, 512]
        >>> squares = rng.chisquare(8, size=(4, 50)) / np.array(widths)[:, None]  # (sizes, runs)
        >>> approach(widths, squares, expected=-0.5).agrees
        True

    *Source:* the rate -1/2 is that of the central limit theorem; the interval is the bootstrap of
    Efron and Tibshirani (1993), An Introduction to the Bootstrap, Chapter 12.
    """
    rng = np.random.default_rng(0)
    pull = slope_weights(np.log(sizes))
    runs = squares.shape[1]
    _check_runs(runs)
    picks = rng.integers(0, runs, size=(2000, *squares.shape))
    resampled = np.take_along_axis(squares[None], picks, axis=2).mean(axis=2)
    value = float(0.5 * np.log(squares.mean(axis=1)) @ pull)
    # The bootstrap's standard deviation, with Student's t for few runs.
    deviation = (0.5 * np.log(resampled) @ pull).std(ddof=1) * math.sqrt(runs / (runs - 1))
    margin = float(deviation * student(runs - 1))
    if next_order:
        beside = _weights_beside_next_order(sizes)
        margin += abs(float(0.5 * np.log(squares.mean(axis=1)) @ beside) - value)
    return _slope(sizes, np.sqrt(squares.mean(axis=1)), value, margin, expected)


def _slope(
    sizes: Sequence[int], errors: np.ndarray, value: float, margin: float, expected: float
) -> Approach:
    return Approach(
        sizes=tuple(int(s) for s in sizes),
        errors=tuple(float(e) for e in errors),
        slope=Estimate(value=value, low=value - margin, high=value + margin),
        expected=expected,
    )


def _check_runs(runs: int) -> None:
    if runs < 2:
        raise ValueError(f"An interval needs at least two runs per size; got {runs}.")


def _weights_beside_next_order(sizes: Sequence[int]) -> np.ndarray:
    """Weights of the logarithms in the slope, where a term 1/size is fitted beside it."""
    if len(sizes) < 4:
        raise ValueError(
            f"Expected at least four sizes to fit the next order beside a slope; got {len(sizes)}."
        )
    n = np.asarray(sizes, float)
    design = np.column_stack([np.ones_like(n), np.log(n), n[0] / n])
    return np.asarray(np.linalg.pinv(design)[1], float)


def _gap(network: Trained, exact: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """Mean squared distances of outputs and of RMS."""
    return (
        float(np.mean((network.outputs - exact[0]) ** 2)),
        float(np.mean((network.rms - exact[1]) ** 2)),
    )
