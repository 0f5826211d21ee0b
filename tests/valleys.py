"""Valleys whose minimum is known, for tests of the statistics."""

import numpy as np

from depthmup.posterior import drifts
from depthmup.statistics import Curves, minima, optima
from studies.coverage import SHAPES, WALLS, World

NAMES, STEEP = tuple(SHAPES), tuple(WALLS)


def doubling(count, axis="depth"):
    """Sizes that double along one axis."""
    return [{axis: 2.0**i} for i in range(count)]


def fitted(rates, *log_losses, **options):
    """The optima of curves without noise, of one seed."""
    return optima(Curves.of(rates, [np.exp(y)[:, None] for y in log_losses]), **options)


def found(rates, *log_losses, **options):
    """The minima of the valley that such curves share, of sizes that double."""
    return minima(fitted(rates, *log_losses, **options), doubling(len(log_losses)))


def intervals(*, experiments, sizes=5, drift=0.1, seed=0, **world):
    """Bounds of the drift's interval in experiments of a simulated world, (experiments,)."""
    optimum = np.broadcast_to(drift * np.arange(sizes), (experiments, sizes))
    curves = World(**world).curves(np.random.default_rng(seed), optimum)
    return drifts(range(sizes), curves)[1:]


def least(nominal, count):
    """Coverage that ``count`` experiments fall below once in 700 where it is nominal."""
    return nominal - 3 * np.sqrt(nominal * (1 - nominal) / count)
