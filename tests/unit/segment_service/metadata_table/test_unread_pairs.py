"""A container starts beside damage of its metadata table: only the segments are refused whose entries it hides."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from pravega_common.errors import DataCorruption, SegmentNotFound
from pravega_common.names import index_segment_name
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.metadata_table import segment_loader
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from tests.support.containers import ContainerKit, leave_memory, read_all
from tests.support.eventually import eventually

A, OTHER = "scope/stream/0.#epoch.0", "other"
INDEX = index_segment_name(A)
SOME = AttributeUpdate(AttributeId(b"some attribute 1"), AttributeUpdateType.REPLACE, 1)


def has_records(container: SegmentContainer, records: int) -> bool:
    return container.event_index.records_total >= records


class Kit(ContainerKit):
    """Its table can be damaged, and restored. Nothing is flushed to the table or leaves memory by itself."""

    def __init__(self) -> None:
        super().__init__()
        config = MetadataTableConfig(flush_age_s=3600, idle_s=0.0, look_s=3600, active_max=100)
        self.config = replace(self.config, metadata_table=config, damage_recheck_s=3600.0)
        self.write_to_tier2()
        self.whole: dict[str, bytes] = {}

    def damage(self) -> None:
        self.whole = {name: bytes(data) for name, data in self.stored.objects.items() if "/t/segments/r/" in name}
        self.stored.objects |= {name: bytes(len(data)) for name, data in self.whole.items()}

    def restore(self) -> None:
        self.stored.objects |= self.whole

    async def with_pair(self) -> SegmentContainer:
        """A container with a segment and its index, which left memory, and which no checkpoint has; another stays."""
        container = await self.open()
        await container.create_segment(OTHER)
        await container.create_segment(A)
        for number in range(3):
            await container.append(A, [b"%d" % number * 100])
            await eventually(partial(has_records, container, number + 1), "its record")
        await leave_memory(container, A, INDEX)
        await container.append(OTHER, [b"whole"])
        await container.durable_log.checkpoint()
        last = container.durable_log.last_durable
        assert container._writer is not None
        await container._writer.flush(last)
        await eventually(lambda: container.durable_log._truncated_at == last, "a log that begins there")
        return container

    async def crash(self, container: SegmentContainer) -> None:
        container.fail(RuntimeError("crash"))
        with pytest.raises(RuntimeError, match="crash"):
            await container.wait_stopped()

    async def without_index(self) -> SegmentContainer:
        """A container that has the segment in memory, and cannot read its index."""
        container = await self.with_pair()
        await container.update_attributes(A, [SOME])  # the segment is logged again, its index only came to memory
        await self.crash(container)
        self.damage()
        container = await self.open()
        assert (A in container.metadata.ids, INDEX in container.metadata.ids) == (True, False)
        return container

    async def without_segment(self) -> SegmentContainer:
        """A container that has the index in memory, and cannot read its segment."""
        container = await self.with_pair()
        await container.update_attributes(INDEX, [SOME])
        await self.crash(container)
        self.damage()
        container = await self.open()
        assert (A in container.metadata.ids, INDEX in container.metadata.ids) == (False, True)
        return container

    async def read_again(self, container: SegmentContainer) -> None:
        """Let the container look once, as it does by itself from time to time."""
        container.spawn(container._read_pairs_again(), "read-again")
        await eventually(lambda: not container.metadata.unread_pairs, "what was damaged is read")


async def settled(container: SegmentContainer) -> None:
    """Let the event index do all that it has to."""
    await eventually(lambda: not len(container.metadata.boundaries), "nothing that waits for the event index")
    await container.durable_log.barrier()


async def both_gone(container: SegmentContainer) -> None:
    """The segment and its event index are deleted."""
    for name in (A, INDEX):
        with pytest.raises(SegmentNotFound):
            await container.get_info(name)


async def test_a_damaged_table_stops_no_start() -> None:
    made = Kit()
    container = await made.with_pair()
    await container.seal(A)  # as a scaling does
    await made.crash(container)
    made.damage()
    for _ in range(2):
        container = await made.open()
        assert await read_all(container, OTHER) == b"whole"
        assert await container.append(OTHER, [b""]) == 5
        assert (await container.get_info(A)).is_sealed
        await settled(container)
        assert container.is_running
        await made.crash(container)
    made.restore()
    container = await made.open()
    assert await container.locate_offset(A, 101) == 200
    await container.stop()


async def test_an_index_that_is_not_read_is_the_error_of_those_who_need_it() -> None:
    made = Kit()
    container = await made.without_index()
    [reason] = container.metadata.unread_pairs.values()
    assert "/t/segments/r/" in reason
    with pytest.raises(DataCorruption, match="/t/segments/r/"):
        await container.locate_offset(A, 101)
    with pytest.raises(DataCorruption, match="/t/segments/r/"):
        await container.get_info(INDEX)
    assert await container.append(A, [b"3" * 100]) == 400
    await container.truncate(A, 100)
    assert await read_all(container, A, 100) == b"".join(b"%d" % number * 100 for number in range(1, 4))
    await settled(container)
    assert INDEX not in container.metadata.ids
    await container.table.flush()
    await container.evictor.evict_idle()
    assert A in container.metadata.ids  # alone it could not come back
    made.restore()
    await made.read_again(container)
    index = await container.get_info(INDEX)
    assert index.segment_id == (await container.get_info(A)).segment_id + 1
    await settled(container)
    assert [await container.locate_offset(A, offset) for offset in (100, 101, 201, 301)] == [100, 200, 300, 400]
    await leave_memory(container, A, INDEX)
    await container.stop()


async def test_a_segment_whose_index_is_not_read_can_be_deleted_and_the_index_follows() -> None:
    made = Kit()
    container = await made.without_index()
    await container.delete(A)
    with pytest.raises(SegmentNotFound):
        await container.get_info(A)
    with pytest.raises(DataCorruption):
        await container.get_info(INDEX)
    await settled(container)
    made.restore()
    await made.read_again(container)
    await eventually(lambda: INDEX not in container.metadata.ids, "an index that follows")
    await both_gone(container)
    await container.stop()


@pytest.mark.parametrize("is_restored", [False, True])
async def test_a_segment_that_is_made_again_gets_an_index_of_its_own(is_restored: bool) -> None:
    made = Kit()
    container = await made.without_index()
    await container.delete(A)
    if is_restored:
        made.restore()
    await container.create_segment(A)
    await container.append(A, [b"again"])
    if not is_restored:
        await settled(container)
        with pytest.raises(DataCorruption):
            await container.locate_offset(A, 1)
        made.restore()
        await made.read_again(container)
    await settled(container)
    assert await container.locate_offset(A, 1) == 5
    assert (await container.get_info(INDEX)).length == 24
    await container.stop()


async def test_the_index_of_a_segment_that_is_not_read_stays() -> None:
    made = Kit()
    container = await made.without_segment()
    for call in (container.get_info(A), container.append(A, [b"x"]), container.create_segment(A), container.delete(A)):
        with pytest.raises(DataCorruption, match="/t/segments/r/"):
            await call
    await container.durable_log.barrier()
    assert (await container.get_info(INDEX)).length == 3 * 24
    made.restore()
    await made.read_again(container)
    assert [await container.locate_offset(A, offset) for offset in (1, 101, 201)] == [100, 200, 300]
    await container.delete(A)
    await container.durable_log.barrier()
    await both_gone(container)
    await container.stop()


async def test_a_segment_that_can_be_read_when_it_is_deleted_takes_its_index_with_it() -> None:
    made = Kit()
    container = await made.without_segment()
    made.restore()
    await container.delete(A)
    await container.durable_log.barrier()
    await both_gone(container)
    await container.stop()


@pytest.mark.parametrize("damaged_look_ups_max", [0, 64])
async def test_only_what_is_damaged_is_left_out(damaged_look_ups_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too much damage to look closer at the start, what is whole is read right behind it."""
    monkeypatch.setattr(segment_loader, "damaged_look_ups_max", damaged_look_ups_max)
    made = Kit()
    container = await made.with_pair()
    names = [f"scope/stream/{number}.#epoch.0" for number in range(1, 9)]
    for name in names:
        await container.create_segment(name)
        await leave_memory(container, name, index_segment_name(name))  # each in a file of its own
    for name in (A, *names):
        await container.update_attributes(name, [SOME])
    await made.crash(container)
    newest = max(name for name in made.stored.objects if "/t/segments/r/" in name)
    made.stored.objects[newest] = bytes(len(made.stored.objects[newest]))
    container = await made.open()
    await eventually(lambda: len(container.metadata.unread_pairs) < 8, "those that are whole")
    unread = container.metadata.unread_pairs
    assert 0 < len(unread) < 8
    for name in (A, *names):
        assert (index_segment_name(name) in container.metadata.ids) == (name not in unread)
    await container.stop()
