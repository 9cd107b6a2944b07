"""Segments that nobody uses leave memory, and come back as they were at their next use, whatever that is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from pravega_common.errors import (
    BadOffset,
    DataCorruption,
    SegmentDamaged,
    SegmentExists,
    SegmentMerged,
    SegmentNotFound,
    Unavailable,
)
from pravega_common.names import index_segment_name, transient_segment_name
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.metadata.snapshot import write_snapshot
from segment_service.metadata_table import eviction
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.backups import flushed
from tests.support.containers import ContainerKit, leave_memory, read_all
from tests.support.eventually import eventually
from tests.support.tier2_garbage import collect_all

WRITER = AttributeId(b"writer-number-01")
STREAM_SEGMENT = "scope/stream/0.#epoch.0"


def kit(idle_s: float = 0.0) -> ContainerKit:
    """Nothing is flushed to the table or leaves memory by itself."""
    made = ContainerKit()
    made.config = replace(
        made.config, metadata_table=MetadataTableConfig(flush_age_s=3600, idle_s=idle_s, look_s=3600, active_max=100)
    )
    made.write_to_tier2()
    return made


async def with_segment(made: ContainerKit, name: str = "s") -> SegmentContainer:
    container = await made.open()
    await container.create_segment(name)
    await container.append(name, [b"one"], [AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, 1)])
    await leave_memory(container, name)
    assert not container.metadata.segments
    return container


async def test_it_comes_back_with_its_id_and_attributes() -> None:
    container = await with_segment(kit())
    assert container.state_in_memory("s") is None
    info = await container.get_info("s")
    assert container.state_in_memory("s") == (info.start_offset, info.length, info.is_sealed, info.last_modified_ms)
    assert (info.segment_id, info.length, info.storage_length, info.attributes[WRITER]) == (1, 3, 3, 1)
    await leave_memory(container, "s")
    assert await container.get_attribute("s", WRITER) == 1
    await leave_memory(container, "s")
    assert await read_all(container, "s") == b"one"
    await container.stop()


@pytest.mark.parametrize("life_s", [0.0, 3_600.0])
async def test_a_transient_segment_of_a_store_that_died_is_deleted_once_nobody_uses_it(
    monkeypatch: pytest.MonkeyPatch, life_s: float
) -> None:
    """The connection that made it would have deleted it; until then a client may go on with it after a pause."""
    monkeypatch.setattr(eviction, "transient_life_s", life_s)
    made = kit()
    container = await made.open()
    name = transient_segment_name(STREAM_SEGMENT, b"w" * 16, b"u" * 16)
    await container.create_segment(name)
    await container.append(name, [b"piece"])
    await flushed(made, container)
    await container.stop()
    container = await made.open()
    for _ in range(20):  # all that is in Tier 2 and in the table
        await flushed(made, container)
        await container.table.flush()
        await container.durable_log.barrier()
        await container.evictor.evict_idle()
    if life_s:
        assert await read_all(container, name) == b"piece" and not container.loader.loaded_total
    else:
        with pytest.raises(SegmentNotFound):
            await container.get_info(name)
    await container.stop()


async def test_appends_wait_in_order_for_one_look_up() -> None:
    made = kit()
    container = await with_segment(made)
    calls = [container.append("s", [b"%d" % number], expected_offset=3 + number) for number in range(5)]
    other = container.create_segment("other")
    assert await asyncio.gather(*calls) == [4, 5, 6, 7, 8]
    await other
    assert container.loader.loaded_total == 1
    assert await read_all(container, "s") == b"one01234"
    with pytest.raises(BadOffset):
        await container.append("s", [b"x"], expected_offset=1)
    await container.stop()


async def test_a_writer_is_still_deduplicated() -> None:
    container = await with_segment(kit())
    update = AttributeUpdate(WRITER, AttributeUpdateType.REPLACE_IF_EQUALS, 2, comparison=1)
    await container.append("s", [b"two"], [update])
    await leave_memory(container, "s")
    with pytest.raises(Exception, match="attribute"):
        await container.append("s", [b"two"], [update])
    assert await read_all(container, "s") == b"onetwo"
    await container.stop()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_every_operation_brings_it_back(is_restarted: bool) -> None:
    made = kit()
    container = await with_segment(made)

    async def again(container: SegmentContainer) -> SegmentContainer:
        await leave_memory(container, *container.metadata.ids)
        if not is_restarted:
            return container
        await container.stop()
        container = await made.open()
        await leave_memory(container, *container.metadata.ids)
        return container

    container = await again(container)
    await container.truncate("s", 1)
    container = await again(container)
    await container.update_attributes("s", [AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, 8)])
    container = await again(container)
    with pytest.raises(SegmentExists):
        await container.create_segment("s")
    await container.create_segment("source")
    await container.append("source", [b"+source"])
    container = await again(container)
    merged = await container.merge("s", "source")
    assert merged.target_length == 10
    container = await again(container)
    with pytest.raises(SegmentMerged):
        await container.merge("s", "source")
    assert await container.seal("s") == 10
    container = await again(container)
    info = await container.get_info("s")
    assert (info.segment_id, info.start_offset, info.length, info.is_sealed) == (1, 1, 10, True)
    assert info.attributes[WRITER] == 8
    assert await read_all(container, "s", 1) == b"ne+source"
    container = await again(container)
    await container.delete("s")
    with pytest.raises(SegmentNotFound):
        await container.get_info("s")
    container = await again(container)
    with pytest.raises(SegmentNotFound):
        await container.append("s", [b"x"])
    await container.create_segment("s")
    assert (await container.get_info("s")).segment_id > 2
    await container.stop()


async def test_calls_on_a_merge_that_waits_stay_in_order() -> None:
    container = await with_segment(kit(), "source")
    await container.create_segment("target")
    merge = asyncio.ensure_future(container.merge("target", "source"))
    await asyncio.sleep(0)
    append = container.append("target", [b"behind"])
    assert (await merge).target_length == 3
    assert await append == 9
    assert await read_all(container, "target") == b"onebehind"
    await container.stop()


async def test_an_event_index_comes_and_goes_with_its_segment() -> None:
    made = kit()
    container = await made.open()
    await container.create_segment(STREAM_SEGMENT)
    await container.append(STREAM_SEGMENT, [b"event"])
    index = index_segment_name(STREAM_SEGMENT)
    await eventually(lambda: container.event_index.records_total == 1, "its record")
    await leave_memory(container, STREAM_SEGMENT, index)
    await container.get_info(index)
    assert {STREAM_SEGMENT, index} == container.metadata.ids.keys()
    await leave_memory(container, STREAM_SEGMENT, index)
    assert await container.locate_offset(STREAM_SEGMENT, 1) == 5
    await container.append(STREAM_SEGMENT, [b"another"])
    await eventually(lambda: container.event_index.records_total == 2, "the next record")
    await leave_memory(container, STREAM_SEGMENT, index)
    await container.stop()
    container = await made.open()
    await container.append(STREAM_SEGMENT, [b"!"])
    await container.delete(STREAM_SEGMENT)
    await container.durable_log.barrier()
    for name in (STREAM_SEGMENT, index):
        with pytest.raises(SegmentNotFound):
            await container.get_info(name)
    await container.stop()


async def test_who_waits_at_the_end_keeps_it() -> None:
    container = await kit().open()
    await container.create_segment("s")
    await container.create_segment("other")
    waiting = asyncio.ensure_future(container.read("s", 0, 10))
    await leave_memory(container, "other")
    assert "s" in container.metadata.ids
    await container.append("s", [b"bytes"])
    assert (await waiting).length == 5
    await leave_memory(container, "s")
    await container.stop()


async def test_what_was_used_of_late_stays() -> None:
    container = await kit(idle_s=3600).open()
    for number in range(101):
        await container.create_segment(f"s{number}")
    await container.table.flush()
    await eventually(lambda: container.durable_log.memory_length == 0, "all is in Tier 2")
    await container.evictor.evict_idle()
    assert len(container.metadata.segments) == 100  # one more than may be in memory
    await container.stop()


async def test_checkpoints_hold_what_is_active() -> None:
    made = kit()
    container = await made.open()
    for number in range(50):
        await container.create_segment(f"idle-{number}")
    await leave_memory(container, *(f"idle-{number}" for number in range(50)))
    await container.create_segment("active")
    await container.get_info("idle-7")
    staged = container.durable_log._updater.staged_segments()  # private: what the next checkpoint holds
    assert [segment.name for segment in staged] == ["active"]
    assert len(write_snapshot(container.metadata, staged)) < 250
    first = made.logs.container(0).entries[0].address
    await container.durable_log.checkpoint()
    await container.stop()
    container = await made.open()
    await eventually(lambda: made.logs.container(0).entries[0].address != first, "the log is truncated")
    await container.stop()
    container = await made.open()
    assert len(container.metadata.segments) <= 2
    assert (await container.get_info("idle-9")).segment_id == 10
    await container.stop()


async def test_an_older_checkpoint_that_has_it_does_not_hide_it_from_a_later_start() -> None:
    """A start from an older checkpoint than the one at which the log is truncated next must log its state again."""
    made = kit()
    container = await made.open()
    await container.create_segment("s")
    await container.append("s", [b"one"])
    await leave_memory(container, "s")
    await container.durable_log.checkpoint()
    made.chunks.stop()  # so that the log is not truncated at that checkpoint yet
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()
    made.chunks.resume()
    container = await made.open()
    assert "s" in container.metadata.ids  # an older checkpoint has it
    first = made.logs.container(0).entries[0].address
    await container.delete("s")
    await eventually(lambda: made.logs.container(0).entries[0].address != first, "the log is truncated")
    await container.stop()
    container = await made.open()
    with pytest.raises(SegmentNotFound):
        await container.get_info("s")
    await container.stop()


async def test_absent_names_are_asked_for_once() -> None:
    made = kit()
    container = await with_segment(made)
    for _ in range(3):
        with pytest.raises(SegmentNotFound):
            await container.get_info("absent")
        with pytest.raises(SegmentNotFound):
            await container.append("absent", [b"x"])
    calls = made.chunks.calls
    with pytest.raises(SegmentNotFound):
        await container.get_info("absent")
    assert made.chunks.calls == calls
    await container.stop()


async def looked_up_while(container: SegmentContainer, name: str, change: Callable[[], Awaitable[None]]) -> None:
    """Look a name up; ``change`` happens between the first answer of the table and its arrival."""
    get_many, changes = container.table.table.get_many, [change]

    async def late(keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await get_many(keys)
        if changes:
            await changes.pop()()
        return found

    looked_up: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container.table.table, "get_many", late)
        container.loader.bring(name, looked_up.set_result)
        assert await looked_up is None
    assert not changes


async def test_an_answer_from_before_a_deletion_brings_nothing_back() -> None:
    made = kit()
    container = await with_segment(made)
    await container.get_info("s")

    async def delete() -> None:
        await container.delete("s")
        await eventually(lambda: not container.metadata.segments, "Tier 2 is through with it")
        await container.table.flush()

    await looked_up_while(container, "s", delete)
    assert container.state_in_memory("s") is None
    with pytest.raises(SegmentNotFound):
        await container.get_info("s")
    await container.create_segment("s")
    await container.stop()


async def test_an_answer_from_before_a_creation_hides_nothing() -> None:
    made = kit()
    container = await with_segment(made)

    async def create() -> None:
        await container.create_segment("t")
        await container.append("t", [b"later"])
        await leave_memory(container, "t")

    await looked_up_while(container, "t", create)
    assert await read_all(container, "t") == b"later"
    await container.stop()


async def test_a_tier2_that_is_away_fails_the_call_and_nothing_else() -> None:
    made = kit()
    container = await with_segment(made)
    container._maps.cache._parts.clear()  # type: ignore[attr-defined]  # private: the look-up must go to Tier 2
    made.chunks.stop()
    with pytest.raises(Unavailable):
        await container.get_info("s")
    with pytest.raises(Unavailable):
        await container.append("s", [b"x"])
    made.chunks.resume()
    assert await container.append("s", [b"x"]) == 4
    assert container.is_running
    await container.stop()


@pytest.mark.parametrize("is_damaged", [False, True])
async def test_a_merge_whose_source_cannot_be_looked_up_fails_nothing_else(is_damaged: bool) -> None:
    made = kit()
    container = await with_segment(made, "source")
    await container.create_segment("target")
    container._maps.cache._parts.clear()  # type: ignore[attr-defined]  # private: the look-up must go to Tier 2
    if is_damaged:
        damage_table(made)
    else:
        made.chunks.stop()
    merge = asyncio.ensure_future(container.merge("target", "source"))
    await asyncio.sleep(0)
    behind = [container.append("target", [b"%d" % number], expected_offset=number) for number in range(3)]
    on_source = container.append("source", [b"x"])
    for call in (merge, on_source):
        with pytest.raises(DataCorruption if is_damaged else Unavailable):
            await call
    assert await asyncio.gather(*behind) == [1, 2, 3]
    assert not container.durable_log._processor._parked.names  # type: ignore[union-attr]  # private: it waits for none
    made.chunks.resume()
    await container.stop()


async def test_a_damaged_entry_is_refused_and_named() -> None:
    made = kit()
    container = await with_segment(made)
    container._maps.cache._parts.clear()  # type: ignore[attr-defined]  # private: the look-up must go to Tier 2
    name = next(name for name in made.stored.objects if "/t/segments/r/" in name)
    made.stored.objects[name] = bytes(len(made.stored.objects[name]))
    for call in (container.get_info("s"), container.append("s", [b"x"])):
        with pytest.raises(DataCorruption, match=name):
            await call
    assert container.is_running
    await container.stop()


async def test_a_crash_forgets_nothing_of_what_left_memory() -> None:
    made = kit()
    container = await with_segment(made)
    await container.durable_log.checkpoint()
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()
    container = await made.open()
    assert await container.append("s", [b"two"]) == 6
    assert await read_all(container, "s") == b"onetwo"
    assert (await container.get_info("s")).attributes[WRITER] == 1
    await container.stop()


@pytest.mark.parametrize("of_all", [False, True])
async def test_a_sweep_keeps_the_chunks_of_a_segment_that_lost_its_manifests_while_it_was_not_in_memory(
    of_all: bool,
) -> None:
    made = kit()
    container = await with_segment(made)
    await container.create_segment("sealed")
    await container.append("sealed", [b"kept"])
    await leave_memory(container)
    await container.stop()
    container = await made.open()
    await leave_memory(container)
    storage = container._storage
    assert isinstance(storage, RollingStorage)
    assert (await storage.sweeper.sweep()).orphans == 0
    chunks = {name for name in made.stored.objects if "/d/" in name}
    for name in [name for name in made.stored.objects if f"/m/{1:016x}/" in name]:
        await made.stored.delete_all([name])
    storage._manifests.forget(1)  # private: as the next owner, who knows nothing of it
    if of_all:
        storage._marks.has_journals = False  # private: as after a program that kept none
        with pytest.raises(SegmentDamaged, match="must have at least 3"):
            await storage.sweeper.sweep()
    else:
        assert await storage.sweeper.sweep() == (0, 0)
    await collect_all(storage)
    assert chunks <= made.stored.objects.keys()
    await container.stop()


async def test_a_later_segment_of_the_name_of_one_that_is_gone_outlives_two_crashes() -> None:
    """A replay may begin at a checkpoint before the flush that removed the earlier one's entry, and go past one that
    leaves the later segment out: it must not remember the earlier one, as the entry of that name is the later one's."""
    made = kit()
    container = await made.open()
    await container.create_segment("s")
    await container.table.flush()
    await container.delete("s")
    await container.create_segment("s")
    await container.append("s", [b"later"])
    await in_tier2(container)
    await container.durable_log.checkpoint()
    await in_tier2(container)
    await leave_memory(container, "s")
    made.chunks.stop()  # so that the log goes on to begin at the first checkpoint
    await container.durable_log.checkpoint()
    await crash(container)
    made.chunks.resume()
    for _ in range(2):
        container = await made.open()
        await in_tier2(container)
        await crash(container)
    container = await made.open()
    assert await read_all(container, "s") == b"later"
    await container.table.flush()
    await container.stop()
    container = await made.open()
    assert await read_all(container, "s") == b"later"
    await container.stop()


def damage_table(made: ContainerKit) -> None:
    """Overwrite all files of the metadata table with zeros."""
    for name in [name for name in made.stored.objects if "/t/segments/r/" in name]:
        made.stored.objects[name] = bytes(len(made.stored.objects[name]))


async def in_tier2(container: SegmentContainer) -> None:
    await eventually(lambda: container.durable_log.memory_length == 0, "everything is in Tier 2")


async def crash(container: SegmentContainer) -> None:
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()
