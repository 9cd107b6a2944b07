"""Watermarks on controllers in memory: what is written when, by one instance and by two, and what ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from controller_service.buckets.spread import bucket_of, buckets_of
from controller_service.service import Controller
from controller_service.store.marked_streams import MARKED_STREAMS_TABLE
from controller_service.store.records import StreamState
from controller_service.store.writer_marks import NoteOutcome
from controller_service.watermarks.mark_segment import APPENDED, MARKED, MarkSegments
from controller_service.watermarks.stream_watermarks import MARK_STREAM_CREATED
from controller_service.watermarks.watermark import SegmentPosition, Watermark, decode_watermark
from controller_service.watermarks.watermark_job import WatermarkJob
from pravega_common.errors import SegmentNotFound, StreamNotFound, Unavailable, UnknownOutcome
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import mark_stream, segment_id, segment_name
from pravega_common.runtime.failpoints import arm, disarm_all
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock, ShiftedClock
from tests.support.fakes.revisioned_segments import InMemoryRevisionedSegments

S, T = "scope", "stream"
TIMEOUT_MS = 30_000


class Crash(BaseException):
    """Ends a run, as far as a test can."""


class WatermarkWorld:
    def __init__(self, controller: Controller, other: Controller, parts: ControllerParts, clock: ShiftedClock) -> None:
        self.controller, self.other, self.parts, self.clock = controller, other, parts, clock
        self.create = controller.parts.workflows.create

    async def note(self, writer: str, time: int, position: dict[int, int], stream: str = T) -> None:
        assert await self.controller.marks.note(S, stream, writer, position, time) is NoteOutcome.NOTED

    async def advance(self, stream: str = T, controller: Controller | None = None) -> bool:
        return await job_of(controller or self.controller)._advance(S, stream)

    async def run(self, seconds: int = 10) -> None:
        """A run of both instances, so long after the last."""
        self.clock.now_ms += seconds * 1_000
        await asyncio.gather(job_of(self.controller).run_once(), job_of(self.other).run_once())

    async def written(self, stream: str = T) -> list[Watermark]:
        """Everything in the mark stream, from its start."""
        revisions = self.parts.revisions
        assert revisions is not None
        segment = segment_name(S, mark_stream(stream), 0)
        info = await self.parts.access.info(segment)
        found, offset = [], info.start_offset
        while offset < info.length:
            head = await revisions.read(segment, offset, 8)
            length = int.from_bytes(head[4:])
            found.append(decode_watermark(await revisions.read(segment, offset + 8, length)))
            offset += 8 + length
        return found

    async def times(self, stream: str = T) -> list[tuple[int, int]]:
        return [(item.lower_time, item.upper_time) for item in await self.written(stream)]

    async def indexed(self) -> list[str]:
        try:
            page = await self.parts.tables.scan(MARKED_STREAMS_TABLE)
        except SegmentNotFound:
            return []
        return [name for name, _ in page.entries]


def job_of(controller: Controller) -> WatermarkJob:
    assert controller.watermarks is not None
    return controller.watermarks


def in_first(offset: int) -> tuple[SegmentPosition, ...]:
    """A position in a stream of one segment."""
    return (SegmentPosition(0, 0.0, 1.0, offset),)


@pytest.fixture
async def world() -> AsyncIterator[WatermarkWorld]:
    clock = ShiftedClock()
    parts = ControllerParts(clock=clock)
    parts.revisions = InMemoryRevisionedSegments(parts.access, wall_ms=clock.wall_ms)
    one, other = controllers = parts.controller(id="a"), parts.controller(id="b")
    for controller in controllers:
        await controller.start()
    await one.store.create_scope(S)
    world = WatermarkWorld(one, other, parts, clock)
    await world.create.create(S, T, configuration())
    yield world
    disarm_all()
    for controller in controllers:
        await controller.stop()


def configuration(timeout_ms: int = TIMEOUT_MS, segments: int = 1) -> StreamConfiguration:
    return StreamConfiguration(ScalingPolicy.fixed(segments), timestamp_aggregation_timeout_ms=timeout_ms)


async def test_watermarks_rise_with_the_slowest_writer(world: WatermarkWorld) -> None:
    await world.note("a", 100, {0: 10})
    await world.note("b", 300, {0: 30})
    await world.run(1)
    await world.run(1)
    assert await world.written() == [Watermark(100, 300, in_first(30))]
    await world.note("b", 400, {0: 40})
    await world.run(1)
    assert len(await world.written()) == 1
    await world.note("a", 200, {0: 35})
    await world.run(1)
    assert await world.written() == [Watermark(100, 300, in_first(30)), Watermark(200, 400, in_first(40))]


async def test_the_age_of_a_watermark_and_the_writer_that_holds_it_up(world: WatermarkWorld) -> None:
    def ages() -> list[tuple[object, ...]]:
        both = (world.controller, world.other)
        return [tuple(age) for controller in both for age in controller.watermark_ages.ages()]

    await world.note("a", 100, {0: 10})
    await world.note("b", 100, {0: 10})
    await world.run(1)
    assert ages() == [("scope/stream", 0.0, False)]
    await world.run(5)
    assert ages() == [("scope/stream", 5.0, False)], "nobody went on: no writer holds the others up"
    await world.note("b", 400, {0: 40})
    await world.run(5)
    assert ages() == [("scope/stream", 10.0, True)]
    await world.note("a", 300, {0: 40})
    await world.run(1)
    assert ages() == [("scope/stream", 0.0, False)]
    newest = world.controller.window_parts().newest_watermark
    assert newest is not None
    found = await newest(S, T)
    assert found is not None
    assert (found.lower_time, found.upper_time, found.written_ms) == (300, 400, world.clock.now_ms)
    assert await newest(S, "nothing") is None
    for writer in ("a", "b"):
        assert await world.controller.marks.remove(S, T, writer)
    for _ in range(2):  # of b, which went on, there is one more watermark
        await world.run(1)
    assert ages() == [], "nobody notes time any more"


async def test_a_silent_writer_times_out_and_its_mark_goes(world: WatermarkWorld) -> None:
    await world.note("silent", 100, {0: 10})
    for second in range(10, 60, 10):
        await world.note("b", 100 + second, {0: 10 + second})
        await world.run()
    assert await world.times() == [(100, 110), (130, 130), (140, 140), (150, 150)]
    assert await world.controller.marks.get(S, T, "silent") is None


async def test_a_writer_that_reported_by_a_clock_that_was_ahead_does_not_hold_up_the_others(
    world: WatermarkWorld,
) -> None:
    """For as long as that was: what lies a day ahead and more is no time of a report."""
    year_s = 365 * 24 * 3600
    world.clock.now_ms += year_s * 1_000
    await world.note("gone", 100, {0: 5})
    await world.note("alive", 100, {0: 5})
    await world.run(-year_s)
    await world.note("alive", 200, {0: 10})
    await world.run(TIMEOUT_MS // 1_000)
    await world.note("alive", 300, {0: 15})
    await world.run()
    assert await world.times() == [(200, 200), (300, 300)]
    assert await world.indexed() == [f"{S}/{T}"]


async def test_a_silent_writer_that_is_ahead_counts_also_when_others_come(world: WatermarkWorld) -> None:
    await world.note("slow", 100, {0: 10})
    await world.run(1)
    await world.note("ahead", 300, {0: 90})
    for _ in range(4):
        await world.run()
        await world.note("slow", 100, {0: 10})
    # The mark of "ahead" is older than the timeout, and no watermark had its events.
    await world.note("new", 400, {0: 50})
    await world.note("slow", 350, {0: 60})
    await world.run(1)
    assert await world.written() == [Watermark(100, 100, in_first(10)), Watermark(300, 400, in_first(90))]
    await world.run(1)
    assert {writer async for writer, _, _ in world.controller.marks.all_of(S, T)} == {"new", "slow"}


async def test_a_writer_that_says_goodbye_holds_nobody_up(world: WatermarkWorld) -> None:
    await world.note("gone", 100, {0: 10})
    await world.note("b", 120, {0: 20})
    await world.run()
    await world.note("b", 130, {0: 30})
    assert await world.controller.marks.remove(S, T, "gone")
    await world.run()
    assert await world.times() == [(100, 120), (130, 130)]


async def test_only_streams_with_marks_are_looked_at_until_these_end(world: WatermarkWorld) -> None:
    for name in ("s1", "s2"):
        await world.create.create(S, name, configuration())
    assert await world.indexed() == []
    await world.note("a", 100, {0: 10})
    await world.note("a", 100, {0: 10}, "s1")
    assert sorted(await world.indexed()) == ["scope/s1", "scope/stream"]
    await world.run()
    await world.note("a", 200, {0: 10})
    await world.run(31)
    assert await world.indexed() == ["scope/stream"]
    await world.run(31)
    assert await world.indexed() == []
    await world.note("a", 300, {0: 10})
    await world.run()
    assert await world.times() == [(100, 100), (200, 200), (300, 300)]


async def test_a_deleted_stream_leaves_the_index(world: WatermarkWorld) -> None:
    await world.note("a", 100, {0: 10})
    await world.controller.parts.workflows.seal.seal("x", S, T)
    await world.controller.parts.workflows.delete.delete("y", S, T)
    await world.run()
    assert await world.indexed() == []
    await world.create.create(S, T, configuration())
    await world.note("a", 50, {segment_id(1, 0): 1})
    await world.run()
    assert await world.indexed() == ["scope/stream"]


async def test_a_report_while_the_index_is_cleared_is_not_lost(world: WatermarkWorld) -> None:
    """The job finds no marks; before it takes the entry out, a new writer comes."""
    await world.note("a", 100, {0: 10})
    await world.run()
    world.clock.now_ms += TIMEOUT_MS + 1
    advance = job_of(world.controller)._advance

    async def overtaken(scope: str, stream: str) -> bool:
        has_marks = await advance(scope, stream)
        await world.note("new", 200, {0: 20})
        return has_marks

    for controller in (world.controller, world.other):
        job_of(controller)._advance = overtaken
    await world.run()
    assert await world.indexed() == ["scope/stream"]


async def test_a_stream_whose_entry_was_lost_comes_back_with_the_next_report(world: WatermarkWorld) -> None:
    await world.note("a", 100, {0: 10})
    await world.parts.tables.remove(MARKED_STREAMS_TABLE, "scope/stream")
    assert await world.other.marks.note(S, T, "a", {0: 11}, 101) is NoteOutcome.NOTED
    assert await world.indexed() == ["scope/stream"]


async def test_a_new_mark_whose_answer_was_lost_is_in_the_index(
    world: WatermarkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repetition finds a mark, its own; the instance remembers an entry that another one took out."""
    await world.note("a", 100, {0: 10})
    await world.parts.tables.remove(MARKED_STREAMS_TABLE, "scope/stream")
    put, lost = world.parts.tables.put, False

    async def put_and_lose(table: str, key: str, value: bytes, expected: int) -> int:
        nonlocal lost
        version = await put(table, key, value, expected)
        if key == "new" and not lost:
            lost = True
            raise UnknownOutcome("the answer was lost")
        return version

    monkeypatch.setattr(world.parts.tables, "put", put_and_lose)
    await world.note("new", 100, {0: 10})
    assert lost
    assert await world.indexed() == ["scope/stream"]


async def test_two_instances_write_one_watermark(world: WatermarkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have read the end of the segment before one of them appends."""
    revisions, both = world.parts.revisions, asyncio.Barrier(2)
    assert revisions is not None
    mark = revisions.mark

    async def mark_together(segment: str) -> int | None:
        found = await mark(segment)
        await both.wait()
        return found

    monkeypatch.setattr(revisions, "mark", mark_together)
    for time in range(1, 20):
        await world.note("a", time, {0: time})
        await asyncio.gather(*(world.advance(controller=item) for item in (world.controller, world.other)))
    monkeypatch.undo()
    assert await world.times() == [(time, time) for time in range(1, 20)]


async def test_the_streams_are_shared_by_the_living(world: WatermarkWorld) -> None:
    live = {world.controller.member_id, world.other.member_id}
    names = [f"s{number}" for number in range(20)]
    for name in names:
        await world.create.create(S, name, configuration())
        await world.note("a", 100, {0: 1}, name)
    await job_of(world.controller).run_once()
    mine = buckets_of(world.controller.member_id, live)
    done = [name for name in names if await world.times(name)]
    assert done == [name for name in names if bucket_of(S, name) in mine]
    assert 0 < len(done) < len(names)
    await job_of(world.other).run_once()
    assert all([await world.times(name) == [(100, 100)] for name in names])


async def test_a_stream_that_fails_stops_no_other(world: WatermarkWorld) -> None:
    await world.create.create(S, "lost", configuration())
    await world.note("a", 100, {0: 1}, "lost")
    await world.note("a", 100, {0: 1})
    del world.parts.access.segments[segment_name(S, mark_stream("lost"), 0)]
    await world.run()
    assert await world.times() == [(100, 100)]
    assert sorted(await world.indexed()) == ["scope/lost", "scope/stream"]


async def test_a_watermark_of_another_stream_stops_its_own_stream_alone(world: WatermarkWorld) -> None:
    """As a copy of a scope's streams into another one leaves it: well-formed, but its segments are not the stream's."""
    await world.create.create(S, "copied", configuration())
    segment = segment_name(S, mark_stream("copied"), 0)
    foreign = Watermark(1, 1, (SegmentPosition(7, 0.0, 0.5, 0),))
    segments = segments_of(world)
    assert await segments.append(segment, await segments.end_of(segment), foreign)
    await world.note("a", 100, {0: 1}, "copied")
    await world.note("a", 100, {0: 1})
    await world.run()
    assert await world.times() == [(100, 100)]
    assert await world.written("copied") == [foreign]
    assert sorted(await world.indexed()) == ["scope/copied", "scope/stream"]


async def test_positions_follow_a_scale(world: WatermarkWorld) -> None:
    await world.note("a", 100, {0: 10})
    await world.run()
    await world.controller.parts.workflows.scale.start(S, T, [0], [(0.0, 0.5), (0.5, 1.0)])

    async def is_scaled() -> bool:
        context = await world.controller.store.open(S, T)
        return (await context.current_epoch()).epoch == 1 and await context.state() is StreamState.ACTIVE

    await eventually(is_scaled)
    low, high = segment_id(1, 1), segment_id(2, 1)
    await world.note("slow", 110, {0: 40})
    await world.note("a", 120, {low: 5})
    await world.run()
    assert (await world.written())[1:] == [
        Watermark(110, 120, (SegmentPosition(low, 0.0, 0.5, 5), SegmentPosition(high, 0.5, 1.0, 0)))
    ]


async def test_segments_that_the_stream_never_had_are_passed_over(world: WatermarkWorld) -> None:
    await world.note("a", 100, {0: 10, 7: 5, segment_id(1, 9): 3})
    await world.note("empty", 90, {})
    await world.run()
    assert await world.written() == [Watermark(90, 100, in_first(10))]


async def test_without_any_position_nothing_is_written(world: WatermarkWorld) -> None:
    await world.note("a", 100, {})
    await world.run()
    assert await world.written() == []
    await world.note("a", 100, {0: 4})
    await world.run()
    assert await world.written() == [Watermark(100, 100, in_first(4))]


async def test_a_missing_mark_stream_is_made(world: WatermarkWorld) -> None:
    await lose_mark_stream(world)
    await world.note("a", 100, {0: 10})
    await world.run()
    entry = await world.controller.store.entry(S, mark_stream(T))
    assert entry is not None
    context = await world.controller.store.open(S, mark_stream(T))
    (segment,) = (await context.current_epoch()).names(S, mark_stream(T))
    assert (await world.parts.access.info(segment)).length > 0


async def test_a_mark_stream_that_was_left_half_made_is_completed(
    world: WatermarkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records were written and its segment was not made, as where the store is away or the controller dies."""
    await lose_mark_stream(world)
    await world.note("a", 100, {0: 10})

    async def away(*args: object, **options: object) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patched:
        patched.setattr(world.parts.access, "create_segments", away)
        with pytest.raises(Unavailable):
            await world.advance()
    assert await (await world.other.store.open(S, mark_stream(T))).state() is StreamState.CREATING
    assert await world.advance(controller=world.other)
    context = await world.other.store.open(S, mark_stream(T))
    assert await context.state() is StreamState.ACTIVE
    (segment,) = (await context.current_epoch()).names(S, mark_stream(T))
    assert (await world.parts.access.info(segment)).length > 0


async def test_a_mark_stream_that_a_client_sealed_is_replaced(world: WatermarkWorld) -> None:
    await world.note("a", 100, {0: 10})
    await world.run()
    await world.controller.parts.workflows.seal.seal("x", S, mark_stream(T))
    await world.note("a", 200, {0: 20})
    await world.run()
    context = await world.controller.store.open(S, mark_stream(T))
    assert await context.state() is StreamState.ACTIVE
    (segment,) = (await context.current_epoch()).names(S, mark_stream(T))
    assert (await world.parts.access.info(segment)).length > 0
    # That of a stream which is sealed itself stays, for its readers.
    await world.controller.parts.workflows.seal.seal("y", S, mark_stream(T))
    await world.controller.parts.workflows.seal.seal("z", S, T)
    await world.run()
    assert await (await world.other.store.open(S, mark_stream(T))).state() is StreamState.SEALED


async def test_a_stream_that_goes_meanwhile_leaves_no_mark_stream(world: WatermarkWorld) -> None:
    await lose_mark_stream(world)
    await world.note("a", 100, {0: 10})
    store, create = world.controller.store, world.create
    within = create.create_within

    async def late(scope: str, stream: str, wanted: StreamConfiguration) -> None:
        await world.controller.parts.workflows.seal.seal("x", S, T)
        await world.controller.parts.workflows.delete.delete("y", S, T)
        await within(scope, stream, wanted)

    create.create_within = late  # type: ignore[method-assign, assignment]
    assert not await world.advance()
    assert await store.entry(S, T) is None
    assert await store.entry(S, mark_stream(T)) is None


async def lose_mark_stream(world: WatermarkWorld) -> None:
    entry = await world.controller.store.entry(S, mark_stream(T))
    assert entry is not None
    await world.controller.parts.workflows.delete.carry_out(S, mark_stream(T), entry.stream_id)


@pytest.mark.parametrize("name", [APPENDED, MARKED, MARK_STREAM_CREATED])
async def test_the_next_run_goes_on_after_one_that_died(world: WatermarkWorld, name: str) -> None:
    def die() -> None:
        raise Crash(name)

    if name == MARK_STREAM_CREATED:
        await lose_mark_stream(world)
    await world.note("a", 100, {0: 10})
    arm(name, die)
    with pytest.raises(Crash):
        await world.advance()
    disarm_all()
    for time in (200, 300):
        await world.note("a", time, {0: time})
        assert await world.advance()
        assert await world.advance()
    context = await world.controller.store.open(S, mark_stream(T))
    (segment,) = (await context.current_epoch()).names(S, mark_stream(T))
    assert (await segments_of(world).end_of(segment)).newest == Watermark(300, 300, in_first(300))


def segments_of(world: WatermarkWorld) -> MarkSegments:
    assert world.parts.revisions is not None
    return MarkSegments(world.parts.revisions, world.parts.access)


async def test_old_watermarks_go_at_boundaries(world: WatermarkWorld) -> None:
    assert world.parts.revisions is not None
    segment = segment_name(S, mark_stream(T), 0)
    segments = MarkSegments(world.parts.revisions, world.parts.access, 1_000)
    one = 0
    for time in range(50):
        assert await segments.append(segment, await segments.end_of(segment), Watermark(time, time, in_first(time)))
        info = await world.parts.access.info(segment)
        one = one or info.length
        assert info.length - info.start_offset <= 1_000 + one
    kept = await world.times()
    assert kept[-1] == (49, 49) and len(kept) < 50
    assert (await segments.end_of(segment)).newest == Watermark(49, 49, in_first(49))


async def test_reads_that_end_in_the_middle_of_a_watermark_are_put_together(world: WatermarkWorld) -> None:
    segment = segment_name(S, mark_stream(T), 0)
    revisions = InMemoryRevisionedSegments(world.parts.access, read_max=7)
    segments = MarkSegments(revisions, world.parts.access)
    for time in range(3):
        assert await segments.append(segment, await segments.end_of(segment), Watermark(time, time, in_first(time)))
    assert (await segments.end_of(segment)).newest == Watermark(2, 2, in_first(2))


async def test_the_job_runs_every_period_and_outlives_a_lost_oracle(parts: ControllerParts) -> None:
    clock = ManualClock()
    marks = parts.controller().marks
    await marks.streams.note(S, T, is_new=True)
    await marks.streams.note(S, "gone", is_new=True)
    await marks.streams.note("_system", "own", is_new=True)
    advanced: list[str] = []
    lost = False

    async def live_ids() -> set[str]:
        if lost:
            raise Unavailable("the oracle is away")
        return {"a"}

    async def advance(scope: str, stream: str) -> bool:
        advanced.append(stream)
        if stream == "gone":
            raise StreamNotFound.of(scope, stream)
        return True

    async def run(seconds: float) -> None:
        await clock.advance(seconds)
        for _ in range(100):
            await asyncio.sleep(0)

    job = WatermarkJob(marks.streams, advance, "a", live_ids, clock, 10_000)
    await job.start()
    await run(0)
    await run(9.9)
    assert advanced == []
    await run(0.1)
    assert sorted(advanced) == ["gone", T]
    lost = True
    await run(10)
    lost = False
    await run(10)
    assert sorted(advanced) == ["gone", T, T]
    await job.stop()
