"""Deletions that race with the calls that make segments: nothing of a deleted stream stays, nothing in use goes."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from controller_service.queue.request_queue import Postpone, Request
from controller_service.segment_access.second_deletion import (
    SecondDeletion,
    creation_ms_max,
    requests_waiting_max,
    segments_per_request_max,
)
from controller_service.store.records import StreamState
from pravega_common.errors import (
    ScopeNotFound,
    SegmentNotFound,
    StreamNotFound,
    StreamNotSealed,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.names import mark_stream
from tests.support.gate import Gate
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.transaction_world import WORKING, Instance
from tests.support.workflow_steps import TWO, S, Scene, scene_of_two


async def settled(scene: Scene) -> None:
    """Long after: records and segments agree, and nothing waits."""
    await scene.world.clock.pass_time(200)
    await audit_streams(scene.world.streams, scene.world.segments)
    assert scene.world.segments.transaction_segments() == []
    assert await requests_left(scene.world.store) == 0
    await scene.world.close()


async def test_a_stream_that_was_completed_since_its_deletion_was_asked_for_is_not_deleted() -> None:
    """The one that asks sees a half-made stream; until its request is carried out the stream is in use."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    creation, deletion = Gate(world), Gate(world)
    creation.at(world.segments, "create_segments", f"'{S}/stream/")
    deletion.at(second.queue, "submit", "delete_stream")
    created = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await creation.come()
    deleted = asyncio.ensure_future(second.delete.delete("delete", S, "stream"))
    await deletion.come()
    creation.opened.set()
    assert await world.run(created)
    begun = await world.run(first.transactions.create(S, "stream", 60_000))
    world.write(S, "stream", begun, "event")
    deletion.opened.set()
    with pytest.raises(StreamNotSealed):
        await world.run(deleted)
    assert await world.run(first.transactions.commit(S, "stream", begun.id))
    assert await scene.state("stream") is StreamState.ACTIVE
    assert await world.streams.entry(S, mark_stream("stream")) is not None
    await world.clock.pass_time(10)
    assert await world.readable(S, "stream") == ["event"] * 2
    await settled(scene)


async def test_a_transaction_that_is_recorded_after_the_last_look_of_the_sealing_ends_before_the_stream() -> None:
    """Its creator made the segments, and dies before it could abort what the sealing had missed."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    insertion, creation, abort = Gate(world), Gate(world), Gate(world)
    insertion.at(first.transactions.records, "insert")
    creation.at(world.segments, "create_segments", "transaction")
    abort.at(first.transactions, "abort")
    begun = asyncio.ensure_future(first.transactions.create(S, "stream", 60_000))
    await insertion.come()
    looked = Gate(world)
    looked.at(world.segments, "seal_segments")
    sealed = asyncio.ensure_future(second.seal.seal("seal", S, "stream"))
    await looked.come()
    insertion.opened.set()
    await creation.come()
    looked.opened.set()
    await world.run(sealed)
    creation.opened.set()
    await abort.come()
    assert len(world.segments.transaction_segments()) == 2
    await world.run(second.delete.delete("delete", S, "stream"))
    begun.cancel()
    assert world.segments.transaction_segments() == []
    await settled(scene)


async def test_a_transaction_that_is_recorded_after_the_last_look_of_the_deletion_has_no_segments() -> None:
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    insertion, tables = Gate(world), Gate(world)
    insertion.at(first.transactions.records, "insert")
    begun = asyncio.ensure_future(first.transactions.create(S, "stream", 60_000))
    await insertion.come()
    await world.run(second.seal.seal("seal", S, "stream"))
    tables.at(second.streams, "remove_stream", "'stream'")
    deleted = asyncio.ensure_future(second.delete.delete("delete", S, "stream"))
    await tables.come()
    insertion.opened.set()
    await world.run(asyncio.wait({begun}))
    assert isinstance(begun.exception(), StreamNotFound)
    assert world.segments.transaction_segments() == []
    tables.opened.set()
    await world.run(deleted)
    await settled(scene)


async def test_the_end_of_a_streams_transactions_leaves_those_of_its_successor_alone() -> None:
    """A run of the sealing that stood still comes when the stream was deleted and made again."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    ending = Gate(world)
    ending.at(first.transactions, "end_all")
    late = asyncio.ensure_future(first.seal.seal("seal", S, "stream"))
    await ending.come()
    await world.run(second.seal.seal("seal too", S, "stream"))
    await world.run(second.delete.delete("delete", S, "stream"))
    assert await world.run(second.create.create(S, "stream", TWO))
    begun = await world.run(second.transactions.create(S, "stream", 60_000))
    world.write(S, "stream", begun, "event")
    ending.opened.set()
    await world.run(asyncio.wait({late}))
    assert await world.run(second.transactions.commit(S, "stream", begun.id))
    await world.clock.pass_time(10)
    assert await world.readable(S, "stream") == ["event"] * 2
    await settled(scene)


@pytest.mark.parametrize("kind", ["update_stream", "truncate_stream"])
async def test_a_change_that_comes_to_the_next_stream_of_the_name_is_refused(kind: str) -> None:
    """It is not done then, and its caller hears that: success would be of a configuration or a head that is nowhere."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    request = Gate(world)
    request.at(first.queue, "submit", kind)
    changes = {
        "update_stream": lambda: first.update.update("late", S, "stream", dataclasses.replace(TWO, tags=("late",))),
        "truncate_stream": lambda: first.truncate.truncate("late", S, "stream", {0: 0, 1: 0}),
    }
    late = asyncio.ensure_future(changes[kind]())
    await request.come()
    await world.run(second.seal.seal("seal", S, "stream"))
    await world.run(second.delete.delete("delete", S, "stream"))
    assert await world.run(second.create.create(S, "stream", TWO))
    request.opened.set()
    with pytest.raises(StreamNotFound):
        await world.run(late)
    assert await scene.state("stream") is StreamState.ACTIVE
    await settled(scene)


@pytest.mark.parametrize("step", ["enter", "begin_round"])
async def test_a_round_of_a_deleted_stream_does_not_begin_on_its_successor(step: str) -> None:
    """A run of commits that stood still comes when the stream was deleted and made again, and had no round yet."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    begun = [await world.begin(second, S, "stream", label) for label in "ab"]
    late = Gate(world)
    if step == "enter":
        late.at(first.transactions._commits._holds, step)
        lose_answers_about_what_is_gone(first)
    else:
        late.at(first.transactions.records, step)
    assert await world.run(first.transactions.commit(S, "stream", begun[0].id))
    await late.come()
    assert await world.run(second.transactions.commit(S, "stream", begun[1].id))
    await world.clock.pass_time(1)
    assert await world.readable(S, "stream") == ["a", "b"] * 2
    await world.run(second.seal.seal("seal", S, "stream"))
    await world.run(second.delete.delete("delete", S, "stream"))
    assert await world.run(second.create.create(S, "stream", TWO))
    late.opened.set()
    await world.clock.pass_time(5)
    assert await scene.state("stream") is StreamState.ACTIVE
    after = await world.begin(second, S, "stream", "after")
    assert await world.run(first.transactions.commit(S, "stream", after.id))
    await world.clock.pass_time(10)
    assert await world.readable(S, "stream") == ["after"] * 2
    assert first.transactions.blocked == second.transactions.blocked == {}
    await settled(scene)


@pytest.mark.parametrize("step", ["add_entry", "create_stream_tables"])
@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_mark_stream_that_comes_after_the_deletion_of_its_stream_is_deleted(
    step: str, is_made_again: bool
) -> None:
    """Also if its tables are made after its own deletion, and not if a later stream of the name has it by now."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    marks = Gate(world)
    marks.at(first.streams, step, mark_stream("stream"))
    creation = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await marks.come()
    await world.run(second.delete.delete("delete", S, "stream"))
    if is_made_again:
        assert await world.run(second.create.create(S, "stream", TWO))
    marks.opened.set()
    await world.run(asyncio.wait({creation}))
    await world.clock.pass_time(30)
    assert (await world.streams.entry(S, mark_stream("stream")) is not None) is is_made_again
    await settled(scene)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_mark_stream_goes_with_a_stream_that_is_deleted_before_its_records_are_written(
    is_made_again: bool,
) -> None:
    """The creation, which finds no stream any more and ends, is the only one that knows of the mark stream."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    records, marks = Gate(world), Gate(world)
    records.at(first.streams, "first_segment_number", "'stream'")
    marks.at(first.streams, "add_entry", mark_stream("stream"))
    creation = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await records.come()
    await marks.come()
    await world.run(second.delete.delete("delete", S, "stream"))
    if is_made_again:
        assert await world.run(second.create.create(S, "stream", TWO))
    marks.opened.set()
    records.opened.set()
    await world.run(asyncio.wait({creation}))
    assert isinstance(creation.exception(), StreamNotFound)
    await world.clock.pass_time(30)
    assert (await world.streams.entry(S, mark_stream("stream")) is not None) is is_made_again
    await settled(scene)


async def test_a_mark_stream_that_comes_while_its_stream_is_being_deleted_is_deleted() -> None:
    """The deletion looked for it already, and did not come to the stream's entry yet."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    marks, removal = Gate(world), Gate(world)
    marks.at(first.streams, "add_entry", mark_stream("stream"))
    removal.at(second.streams, "remove_stream", "'stream'")
    creation = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await marks.come()
    deletion = asyncio.ensure_future(second.delete.delete("delete", S, "stream"))
    await removal.come()
    marks.opened.set()
    await world.run(asyncio.wait({creation}))
    removal.opened.set()
    await world.run(deletion)
    assert await world.streams.entry(S, mark_stream("stream")) is None
    await settled(scene)


async def test_a_scope_is_deleted_with_a_stream_whose_creation_is_refused_half_way() -> None:
    """The scope is closed before the mark stream is on its list, so nobody completes the stream."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    marks, closed = Gate(world), Gate(world)
    marks.at(first.streams, "add_entry", mark_stream("stream"))
    closed.at(second.delete_scope, "_delete_all")
    creation = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await marks.come()
    deletion = asyncio.ensure_future(second.delete_scope.delete(S))
    await closed.come()
    marks.opened.set()
    await world.run(asyncio.wait({creation}))
    assert isinstance(creation.exception(), ScopeNotFound)
    assert await scene.state("stream") is StreamState.CREATING
    closed.opened.set()
    await world.run(deletion)
    assert await world.streams.scope(S) is None
    await settled(scene)


async def test_a_mark_stream_that_was_half_deleted_does_not_hold_up_the_next_stream_of_the_name() -> None:
    """The creation that deletes its own, since its stream is gone, dies; its heir finds the next stream there."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    marks = Gate(world)
    marks.at(first.streams, "add_entry", mark_stream("stream"))
    creation = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await marks.come()
    await world.run(second.delete.delete("delete", S, "stream"))

    async def die(*args: str) -> None:
        world.live.discard(first.name)
        first.switch.crash()

    first.streams._delete_tables = die  # type: ignore[method-assign, assignment]
    marks.opened.set()
    await world.clock.pass_time(1)
    creation.cancel()
    mark = await world.streams.entry(S, mark_stream("stream"))
    assert mark is not None and mark.deleting
    assert await world.run(second.create.create(S, "stream", TWO), 60)
    await settled(scene)


async def test_a_truncation_that_failed_keeps_the_stream_until_it_is_repeated() -> None:
    """Sealed in between, the stream would stay half truncated: nobody truncates a sealed stream."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    await world.run(world.split(first, S, "stream"))
    await world.clock.pass_time(10)
    current = await (await world.streams.open(S, "stream")).current_epoch()
    delete_segments = first.segments.delete_segments
    refused = asyncio.Event()

    async def refuse(segments: Sequence[str]) -> None:
        refused.set()
        raise Unavailable("the store is away")

    first.segments.delete_segments = refuse
    cut = dict.fromkeys(current.segment_ids, 0)
    truncated = asyncio.ensure_future(first.truncate.truncate("cut", S, "stream", cut))
    await world.run(refused.wait())
    sealed = asyncio.ensure_future(second.seal.seal("seal", S, "stream"))
    await world.clock.pass_time(10)
    first.segments.delete_segments = delete_segments
    await world.run(truncated)
    await world.run(sealed)
    await settled(scene)


async def finish_elsewhere(scene: Scene, end: str) -> None:
    """The other controller truncates the stream behind the segments that the slow one is about to make, or deletes
    it; perhaps it makes another one of the name."""
    world, second = scene.world, scene.second
    if end == "truncated":
        await world.run(world.split(second, S, "stream"))
        await world.clock.pass_time(10)
        await world.run(world.split(second, S, "stream"))
        await world.clock.pass_time(10)
        context = await world.streams.open(S, "stream")
        cut = dict.fromkeys((await context.current_epoch()).segment_ids, 0)
        await world.run(second.truncate.truncate("cut", S, "stream", cut))
        return
    await world.run(second.seal.seal("seal", S, "stream"))
    await world.run(second.delete.delete("delete", S, "stream"))
    if end == "made again":
        assert await world.run(second.create.create(S, "stream", TWO))


ENDS = ("truncated", "deleted", "made again")


@pytest.mark.parametrize("answer", ["comes", "is lost"])
@pytest.mark.parametrize("end", ENDS)
async def test_segments_that_a_slow_run_of_a_scale_makes_are_taken_away(end: str, answer: str) -> None:
    """It stands still before it makes them, and loses its lease; the other controller adopts the scale."""
    scene = await scene_of_two()
    world, first = scene.world, scene.first
    await world.run(first.create.create(S, "stream", TWO))
    creation = Gate(world)
    if answer == "is lost":
        lose_answers(first, "create_segments")
    creation.at(first.segments, "create_segments")
    await world.run(world.split(first, S, "stream"))
    await creation.come()
    world.live.discard(first.name)
    await world.clock.pass_time(10)
    world.live.add(first.name)
    await finish_elsewhere(scene, end)
    creation.opened.set()
    await settled(scene)


@pytest.mark.parametrize("end", ENDS)
async def test_segments_that_a_slow_run_of_a_rolling_commit_makes_are_taken_away(end: str) -> None:
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    begun = await world.begin(first, S, "stream", "event")
    await world.run(world.split(second, S, "stream"))
    await world.clock.pass_time(10)
    creations = [Gate(world), Gate(world)]
    for creation, epoch in zip(creations, (2, 3), strict=True):
        creation.at(first.segments, "create_segments", f".#epoch.{epoch}")
    assert await world.run(first.transactions.commit(S, "stream", begun.id))
    for creation in creations:
        await creation.come()
    assert await world.run(second.transactions.commit(S, "stream", begun.id))
    await world.clock.pass_time(10)
    await finish_elsewhere(scene, end)
    for creation in creations:
        creation.opened.set()
    await settled(scene)


def lose_answers(one: Instance, name: str) -> None:
    """Have the next call of this kind do its work and fail."""
    method = getattr(one.segments, name)

    async def lost(*args: Any, **kwargs: Any) -> None:
        setattr(one.segments, name, method)
        await method(*args, **kwargs)
        raise UnknownOutcome("the answer was lost")

    setattr(one.segments, name, lost)


@pytest.mark.parametrize(
    "work, name, end",
    [
        ("creation", f"'{S}/stream/", "deleted"),
        ("transaction", "#transaction.", "deleted"),
        ("scale", ".#epoch.1", "deleted"),
        ("scale", ".#epoch.1", "truncated"),
        ("rolling commit", ".#epoch.2", "deleted"),
        ("rolling commit", ".#epoch.2", "truncated"),
        ("rolling commit", ".#epoch.3", "deleted"),
    ],
)
async def test_segments_of_a_controller_that_dies_before_it_could_take_them_away_are_deleted(
    work: str, name: str, end: str
) -> None:
    """They come after the deletion of their stream, and their maker ends with its call."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    if work != "creation":
        await world.run(first.create.create(S, "stream", TWO))
    if work == "rolling commit":
        begun = await world.begin(first, S, "stream", "event")
        await world.run(world.split(second, S, "stream"))
        await world.clock.pass_time(10)
    made = Gate(world)
    die_after_creating(first, name)
    made.at(first.segments, "create_segments", name)
    WORKING.set(first.name)
    if work == "creation":
        call: Coroutine[Any, Any, object] = first.create.create(S, "stream", TWO)
    elif work == "transaction":
        call = first.transactions.create(S, "stream", 60_000)
    elif work == "scale":
        call = world.split(first, S, "stream")
    else:
        call = first.transactions.commit(S, "stream", begun.id)
    begin = asyncio.ensure_future(call)
    await made.come()
    world.live.discard(first.name)
    if work in ("scale", "rolling commit"):
        await world.clock.pass_time(10)
    if work == "creation":
        await world.run(second.delete.delete("delete", S, "stream"))
    else:
        await finish_elsewhere(scene, end)
    kept = set(world.segments.segments)
    made.opened.set()
    await world.clock.pass_time(1)
    assert first.switch.crashed
    assert set(world.segments.segments) > kept
    begin.cancel()
    await settled(scene)


async def test_segments_are_deleted_twice_if_they_are_young_and_not_too_many_wait() -> None:
    scene = await scene_of_two()
    world, first = scene.world, scene.first
    queue: Any = RecordingQueue()
    again = SecondDeletion(queue, first.segments, world.clock)
    assert again.may_come(world.clock.wall_ms() - creation_ms_max + 1)
    assert not again.may_come(world.clock.wall_ms() - creation_ms_max)
    for number in range(requests_waiting_max + 5):
        await again.promise([f"segment-{number}"])
    await again.promise([f"segment-{number}" for number in range(5)])
    submitted = queue.submitted
    assert len(submitted) == requests_waiting_max
    with pytest.raises(Postpone) as waits:
        await again.handle(submitted[0])
    assert waits.value.delay_s == creation_ms_max / 1000
    world.clock.skip(creation_ms_max / 1000)
    await world.segments.create_segments(["segment-0"])
    await again.handle(submitted[0])
    assert "segment-0" not in world.segments.segments
    await again.promise([f"other-{number}" for number in range(segments_per_request_max)])
    await again.promise(["one more"])
    assert len(submitted) == requests_waiting_max + 1
    await settled(scene)


class RecordingQueue:
    """Keeps what is submitted, and runs nothing."""

    def __init__(self) -> None:
        self.submitted: list[Request] = []

    def register(self, kind: str, handler: Any) -> None:
        pass

    async def submit(self, request: Request) -> Any:
        self.submitted.append(request)


def lose_answers_about_what_is_gone(one: Instance) -> None:
    """Have the controller not know what became of a write into a table that was deleted: it looks for the stream."""
    tables: Any = one.streams.tables
    put_many = tables.put_many

    async def lost(*args: Any) -> Any:
        try:
            return await put_many(*args)
        except SegmentNotFound as error:
            raise UnknownOutcome("the answer was lost") from error

    tables.put_many = lost


def die_after_creating(one: Instance, name: str) -> None:
    """Have the controller end as soon as it has made segments with these characters in their names."""
    create_segments = one.segments.create_segments

    async def last(segments: Sequence[str], **kwargs: Any) -> None:
        await create_segments(segments, **kwargs)
        if name in repr(segments):
            one.switch.crash()

    one.segments.create_segments = last
