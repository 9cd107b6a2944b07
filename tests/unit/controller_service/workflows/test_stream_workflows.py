"""Workflows that meet other work on the same stream."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from controller_service.api.grpc.controller_service_api import ControllerServiceApi
from controller_service.errors import PreconditionFailed
from controller_service.queue.request_queue import Postpone, Request, SubmittedRequest
from controller_service.service import Controller
from controller_service.store.epochs import duplicate_epoch, equal_ranges, next_epoch, plan_scale
from controller_service.store.members import ReaderGroupConfig
from controller_service.store.records import (
    STATE,
    TRANSITION,
    TRUNCATION,
    EpochRecord,
    SealedSegmentRecord,
    StateRecord,
    StreamState,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.scope_store import KEY_VALUE_TABLES_LIST, SCOPES_TABLE
from controller_service.store.stream_context import StreamContext
from controller_service.workflows.states import Superseded, enter, leave, require_hold
from pravega_common.errors import (
    InvalidArgument,
    ScopeNotEmpty,
    ScopeNotFound,
    SegmentSealed,
    StreamNotFound,
    StreamNotSealed,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import mark_stream, name_chars_max, user_name_chars_max
from pravega_common.proto import controller_pb2 as pb
from tests.support.controller_in_memory import ControllerParts
from tests.support.stream_audit import audit

S, T = "scope", "stream"
GROUP_ID = "11111111-2222-3333-4444-555555555555"


def fixed(segments: int, *tags: str) -> StreamConfiguration:
    return StreamConfiguration(ScalingPolicy.fixed(segments), tags=tags)


@pytest.fixture
async def stream(controller: Controller) -> Controller:
    await controller.store.create_scope(S)
    assert await controller.parts.workflows.create.create(S, T, fixed(2))
    return controller


async def set_state(controller: Controller, state: StreamState) -> None:
    async def change(context: StreamContext) -> None:
        context.stage(STATE, StateRecord(state))

    await controller.store.update(S, T, change)


async def until_active(controller: Controller, epoch: int) -> EpochRecord:
    for _ in range(500):
        context = await controller.store.open(S, T)
        current = await context.current_epoch()
        if current.epoch == epoch and await context.state() is StreamState.ACTIVE:
            return current
        await asyncio.sleep(0.01)
    raise AssertionError(f"epoch {epoch} does not become active")


async def write_epochs(controller: Controller, parts: ControllerParts, epochs: list[EpochRecord]) -> None:
    """Leave new epochs, the last of them current, and their segments, as another workflow would."""
    for epoch in epochs:
        await parts.access.create_segments(epoch.names(S, T))

    async def change(context: StreamContext) -> None:
        before = await context.current_epoch()
        for epoch in epochs:
            await context.put(epoch_key(epoch.epoch), epoch)
            for segment in before.segments:
                if epoch.find(segment.segment_id) is None:
                    await context.put(sealed_segment_key(segment.segment_id), SealedSegmentRecord(epoch.epoch, 0))
            before = epoch
        context.stage_current(before)

    await controller.store.update(S, T, change)
    active = set(epochs[-1].names(S, T))
    for name, segment in parts.access.segments.items():
        if name.startswith(f"{S}/{T}/"):
            segment.is_sealed = name not in active


async def start_scale_while_committing(controller: Controller) -> None:
    await set_state(controller, StreamState.COMMITTING_TRANSACTIONS)
    plan = await controller.parts.workflows.scale.start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    assert (plan.active_epoch, plan.new_epoch) == (0, 1)


async def test_a_scale_follows_a_rolling_commit(stream: Controller, parts: ControllerParts) -> None:
    await start_scale_while_committing(stream)
    epoch = await (await stream.store.open(S, T)).current_epoch()
    rolled = [duplicate_epoch(epoch, number, epoch.created_ms + number, epoch) for number in (1, 2)]
    await write_epochs(stream, parts, rolled)
    await set_state(stream, StreamState.ACTIVE)
    current = await until_active(stream, 3)
    assert [(item.creation_epoch, item.number) for item in current.segments] == [(3, 2), (3, 3), (2, 1)]
    await audit(stream, parts.access)


async def test_a_scale_that_fits_no_more_is_dropped(stream: Controller, parts: ControllerParts) -> None:
    await start_scale_while_committing(stream)
    epoch = await (await stream.store.open(S, T)).current_epoch()
    other = next_epoch(epoch, plan_scale(epoch, [0, 1], equal_ranges(4), 1, 1))
    await write_epochs(stream, parts, [other])
    await set_state(stream, StreamState.ACTIVE)
    for _ in range(500):
        context = await stream.store.open(S, T, TRANSITION)
        if (await context.transition()).is_empty:
            break
        await asyncio.sleep(0.01)
    current = await until_active(stream, 1)
    first = current.segments[0]
    middle = first.key_end / 2
    await stream.parts.workflows.scale.start(S, T, [first.segment_id], [(0.0, middle), (middle, first.key_end)])
    await until_active(stream, 2)
    await audit(stream, parts.access)


async def test_scales_are_counted_by_what_they_make_of_a_stream(stream: Controller) -> None:
    def counts() -> list[float]:
        name = "pravega_controller_scales_total"
        return [REGISTRY.get_sample_value(name, {"segments": kind}) or 0.0 for kind in ("more", "fewer", "as_many")]

    before, start = counts(), stream.parts.workflows.scale.start
    await start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    parts = (await until_active(stream, 1)).segments
    await start(S, T, [segment.segment_id for segment in parts if segment.key_end <= 0.5], [(0.0, 0.5)])
    await until_active(stream, 2)
    await start(S, T, [1], [(0.5, 1.0)])
    await until_active(stream, 3)
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 1, 1]


@pytest.mark.parametrize("client_ms", [0, 10**18])
async def test_segments_are_as_old_as_the_controller_says(stream: Controller, client_ms: int) -> None:
    """A client's clock that is behind, or counts nanoseconds, makes segments neither old nor young for good."""
    ranges = [pb.ScaleRequest.KeyRangeEntry(start=low, end=high) for low, high in ((0.0, 0.25), (0.25, 0.5))]
    request = pb.ScaleRequest(
        streamInfo=pb.StreamInfo(scope=S, stream=T), sealedSegments=[0], newKeyRanges=ranges, scaleTimestamp=client_ms
    )
    api = ControllerServiceApi(stream.parts, stream.transactions)
    before_ms = stream.store.clock.wall_ms()
    assert (await api.scale(request, None)).status == pb.ScaleResponse.STARTED
    current = await until_active(stream, 1)
    after_ms = stream.store.clock.wall_ms() + 1  # an epoch is younger than the one before, which may be as young
    assert before_ms <= current.created_ms <= after_ms
    assert all(before_ms <= segment.created_ms <= after_ms for segment in current.segments if segment.creation_epoch)


async def test_the_same_scale_again_answers_the_same(stream: Controller) -> None:
    await start_scale_while_committing(stream)
    scale = stream.parts.workflows.scale
    first = await scale.start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    again = await scale.start(S, T, [0], [(0.25, 0.5), (0.0, 0.25)])
    assert first == again
    other = asyncio.ensure_future(scale.start(S, T, [1], [(0.5, 0.75), (0.75, 1.0)]))
    await asyncio.sleep(0)
    with pytest.raises(PreconditionFailed):
        await other
    await set_state(stream, StreamState.ACTIVE)
    await until_active(stream, 1)


async def test_an_update_replaces_all_segments_once(stream: Controller, parts: ControllerParts) -> None:
    update = stream.parts.workflows.update
    await update.update("1", S, T, fixed(5, "tag"))
    current = await until_active(stream, 1)
    assert [item.number for item in current.segments] == [2, 3, 4, 5, 6]
    await update.update("2", S, T, fixed(5, "other"))
    assert (await until_active(stream, 1)) == current
    await audit(stream, parts.access)
    with pytest.raises(StreamNotFound):
        await update.update("3", S, "absent", fixed(1))
    with pytest.raises(InvalidArgument):
        await update.update("4", S, T, fixed(0))


async def test_an_old_update_that_turns_up_again_changes_nothing(stream: Controller, parts: ControllerParts) -> None:
    update = stream.parts.workflows.update
    submitted: list[Request] = []
    submit = stream.queue.submit

    async def recording_submit(request: Request) -> SubmittedRequest:
        submitted.append(request)
        return await submit(request)

    stream.queue.submit = recording_submit  # type: ignore[method-assign]
    await update.update("1", S, T, fixed(3, "old"))
    await update.update("2", S, T, fixed(4, "new"))
    await until_active(stream, 2)
    old = submitted[0]
    again = await submit(Request("again", old.kind, old.key, old.payload))
    with pytest.raises(Superseded):
        await again.outcome(5)
    found = await (await stream.store.open(S, T)).configuration()
    assert found.configuration == fixed(4, "new")
    await until_active(stream, 2)
    await audit(stream, parts.access)


async def test_truncation_deletes_what_lies_before_and_counts_bytes(stream: Controller, parts: ControllerParts) -> None:
    parts.access.append(f"{S}/{T}/0.#epoch.0", 100)
    parts.access.append(f"{S}/{T}/1.#epoch.0", 50)
    truncate = stream.parts.workflows.truncate
    await truncate.truncate("1", S, T, {0: 30, 1: 0})
    await stream.parts.workflows.scale.start(S, T, [0], [(0.0, 0.25), (0.25, 0.5)])
    current = await until_active(stream, 1)
    for segment in current.segments:
        parts.access.append(segment.name(S, T), 10)
    cut = {current.segments[0].segment_id: 4, current.segments[1].segment_id: 5, 1: 20}
    await truncate.truncate("2", S, T, cut)
    record = await (await stream.store.open(S, T, TRUNCATION)).truncation()
    assert (record.cut, record.size_till, record.updating) == (cut, 100 + 4 + 5 + 20, False)
    assert f"{S}/{T}/0.#epoch.0" not in parts.access.segments
    assert parts.access.segments[f"{S}/{T}/1.#epoch.0"].start_offset == 20
    await audit(stream, parts.access)
    for bad in ({0: 30, 1: 0}, {**cut, 1: 19}, {current.segments[0].segment_id: 4}, {77: 0}):
        with pytest.raises(InvalidArgument):
            await truncate.truncate(f"3-{bad}", S, T, bad)
    await truncate.truncate("4", S, T, cut)
    await audit(stream, parts.access)


async def test_nothing_moves_a_sealed_stream(stream: Controller) -> None:
    workflows = stream.parts.workflows
    with pytest.raises(StreamNotSealed):
        await workflows.delete.delete("0", S, T)
    await workflows.seal.seal("1", S, T)
    await workflows.seal.seal("2", S, T)
    with pytest.raises(SegmentSealed):
        await workflows.update.update("3", S, T, fixed(3))
    with pytest.raises(SegmentSealed):
        await workflows.truncate.truncate("4", S, T, {0: 0, 1: 0})
    with pytest.raises(SegmentSealed):
        await workflows.scale.start(S, T, [0], [(0.0, 0.5)])


async def test_numbers_continue_in_a_stream_created_again(stream: Controller, parts: ControllerParts) -> None:
    workflows = stream.parts.workflows
    for expected in ([2, 3], [4, 5]):
        await workflows.seal.seal(f"seal-{expected}", S, T)
        await workflows.delete.delete(f"delete-{expected}", S, T)
        assert not parts.access.segments
        assert await workflows.create.create(S, T, fixed(2))
        current = await (await stream.store.open(S, T)).current_epoch()
        assert [item.segment_id for item in current.segments] == expected


async def test_a_scope_is_deleted_with_everything_in_it(stream: Controller, parts: ControllerParts) -> None:
    for number in range(5):
        await stream.parts.workflows.create.create(S, f"s{number}", fixed(1))
    with pytest.raises(ScopeNotEmpty):
        await stream.parts.workflows.delete_scope.delete_if_empty("1", S)
    assert await stream.parts.workflows.create.create(S, "after", fixed(1))
    await stream.parts.workflows.delete_scope.delete(S)
    assert not parts.access.segments
    with pytest.raises(ScopeNotFound):
        await stream.parts.workflows.create.create(S, T, fixed(1))
    assert await stream.store.create_scope(S)
    await stream.parts.workflows.delete_scope.delete_if_empty("2", S)
    with pytest.raises(ScopeNotFound):
        await stream.parts.workflows.delete_scope.delete_if_empty("3", S)
    await stream.parts.workflows.delete_scope.delete(S)


async def test_a_scope_whose_record_comes_late_can_be_used_and_deleted(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its creation was lost, and the record was not there yet when it was looked for."""
    store, workflows, late = controller.store, controller.parts.workflows, []

    async def put(table: str, key: str, value: bytes, expected: int) -> int:
        late.append((table, key, value, expected))
        raise UnknownOutcome("the answer was lost")

    with monkeypatch.context() as patched, pytest.raises(UnknownOutcome):
        patched.setattr(store.tables, "put", put)
        await store.create_scope(S)
    await store.tables.put(*late[0])
    assert not await store.create_scope(S)
    assert await workflows.create.create(S, T, fixed(1))
    await workflows.delete_scope.delete(S)
    assert await store.scope(S) is None


@pytest.mark.parametrize("step", ["create_table", "put"])
@pytest.mark.parametrize("error", [Unavailable("the container is away"), asyncio.CancelledError()], ids=type)
async def test_a_scope_that_cannot_be_made_leaves_no_tables(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    """One of its lists, or its record, cannot be made. A record that was cut off may come, and keeps the lists."""
    tables: Any = controller.store.tables
    before, call = set(tables._tables), getattr(tables, step)

    async def refuse(table: str, *rest: Any) -> Any:
        if table == SCOPES_TABLE or KEY_VALUE_TABLES_LIST in table:
            raise error
        return await call(table, *rest)

    with monkeypatch.context() as patched, pytest.raises(type(error)):
        patched.setattr(tables, step, refuse)
        await controller.store.create_scope(S)
    is_kept = step == "put" and isinstance(error, asyncio.CancelledError)
    assert (set(tables._tables) != before) is is_kept
    assert await controller.store.create_scope(S)


async def test_a_scope_is_deleted_with_mark_streams_of_no_stream(stream: Controller, parts: ControllerParts) -> None:
    """One that was created by its name and is in use, and one whose maker died before it had records."""
    workflows, used = stream.parts.workflows, mark_stream("used")
    await workflows.create.create(S, used, fixed(2))
    await stream.transactions.create(S, used, 60_000)
    await stream.store.add_entry(S, mark_stream("bare"), ())
    await workflows.delete_scope.delete(S)
    assert not parts.access.segments
    assert await stream.store.scope(S) is None


@pytest.mark.parametrize("length", [user_name_chars_max + 1, name_chars_max])
async def test_a_stream_of_the_longest_names_goes_with_its_mark_stream(stream: Controller, length: int) -> None:
    """The name of its mark stream is longer than a stream's may be."""
    workflows, name = stream.parts.workflows, "s" * length
    await workflows.create.create(S, name, fixed(1))
    assert await stream.store.entry(S, mark_stream(name)) is not None
    await workflows.seal.seal("1", S, name)
    await workflows.delete.delete("2", S, name)
    assert await names_of_streams(stream) == {T, mark_stream(T)}


@pytest.mark.parametrize("length", [user_name_chars_max - 2, user_name_chars_max])
async def test_a_group_of_the_longest_names_goes_with_all_its_streams(stream: Controller, length: int) -> None:
    config = ReaderGroupConfig(3_000, 30_000, 3, ReaderGroupRetention.MANUAL, {f"{S}/{T}": {}})
    await stream.parts.groups.create(S, "g" * length, GROUP_ID, config)
    assert await stream.parts.groups.delete(S, "g" * length, GROUP_ID)
    assert await names_of_streams(stream) == {T, mark_stream(T)}


async def names_of_streams(controller: Controller) -> set[str]:
    streams, _ = await controller.store.list_streams(S)
    return {name for name, _ in streams}


async def test_concurrent_creations_make_one_stream(controller: Controller, parts: ControllerParts) -> None:
    await controller.store.create_scope(S)
    made = await asyncio.gather(*(controller.parts.workflows.create.create(S, T, fixed(n + 1)) for n in range(5)))
    assert sum(made) == 1
    await audit(controller, parts.access)


async def test_a_working_state_belongs_to_one_request(stream: Controller) -> None:
    _, first = await enter(stream.store, S, T, StreamState.UPDATING, "one")
    _, second = await enter(stream.store, S, T, StreamState.UPDATING, "one")
    with pytest.raises(Postpone):
        await enter(stream.store, S, T, StreamState.UPDATING, "two")
    await leave(stream.store, first)
    context = await stream.store.open(S, T)
    await require_hold(context, "one")
    with pytest.raises(Superseded):
        await require_hold(context, "two")
    await leave(stream.store, second)
    await enter(stream.store, S, T, StreamState.SCALING, "two")
