"""Keeps committed operations in order, for the storage writer."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from pravega_common.invariants import check
from segment_service.contracts.operations import Operation

_by_sequence_number = attrgetter("sequence_number")


class MemoryLog:
    """Grows at one end, is truncated at the other. One reader."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._last = 0
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._operations)

    @property
    def last_sequence_number(self) -> int:
        """The number of the last operation ever added."""
        return self._last

    def extend(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if operation.sequence_number <= self._last:
                check(False, "sequence number went back", last=self._last, operation=operation)
            self._last = operation.sequence_number
            self._operations.append(operation)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, after: int, count_max: int) -> list[Operation]:
        """Up to ``count_max`` operations above ``after``; waits until there is one."""
        while True:
            begin = bisect_right(self._operations, after, key=_by_sequence_number)
            if begin < len(self._operations):
                return self._operations[begin : begin + count_max]
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def truncate(self, up_to: int) -> None:
        """Forget all operations up to this sequence number."""
        end = bisect_right(self._operations, up_to, key=_by_sequence_number)
        del self._operations[:end]
