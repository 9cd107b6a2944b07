"""Epochs, and records of the segments replaced in them, go some time after a truncation; calls are answered truly."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import aiohttp
import pytest

from controller_service.api.grpc.controller_service_api import ControllerServiceApi
from controller_service.api.grpc.error_mapping import status_of
from controller_service.buckets import history_expiry
from controller_service.buckets.history_expiry import HistoryExpiry
from controller_service.errors import CutTruncated, EpochTruncated, IllegalState
from controller_service.event_processors.own_streams import OwnStreams
from controller_service.service import Controller
from controller_service.store.history_floor import epochs_before_head_max
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import (
    RETENTION_SET,
    SUBSCRIBERS,
    HistoryRecord,
    RetentionSetRecord,
    SubscriberRecord,
    SubscribersRecord,
    TruncationRecord,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import VersionedStore
from pravega_common.errors import InvalidArgument, NotFound, PravegaError
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import is_transaction_segment, segment_id, segment_name
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.readers.group_state import HEAD, GroupConfiguration, GroupState
from pravega_streams.readers.lost_place import find_place
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.clock import ShiftedClock
from tests.support.stream_audit import audit
from tests.support.workflow_steps import GROUP_ID

S, T = "scope", "stream"
INFO = pb.StreamInfo(scope=S, stream=T)
EXPIRED = 6
LAST = EXPIRED + epochs_before_head_max
DAY_MS = 86_400_000
LOWER = 0
"""The segment of the lower half of the keys, which stays as it is."""


def upper(epoch: int) -> int:
    """The segment of the upper half, which each epoch replaces."""
    return segment_id(1 + epoch, epoch)


def cut_at(epoch: int, offset: int = 0) -> dict[int, int]:
    return {LOWER: epoch, upper(epoch): offset}


class LongStream:
    """A stream of two segments in memory, one of which was replaced ``LAST`` times; 3 bytes in each."""

    def __init__(self, parts: ControllerParts, controller: Controller, clock: ShiftedClock) -> None:
        self.parts, self.controller, self.clock = parts, controller, clock
        self.api = ControllerServiceApi(controller.parts, controller.transactions)
        self._requests = 0

    async def create(self, retention: RetentionPolicy | None = None) -> None:
        await self.controller.store.create_scope(S)
        configuration = StreamConfiguration(ScalingPolicy.fixed(2), retention)
        await self.controller.parts.workflows.create.create(S, T, configuration)
        self.parts.access.append(segment_name(S, T, LOWER), 1_000)
        self.parts.access.append(segment_name(S, T, upper(0)), 3)
        for _ in range(LAST):
            await self.scale()

    async def scale(self) -> None:
        number = (await (await self.context()).current_epoch()).epoch
        scale = self.controller.parts.workflows.scale
        await scale.start(S, T, [upper(number)], [(0.5, 1.0)])
        while (await (await self.context()).current_epoch()).epoch == number or not await self.is_idle():
            await self.clock.sleep(0.001)
        self.parts.access.append(segment_name(S, T, upper(number + 1)), 3)

    async def is_idle(self) -> bool:
        context = await self.context()
        return (await context.transition()).is_empty and (await context.state()).value == "active"

    async def context(self) -> StreamContext:
        return await self.controller.store.open(S, T)

    async def history(self) -> HistoryRecord:
        return await (await self.context()).history()

    async def truncate(self, cut: dict[int, int]) -> None:
        self._requests += 1
        await self.controller.parts.workflows.truncate.truncate(str(self._requests), S, T, cut)

    async def sweep(self, *, days: int = 0) -> None:
        """A run of the periodic job, so long after the last."""
        self.clock.now_ms += days * DAY_MS
        await self.controller.retention.run_once()

    async def keys(self) -> set[str]:
        page = await self.parts.tables.scan((await self.context()).metadata_table, count_max=10_000)
        return {key for key, _ in page.entries if key.startswith(("epoch/", "sealed/"))}

    async def references(self) -> list[tuple[int, int]]:
        record = await (await self.context()).read(RETENTION_SET) or RetentionSetRecord()
        return [(item.recorded_ms, item.size_till) for item in record.references]


@pytest.fixture
async def stream() -> AsyncIterator[LongStream]:
    clock = ShiftedClock()
    parts = ControllerParts(clock=clock)
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    stream = LongStream(parts, controller, clock)
    await stream.create()
    yield stream
    await controller.stop()


async def refusal(call: Awaitable[object]) -> tuple[str, type[PravegaError]]:
    with pytest.raises(PravegaError) as refused:
        await call
    return status_of(refused.value).name, type(refused.value)


async def test_records_stay_until_the_truncation_is_old_enough(stream: LongStream) -> None:
    before = await stream.keys()
    await stream.sweep(days=100)
    assert (await stream.keys(), await stream.history()) == (before, HistoryRecord())
    await stream.truncate(cut_at(LAST))
    waiting = HistoryRecord(next_oldest=EXPIRED, next_since_ms=stream.clock.now_ms)
    stream.clock.now_ms += DAY_MS - 1
    await stream.sweep()
    assert (await stream.keys(), await stream.history()) == (before, waiting)
    assert await stream.api.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=INFO, segmentId=upper(0)), None)
    stream.clock.now_ms += 1
    await stream.sweep()
    assert await stream.history() == HistoryRecord(EXPIRED, EXPIRED, EXPIRED, waiting.next_since_ms)
    gone = {epoch_key(number).name for number in range(EXPIRED)}
    gone |= {sealed_segment_key(upper(number)).name for number in range(EXPIRED)}
    assert before - await stream.keys() == gone
    await audit(stream.controller, stream.parts.access)


async def expired(stream: LongStream) -> None:
    await stream.truncate(cut_at(LAST, 1))
    await stream.sweep(days=1)
    assert (await stream.history()).removed_till == EXPIRED


async def test_what_lies_before_the_oldest_epoch_is_truncated_and_not_unknown(stream: LongStream) -> None:
    await expired(stream)
    api = stream.api
    for number in (0, EXPIRED - 1):
        gone = pb.SegmentId(streamInfo=INFO, segmentId=upper(number))
        # Not an empty answer, which says that the stream ends here.
        assert await refusal(api.getSegmentsImmediatelyFollowing(gone, None)) == ("NOT_FOUND", EpochTruncated)
        epoch = pb.GetEpochSegmentsRequest(streamInfo=INFO, epoch=number)
        assert await refusal(api.getEpochSegments(epoch, None)) == ("NOT_FOUND", EpochTruncated)
        cut = pb.StreamCut(streamInfo=INFO, cut=cut_at(number))
        assert await refusal(api.isStreamCutValid(cut, None)) == ("INVALID_ARGUMENT", CutTruncated)
        between = pb.StreamCutRange(streamInfo=INFO, to=cut_at(LAST))
        getattr(between, "from").update(cut_at(number))
        assert await refusal(api.getSegmentsBetween(between, None)) == ("INVALID_ARGUMENT", CutTruncated)
        assert (await api.truncateStream(cut, None)).status == pb.UpdateStreamStatus.FAILURE
        assert not (await api.isSegmentValid(gone, None)).response
    never = pb.GetEpochSegmentsRequest(streamInfo=INFO, epoch=LAST + 1)
    assert await refusal(api.getEpochSegments(never, None)) == ("NOT_FOUND", NotFound)
    unknown = pb.StreamCut(streamInfo=INFO, cut={LOWER: 0, segment_id(99, LAST): 0})
    assert await refusal(api.isStreamCutValid(unknown, None)) == ("INVALID_ARGUMENT", InvalidArgument)


async def test_what_is_left_is_answered_as_before(stream: LongStream) -> None:
    await expired(stream)
    api = stream.api
    for number in range(EXPIRED, LAST):
        segment = pb.SegmentId(streamInfo=INFO, segmentId=upper(number))
        [follower] = (await api.getSegmentsImmediatelyFollowing(segment, None)).segments
        assert (follower.segment.segmentId.segmentId, list(follower.value)) == (upper(number + 1), [upper(number)])
        cut = pb.StreamCut(streamInfo=INFO, cut=cut_at(number))
        assert (await api.isStreamCutValid(cut, None)).response
        assert (await api.truncateStream(cut, None)).status == pb.UpdateStreamStatus.FAILURE
    # An open segment has no successors, however old it is.
    for identifier in (LOWER, upper(LAST)):
        segment = pb.SegmentId(streamInfo=INFO, segmentId=identifier)
        assert not (await api.getSegmentsImmediatelyFollowing(segment, None)).segments
    head = await api.getSegments(pb.GetSegmentsRequest(streamInfo=INFO), None)
    assert {item.segmentId.segmentId: item.offset for item in head.segments} == cut_at(LAST, 1)
    everything = await api.getSegmentsBetween(pb.StreamCutRange(streamInfo=INFO, to=cut_at(LAST)), None)
    found = sorted(item.segmentId for item in everything.segments)
    assert found == sorted([LOWER, *map(upper, range(EXPIRED, LAST + 1))])


async def test_scaling_events_begin_with_the_oldest_epoch(stream: LongStream) -> None:
    await expired(stream)
    assert stream.controller.rest is not None
    url = f"http://127.0.0.1:{stream.controller.rest.port}/v1/scopes/{S}/streams/{T}/scaling-events"
    span = {"from": "0", "to": str(stream.clock.now_ms)}
    async with aiohttp.ClientSession() as session, session.get(url, params=span) as answer:
        assert answer.status == 200
        events = json.loads(await answer.text())
    assert len(events) == LAST + 1 - EXPIRED
    newest = [max(segment["epoch"] for segment in event["segments"]) for event in events]
    assert newest == list(range(EXPIRED, LAST + 1))


async def test_it_is_truncated_again_scaled_and_deleted(stream: LongStream) -> None:
    await expired(stream)
    for _ in range(3):
        await stream.scale()
    await stream.truncate(cut_at(LAST + 3, 2))
    record: TruncationRecord = await (await stream.context()).truncation()
    assert record.size_till == LAST + 3 + 3 * (LAST + 3) + 2
    await stream.sweep(days=1)
    assert (await stream.history()).removed_till == EXPIRED + 3
    await audit(stream.controller, stream.parts.access)
    workflows = stream.controller.parts.workflows
    await workflows.seal.seal("seal", S, T)
    await workflows.delete.delete("delete", S, T)
    assert [name for name in stream.parts.access.segments if name.startswith(f"{S}/{T}/")] == []


async def test_an_open_transaction_keeps_its_epoch(stream: LongStream) -> None:
    transactions = stream.controller.transactions
    created = await transactions.create(S, T, 600_000)
    for _ in range(epochs_before_head_max + 2):
        await stream.scale()
    await stream.truncate(cut_at(LAST + epochs_before_head_max + 2))
    await stream.sweep(days=1)
    assert await stream.history() == HistoryRecord(LAST, LAST, LAST + 2, stream.clock.now_ms - DAY_MS)
    assert await transactions.commit(S, T, created.id)
    while await transactions.records.lowest_epoch(S, T) is not None or not await stream.is_idle():
        await stream.clock.sleep(0.001)
    assert (await (await stream.context()).current_epoch()).epoch == LAST + epochs_before_head_max + 4
    await audit(stream.controller, stream.parts.access)


async def test_a_transaction_that_comes_too_late_is_refused_and_leaves_nothing(
    stream: LongStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its creator read the current epoch, and stood still until that one had expired."""
    transactions = stream.controller.transactions
    insert = transactions.records.insert

    async def late(*args: Any) -> int:
        for _ in range(epochs_before_head_max + 2):
            await stream.scale()
        await stream.truncate(cut_at(LAST + epochs_before_head_max + 2))
        await stream.sweep(days=1)
        return await insert(*args)

    monkeypatch.setattr(transactions.records, "insert", late)
    assert await refusal(transactions.create(S, T, 600_000)) == ("INTERNAL", IllegalState)
    while await transactions.records.lowest_epoch(S, T) is not None:
        await stream.clock.sleep(0.001)
    assert not any(map(is_transaction_segment, stream.parts.access.segments))
    await audit(stream.controller, stream.parts.access)


async def test_retention_and_subscribers_behind_the_oldest_epoch_go_on_from_the_head(stream: LongStream) -> None:
    store, workflows = stream.controller.store, stream.controller.parts.workflows
    policy = StreamConfiguration(ScalingPolicy.fixed(2), RetentionPolicy(RetentionType.SIZE, 1, 10_000))
    early = {LOWER: 0, upper(1): 0}
    record = SubscribersRecord({"slow": SubscriberRecord("slow", GROUP_ID, 0, early)})
    await store.update(S, T, lambda context: context.put(SUBSCRIBERS, record))
    await workflows.update.update("update", S, T, policy)
    for days in (0, 1, 1):
        await stream.sweep(days=days)
    before = await stream.references()
    assert before
    for _ in range(epochs_before_head_max + 2):
        await stream.scale()
    last = LAST + epochs_before_head_max + 2
    await workflows.update.update("no retention", S, T, StreamConfiguration(ScalingPolicy.fixed(2)))
    await stream.truncate(cut_at(last, 1))
    await stream.sweep(days=1)
    assert (await stream.history()).oldest_epoch == LAST + 2
    assert await stream.references() == before
    await workflows.update.update("retention again", S, T, policy)
    context = await stream.context()
    await stream.controller.retention._steps[0](context)
    references = await stream.references()
    assert not set(references) & set(before)
    head: TruncationRecord = await (await stream.context()).truncation()
    tail = {LOWER: 1_000, upper(last): 3}
    assert references == [(stream.clock.now_ms, head.size_till + sum(tail.values()) - sum(cut_at(last, 1).values()))]
    status = pb.UpdateSubscriberStatus
    request = pb.SubscriberStreamCut(
        subscriber="slow", readerGroupId=GROUP_ID, streamCut=pb.StreamCut(streamInfo=INFO, cut=cut_at(last, 2))
    )
    assert (await stream.api.updateSubscriberStreamCut(request, None)).status == status.SUCCESS
    request.streamCut.cut.clear()
    request.streamCut.cut.update(early)
    assert (await stream.api.updateSubscriberStreamCut(request, None)).status == status.STREAM_CUT_NOT_VALID


async def test_runs_look_at_a_truncated_stream_until_it_has_nothing_to_lose(stream: LongStream) -> None:
    """The index has no stream without a policy but for that."""
    retained = stream.controller.store.retained

    async def indexed() -> list[str]:
        return [name async for page in retained.pages() for _, name, *_ in page]

    assert await indexed() == []
    await stream.truncate(cut_at(epochs_before_head_max))
    assert await indexed() == []
    await stream.truncate(cut_at(LAST))
    for days, expected in ((0, [T]), (1, [T]), (0, [])):
        await stream.sweep(days=days)
        assert await indexed() == expected
    assert (await stream.history()).removed_till == EXPIRED


async def test_a_truncation_that_was_completed_and_cut_off_is_looked_at(stream: LongStream) -> None:
    retained = stream.controller.store.retained
    await stream.truncate(cut_at(LAST))
    ((_, _, _, version),) = [entry async for page in retained.pages() for entry in page]
    await retained.remove(S, T, version)
    await stream.truncate(cut_at(LAST))  # Its request is carried out again.
    assert [entry[1] async for page in retained.pages() for entry in page] == [T]


async def test_a_cut_before_segments_not_reached_is_valid_after_an_expiry(stream: LongStream) -> None:
    """It names a segment that is older than the oldest epoch on record."""
    await stream.truncate(cut_at(LAST))
    await stream.sweep(days=1)
    another = stream.parts.controller()  # It has no epoch in memory.
    api = ControllerServiceApi(another.parts, another.transactions)
    cut = pb.StreamCut(streamInfo=INFO, cut=cut_at(LAST, -1))
    assert (await api.isStreamCutValid(cut, None)).response


class CutTables:
    """Ends a run when the tables are used for the n-th time, before or after the effect."""

    def __init__(self, inner: VersionedStore, cut_at: int, after_effect: bool) -> None:
        self._inner, self._after_effect = inner, after_effect
        self.left = cut_at

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0 and not self._after_effect:
                raise CutOff
            result = await method(*args, **kwargs)
            if self.left == 0:
                raise CutOff
            return result

        return counted


class CutOff(BaseException):
    """The end of a controller, as far as a test can."""


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_run_that_ends_at_any_operation_is_made_good_by_the_next(
    stream: LongStream, after_effect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pages of two epochs, so that a run has many."""
    monkeypatch.setattr(history_expiry, "epochs_per_read_max", 3)
    await stream.truncate(cut_at(LAST))
    stream.clock.now_ms += DAY_MS
    tables = stream.parts.tables
    assert isinstance(tables, InMemoryVersionedStore)
    table = (await stream.context()).metadata_table
    before = dict(tables._tables[table])
    transactions = stream.controller.transactions.records
    outcomes = []
    for operation in range(1, 100):
        tables._tables[table] = dict(before)
        cut = CutTables(tables, operation, after_effect)
        streams = StreamStore(cut, stream.clock, lambda: "id")
        try:
            await HistoryExpiry(streams, transactions, DAY_MS).apply(S, T)
        except CutOff:
            await stream.sweep()
        outcomes.append((await stream.keys(), await stream.history()))
        await audit(stream.controller, stream.parts.access)
        if cut.left > 0:
            break
    else:
        raise AssertionError("a run without an end")
    assert len(outcomes) > 10
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert outcomes[0][1].removed_till == EXPIRED


async def test_a_reader_group_of_before_goes_on_at_the_head(stream: LongStream) -> None:
    """It has what it holds of the head, and of what follows that, and the rest of the head in place of what is gone."""
    await expired(stream)
    for _ in range(2):
        await stream.scale()

    async def place(*held: int) -> tuple[list[str], dict[str, int]]:
        segments = [segment_name(S, T, number) for number in held]
        state = GroupState(GroupConfiguration({(S, T): HEAD}), unassigned=dict.fromkeys(segments, 500))
        found = await find_place(OwnStreams(stream.controller.store), state, (S, T))
        return sorted(found.gone), dict(found.starts)

    head = {segment_name(S, T, upper(LAST)): 1}
    gone = segment_name(S, T, upper(0))
    assert await place(LOWER, upper(0)) == ([gone], head)
    assert await place(upper(0)) == ([gone], {segment_name(S, T, LOWER): LAST, **head})
    for epoch in range(LAST, LAST + 3):
        assert await place(LOWER, upper(epoch)) == ([], {})
    await stream.controller.parts.workflows.seal.seal("seal", S, T)
    await stream.controller.parts.workflows.delete.delete("delete", S, T)
    assert await place(LOWER, upper(0)) == (sorted([segment_name(S, T, LOWER), gone]), {})
