"""Which part of a tensor's storage was written last by what."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from depthmup.planning.distributions import Distribution

# Beyond this many pieces that are written one by one, nothing is said.
_MOST_PIECES = 512
# Strided pieces are counted entry by entry, in tensors of at most this size.
_LARGEST_PAINTED = 1 << 26


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a storage, as a view of it, and what was last written there."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    law: Distribution | None

    @property
    def entries(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def same_place(self, other: "Piece") -> bool:
        if self.contiguous and other.contiguous:
            return (self.offset, self.entries) == (other.offset, other.entries)
        return (self.offset, self.shape, self.stride) == (other.offset, other.shape, other.stride)

    def covers(self, other: "Piece") -> bool:
        if self.same_place(other):
            return True
        if not self.contiguous or not other.shape or 0 in other.shape:
            return self.contiguous and self.offset <= other.offset < self.offset + self.entries
        reach = sum((n - 1) * s for n, s in zip(other.shape, other.stride, strict=True))
        return self.offset <= other.offset and other.offset + reach < self.offset + self.entries


def place_of(tensor: Tensor, law: Distribution | None) -> Piece:
    """The place of a tensor in its storage."""
    return Piece(
        offset=int(tensor.storage_offset()),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        law=law,
    )


def shares_of(pieces: Sequence[Piece], wanted: Piece) -> dict[int, int] | None:
    """How many entries of ``wanted`` each piece wrote last; -1: none did. None: too many to say."""
    if len(pieces) > _MOST_PIECES:
        return None
    if wanted.contiguous and all(p.contiguous for p in pieces):
        return _intervals(pieces, wanted)
    end = 1 + max(
        p.offset + sum((n - 1) * s for n, s in zip(p.shape, p.stride, strict=True))
        for p in (*pieces, wanted)
    )
    if end > _LARGEST_PAINTED:
        return None
    canvas = torch.full((end,), -1, dtype=torch.int16)
    for index, p in enumerate(pieces):
        canvas.as_strided(p.shape, p.stride, p.offset).fill_(index)
    painted = canvas.as_strided(wanted.shape, wanted.stride, wanted.offset)
    indices, counts = painted.unique(return_counts=True)
    return dict(zip(indices.tolist(), counts.tolist(), strict=True))


def _intervals(pieces: Sequence[Piece], wanted: Piece) -> dict[int, int]:
    free = [(wanted.offset, wanted.offset + wanted.entries)]
    shares: dict[int, int] = {}
    for index in reversed(range(len(pieces))):
        p = pieces[index]
        start, end = p.offset, p.offset + p.entries
        left = []
        for low, high in free:
            inside = max(0, min(high, end) - max(low, start))
            shares[index] = shares.get(index, 0) + inside
            if not inside:
                left.append((low, high))
                continue
            if low < start:
                left.append((low, start))
            if end < high:
                left.append((end, high))
        free = left
    if unwritten := sum(high - low for low, high in free):
        shares[-1] = unwritten
    return shares
