"""A person's table as arrays: which runs make a size, a curve, a slice; what is confounded.

Rows are runs. A size is a row of values, one for each axis; ``size`` numbers the sizes. Everything
here is a pure function of plain arrays.
"""

from collections.abc import Sequence

import numpy as np

from depthmup.posterior.curve import Curves
from depthmup.posterior.intervals import Array, Index

SAME_SIZE = 0.005
"""Values of an axis closer than this, as a fraction, are one: tokens counted to the last batch."""

SAME_RATE = 0.01
"""Rates closer than this, in octaves, are one: they were printed with few digits."""

DENSE, BIN = 0.15, 0.25
"""Rates that lie closer than ``DENSE`` octaves on the median were drawn at random, not from a grid;
they are averaged over bins of ``BIN`` octaves, within which a valley is flat: its loss changes by
0.001 where it rises by 0.07 in an octave."""


IN_STEP = 0.9
"""Squared correlation of two axes' logarithms from which on no law tells them apart: it inflates
the variances of their exponents ten times.

*Source:* Marquardt (1970), Technometrics 12:591-612.
"""

MOST_SEEDS = 16
"""Columns of a curve; more seeds are averaged in as many groups, and whole groups are left out by
the jackknife: 16 know their scatter to a fifth."""


def merged(values: Array) -> Array:
    """Positive values, those of one cluster replaced by its most frequent member.

    Sorted values belong to one cluster as long as each is within the closeness of its first. Where
    clusters are not clearly apart the values are left as they are.
    """
    distinct, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    if len(distinct) < 2 or (distinct[1:] > distinct[:-1] * (1 + SAME_SIZE)).all():
        return values
    names = np.empty(len(distinct))
    start = 0
    for end in range(1, len(distinct) + 1):
        if end == len(distinct) or distinct[end] > distinct[start] * (1 + SAME_SIZE):
            names[start:end] = distinct[start + int(np.argmax(count[start:end]))]
            start = end
    # Clusters nearer than four times their width may be one grid of close values, and not noise.
    clusters = np.unique(names)
    apart = (clusters[1:] > clusters[:-1] * (1 + 4 * SAME_SIZE)).all()
    return np.asarray(names[inverse]) if apart else values


def sizes_of(values: Array) -> tuple[Array, Index]:
    """The distinct sizes (sizes, axes) in increasing order, and every run's number.

    Example:
        >>> sizes, number = sizes_of(np.array([[8.0], [4.0], [8.0]]))
        >>> sizes.ravel().tolist(), number.tolist()
        ([4.0, 8.0], [1, 0, 1])
    """
    sizes, number = np.unique(values, axis=0, return_inverse=True)
    return sizes, np.asarray(number.reshape(-1), np.int64)


def slices(sizes: Array, axis: int) -> list[Index]:
    """Indices of sizes that differ along one axis alone, slice by slice, in increasing order."""
    others = np.delete(sizes, axis, axis=1)
    _, group = np.unique(others, axis=0, return_inverse=True)
    group = group.reshape(-1)
    members = [np.flatnonzero(group == g) for g in range(int(group.max(initial=-1)) + 1)]
    return [
        np.asarray(member[np.argsort(sizes[member, axis], kind="stable")])
        for member in members
        if len(member) > 1
    ]


def confounded(sizes: Array, axes: Sequence[str]) -> list[tuple[str, ...]]:
    """Sets of axes that always change together and in step, so that no law tells them apart."""
    logs = dict(zip(axes, np.log2(sizes).T, strict=True))
    sets: list[tuple[str, ...]] = []
    for together in changing_together(sizes, axes):
        for axis in together:
            alike = (np.corrcoef(logs[axis], logs[other])[0, 1] ** 2 for other in together)
            same = tuple(o for o, r in zip(together, alike, strict=True) if r > IN_STEP)
            if len(same) > 1 and same not in sets:
                sets.append(same)
    return sets


def changing_together(sizes: Array, axes: Sequence[str]) -> list[tuple[str, ...]]:
    """Axes that vary, but never alone: sets of axes that always change together."""
    varied = [a for a in range(len(axes)) if len(np.unique(sizes[:, a])) > 1]
    sets: list[tuple[str, ...]] = []
    for axis in varied:
        if slices(sizes, axis):
            continue
        partners = tuple(
            axes[other] for other in varied if other == axis or _follows(sizes, axis, other)
        )
        if len(partners) > 1 and partners not in sets:
            sets.append(partners)
    return sets


def _follows(sizes: Array, axis: int, other: int) -> bool:
    """Whether the other axis is a one-to-one function of this one over all sizes."""
    pairs = len(np.unique(sizes[:, [axis, other]], axis=0))
    return pairs == len(np.unique(sizes[:, axis])) == len(np.unique(sizes[:, other]))


def curves_of_table(
    size: Index, log2_rate: Array, loss: Array, seed: Index, count: int
) -> tuple[Curves, bool]:
    """Curves of all sizes from runs in any order, and whether seeds are shared over rates.

    A seed of -1 is not known. Seeds that were trained at less than half of their size's rates mean
    nothing as columns: runs are then repeats, numbered by their seeds, or as they come.
    """
    point, points, x = _points(size, log2_rate)
    column, columns, shared = _columns(size, point, seed, points)
    of_size = np.zeros(points, np.int64)
    of_size[point] = size
    first = np.searchsorted(of_size, np.arange(count))
    within = np.arange(points) - first[of_size]
    rates = int(np.bincount(of_size, minlength=count).max())
    log2_lrs = np.full((count, rates), np.nan)
    log2_lrs[of_size, within] = x
    cell = point * columns + column
    runs = np.bincount(cell, minlength=points * columns).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.bincount(cell, weights=np.log(loss), minlength=points * columns)
        mean = np.where(runs > 0, np.exp(total / runs), np.nan)
    losses = np.full((count, rates, columns), np.nan)
    losses[of_size, within] = mean.reshape(points, columns)
    return Curves(log2_lrs=log2_lrs, losses=losses), shared


def _points(size: Index, log2_rate: Array) -> tuple[Index, int, Array]:
    """Every run's point, numbered by size and rate; how many there are; and their mean rates."""
    order = np.lexsort((log2_rate, size))
    s, x = size[order], log2_rate[order]
    new_size = np.diff(s, prepend=-1) != 0
    step = np.diff(x, prepend=0.0)
    begins = new_size | (step > SAME_RATE)
    # The median step between one size's rates tells a grid from rates drawn at random.
    starts = np.flatnonzero(begins)
    gaps = np.diff(x[starts])
    inner = s[starts][1:] == s[starts][:-1]
    dense = np.zeros(int(s.max()) + 1, bool)
    for number in np.unique(s[starts][1:][inner]):
        of_size = gaps[inner & (s[starts][1:] == number)]
        dense[number] = len(of_size) >= 5 and float(np.median(of_size)) < DENSE
    # Of thousands of runs the rates follow each other so closely that they have no gaps.
    ends = np.append(starts[1:], len(x)) - 1
    dense[s[starts[x[ends] - x[starts] > BIN]]] = True
    lowest = np.zeros(len(dense))
    lowest[s[new_size]] = x[new_size]
    bins = np.where(dense[s], np.floor((x - lowest[s]) / BIN), 0.0)
    begins = np.where(dense[s], new_size | (np.diff(bins, prepend=-1.0) != 0), begins)
    number = np.cumsum(begins) - 1
    points = int(number[-1]) + 1
    mean = np.bincount(number, weights=x) / np.bincount(number)
    point = np.empty(len(size), np.int64)
    point[order] = number
    return point, points, mean


def _columns(size: Index, point: Index, seed: Index, points: int) -> tuple[Index, int, bool]:
    """Every run's column, how many columns there are, and whether they are shared seeds."""
    of_size = np.zeros(points, np.int64)
    of_size[point] = size
    per_size = np.bincount(of_size)
    if (seed >= 0).all():
        labels, column = np.unique(seed, return_inverse=True)
        # One number for each point and seed, and one for each size and seed, sort in a tenth of the
        # time of rows.
        cells = np.unique(point * len(labels) + column.reshape(-1))
        pairs = of_size[cells // len(labels)] * len(labels) + cells % len(labels)
        pairs, runs = np.unique(pairs, return_counts=True)
        if float(np.median(runs / per_size[pairs // len(labels)])) >= 0.5:
            columns = min(len(labels), MOST_SEEDS)
            return np.asarray(column.reshape(-1) % columns, np.int64), columns, True
    order = np.lexsort((seed, point))
    sorted_points = point[order]
    first = np.searchsorted(sorted_points, np.arange(points))
    repeat = np.empty(len(point), np.int64)
    repeat[order] = np.arange(len(point)) - first[sorted_points]
    counts = np.bincount(point, minlength=points)
    # As many columns as half of the points of every size have runs.
    columns = min(int(np.median(counts[of_size == s])) for s in np.unique(of_size))
    columns = min(max(columns, 1), MOST_SEEDS)
    return repeat % columns, columns, False
