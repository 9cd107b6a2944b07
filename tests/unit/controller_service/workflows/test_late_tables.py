"""Deletions of key-value tables that race with a table of the same name: nothing in use goes, nothing deleted stays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from pravega_common.errors import NotFound, UnknownOutcome
from pravega_common.names import table_segment_name
from tests.support.gate import Gate
from tests.support.stream_audit import requests_left
from tests.support.transaction_world import WORKING, Instance
from tests.support.workflow_steps import S, Scene, scene_of_two

PARTITIONS = 3


async def create(scene: Scene, one: Instance) -> bool:
    world = scene.world
    new = KeyValueTableRecord(world.new_id(), world.clock.wall_ms(), ScopeMemberState.CREATING, PARTITIONS, 4, 0)
    return await one.tables.create(S, "table", new)


def segments_from(number: int) -> set[str]:
    return {table_segment_name(S, "table", number + index) for index in range(PARTITIONS)}


async def settled(scene: Scene, *, has_table: bool) -> None:
    """Long after: the segments are those of the table, if there is one, and nothing waits."""
    world = scene.world
    await world.clock.pass_time(200)
    record = await scene.second.tables.records.get(S, "table")
    assert (record is not None) is has_table
    if record is None:
        assert world.segments.tables == {}
    else:
        assert record.state is ScopeMemberState.ACTIVE and record.first_segment_number is not None
        assert set(world.segments.tables) == segments_from(record.first_segment_number)
    assert await requests_left(world.store) == 0
    await world.close()


@pytest.mark.parametrize("step", ["change", "delete_table_segment", "remove"])
async def test_a_deletion_that_stood_still_leaves_the_next_table_of_the_name_alone(step: str) -> None:
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    assert await world.run(create(scene, first))
    stands_still = Gate(world)
    owner: Any = first.segments if step == "delete_table_segment" else first.tables.records
    late = asyncio.ensure_future(first.tables.delete(S, "table"))
    stands_still.at(owner, step)
    await stands_still.come()
    assert await world.run(second.tables.delete(S, "table"))
    assert await world.run(create(scene, second))
    made = set(world.segments.tables)
    stands_still.opened.set()
    await world.run(asyncio.wait({late}))
    assert set(world.segments.tables) == made
    await settled(scene, has_table=True)


async def test_a_table_has_other_segments_in_each_life_of_its_name() -> None:
    scene = await scene_of_two()
    for life in range(3):
        assert await scene.world.run(create(scene, scene.first))
        assert set(scene.world.segments.tables) == segments_from(life * PARTITIONS)
        assert await scene.world.run(scene.second.tables.delete(S, "table"))
    await settled(scene, has_table=False)


@pytest.mark.parametrize("answer", ["comes", "is lost"])
@pytest.mark.parametrize("is_made_again", [False, True])
async def test_segments_that_a_slow_creation_makes_are_taken_away(is_made_again: bool, answer: str) -> None:
    """It stands still before it makes them; the other controller deletes the table."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    if answer == "is lost":
        lose_answer(first)
    creation = Gate(world)
    creation.at(first.segments, "create_table_segment")
    late = asyncio.ensure_future(create(scene, first))
    await creation.come()
    assert await world.run(second.tables.delete(S, "table"))
    if is_made_again:
        assert await world.run(create(scene, second))
    # So late that no request to delete them again waits any more.
    await world.clock.pass_time(100)
    creation.opened.set()
    await world.run(asyncio.wait({late}))
    await settled(scene, has_table=is_made_again)


async def test_a_creation_whose_number_came_too_late_does_not_choose_for_the_next_table() -> None:
    """It has read where the first table of the name begins; the next one begins behind that."""
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    number = Gate(world)
    number.at(first.tables.records, "change")
    late = asyncio.ensure_future(create(scene, first))
    await number.come()
    assert await world.run(create(scene, second)) is False
    assert await world.run(second.tables.delete(S, "table"))
    assert await world.run(create(scene, second))
    number.opened.set()
    await world.run(asyncio.wait({late}))
    assert isinstance(late.exception(), NotFound)
    assert set(world.segments.tables) == segments_from(PARTITIONS)
    await settled(scene, has_table=True)


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_segments_of_a_controller_that_dies_before_it_could_take_them_away_are_deleted(
    is_made_again: bool,
) -> None:
    scene = await scene_of_two()
    world, first, second = scene.world, scene.first, scene.second
    first_segment = table_segment_name(S, "table", 0)
    create_table_segment = first.segments.create_table_segment

    async def last(segment: str, *args: Any) -> None:
        await create_table_segment(segment, *args)
        if segment == first_segment:
            first.switch.crash()

    first.segments.create_table_segment = last
    creation = Gate(world)
    creation.at(first.segments, "create_table_segment", first_segment)
    WORKING.set(first.name)
    begun = asyncio.ensure_future(create(scene, first))
    await creation.come()
    world.live.discard(first.name)
    assert await world.run(second.tables.delete(S, "table"))
    if is_made_again:
        assert await world.run(create(scene, second))
    kept = set(world.segments.tables)
    creation.opened.set()
    await world.clock.pass_time(1)
    assert first.switch.crashed and set(world.segments.tables) > kept
    begun.cancel()
    await settled(scene, has_table=is_made_again)


def lose_answer(one: Instance) -> None:
    """Have the next making of a segment do its work and fail."""
    method = one.segments.create_table_segment

    async def lost(*args: Any) -> None:
        one.segments.create_table_segment = method
        await method(*args)
        raise UnknownOutcome("the answer was lost")

    one.segments.create_table_segment = lost
