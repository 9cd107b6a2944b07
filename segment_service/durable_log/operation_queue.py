"""The bounded queue between the callers of a container and its operation processor."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from pravega_common.errors import PravegaError
from segment_service.durable_log.operations import Append, Merge, Operation, Seal

operation_queue_count_max: Final = 65_536
"""Operations that may wait to be packed into a frame."""
operation_queue_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of appends that may wait to be packed into a frame; one append may exceed it."""


class QueuedOperation:
    """An operation on its way through the processor, with the one who waits for it.

    ``segment`` and ``source`` are names: they are resolved to ids when the operation is validated, in queue order,
    so that calls take effect in the order in which they were made. ``rejection`` is set when validation refused it.
    """

    __slots__ = ("future", "operation", "rejection", "segment", "source")

    def __init__(
        self, operation: Operation, future: asyncio.Future[Any] | None, segment: str = "", source: str = ""
    ) -> None:
        self.operation = operation
        self.future = future
        self.segment = segment
        self.source = source
        self.rejection: PravegaError | None = None

    def complete(self) -> None:
        """Answer the caller: the operation is durable and visible, or it was rejected."""
        future = self.future
        if future is None or future.done():
            return
        if self.rejection is not None:
            self.fail(self.rejection)
        else:
            future.set_result(_result(self.operation))

    def fail(self, error: BaseException) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # marks it retrieved: a caller may have gone away


def _result(operation: Operation) -> int:
    """The length of the segment after an append, seal or merge."""
    if isinstance(operation, Append | Merge):
        return operation.offset + operation.length
    return operation.offset if isinstance(operation, Seal) else 0


class OperationQueue:
    """First in, first out. One consumer."""

    def __init__(self, count_max: int = operation_queue_count_max, bytes_max: int = operation_queue_bytes_max) -> None:
        self._items: deque[QueuedOperation] = deque()
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiter: asyncio.Future[None] | None = None
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        return len(self._items) >= self._count_max or self.bytes >= self._bytes_max

    def put(self, item: QueuedOperation, size: int = 0) -> None:
        """Add at the end; ``size`` counts the bytes of an append. The caller has looked at ``is_full``."""
        self._items.append(item)
        self.bytes += size
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pop(self) -> QueuedOperation | None:
        if not self._items:
            return None
        item = self._items.popleft()
        if type(item.operation) is Append:
            self.bytes -= item.operation.length
        return item

    async def wait_not_empty(self) -> None:
        """Only one task may wait."""
        if not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
