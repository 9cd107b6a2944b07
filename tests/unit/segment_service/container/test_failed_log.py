"""Fails the log under a container: who cannot know what became of an operation is not shown a state without it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pravega_common.errors import ContainerOffline, UnknownOutcome
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.table_store import TableEntry
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import ContainerKit, read_all
from tests.support.fakes.data_log import AppendFault

WRITER = AttributeId(b"writer-number-01")


async def in_memory(container: SegmentContainer) -> object:
    return container.read_in_memory("segment", 0, 100) or container.state_in_memory("segment")


READS: dict[str, Callable[[SegmentContainer], Awaitable[object]]] = {
    "info": lambda container: container.get_info("segment"),
    "attribute": lambda container: container.get_attribute("segment", WRITER),
    "bytes": lambda container: container.read("segment", 0, 100),
    "memory": in_memory,
    "boundary": lambda container: container.locate_offset("segment", 0),
}


@pytest.mark.parametrize("read", READS)
async def test_what_is_read_after_an_unknown_outcome_does_not_change_later(read: str) -> None:
    """The log fails some turns of the event loop before its container has ended."""
    kit = ContainerKit()
    container = await kit.open()
    await container.create_segment("segment")
    await container.append("segment", [b"one"])
    kit.logs.faults.plan_append(AppendFault.UNKNOWN_STORED)
    update = AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, 7)
    with pytest.raises(UnknownOutcome):
        await container.append("segment", [b"two"], [update])
    with pytest.raises(ContainerOffline, match="it is failed"):
        await READS[read](container)
    with pytest.raises(UnknownOutcome):
        await container.wait_stopped()
    container = await kit.open()
    assert await read_all(container, "segment") == b"onetwo"
    assert await container.get_attribute("segment", WRITER) == 7
    await container.stop()


async def test_nor_does_a_table_show_what_it_was_before() -> None:
    kit = ContainerKit()
    container = await kit.open()
    tables = TableExtension(container)
    await tables.create_table("table")
    [version] = await tables.put("table", [TableEntry(b"key", b"old")])
    kit.logs.faults.plan_append(AppendFault.UNKNOWN_STORED)
    with pytest.raises(UnknownOutcome):
        await tables.put("table", [TableEntry(b"key", b"new", version)])
    with pytest.raises(ContainerOffline):
        await tables.get("table", [b"key"])
    with pytest.raises(UnknownOutcome):
        await container.wait_stopped()
    container = await kit.open()
    [entry] = await TableExtension(container).get("table", [b"key"])
    assert entry.value == b"new"
    await container.stop()
