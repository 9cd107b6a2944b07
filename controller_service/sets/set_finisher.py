"""Makes the members of committed sets readable, and clears what was registered beside them."""

from __future__ import annotations

import asyncio
from typing import Final

from controller_service.sets.members import MemberTransactions
from controller_service.sets.sink_steps import SinkSteps
from controller_service.sets.sink_store import SinkStore
from controller_service.sets.transaction_set import (
    Advance,
    BatchesCleared,
    SetRecord,
    SetRecordState,
    StreamsOrdered,
    destination_of,
)
from controller_service.transactions.records import SetReference
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint_async, register
from pravega_common.runtime.joined import all_ended, both_ended
from pravega_common.services.base import Service

finish_looks_max: Final = 20
"""How often a controller looks whether a committed set is readable, before it leaves it to the sweep."""
finish_look_first_s: Final = 0.2
finish_look_last_s: Final = 2.0
"""Between two looks; the wait ends at once when this controller made the members readable itself."""
finishing_max: Final = 1_000
"""Sets that one controller makes readable at the same time."""

MEMBERS_ORDERED = register("transaction_set.members_ordered")
ORDER_RECORDED = register("transaction_set.order_recorded")
MEMBERS_READABLE = register("transaction_set.members_readable")
ORPHANS_ABORTED = register("transaction_set.orphans_aborted")


class SetFinisher:
    """Takes committed sets to their end, as tasks of its owner. A set that it leaves is a later sweep's."""

    def __init__(
        self, owner: Service, members: MemberTransactions, sinks: SinkStore, steps: SinkSteps, clock: Clock
    ) -> None:
        self._owner = owner
        self._members = members
        self._sinks = sinks
        self._steps = steps
        self._clock = clock
        self._finishing: dict[tuple[str, int], asyncio.Future[None]] = {}
        """Sets that this controller makes readable: done once each is, or is left to others."""

    def start(self, key: str, committed: SetRecord) -> None:
        """Make a set readable, in a task. What does not fit is left to a sweep, or to the sink's next commit."""
        started = (key, committed.sequence)
        if started not in self._finishing and len(self._finishing) < finishing_max and self._owner.is_running:
            self._finishing[started] = finished = asyncio.get_running_loop().create_future()
            self._owner.spawn(self._finish(key, committed, finished), f"finish {key}")

    async def wait(self, key: str, committed: SetRecord, time_s: float) -> bool:
        """Wait for a set that this controller makes readable, at most for as long; False if another one does."""
        finished = self._finishing.get((key, committed.sequence))
        if finished is None:
            return False
        await self._wait_for(finished, time_s)
        return True

    async def _finish(self, key: str, committed: SetRecord, finished: asyncio.Future[None]) -> None:
        async def make_readable() -> None:
            try:
                await self._make_readable(key, committed)
            finally:
                finished.set_result(None)

        try:
            await both_ended(make_readable(), self._clear_batches(key))
        except Exception as error:  # also of a bug: the sweep comes back to it
            self._owner.log.warning("set is finished later", sink=key, batch=committed.batch_id, error=repr(error))
        finally:
            del self._finishing[key, committed.sequence]

    async def _make_readable(self, key: str, committed: SetRecord) -> None:
        """Have the members merged, here or on another controller, and record that they are; within a limit."""
        if committed.state is SetRecordState.FINISHED:
            return
        with self._members.expect(committed.members) as expectation:
            await self.order(key, committed)
            for look in range(finish_looks_max):
                if not expectation.all_came.done() and await self._members.unfinished(committed.members):
                    await self._wait_for(expectation.all_came, min(finish_look_first_s * 2**look, finish_look_last_s))
                    continue
                await failpoint_async(MEMBERS_READABLE, destination_of(key))
                await self._steps.apply(
                    key, Advance(committed.sequence, SetRecordState.FINISHED, self._clock.wall_ms())
                )
                return
        self._owner.log.warning("set is not finished yet", sink=key, batch=committed.batch_id)

    async def _wait_for(self, readable: asyncio.Future[None], delay_s: float) -> None:
        """Wait until this controller has made something readable, or it is time to look again."""
        alarm = self._owner.spawn(self._clock.sleep(delay_s), "next look")
        try:
            await asyncio.wait({alarm, readable}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()

    async def order(self, key: str, committed: SetRecord) -> None:
        """Put a committed set's members in order and have them merged; raises what keeps one of them from it.

        What was done in some streams is noted before that is raised: by the time that the others can go on, those may
        have been deleted, or what became of their transactions forgotten.
        """
        if committed.state is SetRecordState.COMMITTED:
            reference = SetReference(key, committed.sequence)
            done, problem = await self._members.order(reference, committed.unordered, committed.stream_ids)
            if problem is not None:
                if done:
                    await self._members.schedule([item for item in committed.members if item.stream in done])
                    await self._steps.apply(key, StreamsOrdered(committed.sequence, done, self._clock.wall_ms()))
                raise problem
            await failpoint_async(MEMBERS_ORDERED, destination_of(key))
            await both_ended(
                self._members.schedule(committed.members),
                self._steps.apply(key, Advance(committed.sequence, SetRecordState.ORDERED, self._clock.wall_ms())),
            )
            await failpoint_async(ORDER_RECORDED, destination_of(key))
            return
        await self._members.schedule(committed.members)

    async def _clear_batches(self, key: str) -> None:
        """Abort what was registered for batches that are decided and is in no set."""
        found = await self._sinks.read(key)
        if found is None or not found.record.decided_batches:
            return
        last = found.record.last
        kept = {(member.stream, member.transaction) for member in (last.members if last else ())}
        await self.clear(key, found.record.decided_batches, kept, is_decided=True)

    async def clear(self, key: str, batches: tuple[int, ...], kept: set[tuple[str, str]], *, is_decided: bool) -> None:
        """Abort what was registered for batches, but for what is ``kept``, and take them off the sink's lists."""
        for batch_id in batches:
            shards = await self._sinks.registrations(key, batch_id)
            registered = [item for shard in shards for item in shard.transactions]
            await self._members.abort([item for item in registered if (item.stream, item.transaction) not in kept])
        await failpoint_async(ORPHANS_ABORTED, destination_of(key))
        if is_decided:
            # Before the batches leave the record, which is all that leads to them. Who registers for a decided batch
            # from now on takes it back, so nothing that matters is lost; of undecided ones a task may come just now.
            await all_ended(self._sinks.remove_registrations(key, batch_id) for batch_id in batches)
        await self._steps.apply(key, BatchesCleared(batches, self._clock.wall_ms()))
        await all_ended(self._sinks.remove_registrations(key, batch_id) for batch_id in batches)
