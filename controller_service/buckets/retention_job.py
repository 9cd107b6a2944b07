"""Applies retention to the streams of this controller's buckets, once per period."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from controller_service.buckets.spread import bucket_of, buckets_of
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import PravegaError, ScopeNotFound, StreamNotFound
from pravega_common.names import MARK_PREFIX
from pravega_common.runtime.clock import Clock
from pravega_common.services.base import Service

first_run_max_s: Final = 60.0
"""Wait before the first run, unless the period is shorter: so that one that restarts often gets to it at all."""
streams_at_once_max: Final = 8


class RetentionJob(Service):
    """A stream that fails is logged and waits for the next run, with the others undisturbed."""

    def __init__(
        self,
        store: StreamStore,
        apply: Callable[[str, str], Awaitable[None]],
        member_id: str,
        live_ids: Callable[[], Awaitable[set[str]]],
        clock: Clock,
        period_ms: int,
    ) -> None:
        """``apply``: retention of one stream, by scope and name."""
        super().__init__("retention")
        self._store = store
        self._apply = apply
        self._member_id = member_id
        self._live_ids = live_ids
        self._clock = clock
        self._period_s = period_ms / 1000

    async def on_start(self) -> None:
        self.spawn(self._run(), "run")

    async def _run(self) -> None:
        delay_s = min(self._period_s, first_run_max_s)
        while True:
            await self._clock.sleep(delay_s)
            delay_s = self._period_s
            try:
                await self.run_once()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("run was given up", error=repr(error))
                delay_s = min(self._period_s, first_run_max_s)

    async def run_once(self) -> None:
        """All streams of the buckets that are this controller's by the leases of now."""
        buckets = buckets_of(self._member_id, await self._live_ids())
        if not buckets:
            self.log.warning("has no lease, others do its part", id=self._member_id)
            return
        started_s = self._clock.monotonic_s()
        async for page in self._pages():
            mine = [names for names in page if bucket_of(*names) in buckets]
            for first in range(0, len(mine), streams_at_once_max):
                some = mine[first : first + streams_at_once_max]
                await asyncio.gather(*(self._one(scope, stream) for scope, stream in some))
        took_s = self._clock.monotonic_s() - started_s
        if took_s > self._period_s:
            self.log.warning("a run took longer than its period", seconds=took_s, period_s=self._period_s)

    async def _one(self, scope: str, stream: str) -> None:
        try:
            await self._apply(scope, stream)
        except StreamNotFound:
            # Deleted since it was listed, or still being created.
            return
        except PravegaError as error:
            self.log.warning("retention of a stream failed", stream=f"{scope}/{stream}", error=repr(error))

    async def _pages(self) -> AsyncIterator[list[tuple[str, str]]]:
        """Scopes and names of all streams that can have a policy, a page at a time."""
        token = b""
        while True:
            scopes, token = await self._store.list_scopes(token)
            for scope in scopes:
                async for page in self._pages_of(scope):
                    yield page
            if not token:
                return

    async def _pages_of(self, scope: str) -> AsyncIterator[list[tuple[str, str]]]:
        token = b""
        while True:
            try:
                streams, token = await self._store.list_streams(scope, token)
            except ScopeNotFound:
                return
            except PravegaError as error:
                self.log.warning("streams of a scope cannot be listed", scope=scope, error=repr(error))
                return
            yield [(scope, stream) for stream, _ in streams if not stream.startswith(MARK_PREFIX)]
            if not token:
                return
