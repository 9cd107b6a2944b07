"""Streams of many large epochs, whose records together are more than any request to a table may ask for."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import aiohttp
import grpc
import pytest

from controller_service.queue.request_queue import Request
from controller_service.service import Controller
from controller_service.store import stream_store
from controller_service.store.byte_bounded_cache import ByteBoundedCache, entry_bytes
from controller_service.store.epochs import duplicate_epoch
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import (
    CURRENT_EPOCH,
    TRUNCATION,
    EpochRecord,
    SealedSegmentRecord,
    StreamState,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.serializer import encode
from controller_service.store.versioned_store import ANY_VERSION, Put, Versioned
from controller_service.workflows.states import leave_for
from controller_service.workflows.truncate_stream import ACCEPTED, KIND, SEGMENTS_TRUNCATED
from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id
from pravega_common.proto import controller_pb2 as pb
from pravega_common.runtime.failpoints import FailpointError, arm, disarm_all, raise_on_hit
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.segment_access import InMemorySegment, InMemorySegmentAccess

S, T = "scope", "stream"
SEGMENTS, EPOCHS = 1_000, 180
LAST: Final = EPOCHS - 1
reply_bytes_max: Final = 16 * 1024 * 1024
value_bytes_max: Final = 1_048_576 - 8_192


class FramedTables(InMemoryVersionedStore):
    """Refuses what a store's connection does not survive: replies above a frame, and values above a table's."""

    def copied(self) -> FramedTables:
        again = FramedTables()
        again._tables = {name: dict(entries) for name, entries in self._tables.items()}
        again._versions = itertools.count(next(self._versions))
        return again

    async def get_many(self, table: str, keys: Sequence[str]) -> list[Versioned | None]:
        found = await super().get_many(table, keys)
        size = sum(len(value.value) for value in found if value is not None)
        assert size <= reply_bytes_max and len(keys) <= 1_000, f"{len(keys)} keys, {size} bytes in one reply"
        return found

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        for put in puts:
            assert len(put.value) <= value_bytes_max, f"{put.key} has {len(put.value)} bytes"
        return await super().put_many(table, puts)


def tail_of(epoch: int, offset: int = 0) -> dict[int, int]:
    return {segment_id(number, epoch): offset for number in range(SEGMENTS)}


@pytest.fixture(scope="module")
def built() -> tuple[FramedTables, InMemorySegmentAccess]:
    """The state of a controller with a stream whose segments were all replaced in each of its epochs, as rolling
    commits do, with 7 bytes each."""
    tables = FramedTables()
    parts = ControllerParts(tables=tables)
    asyncio.run(build(parts))
    return tables, parts.access


async def build(parts: ControllerParts) -> None:
    controller = parts.controller()
    await controller.start()
    await controller.store.create_scope(S)
    retention = RetentionPolicy(RetentionType.SIZE, 5_000)
    configuration = StreamConfiguration(ScalingPolicy.fixed(SEGMENTS), retention)
    assert await controller.parts.workflows.create.create(S, T, configuration)
    context = await controller.store.open(S, T)
    epoch = await context.current_epoch()
    for _ in range(1, EPOCHS):
        epoch = await replace_all(context.metadata_table, parts, epoch)
    await parts.tables.put(context.metadata_table, CURRENT_EPOCH.name, encode(epoch), ANY_VERSION)
    await controller.stop()


@pytest.fixture
def parts(built: tuple[FramedTables, InMemorySegmentAccess]) -> ControllerParts:
    """A copy for one test."""
    tables, access = built
    parts = ControllerParts(tables=tables.copied())
    parts.access.segments = {name: copy.copy(segment) for name, segment in access.segments.items()}
    return parts


@pytest.fixture
async def stream(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    yield controller
    disarm_all()
    await controller.stop()


async def replace_all(table: str, parts: ControllerParts, epoch: EpochRecord) -> EpochRecord:
    following = duplicate_epoch(epoch, epoch.epoch + 1, epoch.created_ms + 1_000, epoch)
    puts = [Put(epoch_key(following.epoch).name, encode(following), ANY_VERSION)]
    replaced = encode(SealedSegmentRecord(following.epoch, 7))
    puts += [Put(sealed_segment_key(old).name, replaced, ANY_VERSION) for old in epoch.segment_ids]
    for start in range(0, len(puts), 500):
        await parts.tables.put_many(table, puts[start : start + 500])
    for segment in epoch.segments:
        parts.access.segments[segment.name(S, T)] = InMemorySegment(0, 7, is_sealed=True)
    for segment in following.segments:
        parts.access.segments[segment.name(S, T)] = InMemorySegment(0, 7)
    return following


def user_segments(parts: ControllerParts) -> int:
    return sum(1 for name in parts.access.segments if name.startswith(f"{S}/{T}/"))


async def call(controller: Controller, method: str, request: Any, answer: Any) -> Any:
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{controller.grpc.port}", options=[("grpc.max_receive_message_length", 64 << 20)]
    ) as channel:
        stub: Any = channel.unary_unary(
            f"/{pb.DESCRIPTOR.services_by_name['ControllerService'].full_name}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return await stub(request, timeout=60)


async def test_it_is_truncated_in_the_middle_at_its_end_and_after_an_interruption(
    stream: Controller, parts: ControllerParts
) -> None:
    truncate = stream.parts.workflows.truncate
    await truncate.truncate("1", S, T, tail_of(100, 3))
    record = await (await stream.store.open(S, T, TRUNCATION)).truncation()
    assert (record.size_till, record.updating) == (100 * SEGMENTS * 7 + SEGMENTS * 3, False)
    assert user_segments(parts) == (EPOCHS - 100) * SEGMENTS
    with pytest.raises(InvalidArgument, match="before the head"):
        await truncate.truncate("2", S, T, tail_of(99, 3))
    for point, epoch in ((ACCEPTED, 110), (SEGMENTS_TRUNCATED, 120)):
        context = await stream.store.open(S, T)
        cut = {str(segment): 0 for segment in tail_of(epoch)}
        payload = {"scope": S, "stream": T, "stream_id": context.stream_id, "cut": cut}
        arm(point, raise_on_hit(point))
        with pytest.raises(FailpointError):
            await truncate.handle(Request(f"cut off at {epoch}", KIND, f"{S}/{T}", payload))
        disarm_all()
        # Former versions left the state after a failure, so that another truncation could follow.
        await leave_for(stream.store, S, T, f"cut off at {epoch}")
    assert user_segments(parts) == (EPOCHS - 100) * SEGMENTS
    await truncate.truncate("5", S, T, tail_of(LAST, 7))
    record = await (await stream.store.open(S, T, TRUNCATION)).truncation()
    assert (record.size_till, record.updating, record.since) == (EPOCHS * SEGMENTS * 7, False, {})
    assert user_segments(parts) == SEGMENTS


async def test_retention_keeps_up(stream: Controller, parts: ControllerParts) -> None:
    await stream.retention.run_once()
    context = await stream.store.open(S, T, TRUNCATION)
    assert (await context.truncation()).cut == {}
    await stream.parts.workflows.truncate.truncate("1", S, T, tail_of(LAST - 1, 3))
    await stream.retention.run_once()
    assert user_segments(parts) == 2 * SEGMENTS


async def test_cuts_are_placed_by_reading_only_what_they_name(stream: Controller, parts: ControllerParts) -> None:
    info = pb.StreamInfo(scope=S, stream=T)
    half = SEGMENTS // 2
    wide = {segment_id(number, 0): 1 for number in range(half)} | {
        segment_id(number, LAST): 1 for number in range(half, SEGMENTS)
    }
    reads = 0
    get_many = parts.tables.get_many

    async def counting(table: str, keys: Sequence[str]) -> list[Versioned | None]:
        nonlocal reads
        reads += sum(1 for key in keys if key.startswith("epoch/"))
        return await get_many(table, keys)

    parts.tables.get_many = counting  # type: ignore[method-assign]
    request = pb.StreamCut(streamInfo=info, cut=wide)
    assert (await call(stream, "isStreamCutValid", request, pb.StreamCutValidityResponse)).response
    assert reads <= 2
    request = pb.StreamCut(streamInfo=info, cut={**wide, segment_id(SEGMENTS, 0): 0})
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call(stream, "isStreamCutValid", request, pb.StreamCutValidityResponse)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reads <= 4


async def test_its_segments_and_scaling_events_are_listed(stream: Controller, parts: ControllerParts) -> None:
    wanted = pb.StreamCutRange(streamInfo=pb.StreamInfo(scope=S, stream=T), to=tail_of(LAST, 1))
    between = await call(stream, "getSegmentsBetween", wanted, pb.StreamCutRangeResponse)
    found = {segment.segmentId for segment in between.segments}
    assert len(between.segments) == len(found) == EPOCHS * SEGMENTS
    assert stream.rest is not None
    url = f"http://127.0.0.1:{stream.rest.port}/v1/scopes/{S}/streams/{T}/scaling-events"
    origin = (await (await stream.store.open(S, T)).epoch(0)).created_ms
    async with aiohttp.ClientSession() as session:
        for since, until, expected in (
            (0, origin + 10**9, range(EPOCHS)),
            (origin + 2_500, origin + 5_000, range(2, 6)),
            (origin + 10**9, origin + 10**9, range(LAST, EPOCHS)),
            (0, origin - 1, range(0)),
        ):
            async with session.get(url, params={"from": str(since), "to": str(until)}) as answer:
                assert answer.status == 200
                events = json.loads(await answer.text())
            assert [event["segments"][0]["epoch"] for event in events] == list(expected)


async def test_it_is_deleted(stream: Controller, parts: ControllerParts) -> None:
    await stream.parts.workflows.seal.seal("1", S, T)
    assert await (await stream.store.open(S, T)).state() is StreamState.SEALED
    await stream.parts.workflows.delete.delete("2", S, T)
    assert user_segments(parts) == 0


def test_the_cache_is_bounded_in_bytes() -> None:
    cache = ByteBoundedCache[str, int](10 * (entry_bytes + 100))
    for number in range(50):
        cache.put(str(number), number, 100)
    assert len(cache) == 10
    assert cache.get("40") == 40
    cache.put("large", 1, 5 * (entry_bytes + 100))
    assert cache.get("40") == 40 and cache.get("41") is None
    assert cache.size_bytes <= 10 * (entry_bytes + 100)
    cache.put("larger than all", 1, 11 * (entry_bytes + 100))
    assert cache.get("larger than all") is None and len(cache) > 0
    cache.put("40", 41, 10)
    assert cache.get("40") == 41
    assert stream_store.epochs_cached_bytes_max >= 16 * value_bytes_max
