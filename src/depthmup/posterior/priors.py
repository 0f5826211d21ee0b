"""What is believed of curves, seeds and laws before any run: every prior of the posterior, once.

Rates are in octaves (log2), losses in nats; pairs are values with their weights.
"""

import math

import numpy as np

from depthmup.posterior.intervals import Array

POWER, POWER_SPREAD = math.log(1.8), 0.22
"""Mean and deviation of log p: a kink has 1, a parabola 2."""

ROUNDING, ROUNDING_SPREAD = math.log(0.2), 0.8
"""Of log e, octaves."""

WALL_SLOPE, WALL_SLOPE_SPREAD = math.log(0.3 * 1.5**1.8), 2.5
WALL_PLACE, WALL_PLACE_SPREAD = 1.5, 0.7
"""Of b, a wall's slope over the side's, and of w, octaves above the minimum."""

STEEPNESS_SPREAD, BEND_SPREAD, GROWTH_SPREAD = 1.5, 0.3, 0.2
"""Of l about what the curves rise, of c, and of C per doubling."""

TURNS = (
    (0.005, 0.003, 0.003, 0.02, 0.30),
    (0.04, 0.02, 0.015, 0.06, 0.35),
    (0.15, 0.08, 0.05, 0.12, 0.35),
)
"""Deviations of T and D per doubling, of a size's own turn and steepness, and the weight.

*Source:* evidence on 136 arms of public tables.
"""

WALKING = 2.0
"""Octaves per doubling by which a wall comes nearer where valleys turn by one: W over T."""

MISFITS = ((0.005, 0.1), (0.02, 0.3), (0.05, 0.4), (0.15, 0.2))
"""rho: the misfit of a shape over its height; from the same arms."""

NOISES: Array = np.asarray(0.001 * 1.7 ** np.arange(13.0), float)
NOISE, NOISE_SPREAD = math.log(0.01), 1.3
"""sigma's nodes, and its prior's mean and deviation in the logarithm."""

TAILS = 4.0
"""Degrees of freedom of the noise."""

NEAR, LOW = 2.0, 0.3
"""Octaves from the middle, and nats above the minimum, within which valleys are as the family has
them.

*Source:* half of 25 public tables: beyond, plateaus of guessing and flat floors between walls put
minima octaves off on grids of 1.8 octaves.
"""

BEYOND = 6.0
"""How many times higher than the other side a wall rises: what lies behind is no valley."""

FAR_ABOVE, ABOVE_SLOW, DISAGREE = math.log(4.0), math.log(2.0), 0.25
"""Nats above a size's best rate, and above the worst of smaller ones, from which on training broke
where seeds disagree by such a share of that height.

*Source:* losses of 5 to 1e5 times the best at random beyond 0.3 to 1.5 octaves, with 2 to 4 seeds.
Taken as points of a curve they widened intervals three to eleven times.
"""

FLAT = 0.05
"""Of how far the gentler side rises in all: no side counts as flatter than that."""

DIVERGED, DIVERGED_WIDTH = 0.1, 0.07
"""A minimum lies below the first rate that diverges: by so many octaves, give or take."""

LOPSIDED, PHASE = 0.3, 0.05
"""Standard error of the place of all minima alike: over their mean distance from the centres of
parabolas, and over the spacing of the grid.

*Source:* seven shapes of valley at every phase (docs/studies/statistics.md).
"""

DEPTH = 0.5
"""Standard error of the levels of all minima alike, where valleys are no parabolas: over what they
rise in half a spacing, times how far their exponent there, of ``|u|^p``, lies from 2.

*Source:* kinks, parabolas and quartics at every phase (docs/studies/gains.md).
"""

SHIFTS = ((0.02, 0.5), (0.07, 0.35), (0.2, 0.15))
"""Octaves by which a seed's minima lie aside at all sizes: a."""

OWN = ((0.01, 0.85), (0.05, 0.1), (0.15, 0.05))
"""The same at each size by itself: w.

*Source:* tables with seeds show 0.01; transformers trained here 0.15."""

LEAST_SLOPE, OF_OWN, STEEP_SLOPE, STEEP_SHARE = 0.005, 0.25, 0.05, 0.1
"""Octaves per doubling: d is ``LEAST_SLOPE`` and a quarter of w, or 0.05 in one table of ten."""

PLACE = 4.0
"""Octaves by which nobody knows where the best rate lies."""

STILL = 0.03
"""Octaves per doubling of a law that stands still."""

STANDS, GOES_ON, FORGETS = 0.1, 0.45, 0.45
"""Shares of laws that stand still, that go on, and whose slopes are lost."""

SLOW, FAST = 4.0, 1.0
"""Doublings over which bends and walks are forgotten."""

SLOPES = ((0.15, 0.5), (0.5, 0.5))
BENDS = ((0.0, 0.5), (0.1, 0.3), (0.3, 0.2))
WALKS = ((0.0, 0.75), (0.08, 0.1), (0.2, 0.1), (0.5, 0.05))
"""Of laws that go on, octaves per doubling: a slope that stays; one forgotten over 4 doublings, a
slow bend; and one over 1, a walk."""

LOST = ((0.2, 0.5), (0.45, 0.5))
MEMORIES = ((4.0, 0.0), (2.0, 0.0), (2.0, 0.2))
"""Of laws whose slopes are lost: octaves per doubling; and doublings over which, with a walk.

*Source:* language models forget over one or two doublings, small networks' laws go on.
"""

PRODUCTS = ((0.0, 0.4), (0.07, 0.5), (0.15, 0.1))
"""Octaves per doubling squared: widths and depths, batches and steps, were measured from -0.10 to
0.06."""

SCATTERS = ((0.0, 0.3), (0.06, 0.17), (0.12, 0.2), (0.22, 0.15), (0.5, 0.12), (1.2, 0.06))
"""Octaves by which sizes scatter.

*Source:* 178 laws of four public tables and of networks trained here.
"""

OWN_SLOPE, APART = 0.3, 0.5
"""Octaves per doubling that one principal direction of several tuned values may have of its own,
beside the law of all, and the share of tables in which one does: that the steep direction stays
says little of the gentle one.
"""

ALIKE = 0.6
"""Correlation of two sizes' scatter a doubling apart."""

RATIOS = (
    (0.35, 0.12),
    (0.5, 0.2),
    (0.71, 0.22),
    (0.84, 0.14),
    (1.19, 0.17),
    (1.41, 0.1),
    (2.0, 0.05),
)
"""r: by what a gap, or a level's distance from its floor, is multiplied per doubling."""

BETWEEN = 0.15
"""Of log r about each of these."""

SHARES = (0.2, 0.35, 0.25, 0.2)
"""Of gaps that stay, go on in a straight line, fade to nothing or grow from it, and the same beside
a constant."""

BENT_OVER = 2.0
"""Doublings over which the bend of such a line is forgotten."""

GAP_PLACE = 0.3
GAP_SLOPES = ((0.003, 0.3), (0.01, 0.3), (0.03, 0.25), (0.1, 0.15))
GAP_AMPLITUDES = ((0.02, 0.4), (0.06, 0.35), (0.2, 0.25))
GAP_SCATTERS = ((0.0, 0.45), (0.003, 0.2), (0.01, 0.2), (0.03, 0.1), (0.1, 0.05))
"""Nats, nats per doubling: of how far two variants' levels lie apart."""

LEVEL_PLACE = 1.0
LEVEL_SLOPES = ((0.03, 0.4), (0.1, 0.4), (0.3, 0.2))
LEVEL_AMPLITUDES = ((0.05, 0.4), (0.2, 0.4), (0.6, 0.2))
LEVEL_SCATTERS = ((0.0, 0.25), (0.003, 0.15), (0.01, 0.2), (0.03, 0.2), (0.1, 0.12), (0.3, 0.08))
"""The same of levels themselves, about their mean."""

OWN_LEVELS = (
    (0.0, 0.25),
    (0.1, 0.15),
    (0.3, 0.15),
    (1.0, 0.15),
    (3.0, 0.15),
    (10.0, 0.1),
    (30.0, 0.05),
)
"""o^2: what a seed's level has of its own, over the variance of one run's noise."""
