"""Stores how transactions ended, for 24 to 48 hours, in tables that are dropped as a whole.

A span of 24 hours has ``completed_shards`` tables, ``completedTransactionsBatch-<number>.<shard>``, so that the rounds
of all streams do not write to one container. A stream has one of them, with the key ``<stream id>/<id>`` for each
transaction and ``<stream id>/recent`` for listings. The newest two spans are kept.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

import structlog

from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT, ANY_VERSION, Put, Versioned, VersionedStore
from controller_service.transactions.records import (
    CompletedBatches,
    CompletedTransaction,
    RecentlyCompleted,
    completed_listed_max,
)
from pravega_common.errors import PravegaError, SegmentNotFound, VersionConflict
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended

RECENT_KEY: Final = "recent"
COMPLETED_BATCHES_TABLE: Final = "completedTransactionsBatches"
COMPLETED_BATCHES_KEY: Final = "batches"

completed_batch_ms: Final = 24 * 3600 * 1000
"""The span of one batch (docs/controller-api.md 4.7)."""
completed_batches_kept: Final = 2
completed_shards: Final = 16
"""Tables of one span; they lie in as many containers, where a cluster has them."""


class CompletedStore:
    def __init__(self, store: VersionedStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._batches = CompletedBatches()
        """The spans as this controller saw them last; for writing only."""
        self._log = structlog.get_logger(service="transactions")

    async def create_table(self) -> None:
        """Create the cluster's table. Idempotent."""
        await self._store.create_table(COMPLETED_BATCHES_TABLE)

    async def add(self, stream_id: str, ids: Sequence[uuid.UUID], record: CompletedTransaction) -> None:
        """Try once to record how transactions of a stream ended. Idempotent; ``VersionConflict``."""
        batches = await self._current()
        table = _table_of(batches, batches.numbers[-1], stream_id)
        recent_key = _key(stream_id, RECENT_KEY)
        try:
            found = await self._store.get(table, recent_key)
        except SegmentNotFound as error:
            self._batches = CompletedBatches()
            raise VersionConflict(f"{table} was dropped by an instance whose clock is ahead") from error
        recent = RecentlyCompleted() if found is None else RecentlyCompleted.decode(found.value)
        listed = recent.adding((identifier, record) for identifier in ids).encode()
        puts = [Put(recent_key, listed, ABSENT if found is None else found.version)]
        value = encode(record)
        puts += [Put(_key(stream_id, identifier.hex), value, ANY_VERSION) for identifier in ids]
        await self._store.put_many(table, puts)

    async def find(self, stream_id: str, identifier: uuid.UUID) -> CompletedTransaction | None:
        async for value in self._newest_first(stream_id, identifier.hex):
            return decode(CompletedTransaction, value.value)
        return None

    async def newest(self, stream_id: str) -> list[tuple[uuid.UUID, TransactionState]]:
        """At most 500 completed transactions of a stream, the newest first."""
        listed: dict[uuid.UUID, TransactionState] = {}
        async for value in self._newest_first(stream_id, RECENT_KEY):
            for identifier, record in reversed(RecentlyCompleted.decode(value.value).entries):
                listed.setdefault(identifier, record.state)
        return list(listed.items())[:completed_listed_max]

    async def _newest_first(self, stream_id: str, name: str) -> AsyncIterator[Versioned]:
        """The values of a key of a stream in the spans that are kept; those to be dropped may be half gone."""
        batches, _ = await self._read()
        for number in reversed(batches.numbers[-completed_batches_kept:]):
            try:
                found = await self._store.get(_table_of(batches, number, stream_id), _key(stream_id, name))
            except SegmentNotFound:
                continue
            if found is not None:
                yield found

    async def _read(self) -> tuple[CompletedBatches, int]:
        found = await self._store.get(COMPLETED_BATCHES_TABLE, COMPLETED_BATCHES_KEY)
        return (CompletedBatches(), ABSENT) if found is None else (decode(CompletedBatches, found.value), found.version)

    async def _current(self) -> CompletedBatches:
        """The spans, of which the last takes new entries; begins one, and drops what is too old, when its time came.

        By a time of day that is not the cluster's only the first one begins. A span that a former version began keeps
        its one table.
        """
        today = self._clock.wall_ms() // completed_batch_ms
        if self._batches.numbers and today <= self._batches.numbers[-1]:
            return self._batches
        batches, version = await self._read()
        if batches.numbers and not self._clock.is_right():
            return batches
        if not batches.numbers or today > batches.numbers[-1]:
            batches = CompletedBatches((*batches.numbers, today), min(batches.sharded_from, today))
            await all_ended(map(self._store.create_table, _tables_of(batches, today)))
            version = await self._store.put(COMPLETED_BATCHES_TABLE, COMPLETED_BATCHES_KEY, encode(batches), version)
        self._batches = batches
        await self._drop_old(batches, version)
        return batches

    async def _drop_old(self, batches: CompletedBatches, version: int) -> None:
        """Delete the tables of spans that are too old, and take these off the list then: nobody else knows of them.

        What cannot be deleted now stays on the list, for each controller's next look at it, a day later at the latest.
        """
        left = list(batches.numbers)
        for old in batches.numbers[:-completed_batches_kept]:
            try:
                await all_ended(map(self._store.delete_table, _tables_of(batches, old)))
            except PravegaError as error:
                self._log.warning("tables of completed transactions cannot be deleted", span=old, error=str(error))
                continue
            left.remove(old)
        if len(left) < len(batches.numbers):
            kept = encode(CompletedBatches(tuple(left), batches.sharded_from))
            await self._store.put(COMPLETED_BATCHES_TABLE, COMPLETED_BATCHES_KEY, kept, version)


def _tables_of(batches: CompletedBatches, number: int) -> list[str]:
    name = f"completedTransactionsBatch-{number}"
    return [name] if number < batches.sharded_from else [f"{name}.{shard}" for shard in range(completed_shards)]


def _table_of(batches: CompletedBatches, number: int, stream_id: str) -> str:
    tables = _tables_of(batches, number)
    return tables[zlib.crc32(stream_id.encode()) % len(tables)]


def _key(stream_id: str, name: str) -> str:
    return f"{stream_id}/{name}"
