"""Takes steps on the records of sinks by compare-and-set, with those that have work to do in the index."""

from __future__ import annotations

from typing import Final

from controller_service.sets import transaction_set
from controller_service.sets.sink_index import SinkIndex
from controller_service.sets.sink_store import FoundSink, SinkStore
from controller_service.sets.transaction_set import Event, SinkRecord, Step
from controller_service.store.versioned_store import ABSENT
from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.services.retrying import RetryLimits, compare_and_set, is_lost_race

cas_limits: Final = RetryLimits(attempts_max=50, pause_s=lambda lost: 0.0 if lost <= 2 else 0.005 * min(lost - 1, 20))
"""Attempts to change a sink's record before its conflict is reported."""


class SinkSteps:
    """The records of sinks, as the steps of the state machine change them."""

    def __init__(self, sinks: SinkStore, index: SinkIndex, clock: Clock) -> None:
        self._sinks = sinks
        self._index = index
        self._clock = clock

    async def read_or_new(self, key: str, query_id: str, destination: str) -> FoundSink:
        found = await self._sinks.read(key)
        return FoundSink(SinkRecord(query_id, destination), ABSENT) if found is None else found

    async def replace(self, key: str, found: FoundSink, record: SinkRecord) -> FoundSink:
        """Replace what was found by the record as it is returned; raises the conflict if somebody changed it."""
        record = await self._index.noted(key, record, self._clock.wall_ms())
        return FoundSink(record, await self._sinks.write(key, record, found.version))

    async def write(self, key: str, found: FoundSink, record: SinkRecord) -> FoundSink | None:
        """The same, once; None if somebody changed it or nobody can tell."""
        if record == found.record:
            return found
        try:
            return await self.replace(key, found, record)
        except PravegaError as error:
            if is_lost_race(error):
                return None
            raise

    async def apply_new(self, key: str, query_id: str, destination: str, event: Event) -> Step | None:
        """Try a step once, on a new record if the sink has none yet; None if it has to be repeated."""
        found = await self.read_or_new(key, query_id, destination)
        taken = transaction_set.step(found.record, event)
        return taken if await self.write(key, found, taken.record) is not None else None

    async def apply(self, key: str, event: Event) -> None:
        """A step on a record that exists, until it is in; nothing if the record is gone."""

        async def apply() -> None:
            found = await self._sinks.read(key)
            if found is None:
                return
            taken = transaction_set.step(found.record, event)
            if taken.record != found.record:
                await self.replace(key, found, taken.record)

        await compare_and_set(apply, cas_limits, self._clock, subject=f"sink {key}")

    async def silent_since_ms(self, key: str, batch_id: int) -> int:
        """The time of the last call of a task of an undecided batch; 0 if nobody called."""
        shards = await self._sinks.registrations(key, batch_id)
        return max((shard.touched_ms for shard in shards), default=0)
