"""A step that is refused after a stream's state was taken: what it did is undone, and the stream is free."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from controller_service.errors import PreconditionFailed
from controller_service.service import Controller
from controller_service.store.epochs import equal_ranges, initial_epoch, next_epoch, plan_scale
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from controller_service.store.records import EpochRecord, SegmentRecord, StreamState
from controller_service.store.serializer import encode
from controller_service.store.versioned_store import Put
from controller_service.transactions import commit_transactions
from controller_service.workflows import scale_stream
from pravega_common.errors import InvalidArgument, PravegaError, SegmentNotFound, StreamNotFound
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.table_limits import fixed_key_bytes_max, value_bytes_max
from pravega_common.names import epoch_max, segment_number_max, segments_per_stream_max
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.stream_audit import audit, requests_left
from tests.support.transaction_world import World

S, T = "scope", "stream"
update_keys_max = 10_000

assert commit_transactions and scale_stream


class LimitedTables(InMemoryVersionedStore):
    """Refuses what a table segment refuses."""

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        largest = max(len(put.value) for put in puts)
        if largest > value_bytes_max or len(puts) > update_keys_max:
            raise InvalidArgument(f"{table}: {len(puts)} values, the largest of {largest} bytes")
        return await super().put_many(table, puts)


@pytest.fixture
def parts() -> ControllerParts:
    return ControllerParts(tables=LimitedTables())


@pytest.fixture
async def stream(controller: Controller) -> Controller:
    await controller.store.create_scope(S)
    assert await controller.parts.workflows.create.create(S, T, fixed(2, "old"))
    return controller


def fixed(segments: int, *tags: str) -> StreamConfiguration:
    return StreamConfiguration(ScalingPolicy.fixed(segments), tags=tags)


async def expect_unchanged(stream: Controller, parts: ControllerParts) -> None:
    context = await stream.store.open(S, T)
    assert await context.state() is StreamState.ACTIVE
    assert (await context.configuration()).configuration == fixed(2, "old")
    assert await requests_left(parts.tables) == 0
    await audit(stream, parts.access)


def widest_epoch(count: int) -> EpochRecord:
    """An epoch whose record is as long as one of so many segments can be."""
    edge = 1.2345678901234567e-05
    first = segment_number_max - 2 * count
    segments = tuple(SegmentRecord(first + n, epoch_max - 2, 9_999_999_999_999, edge, edge) for n in range(count))
    return EpochRecord(
        epoch_max - 2, epoch_max - 2, segments, 9_999_999_999_999, segment_number_max, segment_number_max
    )


def test_the_records_of_the_largest_stream_fit_a_table() -> None:
    largest = widest_epoch(segments_per_stream_max)
    assert len(encode(largest)) <= value_bytes_max
    whole = dataclasses.replace(largest, segments=(SegmentRecord(1, epoch_max - 2, 1, 0.0, 1.0),))
    plan = plan_scale(whole, whole.segment_ids, [(0.0, 1.0)], 1, 9_999_999_999_999, "r" * 1_000)
    plan = dataclasses.replace(plan, segments_to_seal=largest.segment_ids, new_segments=largest.segments)
    assert len(encode(plan)) <= value_bytes_max
    # A rolling commit writes two epochs, and what replaces each segment of the active and of the holding one.
    assert 2 + 2 * segments_per_stream_max <= update_keys_max


def test_a_stream_of_more_segments_than_allowed_may_shrink() -> None:
    with pytest.raises(InvalidArgument, match=r"4501 segments: the number must be in 1\.\.4500"):
        initial_epoch(0, segments_per_stream_max + 1, 0)
    count = segments_per_stream_max + 10
    segments = tuple(SegmentRecord(n, 0, 1, low, high) for n, (low, high) in enumerate(equal_ranges(count)))
    former = EpochRecord(0, 0, segments, 1)
    merged = [(segments[0].key_start, segments[1].key_end)]
    plan = plan_scale(former, [0, 1], merged, 1, 2)
    assert len(next_epoch(former, plan).segments) == count - 1


@pytest.mark.parametrize("count", [0, -1, segments_per_stream_max + 1, 9_500])
async def test_impossible_numbers_of_segments_are_refused_first(
    stream: Controller, parts: ControllerParts, count: int
) -> None:
    with pytest.raises(InvalidArgument):
        await stream.parts.workflows.update.update("1", S, T, fixed(count))
    with pytest.raises(InvalidArgument):
        await stream.parts.workflows.create.create(S, "other", fixed(count))
    with pytest.raises(StreamNotFound):
        await stream.store.open(S, "other")
    await expect_unchanged(stream, parts)


async def test_an_update_that_no_plan_fits_changes_nothing(
    stream: Controller, parts: ControllerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller_service.store.epochs.segment_number_max", 3)
    with pytest.raises(PravegaError, match="segment numbers 2 and on"):
        await stream.parts.workflows.update.update("1", S, T, fixed(3, "new"))
    await expect_unchanged(stream, parts)
    monkeypatch.undo()
    await stream.parts.workflows.update.update("2", S, T, fixed(3, "new"))
    await audit(stream, parts.access)


@pytest.mark.parametrize("step", ["create_segments", "update_policy"])
async def test_an_update_that_a_store_refuses_is_undone(
    stream: Controller, parts: ControllerParts, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(parts.access, step, refuse)
    with pytest.raises(SegmentNotFound):
        await stream.parts.workflows.update.update("1", S, T, fixed(3, "new"))
    await expect_unchanged(stream, parts)


async def test_a_scale_that_a_store_refuses_is_undone(
    stream: Controller, parts: ControllerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts.access, "create_segments", refuse)
    await stream.parts.workflows.scale.start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    await eventually(lambda: nothing_is_left(parts))
    await expect_unchanged(stream, parts)
    monkeypatch.undo()
    await stream.parts.workflows.scale.start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    await eventually(lambda: nothing_is_left(parts))
    assert (await (await stream.store.open(S, T)).current_epoch()).epoch == 1
    await audit(stream, parts.access)


async def test_a_scale_is_not_dropped_once_its_epoch_is_on_record(
    stream: Controller, parts: ControllerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal, refusals = parts.access.seal_segments, [1, 2, 3]

    async def refuse_at_first(segments: Sequence[str]) -> None:
        if refusals:
            refusals.pop()
            raise SegmentNotFound(segments[0])
        await seal(segments)

    monkeypatch.setattr(parts.access, "seal_segments", refuse_at_first)
    await stream.parts.workflows.scale.start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    await eventually(lambda: nothing_is_left(parts))
    assert not refusals
    assert (await (await stream.store.open(S, T)).current_epoch()).epoch == 1
    await audit(stream, parts.access)


async def nothing_is_left(parts: ControllerParts) -> bool:
    return await requests_left(parts.tables) == 0


async def refuse(*segments: Any, **named: Any) -> None:
    raise SegmentNotFound(str(segments))


async def test_a_commit_that_lost_its_data_does_not_keep_a_scale_off(world: World) -> None:
    one, other = await world.instance(), await world.instance()
    created = await world.begin(one, S, T, "a")
    await world.segments.delete_segments(world.segments.transaction_segments()[:1])
    assert await world.run(one.transactions.commit(S, T, created.id))
    await world.clock.pass_time(2)
    assert one.transactions.blocked
    await world.run(world.split(other, S, T))
    await world.clock.pass_time(30)
    assert (await (await world.streams.open(S, T)).current_epoch()).epoch == 1


async def test_a_stream_is_sealed_and_deleted_although_a_segment_is_lost(
    controller: Controller, parts: ControllerParts
) -> None:
    workflows = controller.parts.workflows
    await controller.store.create_scope("s")
    await workflows.create.create("s", "t", StreamConfiguration(ScalingPolicy.fixed(3)))
    del parts.access.segments["s/t/1.#epoch.0"]
    await workflows.seal.seal("now", "s", "t")
    assert await (await controller.store.open("s", "t")).state() is StreamState.SEALED
    left = [parts.access.segments[f"s/t/{number}.#epoch.0"] for number in (0, 2)]
    assert [segment.is_sealed for segment in left] == [True, True]
    await workflows.delete.delete("now", "s", "t")
    assert parts.access.segments == {}


async def test_a_sealing_that_meets_a_refusal_goes_on(
    controller: Controller, parts: ControllerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the stream is marked nobody else can use it: dropped, the request would leave it so for ever."""
    workflows = controller.parts.workflows
    await controller.store.create_scope("s")
    await workflows.create.create("s", "t", StreamConfiguration(ScalingPolicy.fixed(1)))
    end_all, refusals = controller.transactions.end_all, [PreconditionFailed("somebody was faster")]

    async def refusing(scope: str, stream: str, stream_id: str) -> bool:
        if refusals:
            raise refusals.pop()
        return await end_all(scope, stream, stream_id)

    monkeypatch.setattr(controller.transactions, "end_all", refusing)
    sealing = asyncio.ensure_future(workflows.seal.seal("now", "s", "t"))
    await eventually(lambda: not refusals)
    await sealing
    assert await (await controller.store.open("s", "t")).state() is StreamState.SEALED


async def test_a_table_of_longer_keys_than_stores_take_is_refused_and_not_tried_again(
    controller: Controller, parts: ControllerParts
) -> None:
    await controller.store.create_scope(S)
    # As a former version may have stored it; a store would end the connection at each attempt.
    too_long = KeyValueTableRecord("id", 1, ScopeMemberState.CREATING, 1, fixed_key_bytes_max, 1)
    with pytest.raises(InvalidArgument, match=f"keys of {fixed_key_bytes_max + 1} bytes"):
        await controller.parts.tables.create(S, "table", too_long)
    assert await requests_left(parts.tables) == 0
    assert not parts.access.tables
