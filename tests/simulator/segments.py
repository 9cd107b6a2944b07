"""The life of a segment under one name: created, used, truncated, sealed, deleted, and created again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from pravega_common.errors import SegmentExists, SegmentNotFound, SegmentSealed, SegmentTruncated
from pravega_common.runtime.joined import all_ended
from tests.simulator.clients import Client, GivenUp, World
from tests.simulator.history import Progress, SegmentHistory
from tests.simulator.readers import Reader
from tests.simulator.transactions import Transactions
from tests.simulator.writers import Writer


class SegmentLife(Client):
    """``current`` is the incarnation that must be there in the end, if any."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, f"life {name}")
        self.segment_name = name
        self.current: SegmentHistory | None = None
        self._reading: list[asyncio.Task[None]] = []
        self._clients: Sequence[Writer | Transactions] = ()
        self._using: Sequence[asyncio.Task[None]] = ()
        """What ``_clients`` do."""

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody changes the segment any more."""
        return all(using.done() for using in self._using)

    async def run(self) -> None:
        """Returns, with nothing left undecided, some time after the run is ending."""
        try:
            await self._go_on()
        except GivenUp:
            await self._end_clients()

    async def _go_on(self) -> None:
        while not self.world.is_ending:
            segment = self.world.history.new_segment(self.segment_name)
            await self._create(segment)
            self.current = segment
            await self._use(segment)
            if self.rng.random() < 0.6:
                await self._seal(segment)
                await self.pause(3.0)
            if self.world.is_ending or self.rng.random() < 0.3:
                return
            await self._delete(segment)
            self.current = None

    async def _create(self, segment: SegmentHistory) -> None:
        name = segment.name
        segment.created = Progress.ASKED
        answer = await self.insist(name, lambda store: store.segments.create_segment(name), SegmentExists)
        if answer.error is not None:
            segment.violated("broken", f"it was deleted, and cannot be created: {answer.error}")
        segment.created, segment.created_epoch = Progress.DONE, answer.epoch
        self.world.event_acked(name, answer.epoch)
        self.world.trace.note(f"{segment} created")
        await self.learn_id(segment)

    async def _use(self, segment: SegmentHistory) -> None:
        writers = [Writer(self.world, segment, number) for number in range(1, self.rng.randint(2, 3))]
        readers = [Reader(self.world, segment, number) for number in range(1, self.rng.randint(2, 3))]
        transactions = Transactions(self.world, segment)
        writing = [asyncio.ensure_future(writer.run()) for writer in writers]
        self._reading += [asyncio.ensure_future(reader.run()) for reader in readers]
        self._clients = (*writers, transactions)
        self._using = (*writing, asyncio.ensure_future(transactions.run()))
        await self._live(segment)
        self._finish_clients()
        if self.rng.random() < 0.5 and not self.world.is_ending:
            await self._seal(segment)  # in the middle of what is on its way
        await asyncio.gather(*self._using)

    def _finish_clients(self) -> None:
        for client in self._clients:
            client.finish()

    async def _end_clients(self) -> None:
        """Whoever gave up, the others have appends on their way, which the audit must not meet."""
        self._finish_clients()
        with contextlib.suppress(GivenUp):
            await all_ended(self._using)

    async def _live(self, segment: SegmentHistory) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self.rng.choice((5.0, 15.0, 60.0))
        while loop.time() < ends_s and not self.world.is_ending:
            await self.pause(4.0)
            if self.rng.random() < 0.3:
                await self._truncate(segment)

    async def _truncate(self, segment: SegmentHistory) -> None:
        name, offset = segment.name, self.rng.randint(segment.truncation_asked, max(1, segment.length_acked))
        if offset > segment.length_acked:
            return
        segment.truncation_asked = max(segment.truncation_asked, offset)
        answer = await self.insist(name, lambda store: store.segments.truncate(name, offset), SegmentTruncated)
        if answer.error is None:
            segment.truncation_done = max(segment.truncation_done, offset)
        elif not self.missing(segment, answer):
            segment.violated("lost", f"it cannot be truncated at {offset}: {answer.error}")

    async def _seal(self, segment: SegmentHistory) -> None:
        if segment.sealed is Progress.DONE:
            return
        name, segment.sealed = segment.name, Progress.ASKED
        floor = segment.floor()
        answer = await self.insist(name, lambda store: store.segments.seal(name), SegmentSealed)
        if answer.error is not None and not self.missing(segment, answer):
            segment.violated("broken", f"it cannot be sealed: {answer.error}")
            return
        segment.sealed = Progress.DONE
        if answer.value is not None:
            segment.length_seen(answer.value, answer.epoch, floor)
            segment.sealed_length = answer.value
        self.world.trace.note(f"{segment} sealed at {answer.value}")

    async def _delete(self, segment: SegmentHistory) -> None:
        name, segment.deleted = segment.name, Progress.ASKED
        await self.insist(name, lambda store: store.segments.delete(name), SegmentNotFound)
        segment.deleted = Progress.DONE
        self.world.trace.note(f"{segment} deleted")
        await self.stop_reading()

    async def stop_reading(self) -> None:
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        self._reading.clear()
