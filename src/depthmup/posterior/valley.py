"""The shape of a valley: log loss above its minimum against log2 rate, and its derivatives.

    h(u) = exp(l + c psi(u)) [(u^2 + e^2)^(p/2) - e^p]  (+ exp(l + b) wall(u - w) on the right),

u octaves from the minimum, psi(u) = sqrt(1 + u^2) - 1. Each side has a steepness l, a power p and a
flattening c of its own: c below zero ends in a plateau, above zero in an exponential wall. Both
share the rounding e of the kink. On the right a wall of slope exp(l + b) begins w octaves above the
minimum; wall(v) = 0.15 log(1 + exp(v / 0.15)), less its value at u = 0. With doublings s_a of a
size along axis a,

    l = l_0 + sum_a (C_a -+ T_a) s_a    (left -, right +),    c = c_0 + sum_a D_a s_a,
    log p = log p_0 + sum_a P_a s_a,    w = w_0 + sum_a W_a s_a:

valleys may grow steeper alike (C), turn lopsided (T), bend otherwise (D of each side, P of both),
and their wall may come nearer (W).
"""

from dataclasses import dataclass

import numpy as np

from depthmup.posterior.intervals import Array

LEVELS, POWERS, BENDS = slice(0, 2), slice(2, 4), slice(4, 6)
ROUND, WALL, PLACE = 6, 7, 8
SHARED = 9
"""Of the shape's vector: l, log p and c of both sides, log e, b and w; then, for every axis, C, T,
D of both sides, P and W."""

PER_AXIS = 6
SOFT = 0.15
"""Octaves within which a wall begins."""

MOST = 30.0
"""Of an exponent: beyond it a height is no number that a loss could have."""


def parameters(axes: int) -> int:
    """Entries of the shape's vector."""
    return SHARED + PER_AXIS * axes


@dataclass(frozen=True, kw_only=True, eq=False)
class Rise:
    """Heights above the minimum, and their derivatives by u and by the shape's vector."""

    height: Array
    slope: Array
    by_shape: Array


def rise(u: Array, shape: Array, s: Array) -> Rise:
    """Heights at u, (batch, sizes, rates), of shapes (batch, parameters); s is (sizes, axes)."""
    axes = s.shape[1]
    right = u > 0
    sign = np.where(right, 1.0, -1.0)

    def of_side(values: Array) -> Array:
        """(batch, 2), or (batch, sizes, 2), at every point."""
        wide = values if values.ndim == 3 else values[:, None]
        return np.asarray(np.where(right, wide[..., 1, None], wide[..., 0, None]))

    def by_axis(number: int) -> Array:
        """One kind of trends times doublings, (batch, sizes)."""
        start = SHARED + number * axes
        return np.asarray(shape[:, start : start + axes] @ s.T)

    grows, turns, left_bend, right_bend, powers, walls = (by_axis(n) for n in range(PER_AXIS))
    steep = shape[:, None, LEVELS] + np.stack([grows - turns, grows + turns], -1)
    bend = of_side(shape[:, None, BENDS] + np.stack([left_bend, right_bend], -1))
    power = np.exp(np.clip(of_side(shape[:, None, POWERS] + powers[..., None]), -2.0, 2.5))
    round_ = np.exp(shape[:, ROUND])[:, None, None]
    square = u**2 + round_**2
    log_square, log_round = np.log(square), np.log(round_)
    outer, inner = np.exp(power / 2 * log_square), np.exp(power * log_round)
    far = np.sqrt(1 + u**2)
    psi = far - 1
    scale = np.exp(np.clip(of_side(steep) + bend * psi, -MOST, MOST))
    bracket = outer - inner
    height = scale * bracket
    along = outer / square
    slope = scale * (bend * (u / far) * bracket + power * u * along)
    by_power = scale * power * (log_square / 2 * outer - log_round * inner)
    by_round = scale * power * (round_**2 * along - inner)
    by_bend = psi * height
    begin = (shape[:, PLACE, None] + walls)[..., None]
    wall = np.exp(np.clip(steep[..., 1] + shape[:, WALL, None], -MOST, MOST))[..., None] * right
    above, at_zero = (u - begin) / SOFT, -begin / SOFT
    raised = wall * SOFT * (np.logaddexp(0, above) - np.logaddexp(0, at_zero))
    on, on_at_zero = _logistic(above), _logistic(at_zero)
    by_begin = wall * (on_at_zero - on)
    height, slope = height + raised, slope + wall * on
    left = ~right
    columns = [
        *(height * left, height * right),
        *(by_power * left, by_power * right),
        *(by_bend * left, by_bend * right),
        by_round,
        raised,
        by_begin,
    ]
    moved = s.T[:, None, :, None]
    kinds = (height, sign * height, by_bend * left, by_bend * right, by_power, by_begin)
    for each in kinds:
        columns += [each * column for column in moved]
    return Rise(height=height, slope=slope, by_shape=np.stack(columns, -1))


def _logistic(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(x, -60, 60))))
