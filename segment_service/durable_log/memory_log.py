"""Keeps committed operations in order, for the storage writer."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from pravega_common.invariants import check
from segment_service.contracts.operations import Operation

block_operations: Final = 1_024
"""Operations kept in one list: a truncation moves no others than those of one."""
truncated_at_once_max: Final = 4_096
"""Operations that one call of ``truncate`` forgets; to free them takes about 2 ms."""

_by_sequence_number = attrgetter("sequence_number")


class MemoryLog:
    """Grows at one end, is truncated at the other. One reader."""

    def __init__(self) -> None:
        self._blocks: deque[list[Operation]] = deque()
        """None of them is empty; all but the first and the last are full."""
        self._length = 0
        self._last = 0
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def last_sequence_number(self) -> int:
        """The number of the last operation ever added."""
        return self._last

    def extend(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if operation.sequence_number <= self._last:
                check(False, "sequence number went back", last=self._last, operation=operation)
            self._last = operation.sequence_number
            if not self._blocks or len(self._blocks[-1]) == block_operations:
                self._blocks.append([])
            self._blocks[-1].append(operation)
            self._length += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, after: int, count_max: int) -> list[Operation]:
        """``count_max`` of the next operations above ``after``, or as many as there are; waits until there is one."""
        while after >= self._last or not self._blocks:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        number = bisect_right(self._blocks, after, key=lambda block: block[-1].sequence_number)
        begin = bisect_right(self._blocks[number], after, key=_by_sequence_number)
        found = self._blocks[number][begin : begin + count_max]
        while len(found) < count_max and (number := number + 1) < len(self._blocks):
            found += self._blocks[number][: count_max - len(found)]
        return found

    def truncate(self, up_to: int) -> bool:
        """Forget the operations up to this sequence number, the first ``truncated_at_once_max`` of them; whether there
        are more. The cost is in proportion to what is forgotten, however much stays."""
        left = truncated_at_once_max
        while self._blocks and left:
            block = self._blocks[0]
            end = min(bisect_right(block, up_to, key=_by_sequence_number), left)
            self._length -= end
            left -= end
            if end < len(block):
                del block[:end]
                break
            self._blocks.popleft()
        return bool(self._blocks) and self._blocks[0][0].sequence_number <= up_to
