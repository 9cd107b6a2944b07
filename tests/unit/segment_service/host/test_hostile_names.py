"""Names and attribute ids that a peer may not use are refused before anything is kept for them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from pravega_common.wire.commands import (
    ILLEGAL_ARGUMENT,
    AppendBlockEnd,
    AppendSetup,
    CreateTransientSegment,
    ErrorMessage,
    GetSegmentAttribute,
    GetStreamSegmentInfo,
    GetTableSegmentInfo,
    LocateOffset,
    MergeSegments,
    ReadSegment,
    SegmentAttribute,
    SegmentAttributeUpdated,
    SetupAppend,
    UpdateSegmentAttribute,
    WireAttributeUpdate,
)
from segment_service.container.registry import ContainerRegistry
from segment_service.contracts.attributes import (
    ATTRIBUTES_IN_TIER2,
    EVENT_COUNT,
    INDEXED_LENGTH,
    NULL_ATTRIBUTE_VALUE,
    core_attribute,
)
from segment_service.host.listener import WireServer
from segment_service.store import RoutedSegmentStore
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

SEGMENT = "scope/stream/0.#epoch.0"
NAME_CHARS = 65_000
NAMES = 600
held_bytes_max = 8 * 1024 * 1024
"""What a store may hold after hostile names: a fifth of what they are together."""
BAD_NAMES = ("", "n" * NAME_CHARS, "scope/stream/\x00", "scope/stream\n/0.#epoch.0")
CORE_IDS = (ATTRIBUTES_IN_TIER2, INDEXED_LENGTH, EVENT_COUNT, core_attribute(2**64 - 1))


def long_names() -> Iterator[str]:
    return (f"{number:08}".ljust(NAME_CHARS, "n") for number in range(NAMES))


def requests_about(segment: str) -> list[Any]:
    return [
        SetupAppend(7, b"w" * 16, segment),
        ReadSegment(segment, 0, 10, "", 7),
        GetStreamSegmentInfo(7, segment),
        GetTableSegmentInfo(7, segment),
        LocateOffset(7, segment, 0),
        MergeSegments(7, segment, SEGMENT),
        MergeSegments(7, SEGMENT, segment),
    ]


@pytest.mark.parametrize("segment", BAD_NAMES, ids=("empty", "long", "zero", "line end"))
async def test_a_name_that_cannot_be_is_an_illegal_argument_everywhere(client: WireClient, segment: str) -> None:
    for request in requests_about(segment):
        reply = await client.call(request, ErrorMessage)
        assert (reply.request_id, reply.error_code) == (7, ILLEGAL_ARGUMENT), request


async def test_names_of_set_ups_that_were_refused_are_not_kept(client: WireClient, server: WireServer) -> None:
    tracemalloc.start()
    try:
        for number, name in enumerate(long_names()):
            await client.call(SetupAppend(number, number.to_bytes(16, "big"), name), ErrorMessage)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < held_bytes_max


async def test_a_writer_that_was_refused_cannot_append(client: WireClient) -> None:
    await client.call(SetupAppend(1, b"w" * 16, "n" * NAME_CHARS), ErrorMessage)
    client.send(AppendBlockEnd(b"w" * 16, 3, b"abc", 1, 1, 2))
    assert await client.closed_by_server() == []


async def test_names_of_transient_segments_that_were_refused_are_not_kept(client: WireClient) -> None:
    tracemalloc.start()
    try:
        for number, name in enumerate(long_names()):
            await client.call(CreateTransientSegment(number, b"w" * 16, name), ErrorMessage)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < held_bytes_max


def test_routes_of_long_names_are_not_kept() -> None:
    store = RoutedSegmentStore(ContainerRegistry(), 4, lambda: False)
    tracemalloc.start()
    try:
        for name in long_names():
            with pytest.raises(Exception, match="container"):
                store.container_of(name)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < held_bytes_max


@pytest.mark.parametrize("attribute_id", CORE_IDS, ids=lambda one: one[8:].hex())
async def test_attributes_of_the_store_are_not_written_by_clients(
    client: WireClient, store: InMemorySegmentStore, attribute_id: bytes
) -> None:
    await store.create_segment(SEGMENT)
    source = SEGMENT + "#transaction." + "0" * 32
    await store.create_segment(source)
    before = (await client.call(GetSegmentAttribute(1, SEGMENT, attribute_id), SegmentAttribute)).value
    for request in (
        UpdateSegmentAttribute(7, SEGMENT, attribute_id, 5, before),
        UpdateSegmentAttribute(7, SEGMENT, attribute_id, 5, NULL_ATTRIBUTE_VALUE),
        MergeSegments(7, SEGMENT, source, "", (WireAttributeUpdate(attribute_id, 1, 5, 0),)),
        SetupAppend(7, attribute_id, SEGMENT),
    ):
        reply = await client.call(request, ErrorMessage)
        assert (reply.request_id, reply.error_code) == (7, ILLEGAL_ARGUMENT), request
    after = (await client.call(GetSegmentAttribute(1, SEGMENT, attribute_id), SegmentAttribute)).value
    assert after == before
    assert (await store.get_info(source)).length == 0


async def test_other_attributes_are(client: WireClient, store: InMemorySegmentStore) -> None:
    await store.create_segment(SEGMENT)
    mark = bytes.fromhex("7df9a874246cc9d69397cdd19ead68c5")
    reply = await client.call(
        UpdateSegmentAttribute(1, SEGMENT, mark, 5, NULL_ATTRIBUTE_VALUE), SegmentAttributeUpdated
    )
    assert reply.success
    await client.call(SetupAppend(2, b"\x80" + b"\x00" * 6 + b"\x01" * 9, SEGMENT), AppendSetup)
