"""Reads and writes one table segment, for code without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pravega_common.errors import SegmentExists
from pravega_common.model.table_limits import check_key_length, check_value_length
from pravega_common.wire import commands as c
from pravega_streams.segment.segment_client import SegmentClient
from pravega_streams.table.table_client import TableItem

page_items_max: Final = 100


class BlockingTable:
    """A hash table segment by its qualified name; the controller tells its store even if it never heard of it.

    Errors: ``SegmentNotFound``; ``KeyNotFound`` and ``BadKeyVersion`` (nothing was written; an absent key may give
    either); ``Unavailable``; ``UnknownOutcome`` of a put whose answer was lost: read again and decide.
    """

    def __init__(self, segments: SegmentClient, segment: str) -> None:
        self._segments = segments
        self.segment = segment

    def create(self) -> bool:
        """Whether it is new."""
        name = self.segment
        try:
            self._segments.call(
                name,
                lambda rid: c.CreateTableSegment(rid, name, "", False, 0, 0),
                c.SegmentCreated,
                idempotent=True,
            )
        except SegmentExists:
            return False
        return True

    def get(self, key: bytes) -> TableItem:
        """Version ``NOT_EXISTS`` and no value for an absent key."""
        check_key_length(self.segment, len(key))
        name = self.segment
        wanted = (c.WireTableKey(key, c.NO_VERSION),)
        reply = self._segments.call(name, lambda rid: c.ReadTable(rid, name, "", wanted), c.TableRead, idempotent=True)
        return _item(reply.entries[0])

    def put(self, key: bytes, value: bytes, version: int) -> int:
        """Write if the key has this version (``NOT_EXISTS``: is absent); returns the new version."""
        check_key_length(self.segment, len(key))
        check_value_length(self.segment, len(value))
        name = self.segment
        entries = (c.WireTableEntry(c.WireTableKey(key, version), value),)
        reply = self._segments.call(
            name,
            lambda rid: c.UpdateTableEntries(rid, name, "", entries),
            c.TableEntriesUpdated,
            idempotent=False,
        )
        return reply.versions[0]

    def items(self) -> Iterator[TableItem]:
        """All entries, in no order."""
        continuation = b""
        while True:
            reply = self._page(continuation)
            if not reply.entries:
                return
            yield from (_item(entry) for entry in reply.entries)
            continuation = bytes(reply.continuation_token)

    def _page(self, continuation: bytes) -> c.TableEntriesRead:
        name = self.segment
        return self._segments.call(
            name,
            lambda rid: c.ReadTableEntries(rid, name, "", page_items_max, continuation),
            c.TableEntriesRead,
            idempotent=True,
        )


def _item(entry: c.WireTableEntry) -> TableItem:
    return TableItem(bytes(entry.key.key), bytes(entry.value), entry.key.version)
