"""The tapered parabola: least squares with tricube weights, centred on the parabola's own vertex.

A parabola through the few points around the lowest one jumps as the grid passes a kink of the
curve: its drifts err by 0.1 octaves or more where this one errs by 0.01, and it scatters more.

*Source:* local regression with tricube weights: Cleveland (1979), Journal of the American
Statistical Association 74:829-836.
"""

import math

import numpy as np

from depthmup.posterior.intervals import Array, Flags

BANDWIDTH, SPACINGS = 2.0, 2.5
"""The weights reach this many octaves, or this many spacings of the grid if that is more."""

PASSES = 12
"""The centre moves by less than 1e-3 octaves after six."""


def tricube(distance: Array) -> Array:
    """Cleveland's weights, (1 - |distance|^3)^3: 1 at the centre, 0 from distance 1 on."""
    return np.asarray((1 - np.minimum(np.abs(distance), 1.0) ** 3) ** 3)


def weights_of(x: Array, finite: Flags, centre: Array, bandwidth: Array) -> tuple[Array, Array]:
    """Weights of log losses in the tapered parabola's slope and bend at a centre, (..., rates).

    With u from the centre, slope and bend solve the weighted normal equations of 1, u and u^2.
    """
    u = x - centre[..., None]
    weight = tricube(u / bandwidth[..., None]) * finite
    s0, s1, s2, s3, s4 = ((weight * u**k).sum(-1) for k in range(5))
    determinant = s0 * (s2 * s4 - s3**2) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2**2)
    # Fewer than three points fix no parabola: its bend is then zero, not above.
    scale = np.where(determinant > 1e-9 * bandwidth**6, determinant, math.inf)[..., None]
    c10, c11, c12 = s2 * s3 - s1 * s4, s0 * s4 - s2**2, s1 * s2 - s0 * s3
    c20, c22 = s1 * s3 - s2**2, s0 * s2 - s1**2
    slope = weight * (c10[..., None] + c11[..., None] * u + c12[..., None] * u**2) / scale
    bend = weight * (c20[..., None] + c12[..., None] * u + c22[..., None] * u**2) / scale
    return slope, bend


def vertex(slope: Array, bend: Array, reach: Array) -> Array:
    """Where slope u + bend u^2 is lowest within a reach; at an end where it does not bend up."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.where(bend > 0, -slope / (2 * bend), -np.sign(slope) * reach)
    return np.asarray(np.clip(at, -reach, reach))


def centre_of(x: Array, y: Array, start: Array, spacing: Array, bandwidth: Array) -> Array:
    """The fixed point: weights centred where their own parabola has its vertex."""
    finite = np.isfinite(y)
    values = np.where(finite, y, 0.0)
    # Half an octave at most in one pass, so that no pass leaves the points behind.
    reach, step = np.maximum(spacing, 1.0), np.full(start.shape, 0.5)
    centre = start
    for _ in range(PASSES):
        slope, bend = weights_of(x, finite, centre, bandwidth)
        shift = vertex((slope * values).sum(-1), (bend * values).sum(-1), step)
        moved = np.clip(centre + shift, start - reach, start + reach)
        if np.all(np.abs(moved - centre) < 1e-6):
            return np.asarray(moved)
        centre = moved
    return centre
