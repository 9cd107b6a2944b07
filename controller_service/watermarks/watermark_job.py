"""Advances the watermarks of the streams of this controller's buckets that have writers' marks, once per period."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from controller_service.buckets.bucket_job import BucketJob
from controller_service.store.marked_streams import MarkedStream, MarkedStreams
from pravega_common.errors import PravegaError, StreamNotFound
from pravega_common.runtime.clock import Clock

streams_at_once_max: Final = 10


class WatermarkJob(BucketJob[MarkedStream]):
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
        super().__init__("watermarks", member_id, live_ids, clock, period_ms, streams_at_once=streams_at_once_max)
        self._streams = streams
        self._advance = advance

    def pages(self) -> AsyncIterator[list[MarkedStream]]:
        return self._streams.pages()

    async def look_after(self, entry: MarkedStream) -> None:
        scope, stream, version = entry
        try:
            try:
                has_marks = await self._advance(scope, stream)
            except StreamNotFound:
                has_marks = False
            if not has_marks:
                await self._streams.remove(scope, stream, version)
        except PravegaError as error:
            self.log.warning("watermark of a stream failed", stream=f"{scope}/{stream}", error=repr(error))
