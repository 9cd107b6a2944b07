"""Runs periodic work on the streams of this controller's buckets, some of them side by side."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

from controller_service.buckets.spread import bucket_of, buckets_of
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import each_ended
from pravega_common.services.base import Service

E = TypeVar("E", bound=tuple[Any, ...])
"""One stream as a job lists it: scope, name, and what else the job needs."""


class BucketJob(Service, Generic[E]):
    """One run per period. A run that fails is given up and logged; the controller goes on."""

    def __init__(
        self,
        name: str,
        member_id: str,
        live_ids: Callable[[], Awaitable[set[str]]],
        clock: Clock,
        period_ms: int,
        *,
        streams_at_once: int,
        first_run_max_s: float = math.inf,
    ) -> None:
        """``first_run_max_s``: wait before the first run, and after one that failed, unless the period is shorter."""
        super().__init__(name)
        self._member_id = member_id
        self._live_ids = live_ids
        self._clock = clock
        self._period_s = period_ms / 1000
        self._streams_at_once = streams_at_once
        self._first_run_s = min(self._period_s, first_run_max_s)

    @abstractmethod
    def pages(self) -> AsyncIterator[list[E]]:
        """The streams that may have work, a page at a time."""

    @abstractmethod
    async def look_after(self, entry: E) -> None:
        """Do the work of one stream. What is expected to fail is logged and waits for the next run."""

    async def on_start(self) -> None:
        self.spawn(self._run(), "run")

    async def _run(self) -> None:
        delay_s = self._first_run_s
        while True:
            await self._clock.sleep(delay_s)
            delay_s = self._period_s
            try:
                await self.run_once()
            except Exception as error:  # also of a bug: the controller goes on
                self.log.warning("run was given up", error=repr(error))
                delay_s = self._first_run_s

    async def run_once(self) -> None:
        """All listed streams of the buckets that are this controller's by the leases of now."""
        buckets = buckets_of(self._member_id, await self._live_ids())
        if not buckets:
            self.log.warning("has no lease, others do its part", id=self._member_id)
            return
        started_s = self._clock.monotonic_s()
        async for page in self.pages():
            mine = [entry for entry in page if bucket_of(entry[0], entry[1]) in buckets]
            await each_ended(self.look_after, mine, at_once=self._streams_at_once)
        took_s = self._clock.monotonic_s() - started_s
        if took_s > self._period_s:
            self.log.warning("a run took longer than its period", seconds=took_s, period_s=self._period_s)
