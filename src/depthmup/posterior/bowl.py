"""A valley in several coordinates: log loss above its minimum, and its derivatives.

    h(x) = sum_r h_r(w_r),    w_r = v_r + sum_q B_rq f(v_q),    v = R_i (x - k_i),
    f(v) = c^2 ((1 + v^2 / c^2)^(1/2) - 1),    v^2 / 2 at first, c = 4 octaves,

x the log2 of the tuned values, k_i the minimum of size i, h_r the two-sided rise of one coordinate
(``posterior.valley``, without its wall) along the principal direction r, a row of the rotation R_i.
Bends B, zero on the diagonal, make ridges that are no straight lines. All sizes share them, the
rises, with their trends, and the rotation up to a slow one: its angles are linear in doublings.
Angles are those of Givens' rotations from a first guess of R.

*Source:* Golub and Van Loan, Matrix Computations (2013), Section 5.1.8, for Givens' rotations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from depthmup.posterior.intervals import Array, Index
from depthmup.posterior.valley import PER_AXIS, SHARED, WALL, parameters, rise

STRAIGHT = 4.0
"""Octaves from the minimum beyond which a ridge bends no further."""

NO_WALL = -30.0
"""Of b: a wall of this slope is none."""


def free(axes: int) -> Index:
    """The entries of a shape's vector that are no wall's."""
    return np.asarray(np.r_[0:WALL, SHARED : SHARED + (PER_AXIS - 1) * axes], np.int64)


def planes(values: int) -> list[tuple[int, int]]:
    """Pairs of coordinates between which a rotation turns."""
    return list(combinations(range(values), 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class Bowl:
    """Minima and shape.

    Attributes:
        k: minima, (sizes, values).
        shape: of every principal direction, (values, free parameters).
        angles: of every plane, at the base and per doubling, (planes, 1 + axes).
        first: the rotation from which angles count, rows are directions, (values, values).
        bends: of every direction by each other one, per octave, (values, values - 1).
    """

    k: Array
    shape: Array
    angles: Array
    first: Array
    bends: Array

    @property
    def vector(self) -> Array:
        """Everything that is fitted, minima first."""
        parts = (self.k, self.shape, self.angles, self.bends)
        return np.concatenate([part.ravel() for part in parts])

    def moved(self, step: Array) -> "Bowl":
        """With a step of its vector."""
        ends = np.cumsum([self.k.size, self.shape.size, self.angles.size])
        k, shape, angles, bends = np.split(step, ends)
        return replace(
            self,
            k=self.k + k.reshape(self.k.shape),
            shape=self.shape + shape.reshape(self.shape.shape),
            angles=self.angles + angles.reshape(self.angles.shape),
            bends=self.bends + bends.reshape(self.bends.shape),
        )

    @property
    def bent(self) -> Array:
        """B, (values, values)."""
        whole = np.zeros((len(self.first),) * 2)
        whole[~np.eye(len(whole), dtype=bool)] = self.bends.ravel()
        return whole

    def rotations(self, s: Array) -> tuple[Array, Array]:
        """R at places (places, axes), and its derivatives by every plane's angle."""
        values, count = len(self.first), len(s)
        angles = np.column_stack([np.ones(count), s]) @ self.angles.T
        whole = np.broadcast_to(self.first, (count, values, values))
        slopes = np.zeros((len(self.angles), count, values, values))
        for number, (a, b) in enumerate(planes(values)):
            cos, sin = np.cos(angles[:, number]), np.sin(angles[:, number])
            one = np.tile(np.eye(values), (count, 1, 1))
            one[:, a, a] = one[:, b, b] = cos
            one[:, a, b], one[:, b, a] = sin, -sin
            turned = np.zeros_like(one)
            turned[:, a, a] = turned[:, b, b] = -sin
            turned[:, a, b], turned[:, b, a] = cos, -cos
            slopes = one @ slopes
            slopes[number] = turned @ whole
            whole = one @ whole
        return whole, slopes


@dataclass(frozen=True, kw_only=True, eq=False)
class Heights:
    """Heights above minima, (points,), and derivatives by place and by the shape and angles."""

    height: Array
    slope: Array
    by_shape: Array


def full(shape: Array, axes: int) -> Array:
    """Vectors of ``posterior.valley`` for (values, free parameters)."""
    whole = np.zeros((len(shape), parameters(axes)))
    whole[:, free(axes)] = shape
    whole[:, WALL] = NO_WALL
    return whole


def heights(bowl: Bowl, away: Array, s: Array) -> Heights:
    """At points (points, values) from their minimum, at places (points, axes)."""
    axes = s.shape[1]
    rotation, turned = bowl.rotations(s)
    along = np.einsum("nrj,nj->rn", rotation, away)
    bent, root = bowl.bent, np.sqrt(1 + (along / STRAIGHT) ** 2)
    aside = STRAIGHT**2 * (root - 1)
    found = rise((along + bent @ aside)[..., None], full(bowl.shape, axes), s)
    of_bent = found.slope[..., 0]
    slope = of_bent + along / root * (bent.T @ of_bent)
    by_shape = np.moveaxis(found.by_shape[:, :, 0][..., free(axes)], 0, 1)
    by_angle = np.einsum("rn,mnrj,nj->nm", slope, turned, away)
    by_bend = np.einsum("rn,qn->nrq", of_bent, aside)[:, ~np.eye(len(bent), dtype=bool)]
    trends = by_angle[..., None] * np.column_stack([np.ones(len(s)), s])[:, None]
    return Heights(
        height=found.height[..., 0].sum(0),
        slope=np.einsum("rn,nrj->nj", slope, rotation),
        by_shape=np.concatenate(
            [by_shape.reshape(len(s), -1), trends.reshape(len(s), -1), by_bend], axis=1
        ),
    )


def lowest(bowl: Bowl, values: Sequence[int], away: Array, s: Array) -> Array:
    """The least heights, (points,), where some values lie so far from their minimum, (points,
    values), the others being free.

    Each rise is a parabola of its secant's curvature; the least of these is exact, and repeated.
    """
    some = list(values)
    if len(some) == len(bowl.first):
        whole = np.zeros_like(away)
        whole[:, some] = away
        return heights(bowl, whole, s).height
    rotation, _ = bowl.rotations(s)
    shape = full(bowl.shape, s.shape[1])
    straight = np.eye(len(bowl.first))
    place = away @ straight[some]
    for _ in range(SECANTS):
        along = np.einsum("nrj,nj->nr", rotation, place)
        # w is linear in v where f(v) / v is held.
        share = along / (1 + np.sqrt(1 + (along / STRAIGHT) ** 2))
        turned = (straight + bowl.bent * share[:, None]) @ rotation
        bent = np.einsum("nrj,nj->nr", turned, place)
        apart = np.where(np.abs(bent) < NEAREST, NEAREST, bent)
        found = rise(apart.T[..., None], shape, s)
        secant = np.maximum(found.slope[..., 0].T / apart, 0.0)
        metric = np.einsum("nra,nr,nrb->nab", turned, secant, turned)
        # Bends of flat directions may lie along a steep one: they are no more than flat then.
        least = FLATTEST + FLAT_SHARE * np.trace(metric, axis1=1, axis2=2)
        column = np.linalg.inv(metric + least[:, None, None] * straight)[:, :, some]
        pulls = np.linalg.solve(column[:, some], away[..., None])[..., 0]
        before, place = place, np.einsum("nav,nv->na", column, pulls)
        # Heights are flat about the least: they are nearer by the square of this.
        if np.abs(place - before).max() < NEAREST:
            break
    return heights(bowl, place, s).height


SECANTS = 16
NEAREST, FLATTEST, FLAT_SHARE = 1e-3, 1e-12, 1e-9
"""Octaves, nats per octave squared, and a share of all curvatures."""
