"""Advances the watermarks of the streams of this controller's buckets that have writers' marks, once per period."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from controller_service.buckets.spread import bucket_of, buckets_of
from controller_service.store.marked_streams import MarkedStreams
from pravega_common.errors import PravegaError, StreamNotFound
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service

streams_at_once_max: Final = 10


class WatermarkJob(Service):
    """A stream that fails is logged and waits for the next run, with the others undisturbed."""

    def __init__(
        self,
        streams: MarkedStreams,
        advance: Callable[[str, str], Awaitable[bool]],
        member_id: str,
        live_ids: Callable[[], Awaitable[set[str]]],
        clock: Clock,
        period_ms: int,
    ) -> None:
        """``advance``: one stream by scope and name; whether it still has marks."""
        super().__init__("watermarks")
        self._streams = streams
        self._advance = advance
        self._member_id = member_id
        self._live_ids = live_ids
        self._clock = clock
        self._period_s = period_ms / 1000
        self._slots = asyncio.Semaphore(streams_at_once_max)

    async def on_start(self) -> None:
        self.spawn(self._run(), "run")

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._period_s)
            try:
                await self.run_once()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("run was given up", error=repr(error))

    async def run_once(self) -> None:
        """All marked streams of the buckets that are this controller's by the leases of now."""
        buckets = buckets_of(self._member_id, await self._live_ids())
        if not buckets:
            self.log.warning("has no lease, others do its part", id=self._member_id)
            return
        started_s = self._clock.monotonic_s()
        async for page in self._streams.pages():
            mine = [entry for entry in page if bucket_of(entry[0], entry[1]) in buckets]
            await asyncio.gather(*(self._one(scope, stream, version) for scope, stream, version in mine))
        took_s = self._clock.monotonic_s() - started_s
        if took_s > self._period_s:
            self.log.warning("a run took longer than its period", seconds=took_s, period_s=self._period_s)

    async def _one(self, scope: str, stream: str, version: int) -> None:
        """``version``: of the stream's entry in the index, read before its marks."""
        async with self._slots:
            try:
                try:
                    has_marks = await self._advance(scope, stream)
                except StreamNotFound:
                    has_marks = False
                if not has_marks:
                    await self._streams.remove(scope, stream, version)
            except PravegaError as error:
                self.log.warning("watermark of a stream failed", stream=f"{scope}/{stream}", error=repr(error))
