"""Valleys whose minimum is known, for tests of the statistics."""

import numpy as np

from depthmup.statistics import Curves, drifts, minima, optima
from studies.coverage import SHAPES, WALLS, World

NAMES, STEEP = tuple(SHAPES), tuple(WALLS)


def fitted(rates, *log_losses, **options):
    """The optima of curves without noise, of one seed."""
    return optima(Curves.of(rates, [np.exp(y)[:, None] for y in log_losses]), **options)


def found(rates, *log_losses, **options):
    """The minima of the valley that such curves share."""
    return minima(fitted(rates, *log_losses, **options))


def intervals(*, experiments, sizes=5, drift=0.1, seed=0, **world):
    """Bounds of the drift's interval in experiments of a simulated world, (experiments,)."""
    optimum = np.broadcast_to(drift * np.arange(sizes), (experiments, sizes))
    curves = World(**world).curves(np.random.default_rng(seed), optimum)
    value, half = drifts(np.arange(sizes), optima(curves))
    return value - half, value + half
