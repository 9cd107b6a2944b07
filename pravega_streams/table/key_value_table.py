"""Reads and writes a key-value table, as the Java client lays it out, for code without an event loop.

A key is a primary key and, if the table has them, a secondary one, each of a fixed length. The primary key alone
chooses the partition, so an update of several keys with one primary key is all or nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import BadKeyVersion, InvalidArgument, KeyNotFound, Unavailable
from pravega_common.hashing import position_of_table_key
from pravega_common.model.table_limits import check_update, check_value_length, entry_wire_bytes
from pravega_common.wire import commands as c
from pravega_streams.segment.segment_client import SegmentClient
from pravega_streams.table.key_value_tables import KeyValueTableSettings

page_entries: Final = 200
"""Entries that are asked for at once while a table is walked."""
keys_per_read_max: Final = 15
"""Keys of one read: with the largest values they fit a frame, as in the Java client."""
ANY_VERSION: Final = c.NO_VERSION
"""The version of an update without a condition."""


@dataclass(frozen=True, slots=True)
class CompositeKey:
    """A key of a key-value table."""

    primary: bytes
    secondary: bytes = b""


@dataclass(frozen=True, slots=True)
class KeyValueEntry:
    """A key with its value, and its version within the partition of its primary key."""

    key: CompositeKey
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class KeyValueUpdate:
    """A write of one key: a value to put, or None to remove it.

    ``version``: the one that the key must have, ``NOT_EXISTS`` if it must be absent, ``ANY_VERSION`` for no condition.
    """

    key: CompositeKey
    value: bytes | None
    version: int = ANY_VERSION


class KeyValueTable:
    """One key-value table. Made by ``StreamManager.open_key_value_table``.

    Errors: ``BadKeyVersion`` for a condition that does not hold (nothing was written), ``InvalidArgument`` for keys of
    another length, ``SegmentNotFound`` once the table is deleted, also if it was made again, ``Unavailable``, and
    ``UnknownOutcome`` of a write with a condition whose answer was lost: read again and decide. One without a condition
    is repeated, and may overwrite what somebody else wrote meanwhile.
    """

    def __init__(self, segments: SegmentClient, names: Sequence[str], settings: KeyValueTableSettings) -> None:
        """``names``: those of the segments of all partitions, by position of the key."""
        if len(names) != settings.partitions:
            raise Unavailable(
                f"the table of {settings.partitions} partitions was made again with {len(names)}: open it"
            )
        self.settings = settings
        self._segments = segments
        self._names = names

    # ---- single keys

    def get(self, key: CompositeKey) -> KeyValueEntry | None:
        """The entry of a key; None if it is absent."""
        return self.get_all([key])[0]

    def put(self, key: CompositeKey, value: bytes) -> int:
        """Write a value, whatever is there; returns its version."""
        return self.update([KeyValueUpdate(key, _checked_value(value))])[0]

    def insert(self, key: CompositeKey, value: bytes) -> int:
        """Write a value if the key is absent; returns its version. ``BadKeyVersion``."""
        return self.update([KeyValueUpdate(key, _checked_value(value), c.NOT_EXISTS)])[0]

    def replace(self, key: CompositeKey, value: bytes, version: int) -> int:
        """Write a value if the key has this version; returns the new one. ``BadKeyVersion``."""
        return self.update([KeyValueUpdate(key, _checked_value(value), version)])[0]

    def remove(self, key: CompositeKey, version: int = ANY_VERSION) -> None:
        """Remove a key, with a version only if it has that. ``BadKeyVersion``."""
        self.update([KeyValueUpdate(key, None, version)])

    # ---- several keys

    def get_all(self, keys: Sequence[CompositeKey]) -> list[KeyValueEntry | None]:
        """The entries of keys, in their order; None for absent ones."""
        found: dict[CompositeKey, KeyValueEntry | None] = {}
        by_segment: dict[str, list[CompositeKey]] = {}
        for key in dict.fromkeys(keys):
            by_segment.setdefault(self._segment_of(key.primary), []).append(key)
        for segment, wanted in by_segment.items():
            for start in range(0, len(wanted), keys_per_read_max):
                some = wanted[start : start + keys_per_read_max]
                found.update(zip(some, self._read(segment, some), strict=True))
        return [found[key] for key in keys]

    def update(self, updates: Sequence[KeyValueUpdate]) -> list[int]:
        """Do several writes of one primary key, all or none; returns the versions of the values put.

        All put values, or all remove keys: a store has no request for both.
        """
        if not updates:
            return []
        if len({item.key.primary for item in updates}) > 1:
            raise InvalidArgument("an update is about keys with one primary key; several lie in several partitions")
        segment = self._segment_of(updates[0].key.primary)
        if all(item.value is None for item in updates):
            self._remove(segment, updates)
            return []
        if any(item.value is None for item in updates):
            raise InvalidArgument("an update puts values or removes keys; both together need two updates")
        return self._put(segment, updates)

    # ---- walks

    def entries(
        self,
        primary: bytes | None = None,
        first: bytes | None = None,
        last: bytes | None = None,
    ) -> Iterator[KeyValueEntry]:
        """Entries in the order of their keys: all, or those of one primary key.

        ``first`` and ``last`` bound the walk, both included: secondary keys with ``primary``, else primary keys.
        """
        low, high = self._bounds(primary, first, last)
        names = self._names if primary is None else [self._segment_of(primary)]
        yield from heapq.merge(
            *(self._walk(name, low, high) for name in names), key=lambda entry: (entry.key.primary, entry.key.secondary)
        )

    def _walk(self, segment: str, low: bytes, high: bytes) -> Iterator[KeyValueEntry]:
        while True:
            reply = self._page(segment, low, high)
            yield from (self._entry(item) for item in reply.entries)
            if not reply.entries:
                return
            after = _next_key(bytes(reply.entries[-1].key.key))
            if after is None or after > high:
                return
            low = after

    def _page(self, segment: str, low: bytes, high: bytes) -> c.TableEntriesRead:
        return self._segments.call(
            segment,
            lambda rid: c.ReadTableEntries(rid, segment, "", page_entries, b"", b"", low, high),
            c.TableEntriesRead,
            idempotent=True,
        )

    def _bounds(self, primary: bytes | None, first: bytes | None, last: bytes | None) -> tuple[bytes, bytes]:
        settings = self.settings
        if primary is None:
            low = first or bytes(settings.primary_key_length)
            high = last or b"\xff" * settings.primary_key_length
            self._check(low, settings.primary_key_length, "primary key")
            self._check(high, settings.primary_key_length, "primary key")
            return low + bytes(settings.secondary_key_length), high + b"\xff" * settings.secondary_key_length
        low = first or bytes(settings.secondary_key_length)
        high = last or b"\xff" * settings.secondary_key_length
        return self._whole(CompositeKey(primary, low)), self._whole(CompositeKey(primary, high))

    # ---- requests

    def _read(self, segment: str, keys: Sequence[CompositeKey]) -> list[KeyValueEntry | None]:
        wanted = tuple(c.WireTableKey(self._whole(key), c.NO_VERSION) for key in keys)
        reply = self._segments.call(
            segment, lambda rid: c.ReadTable(rid, segment, "", wanted), c.TableRead, idempotent=True
        )
        return [None if item.key.version == c.NOT_EXISTS else self._entry(item) for item in reply.entries]

    def _put(self, segment: str, updates: Sequence[KeyValueUpdate]) -> list[int]:
        entries = []
        for item in updates:
            value = _checked_value(item.value)
            check_value_length(segment, len(value))
            entries.append(c.WireTableEntry(c.WireTableKey(self._whole(item.key), item.version), value))
        check_update(
            segment, len(entries), sum(entry_wire_bytes(len(entry.key.key), len(entry.value)) for entry in entries)
        )
        try:
            reply = self._segments.call(
                segment,
                lambda rid: c.UpdateTableEntries(rid, segment, "", tuple(entries)),
                c.TableEntriesUpdated,
                idempotent=all(item.version == ANY_VERSION for item in updates),
            )
        except KeyNotFound as error:
            raise BadKeyVersion(segment, f"{segment}: a key of the update is absent: {error}") from error
        return list(reply.versions)

    def _remove(self, segment: str, updates: Sequence[KeyValueUpdate]) -> None:
        keys = tuple(c.WireTableKey(self._whole(item.key), item.version) for item in updates)
        check_update(segment, len(keys), sum(entry_wire_bytes(len(key.key), 0) for key in keys))
        try:
            self._segments.call(
                segment,
                lambda rid: c.RemoveTableKeys(rid, segment, "", keys),
                c.TableKeysRemoved,
                idempotent=all(item.version == ANY_VERSION for item in updates),
            )
        except KeyNotFound as error:
            raise BadKeyVersion(segment, f"{segment}: a key of the removal is absent: {error}") from error

    # ---- keys

    def _segment_of(self, primary: bytes) -> str:
        self._check(primary, self.settings.primary_key_length, "primary key")
        return self._names[int(position_of_table_key(primary) * len(self._names))]

    def _whole(self, key: CompositeKey) -> bytes:
        self._check(key.primary, self.settings.primary_key_length, "primary key")
        self._check(key.secondary, self.settings.secondary_key_length, "secondary key")
        return key.primary + key.secondary

    @staticmethod
    def _check(key: bytes, length: int, what: str) -> None:
        if not isinstance(key, bytes | bytearray):
            raise InvalidArgument(f"a {what} is bytes, not {type(key).__name__}")
        if len(key) != length:
            raise InvalidArgument(f"a {what} of {len(key)} bytes; those of this table have {length}")

    def _entry(self, item: c.WireTableEntry) -> KeyValueEntry:
        key, length = bytes(item.key.key), self.settings.primary_key_length
        return KeyValueEntry(CompositeKey(key[:length], key[length:]), bytes(item.value), item.key.version)


def _next_key(key: bytes) -> bytes | None:
    """The key of the same length that follows; None behind the last one."""
    number = int.from_bytes(key, "big") + 1
    return None if number >> 8 * len(key) else number.to_bytes(len(key), "big")


def _checked_value(value: bytes | None) -> bytes:
    """Returns the value; None is no value of a put: as an update it would remove the key."""
    if value is None:
        raise InvalidArgument("a value of None; remove() removes a key")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidArgument(f"a value is bytes, not {type(value).__name__}")
    return bytes(value)
