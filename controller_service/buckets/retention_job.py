"""Applies retention to the streams of this controller's buckets, once per period."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from controller_service.buckets.bucket_job import BucketJob
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import PravegaError, ScopeNotFound, StreamNotFound
from pravega_common.names import MARK_PREFIX
from pravega_common.runtime.clock import Clock

first_run_max_s: Final = 60.0
"""Wait before the first run, unless the period is shorter: so that one that restarts often gets to it at all."""
streams_at_once_max: Final = 8


class RetentionJob(BucketJob[tuple[str, str, str]]):
    """A stream that fails is logged and waits for the next run, with the others undisturbed."""

    def __init__(
        self,
        store: StreamStore,
        steps: Sequence[Callable[[StreamContext], Awaitable[None]]],
        member_id: str,
        live_ids: Callable[[], Awaitable[set[str]]],
        clock: Clock,
        period_ms: int,
    ) -> None:
        """``steps``: what is done for a stream; one read of it suffices for all of them as long as nothing is due. One
        that fails keeps none of the others away."""
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

    async def look_after(self, entry: tuple[str, str, str]) -> None:
        scope, stream, stream_id = entry
        self._store.note_id(scope, stream, stream_id)
        try:
            context = await self._store.open(scope, stream)
            for step in self._steps:
                await self._do(step, context)
        except StreamNotFound:
            # Deleted since it was listed, or still being created.
            return
        except PravegaError as error:
            self._failed(scope, stream, error)

    async def _do(self, step: Callable[[StreamContext], Awaitable[None]], context: StreamContext) -> None:
        try:
            await step(context)
        except StreamNotFound:
            raise
        except PravegaError as error:
            self._failed(context.scope, context.stream, error)

    def _failed(self, scope: str, stream: str, error: PravegaError) -> None:
        self.log.warning("retention of a stream failed", stream=f"{scope}/{stream}", error=repr(error))

    async def pages(self) -> AsyncIterator[list[tuple[str, str, str]]]:
        """Scopes, names and ids of all streams that can have a policy, a page at a time."""
        token = b""
        while True:
            scopes, token = await self._store.list_scopes(token)
            for scope in scopes:
                async for page in self._pages_of(scope):
                    yield page
            if not token:
                return

    async def _pages_of(self, scope: str) -> AsyncIterator[list[tuple[str, str, str]]]:
        token = b""
        while True:
            try:
                streams, token = await self._store.list_streams(scope, token)
            except ScopeNotFound:
                return
            except PravegaError as error:
                self.log.warning("streams of a scope cannot be listed", scope=scope, error=repr(error))
                return
            yield [(scope, name, entry.stream_id) for name, entry in streams if not name.startswith(MARK_PREFIX)]
            if not token:
                return
