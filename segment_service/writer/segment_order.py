"""Sorts segments by one number each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedList

NumberT = TypeVar("NumberT", int, float)


class SegmentOrder(Generic[NumberT]):
    """Segment ids by number, lowest first. A change costs the logarithm of the number of segments, a look at the lowest
    one nothing."""

    def __init__(self) -> None:
        self._numbers: dict[int, NumberT] = {}
        self._sorted: SortedList = SortedList()
        """Pairs of number and segment id."""

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def lowest(self) -> NumberT | None:
        if not self._sorted:
            return None
        number: NumberT = self._sorted[0][0]
        return number

    def set(self, segment_id: int, number: NumberT | None) -> None:
        """Give the segment this number, or take it out."""
        old = self._numbers.get(segment_id)
        if old == number:
            return
        if old is not None:
            self._sorted.remove((old, segment_id))
            del self._numbers[segment_id]
        if number is not None:
            self._sorted.add((number, segment_id))
            self._numbers[segment_id] = number

    def take_up_to(self, number: NumberT) -> Iterator[int]:
        """Take out the segments whose number is this or lower, one by one."""
        while self._sorted and self._sorted[0][0] <= number:
            _, segment_id = self._sorted.pop(0)
            del self._numbers[segment_id]
            yield segment_id

    def between(self, first: NumberT, last: NumberT) -> list[int]:
        """The segments with numbers from ``first`` to ``last``, both included."""
        return [segment_id for _, segment_id in self._sorted.irange((first, 0), (last, math.inf))]
