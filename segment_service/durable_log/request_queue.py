"""Bounds the queue between the callers of a container and its operation processor."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from segment_service.durable_log.requests import AnyRequest, AppendRequest

request_queue_count_max: Final = 65_536
"""Requests that may wait to be packed into a frame."""
request_queue_bytes_max: Final = 64 * 1024 * 1024
"""Bytes of appends that may wait to be packed into a frame; one append may exceed it."""


class LogRequestQueue:
    """First in, first out. One consumer."""

    def __init__(self, count_max: int = request_queue_count_max, bytes_max: int = request_queue_bytes_max) -> None:
        self._requests: deque[AnyRequest] = deque()
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiter: asyncio.Future[None] | None = None
        self.bytes = 0
        """Bytes of the appends that wait."""

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def is_full(self) -> bool:
        return len(self._requests) >= self._count_max or self.bytes >= self._bytes_max

    def put(self, request: AnyRequest) -> None:
        """Add at the end. The caller has looked at ``is_full``."""
        self._requests.append(request)
        if type(request) is AppendRequest:
            self.bytes += request.length
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def put_front(self, requests: Sequence[AnyRequest]) -> None:
        """Add in front of all others, in order; they were in the queue before, or must not wait."""
        self._requests.extendleft(reversed(requests))
        self.bytes += sum(request.length for request in requests if type(request) is AppendRequest)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def pop(self) -> AnyRequest | None:
        if not self._requests:
            return None
        request = self._requests.popleft()
        if type(request) is AppendRequest:
            self.bytes -= request.length
        return request

    async def wait_not_empty(self) -> None:
        """Only one task may wait."""
        if not self._requests:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
