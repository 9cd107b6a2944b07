"""Keeps an index of the sinks with work to do, and of the days on which sinks are forgotten.

A sweep reads ``transactionSetsUnfinished`` and nothing else: one key for each sink that has a set or a batch which is
not finished, or had one a minute ago. The records of the others are read when they may have expired, from one table a
day, ``transactionSetsExpiring-<day>``.

The entry of a sink is written before its record says ``indexed``. It is removed after a write of the record, by the
version that was seen before that write: who is about to add an entry either loses the record or keeps the entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import structlog

from controller_service.sets.sink_store import FoundSink, SinkStore
from controller_service.sets.transaction_set import SinkRecord
from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT, ANY_VERSION, VersionedStore
from pravega_common.errors import DataCorruption, PravegaError, SegmentNotFound, UnknownOutcome, VersionConflict
from pravega_common.model.transaction_sets import is_unnamed_write
from pravega_common.runtime.joined import all_ended
from pravega_common.services.retrying import is_lost_race

UNFINISHED_TABLE: Final = "transactionSetsUnfinished"
DAYS_TABLE: Final = "transactionSetsDays"
DAYS_KEY: Final = "days"
COMPLETE_KEY: Final = "complete"
"""In the table of days: the records that former versions wrote are in the index."""

day_ms: Final = 24 * 3600 * 1000
unnamed_kept_ms: Final = day_ms
"""How long the sink of one batch write without a name outlives it: nobody asks for it again."""
quiet_ms: Final = 60_000
"""A finished sink stays in the index for so long, since its next batch would put it there again."""
page_size: Final = 100
pages_per_look_max: Final = 10
"""Pages of a day's sinks that one sweep looks at: some seconds."""


@dataclass(frozen=True, slots=True)
class ExpiryDays:
    """The days, counted from 1970, for which there is a table of sinks that may have expired."""

    days: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexedSink:
    """An entry of the index with its version, and the sink as it is now; None if it has no record."""

    key: str
    version: int
    sink: FoundSink | None


class SinkIndex:
    def __init__(self, store: VersionedStore, sinks: SinkStore, kept_ms: int) -> None:
        self._store = store
        self._sinks = sinks
        self._kept_ms = kept_ms
        self._known_days: set[int] = set()
        self._log = structlog.get_logger(service="sinks")

    async def create_tables(self) -> None:
        await all_ended(map(self._store.create_table, (UNFINISHED_TABLE, DAYS_TABLE)))

    async def noted(self, key: str, record: SinkRecord, now_ms: int) -> SinkRecord:
        """Make the index ready for a record that is about to be written; the record to write."""
        if not record.is_settled and not record.indexed:
            await self._store.put(UNFINISHED_TABLE, key, b"", ANY_VERSION)
            record = dataclasses.replace(record, indexed=True)
        day = (now_ms + self._life_ms(record)) // day_ms + 1
        if day > record.expiry_day:
            await self._note_day(key, day)
            record = dataclasses.replace(record, expiry_day=day)
        return record

    async def unfinished(self) -> AsyncIterator[IndexedSink]:
        """The entries of the index. A record that cannot be read is logged and left out."""
        token = b""
        while True:
            page = await self._store.scan(UNFINISHED_TABLE, token, page_size)
            for key, entry in page.entries:
                try:
                    yield IndexedSink(key, entry.version, await self._sinks.read(key))
                except DataCorruption as error:
                    self._log.warning("record of a sink cannot be read", sink=key, error=str(error))
            token = page.continuation
            if not token:
                return

    async def remove_if_settled(self, found: IndexedSink, now_ms: int) -> None:
        """Take a finished sink that was quiet for a while out of the index."""
        sink = found.sink
        if sink is None:
            # Its writer died after the entry, or is slow: a blank record makes the slow one look again.
            await self._sinks.write(found.key, await self.noted(found.key, SinkRecord.blank(found.key), now_ms), ABSENT)
        elif not sink.record.is_settled or now_ms - sink.record.touched_ms < quiet_ms:
            return
        else:
            await self._sinks.write(found.key, dataclasses.replace(sink.record, indexed=False), sink.version)
        await self._store.remove(UNFINISHED_TABLE, found.key, found.version)

    # ---- expiry ------------------------------------------------------------------------------------------------------

    def _life_ms(self, record: SinkRecord) -> int:
        return min(self._kept_ms, unnamed_kept_ms) if is_unnamed_write(record.query_id) else self._kept_ms

    async def forget_expired(self, now_ms: int) -> None:
        """Remove the records whose life is over, from the tables of the days that have come: some of each day, since
        the sinks with work to do wait for it."""
        days, _ = await self._days()
        for day in days.days:
            if day * day_ms <= now_ms:
                try:
                    await self._forget_day(day, now_ms)
                except PravegaError as error:
                    if not is_lost_race(error):
                        raise  # else another controller is at the same day, and the next look goes on with it

    async def _forget_day(self, day: int, now_ms: int) -> None:
        """Look at some of a day's sinks; the day ends with its last one."""
        table = _day_table(day)
        try:
            for _ in range(pages_per_look_max):
                page = await self._store.scan(table, count_max=page_size)
                if not page.entries:
                    break
                done = [key for key, _ in page.entries if await self._forget_if_expired(key, day, now_ms)]
                await self._store.remove_many(table, done)
            else:
                return
        except SegmentNotFound:
            pass  # another controller was faster, and may have died before it took the day off the list
        await self._store.delete_table(table)
        days, version = await self._days()
        left = ExpiryDays(tuple(other for other in days.days if other != day))
        await self._store.put(DAYS_TABLE, DAYS_KEY, encode(left), version)
        self._known_days.discard(day)

    async def _forget_if_expired(self, key: str, day: int, now_ms: int) -> bool:
        """False for a sink that changes just now: it is looked at again."""
        try:
            await self._forget_or_note(key, day, now_ms)
        except PravegaError as error:
            if not is_lost_race(error):
                raise
            return False
        return True

    async def _forget_or_note(self, key: str, day: int, now_ms: int) -> None:
        try:
            found = await self._sinks.read(key)
        except DataCorruption as error:
            self._log.warning("record of a sink cannot be read, and is kept", sink=key, error=str(error))
            return
        if found is None or found.record.expiry_day > day:
            return
        if found.record.is_settled and now_ms - found.record.touched_ms > self._life_ms(found.record):
            await self._sinks.remove(key, found.version)
            return
        await self._sinks.write(key, await self.noted(key, found.record, now_ms), found.version)

    async def _note_day(self, key: str, day: int) -> None:
        if day not in self._known_days:
            await self._add_day(day)
        try:
            await self._store.put(_day_table(day), key, b"", ANY_VERSION)
        except SegmentNotFound:
            # Dropped by a controller whose clock is ahead.
            await self._add_day(day)
            await self._store.put(_day_table(day), key, b"", ANY_VERSION)

    async def _add_day(self, day: int) -> None:
        await self._store.create_table(_day_table(day))
        days, version = await self._days()
        if day not in days.days:
            await self._store.put(DAYS_TABLE, DAYS_KEY, encode(ExpiryDays((*days.days, day))), version)
        self._known_days.add(day)

    async def _days(self) -> tuple[ExpiryDays, int]:
        found = await self._store.get(DAYS_TABLE, DAYS_KEY)
        return (ExpiryDays(), ABSENT) if found is None else (decode(ExpiryDays, found.value), found.version)

    # ---- records of former versions ----------------------------------------------------------------------------------

    async def complete(self, now_ms: int) -> None:
        """Put the records that former versions wrote into the index; once for the cluster."""
        if await self._store.get(DAYS_TABLE, COMPLETE_KEY) is not None:
            return
        token, more = b"", True
        while more:
            page, token = await self._sinks.page(token)
            for key, found in page:
                record = await self.noted(key, found.record, now_ms)
                if record != found.record:
                    try:
                        await self._sinks.write(key, record, found.version)
                    except (VersionConflict, UnknownOutcome):
                        continue  # written by somebody else, who noted it
            more = bool(token)
        await self._store.put(DAYS_TABLE, COMPLETE_KEY, b"", ANY_VERSION)


def _day_table(day: int) -> str:
    return f"transactionSetsExpiring-{day}"
