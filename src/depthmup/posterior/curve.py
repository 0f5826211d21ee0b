"""Curves of loss against learning rate: what was measured, as plain arrays.

Every size has learning rates and seeds of its own. A finite loss was measured; an infinite one is a
run that diverged; NaN is a run that was not made. The three are never taken for each other.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.posterior.priors import ABOVE_SLOW, DISAGREE, FAR_ABOVE


@dataclass(frozen=True, kw_only=True, eq=False)
class Curves:
    """Losses of one scheme at some sizes, as arrays that ragged grids fill up with NaN.

    Attributes:
        log2_lrs: (..., sizes, rates), increasing along the last axis; NaN where a size has fewer.
        losses: (..., sizes, rates, seeds). A finite loss was measured, an infinite one is a run
            that diverged, and NaN is a run that was not made. Seeds of one column share their
            data, order and initialization over sizes, where they do.
    """

    log2_lrs: Array
    losses: Array

    @staticmethod
    def none() -> "Curves":
        """The curves of no size."""
        return Curves(log2_lrs=np.zeros((0, 0)), losses=np.zeros((0, 0, 0)))

    @staticmethod
    def of(log2_lrs: Sequence[Any] | Array | Index, losses: Sequence[Any] | Array) -> "Curves":
        """Curves from one grid of learning rates for all sizes, or from one for each.

        Example:
            >>> ragged = Curves.of([[-2, -1, 0], [-1, 0]], [np.ones((3, 2)), np.ones((2, 1))])
            >>> ragged.losses.shape, int(np.isnan(ragged.losses).sum())
            ((2, 3, 2), 4)
        """
        sizes = [np.asarray(of_size, float) for of_size in losses]
        one_grid = len(log2_lrs) > 0 and np.ndim(log2_lrs[0]) == 0
        if not sizes or not (one_grid or len(log2_lrs) == len(sizes)):
            raise ValueError(
                "Expected losses of at least one size, and learning rates for all of them or a "
                f"list for each size; got {len(log2_lrs)} lists for {len(sizes)} sizes."
            )
        of_sizes = [log2_lrs] * len(sizes) if one_grid else log2_lrs
        grids = [np.asarray(grid, float) for grid in of_sizes]
        for grid, of_size in zip(grids, sizes, strict=True):
            if of_size.ndim != 2 or len(of_size) != len(grid):
                raise ValueError(
                    f"Expected losses (learning rates, seeds) for {len(grid)} learning rates; got "
                    f"an array of shape {of_size.shape}."
                )
            if (of_size <= 0).any():
                raise ValueError(
                    "Expected positive losses, infinite where a run diverged and NaN where it was "
                    f"not made (their logarithms are compared); got {np.nanmin(of_size):.4g}. "
                    "Train fewer steps, or on data that the model cannot fit exactly."
                )
            if not (np.isfinite(grid).all() and (np.diff(grid) > 0).all()):
                raise ValueError(f"Expected increasing log2 learning rates; got {grid.tolist()}.")
        rates, seeds = max(map(len, grids)), max(of_size.shape[1] for of_size in sizes)
        x = np.full((len(sizes), rates), math.nan)
        y = np.full((len(sizes), rates, seeds), math.nan)
        for i, (grid, of_size) in enumerate(zip(grids, sizes, strict=True)):
            x[i, : len(grid)] = grid
            y[i, : len(grid), : of_size.shape[1]] = of_size
        return Curves(log2_lrs=x, losses=y)

    def __getitem__(self, sizes: Any) -> "Curves":
        """The curves of some sizes, by a list of indices."""
        return Curves(log2_lrs=self.log2_lrs[..., sizes, :], losses=self.losses[..., sizes, :, :])

    @cached_property
    def seeds(self) -> Flags:
        """Whether a seed has any run at a size: (..., sizes, seeds)."""
        return np.asarray(~np.isnan(self.losses).all(-2))

    @property
    def fewest_seeds(self) -> int:
        """Seeds of the size that has the fewest."""
        return int(self.seeds.sum(-1).min())

    @cached_property
    def groups(self) -> list[Index]:
        """Indices of the seeds that were trained at the same sizes, group by group."""
        present = self.seeds.reshape(-1, self.seeds.shape[-1])
        patterns: dict[bytes, list[int]] = {}
        for seed in range(present.shape[-1]):
            patterns.setdefault(present[:, seed].tobytes(), []).append(seed)
        return [np.array(group) for group in patterns.values()]

    @cached_property
    def log_losses(self) -> Array:
        """Logarithms, (..., sizes, rates, seeds)."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.log(self.losses))

    @cached_property
    def broken(self) -> Flags:
        """Rates at which training broke, though losses are finite: (..., sizes, rates).

        They lie above the best one, far above it and above what smaller rates leave, and their
        seeds disagree by a share of that height. A wall, which seeds meet at nearly one place,
        rises alike for all of them.
        """
        y = self.log_losses
        there = np.isfinite(y)
        count = there.sum(-1)
        finite = (count > 1) & ~np.isposinf(y).any(-1)
        mean = np.where(there, y, 0.0).sum(-1) / np.maximum(count, 1)
        square = np.where(there, y - mean[..., None], 0.0) ** 2
        scatter = np.sqrt(square.sum(-1) / np.maximum(count - 1, 1))
        height = np.where(count > 0, mean, math.inf)
        size = np.repeat(np.arange(math.prod(mean.shape[:-1])), mean.shape[-1])
        far = far_above(size, self.log2_lrs.ravel(), height.ravel()).reshape(mean.shape)
        best = height.min(-1, keepdims=True, initial=math.inf)
        with np.errstate(invalid="ignore"):  # no height of a size where nothing trains
            return np.asarray(finite & far & (scatter > DISAGREE * (height - best)))

    def averages(self) -> Array:
        """Seed-averaged log losses, (..., sizes, rates)."""
        return average(self.log_losses)


def far_above(size: Index, log2_rate: Array, log_loss: Array) -> Flags:
    """Finite losses that are no valley's: only those of rates above their size's best one can be.

    Rates that are too small leave a network as it was, so that more than that was done by the rate.
    """
    best, at_best = best_of_size(size, log2_rate, log_loss)
    finite = np.isfinite(log_loss)
    slow = finite & (log2_rate <= at_best)
    worst = np.full(int(size.max(initial=0)) + 1, -math.inf)
    np.maximum.at(worst, size[slow], log_loss[slow])
    above = (log_loss > best + FAR_ABOVE) & (log_loss > worst[size] + ABOVE_SLOW)
    return np.asarray(finite & above & (log2_rate > at_best))


def best_of_size(size: Index, rate: Array, loss: Array) -> tuple[Array, Array]:
    """Of every run the least loss of its size, and the least rate with it; infinite without one."""
    count, finite = int(size.max(initial=0)) + 1, np.isfinite(loss)
    best, at_best = np.full((2, count), math.inf)
    np.minimum.at(best, size[finite], loss[finite])
    lowest = finite & (loss == best[size])
    np.minimum.at(at_best, size[lowest], rate[lowest])
    return best[size], at_best[size]


def average(
    log_losses: Array,
) -> Array:
    """Log losses (..., rates, seeds) averaged over seeds.

    A learning rate at which any seed diverged is none that one would choose: infinite. Where runs
    are missing, seeds differ in how many rates they have: what is averaged is the rates' part of
    the least-squares fit ``rate + seed``, so that a seed's own level moves no single point.
    """
    if log_losses.shape[-1] == 0:
        return np.full(log_losses.shape[:-1], math.nan)
    missing = np.isnan(log_losses)
    diverged = np.asarray(np.isinf(log_losses).any(-1))
    if not missing.any():
        with np.errstate(invalid="ignore"):
            mean = log_losses.mean(-1)
        return np.asarray(np.where(diverged, math.inf, mean))
    there = (np.isfinite(log_losses) & ~diverged[..., None]).astype(float)
    y = np.where(there > 0, log_losses, 0.0)
    rate, _ = two_way(y, there)
    return np.asarray(np.where(diverged, math.inf, np.where(there.any(-1), rate, math.nan)))


def two_way(values: Array, weight: Array) -> tuple[Array, Array]:
    """Weighted least squares of ``rate + seed``: the rates' part (..., rates), each seed's level.

    Levels average to zero among seeds that share rates, directly or through others: what shares
    none cannot be compared and stays as it is. The more numerous of the two is eliminated, so
    that a thousand seeds cost a system of the rates.
    """
    if values.shape[-1] <= values.shape[-2]:
        level, rate = _eliminated(values, weight)
        return rate, level
    turned = np.swapaxes(weight, -1, -2)
    rate, level = _eliminated(np.swapaxes(values, -1, -2), turned)
    # The pseudoinverse made the rates' parts average to zero, and not the levels.
    shared = (weight @ turned > 0).astype(float)
    for _ in range(math.ceil(math.log2(max(shared.shape[-1], 2)))):  # rates that others connect
        shared = (shared @ shared > 0).astype(float)
    together = shared @ weight > 0
    mean = (together * level[..., None, :]).sum(-1) / np.maximum(together.sum(-1), 1)
    share = turned / np.maximum(weight.sum(-2), 1e-300)[..., None]
    return rate + mean, level - (share * mean[..., None, :]).sum(-1)


def _eliminated(values: Array, weight: Array) -> tuple[Array, Array]:
    """The columns' part of ``row + column``, of least norm, and the rows' that goes with it."""
    of_row = weight.sum(-1)
    share = weight / np.maximum(of_row, 1e-300)[..., None]
    normal = np.eye(values.shape[-1]) * weight.sum(-2)[..., None, :]
    normal = normal - np.swapaxes(weight, -1, -2) @ share
    apart = (weight * (values - (share * values).sum(-1, keepdims=True))).sum(-2)
    column = (np.linalg.pinv(normal, rcond=1e-9, hermitian=True) @ apart[..., None])[..., 0]
    return column, (share * (values - column[..., None, :])).sum(-1)
