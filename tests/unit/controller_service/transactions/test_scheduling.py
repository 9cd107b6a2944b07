"""Each stream has one request of a kind: it serves what is scheduled while it waits or runs, and forgets nothing."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest

from controller_service.queue.request_queue import Request
from controller_service.store.records import StreamState
from controller_service.transactions.scheduling import ABORT_KIND
from pravega_common.errors import SegmentSealed
from pravega_common.model.transactions import TransactionState
from tests.support.gate import Gate
from tests.support.stream_audit import requests_left
from tests.support.transaction_world import Crashed, World

S, T = "scope", "stream"


async def test_a_blocked_stream_has_one_request_however_often_it_is_swept(world: World) -> None:
    one = await world.instance()
    created = await world.begin(one, S, T, "a")
    await world.segments.delete_segments(world.segments.transaction_segments()[:1])
    assert await world.run(one.transactions.commit(S, T, created.id))
    for _ in range(30):
        await world.run(one.transactions.sweep(at_start=True))
        await world.clock.pass_time(60)
    assert one.transactions.blocked
    assert await requests_left(world.store) == 1


async def test_aborts_that_fail_have_one_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one = await world.instance()
    opened = [await world.begin(one, S, T, str(number)) for number in range(20)]
    delete = world.segments.delete_segments

    async def refuse(segments: list[str]) -> None:
        raise SegmentSealed(segments[0])

    monkeypatch.setattr(world.segments, "delete_segments", refuse)
    for created in opened:
        assert await world.run(one.transactions.abort(S, T, created.id))
    await world.run(one.transactions.sweep())
    await world.clock.pass_time(10)
    assert await requests_left(world.store) == 1
    monkeypatch.setattr(world.segments, "delete_segments", delete)
    await world.clock.pass_time(10)
    assert await requests_left(world.store) == 0
    assert world.segments.transaction_segments() == []
    for created in opened:
        assert await world.run(one.transactions.transaction_state(S, T, created.id)) is TransactionState.ABORTED


async def test_nothing_is_remembered_of_a_stream_that_is_gone(world: World) -> None:
    """Deleted while an abort and a commit of it could not end."""
    one = await world.instance()
    committed, aborted = [await world.begin(one, S, T, label) for label in "ab"]
    await world.move_state(S, T, StreamState.SCALING)
    assert await world.run(one.transactions.commit(S, T, committed.id))
    await world.run(one.transactions.sweep())
    assert one.transactions._unfinished
    deletion = Gate(world)
    deletion.at(one.segments, "delete_segments")
    assert await world.run(one.transactions.abort(S, T, aborted.id))
    await deletion.come()
    entry = await world.streams.entry(S, T)
    assert entry is not None
    await world.run(world.streams.remove_stream(S, T, entry.stream_id))
    deletion.opened.set()
    await world.clock.pass_time(130)
    assert one.transactions.scheduler._aborts == {}
    assert one.transactions._unfinished == {}
    assert await requests_left(world.store) == 0


async def test_aborts_of_a_dead_controller_are_found_by_the_one_that_adopts_its_request(world: World) -> None:
    one = await world.instance()
    opened = [await world.begin(one, S, T, str(number)) for number in range(3)]
    one.die_at("transaction_abort.segments_deleted")
    with contextlib.suppress(Crashed):
        for created in opened:
            assert await world.run(one.transactions.abort(S, T, created.id))
    await world.clock.pass_time(1)
    assert one.switch.crashed
    await world.run(one.kill())
    other = world.add_instance()
    await world.run(other.queue.start())
    await world.clock.pass_time(2)
    assert await requests_left(world.store) == 0
    assert await world.run(other.transactions.transaction_state(S, T, opened[0].id)) is TransactionState.ABORTED


async def test_an_abort_that_a_former_version_stored_is_carried_out(world: World) -> None:
    one = await world.instance()
    created = await world.begin(one, S, T, "a")
    [found] = await world.run(one.transactions.records.get_many(S, T, [created.id]))
    assert found is not None
    one.transactions.scheduler.schedule_abort = no_request  # type: ignore[method-assign]
    assert await world.run(one.transactions.abort(S, T, created.id))
    payload = {"stream": f"{S}/{T}", "transaction": created.id.hex}
    await world.run(one.queue.submit(Request(f"abort/{S}/{T}/{created.id.hex}", ABORT_KIND, f"{S}/{T}#x", payload)))
    await world.clock.pass_time(2)
    assert await world.run(one.transactions.transaction_state(S, T, created.id)) is TransactionState.ABORTED


async def no_request(scope: str, stream: str, identifier: uuid.UUID) -> str:
    return ""


@pytest.mark.parametrize("turns", range(0, 40))
async def test_a_commit_scheduled_at_any_moment_of_a_run_is_not_forgotten(world: World, turns: int) -> None:
    one = await world.instance()
    opened = [await world.begin(one, S, T, str(number)) for number in range(2)]
    await world.run(one.transactions.commit(S, T, opened[0].id))

    async def later() -> None:
        for _ in range(turns * 3):
            await asyncio.sleep(0)
        await one.transactions.commit(S, T, opened[1].id)

    await world.run(later())
    await world.clock.pass_time(2)
    assert list(world.segments.stream_events(S, T).values()) == [["0", "1"]] * 2
    assert await requests_left(world.store) == 0
