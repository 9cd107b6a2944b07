"""Reads and writes table segments: get, conditional put and remove, iterate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pravega_common.errors import InvalidArgument, SegmentExists, SegmentNotFound
from pravega_common.model.table_limits import (
    check_key_length,
    check_update,
    check_value_length,
    entry_wire_bytes,
    read_bytes_max,
    read_keys_max,
    removal_batches,
)
from pravega_common.wire import commands as c
from pravega_streams.segment.raw_client import RawClient

NO_VERSION = c.NO_VERSION
NOT_EXISTS = c.NOT_EXISTS


@dataclass(frozen=True, slots=True)
class TableItem:
    """A key with its value and version; ``NOT_EXISTS`` marks an absent key."""

    key: bytes
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class TableDelta:
    """Entries that changed since a position, each once, as they are now.

    ``should_clear``: the position lies before what the table keeps of its history, so entries that were removed may
    have been missed, and this page begins at the first that is kept. ``last_position`` is where to go on, if the page
    has items.
    """

    items: list[TableItem]
    should_clear: bool
    reached_end: bool
    last_position: int


class TableClient:
    """Calls on table segments by full segment name.

    What is too much for one request is refused before it is sent (a put, and a conditional removal, which are all or
    nothing) or sent as several requests (reads, and unconditional removals).

    Errors: ``InvalidArgument``, ``SegmentNotFound``, ``KeyNotFound`` and ``BadKeyVersion`` (nothing was written),
    ``Unavailable`` (nothing was done), ``UnknownOutcome`` of a write whose answer was lost: read again and decide.
    """

    def __init__(self, client: RawClient) -> None:
        self._client = client

    async def create(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> bool:
        """Whether it is new."""
        try:
            await self._client.call(
                segment,
                lambda rid: c.CreateTableSegment(rid, segment, "", False, key_length, rollover_size_bytes),
                c.SegmentCreated,
                idempotent=True,
            )
        except SegmentExists:
            return False
        return True

    async def delete(self, segment: str, must_be_empty: bool = False) -> bool:
        """Whether it was there."""
        try:
            await self._client.call(
                segment,
                lambda rid: c.DeleteTableSegment(rid, segment, must_be_empty, ""),
                c.SegmentDeleted,
                idempotent=True,
            )
        except SegmentNotFound:
            return False
        return True

    async def put(self, segment: str, items: Sequence[TableItem]) -> list[int]:
        """All or nothing; an item's version is the one expected. Returns the new versions."""
        for item in items:
            check_key_length(segment, len(item.key))
            check_value_length(segment, len(item.value))
        check_update(segment, len(items), sum(entry_wire_bytes(len(item.key), len(item.value)) for item in items))
        entries = tuple(c.WireTableEntry(c.WireTableKey(item.key, item.version), item.value) for item in items)
        reply = await self._client.call(
            segment,
            lambda rid: c.UpdateTableEntries(rid, segment, "", entries),
            c.TableEntriesUpdated,
            idempotent=False,
        )
        return list(reply.versions)

    async def remove(self, segment: str, keys: Sequence[tuple[bytes, int]]) -> None:
        """``keys``: (key, expected version). All or nothing if a version is given, else in several steps."""
        for key, _ in keys:
            check_key_length(segment, len(key))
        lengths = [len(key) for key, _ in keys]
        if any(version != NO_VERSION for _, version in keys):
            check_update(segment, len(keys), sum(entry_wire_bytes(length, 0) for length in lengths))
        for batch in removal_batches(keys, lengths):
            await self._remove(segment, batch)

    async def _remove(self, segment: str, keys: Sequence[tuple[bytes, int]]) -> None:
        wanted = tuple(c.WireTableKey(key, version) for key, version in keys)
        await self._client.call(
            segment,
            lambda rid: c.RemoveTableKeys(rid, segment, "", wanted),
            c.TableKeysRemoved,
            idempotent=all(version == NO_VERSION for _, version in keys),
        )

    async def get(self, segment: str, keys: Sequence[bytes]) -> list[TableItem]:
        """In the order of the keys. Keys beyond the first thousand, and whatever exceeds one reply, are read later."""
        for key in keys:
            check_key_length(segment, len(key))
        items: list[TableItem] = []
        count = read_keys_max
        while len(items) < len(keys):
            wanted = keys[len(items) : len(items) + count]
            try:
                found = await self._read(segment, wanted)
            except InvalidArgument:
                # Their values together are too large for one reply; a single key that is refused is the error.
                if len(wanted) == 1:
                    raise
                count = len(wanted) // 2
                continue
            items += found
            largest = max(entry_wire_bytes(len(item.key), len(item.value)) for item in found)
            count = min(read_keys_max, read_bytes_max // largest)
        return items

    async def _read(self, segment: str, keys: Sequence[bytes]) -> list[TableItem]:
        wanted = tuple(c.WireTableKey(key, NO_VERSION) for key in keys)
        reply = await self._client.call(
            segment, lambda rid: c.ReadTable(rid, segment, "", wanted), c.TableRead, idempotent=True
        )
        return [_item(entry) for entry in reply.entries]

    async def page(self, segment: str, continuation: bytes, count_max: int) -> tuple[list[TableItem], bytes]:
        """A page of a hash table and the token of the next; an empty page is the end."""
        reply = await self._client.call(
            segment,
            lambda rid: c.ReadTableEntries(rid, segment, "", count_max, continuation),
            c.TableEntriesRead,
            idempotent=True,
        )
        return [_item(entry) for entry in reply.entries], bytes(reply.continuation_token)

    async def delta(self, segment: str, from_position: int, count_max: int) -> TableDelta:
        """The entries of a hash table that changed since a position; from 0, all. Removed ones are left out."""
        reply = await self._client.call(
            segment,
            lambda rid: c.ReadTableEntriesDelta(rid, segment, "", from_position, count_max),
            c.TableEntriesDeltaRead,
            idempotent=True,
        )
        items = [_item(entry) for entry in reply.entries]
        return TableDelta(items, reply.should_clear, reply.reached_end, reply.last_position)


def _item(entry: c.WireTableEntry) -> TableItem:
    return TableItem(bytes(entry.key.key), bytes(entry.value), entry.key.version)
