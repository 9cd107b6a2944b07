"""Writers' attributes leave memory, and each writer goes on where it was, whatever happened meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pravega_common.errors import (
    BadAttributeUpdate,
    ContainerOffline,
    DataCorruption,
    Fenced,
    SegmentNotFound,
    Unavailable,
)
from segment_service.attribute_index import attribute_index
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import (
    ATTRIBUTES_IN_TIER2,
    CREATION_TIME,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
    is_core,
)
from segment_service.contracts.table_maps import ATTRIBUTE_MAPS, attribute_map_name
from segment_service.metadata.snapshot import write_snapshot
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from tests.support.containers import ContainerKit, leave_memory, read_all
from tests.support.event_writers import hold_few, writer
from tests.support.eventually import eventually

S = "scope/stream/0.#epoch.0"
EQUALS = AttributeUpdateType.REPLACE_IF_EQUALS
REPLACE = AttributeUpdateType.REPLACE


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    hold_few(monkeypatch, 20, held_hard_max=60, many_min=5)


def kit() -> ContainerKit:
    """Nothing is flushed to the table by itself."""
    made = ContainerKit()
    made.config = replace(
        made.config, metadata_table=MetadataTableConfig(flush_age_s=3600, idle_s=0, look_s=3600, active_max=100)
    )
    made.write_to_tier2()
    return made


def compare(number: int, value: int, before: int = NULL_ATTRIBUTE_VALUE) -> AttributeUpdate:
    return AttributeUpdate(writer(number), EQUALS, value, before)


def held(container: SegmentContainer, segment: str = S) -> dict[AttributeId, int]:
    found = container.metadata.by_name(segment)
    assert found is not None
    return {key: value for key, value in found.attributes.items() if not is_core(key)}


async def write(container: SegmentContainer, numbers: Sequence[int], value: int, segment: str = S) -> None:
    """Each writer appends as its event of this number what follows its last one."""
    for number in numbers:
        last = await container.get_attribute(segment, writer(number))
        await container.append(segment, [b"x"], [compare(number, value, last)])


async def evicted(container: SegmentContainer, segment: str = S) -> None:
    """Let attributes leave memory that are too many."""
    found = container.metadata.by_name(segment)
    assert found is not None
    container.metadata.held.look(found)
    await eventually(lambda: not container.attributes._evicting, "the end of an eviction")
    assert container.metadata.by_name(segment) is not found or len(held(container, segment)) <= 20


async def with_writers(made: ContainerKit, count: int = 50) -> SegmentContainer:
    container = await made.open()
    await container.create_segment(S)
    await write(container, range(count), 1)
    await evicted(container)
    return container


async def values(container: SegmentContainer, count: int = 50, segment: str = S) -> list[int]:
    return [await container.get_attribute(segment, writer(number)) for number in range(count)]


async def test_what_leaves_comes_back_when_it_is_asked_for() -> None:
    container = await with_writers(kit())
    assert len(held(container)) == 15
    assert writer(49) in held(container)  # the one that came last
    assert await values(container) == [1] * 50
    assert await container.get_attribute(S, writer(50)) == NULL_ATTRIBUTE_VALUE
    await container.stop()


async def test_a_writer_that_left_is_still_deduplicated() -> None:
    container = await with_writers(kit())
    assert writer(0) not in held(container)
    with pytest.raises(BadAttributeUpdate):
        await container.append(S, [b"again"], [compare(0, 1)])
    await container.append(S, [b"next"], [compare(0, 2, 1)])
    assert await container.get_attribute(S, writer(0)) == 2
    assert await read_all(container, S) == b"x" * 50 + b"next"
    await container.stop()


async def test_calls_wait_in_order_for_one_read() -> None:
    container = await with_writers(kit())
    reads = container.attributes.read_total
    appended = [container.append(S, [b"%d" % number], [compare(0, number + 1, number)]) for number in range(1, 6)]
    other = container.append(S, [b"other"], [compare(49, 2, 1)])
    sealed = container.seal(S)
    assert await asyncio.gather(*appended, other) == [51, 52, 53, 54, 55, 60]
    assert await sealed == 60
    assert container.attributes.read_total == reads + 1
    assert await read_all(container, S) == b"x" * 50 + b"12345other"
    await container.stop()


async def test_many_writers_that_left_come_back_by_few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them holds up the segment while it waits."""
    container = await with_writers(kit())
    waits: list[tuple[Any, ...]] = []
    bring = container.attributes.bring

    def noted(*call: Any) -> None:
        waits.append(call)
        bring(*call)

    monkeypatch.setattr(container.attributes, "bring", noted)
    missing = [number for number in range(50) if writer(number) not in held(container)]
    assert len(missing) > 30
    await asyncio.gather(*(container.append(S, [b"y"], [compare(number, 2, 1)]) for number in missing))
    assert len(waits) < 5
    assert await values(container) == [2 if number in missing else 1 for number in range(50)]
    await container.stop()


async def test_writers_that_set_up_together_cost_one_look_up() -> None:
    container = await with_writers(kit())
    look_ups = container.attributes.look_ups_total
    assert await asyncio.gather(*(container.get_attribute(S, writer(number)) for number in range(30))) == [1] * 30
    assert container.attributes.look_ups_total == look_ups + 1
    await container.stop()


async def test_damage_is_the_error_of_the_writers_that_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    container = await with_writers(kit())
    found = container.metadata.by_name(S)
    assert found is not None
    index = container.attributes.map_of(found)
    get_many = index.get_many

    async def with_damage(keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if writer(3) in keys:
            raise DataCorruption("a block is damaged")
        return await get_many(keys)

    monkeypatch.setattr(index, "get_many", with_damage)
    answers = await asyncio.gather(
        *(container.get_attribute(S, writer(number)) for number in range(6)), return_exceptions=True
    )
    assert [type(one) is DataCorruption for one in answers] == [number == 3 for number in range(6)]
    await container.stop()


async def test_one_update_brings_all_that_it_needs() -> None:
    container = await with_writers(kit())
    reads = container.attributes.read_total
    await container.update_attributes(S, [AttributeUpdate(writer(number), REPLACE, 7) for number in range(10)])
    assert container.attributes.read_total == reads + 10
    assert await values(container, 10) == [7] * 10
    await container.stop()


async def test_an_update_of_more_than_may_stay_goes_on() -> None:
    container = await with_writers(kit())
    await container.update_attributes(S, [AttributeUpdate(writer(number), REPLACE, 7) for number in range(45)])
    await container.durable_log.checkpoint()
    assert await values(container) == [7] * 45 + [1] * 5
    await container.stop()


async def test_checkpoints_and_the_record_of_the_segment_have_only_what_is_in_memory() -> None:
    made = kit()
    container = await with_writers(made, 55)
    assert len(write_snapshot(container.metadata, container.metadata.segments.values())) < 30 * 24 + 400
    await container.stop()


@pytest.mark.parametrize("checkpoints", [0, 1])
async def test_a_restart_has_the_last_values(checkpoints: int) -> None:
    made = kit()
    container = await with_writers(made)
    await write(container, range(0, 50, 3), 2)
    for _ in range(checkpoints):
        await container.durable_log.checkpoint()
        await eventually(lambda: container.durable_log.acknowledged >= container.durable_log.last_durable, "Tier 2")
    await write(container, range(0, 50, 7), 3)
    await evicted(container)
    await container.stop()
    container = await made.open()
    expected = [3 if number % 7 == 0 else 2 if number % 3 == 0 else 1 for number in range(50)]
    assert await values(container) == expected
    await container.stop()


async def test_a_segment_that_left_memory_comes_back_with_its_index() -> None:
    made = kit()
    container = await with_writers(made)
    await leave_memory(container, S)
    assert await values(container) == [1] * 50
    await write(container, range(5), 2)
    await leave_memory(container, S)
    await container.stop()
    container = await made.open()
    assert await values(container) == [2] * 5 + [1] * 45
    await container.stop()


async def test_a_replay_that_began_before_compares_what_both_have() -> None:
    made = kit()
    container = await with_writers(made)
    await leave_memory(container, S)
    await write(container, [0, 49], 2)
    await container.stop()
    container = await made.open()
    assert await values(container) == [2] + [1] * 48 + [2]
    await container.stop()


async def test_an_attribute_that_is_removed_stays_away() -> None:
    made = kit()
    container = await with_writers(made)
    remove = AttributeUpdate(writer(0), REPLACE, NULL_ATTRIBUTE_VALUE)
    await container.update_attributes(S, [remove])
    assert writer(0) not in (await container.get_info(S)).attributes
    await container.stop()
    container = await made.open()
    assert await container.get_attribute(S, writer(0)) == NULL_ATTRIBUTE_VALUE
    await write(container, range(1, 50), 2)
    await evicted(container)
    assert writer(0) not in held(container)
    assert await container.get_attribute(S, writer(0)) == NULL_ATTRIBUTE_VALUE
    await container.append(S, [b"first"], [compare(0, 1)])
    await container.stop()


async def test_a_busy_writer_stays() -> None:
    container = await with_writers(kit())
    for round_ in range(3):
        await write(container, range(100 * round_ + 100, 100 * round_ + 112), 1)
        await write(container, [49], round_ + 2)
        await evicted(container)
        assert writer(49) in held(container)
    await container.stop()


async def test_what_is_on_its_way_to_the_log_stays() -> None:
    container = await with_writers(kit())
    await values(container, 5)  # they come back, and are not changed
    found = container.metadata.by_name(S)
    assert found is not None
    pending = [container.append(S, [b"y"], [compare(number, 2, 1)]) for number in range(5)]
    await evicted(container)
    await asyncio.gather(*pending)
    assert await values(container) == [2] * 5 + [1] * 45
    await container.stop()


async def test_a_segment_that_never_comes_to_rest_forgets_what_was_staged() -> None:
    container = await with_writers(kit(), 10)
    stop = asyncio.Event()

    async def keep_busy(number: int) -> None:
        value = 1
        while not stop.is_set():
            await container.append(S, [b"y"], [compare(number, value + 1, value)])
            value += 1

    busy = [asyncio.ensure_future(keep_busy(number)) for number in range(5)]
    await write(container, range(100, 140), 1)
    await evicted(container)
    entry = container.durable_log._updater._staged.get(1)
    assert entry is None or len(entry.attributes) < 20
    stop.set()
    await asyncio.gather(*busy)
    await container.stop()


async def test_a_segment_with_far_too_many_waits_for_tier_2() -> None:
    made = kit()
    container = await made.open()
    await container.create_segment(S)
    await asyncio.gather(*(container.append(S, [b"x"], [compare(number, 1)]) for number in range(70)))
    container.metadata.held.gone(1)
    await container.append(S, [b"x"], [compare(70, 1)])
    assert len(held(container)) < 30
    assert await values(container, 71) == [1] * 71
    await container.stop()


async def with_unread_index(made: ContainerKit) -> SegmentContainer:
    """A container that has read nothing of the index."""
    container = await with_writers(made)
    await container.durable_log.checkpoint()
    await eventually(lambda: container.durable_log.acknowledged >= container.durable_log.last_durable, "Tier 2")
    await leave_memory(container, S)
    await container.stop()
    container = await made.open()
    await container.get_info(S)
    assert writer(0) not in held(container)
    return container


async def test_a_tier_2_that_is_away_refuses_only_who_needs_it() -> None:
    made = kit()
    container = await with_unread_index(made)
    made.chunks.stop()
    with pytest.raises(Unavailable):
        await container.append(S, [b"y"], [compare(0, 2, 1)])
    with pytest.raises(Unavailable):
        await container.get_attribute(S, writer(0))
    await container.append(S, [b"y"], [compare(49, 2, 1)])
    made.chunks.resume()
    await container.append(S, [b"y"], [compare(0, 2, 1)])
    await container.stop()


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_an_index_that_cannot_be_read_refuses_only_who_needs_it_of_those_that_wait(is_damaged: bool) -> None:
    made = kit()
    container = await with_unread_index(made)
    if is_damaged:
        for name in [name for name in made.stored.objects if f"/{attribute_map_name(1)}/r/" in name]:
            made.stored.objects[name] = bytes(len(made.stored.objects[name]))
    else:
        made.chunks.stop()
    needs = [container.append(S, [b"y"], [compare(0, 2, 1)]), container.append(S, [b"y"], [compare(0, 3, 2)])]
    others = [container.append(S, [b"z"], [compare(49, 2, 1)]), container.append(S, [b"z"], [compare(49, 3, 2)])]
    needs += [container.append(S, [b"y"], [compare(1, 2, 1)]), container.append(S, [b"y"], [compare(0, 4, 3)])]
    sealed = container.seal(S)
    for call in needs:
        with pytest.raises(DataCorruption if is_damaged else Unavailable):
            await call
    assert await asyncio.gather(*others) == [51, 52]
    assert await sealed == 52
    made.chunks.resume()
    await container.stop()


async def test_attributes_stay_while_tier_2_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attribute_index, "retry_delay_s", 0.01)
    made = kit()
    container = await made.open()
    await container.create_segment(S)
    await write(container, range(30), 1)
    made.chunks.stop()
    found = container.metadata.by_name(S)
    assert found is not None
    container.metadata.held.look(found)
    await eventually(lambda: not container.attributes._evicting, "the end of an attempt")
    assert len(held(container)) == 30
    made.chunks.resume()
    await evicted(container)
    assert len(held(container)) == 15
    assert await values(container, 30) == [1] * 30
    await container.stop()


@pytest.mark.parametrize("is_merged", [False, True])
async def test_the_index_goes_with_its_segment(is_merged: bool) -> None:
    made = kit()
    container = await with_writers(made)
    name = attribute_map_name(1)
    assert await container._maps.map_names(ATTRIBUTE_MAPS) == [name]
    if is_merged:
        await container.create_segment("target")
        await container.merge("target", S)
    else:
        await container.delete(S)
    await eventually(lambda: 1 not in container.metadata.segments, "Tier 2 is through with it")

    async def removed() -> bool:
        await container.durable_log.barrier()
        await container._storage.garbage.collect()  # type: ignore[attr-defined]  # a rolling storage
        return not [key for key in made.stored.objects if f"/{name}/" in key]

    await eventually(removed, "the end of its objects")
    with pytest.raises(SegmentNotFound):
        await container.get_attribute(S, writer(0))
    await container.stop()


async def test_an_index_that_was_lost_is_no_answer() -> None:
    made = kit()
    container = await with_writers(made)
    await container.durable_log.checkpoint()
    await leave_memory(container, S)
    await container.stop()
    for name in [name for name in made.stored.objects if f"/{attribute_map_name(1)}/" in name]:
        await made.stored.delete_all([name])
    container = await made.open()
    assert await container.get_attribute(S, CREATION_TIME) > 0
    with pytest.raises(DataCorruption, match="Tier 2 lost it"):
        await container.get_attribute(S, writer(0))
    await container.stop()


async def test_an_owner_that_was_overtaken_takes_the_end_of_an_index_for_no_damage() -> None:
    """The later owner deleted the segment; the earlier one, which slept, still has it in memory."""
    made = kit()
    earlier = await with_writers(made)
    earlier.attributes._used.clear()
    later = await made.open()
    await later.delete(S)
    name = f"/{attribute_map_name(1)}/"

    async def removed() -> bool:
        await later.durable_log.barrier()
        await later._storage.garbage.collect()  # type: ignore[attr-defined]  # a rolling storage
        return not [key for key in made.stored.objects if name in key]

    await eventually(removed, "the end of the index")
    missing = next(one for one in map(writer, range(50)) if one not in held(earlier))
    with pytest.raises((Fenced, Unavailable, ContainerOffline)):  # as it noticed by itself meanwhile, or not
        await earlier.get_attribute(S, missing)
    await later.stop()


async def test_a_sealed_segment_is_only_read() -> None:
    container = await with_writers(kit())
    await container.seal(S)
    count = len(held(container))
    assert await values(container) == [1] * 50
    assert len(held(container)) == count
    await container.stop()


async def test_another_segment_of_the_name_gets_no_index() -> None:
    container = await with_writers(kit())
    found = container.metadata.by_name(S)
    assert found is not None
    await container.delete(S)
    await container.create_segment(S)
    with pytest.raises(SegmentNotFound):
        await container.durable_log.note_index(found, 1)
    assert ATTRIBUTES_IN_TIER2 not in (await container.get_info(S)).attributes
    await container.stop()


async def test_a_segment_that_is_made_again_gets_no_index_of_the_one_on_its_way_out() -> None:
    """Neither its end nor the new one is durable yet: a restart would look for an index that never was."""
    made = kit()
    container = await with_writers(made)
    found = container.metadata.by_name(S)
    assert found is not None
    deleted = asyncio.ensure_future(container.delete(S))
    created = asyncio.ensure_future(container.create_segment(S))
    await asyncio.sleep(0)  # both are in the queue now
    noted = asyncio.ensure_future(container.durable_log.note_index(found, 7))
    await asyncio.gather(deleted, created)
    with pytest.raises(SegmentNotFound):
        await noted
    assert ATTRIBUTES_IN_TIER2 not in (await container.get_info(S)).attributes
    await container.stop()
    container = await made.open()
    assert await container.get_attribute(S, writer(0)) == NULL_ATTRIBUTE_VALUE
    await container.stop()
