"""Splits, merges and compares half-open ranges of the key space [0, 1)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import InvalidArgument

edge_tolerance: Final = 1e-9
"""How far two edges may lie apart and still count as the same one; ranges travel as decimal and binary fractions."""


@dataclass(frozen=True, slots=True, order=True)
class KeyRange:
    """``low`` ≤ position < ``high``, both within [0, 1]."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.low < self.high <= 1.0:
            raise InvalidArgument(f"key range [{self.low}, {self.high}) must satisfy 0 <= low < high <= 1")

    @property
    def width(self) -> float:
        return self.high - self.low

    def contains(self, position: float) -> bool:
        return self.low <= position < self.high

    def overlaps(self, other: KeyRange, tolerance: float = edge_tolerance) -> bool:
        """Whether the two share more than an edge."""
        return self.low < other.high - tolerance and other.low < self.high - tolerance

    def split(self, count: int) -> tuple[KeyRange, ...]:
        """``count`` adjoining ranges of equal width that make up this one."""
        if count < 1:
            raise InvalidArgument(f"a key range cannot be split into {count} parts")
        edges = [self.low + self.width * index / count for index in range(count)] + [self.high]
        return tuple(KeyRange(low, high) for low, high in itertools.pairwise(edges))


WHOLE_KEY_SPACE: Final = KeyRange(0.0, 1.0)


def merge_adjoining(ranges: Iterable[KeyRange], tolerance: float = edge_tolerance) -> tuple[KeyRange, ...]:
    """The same part of the key space in as few ranges as possible; ``InvalidArgument`` if two overlap.

    ``tolerance``: how far apart two edges may lie and count as one; 0 compares as controllers do.
    """
    merged: list[KeyRange] = []
    for current in sorted(ranges):
        if merged and merged[-1].overlaps(current, tolerance):
            raise InvalidArgument(
                f"key ranges [{merged[-1].low}, {merged[-1].high}) and [{current.low}, {current.high}) overlap"
            )
        if merged and math.isclose(merged[-1].high, current.low, rel_tol=0.0, abs_tol=tolerance):
            merged[-1] = KeyRange(merged[-1].low, current.high)
        else:
            merged.append(current)
    return tuple(merged)


def cover_same(first: Iterable[KeyRange], second: Iterable[KeyRange]) -> bool:
    """Whether two sets of ranges, neither with overlaps, make up the same part of the key space."""
    left, right = merge_adjoining(first), merge_adjoining(second)
    return len(left) == len(right) and all(
        math.isclose(a.low, b.low, abs_tol=edge_tolerance) and math.isclose(a.high, b.high, abs_tol=edge_tolerance)
        for a, b in zip(left, right, strict=True)
    )


def covers_whole(ranges: Iterable[KeyRange]) -> bool:
    """Whether the ranges, without overlaps, make up the whole key space."""
    return cover_same(ranges, (WHOLE_KEY_SPACE,))
