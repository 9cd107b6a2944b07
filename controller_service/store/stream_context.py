"""Reads each record of a stream at most once for one operation, and writes the changes together."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

from controller_service.errors import EpochTruncated, OperationNotAllowed
from controller_service.store.records import (
    CONFIGURATION,
    CURRENT_EPOCH,
    EMPTY_TRANSITION,
    STATE,
    TRANSITION,
    TRUNCATION,
    ConfigurationRecord,
    CurrentEpochRecord,
    EpochRecord,
    EpochTransitionRecord,
    HistoryRecord,
    Key,
    SealedSegmentRecord,
    StateRecord,
    StreamState,
    TruncationRecord,
    epoch_key,
    is_epoch_key,
    may_move,
    sealed_segment_key,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT, Put, Versioned, VersionedStore
from pravega_common.errors import NotFound, SegmentNotFound, StreamNotFound
from pravega_common.invariants import check

R = TypeVar("R")

epochs_per_read_max: Final = 15
"""Values of the largest size that a table holds which fit one reply, of at most 16 MiB."""
keys_per_read_max: Final = 1_000
"""Small records of one read."""


class RecordSource(Protocol):
    """The tables of a stream, and the cache of epoch records that all contexts share."""

    @property
    def tables(self) -> VersionedStore: ...

    def metadata_table(self, scope: str, stream: str, stream_id: str) -> str: ...

    def transactions_table(self, scope: str, stream: str, stream_id: str) -> str: ...

    def marks_table(self, scope: str, stream: str, stream_id: str) -> str: ...

    def cached_epoch(self, stream_id: str, key: str) -> tuple[Any, int] | None: ...

    def cache_epoch(self, stream_id: str, key: str, found: tuple[Any, int], stored_bytes: int) -> None: ...

    def forget(self, scope: str, stream: str) -> None:
        """Forget the id of a stream that is gone."""
        ...


class StreamContext:
    """Reads are cached with their versions for the life of the object; ``stage`` collects new records and ``flush``
    writes them in one step, each expecting the version that was read. Make one per operation, through
    ``StreamStore.open``; after an error of ``flush`` throw it away and start again with a new one.
    """

    def __init__(self, store: RecordSource, scope: str, stream: str, stream_id: str) -> None:
        self.scope = scope
        self.stream = stream
        self.stream_id = stream_id
        self._store = store
        self._found: dict[str, tuple[Any, int]] = {}
        self._staged: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return f"{self.scope}/{self.stream}"

    @property
    def metadata_table(self) -> str:
        return self._store.metadata_table(self.scope, self.stream, self.stream_id)

    @property
    def transactions_table(self) -> str:
        """A table beside the metadata, made and deleted with the stream, for the records of its transactions."""
        return self._store.transactions_table(self.scope, self.stream, self.stream_id)

    @property
    def marks_table(self) -> str:
        """The marks of writers by their names; created with the first mark, deleted with the stream."""
        return self._store.marks_table(self.scope, self.stream, self.stream_id)

    # ---- reading -----------------------------------------------------------------------------------------------------

    async def prefetch(self, *keys: Key[Any]) -> None:
        """Read all keys that are not here yet in one round trip. ``StreamNotFound`` when the stream is gone."""
        missing = []
        for key in keys:
            if key.name in self._found:
                continue
            epoch = self._store.cached_epoch(self.stream_id, key.name) if is_epoch_key(key) else None
            if epoch is not None:
                self._found[key.name] = epoch
            else:
                missing.append(key)
        if not missing:
            return
        values = await self._read_values([key.name for key in missing])
        for key, value in zip(missing, values, strict=True):
            self._found[key.name] = (None, ABSENT) if value is None else self._decoded(key, value)

    async def _read_values(self, names: Sequence[str]) -> list[Versioned | None]:
        """``StreamNotFound`` when the stream is gone."""
        if not names:
            return []
        try:
            return await self._store.tables.get_many(self.metadata_table, names)
        except SegmentNotFound as error:
            self._store.forget(self.scope, self.stream)
            raise StreamNotFound.of(self.scope, self.stream) from error

    def _decoded(self, key: Key[Any], value: Versioned) -> tuple[Any, int]:
        found = (decode(key.record, value.value), value.version)
        if is_epoch_key(key):
            self._store.cache_epoch(self.stream_id, key.name, found, len(value.value))
        return found

    async def read(self, key: Key[R]) -> R | None:
        """The record, staged changes included, or None."""
        if key.name in self._staged:
            return cast(R, self._staged[key.name])
        await self.prefetch(key)
        return cast("R | None", self._found[key.name][0])

    async def _require(self, key: Key[R]) -> R:
        record = await self.read(key)
        if record is None:
            # The entry is written first and the records after it: a stream without them is being created or deleted.
            raise StreamNotFound.of(self.scope, self.stream)
        return record

    async def state(self) -> StreamState:
        return (await self.state_record()).state

    async def state_record(self) -> StateRecord:
        return await self._require(STATE)

    async def configuration(self) -> ConfigurationRecord:
        return await self._require(CONFIGURATION)

    async def current_epoch(self) -> EpochRecord:
        return await self.epoch((await self._require(CURRENT_EPOCH)).epoch)

    async def history(self) -> HistoryRecord:
        """The epochs that have records; read with every stream."""
        return (await self._require(CURRENT_EPOCH)).history

    async def epoch(self, number: int) -> EpochRecord:
        """Raises ``EpochTruncated`` for one that has no record any more, ``NotFound`` for one that never was."""
        record = await self.read(epoch_key(number))
        if record is None:
            raise await self._no_epoch(number)
        return record

    async def _no_epoch(self, number: int) -> NotFound:
        # Epochs have records up to the current one, but for those that a truncation took away, perhaps just now.
        if 0 <= number <= (await self._require(CURRENT_EPOCH)).epoch:
            return EpochTruncated(f"epoch {number} of stream {self.name} was truncated")
        return NotFound(f"stream {self.name} has no epoch {number}")

    async def walk_epochs(self, numbers: Sequence[int], *, some_removed: bool = False) -> AsyncIterator[EpochRecord]:
        """The epochs of these numbers, in their order, read a page at a time and not kept here; without those that have
        no records if ``some_removed``. Errors as of ``epoch``."""
        for start in range(0, len(numbers), epochs_per_read_max):
            keys = [epoch_key(number) for number in numbers[start : start + epochs_per_read_max]]
            known = {key.name: self._store.cached_epoch(self.stream_id, key.name) for key in keys}
            missing = [key.name for key in keys if known[key.name] is None]
            values = dict(zip(missing, await self._read_values(missing), strict=True))
            for number, key in zip(numbers[start : start + epochs_per_read_max], keys, strict=True):
                found = known[key.name]
                value = values.get(key.name)
                if found is None and value is not None:
                    found = self._decoded(key, value)
                    # An epoch of a thousand segments takes milliseconds to decode: others have their turn in between.
                    await asyncio.sleep(0)
                if found is not None:
                    yield cast(EpochRecord, found[0])
                elif not some_removed:
                    raise await self._no_epoch(number)

    async def transition(self) -> EpochTransitionRecord:
        return await self.read(TRANSITION) or EMPTY_TRANSITION

    async def truncation(self) -> TruncationRecord:
        return await self.read(TRUNCATION) or TruncationRecord()

    async def sealed(self, identifiers: Sequence[int]) -> dict[int, SealedSegmentRecord]:
        """The records of those of the segments that are replaced; one round trip."""
        keys = {identifier: sealed_segment_key(identifier) for identifier in identifiers}
        await self.prefetch(*keys.values())
        records: dict[int, SealedSegmentRecord] = {}
        for identifier, key in keys.items():
            record = await self.read(key)
            if record is not None:
                records[identifier] = record
        return records

    async def stored_sealed(self, identifiers: Sequence[int]) -> dict[int, SealedSegmentRecord]:
        """Like ``sealed``, for any number of segments: read a page at a time, not kept here, without staged changes."""
        records: dict[int, SealedSegmentRecord] = {}
        for start in range(0, len(identifiers), keys_per_read_max):
            page = identifiers[start : start + keys_per_read_max]
            values = await self._read_values([sealed_segment_key(identifier).name for identifier in page])
            for identifier, value in zip(page, values, strict=True):
                if value is not None:
                    records[identifier] = decode(SealedSegmentRecord, value.value)
        return records

    def version(self, key: Key[Any]) -> int:
        """The version of a record that was read or written here; ``ABSENT`` if the key is absent."""
        return self._found[key.name][1]

    # ---- writing -----------------------------------------------------------------------------------------------------

    def stage(self, key: Key[R], record: R) -> None:
        """Write the record with the next ``flush``; the key must have been read here (or written by this context)."""
        check(key.name in self._found, "a record is staged that was not read", stream=self.name, key=key.name)
        self._staged[key.name] = record

    def stage_current(self, epoch: EpochRecord) -> None:
        """Make an epoch the current one. Its record must be read or staged here."""
        check(epoch_key(epoch.epoch).name in self._found, "an epoch without a record becomes current", stream=self.name)
        self._stage_epochs(epoch=epoch.epoch)

    def stage_history(self, history: HistoryRecord) -> None:
        """Note which epochs have records; the stream must have a current epoch."""
        check(
            history.removed_till <= history.oldest_epoch,
            "the records of epochs that are answered for were removed",
            stream=self.name,
            history=history,
        )
        self._stage_epochs(history=history)

    def _stage_epochs(self, **changes: Any) -> None:
        known = self._staged.get(CURRENT_EPOCH.name) or self._found[CURRENT_EPOCH.name][0] or CurrentEpochRecord(0)
        self.stage(CURRENT_EPOCH, dataclasses.replace(known, **changes))

    async def put(self, key: Key[R], record: R) -> None:
        """Stage a record, reading its version first if need be."""
        await self.prefetch(key)
        self.stage(key, record)

    async def move_state(self, new: StreamState) -> None:
        """Stage a state; ``OperationNotAllowed`` if the state machine refuses the step."""
        old = await self.state()
        if not may_move(old, new):
            raise OperationNotAllowed(f"Stream: {self.stream} State: {old.name}")
        if old is not new:
            self.stage(STATE, StateRecord(new))

    async def flush(self) -> None:
        """Write everything staged, all or nothing. ``VersionConflict`` when another one changed what was read here;
        ``UnknownOutcome`` when the answer was lost. Writes nothing, and costs nothing, when nothing is staged."""
        if not self._staged:
            return
        puts = [Put(name, encode(record), self._found[name][1]) for name, record in self._staged.items()]
        versions = await self._store.tables.put_many(self.metadata_table, puts)
        for put, version in zip(puts, versions, strict=True):
            self._found[put.key] = (self._staged[put.key], version)
        self._staged.clear()
