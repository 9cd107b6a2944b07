"""Requests that a store refuses leave nothing behind that only the garbage collector frees."""

from __future__ import annotations

from typing import Any

import pytest

from pravega_common.wire import commands as wire
from segment_service.host.listener import WireServer
from tests.support.held_errors import no_held_errors
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
SEALED = "scope/stream/1.#epoch.0"
ABSENT = "scope/stream/2.#epoch.0"
TABLE = "scope/table_kvtable/0.#epoch.0"
WRITER, LATE_WRITER = b"w" * 16, b"l" * 16
DATA = bytes(10_000)
KEY, NEVER = wire.WireTableKey(b"key", 77), wire.WireTableKey(b"never", 77)
PRESENT: Any = (wire.WireTableEntry(wire.WireTableKey(b"key"), b"value"),)

REFUSED: tuple[tuple[Any, type[wire.Command]], ...] = (
    (wire.CreateSegment(9, SEGMENT, 0, 0), wire.SegmentAlreadyExists),
    (wire.GetStreamSegmentInfo(9, ABSENT), wire.NoSuchSegment),
    (wire.SealSegment(9, ABSENT), wire.NoSuchSegment),
    (wire.TruncateSegment(9, SEGMENT, 99_999), wire.SegmentIsTruncated),
    (wire.ReadSegment(ABSENT, 0, 10, "", 9), wire.NoSuchSegment),
    (wire.ReadSegment(SEGMENT, 0, 10, "", 9), wire.SegmentIsTruncated),
    (wire.MergeSegments(9, SEGMENT, ABSENT), wire.NoSuchSegment),
    (wire.MergeSegments(9, SEALED, SEGMENT), wire.SegmentIsSealed),
    (wire.AppendBlockEnd(LATE_WRITER, len(DATA), DATA, 1, 1, 9), wire.SegmentIsSealed),
    (wire.SetupAppend(9, b"o" * 16, ABSENT), wire.NoSuchSegment),
    (wire.ConditionalAppend(WRITER, 1, 100, b"event", 9), wire.ConditionalCheckFailed),
    (wire.UpdateTableEntries(9, TABLE, "", (wire.WireTableEntry(KEY, bytes(99)),)), wire.TableKeyBadVersion),
    (wire.UpdateTableEntries(9, TABLE, "", (wire.WireTableEntry(NEVER, bytes(99)),)), wire.TableKeyDoesNotExist),
    (wire.UpdateTableEntries(9, TABLE, "", PRESENT, 5), wire.SegmentIsTruncated),
    (wire.DeleteTableSegment(9, TABLE, True), wire.TableSegmentNotEmpty),
    (wire.MergeSegmentsBatch(9, SEGMENT, (ABSENT,)), wire.NoSuchSegment),
    (wire.UpdateSegmentAttribute(9, SEGMENT, WRITER, 7, 12_345), wire.SegmentAttributeUpdated),
    (wire.RemoveTableKeys(9, TABLE, "", (KEY,)), wire.TableKeyBadVersion),
    (wire.ReadTable(9, ABSENT, "", (KEY,)), wire.NoSuchSegment),
)


@pytest.mark.parametrize("any_server", ["container"], indirect=True)
async def test_refused_requests(any_server: WireServer) -> None:
    client = await WireClient.connect(any_server.port)
    await client.call(wire.CreateSegment(1, SEGMENT, 0, 0), wire.SegmentCreated)
    await client.call(wire.CreateSegment(1, SEALED, 0, 0), wire.SegmentCreated)
    await client.call(wire.SetupAppend(2, WRITER, SEGMENT), wire.AppendSetup)
    await client.call(wire.SetupAppend(2, LATE_WRITER, SEALED), wire.AppendSetup)
    await client.call(wire.AppendBlockEnd(WRITER, len(DATA), DATA, 1, 1, 2), wire.DataAppended)
    await client.call(wire.TruncateSegment(2, SEGMENT, 100), wire.SegmentTruncated)
    await client.call(wire.SealSegment(2, SEALED), wire.SegmentSealed)
    await client.call(wire.CreateTableSegment(3, TABLE), wire.SegmentCreated)
    await client.call(wire.UpdateTableEntries(4, TABLE, "", PRESENT), wire.TableEntriesUpdated)
    for request, reply in REFUSED:
        with no_held_errors():
            await client.call(request, reply)
    await client.close()
