"""Tier 2 as a store reaches it, and what happens to its objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from pravega_common.errors import PravegaError, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import Clock
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo, ChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from tests.simulator.network import Network
from tests.simulator.virtual_loop import VirtualClock
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage

T = TypeVar("T")
call_time_max_s: Final = 30.0
"""As the adapters: a call without an answer for so long is unknown, or failed if it changes nothing."""


class WatchedChunkStorage(FaultyChunkStorage):
    """``FaultyChunkStorage`` that tells of puts, and keeps some on their way whatever the rates are."""

    stuck_prefix = ""
    """Puts of names that begin so have no answer, and are done when late puts land; empty: none."""
    stuck_puts = 0
    """How many there were in all."""
    on_put: Callable[[str], object] | None = None
    """Called with the name of each object that was put."""

    def __init__(self, inner: ChunkStorage, rng: random.Random, clock: Clock) -> None:
        super().__init__(inner, rng, clock)
        self._under_way: set[asyncio.Task[None]] = set()

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        if self.stuck_prefix and name.startswith(self.stuck_prefix):
            self.stuck_puts += 1
            self.put_late(name, data)
            raise UnknownOutcome(f"no answer for {name}")
        putting = asyncio.ensure_future(super().put(name, data))
        self._under_way.add(putting)
        putting.add_done_callback(self._under_way.discard)
        await putting
        if self.on_put is not None:
            self.on_put(name)

    async def puts_ended(self) -> None:
        """Return once all puts are done that are on their way now; their senders may have given them up long ago."""
        await asyncio.gather(*self._under_way, return_exceptions=True)


class Tier2:
    """The object store of a run, behind the faults of ``WatchedChunkStorage``."""

    def __init__(self, rng: random.Random, clock: VirtualClock) -> None:
        self.store = InMemoryChunkStorage()
        self.faulty = WatchedChunkStorage(self.store, rng, clock)
        self._rng = rng

    def damage(self, is_wanted: Callable[[str], bool]) -> str | None:
        """Flip a bit of an object, or lose the object; returns its name."""
        names = [name for name in sorted(self.store.objects) if is_wanted(name)]
        if not names:
            return None
        name = self._rng.choice(names)
        data = bytearray(self.store.objects[name])
        if data and self._rng.random() < 0.5:
            data[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
            self.store.objects[name] = bytes(data)
        else:
            self.lose(name)
        return name

    def lose(self, name: str) -> None:
        self.store.objects.pop(name)
        self.store._names.remove(name)


class RemoteChunks:
    """``ChunkStorage`` over the network: a put that is on its way arrives, whatever becomes of its sender."""

    def __init__(self, network: Network, tier2: Tier2) -> None:
        self._network = network
        self._chunks = tier2.faulty

    async def start(self) -> None:
        await self._call(self._chunks.start(), Unavailable)

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        copied = [bytes(buffer) for buffer in data]
        await self._call(self._chunks.put(name, copied), UnknownOutcome)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        return await self._call(self._chunks.get(name, offset, length), Unavailable)

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        return function(await self.get(name, offset, length))

    async def info(self, name: str) -> ChunkInfo:
        return await self._call(self._chunks.info(name), Unavailable)

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        async def collect() -> list[ChunkInfo]:
            return [info async for info in self._chunks.list(prefix)]

        for info in await self._call(collect(), Unavailable):
            yield info

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        """Each deletion is done, lost or late by itself, as those of one request to an object store may be."""
        calls = [self._call(self._chunks.delete_all([name]), UnknownOutcome) for name in names]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed: dict[str, PravegaError] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, PravegaError):
                failed[name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                failed.update(answer)
        return failed

    async def close(self) -> None:
        """The objects stay."""

    def _call(self, work: Coroutine[Any, Any, T], late: type[Unavailable] | type[UnknownOutcome]) -> asyncio.Future[T]:
        return self._network.call(work, call_time_max_s, lambda: late("Tier 2 gave no answer in time"))
