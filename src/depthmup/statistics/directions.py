"""Which targets the sizes of a table can speak of: the directions in which they differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from depthmup.posterior.intervals import Array
from depthmup.posterior.law import Size
from depthmup.statistics.table import confounded

ROUNDED = 0.25
"""Doublings by which a size may lie beside the line of axes in step: whole numbers of layers."""


def volume(size: Size) -> float:
    """The product of a size's values: what is larger than what."""
    return math.prod(size.values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Directions:
    """Sizes in doublings from a base."""

    base: Size
    sizes: Sequence[Size]

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes that were varied."""
        return tuple(a for a in self.base if len({size[a] for size in self.sizes}) > 1)

    @cached_property
    def in_step(self) -> list[tuple[str, ...]]:
        """Sets of axes that grew together: sizes show one slope of all in a set."""
        values = np.array([[size[a] for a in self.axes] for size in self.sizes], float)
        return confounded(values, self.axes)

    def doublings(self, sizes: Sequence[Size]) -> Array:
        """log2 of sizes over the base's, (sizes, axes that vary)."""
        rows = [[math.log2(size[a] / self.base[a]) for a in self.axes] for size in sizes]
        return np.reshape(np.array(rows, float), (len(sizes), len(self.axes)))

    @cached_property
    def straight(self) -> Array:
        """1 and the doublings of the sizes measured.

        Where they leave none to spare, those of axes in step stand on one line through the base.
        """
        x, column = self.doublings(self.sizes), {a: i for i, a in enumerate(self.axes)}
        whole = np.column_stack([np.ones(len(x)), x, _products(x)])
        for first, *others in self.in_step if np.linalg.matrix_rank(whole) == len(x) else ():
            along = x[:, column[first]]
            for axis in others:
                x[:, column[axis]] = along * (along @ x[:, column[axis]] / (along @ along))
        return np.column_stack([np.ones(len(x)), x])

    @property
    def freedom(self) -> int:
        """Sizes beyond those that fix a straight law and its products of axes."""
        x = self.straight[:, 1:]
        rank = np.linalg.matrix_rank
        kept = [i for i in range(x.shape[1]) if rank(x[:, : i + 1]) > rank(x[:, :i])]
        terms = np.column_stack([self.straight, _products(x[:, kept])])
        return len(self.sizes) - int(rank(terms))

    def reaches(self, size: Size) -> bool:
        """Whether the sizes determine a straight law there.

        Beside the line of axes in step it may lie as far as whole numbers of layers and heads do.
        """
        fixed = all(size[a] == self.sizes[0][a] for a in self.base if a not in self.axes)
        there = np.concatenate([[1.0], self.doublings([size])[0]])
        weights = there @ np.linalg.pinv(self.straight, rcond=1e-10)
        off = float(np.linalg.norm(weights @ self.straight - there))
        return fixed and off <= (ROUNDED if self.in_step else 1e-6)


def _products(x: Array) -> Array:
    """x_a x_b for each pair of columns, (sizes, pairs)."""
    pairs = list(combinations(range(x.shape[1]), 2))
    return np.reshape(np.array([x[:, a] * x[:, b] for a, b in pairs]).T, (len(x), len(pairs)))
