"""Segments of tables are changed by the requests for tables alone, which leave nothing there but entries."""

from __future__ import annotations

from typing import Any

import pytest

from pravega_common.wire.commands import (
    AppendBlockEnd,
    AppendSetup,
    CreateSegment,
    CreateTableSegment,
    CreateTransientSegment,
    DeleteSegment,
    DeleteTableSegment,
    GetSegmentAttribute,
    GetStreamSegmentInfo,
    MergeSegments,
    MergeSegmentsBatch,
    OperationUnsupported,
    ReadTable,
    SegmentAttribute,
    SegmentCreated,
    SegmentDeleted,
    SetupAppend,
    StreamSegmentInfo,
    TableEntriesUpdated,
    TableRead,
    TruncateSegment,
    UpdateSegmentAttribute,
    UpdateTableEntries,
    WireTableEntry,
    WireTableKey,
)
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE
from segment_service.host.listener import WireServer
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import ContainerKit
from tests.support.wire_client import WireClient

TABLE = "scope/table_kvtable/0.#epoch.0"
STREAM = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16
KEY = WireTableKey(b"key")


async def test_a_table_has_no_writers_attributes_or_cuts_of_clients(any_server: WireServer) -> None:
    client = await WireClient.connect(any_server.port)
    await client.call(CreateTableSegment(1, TABLE), SegmentCreated)
    put: Any = UpdateTableEntries(2, TABLE, "", (WireTableEntry(KEY, b"value"),))
    await client.call(put, TableEntriesUpdated)
    for request in (
        SetupAppend(3, WRITER, TABLE),
        UpdateSegmentAttribute(3, TABLE, WRITER, 1, NULL_ATTRIBUTE_VALUE),
        TruncateSegment(3, TABLE, 5),
    ):
        assert (await client.call(request, OperationUnsupported)).request_id == 3, request
    assert (await client.call(GetSegmentAttribute(4, TABLE, WRITER), SegmentAttribute)).value == NULL_ATTRIBUTE_VALUE
    read = await client.call(ReadTable(5, TABLE, "", (KEY,)), TableRead)
    assert [bytes(entry.value) for entry in read.entries] == [b"value"]
    await client.close()


async def test_no_transient_segment_is_merged_into_a_table(any_server: WireServer) -> None:
    client = await WireClient.connect(any_server.port)
    await client.call(CreateTableSegment(1, TABLE), SegmentCreated)
    made = await client.call(CreateTransientSegment(2, WRITER, TABLE), SegmentCreated)
    await client.call(SetupAppend(3, WRITER, made.segment), AppendSetup)
    await client.call(MergeSegments(4, TABLE, made.segment), OperationUnsupported)
    await client.call(MergeSegmentsBatch(5, TABLE, (made.segment,)), OperationUnsupported)
    await client.call(GetStreamSegmentInfo(6, made.segment), StreamSegmentInfo)
    await client.close()


async def test_no_table_is_merged_away(any_server: WireServer) -> None:
    """It would be gone, with its entries among the events of a stream."""
    client = await WireClient.connect(any_server.port)
    await client.call(CreateSegment(1, STREAM, 0, 0), SegmentCreated)
    await client.call(CreateTableSegment(2, TABLE), SegmentCreated)
    put: Any = UpdateTableEntries(3, TABLE, "", (WireTableEntry(KEY, b"value"),))
    await client.call(put, TableEntriesUpdated)
    for request in (MergeSegments(4, STREAM, TABLE), MergeSegmentsBatch(4, STREAM, (TABLE,))):
        assert (await client.call(request, OperationUnsupported)).request_id == 4, request
    assert (await client.call(GetStreamSegmentInfo(5, STREAM), StreamSegmentInfo)).write_offset == 0
    await client.call(put, TableEntriesUpdated)
    read = await client.call(ReadTable(6, TABLE, "", (KEY,)), TableRead)
    assert [bytes(entry.value) for entry in read.entries] == [b"value"]
    await client.close()


@pytest.mark.parametrize("data", [b"no entry of a table", bytes(40)])
async def test_a_damaged_table_can_be_deleted(data: bytes) -> None:
    """Its entries need not be read for that: a deletion that reads them would be tried again for ever."""
    kit = ContainerKit()
    container = await kit.open()
    server = WireServer(container, TableExtension(container), kit.back_pressure)
    await server.start()
    client = await WireClient.connect(server.port)
    await client.call(CreateTableSegment(1, TABLE), SegmentCreated)
    await container.append(TABLE, [data])
    await client.call(DeleteTableSegment(2, TABLE, False), SegmentDeleted)
    await client.close()
    await container.stop()
    await server.stop()


async def test_a_writer_of_a_segment_that_became_a_table_appends_nothing(any_server: WireServer) -> None:
    """It was set up while another segment had the name."""
    client = await WireClient.connect(any_server.port)
    await client.call(CreateSegment(1, TABLE, 0, 0), SegmentCreated)
    await client.call(SetupAppend(2, WRITER, TABLE), AppendSetup)
    await client.call(DeleteSegment(3, TABLE), SegmentDeleted)
    await client.call(CreateTableSegment(4, TABLE), SegmentCreated)
    append = AppendBlockEnd(WRITER, 19, b"no entry of a table", 1, 1, 5)
    assert (await client.call(append, OperationUnsupported)).request_id == 5
    put: Any = UpdateTableEntries(6, TABLE, "", (WireTableEntry(KEY, b"value"),))
    await client.call(put, TableEntriesUpdated)
    read = await client.call(ReadTable(7, TABLE, "", (KEY,)), TableRead)
    assert [bytes(entry.value) for entry in read.entries] == [b"value"]
    await client.close()
