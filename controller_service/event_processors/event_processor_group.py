"""Runs an event processor on one instance: reads its stream, handles the events, and takes over from the dead."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final, Generic

from controller_service.event_processors.event_batch import BatchedEvent, EventBatch
from controller_service.event_processors.event_processor import E, EventProcessor, Handling
from controller_service.event_processors.event_source import EventSource
from controller_service.queue.request_queue import Postpone
from pravega_common.errors import DataCorruption, NotFound, PravegaError, RejectedError, UnsupportedOperation
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.retrying import RetryLimits, retry, unlimited
from pravega_streams.errors import EventsTruncated, ReaderOffline
from pravega_streams.readers.slices import SegmentSlice

events_per_slice_max: Final = 1_000
"""Events of a segment that are handled before it is read on."""
handlers_concurrent_max: Final = 1_000
"""Handlers of one group that run on one instance at the same time."""
attempts_max: Final = 3
"""Times that an event is handled in place before it goes behind the others."""
attempt_pause_s: Final = 0.1
"""The pause before the second attempt; each further one is four times as long."""
postpone_pause_min_s: Final = 0.1
postpone_pause_max_s: Final = 1.0
"""The pause before a postponed event is written behind the others, longer with every slice of a segment that holds
nothing else: so slowly does a segment turn in which all events fail."""
handle_time_max_s: Final = 300.0
"""How long a handler may take before it is cancelled and tried again: above the longest wait of a workflow."""
rejoin_pause_min_s: Final = 0.2
rejoin_pause_max_s: Final = 10.0
take_over_period_s: Final = 3.0
"""Pause between two comparisons of the group's readers with the instances that have a lease."""
truncate_period_s: Final = 30.0
leave_time_max_s: Final = 2.0
"""How long a stop waits for the group. A reader that could not leave is taken out when its lease has ended."""
logged_bytes_max: Final = 200

HANDLED = register("events.handled")
WRITTEN_BACK = register("events.written_back")


@dataclass(slots=True)
class EventCounts:
    """Counts the ends of the events on this instance since it started."""

    handled: int = 0
    """Refused ones included."""
    merged: int = 0
    postponed: int = 0
    refused: int = 0
    damaged: int = 0
    failures: int = 0
    """Attempts that failed; their events were handled or postponed later."""
    rejoined: int = 0
    """Times that reading began again after a failure."""


@dataclass(slots=True)
class _Work(Generic[E]):
    """A slice that is out."""

    batch: EventBatch[E]
    postpone_pause_s: float
    is_fruitful: bool = False
    """Whether one of its events was handled."""


class EventProcessorGroup(Service, Generic[E]):
    """One instance's reader of an internal stream, with the handlers of its events.

    A slice goes back to its source when each of its events is handled, refused, or written behind the others; so a
    handler that always fails delays the events of its segment by its attempts and stops nothing. Whatever fails here,
    the group joins again: the controller that owns it goes on. ``live_readers``: the readers whose instances have a
    lease, this one included while it has one.
    """

    def __init__(
        self,
        name: str,
        source: EventSource,
        processor: EventProcessor[E],
        live_readers: Callable[[], Awaitable[set[str]]],
        clock: Clock,
    ) -> None:
        super().__init__(f"event-processor-{name}")
        self.counts = EventCounts()
        self.is_online = False
        """Whether this instance is a reader of the group now."""
        self.problem = ""
        """The error that keeps the stream from being read now."""
        self._source = source
        self._processor = processor
        self._live_readers = live_readers
        self._clock = clock
        self._slots = asyncio.Semaphore(handlers_concurrent_max)
        self._fruitless: dict[str, int] = {}
        """Successive slices of a segment of which every event was postponed."""
        self._take_over_at_s = clock.monotonic_s()
        self._truncate_at_s = clock.monotonic_s() + truncate_period_s
        self._reading: asyncio.Task[None] | None = None

    def details(self) -> dict[str, Any]:
        """Facts for the health of the controller, in JSON."""
        return {"online": self.is_online, "problem": self.problem, **asdict(self.counts)}

    async def on_start(self) -> None:
        """Returns at once: the API does not wait for the group, nor does the group take the controller down."""
        self._reading = self.spawn(self._run(), "read")

    async def on_stop(self) -> None:
        """End the handlers, then leave, so that another instance goes on at the first event that is not handled."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading], timeout=leave_time_max_s)
        try:
            async with asyncio.timeout(leave_time_max_s):
                await self._source.leave()
        except (PravegaError, TimeoutError) as error:
            self.log.info("could not leave the reader group; others take over", error=repr(error))

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = rejoin_pause_min_s
        while True:
            try:
                await self._source.join()
                self.is_online = True
                self.log.info("reads events", reader=self._source.reader_id)
                self._fruitless.clear()
                self.problem = ""
                pause_s = rejoin_pause_min_s
                async with asyncio.TaskGroup() as slices:
                    await self._read(slices)
            except Exception as error:  # also of a bug: the controller goes on
                self.problem = _innermost(error)
                self.log.warning("reading begins again", error=self.problem, pause_s=pause_s)
            finally:
                self.is_online = False
            self.counts.rejoined += 1
            await self._clock.sleep(pause_s)
            pause_s = min(rejoin_pause_max_s, pause_s * 2)

    async def _read(self, slices: asyncio.TaskGroup) -> None:
        """Hand slices out until this reader is not in its group any more."""
        pause_s = rejoin_pause_min_s
        while True:
            try:
                piece = await self._source.next_slice()
                if piece is not None:
                    slices.create_task(self._work_off(piece), name=f"{self.name}/{piece.segment}")
                await self._take_over_if_due()
                self._truncate_if_due(slices)
                pause_s, self.problem = rejoin_pause_min_s, ""
            except EventsTruncated as error:
                self.log.error("events are gone that were not handled here", error=str(error))
            except (ReaderOffline, NotFound):
                raise
            except PravegaError as error:
                # Handlers go on meanwhile: a store that moves does not break their work off.
                self.problem = repr(error)
                self.log.warning("the stream cannot be read", error=self.problem, pause_s=pause_s)
                await self._clock.sleep(pause_s)
                pause_s = min(rejoin_pause_max_s, pause_s * 2)

    async def _take_over_if_due(self) -> None:
        """Take readers out whose instances have no lease. The group is older than the list of leases: a reader has its
        lease before it joins."""
        now_s = self._clock.monotonic_s()
        if now_s < self._take_over_at_s:
            return
        self._take_over_at_s = now_s + take_over_period_s
        others = self._source.other_readers()
        if not others:
            return
        live = await self._live_readers()
        if self._source.reader_id not in live:
            self.log.warning("has no lease, and takes nobody for dead", id=self._source.reader_id)
            return
        for reader_id in sorted(set(others) - live):
            self.log.info("events are taken over", reader=reader_id)
            await self._source.take_offline(reader_id)

    def _truncate_if_due(self, background: asyncio.TaskGroup) -> None:
        if self._clock.monotonic_s() >= self._truncate_at_s:
            self._truncate_at_s = math.inf
            background.create_task(self._truncate(), name=f"{self.name}/truncate")

    async def _truncate(self) -> None:
        try:
            await self._source.truncate()
        except PravegaError as error:
            self.log.info("handled events stay until the next truncation", error=str(error))
        finally:
            self._truncate_at_s = self._clock.monotonic_s() + truncate_period_s

    # ---- handling ----------------------------------------------------------------------------------------------------

    async def _work_off(self, piece: SegmentSlice) -> None:
        """Handle some events of a slice, and give it back, also when this is cut off."""
        work = _Work(self._batch_of(piece), self._postpone_pause_s(piece.segment))
        self.counts.merged += work.batch.merged_count
        try:
            async with asyncio.TaskGroup() as handlers:
                self._start(handlers, work)
        finally:
            self._source.release(piece, work.batch.handled_until)
        if work.is_fruitful:
            self._fruitless.pop(piece.segment, None)

    def _postpone_pause_s(self, segment: str) -> float:
        """Count a slice as fruitless until one of its events is handled."""
        before = self._fruitless.get(segment, 0)
        self._fruitless[segment] = min(before + 1, 16)
        return min(postpone_pause_max_s, postpone_pause_min_s * 2.0**before)

    def _batch_of(self, piece: SegmentSlice) -> EventBatch[E]:
        start = piece.position
        events = [self._decoded(event.offset, event.data) for event in islice(piece, events_per_slice_max)]
        known = [event for event in events if event is not None]
        return EventBatch(known, self._processor.concurrency, start, piece.position)

    def _decoded(self, offset: int, data: memoryview) -> BatchedEvent[E] | None:
        try:
            event = self._processor.decode(data)
        except UnsupportedOperation as error:
            self.log.warning("an event of a kind that this version does not know", offset=offset, error=str(error))
            return BatchedEvent(offset, data, "", None)
        except DataCorruption as error:
            self.counts.damaged += 1
            shown = bytes(data[:logged_bytes_max]).hex()
            self.log.error("a damaged event is left out", offset=offset, error=str(error), data=shown, bytes=len(data))
            return None
        key = self._processor.key_of(event)
        return BatchedEvent(offset, data, key, event, self._processor.merge_key(event))

    def _start(self, handlers: asyncio.TaskGroup, work: _Work[E]) -> None:
        for event in work.batch.startable():
            handlers.create_task(self._settle(handlers, work, event), name=f"{self.name}/{event.key}")

    async def _settle(self, handlers: asyncio.TaskGroup, work: _Work[E], event: BatchedEvent[E]) -> None:
        """Handle an event, or write it behind the others; then start what waits for it."""
        if event.event is None or await self._handled(event.event, event.key) is Handling.POSTPONED:
            await self._postpone(event, work.postpone_pause_s)
            failpoint(WRITTEN_BACK)
        else:
            work.is_fruitful = True
            self.counts.handled += 1
            failpoint(HANDLED)
        work.batch.finish(event)
        self._start(handlers, work)

    async def _handled(self, event: E, key: str) -> Handling:
        for attempt in range(attempts_max):
            try:
                async with self._slots, asyncio.timeout(handle_time_max_s):
                    return await self._processor.handle(event)
            except Postpone as reason:
                self.log.debug("event postponed", key=key, reason=str(reason))
                return Handling.POSTPONED
            except RejectedError as error:
                self.counts.refused += 1
                self.log.info("event refused", key=key, error=str(error))
                return Handling.DONE
            except Exception as error:  # also of a bug: it must not take everybody else's work down with it
                self.counts.failures += 1
                pause_s = attempt_pause_s * 4.0**attempt
                self.log.warning("event failed", key=key, error=repr(error), attempt=attempt + 1, pause_s=pause_s)
                await self._clock.sleep(pause_s)
        return Handling.POSTPONED

    async def _postpone(self, event: BatchedEvent[E], pause_s: float) -> None:
        """Write an event behind the others of its key. After a crash behind the writing it is there twice."""
        self.counts.postponed += 1
        data = bytes(event.data)
        await self._clock.sleep(pause_s)
        await retry(
            lambda: self._source.write(event.key, data),
            RetryLimits(unlimited, lambda failed: min(rejoin_pause_max_s, rejoin_pause_min_s * 2.0 ** min(failed, 16))),
            self._clock,
            when=lambda error: True,
            on_error=lambda error: self.log.warning("event is not written back yet", key=event.key, error=repr(error)),
        )


def _innermost(error: BaseException) -> str:
    """The first error of a task group, which says what went wrong."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)
