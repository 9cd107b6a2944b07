"""Stores the records of transactions in a ``VersionedStore``.

* Per stream, the table that the stream store makes for it: one key per active transaction (its id in hex), the head
  of the commit order under ``commits``, its blocks under ``commits.<slot>`` and the round in progress under
  ``committing``; so marking, queueing and starting a round are each one atomic step.
* For the cluster: the completed ones (``completed_store.py``). ``stream_index.py`` keeps the streams that sweeps have
  to look at.

A completed record is written before the active one is removed: a reader that finds neither knows that the transaction
is not there.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from controller_service.store.serializer import decode, encode
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import ABSENT, Page, Put, Versioned
from controller_service.transactions.commit_queue import CommitQueue
from controller_service.transactions.completed_store import CompletedStore
from controller_service.transactions.order_records import (
    COMMITTING_KEY,
    CommitState,
    is_order_key,
    order_keys,
    order_puts,
    read_blocks,
    removal_puts,
    state_of,
)
from controller_service.transactions.records import (
    ActiveTransaction,
    CommittingRecord,
    CompletedTransaction,
)
from pravega_common.errors import SegmentNotFound, StreamNotFound, VersionConflict
from pravega_common.model.transactions import TransactionState
from pravega_common.names import transaction_epoch
from pravega_common.services.retrying import RetryLimits, is_lost_race, retry

T = TypeVar("T")

cas_limits: Final = RetryLimits(attempts_max=30, pause_s=lambda lost: 0.0 if lost <= 2 else 0.01 * min(lost, 11))
"""Attempts of a compare-and-set operation before its conflict is reported. The first repetitions have no pause: most
conflicts are with one neighbour that is done by now."""
scan_page: Final = 500
streams_cached_max: Final = 10_000


@dataclass(frozen=True, slots=True)
class StreamTables:
    """A stream's identity, as its records see it."""

    scope: str
    stream: str
    stream_id: str
    table: str


@dataclass(frozen=True, slots=True)
class Found:
    """An active transaction with the version that its next change must name."""

    record: ActiveTransaction
    version: int


Change = tuple[uuid.UUID, ActiveTransaction, int]
"""A transaction, its new record, and the version that it replaces."""


class TransactionStore:
    def __init__(self, streams: StreamStore) -> None:
        self.streams = streams
        self._store = streams.tables
        self._clock = streams.clock
        self._tables: OrderedDict[tuple[str, str], StreamTables] = OrderedDict()
        self._completed = CompletedStore(self._store, self._clock)

    async def start(self) -> None:
        """Create the cluster's table. Idempotent."""
        await self._completed.create_table()

    async def retrying(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` again, from its reads, while others get in between or an answer is lost."""
        return await retry(work, cas_limits, self._clock, when=is_lost_race)

    async def pause(self, lost: int) -> None:
        """Wait as ``retrying`` does after this number of lost attempts."""
        await self._clock.sleep(cas_limits.pause_s(lost))

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def tables(self, scope: str, stream: str) -> StreamTables:
        """Identity of a stream, from memory if it was seen before; ``StreamNotFound``."""
        known = self._tables.get((scope, stream))
        if known is not None:
            return known
        context = await self.streams.open(scope, stream)
        return self.remember(StreamTables(scope, stream, context.stream_id, context.transactions_table))

    def remember(self, tables: StreamTables) -> StreamTables:
        self._tables[(tables.scope, tables.stream)] = tables
        if len(self._tables) > streams_cached_max:
            self._tables.popitem(last=False)
        return tables

    async def _on_stream(
        self,
        scope: str,
        stream: str,
        work: Callable[[StreamTables], Awaitable[T]],
        has_read: Callable[[T], object] | None = None,
    ) -> T:
        """Run ``work``; once more with a fresh identity if the stream was deleted and made again.

        ``has_read``, of a read: whether its result shows that the table has anything. Of a deleted stream an empty one
        may be left: a result without anything is only believed of the stream that has the name now.
        """
        known = (scope, stream) in self._tables
        tables = await self.tables(scope, stream)
        try:
            result = await work(tables)
            if not known or has_read is None or has_read(result) or await self._is_of_now(tables):
                return result
        except SegmentNotFound as error:
            self._tables.pop((scope, stream), None)
            if not known:
                raise StreamNotFound.of(scope, stream) from error
        try:
            return await work(await self.tables(scope, stream))
        except SegmentNotFound as error:
            self._tables.pop((scope, stream), None)
            raise StreamNotFound.of(scope, stream) from error

    async def _is_of_now(self, tables: StreamTables) -> bool:
        """Whether a remembered identity is still that of its name; forgets it if not. ``StreamNotFound``."""
        self._tables.pop((tables.scope, tables.stream), None)
        return await self.tables(tables.scope, tables.stream) == tables

    # ---- active transactions -----------------------------------------------------------------------------------------

    async def get(self, scope: str, stream: str, identifier: uuid.UUID) -> Found | None:
        return (await self.get_many(scope, stream, [identifier]))[0]

    async def get_many(self, scope: str, stream: str, ids: Sequence[uuid.UUID]) -> list[Found | None]:
        """The active records, None for each id that has no record; ``StreamNotFound``."""

        async def read(tables: StreamTables) -> list[Versioned | None]:
            # With a record that a stream has from its first commit on, which shows that the table is in use.
            return await self._store.get_many(tables.table, [COMMITTING_KEY, *(identifier.hex for identifier in ids)])

        _, *values = await self._on_stream(scope, stream, read, _has_any)
        return [None if value is None else _found(value) for value in values]

    async def get_with_commits(
        self, scope: str, stream: str, ids: Sequence[uuid.UUID]
    ) -> tuple[list[Found | None], CommitState]:
        """The active records and the commit order, in one round trip."""

        async def read(tables: StreamTables) -> tuple[str, list[Versioned | None]]:
            keys = [*order_keys, *(identifier.hex for identifier in ids)]
            return tables.table, await self._store.get_many(tables.table, keys)

        table, values = await self._on_stream(scope, stream, read, lambda result: _has_any(result[1]))
        queue, committing, *rest = values
        return [None if value is None else _found(value) for value in rest], state_of(table, queue, committing)

    async def _on_read(self, scope: str, stream: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` on the tables that were read; ``StreamNotFound`` once they are gone, also if there is another
        stream of the name by now."""
        try:
            return await work()
        except SegmentNotFound as error:
            self._tables.pop((scope, stream), None)
            raise StreamNotFound.of(scope, stream) from error

    async def put_many(self, scope: str, stream: str, changes: Sequence[Change]) -> list[int]:
        """Write all or nothing; the new versions."""

        async def write(tables: StreamTables) -> list[int]:
            return await self._store.put_many(tables.table, _puts(changes))

        return await self._on_stream(scope, stream, write)

    async def insert(self, tables: StreamTables, identifier: uuid.UUID, record: ActiveTransaction) -> int:
        """Write a transaction whose id is new; its version."""

        async def write() -> int:
            try:
                return await self._store.put(tables.table, identifier.hex, encode(record), ABSENT)
            except VersionConflict:
                # Nobody else knows the id: what is there was written by a try whose answer was lost.
                found = await self._store.get(tables.table, identifier.hex)
                if found is None:
                    raise
                return found.version

        return await self.retrying(write)

    async def active(self, scope: str, stream: str) -> list[tuple[uuid.UUID, Found]]:
        """Every active transaction of the stream, in no order; one round trip per 500."""

        async def read(tables: StreamTables) -> list[tuple[str, Versioned]]:
            return await self._scan(tables.table)

        return _active(await self._on_stream(scope, stream, read, bool))

    async def active_of(self, scope: str, stream: str, stream_id: str) -> list[tuple[uuid.UUID, Found]]:
        """``active`` of exactly this stream of the name; ``StreamNotFound`` once it is deleted."""
        try:
            return _active(await self._scan(self.streams.transactions_table(scope, stream, stream_id)))
        except SegmentNotFound as error:
            raise StreamNotFound.of(scope, stream) from error

    async def some_active(self, scope: str, stream: str, count_max: int) -> tuple[list[ActiveTransaction], bool]:
        """The first active transactions of the stream, in no order, and whether that is all; one round trip."""

        async def read(tables: StreamTables) -> Page:
            return await self._store.scan(tables.table, b"", count_max)

        page = await self._on_stream(scope, stream, read, lambda page: page.entries)
        return [found.record for _, found in _active(page.entries)], not page.continuation

    async def lowest_epoch(self, scope: str, stream: str) -> int | None:
        """The lowest epoch that a transaction of the stream needs to come to its end, None without any."""

        async def read(tables: StreamTables) -> list[tuple[str, Versioned]]:
            return await self._scan(tables.table)

        entries = await self._on_stream(scope, stream, read, bool)
        needed = [transaction_epoch(uuid.UUID(hex=key)) for key, _ in entries if not is_order_key(key)]
        # Read afterwards: a round is on record for longer than its transactions are.
        state = await self.commit_state(scope, stream)
        waiting = state.queue.next_epoch()
        needed += [] if waiting is None else [waiting]
        needed += [] if state.committing.is_idle else [state.committing.epoch, state.committing.active_epoch]
        return min(needed, default=None)

    # ---- commit order ------------------------------------------------------------------------------------------------

    async def commit_state(self, scope: str, stream: str) -> CommitState:
        return (await self.get_with_commits(scope, stream, []))[1]

    async def with_next_blocks(self, scope: str, stream: str, state: CommitState, count_max: int) -> CommitState:
        """The state with the blocks that its next transactions lie in; read again if the order moved on."""
        known: CommitState | None = state

        async def attempt() -> CommitState:
            nonlocal known
            state = known or await self.commit_state(scope, stream)
            known = None
            blocks = await read_blocks(self._store, state.table, state.queue.next_blocks(count_max))
            return dataclasses.replace(state, blocks=blocks)

        return await self._on_read(scope, stream, lambda: self.retrying(attempt))

    async def write_order(
        self, scope: str, stream: str, changes: Sequence[Change], queue: CommitQueue, version: int
    ) -> None:
        """Replace the commit order of this version and write records, in one step. For ``CommitOrder`` alone."""
        tables = await self.tables(scope, stream)
        await self._store.put_many(tables.table, [*_puts(changes), *order_puts(queue, version)])

    async def begin_round(self, scope: str, stream: str, state: CommitState, record: CommittingRecord) -> int:
        """Make a round durable on the stream that ``state`` is of. Returns the record's version.

        ``VersionConflict`` if another instance began one; ``StreamNotFound`` once that stream is deleted.
        """

        async def write() -> int:
            return await self._store.put(state.table, COMMITTING_KEY, encode(record), state.committing_version)

        return await self._on_read(scope, stream, write)

    async def end_round(self, scope: str, stream: str, state: CommitState) -> None:
        """Take a round's transactions out of the commit order and the round off the record, in one step.

        ``state``: as of the round's beginning; it is read again only if the order changed since. Does nothing if the
        round with this version was ended by somebody else, or with its stream.
        """
        table, version, ids = state.table, state.committing_version, state.committing.ids
        known: CommitState | None = state

        async def attempt() -> None:
            nonlocal known
            state = known or await self.commit_state(scope, stream)
            known = None
            if (state.table, state.committing_version) != (table, version):
                return
            puts = await removal_puts(self._store, state, ids)
            await self._store.put_many(table, [*puts, Put(COMMITTING_KEY, encode(CommittingRecord()), version)])

        await self._on_read(scope, stream, lambda: self.retrying(attempt))

    async def drop_from_queue(self, scope: str, stream: str, state: CommitState, ids: Sequence[uuid.UUID]) -> None:
        """Take transactions that are completed already out of the commit order."""

        async def write() -> None:
            await self._store.put_many(state.table, await removal_puts(self._store, state, ids))

        await self._on_read(scope, stream, write)

    async def give_up(
        self, scope: str, stream: str, changes: Sequence[Change], state: CommitState, ids: Sequence[uuid.UUID]
    ) -> None:
        """Write records and take transactions out of the commit order, in one step, unless a round began or ended since
        ``state`` was read (``VersionConflict``), or its stream was deleted (``StreamNotFound``)."""
        guard = Put(COMMITTING_KEY, encode(state.committing), state.committing_version)

        async def write() -> None:
            order = await removal_puts(self._store, state, ids)
            await self._store.put_many(state.table, [*_puts(changes), guard, *order])

        await self._on_read(scope, stream, write)

    async def remove(self, scope: str, stream: str, ids: Sequence[uuid.UUID]) -> None:
        """Remove active records, those of one commit round at most. Idempotent."""
        tables = await self.tables(scope, stream)
        await self._store.remove_many(tables.table, [identifier.hex for identifier in ids])

    # ---- completed transactions --------------------------------------------------------------------------------------

    async def complete(
        self, scope: str, stream: str, ids: Sequence[uuid.UUID], state: TransactionState, *, lost: bool = False
    ) -> None:
        """Record how transactions ended. Idempotent; the active records are removed with ``remove``."""
        tables = await self.tables(scope, stream)
        record = CompletedTransaction(state, self._clock.wall_ms(), lost)
        await self.retrying(lambda: self._completed.add(tables.stream_id, ids, record))

    async def completed_state(self, scope: str, stream: str, identifier: uuid.UUID) -> TransactionState:
        """The final state of a transaction; ``UNKNOWN`` without a record of it."""
        found = await self.completed(scope, stream, identifier)
        return TransactionState.UNKNOWN if found is None else found.state

    async def completed(self, scope: str, stream: str, identifier: uuid.UUID) -> CompletedTransaction | None:
        return await self._completed.find((await self.tables(scope, stream)).stream_id, identifier)

    async def list_completed(self, scope: str, stream: str) -> list[tuple[uuid.UUID, TransactionState]]:
        """At most 500 completed transactions of the stream, the newest first; ``StreamNotFound``."""
        # Not by the identity in memory: nothing here would show that the stream is another by now, or gone.
        return await self._completed.newest((await self.streams.open(scope, stream)).stream_id)

    async def _scan(self, table: str) -> list[tuple[str, Versioned]]:
        entries: list[tuple[str, Versioned]] = []
        token = b""
        while True:
            page = await self._store.scan(table, token, scan_page)
            entries.extend(page.entries)
            token = page.continuation
            if not token:
                return entries


def _has_any(values: Sequence[Versioned | None]) -> bool:
    return any(value is not None for value in values)


def _active(entries: Sequence[tuple[str, Versioned]]) -> list[tuple[uuid.UUID, Found]]:
    return [(uuid.UUID(hex=key), _found(value)) for key, value in entries if not is_order_key(key)]


def _found(value: Versioned) -> Found:
    return Found(decode(ActiveTransaction, value.value), value.version)


def _puts(changes: Iterable[Change]) -> list[Put]:
    return [Put(identifier.hex, encode(record), version) for identifier, record, version in changes]
