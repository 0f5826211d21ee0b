"""What parts a run from its valley: noise, the misfit of the shape, and a size's own shape.

The seed-averaged log losses of one size have the covariance

    sigma^2 / q + rho^2 H H' exp(-|x - x'|) on one side + (zeta_T^2 +- + zeta_C^2) h h',

q the weight of a point (Student's t with 4 degrees of freedom, times its seeds), h its rise above
the lowest point as measured, and

    H = h sqrt(1 + (h/g)^2) (1 + (h/0.3)^2) (1 + (d/2)^2),

d the octaves from the middle, g how far the other side rises at the same distance: what lies far
out, or high, or far above the other side, as a wall or a plateau of guessing does, says little of
the minimum. A misfit of the shape persists between neighbouring rates; a size may turn and steepen
by itself. Heights come from the data, so that no fit can choose its own errors.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from depthmup.posterior.intervals import Array, Flags, Index
from depthmup.posterior.priors import BEYOND, FLAT, LOW, NEAR


@dataclass(frozen=True, kw_only=True, eq=False)
class CurvePoints:
    """Seed-averaged curves, (batch, sizes, rates): log2 rates, log losses, and seeds at each."""

    x: Array
    y: Array
    count: Array

    @cached_property
    def there(self) -> Flags:
        return np.asarray(self.count > 0)

    @cached_property
    def lowest(self) -> Array:
        """log2 rate of the lowest point, (batch, sizes); NaN where there is none."""
        y = np.where(self.there, self.y, np.inf)
        at = np.take_along_axis(self.x, y.argmin(-1)[..., None], -1)[..., 0]
        return np.where(self.there.any(-1), at, np.nan)

    @cached_property
    def height(self) -> Array:
        """Above the lowest point."""
        y = np.where(self.there, self.y, np.inf)
        low = y.min(-1, keepdims=True)
        return np.where(self.there, self.y - np.where(np.isfinite(low), low, 0.0), 0.0)

    @cached_property
    def centre(self) -> Array:
        """Of the parabola through the lowest point and its neighbours, (batch, sizes)."""
        at = np.where(self.there, self.y, np.inf).argmin(-1)[..., None]
        rates = np.arange(self.x.shape[-1])
        below = np.where(self.there & (rates < at), rates, -1).max(-1)[..., None]
        above = np.where(self.there & (rates > at), rates, len(rates)).min(-1)[..., None]
        inside = (below >= 0) & (above < len(rates))

        def around(values: Array) -> tuple[Array, Array]:
            here = np.take_along_axis(values, at, -1)
            ends = (np.clip(end, 0, len(rates) - 1) for end in (below, above))
            left, right = (np.take_along_axis(values, end, -1) - here for end in ends)
            return left, right

        (a, b), (low, high) = around(self.x), around(self.y)
        # low = m a + n a^2 and high = m b + n b^2 have their vertex at -m / 2n.
        with np.errstate(all="ignore"):
            vertex = (high * a**2 - low * b**2) / (2 * (high * a - low * b))
        vertex = np.where(inside & np.isfinite(vertex), np.clip(vertex, a / 2, b / 2), 0.0)
        return np.asarray(np.nan_to_num(self.lowest) + vertex[..., 0])

    @cached_property
    def spacing(self) -> Array:
        """Octaves between the lowest point and its neighbours, (batch, sizes)."""
        away = np.abs(self.x - np.nan_to_num(self.lowest)[..., None])
        away = np.where(self.there & (away > 1e-9), away, np.inf)
        near = np.sort(away, -1)[..., :2]
        finite = np.isfinite(near)
        mean = np.where(finite, near, 0.0).sum(-1) / np.maximum(finite.sum(-1), 1)
        return np.where(finite.any(-1), np.clip(mean, 0.1, 4.0), 1.0)

    @cached_property
    def side(self) -> Array:
        """-1 to the left of the centre, 1 to its right."""
        return np.where(self.x > self.centre[..., None], 1.0, -1.0)

    @cached_property
    def mirrored(self) -> Array:
        """How far the other side rises at the same distance, (batch, sizes, rates)."""
        away = np.abs(self.x - self.centre[..., None])
        result = np.zeros(self.x.shape)
        tops = []
        for side in (-1, 1):
            here = self.there & (self.side == side)
            top = np.where(here, self.height, 0.0).max(-1)
            tops.append(top)
            # Straight lines from the centre through the points of this side, in order of distance.
            d = np.where(here, away, np.inf)[..., None, :]
            target = away[..., :, None]
            before = np.where(d <= target, d, 0.0)
            after = np.where(d > target, d, np.inf)
            i, j = before.argmax(-1), after.argmin(-1)
            low_d, high_d = before.max(-1), after.min(-1)
            low = np.where(low_d > 0, np.take_along_axis(self.height, i, -1), 0.0)
            high = np.take_along_axis(self.height, j, -1)
            beyond = ~np.isfinite(high_d)
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(beyond, 0.0, (away - low_d) / (high_d - low_d))
                inner = low + share * (high - low)
                outer = low * away / np.maximum(low_d, 1e-9)
            rise = np.where(beyond, outer, inner)
            result = np.where(self.side == -side, rise, result)
        low, high = np.minimum(*tops), np.maximum(*tops)
        known = np.where(low > 0, low, np.where(high > 0, high, 1.0))[..., None]
        # Where a side has no point nobody knows whether the other is steep.
        alone = np.where(self.side < 0, tops[1][..., None], tops[0][..., None]) <= 0
        return np.where(alone, known, np.maximum(result, FLAT * known))

    @cached_property
    def misfit(self) -> Array:
        """Correlated heights H H' exp(-|x - x'|) of one side, (batch, sizes, rates, rates)."""
        away = np.abs(self.x - self.centre[..., None]) / NEAR
        high = self.height * np.sqrt(1 + (self.height / self.mirrored) ** 2)
        high = high * (1 + (self.height / LOW) ** 2) * (1 + away**2)
        apart = np.abs(self.x[..., :, None] - self.x[..., None, :])
        alike = (self.side[..., :, None] == self.side[..., None, :]) * np.exp(-apart)
        return np.asarray(high[..., :, None] * high[..., None, :] * alike)

    def part(self, index: Index) -> "CurvePoints":
        """Those of some experiments."""
        return CurvePoints(x=self.x[index], y=self.y[index], count=self.count[index])

    def moved(self, origin: Array) -> "CurvePoints":
        """Rates counted from an origin of each experiment."""
        return CurvePoints(x=self.x - origin[:, None, None], y=self.y, count=self.count)

    def inner(self) -> "CurvePoints":
        """Without what lies beyond the first point of a wall, on either side."""
        away = np.abs(self.x - self.centre[..., None])
        wall = self.there & (self.height > BEYOND * self.mirrored)
        there = self.there
        for side in (-1, 1):
            first = np.where(wall & (self.side == side), away, np.inf).min(-1, keepdims=True)
            there = there & ~((self.side == side) & (away > first + 1e-9))
        return CurvePoints(x=self.x, y=self.y, count=np.where(there, self.count, 0.0))

    @cached_property
    def own_shape(self) -> tuple[Array, Array]:
        """h h' with the signs of a turn, and without."""
        h = self.height
        turned = h * self.side
        return (
            np.asarray(turned[..., :, None] * turned[..., None, :]),
            np.asarray(h[..., :, None] * h[..., None, :]),
        )

    def structured(self, rho: Array, turn: Array, steep: Array) -> Array:
        """All of the covariance but noise; scales are (batch,)."""

        def wide(values: Array) -> Array:
            return np.asarray(values)[..., None, None, None] ** 2

        turned, steeper = self.own_shape
        covariance = wide(rho) * self.misfit + wide(turn) * turned + wide(steep) * steeper
        there = self.there
        return np.where(there[..., :, None] & there[..., None, :], covariance, 0.0)

    def inverse(self, sigma: Array, rho: Array, turn: Array, steep: Array, weight: Array) -> Array:
        """Inverse covariances, (batch, sizes, rates, rates); zero where there is no point.

        Scales are (batch,), weights (batch, sizes, rates) multiply the seeds.
        """
        there = self.there
        noise = np.asarray(sigma)[:, None, None] ** 2 / np.maximum(self.count * weight, 1e-9)
        noise = np.where(there, noise, 1.0)
        covariance = self.structured(rho, turn, steep) + noise[..., :, None] * np.eye(
            self.x.shape[-1]
        )
        both = there[..., :, None] & there[..., None, :]
        return np.where(both, np.linalg.inv(covariance), 0.0)

    def precision(
        self, sigma: Array, rho: Array, turn: Array, steep: Array, weight: Array
    ) -> Array:
        """The same with each size's level eliminated."""
        inverse = self.inverse(sigma, rho, turn, steep, weight)
        ones = inverse.sum(-1)
        total = np.maximum(ones.sum(-1), 1e-300)
        level = ones[..., :, None] * ones[..., None, :] / total[..., None, None]
        return np.asarray(inverse - level)

    def spectrum(
        self, rho: Array, turn: Array, steep: Array, weight: Array
    ) -> tuple[Array, Array, Array]:
        """Where noise is the unit: eigenvalues, and what turns points into their coordinates.

        With both, the inverse of every sigma's covariance is ``T' diag(1 / (sigma^2 + e)) T``. The
        third is the log determinant's part of the points' weights, (batch, sizes).
        """
        root = np.where(self.there, np.sqrt(np.maximum(self.count * weight, 1e-9)), 0.0)
        scaled = self.structured(rho, turn, steep) * root[..., :, None] * root[..., None, :]
        values, vectors = np.linalg.eigh(scaled)
        with np.errstate(divide="ignore"):
            logs = np.where(self.there, -2 * np.log(root), 0.0).sum(-1)
        turned = np.swapaxes(vectors, -1, -2) * root[..., None, :]
        return np.maximum(values, 0.0), np.asarray(turned), logs
