"""Two live controllers on one store: at every step of every workflow the one that works dies, has its call cut off, or
stands still and loses its lease; the client asks the other one, merges are slow, and everything comes out whole."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from controller_service.store.records import StreamState
from pravega_common.errors import Outcome, PravegaError, StreamNotFound, Unavailable, UnknownOutcome
from pravega_common.runtime import failpoints
from tests.support.gate import Gate
from tests.support.repository import ROOT
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.transaction_world import WORKING, Crashed, CrashSwitch, Instance, VirtualClock
from tests.support.workflow_steps import (
    DISTURBANCES,
    GROUP_ID,
    NEEDS_OLD_VERSION,
    OPERATORS,
    TWO,
    WATERMARKS,
    WORKFLOWS,
    S,
    Scene,
    Workflow,
    controller_failpoints,
    group_config,
    scene_of_two,
    steps_of,
    table,
)

call_deadline_s = 2.0
"""Virtual seconds that a client waits for its answer before it asks another controller."""
stall_s = 40.0
"""Long enough for a lease to run out and for another controller to do all the work."""
settle_s = 130.0
slow_calls = ("merge_batch", "info", "seal_segments")
pytestmark = pytest.mark.timeout(600)


class Stalled(CrashSwitch):
    """Operations take their time, those on segments more of it; the whole controller can be made to stand still."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.clock: VirtualClock | None = None
        self.until_s = 0.0
        self._random = random

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        if self.clock is not None:
            if work.__name__ in slow_calls:
                await self.clock.sleep(self._random.random() * 0.3)
            await self._stand_still(self.clock)
        result = await super().call(work, *args, **kwargs)
        if self.clock is not None:
            await self._stand_still(self.clock)
        return result

    async def _stand_still(self, clock: VirtualClock) -> None:
        while clock.monotonic_s() < self.until_s:
            await clock.sleep(self.until_s - clock.monotonic_s())


class Disturbance:
    """Happens once, at one failpoint of the first controller, while a client waits for its answer."""

    def __init__(self, scene: Scene, kind: str) -> None:
        self.scene = scene
        self.kind = kind
        self.happened = False
        self.call: asyncio.Future[Any] | None = None

    def at(self, failpoint: str) -> None:
        failpoints.arm(failpoint, self._happen)

    def _happen(self) -> None:
        if self.happened or WORKING.get() != self.scene.first.name:
            return
        self.happened = True
        world, first = self.scene.world, self.scene.first
        if self.kind == "cut off":
            assert self.call is not None
            self.call.cancel()
            return
        # Either way its lease runs out.
        world.live.discard(first.name)
        if self.kind == "dies":
            first.switch.crash()
        assert isinstance(first.switch, Stalled)
        first.switch.until_s = world.clock.monotonic_s() + stall_s

    async def come(self) -> None:
        """Wait until it happened, also after an answer, but not for long: time is what some steps wait for."""
        for _ in range(20):
            if not self.happened:
                await self.scene.world.clock.sleep(call_deadline_s / 20)

    async def answer(self, workflow: Workflow, one: Instance) -> bool:
        """Whether a call to this controller was answered; a refusal is an answer."""
        WORKING.set(one.name)
        self.call = asyncio.ensure_future(workflow.act(self.scene, one))
        alarm = asyncio.ensure_future(self.scene.world.clock.sleep(call_deadline_s))
        await asyncio.wait({self.call, alarm}, return_when=asyncio.FIRST_COMPLETED)
        alarm.cancel()
        self.call.cancel()
        try:
            await self.call
        except (Crashed, asyncio.CancelledError):
            return False
        except PravegaError as error:
            return error.outcome is Outcome.REJECTED
        return True


async def disturbed(workflow: Workflow, step: str, kind: str) -> None:
    random = Random(f"{workflow.name}/{step}/{kind}")
    switches = (Stalled(random), Stalled(random))
    scene = await scene_of_two(switches)
    await workflow.prepare(scene)
    for switch in switches:
        switch.clock = scene.world.clock
    disturbance = Disturbance(scene, kind)
    disturbance.at(step)
    await scene.run(disturbance.answer(workflow, scene.first))
    await scene.run(disturbance.come())
    for _ in range(30):
        if await scene.world.run(disturbance.answer(workflow, scene.second), 600):
            break
    else:
        raise AssertionError("the other controller never answers")
    await scene.world.clock.pass_time(settle_s)
    assert disturbance.happened
    await check_whole(scene, workflow)
    await scene.world.close()


async def check_whole(scene: Scene, workflow: Workflow) -> None:
    world = scene.world
    await workflow.check(scene)
    assert [one.transactions.blocked for one in world.instances] == [{}, {}]
    assert await requests_left(world.store) == 0
    await audit_streams(world.streams, world.segments)
    assert world.segments.transaction_segments() == []
    assert sorted(event for events in world.segments.events.values() for event in events) == sorted(scene.expected)


@pytest.mark.parametrize("kind", DISTURBANCES)
@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda item: item.name)
async def test_the_other_controller_finishes_the_work(workflow: Workflow, kind: str, all_cases: bool) -> None:
    """Of each kind every other step, each step by some kind; with ``--long`` all."""
    problems: dict[str, str] = {}
    steps = await steps_of(workflow)
    for step in steps if all_cases else steps[list(DISTURBANCES).index(kind) % 2 :: 2]:
        try:
            await disturbed(workflow, step, kind)
        except (AssertionError, PravegaError, TimeoutError) as error:
            problems[step] = repr(error)[:2_000]
        failpoints.disarm_all()
    assert problems == {}


async def test_every_failpoint_of_the_controller_is_a_step_of_a_workflow() -> None:
    covered = {step for workflow in WORKFLOWS for step in await steps_of(workflow)}
    assert controller_failpoints() - covered - WATERMARKS == NEEDS_OLD_VERSION | OPERATORS


def words(line: str) -> list[str]:
    return sorted(line.replace(",", " ").split())


async def test_the_table_of_steps_in_the_readme_is_true() -> None:
    """Apart from the order of steps: some of different requests go on at the same time."""
    readme = (ROOT / "controller_service/workflows/README.md").read_text()
    lines = readme[readme.index("| workflow | steps |") :].splitlines()
    assert [words(line) for line in lines] == [words(line) for line in (await table()).splitlines()]


async def test_segments_that_a_slow_creation_makes_after_the_deletion_are_taken_away() -> None:
    scene = await scene_of_two()
    world, created, gate = scene.world, asyncio.Event(), asyncio.Event()
    create_segments = world.segments.create_segments

    async def late(*args: Any, **kwargs: Any) -> None:
        created.set()
        await gate.wait()
        await create_segments(*args, **kwargs)

    world.segments.create_segments = late  # type: ignore[method-assign]
    creation = asyncio.ensure_future(scene.first.create.create("scope", "stream", TWO))
    await world.run(created.wait())
    world.segments.create_segments = create_segments  # type: ignore[method-assign]
    await world.run(scene.second.delete.delete("now", "scope", "stream"))
    # A stream of the same name, half made: the slow run must not take it for its own.
    world.segments.create_segments = late  # type: ignore[method-assign]
    successor = asyncio.ensure_future(scene.second.create.create("scope", "stream", TWO))
    created.clear()
    await world.run(created.wait())
    gate.set()
    await world.run(asyncio.wait({creation, successor}))
    await world.clock.pass_time(10)
    await audit_streams(world.streams, world.segments)
    assert await scene.state("stream") is StreamState.ACTIVE
    await world.close()


async def test_segments_of_a_creation_whose_answer_is_lost_after_the_deletion_are_taken_away() -> None:
    """The repetition of the creation finds the stream gone, and does not know what the first attempt made."""
    scene = await scene_of_two()
    world, created, gate = scene.world, asyncio.Event(), asyncio.Event()
    create_segments = world.segments.create_segments

    async def late(*args: Any, **kwargs: Any) -> None:
        created.set()
        await gate.wait()
        await create_segments(*args, **kwargs)
        raise UnknownOutcome("the answer was lost")

    world.segments.create_segments = late  # type: ignore[method-assign]
    creation = asyncio.ensure_future(scene.first.create.create("scope", "stream", TWO))
    await world.run(created.wait())
    world.segments.create_segments = create_segments  # type: ignore[method-assign]
    await world.run(scene.second.delete.delete("now", "scope", "stream"))
    gate.set()
    await world.run(asyncio.wait({creation}))
    await world.clock.pass_time(10)
    await audit_streams(world.streams, world.segments)
    assert world.segments.segments == {}
    await world.close()


async def test_segments_of_a_creation_whose_mark_stream_failed_after_the_deletion_are_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The repetition finds the stream gone, and its successor begins meanwhile."""
    scene = await scene_of_two()
    world, first, reached, gate = scene.world, scene.first, asyncio.Event(), asyncio.Event()
    create_segments = world.segments.create_segments

    async def late(*args: Any, **kwargs: Any) -> None:
        reached.set()
        await gate.wait()
        await create_segments(*args, **kwargs)

    async def refuse(scope: str, stream: str) -> None:
        raise Unavailable("the store is away")

    monkeypatch.setattr(first.create, "_create_mark_stream", refuse)
    world.segments.create_segments = late  # type: ignore[method-assign]
    creation = asyncio.ensure_future(first.create.create("scope", "stream", TWO))
    await world.run(reached.wait())
    world.segments.create_segments = create_segments  # type: ignore[method-assign]
    await world.run(scene.second.delete.delete("now", "scope", "stream"))
    assert await world.run(scene.second.create.create("scope", "stream", TWO))
    gate.set()
    await world.run(asyncio.wait({creation}))
    await world.clock.pass_time(10)
    await audit_streams(world.streams, world.segments)
    await world.close()


@pytest.mark.parametrize("how", ["waits", "is cut off", "loses the answer"])
@pytest.mark.parametrize("is_made_again", [False, True])
async def test_segments_of_a_transaction_that_come_after_the_deletion_are_taken_away(
    how: str, is_made_again: bool
) -> None:
    """The stream is sealed and deleted while a transaction is begun; then there may be another of its name."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    reached, gate, create_segments = asyncio.Event(), asyncio.Event(), world.segments.create_segments

    async def arrive(*args: Any, **kwargs: Any) -> None:
        await gate.wait()
        await create_segments(*args, **kwargs)

    async def late(*args: Any, **kwargs: Any) -> None:
        reached.set()
        # The request is under way: that nobody waits for its answer does not call it back.
        await asyncio.shield(asyncio.ensure_future(arrive(*args, **kwargs)))
        if how == "loses the answer":
            raise UnknownOutcome("the answer was lost")

    world.segments.create_segments = late  # type: ignore[method-assign]
    begin = asyncio.ensure_future(first.transactions.create(S, "stream", 60_000))
    await world.run(reached.wait())
    world.segments.create_segments = create_segments  # type: ignore[method-assign]
    if how == "is cut off":
        begin.cancel()
    await world.run(second.seal.seal("seal", S, "stream"))
    await world.run(second.delete.delete("delete", S, "stream"))
    if is_made_again:
        assert await world.run(second.create.create(S, "stream", TWO))
    gate.set()
    await world.run(asyncio.wait({begin}))
    assert begin.cancelled() or isinstance(begin.exception(), StreamNotFound)
    await world.clock.pass_time(30)
    assert world.segments.transaction_segments() == []
    await audit_streams(world.streams, world.segments)
    await world.close()


async def test_a_creation_at_the_end_of_a_deletion_does_not_bring_the_stream_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tables of the old stream are gone and its entry stands: it is no stream that somebody left half made."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    await world.run(first.seal.seal("seal", S, "stream"))
    reached, gate, remove_if = asyncio.Event(), asyncio.Event(), second.streams.remove_if

    async def late(table: str, key: str, is_it: Any) -> None:
        if key == "stream":
            reached.set()
            await gate.wait()
        await remove_if(table, key, is_it)

    monkeypatch.setattr(second.streams, "remove_if", late)
    deletion = asyncio.ensure_future(second.delete.delete("delete", S, "stream"))
    await world.run(reached.wait())
    with pytest.raises(Unavailable, match="stream scope/stream is being deleted; it can be created again when"):
        await world.run(first.create.create(S, "stream", TWO))
    gate.set()
    await world.run(deletion)
    assert await world.run(first.create.create(S, "stream", TWO))
    await world.clock.pass_time(10)
    await audit_streams(world.streams, world.segments)
    names = [name for name in world.segments.segments if "_MARK" not in name]
    assert names == [f"{S}/stream/2.#epoch.0", f"{S}/stream/3.#epoch.0"]
    await world.close()


async def test_a_creation_while_segments_are_deleted_does_not_say_that_the_stream_exists() -> None:
    """The caller would go on with a stream that is gone a moment later."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(first.create.create(S, "stream", TWO))
    await world.run(first.seal.seal("seal", S, "stream"))
    assert not await world.run(first.create.create(S, "stream", TWO))  # sealed, but there
    gate = Gate(world)
    gate.at(world.segments, "delete_segments", f"'{S}/stream/")
    deletion = asyncio.ensure_future(second.delete.delete("delete", S, "stream"))
    await gate.come()
    with pytest.raises(Unavailable, match="is being deleted"):
        await world.run(first.create.create(S, "stream", TWO))
    gate.opened.set()
    await world.run(deletion)
    assert await world.run(first.create.create(S, "stream", TWO))
    await world.close()


async def test_a_creation_that_comes_late_to_the_records_finds_the_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion has found no records; before it removes their tables, the creation goes on."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    waits, gate, looked = asyncio.Event(), asyncio.Event(), asyncio.Event()
    first_segment_number, remove_stream = first.streams.first_segment_number, second.streams.remove_stream

    async def late(scope: str, stream: str) -> int:
        waits.set()
        await gate.wait()
        return await first_segment_number(scope, stream)

    async def slow(scope: str, stream: str, stream_id: str) -> None:
        looked.set()
        await world.clock.sleep(3)
        await remove_stream(scope, stream, stream_id)

    monkeypatch.setattr(first.streams, "first_segment_number", late)
    monkeypatch.setattr(second.streams, "remove_stream", slow)
    creation = asyncio.ensure_future(first.create.create(S, "stream", TWO))
    await world.run(waits.wait())
    deletion = asyncio.ensure_future(second.delete.delete("now", S, "stream"))
    await world.run(looked.wait())
    gate.set()
    await world.run(asyncio.wait({creation, deletion}))
    await world.clock.pass_time(20)
    await audit_streams(world.streams, world.segments)
    assert world.segments.segments == {}
    await world.close()


async def test_a_group_is_deleted_while_the_controller_that_makes_it_cannot_go_on() -> None:
    """Its creation, carried out again, finds the group being deleted, and completes the group's stream no more."""
    scene = await scene_of_two()
    world, first = scene.world, scene.first
    create_segments = first.segments.create_segments
    refused = asyncio.Event()

    async def refuse(*args: Any, **kwargs: Any) -> None:
        refused.set()
        raise Unavailable("the store is away")

    WORKING.set(first.name)
    first.segments.create_segments = refuse
    creation = asyncio.ensure_future(first.groups.create(S, "group", GROUP_ID, group_config()))
    await world.run(refused.wait())
    assert await world.run(scene.second.groups.delete(S, "group", GROUP_ID), 60)
    first.segments.create_segments = create_segments
    await world.run(asyncio.wait({creation}))
    await world.clock.pass_time(10)
    await audit_streams(world.streams, world.segments)
    assert world.segments.segments == {}
    assert await requests_left(world.store) == 0
    await world.close()


async def test_a_group_that_is_being_deleted_is_not_said_to_stand() -> None:
    """The caller would go on with one that is gone a moment later."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    other_id = GROUP_ID.replace("1", "9")
    await world.run(first.groups.create(S, "group", GROUP_ID, group_config()))
    gate = Gate(world)
    gate.at(world.segments, "delete_segments", f"'{S}/_RGgroup/")
    deletion = asyncio.ensure_future(second.groups.delete(S, "group", GROUP_ID))
    await gate.come()
    with pytest.raises(Unavailable, match="reader group scope/group is being deleted; it can be created again when"):
        await world.run(first.groups.create(S, "group", other_id, group_config()))
    gate.opened.set()
    assert await world.run(deletion)
    assert (await world.run(first.groups.create(S, "group", other_id, group_config()))).group_id == other_id
    await world.close()


async def test_a_table_that_is_being_deleted_is_not_said_to_exist() -> None:
    """The caller would go on with one that is gone a moment later."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second

    async def create() -> bool:
        new = KeyValueTableRecord(world.new_id(), world.clock.wall_ms(), ScopeMemberState.CREATING, 2, 4, 0)
        return await world.run(first.tables.create(S, "table", new))

    assert await create()
    gate = Gate(world)
    gate.at(world.segments, "delete_table_segment")
    deletion = asyncio.ensure_future(second.tables.delete(S, "table"))
    await gate.come()
    with pytest.raises(Unavailable, match="key-value table scope/table is being deleted; it can be created again when"):
        await create()
    gate.opened.set()
    assert await world.run(deletion)
    assert await create()
    await world.close()
