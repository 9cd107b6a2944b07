"""Makes any chunk storage fail as real ones do, for tests and drills."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pravega_common.errors import PravegaError, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import Clock
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo, ChunkStorage, check_deletion

T = TypeVar("T")

late_puts_max = 1000
"""Puts that may be on their way at once."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Probabilities per call (0 to 1), and delays in seconds.

    ``unavailable``: nothing was done. ``unknown_done`` and ``unknown_lost``: a put or delete without an
    answer, done or not. ``unknown_late``: a put without an answer that is done only when ``land_late_puts`` is
    called, as a request that was stuck in a network is.
    """

    unavailable: float = 0.0
    unknown_done: float = 0.0
    unknown_lost: float = 0.0
    unknown_late: float = 0.0
    delay_max_s: float = 0.0


class FaultyChunkStorage:
    """``ChunkStorage`` over another one. ``stop`` makes every call ``Unavailable`` until ``resume``."""

    def __init__(self, inner: ChunkStorage, rng: random.Random, clock: Clock, rates: FaultRates | None = None) -> None:
        self.rates = rates or FaultRates()
        self.calls = 0
        self._inner = inner
        self._rng = rng
        self._clock = clock
        self._stopped = False
        self._late: list[tuple[str, list[bytes]]] = []

    def stop(self) -> None:
        self._stopped = True

    def resume(self) -> None:
        self._stopped = False

    async def land_late_puts(self) -> int:
        """Do the puts that were held back, in random order; how many there were."""
        late, self._late = self._late, []
        self._rng.shuffle(late)
        for name, data in late:
            await self._inner.put(name, data)
        return len(late)

    def put_late(self, name: str, data: Sequence[Buffer]) -> None:
        """Hold a put back until late ones land; lose it if too many are."""
        if len(self._late) < late_puts_max:
            self._late.append((name, [bytes(buffer) for buffer in data]))

    async def start(self) -> None:
        await self._before()
        await self._inner.start()

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        await self._before()
        outcome = self._unknown()
        if outcome == "late":
            self.put_late(name, data)
        elif outcome in ("", "done"):
            await self._inner.put(name, data)
        self._after(outcome, name)

    async def get(self, name: str, offset: int, length: int) -> bytes:
        await self._before()
        return await self._inner.get(name, offset, length)

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        await self._before()
        return await self._inner.get_with(name, offset, length, function)

    async def info(self, name: str) -> ChunkInfo:
        await self._before()
        return await self._inner.info(name)

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        await self._before()
        async for info in self._inner.list(prefix):
            yield info

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        """Each name has a fate of its own."""
        check_deletion(names)
        failed: dict[str, PravegaError] = {}
        for name in names:
            try:
                await self._delete(name)
            except PravegaError as error:
                failed[name] = error
        return failed

    async def _delete(self, name: str) -> None:
        await self._before()
        outcome = self._unknown()
        if outcome in ("", "done"):
            for error in (await self._inner.delete_all([name])).values():
                raise error
        self._after(outcome, name)

    async def close(self) -> None:
        await self._inner.close()

    async def _before(self) -> None:
        self.calls += 1
        if self.rates.delay_max_s:
            await self._clock.sleep(self._rng.random() * self.rates.delay_max_s)
        if self._stopped or self._rng.random() < self.rates.unavailable:
            raise Unavailable("chunk storage is stopped" if self._stopped else "chunk storage failed, as injected")

    def _unknown(self) -> str:
        drawn = self._rng.random()
        for outcome, rate in (
            ("done", self.rates.unknown_done),
            ("lost", self.rates.unknown_lost),
            ("late", self.rates.unknown_late),
        ):
            if drawn < rate:
                return outcome
            drawn -= rate
        return ""

    def _after(self, outcome: str, name: str) -> None:
        if outcome:
            raise UnknownOutcome(f"no answer for {name}")
