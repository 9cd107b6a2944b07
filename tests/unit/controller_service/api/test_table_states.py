"""Asks for the segments of key-value tables in each of their states, and of the largest table that can be made."""

from __future__ import annotations

import asyncio

import pytest

from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from controller_service.workflows.key_value_tables import partitions_max
from pravega_common.errors import NotFound, PravegaError
from pravega_common.names import table_segment_name
from pravega_streams.controller.transport import ControllerTransport
from pravega_streams.table.key_value_tables import KeyValueTableClient
from tests.support.controller_in_memory import ControllerParts

attempts_max = 3
S, TABLE = "scope", "table"


@pytest.mark.parametrize(
    ("state", "attempts"),
    [(ScopeMemberState.CREATING, attempts_max), (ScopeMemberState.DELETING, 1), (ScopeMemberState.ACTIVE, 1)],
)
async def test_a_client_waits_for_a_table_that_is_made_and_for_none_that_is_deleted(
    state: ScopeMemberState, attempts: int
) -> None:
    """The controller that deletes it may be gone, or wait for a store."""
    controller = ControllerParts().controller()
    await controller.start()
    await controller.store.create_scope(S)
    await controller.parts.tables.records.add(S, TABLE, KeyValueTableRecord("id", 0, state, 2, 4, 0, 0, 0))
    pauses: list[float] = []
    transport = ControllerTransport(f"127.0.0.1:{controller.grpc.port}", attempts=attempts_max, sleep=pauses.append)
    client = KeyValueTableClient(transport)
    try:
        segments = await asyncio.to_thread(client.segments, S, TABLE)
    except PravegaError as error:
        assert isinstance(error, NotFound) == (state is ScopeMemberState.DELETING)
    else:
        assert state is ScopeMemberState.ACTIVE and len(segments) == 2
    assert len(pauses) == attempts - 1
    transport.close()
    await controller.stop()


async def test_the_segments_of_the_largest_table_are_told() -> None:
    """It has more than a stream can have."""
    controller = ControllerParts().controller()
    await controller.start()
    await controller.store.create_scope(S)
    record = KeyValueTableRecord("id", 0, ScopeMemberState.ACTIVE, partitions_max, 4, 0, 0, 7)
    await controller.parts.tables.records.add(S, TABLE, record)
    transport = ControllerTransport(f"127.0.0.1:{controller.grpc.port}", attempts=1)
    segments = await asyncio.to_thread(KeyValueTableClient(transport).segments, S, TABLE)
    assert segments == tuple(table_segment_name(S, TABLE, 7 + number) for number in range(partitions_max))
    transport.close()
    await controller.stop()
