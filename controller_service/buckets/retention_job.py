"""Applies retention to the streams of this controller's buckets that need it, once per period.

These have a policy, or were truncated and have records of epochs that are to expire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from controller_service.buckets.bucket_job import BucketJob
from controller_service.store.history_floor import has_records_to_lose
from controller_service.store.retained_streams import RetainedStream, is_retained
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import DataCorruption, PravegaError, ScopeNotFound, SegmentNotFound, StreamNotFound
from pravega_common.names import MARK_PREFIX
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import each_ended

first_run_max_s: Final = 60.0
"""Wait before the first run, unless the period is shorter: so that one that restarts often gets to it at all."""
streams_at_once_max: Final = 8


class RetentionJob(BucketJob[RetainedStream]):
    """A stream that fails is logged and waits for the next run, with the others undisturbed."""

    def __init__(
        self,
        store: StreamStore,
        steps: Sequence[Callable[[StreamContext], Awaitable[bool]]],
        member_id: str,
        live_ids: Callable[[], Awaitable[set[str]]],
        clock: Clock,
        period_ms: int,
    ) -> None:
        """``steps``: what is done for a stream, and whether a later run has to look at it again. One read of the stream
        suffices for all of them as long as nothing is due; one that fails keeps none of the others away."""
        super().__init__(
            "retention",
            member_id,
            live_ids,
            clock,
            period_ms,
            streams_at_once=streams_at_once_max,
            first_run_max_s=first_run_max_s,
        )
        self._store = store
        self._steps = tuple(steps)

    async def look_after(self, entry: RetainedStream) -> None:
        """Does nothing by a time of day that is not the cluster's: what is truncated is gone for good."""
        if not self._clock.is_right():
            return
        scope, stream, stream_id, version = entry
        self._store.note_id(scope, stream, stream_id)
        try:
            try:
                context = await self._store.open(scope, stream)
                takes_part = [await self._do(step, context) for step in self._steps]
            except StreamNotFound:
                # Deleted, or still being created: then its creator puts the entry again.
                takes_part = []
            if not any(takes_part):
                await self._store.retained.remove(scope, stream, version)
        except PravegaError as error:
            self._failed(scope, stream, error)

    async def _do(self, step: Callable[[StreamContext], Awaitable[bool]], context: StreamContext) -> bool:
        try:
            return await step(context)
        except StreamNotFound:
            raise
        except PravegaError as error:
            self._failed(context.scope, context.stream, error)
            return True

    def _failed(self, scope: str, stream: str, error: PravegaError) -> None:
        self.log.warning("retention of a stream failed", stream=f"{scope}/{stream}", error=repr(error))

    async def pages(self) -> AsyncIterator[list[RetainedStream]]:
        """The streams of the index, a page at a time; none while the time of day is not the cluster's."""
        if not self._clock.is_right():
            self.log.warning("the clock is not that of the cluster: nothing is truncated or forgotten for its age")
            return
        if not await self._store.retained.is_complete():
            await self._index_all()
        async for page in self._store.retained.pages():
            yield page

    # ---- the index of a cluster of a former version ------------------------------------------------------------------

    async def _index_all(self) -> None:
        """Put all streams that need it into the index. Idempotent; who gives a policy, or truncates, does so, too."""
        token = b""
        while True:
            scopes, token = await self._store.list_scopes(token)
            for scope in scopes:
                await self._index_scope(scope)
            if not token:
                break
        await self._store.retained.mark_complete()

    async def _index_scope(self, scope: str) -> None:
        token = b""
        while True:
            try:
                streams, token = await self._store.list_streams(scope, token)
            except (ScopeNotFound, SegmentNotFound):
                return
            named = [(name, entry.stream_id) for name, entry in streams if not name.startswith(MARK_PREFIX)]
            await each_ended(lambda one: self._index_stream(scope, *one), named, at_once=streams_at_once_max)
            if not token:
                return

    async def _index_stream(self, scope: str, stream: str, stream_id: str) -> None:
        self._store.note_id(scope, stream, stream_id)
        try:
            context = await self._store.open(scope, stream)
            configuration = (await context.configuration()).configuration
            if not is_retained(configuration) and not has_records_to_lose(await context.history()):
                return
        except StreamNotFound:
            return
        except DataCorruption as error:
            # It may have a policy; a run of retention says so again.
            self.log.warning("a stream cannot be read", stream=f"{scope}/{stream}", error=repr(error))
        await self._store.retained.put(scope, stream, stream_id)
