"""Runs of a reader group's work that stand still while others delete the group, change it or make another of its name:
its stream and its subscriptions are those of the group that is there, and nothing is left of one that is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from controller_service.errors import QuotaExceeded
from controller_service.store.members import ReaderGroupRecord, ScopeMemberState
from controller_service.store.records import StreamState
from controller_service.workflows.reader_groups import ConfigMismatch
from pravega_common.errors import NotFound
from pravega_common.model.scope_quota import ScopeQuota
from pravega_common.names import reader_group_stream
from tests.support.gate import Gate
from tests.support.stream_audit import audit_streams, requests_left
from tests.support.transaction_world import WORKING, Instance
from tests.support.workflow_steps import GROUP_ID, TWO, S, Scene, group_config, scene_of_two, subscribers

OTHER_ID = "11111111-2222-3333-4444-666666666666"
STREAM = reader_group_stream("group")
SUBSCRIBER = f"{S}/group"

Place = tuple[Callable[[Instance], Any], str, str]
"""Where a run stands still: the object, its method, and characters of the call's arguments."""

WRITES_SUBSCRIBER: Place = (lambda one: one.streams.tables, "put_many", f"{S}/one/metadata")
WRITES_ENTRY: Place = (lambda one: one.streams.tables, "put", f"'{STREAM}'")
SETTLES: Place = (lambda one: one.groups._subscriptions, "settle", "")

OF_CREATION: dict[str, Place] = {
    "before its stream": (lambda one: one.groups._streams, "make", ""),
    "at the entry": WRITES_ENTRY,
    "before it looks again": (lambda one: one.groups.records, "get", ""),
    "before the records": (lambda one: one.create, "carry_out", f"'{STREAM}'"),
    "before the segments": (lambda one: one.segments, "create_segments", f"'{S}/{STREAM}/"),
    "before it subscribes": SETTLES,
    "at the subscription": WRITES_SUBSCRIBER,
    "before it is active": (lambda one: one.groups.records, "replace", ""),
}
OF_DELETION: dict[str, Place] = {
    "before it unsubscribes": SETTLES,
    "at the subscription": WRITES_SUBSCRIBER,
    "before the entry": (lambda one: one.streams, "listed", ""),
    "before the mark": (lambda one: one.streams, "replace_entry", ""),
    "at the entry": WRITES_ENTRY,
    "before it seals": (lambda one: one.seal, "carry_out", f"'{STREAM}'"),
    "before it deletes": (lambda one: one.delete, "carry_out", f"'{STREAM}'"),
    "before the record": (lambda one: one.groups.records, "discard", ""),
}
OF_UPDATE: dict[str, Place] = {
    "before it subscribes": SETTLES,
    "before it unsubscribes": (lambda one: one.groups._subscriptions, "settle", f"('{S}/one',)"),
    "at the subscription": WRITES_SUBSCRIBER,
    "before it forgets": (lambda one: one.groups.records, "replace", ""),
}


async def scene_of_streams() -> Scene:
    scene = await scene_of_two()
    for stream in ("one", "two"):
        await scene.make_stream(stream)
    return scene


def stand_still(scene: Scene, one: Instance, place: Place) -> Gate:
    owner, method, when = place
    gate = Gate(scene.world)
    gate.at(owner(one), method, when)
    return gate


async def go_on(scene: Scene, gate: Gate, run: asyncio.Future[Any], *, dies: bool) -> None:
    """Let the first controller's run go on, or have the other one take its request over."""
    if dies:
        scene.first.switch.crashed = True
        scene.world.live.discard(scene.first.name)
        run.cancel()
    gate.opened.set()
    await scene.world.run(asyncio.wait({run}))
    if not dies and run.exception() is not None:
        assert isinstance(run.exception(), NotFound | ConfigMismatch)


async def create(one: Instance, group_id: str, *streams: str) -> ReaderGroupRecord:
    return await one.groups.create(S, "group", group_id, group_config(*streams))


async def settled(scene: Scene, group_id: str | None, *streams: str) -> None:
    """Long after: there is this group with its stream and the subscriptions to these streams, or nothing of any."""
    world = scene.world
    await world.clock.pass_time(200)
    record = await scene.live().groups.records.get(S, "group")
    entry = await world.streams.entry(S, STREAM)
    if group_id is None:
        assert (record, entry) == (None, None)
    else:
        assert record is not None and entry is not None
        assert (record.group_id, record.state, record.unsubscribe) == (group_id, ScopeMemberState.ACTIVE, ())
        assert await scene.state(STREAM) is StreamState.ACTIVE
    for stream in ("one", "two"):
        assert await subscribers(scene, stream) == ([SUBSCRIBER] if stream in streams else []), stream
    await audit_streams(world.streams, world.segments)
    assert await requests_left(world.store) == 0
    await world.close()


@pytest.mark.parametrize(
    ("next_id", "dies"), [(None, False), (GROUP_ID, False), (OTHER_ID, False), (None, True), (OTHER_ID, True)]
)
@pytest.mark.parametrize("place", OF_DELETION)
async def test_a_late_deletion_leaves_the_next_group_of_the_name_alone(
    place: str, next_id: str | None, dies: bool
) -> None:
    """Not one of the same id if the request is taken over: it is to delete what has the id."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(create(first, GROUP_ID, "one"))
    gate = stand_still(scene, first, OF_DELETION[place])
    WORKING.set(first.name)
    late = asyncio.ensure_future(first.groups.delete(S, "group", GROUP_ID))
    await gate.come()
    assert await world.run(second.groups.delete(S, "group", GROUP_ID))
    if next_id is not None:
        await world.run(create(second, next_id, "one"))
    made = await world.streams.entry(S, STREAM)
    await go_on(scene, gate, late, dies=dies)
    assert await world.streams.entry(S, STREAM) == made
    await settled(scene, next_id, *(["one"] if next_id is not None else []))


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("next_id", [None, GROUP_ID, OTHER_ID])
@pytest.mark.parametrize("place", OF_CREATION)
async def test_a_late_creation_leaves_nothing_of_a_group_that_was_deleted(
    place: str, next_id: str | None, dies: bool
) -> None:
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    gate = stand_still(scene, first, OF_CREATION[place])
    WORKING.set(first.name)
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await gate.come()
    assert await world.run(second.groups.delete(S, "group", GROUP_ID))
    if next_id is not None:
        await world.run(create(second, next_id, "two"))
    await go_on(scene, gate, late, dies=dies)
    await settled(scene, next_id, *(["two"] if next_id is not None else []))


@pytest.mark.parametrize("next_place", ["before its stream", "before it is active"])
@pytest.mark.parametrize("next_id", [GROUP_ID, OTHER_ID])
@pytest.mark.parametrize("place", OF_CREATION)
async def test_a_late_creation_does_not_make_the_next_group_active(place: str, next_id: str, next_place: str) -> None:
    """The next group of the name has no stream yet, or just got it; it may be equal to the one before."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    gate = stand_still(scene, first, OF_CREATION[place])
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await gate.come()
    assert await world.run(second.groups.delete(S, "group", GROUP_ID))
    following = stand_still(scene, second, OF_CREATION[next_place])
    again = asyncio.ensure_future(create(second, next_id, "one"))
    await following.come()
    gate.opened.set()
    await world.run(asyncio.wait({late}))
    record = await second.groups.records.get(S, "group")
    assert record is not None and record.group_id == next_id
    if record.state is ScopeMemberState.ACTIVE:
        # The late run went on for the group that has its id.
        assert next_id == GROUP_ID and await scene.state(STREAM) is StreamState.ACTIVE
    following.opened.set()
    assert (await world.run(again)).state is ScopeMemberState.ACTIVE
    await settled(scene, next_id, "one")


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
@pytest.mark.parametrize("place", ["before it looks again", "before the records", "before the segments"])
async def test_the_next_group_takes_over_the_stream_that_a_late_creation_put(place: str, dies: bool) -> None:
    """The deletion of the first group has passed before."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    putting, looking = stand_still(scene, first, WRITES_ENTRY), stand_still(scene, first, OF_CREATION[place])
    WORKING.set(first.name)
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await putting.come()
    assert await world.run(second.groups.delete(S, "group", GROUP_ID))
    if place != "before it looks again":
        # Its look finds a group of its id.
        await world.run(second.groups.records.add(S, "group", _being_created(GROUP_ID, "one")))
    putting.opened.set()
    await looking.come()
    put = await world.streams.entry(S, STREAM)
    assert put is not None and put.group_id == GROUP_ID
    found = await second.groups.records.find(S, "group")
    if found is not None:
        await second.groups.records.discard("group", found)
    await world.run(create(second, OTHER_ID, "two"))
    taken = await world.streams.entry(S, STREAM)
    assert taken is not None and (taken.stream_id, taken.group_id) == (put.stream_id, OTHER_ID)
    await go_on(scene, looking, late, dies=dies)
    assert await world.streams.entry(S, STREAM) == taken
    await settled(scene, OTHER_ID, "two")


def _being_created(group_id: str, *streams: str) -> ReaderGroupRecord:
    return ReaderGroupRecord(group_id, ScopeMemberState.CREATING, 0, group_config(*streams))


@pytest.mark.parametrize("place", ["look", "mark"])
async def test_a_creation_does_not_take_back_the_stream_of_the_next_group_of_its_id(place: str) -> None:
    """When it began to look after what it left there was no group."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    putting = stand_still(scene, first, WRITES_ENTRY)
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await putting.come()
    assert await world.run(second.groups.delete(S, "group", GROUP_ID))
    at: Place = (
        (lambda one: one.groups._streams, "take_back", "") if place == "look" else OF_DELETION["before the mark"]
    )
    taking_back = stand_still(scene, first, at)
    putting.opened.set()
    await taking_back.come()
    await world.run(create(second, GROUP_ID, "two"))
    made = await world.streams.entry(S, STREAM)
    await go_on(scene, taking_back, late, dies=False)
    assert await world.streams.entry(S, STREAM) == made
    await settled(scene, GROUP_ID, "two")


async def test_a_creation_whose_stream_is_deleted_makes_another_one() -> None:
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    gate = stand_still(scene, first, OF_CREATION["before the records"])
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await gate.come()
    put = await world.streams.entry(S, STREAM)
    await world.run(second.delete.delete("delete", S, STREAM))
    await go_on(scene, gate, late, dies=False)
    made = await world.streams.entry(S, STREAM)
    assert put is not None and made is not None and put.stream_id != made.stream_id
    await settled(scene, GROUP_ID, "one")


async def test_a_creation_that_meets_its_stream_marked_and_not_sealed_yet_is_not_refused() -> None:
    """A client made the stream before, so it is in use."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await scene.make_stream(STREAM, TWO)
    gate = stand_still(scene, first, OF_CREATION["before the records"])
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await gate.come()
    sealing = stand_still(scene, second, OF_DELETION["before it seals"])
    deletion = asyncio.ensure_future(second.groups.delete(S, "group", GROUP_ID))
    await sealing.come()
    await go_on(scene, gate, late, dies=False)
    sealing.opened.set()
    assert await world.run(deletion)
    await settled(scene, None)


async def test_a_group_takes_over_a_stream_that_a_client_made_and_keeps_what_it_holds() -> None:
    """As clients did that registered no groups."""
    scene = await scene_of_streams()
    world = scene.world
    await scene.make_stream(STREAM, TWO)
    made = await world.streams.entry(S, STREAM)
    await scene.write(STREAM)
    await world.run(create(scene.first, GROUP_ID, "one"))
    taken = await world.streams.entry(S, STREAM)
    assert made is not None and taken is not None
    assert (taken.stream_id, made.group_id, taken.group_id) == (made.stream_id, "", GROUP_ID)
    assert scene.held(STREAM) == scene.expected
    await settled(scene, GROUP_ID, "one")


@pytest.mark.parametrize("place", ["before the mark", "at the entry"])
async def test_a_stream_that_the_next_group_takes_over_is_not_deleted_with_the_former_one(place: str) -> None:
    """One run of the deletion saw no stream, the other one what a client made then."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(create(first, GROUP_ID, "one"))
    ending = stand_still(scene, second, OF_DELETION["before the record"])
    deletion = asyncio.ensure_future(second.groups.delete(S, "group", GROUP_ID))
    await ending.come()
    await scene.run(first.create.create(S, STREAM, TWO))
    gate = stand_still(scene, first, OF_DELETION[place])
    late = asyncio.ensure_future(first.groups.delete(S, "group", GROUP_ID))
    await gate.come()
    ending.opened.set()
    assert await world.run(deletion)
    await world.run(create(second, OTHER_ID, "one"))
    taken = await world.streams.entry(S, STREAM)
    await go_on(scene, gate, late, dies=False)
    assert await world.streams.entry(S, STREAM) == taken
    await settled(scene, OTHER_ID, "one")


async def held_update(scene: Scene, place: str) -> tuple[Gate, asyncio.Future[Any]]:
    """An update by which a group leaves stream ``one``, standing still at a place."""
    first = scene.first
    await scene.world.run(create(first, GROUP_ID, "one", "two"))
    gate = stand_still(scene, first, OF_UPDATE[place])
    late = asyncio.ensure_future(first.groups.update(S, "group", GROUP_ID, 0, group_config("two")))
    await gate.come()
    return gate, late


@pytest.mark.parametrize("place", OF_UPDATE)
async def test_a_late_update_leaves_the_subscriptions_of_the_next_one_alone(place: str) -> None:
    """It drops a stream that the next update takes back."""
    scene = await scene_of_streams()
    world, second = scene.world, scene.second
    gate, late = await held_update(scene, place)
    assert await world.run(second.groups.update(S, "group", GROUP_ID, 1, group_config("one", "two"))) == 2
    assert await subscribers(scene, "one") == [SUBSCRIBER]
    await go_on(scene, gate, late, dies=False)
    assert late.result() == 1
    assert await subscribers(scene, "one") == [SUBSCRIBER]
    await settled(scene, GROUP_ID, "one", "two")


async def test_a_stream_that_is_taken_back_stays_subscribed_though_it_waits_to_be_unsubscribed() -> None:
    """The update that left it died before it had unsubscribed."""
    scene = await scene_of_streams()
    world, second = scene.world, scene.second
    gate, late = await held_update(scene, "before it unsubscribes")
    update = second.groups.update(S, "group", GROUP_ID, 1, group_config("one", "two"))
    await world.run(update)
    assert await subscribers(scene, "one") == [SUBSCRIBER]
    await go_on(scene, gate, late, dies=True)
    await settled(scene, GROUP_ID, "one", "two")


async def test_a_late_update_does_not_forget_what_the_next_one_left() -> None:
    """The next one dies before it has unsubscribed, and its request is taken over."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(create(second, GROUP_ID, "one", "two"))
    forgetting = stand_still(scene, second, OF_UPDATE["before it forgets"])
    late = asyncio.ensure_future(second.groups.update(S, "group", GROUP_ID, 0, group_config("two")))
    await forgetting.come()
    leaving = stand_still(scene, first, SETTLES)
    WORKING.set(first.name)
    update = asyncio.ensure_future(first.groups.update(S, "group", GROUP_ID, 1, group_config("one")))
    await leaving.come()
    forgetting.opened.set()
    await world.run(late)
    record = await second.groups.records.get(S, "group")
    assert record is not None and (record.generation, record.unsubscribe) == (2, (f"{S}/two",))
    await go_on(scene, leaving, update, dies=True)
    await settled(scene, GROUP_ID, "one")


@pytest.mark.parametrize("next_id", [None, GROUP_ID, OTHER_ID])
@pytest.mark.parametrize("meets", [False, True], ids=["after the deletion", "within the deletion"])
@pytest.mark.parametrize("place", OF_UPDATE)
async def test_a_group_that_is_deleted_beside_an_update_is_gone(place: str, meets: bool, next_id: str | None) -> None:
    """The update goes on when the deletion is done, or has marked the group."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(create(first, GROUP_ID, "one"))
    gate = stand_still(scene, first, OF_UPDATE[place])
    late = asyncio.ensure_future(first.groups.update(S, "group", GROUP_ID, 0, group_config("two")))
    await gate.come()
    if meets:
        marked = stand_still(scene, second, SETTLES)
        deletion = asyncio.ensure_future(second.groups.delete(S, "group", GROUP_ID))
        await marked.come()
        await go_on(scene, gate, late, dies=False)
        marked.opened.set()
        assert await world.run(deletion)
    else:
        assert await world.run(second.groups.delete(S, "group", GROUP_ID))
    if next_id is not None:
        await world.run(create(second, next_id, "one"))
    if not meets:
        await go_on(scene, gate, late, dies=False)
    await settled(scene, next_id, *(["one"] if next_id is not None else []))


async def test_an_update_that_comes_after_the_mark_of_a_deletion_changes_nothing() -> None:
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(create(first, GROUP_ID, "one"))
    gate = stand_still(scene, first, (lambda one: one.groups.records, "changed", ""))
    late = asyncio.ensure_future(first.groups.update(S, "group", GROUP_ID, 0, group_config("two")))
    await gate.come()
    marked = stand_still(scene, second, SETTLES)
    deletion = asyncio.ensure_future(second.groups.delete(S, "group", GROUP_ID))
    await marked.come()
    gate.opened.set()
    with pytest.raises(NotFound, match="was deleted meanwhile"):
        await world.run(late)
    marked.opened.set()
    assert await world.run(deletion)
    await settled(scene, None)


@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
async def test_a_creation_that_is_refused_late_leaves_nothing_of_the_run_that_found_room(dies: bool) -> None:
    """The one removes the record of the group, the other one has subscribed by then."""
    scene = await scene_of_streams()
    world, first, second = scene.world, scene.first, scene.second
    await world.run(second.quota.set(S, ScopeQuota(2, 9)))
    refused = stand_still(scene, second, OF_DELETION["before the record"])
    refusal = asyncio.ensure_future(create(second, GROUP_ID, "one"))
    await refused.come()
    await world.run(second.quota.set(S, ScopeQuota(3, 9)))
    gate = stand_still(scene, first, OF_CREATION["before it is active"])
    WORKING.set(first.name)
    late = asyncio.ensure_future(create(first, GROUP_ID, "one"))
    await gate.come()
    assert await subscribers(scene, "one") == [SUBSCRIBER]
    refused.opened.set()
    with pytest.raises(QuotaExceeded):
        await world.run(refusal)
    await go_on(scene, gate, late, dies=dies)
    await settled(scene, None)
