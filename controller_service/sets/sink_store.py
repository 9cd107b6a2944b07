"""Stores the records of sinks and of the transactions that their tasks registered.

``transactionSets`` has one record per sink. ``transactionSetRegistrations`` has up to 16 records per sink and batch, a
task's by its partition, so that hundreds of tasks register without fighting over one key.

Registering writes there first and reads the sink's record afterwards; a commit writes the sink's record first and
reads the registrations afterwards. So of a registration and a commit that race at least one sees the other.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from controller_service.sets.transaction_set import MemberRecord, SinkRecord
from controller_service.store.serializer import decode, encode
from controller_service.store.versioned_store import ABSENT, VersionedStore
from pravega_common.errors import DataCorruption, InvalidArgument, Throttled
from pravega_common.runtime.joined import all_ended

SETS_TABLE: Final = "transactionSets"
REGISTRATIONS_TABLE: Final = "transactionSetRegistrations"

shards: Final = 16
registrations_per_shard_max: Final = 5_000
page_size: Final = 100
sink_bytes_max: Final = 1_000_000
"""Limit of a sink's record as it is stored; a table's values may be little larger."""
plain_bytes_max: Final = 16_384
"""Larger records are stored compressed: the ids of a big batch's transactions have most of their bits in common."""


@dataclass(frozen=True, slots=True)
class Registered:
    stream: str
    """``scope/stream``."""
    transaction: str
    """32 hex digits."""


@dataclass(frozen=True, slots=True)
class RegistrationShard:
    """``touched_ms``: wall time of the last call by a task whose partition falls here."""

    touched_ms: int = 0
    transactions: tuple[Registered, ...] = ()

    def adding(self, members: Sequence[MemberRecord], now_ms: int) -> RegistrationShard:
        present = set(self.transactions)
        named = dict.fromkeys(Registered(member.stream, member.transaction) for member in members)
        added = tuple(item for item in named if item not in present)
        if len(self.transactions) + len(added) > registrations_per_shard_max:
            raise Throttled(
                f"{len(self.transactions)} transactions are registered for a sixteenth of the batch's partitions; "
                f"{registrations_per_shard_max} may"
            )
        return RegistrationShard(max(self.touched_ms, now_ms), self.transactions + added)


@dataclass(frozen=True, slots=True)
class FoundSink:
    record: SinkRecord
    version: int


@dataclass(frozen=True, slots=True)
class FoundRegistration:
    """A shard of the registrations of one batch, as it lies in the table."""

    name: str
    version: int
    sink: str
    batch_id: int
    touched_ms: int


def shard_of(member: MemberRecord) -> int:
    return member.partition % shards


class SinkStore:
    def __init__(self, store: VersionedStore) -> None:
        self._store = store
        self._log = structlog.get_logger(service="sinks")

    async def start(self) -> None:
        await all_ended(map(self._store.create_table, (SETS_TABLE, REGISTRATIONS_TABLE)))

    async def read(self, key: str) -> FoundSink | None:
        found = await self._store.get(SETS_TABLE, key)
        return None if found is None else FoundSink(_unpacked(found.value), found.version)

    async def write(self, key: str, record: SinkRecord, version: int) -> int:
        """``InvalidArgument`` when the sets of the sink are too large to be stored."""
        return await self._store.put(SETS_TABLE, key, _packed(record), version)

    async def remove(self, key: str, version: int) -> None:
        await self._store.remove(SETS_TABLE, key, version)

    async def page(self, token: bytes) -> tuple[list[tuple[str, FoundSink]], bytes]:
        """Some sinks with their keys, and the token of the next page; empty at the end.

        A record that cannot be read is logged and left out: calls about its own sink raise it.
        """
        page = await self._store.scan(SETS_TABLE, token, page_size)
        found: list[tuple[str, FoundSink]] = []
        for key, value in page.entries:
            try:
                found.append((key, FoundSink(_unpacked(value.value), value.version)))
            except DataCorruption as error:
                self._log.warning("record of a sink cannot be read", sink=key, error=str(error))
        return found, page.continuation

    async def registrations(self, key: str, batch_id: int) -> list[RegistrationShard]:
        """The registrations of a batch; one round trip."""
        keys = [_shard_key(key, batch_id, shard) for shard in range(shards)]
        found = await self._store.get_many(REGISTRATIONS_TABLE, keys)
        return [decode(RegistrationShard, value.value) for value in found if value is not None]

    async def add_registrations(
        self, key: str, batch_id: int, shard: int, members: Sequence[MemberRecord], now_ms: int
    ) -> None:
        """One try of adding members of one shard and noting the time; ``VersionConflict``."""
        name = _shard_key(key, batch_id, shard)
        found = await self._store.get(REGISTRATIONS_TABLE, name)
        old = RegistrationShard() if found is None else decode(RegistrationShard, found.value)
        version = ABSENT if found is None else found.version
        await self._store.put(REGISTRATIONS_TABLE, name, encode(old.adding(members, now_ms)), version)

    async def remove_registrations(self, key: str, batch_id: int) -> None:
        """Idempotent."""
        names = [_shard_key(key, batch_id, shard) for shard in range(shards)]
        found = await self._store.get_many(REGISTRATIONS_TABLE, names)
        present = [name for name, value in zip(names, found, strict=True) if value is not None]
        await all_ended(self._store.remove(REGISTRATIONS_TABLE, name) for name in present)

    async def registrations_page(self, token: bytes) -> tuple[list[FoundRegistration], bytes]:
        """Some registrations of any sinks, and the token of the next page; empty at the end. What cannot be read is
        logged and left out."""
        page = await self._store.scan(REGISTRATIONS_TABLE, token, page_size)
        found = []
        for name, value in page.entries:
            try:
                shard = decode(RegistrationShard, value.value)
            except DataCorruption as error:
                self._log.warning("registrations cannot be read", registrations=name, error=str(error))
                continue
            batch_id, _, key = name.split("/", 2)
            found.append(FoundRegistration(name, value.version, key, int(batch_id), shard.touched_ms))
        return found, page.continuation

    async def remove_registration(self, found: FoundRegistration) -> None:
        """``VersionConflict`` if a task called since."""
        await self._store.remove(REGISTRATIONS_TABLE, found.name, found.version)


def _packed(record: SinkRecord) -> bytes:
    data = encode(record)
    if len(data) > plain_bytes_max:
        data = zlib.compress(data, 1)
    if len(data) > sink_bytes_max:
        members = sum(len(item.members) for item in (record.last, record.pending) if item is not None)
        raise InvalidArgument(
            f"the record of query {record.query_id}, with {members} transactions in its sets, has {len(data)} bytes: "
            f"at most {sink_bytes_max} can be stored; write with fewer partitions"
        )
    return data


def _unpacked(data: bytes) -> SinkRecord:
    if not data.startswith(b"{"):
        try:
            data = zlib.decompress(data)
        except zlib.error as error:
            raise DataCorruption(f"not the record of a sink: {data[:40]!r} ({error})") from error
    return decode(SinkRecord, data)


def _shard_key(key: str, batch_id: int, shard: int) -> str:
    return f"{batch_id}/{shard}/{key}"
