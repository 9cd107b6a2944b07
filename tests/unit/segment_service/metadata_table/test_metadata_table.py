"""The metadata table of a container: what it has of each segment, and what is refused at a start."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace

import pytest

from pravega_common.errors import DataCorruption, SegmentNotFound
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.segment_record import read_record
from segment_service.metadata.snapshot import read_snapshot, write_snapshot
from segment_service.metadata.table_changes import Taken
from segment_service.metadata_table.metadata_table import MetadataTableConfig, id_key, name_key, stored_length
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually

WRITER = AttributeId(b"writer-number-01")


async def entry(container: SegmentContainer, name: str) -> SegmentMetadata | None:
    value = await container.table.table.get(name_key(name))
    return None if value is None else read_record(value)


async def flushed(container: SegmentContainer) -> None:
    """Everything is in Tier 2, and the table has been flushed after that."""
    await eventually(lambda: container.durable_log.memory_length == 0, "all is in Tier 2")
    await container.table.flush()


def kit() -> ContainerKit:
    made = ContainerKit()
    made.write_to_tier2()
    return made


async def test_it_has_all_that_is_known_of_a_segment() -> None:
    made = kit()
    container = await made.open()
    await container.create_segment("s")
    update = AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, 5)
    await container.append("s", [b"bytes"], [update])
    await container.truncate("s", 2)
    await container.seal("s")
    await flushed(container)
    found = await entry(container, "s")
    assert found == container.metadata.by_name("s")
    assert found is not None
    assert (found.length, found.start_offset, found.is_sealed, found.attributes[WRITER]) == (5, 2, True, 5)
    length = await container.table.table.get(id_key(found.segment_id))
    assert length is not None
    assert stored_length(length) == 5
    await container.stop()


async def test_an_append_without_bytes_is_noted() -> None:
    container = await kit().open()
    await container.create_segment("s")
    await flushed(container)
    await container.append("s", [], [AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, 7)])
    await flushed(container)
    found = await entry(container, "s")
    assert found is not None
    assert found.attributes[WRITER] == 7
    await container.stop()


async def test_segments_that_are_gone_leave_it() -> None:
    container = await kit().open()
    for name in ("kept", "source", "deleted"):
        await container.create_segment(name)
        await container.append(name, [b"x"])
    await flushed(container)
    await container.merge("kept", "source")
    await container.delete("deleted")
    await container.create_segment("deleted")
    await flushed(container)
    assert await entry(container, "source") is None
    again = await entry(container, "deleted")
    assert again is not None
    assert again.segment_id == 4
    entries = await container.table.table.scan(b"", 100)
    assert [key for key, _ in entries] == [id_key(1), id_key(4), name_key("deleted"), name_key("kept")]
    await container.stop()


async def test_a_name_that_comes_back_during_a_flush_and_goes_again_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second segment of the name never comes to the table, so nobody removes the entry of the first one later."""
    container = await kit().open()
    await container.create_segment("s")
    await flushed(container)
    await container.delete("s")
    make_entries = container.table._entries  # between a flush's choice of changes and its look at them

    async def entries_after_a_creation(taken: Taken) -> dict[bytes, bytes | None]:
        await container.create_segment("s")
        return await make_entries(taken)

    with monkeypatch.context() as patch:
        patch.setattr(container.table, "_entries", entries_after_a_creation)
        await container.table.flush()
    await container.delete("s")
    await flushed(container)
    assert await entry(container, "s") is None
    await container.create_segment("s")
    await container.stop()


async def test_a_deletion_that_the_table_has_is_not_remembered_while_tier2_lacks_it() -> None:
    """A later segment of the name may be in the table by then, and nowhere else."""
    container = await kit().open()
    await container.create_segment("s")
    await flushed(container)
    metadata = container.metadata
    deleted = metadata.by_name("s")
    assert deleted is not None
    await container.delete("s")
    await eventually(lambda: container.durable_log.memory_length == 0, "all is in Tier 2")
    metadata.segments[deleted.segment_id] = deleted  # as before that
    assert dict(read_snapshot(write_snapshot(metadata, [deleted])).changes.gone()) == {deleted.segment_id: "s"}
    await container.table.flush()
    assert not dict(read_snapshot(write_snapshot(metadata, [deleted])).changes.gone())
    del metadata.segments[deleted.segment_id]
    await container.stop()


@pytest.mark.parametrize("is_flushed", [False, True])
async def test_a_deletion_is_remembered_by_checkpoints_until_the_table_has_it(is_flushed: bool) -> None:
    made = kit()
    container = await made.open()
    await container.create_segment("s")
    await flushed(container)
    await container.delete("s")
    if is_flushed:
        await flushed(container)
    await eventually(lambda: container.durable_log.memory_length == 0, "the deletion is in Tier 2")
    await container.durable_log.checkpoint()
    await eventually(lambda: container.durable_log.memory_length == 0, "the log is truncated at the checkpoint")
    await container.stop()
    container = await made.open()
    assert container.metadata.changes.is_gone("s") is not is_flushed
    await container.table.flush()
    assert await entry(container, "s") is None
    await container.stop()


async def test_an_entry_made_while_a_deletion_and_a_checkpoint_are_under_way_goes() -> None:
    """The checkpoint was made before the flush, so it cannot tell from the table that there is something to remove."""
    made = kit()
    container = await made.open()
    await container.create_segment("s")
    made.logs.faults.hold()
    under_way = [asyncio.ensure_future(one) for one in (container.delete("s"), container.durable_log.checkpoint())]
    for _ in range(20):
        await asyncio.sleep(0)  # both are on their way to the log
    await container.table.flush()
    assert await entry(container, "s") is not None
    made.logs.faults.release()
    await asyncio.gather(*under_way)
    await eventually(lambda: container.durable_log.memory_length == 0, "the log is truncated at the checkpoint")
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await container.wait_stopped()
    container = await made.open()
    with pytest.raises(SegmentNotFound):
        await container.get_info("s")
    await container.table.flush()
    assert await entry(container, "s") is None
    await container.stop()


async def test_it_is_flushed_by_age() -> None:
    made = kit()
    made.config = replace(made.config, metadata_table=MetadataTableConfig(flush_age_s=0.01))
    container = await made.open()
    await container.create_segment("s")
    await eventually(lambda: container.table.flushes_total > 0, "a flush by age")
    assert await entry(container, "s") is not None
    await container.stop()


async def test_a_failing_tier2_is_tried_until_it_answers() -> None:
    made = kit()
    made.config = replace(made.config, metadata_table=MetadataTableConfig(flush_age_s=0.01))
    container = await made.open()
    made.chunks.stop()
    calls = made.chunks.calls
    await container.create_segment("s")
    await eventually(lambda: made.chunks.calls > calls, "an attempt that fails")
    made.chunks.resume()
    await eventually(lambda: container.table.flushes_total > 0, "a flush")
    assert container.is_running
    await container.stop()


async def test_an_older_log_is_refused_by_the_table_alone() -> None:
    made = kit()
    container = await made.open()
    older = made.logs.backup(0)
    await container.create_segment("s")
    await container.table.flush()
    await container.stop()
    for name in [name for name in made.stored.objects if "/e/" in name]:
        await made.stored.delete_all([name])
    made.logs.restore(0, older)
    with pytest.raises(DataCorruption, match=r"older copy of Tier 1.*the metadata table in Tier 2 says that operation"):
        await made.open()


async def test_a_fresh_log_beside_a_table_is_refused() -> None:
    made = kit()
    container = await made.open()
    await container.create_segment("s")
    await container.table.flush()
    await container.stop()
    for name in [name for name in made.stored.objects if "/t/" not in name]:
        await made.stored.delete_all([name])
    made.logs = type(made.logs)()
    with pytest.raises(DataCorruption, match=r"Tier 1 was lost.*/t/segments/"):
        await made.open()


async def test_a_table_that_is_lost_or_older_is_refused() -> None:
    made = kit()
    container = await made.open()
    await container.create_segment("a")
    await container.table.flush()
    older = dict(made.stored.objects)
    await container.create_segment("b")
    await container.table.flush()
    await container.durable_log.checkpoint()
    await container.stop()
    for objects in (older, {}):
        for name in [name for name in made.stored.objects if "/t/" in name and name not in objects]:
            await made.stored.delete_all([name])
        with pytest.raises(DataCorruption, match="Tier 2 was lost, or an older copy of it came back"):
            await made.open()


def test_keys_sort_by_kind_and_number() -> None:
    assert id_key(255) < id_key(256) < name_key("")
    assert id_key(1) == b"i" + struct.pack(">Q", 1)
