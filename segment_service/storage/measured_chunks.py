"""Measures the calls to Tier 2: how long they took, how they ended, and since when they fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from pravega_common.errors import Outcome, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.latency import LatencyCounts
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo, ChunkStorage

T = TypeVar("T")

_CALLS: Final = ("put", "get", "info", "list", "delete")


class MeasuredChunkStorage:
    """As the ``ChunkStorage`` that it passes every call to."""

    def __init__(self, inner: ChunkStorage, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self.latencies = {call: LatencyCounts() for call in _CALLS}
        """Durations of the calls that succeeded."""
        self.failures = Counter[str]()
        """Calls that the store could not answer, by the name of the call."""
        self.put_bytes = 0
        self.got_bytes = 0
        self.last_error = ""
        """What the last failed call said."""
        self._failing_since_s: float | None = None
        self._answered_s = float("-inf")
        """When the last call ended that the store answered."""
        self.ended_s = clock.monotonic_s()
        """When the last call ended, whichever way."""

    @property
    def failing_s(self) -> float:
        """Returns the seconds since which every call has failed; 0 if the last one was answered."""
        return 0.0 if self._failing_since_s is None else self._clock.monotonic_s() - self._failing_since_s

    async def start(self) -> None:
        await self._inner.start()

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        with self._measured("put"):
            await self._inner.put(name, data)
        self.put_bytes += sum(map(len, data))

    async def get(self, name: str, offset: int, length: int) -> bytes:
        with self._measured("get"):
            found = await self._inner.get(name, offset, length)
        self.got_bytes += length
        return found

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        with self._measured("get"):
            found = await self._inner.get_with(name, offset, length, function)
        self.got_bytes += length
        return found

    async def info(self, name: str) -> ChunkInfo:
        with self._measured("info"):
            return await self._inner.info(name)

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        """The latency counted is that of the first name: the others come in pages that only the adapter knows."""
        names = self._inner.list(prefix)
        is_first = True
        while True:
            with self._measured("list", is_counted=is_first):
                found = await anext(names, None)
            if found is None:
                return
            is_first = False
            yield found

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        """One call; it failed if a name is left, and the store fails if none is gone."""
        began_s = self._clock.monotonic_s()
        failed = await self._inner.delete_all(names)
        self.ended_s = self._clock.monotonic_s()
        if failed:
            self._failed("delete", began_s, next(iter(failed.values())))
        if len(failed) < len(names):
            self._answered()
            self.latencies["delete"].note(self.ended_s - began_s)
        return failed

    async def close(self) -> None:
        await self._inner.close()

    @contextmanager
    def _measured(self, call: str, *, is_counted: bool = True) -> Iterator[None]:
        began_s = self._clock.monotonic_s()
        try:
            yield
        except PravegaError as error:
            self.ended_s = self._clock.monotonic_s()
            if error.outcome is Outcome.REJECTED:  # a missing object, say: the store answers
                self._answered()
            else:
                self._failed(call, began_s, error)
            raise
        self.ended_s = self._clock.monotonic_s()
        self._answered()
        if is_counted:
            self.latencies[call].note(self.ended_s - began_s)

    def _answered(self) -> None:
        self._answered_s = self.ended_s
        self._failing_since_s = None

    def _failed(self, call: str, began_s: float, error: PravegaError) -> None:
        self.failures[call] += 1
        self.last_error = str(error)
        if self._failing_since_s is None:
            self._failing_since_s = max(began_s, self._answered_s)  # others were answered while this one waited
