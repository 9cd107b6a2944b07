"""Writers as real clients have them: many appends on their way, and after a break the store says where to go on."""

from __future__ import annotations

import asyncio
from collections import deque

from pravega_common.errors import SegmentSealed
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE as NULL
from tests.simulator.clients import Client, World, call_time_max_s
from tests.simulator.events import Event
from tests.simulator.history import Progress, SegmentHistory
from tests.simulator.sessions import Answer, Session


def writer_attribute(segment: SegmentHistory, writer: int) -> AttributeId:
    return AttributeId(b"wr%06d%08d" % (writer, segment.key))


class Writer(Client):
    """Appends events to one segment until ``finish`` was called, or ``count`` events are stored."""

    def __init__(self, world: World, segment: SegmentHistory, writer: int, count: int = 1 << 30) -> None:
        super().__init__(world, f"writer {segment} {writer}")
        self.segment = segment
        self._writer = writer
        self._count = count
        self._attribute = writer_attribute(segment, writer)
        self._window = self.rng.choice((1, 4, 16))
        self._is_finishing = False
        self._in_flight: deque[tuple[Event, asyncio.Future[Answer]]] = deque()

    def finish(self) -> None:
        """Send no new events; what was sent is brought to an end."""
        self._is_finishing = True

    async def run(self) -> None:
        """Returns when every event that was sent is stored, or the segment takes no more."""
        segment, name = self.segment, self.segment.name
        while True:
            self._in_flight.clear()
            answer = await self.call(name, lambda store: store.segments.get_attribute(name, self._attribute))
            if self.missing(segment, answer):
                if segment.may_be_gone:
                    return
            elif answer.error is None and answer.epoch >= segment.created_epoch:
                stored = max(answer.value, 0)
                segment.attribute_seen(self._writer, stored, answer.epoch)
                if await self._send_from(stored):
                    return
                self.hang_up()
            await self.pause()

    async def _send_from(self, last: int) -> bool:
        """Send what follows event ``last``; whether there is nothing more to do. False: connect again."""
        session = await self.session(self.segment.name)
        sent = last
        while True:
            while self.world.is_busy and not self._is_finishing:
                await self.pause(2.0)
            event = self._event_after(sent)
            if event is None and not self._in_flight:
                return True
            if event is not None and len(self._in_flight) < self._window:
                self._append(session, event, sent)
                sent = event.id.number
                if self.rng.random() < 0.3:
                    await self.pause(self.world.settings.pause_max_s)
            if event is None or len(self._in_flight) >= self._window or self.rng.random() < 0.2:
                ended = await self._wait_one(session)
                if ended is not None:
                    return ended
            if self.rng.random() < 0.01:
                return False

    def _event_after(self, number: int) -> Event | None:
        history = self.segment.writers.get(self._writer)
        if history is not None and number < len(history.events):
            return history.events[number]
        if self._is_finishing or number >= self._count:
            return None
        size = int(self.world.settings.block_bytes_max * self.rng.random() ** 3)
        self.world.made(size)
        return self.segment.next_event(self._writer, size)

    def _append(self, session: Session, event: Event, last: int) -> None:
        name, cut = self.segment.name, self.rng.randrange(len(event.data))
        updates = (
            AttributeUpdate(self._attribute, AttributeUpdateType.REPLACE_IF_EQUALS, event.id.number, last or NULL),
            AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 1),
        )
        buffers = (memoryview(event.data)[:cut], memoryview(event.data)[cut:])
        answer = session.send(
            name,
            lambda store: store.segments.append(name, buffers, updates),
            counts_late=lambda: self.segment.deleted is Progress.NOT_ASKED,
        )
        if event.first_sent_at_s is None:
            event.first_sent_at_s = asyncio.get_running_loop().time()
        self._in_flight.append((event, answer))

    async def _wait_one(self, session: Session) -> bool | None:
        """Wait for the oldest append. ``None``: go on; else what ``_send_from`` returns."""
        event, waiting = self._in_flight.popleft()
        try:
            async with asyncio.timeout(call_time_max_s):
                answer = await asyncio.shield(waiting)
        except TimeoutError:
            return False
        self.tell(self.segment.name, session.store, answer, f"append {event.id.number}")
        if answer.error is None:
            self.segment.acked(event, answer.value, answer.epoch)
            self.world.event_acked(self.segment.name, answer.epoch)
            return None
        if isinstance(answer.error, SegmentSealed) and answer.epoch >= self.segment.created_epoch:
            if self.segment.sealed is Progress.NOT_ASKED and self.segment.merged is Progress.NOT_ASKED:
                self.segment.violated("broken", f"nobody sealed it, and {event.id} was refused as if")
            return True
        self.end_if_damaged(self.segment.name, answer)
        return False
