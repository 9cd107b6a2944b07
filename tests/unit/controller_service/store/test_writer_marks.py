"""Marks of writers: one key each, bounded in number and size, and no reason for a commit to fail."""

from __future__ import annotations

import pytest

from controller_service.service import Controller
from controller_service.store.records import WRITER_MARKS, WriterMark, WriterMarksRecord
from controller_service.store.serializer import decode
from controller_service.store.stream_context import StreamContext
from controller_service.store.writer_marks import NoteOutcome, WriterMarks, mark_life_default_ms, writer_bytes_max
from controller_service.transactions.commit_marks import CommitMarks
from controller_service.transactions.records import CommittingTransaction
from pravega_common.errors import InvalidArgument, SegmentNotFound, StreamNotFound, Unavailable
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segments_per_stream_max
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.clock import ShiftedClock

S, T = "scope", "stream"
value_bytes_max = 1_048_576 - 8_192


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
def parts(clock: ShiftedClock) -> ControllerParts:
    return ControllerParts(clock=clock)


@pytest.fixture
async def marks(controller: Controller) -> WriterMarks:
    await controller.store.create_scope(S)
    configuration = StreamConfiguration(ScalingPolicy.fixed(1), timestamp_aggregation_timeout_ms=60_000)
    assert await controller.parts.workflows.create.create(S, T, configuration)
    return controller.marks


async def table_of(controller: Controller) -> str:
    return (await controller.store.open(S, T)).marks_table


async def test_every_writer_has_a_key_of_its_own(
    marks: WriterMarks, controller: Controller, parts: ControllerParts
) -> None:
    position = {segment << 32 | segment: 1 << 62 for segment in range(segments_per_stream_max)}
    for writer in range(5):
        assert await marks.note(S, T, f"w{writer}", position, 10) is NoteOutcome.NOTED
    page = await parts.tables.scan(await table_of(controller))
    assert [writer for writer, _ in page.entries] == [f"w{writer}" for writer in range(5)]
    assert max(len(found.value) for _, found in page.entries) <= value_bytes_max
    page = await parts.tables.scan((await controller.store.open(S, T)).metadata_table, count_max=1_000)
    assert max(len(found.value) for _, found in page.entries) < 10_000


async def test_neither_time_nor_position_goes_back(marks: WriterMarks) -> None:
    assert await marks.note(S, T, "w", {0: 10}, 10) is NoteOutcome.NOTED
    assert await marks.note(S, T, "w", {0: 10}, 9) is NoteOutcome.INVALID_TIME
    assert await marks.note(S, T, "w", {0: 9}, 10) is NoteOutcome.INVALID_POSITION
    assert await marks.note(S, T, "other", {0: 9}, 9) is NoteOutcome.NOTED
    assert await marks.remove(S, T, "w") and await marks.remove(S, T, "w")
    mark = await marks.get(S, T, "w")
    assert mark is not None and not mark.is_alive
    assert not await marks.remove(S, T, "none") and not await marks.remove(S, "none", "w")
    with pytest.raises(StreamNotFound):
        await marks.note(S, "none", "w", {0: 9}, 9)


@pytest.mark.parametrize("writer", ["", "w" * (writer_bytes_max + 1)])
async def test_names_that_are_no_keys_are_refused(marks: WriterMarks, writer: str) -> None:
    with pytest.raises(InvalidArgument, match="bytes"):
        await marks.note(S, T, writer, {0: 1}, 1)
    assert not await marks.remove(S, T, writer)


async def test_a_position_that_no_record_holds_is_refused(marks: WriterMarks) -> None:
    with pytest.raises(InvalidArgument, match="at most"):
        await marks.note(S, T, "w", dict.fromkeys(range(segments_per_stream_max + 1), 0), 1)


async def test_marks_expire_after_the_timeout_of_the_stream(
    marks: WriterMarks, clock: ShiftedClock, controller: Controller, parts: ControllerParts
) -> None:
    for writer in range(500):
        clock.now_ms += mark_life_default_ms // 60
        assert await marks.note(S, T, f"w{writer}", {0: 10}, 10) is NoteOutcome.NOTED
        page = await parts.tables.scan(await table_of(controller), count_max=1_000)
        assert len(page.entries) <= 75, "60 are younger than a day"
    assert await marks.get(S, T, "w0") is None and not await marks.remove(S, T, "w0")
    assert await marks.note(S, T, "w499", {0: 5}, 5) is NoteOutcome.INVALID_TIME
    clock.now_ms += 60_001
    assert await marks.note(S, T, "w499", {0: 5}, 5) is NoteOutcome.NOTED


async def test_marks_of_one_record_are_moved_at_first_use(
    marks: WriterMarks, controller: Controller, parts: ControllerParts
) -> None:
    stored = b'{"_v":1,"marks":{"v":{"timestamp":3,"position":{"0":4},"is_alive":false},'
    stored += b'"w":{"timestamp":5,"position":{"0":6},"is_alive":true}}}'
    old = decode(WriterMarksRecord, stored)
    assert old.marks == {"v": WriterMark(3, {0: 4}, is_alive=False), "w": WriterMark(5, {0: 6})}

    async def change(context: StreamContext) -> None:
        await context.put(WRITER_MARKS, old)

    await controller.store.update(S, T, change)
    assert await marks.note(S, T, "w", {0: 6}, 4) is NoteOutcome.INVALID_TIME
    mark = await marks.get(S, T, "v")
    assert mark is not None and (mark.timestamp, mark.position, mark.is_alive) == (3, {0: 4}, False)
    context = await controller.store.open(S, T)
    assert await parts.tables.get(context.metadata_table, WRITER_MARKS.name) is None


async def test_a_deleted_stream_leaves_no_marks(
    marks: WriterMarks, controller: Controller, parts: ControllerParts
) -> None:
    await marks.note(S, T, "w", {0: 1}, 1)
    table = await table_of(controller)
    await controller.parts.workflows.seal.seal("1", S, T)
    await controller.parts.workflows.delete.delete("2", S, T)
    with pytest.raises(SegmentNotFound):
        await parts.tables.get(table, "w")


async def test_a_mark_that_fails_fails_no_commit(marks: WriterMarks, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: object) -> NoteOutcome:
        raise Unavailable("the table's store is away")

    listener = CommitMarks(marks)
    transaction = CommittingTransaction("00000000-0000-0000-0000-000000000001", "w" * 2_000, 5)
    await listener.committed(S, T, transaction, {0: 1})
    monkeypatch.setattr(marks, "note", broken)
    await listener.committed(S, T, transaction, {0: 1})


def test_a_stream_without_a_timeout_keeps_marks_for_a_day() -> None:
    assert mark_life_default_ms == 86_400_000
