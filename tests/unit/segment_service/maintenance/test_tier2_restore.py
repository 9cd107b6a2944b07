"""A container whose log is gone starts from Tier 2 alone: what Tier 2 held is served, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from dataclasses import replace

import pytest

from pravega_common.errors import DataCorruption, FailedError, PravegaError, SegmentNotFound
from pravega_common.names import index_segment_name, transaction_segment_name
from pravega_common.runtime import failpoints
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import EVENT_COUNT, AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.data_log import DurableDataLog
from segment_service.contracts.table_store import TableEntry
from segment_service.maintenance import tier2_restore
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.restore_plan import RestorePlan, ShorterSegment
from segment_service.maintenance.tier2_restore import Tier2Restore
from segment_service.metadata.back_pressure import StoreBackPressure
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from segment_service.sorted_runs import run_writer
from segment_service.storage import rolling_storage
from segment_service.storage.chunk_names import Layout
from segment_service.tables.table_extension import TableExtension
from segment_service.writer.storage_writer import WriterConfig
from tests.support.backups import flushed, write_names
from tests.support.containers import ContainerKit, IdleWriter, read_all
from tests.support.damaged_map import damage_shared
from tests.support.eventually import eventually
from tests.support.fakes.data_log import InMemoryDataLog
from tests.support.log_reading import InMemoryLogSource

LAYOUT = Layout(0)
WRITER = AttributeId(bytes(15) + b"w")
STREAM = "scope/stream/0.#epoch.0"
STEPS = [
    tier2_restore.LOG_STARTED,
    tier2_restore.MARKED,
    tier2_restore.TABLE_FLUSHED,
    tier2_restore.TABLE_STAMPED,
    tier2_restore.CHECKPOINT_WRITTEN,
    tier2_restore.TRUNCATED,
]


class Kit(ContainerKit):
    """Containers whose metadata tables are flushed when a test says so, and their restore."""

    def __init__(self) -> None:
        super().__init__()
        self.write_to_tier2()
        self.config = replace(self.config, metadata_table=MetadataTableConfig(flush_age_s=3600.0))

    async def start_over(self, container_id: int, epoch_min: int) -> DurableDataLog:
        log = InMemoryDataLog(container_id, self.logs)
        await log.initialize(epoch_min)
        return log

    async def restore(self) -> RestorePlan:
        restore = Tier2Restore(self.chunks, 0, self, self.clock)
        plan = await restore.plan()
        assert plan is not None
        await restore.carry_out(plan)
        return plan


objects_alone = pytest.mark.parametrize("kit", [False], ids=["alone"], indirect=True)
"""For tests that look for objects of a segment in Tier 2 itself."""


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def kit(request: pytest.FixtureRequest) -> Kit:
    """Small objects of its Tier 2 are objects of their own, or share others."""
    kit = Kit()
    kit.shares_objects = request.param
    return kit


async def crash(container: SegmentContainer) -> None:
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()


async def append(container: SegmentContainer, name: str, data: bytes, number: int) -> None:
    await container.append(name, [data], [AttributeUpdate(WRITER, AttributeUpdateType.REPLACE, number)])


async def written(kit: Kit) -> tuple[SegmentContainer, dict[str, bytes]]:
    """A container of which Tier 2 has everything: appended, sealed, truncated, merged, deleted segments."""
    container = await kit.open()
    content = {}
    for number in range(8):
        name = f"segment-{number}"
        await container.create_segment(name)
        for block in range(3):
            await append(container, name, b"%d-%d," % (number, block) * 5_000, block)
            await flushed(kit, container)
        content[name] = await read_all(container, name)
    await container.create_segment("transaction")
    await container.append("transaction", [b"merged"])
    await container.merge("segment-0", "transaction")
    content["segment-0"] += b"merged"
    await container.seal("segment-1")
    await container.truncate("segment-2", 30_000)
    content["segment-2"] = content["segment-2"][30_000:]
    await container.delete("segment-3")
    del content["segment-3"]
    await flushed(kit, container)
    await container.table.flush()
    return container, content


async def assert_serves(container: SegmentContainer, content: dict[str, bytes]) -> None:
    for name, data in content.items():
        info = await container.get_info(name)
        assert info.length - info.start_offset == len(data), name
        assert await read_all(container, name, info.start_offset) == data, name


async def assert_refused(kit: Kit) -> None:
    before = set(kit.stored.objects), [entry.address for entry in kit.logs.entries(0)]
    container = kit.make()
    with pytest.raises(DataCorruption, match="run pravega-spark store restore"):
        await container.start()
    assert (set(kit.stored.objects), [entry.address for entry in kit.logs.entries(0)]) == before


async def test_what_tier2_holds_is_served_after_the_loss_of_the_log(kit: Kit) -> None:
    container, content = await written(kit)
    identity, epoch = container.metadata.identity, container.epoch
    await container.stop()
    kit.logs.restore(0)
    await assert_refused(kit)
    plan = await kit.restore()
    assert (plan.segments, plan.finished, plan.shorter.count, plan.damaged.count, plan.nameless.count) == (
        7,
        0,
        0,
        0,
        0,
    )
    assert plan.length == sum(map(len, content.values()))
    for _ in range(2):
        container = await kit.open()
        assert container.metadata.identity != identity and container.epoch > epoch + 1
        await assert_serves(container, content)
        for gone in ("segment-3", "transaction"):
            with pytest.raises(SegmentNotFound):
                await container.get_info(gone)
        assert (await container.get_info("segment-1")).is_sealed
        assert await container.get_attribute("segment-4", WRITER) == 2
        await container.append("segment-4", [b"more"])
        await container.create_segment(f"new-{container.epoch}")
        content["segment-4"] += b"more"
        await assert_serves(container, content)
        await flushed(kit, container)
        assert container.metadata.quarantine.reason(1) is None
        report = await StoreDoctor(kit.chunks, InMemoryLogSource(kit.logs), kit.clock).examine_container(0, deep=True)
        assert report.findings == []
        await container.stop()


async def test_bytes_that_only_the_log_had_are_reported(kit: Kit) -> None:
    container, content = await written(kit)
    held = {name: (await container.get_info(name)).length for name in ("segment-4", "segment-5")}
    kit.chunks.stop()
    await append(container, "segment-4", b"lost" * 100, 7)
    await append(container, "segment-5", b"unknown", 7)
    kit.chunks.resume()
    kit.writer_factory = IdleWriter
    await crash(container)
    container = await kit.open()  # nothing comes to Tier 2 but the table
    for segment_id, segment in container.metadata.segments.items():
        if segment.name == "segment-5":
            container.metadata.changes.stored()
        elif segment.name == "segment-4":
            container.metadata.changes.note(segment_id)
    await container.table.flush()
    await crash(container)
    kit.logs.restore(0)
    kit.write_to_tier2()
    plan = await kit.restore()
    known = held["segment-4"] + 400
    assert ShorterSegment("segment-4", known, held["segment-4"]) in plan.shorter.items
    assert plan.high_water >= plan.table_high_water > 0
    container = await kit.open()
    await assert_serves(container, content)
    await container.append("segment-4", [b"goes on"])
    assert (await read_all(container, "segment-4")).endswith(b"goes on")
    await flushed(kit, container)
    await container.stop()


async def test_bytes_beyond_the_last_flush_of_the_table_are_served(kit: Kit) -> None:
    """The manifests are ahead: their bytes count, and the writer's number is as the table has it."""
    container, content = await written(kit)
    await append(container, "segment-4", b"later", 9)
    await flushed(kit, container)
    await crash(container)
    kit.logs.restore(0)
    plan = await kit.restore()
    assert plan.shorter.count == 0
    content["segment-4"] += b"later"
    container = await kit.open()
    await assert_serves(container, content)
    assert await container.get_attribute("segment-4", WRITER) == 2
    await container.stop()


async def under_load(kit: Kit) -> SegmentContainer:
    """A container that brings to Tier 2 what makes a write of full size, and leaves the rest to its time."""
    kit.back_pressure = StoreBackPressure(64 << 20)
    kit.write_to_tier2(WriterConfig(flush_age_s=3600.0, tick_s=0.01))
    return await kit.open()


async def lose_tier1(kit: Kit, container: SegmentContainer, name: str) -> SegmentContainer:
    """The restored container, which lost some of the segment's bytes."""
    segment = container.metadata.by_name(name)
    assert segment is not None
    await eventually(lambda: segment.storage_length > 0, "a write comes to Tier 2")
    await container.table.flush()
    await crash(container)
    kit.logs.restore(0)
    assert (await kit.restore()).shorter.count == 1
    return await kit.open()


async def test_a_segment_ends_with_a_whole_append(kit: Kit) -> None:
    """Else it would go on behind a torn event, which no reader comes past."""
    container = await under_load(kit)
    await container.create_segment("segment")
    event = b"event" * 600_000
    await asyncio.gather(*(container.append("segment", [event]) for _ in range(7)))
    container = await lose_tier1(kit, container, "segment")
    assert await read_all(container, "segment") == event * 5
    await container.stop()


async def test_a_table_ends_with_a_whole_record(kit: Kit) -> None:
    """Else its log could not be read any more."""
    container = await under_load(kit)
    tables = TableExtension(container)
    await tables.create_table("table")
    entries = [TableEntry(b"key-%02d" % number, bytes([number]) * 900_000) for number in range(20)]
    await asyncio.gather(*(tables.put("table", [entry]) for entry in entries))
    container = await lose_tier1(kit, container, "table")
    tables = TableExtension(container)
    found = await tables.get("table", [entry.key for entry in entries])
    assert [one.value for one in found] == [entry.value for entry in entries[:18]] + [b"", b""]
    await tables.put("table", [entries[19]])
    await container.stop()


async def test_a_table_that_was_compacted_has_its_old_entries(kit: Kit) -> None:
    """Its log is not cut before Tier 2 has the copies: the container dies when the first cut of it shows there."""
    container = await kit.open()
    tables = TableExtension(container)
    await tables.create_table("table")
    await tables.put("table", [TableEntry(b"cold", b"old")])
    await flushed(kit, container)
    await container.table.flush()
    failpoints.arm(rolling_storage.TRUNCATE_MANIFEST_STORED, lambda: container.fail(RuntimeError("crash")))
    with contextlib.suppress(PravegaError):
        for _ in range(1_000):
            await tables.put("table", [TableEntry(b"hot", bytes(50_000))])
            await asyncio.sleep(0.001)  # the storage writer has a clock of its own
    with pytest.raises(RuntimeError):
        await container.wait_stopped()
    failpoints.disarm_all()
    kit.logs.restore(0)
    await kit.restore()
    container = await kit.open()
    found = await TableExtension(container).get("table", [b"cold", b"hot"])
    assert [one.value for one in found] == [b"old", bytes(50_000)]
    await container.stop()


@objects_alone
async def test_a_segment_made_after_the_last_flush_is_nameless(kit: Kit) -> None:
    container, content = await written(kit)
    await container.create_segment("new")
    await container.append("new", [b"bytes"])
    segment_id = container.metadata.ids["new"]
    await flushed(kit, container)
    storage = container._storage
    await storage.sweeper.sweep()  # type: ignore[attr-defined]
    assert (await storage.newest_mark()).has_journals  # type: ignore[union-attr]
    await crash(container)
    kit.logs.restore(0)
    plan = await kit.restore()
    assert plan.nameless.items == [ShorterSegment(f"id {segment_id}", 5, 0)]
    container = await kit.open()
    await assert_serves(container, content)
    await container.create_segment("new")
    assert container.metadata.ids["new"] > segment_id and await read_all(container, "new") == b""
    storage = container._storage
    assert not (await storage.newest_mark()).has_journals  # type: ignore[union-attr]  # all segments are swept
    await storage.sweeper.sweep()  # type: ignore[attr-defined]
    assert (await storage.newest_mark()).has_journals  # type: ignore[union-attr]
    # The bytes are kept.
    assert [name for name in kit.stored.objects if name.startswith(LAYOUT.chunks_of(segment_id))]
    await container.stop()


async def test_bytes_of_a_container_whose_table_was_never_flushed_are_nameless(kit: Kit) -> None:
    """Tier 1 was lost in the first half minute of a container: its table has no entry at all."""
    container = await kit.open()
    await container.create_segment("new")
    await container.append("new", [b"bytes"])
    segment_id = container.metadata.ids["new"]
    await flushed(kit, container)
    await crash(container)
    kit.logs.restore(0)
    plan = await kit.restore()
    assert plan.nameless.items == [ShorterSegment(f"id {segment_id}", 5, 0)]
    container = await kit.open()
    await container.create_segment("new")
    assert container.metadata.ids["new"] > segment_id and await read_all(container, "new") == b""
    await container.stop()


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_a_restore_may_be_interrupted_anywhere(kit: Kit, step: str, older: bool) -> None:
    container, content = await written(kit)
    copy = kit.logs.backup(0)
    await append(container, "segment-4", b"later", 9)
    await flushed(kit, container)
    content["segment-4"] += b"later"
    await crash(container)
    kit.logs.restore(0, copy if older else None)
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(FailedError):
        await kit.restore()
    failpoints.disarm_all()
    is_done = step == tier2_restore.TRUNCATED or (step == tier2_restore.CHECKPOINT_WRITTEN and not older)
    if not is_done:
        container = kit.make()
        with pytest.raises(DataCorruption):
            await container.start()
        await kit.restore()
    container = await kit.open()
    await assert_serves(container, content)
    await container.append("segment-4", [b"more"])
    await flushed(kit, container)
    await container.stop()


async def test_an_owner_from_before_is_fenced(kit: Kit) -> None:
    container, content = await written(kit)
    await kit.restore()
    with pytest.raises(PravegaError):
        await container.append("segment-4", [b"zombie"])
    successor = await kit.open()
    await assert_serves(successor, content)
    await successor.stop()


@pytest.mark.parametrize("step", [rolling_storage.CONCAT_TARGET_STORED, rolling_storage.CONCAT_BARRIER_PASSED])
async def test_a_merge_that_tier2_has_half_is_finished(kit: Kit, step: str) -> None:
    container, content = await written(kit)
    await container.create_segment("half")
    await container.append("half", [b"once"])
    await flushed(kit, container)
    await container.table.flush()
    hits: list[str] = []

    def die() -> None:
        hits.append(step)
        raise failpoints.FailpointError(step)

    failpoints.arm(step, die)
    await container.merge("segment-4", "half")
    content["segment-4"] += b"once"
    await eventually(lambda: bool(hits), "the merge comes to Tier 2")
    await crash(container)
    failpoints.disarm_all()
    kit.logs.restore(0)
    plan = await kit.restore()
    assert plan.finished == 1
    container = await kit.open()
    await assert_serves(container, content)
    with pytest.raises(SegmentNotFound):
        await container.get_info("half")
    await container.stop()


@pytest.mark.parametrize("is_merged", [True, False])
async def test_a_transaction_whose_bytes_may_be_merged_already_is_named(kit: Kit, is_merged: bool) -> None:
    """An owner that finds part of a merge in the target writes the rest from the cache, and then deletes the source."""
    source = transaction_segment_name(STREAM, uuid.UUID(int=7))
    container = await kit.open()
    for name, data in ((STREAM, b"before"), (source, b"merged bytes")):
        await container.create_segment(name)
        await container.append(name, [data])
    await flushed(kit, container)
    await container.table.flush()
    written = b"merged bytes" if is_merged else b"appended"
    storage = container._storage
    await storage.write(container.metadata.ids[STREAM], len(b"before"), [written], None)
    await crash(container)
    kit.logs.restore(0)
    plan = await kit.restore()
    assert plan.maybe_merged.items == ([ShorterSegment(source, len(b"merged bytes"), 0)] if is_merged else [])
    container = await kit.open()
    await assert_serves(container, {STREAM: b"before" + written, source: b"merged bytes"})
    await container.stop()


async def test_a_merge_that_tier2_has_not_may_be_made_again(kit: Kit) -> None:
    container, content = await written(kit)
    await container.create_segment("open")
    await container.append("open", [b"of a transaction"])
    await flushed(kit, container)
    await container.table.flush()
    kit.chunks.stop()
    await container.merge("segment-4", "open")
    await crash(container)
    kit.chunks.resume()
    kit.logs.restore(0)
    await kit.restore()
    container = await kit.open()
    await assert_serves(container, content | {"open": b"of a transaction"})
    await container.merge("segment-4", "open")
    await flushed(kit, container)
    await container.durable_log.checkpoint()
    content["segment-4"] += b"of a transaction"
    await container.stop()
    container = await kit.open()
    await assert_serves(container, content)
    await container.stop()


@objects_alone
async def test_a_segment_with_damaged_manifests_is_quarantined_alone(kit: Kit) -> None:
    container, content = await written(kit)
    ids = dict(container.metadata.ids)
    await container.stop()
    kit.logs.restore(0)
    last = max(name for name in kit.stored.objects if name.startswith(LAYOUT.manifests_of(ids["segment-5"])))
    kit.stored.objects[last] = kit.stored.objects[last][:-1] + b"?"
    for name in [one for one in kit.stored.objects if one.startswith(LAYOUT.manifests_of(ids["segment-6"]))]:
        await kit.stored.delete_all([name])
    plan = await kit.restore()
    assert sorted(one.name for one in plan.damaged.items) == ["segment-5", "segment-6"]
    container = await kit.open()
    for name in ("segment-5", "segment-6"):
        del content[name]
        with pytest.raises(PravegaError):
            await read_all(container, name)
    await assert_serves(container, content)
    await container.stop()


async def test_an_event_index_that_is_ahead_is_made_again(kit: Kit) -> None:
    container = await kit.open()
    await container.create_segment(STREAM)
    await append_events(container, 5)
    await flushed(kit, container)
    index = index_segment_name(STREAM)
    await eventually(lambda: index_length(container) > 0, "an index")
    await flushed(kit, container)
    await container.table.flush()
    data = await read_all(container, STREAM)
    before = (await container.get_info(index)).length
    await append_events(container, 5)  # the table's attributes of the index are behind now
    await eventually(lambda: index_length(container) > before, "a longer index")
    await flushed(kit, container)
    data = await read_all(container, STREAM)
    await crash(container)
    kit.logs.restore(0)
    plan = await kit.restore()
    assert plan.indexes == 1
    container = await kit.open()
    assert await read_all(container, STREAM) == data
    assert await container.locate_offset(STREAM, 1) == len(data)
    await append_events(container, 5)
    await eventually(lambda: container.metadata.by_name(index) is not None, "the index is made again")
    assert await container.locate_offset(STREAM, len(data) + 1) >= len(data) + 1
    await container.stop()


def index_length(container: SegmentContainer) -> int:
    found = container.metadata.by_name(index_segment_name(STREAM))
    return 0 if found is None else found.length


async def append_events(container: SegmentContainer, count: int) -> None:
    for _ in range(count):
        update = AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 1)
        await container.append(STREAM, [bytes(40_000)], [update])


async def test_nothing_is_restored_where_nothing_was(kit: Kit) -> None:
    assert await Tier2Restore(kit.chunks, 0, kit, kit.clock).plan() is None


async def test_damage_to_the_map_of_shared_objects_is_damage_to_the_segments_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_writer, "block_bytes", 1)  # an entry each
    kit = Kit()
    kit.shares_objects = True
    container = await kit.open()
    names = [f"segment-{number}" for number in range(8)]
    await write_names(kit, container, names)
    segment_id = container.metadata.ids[names[3]]
    await container.stop()
    kit.logs.restore(0)
    assert damage_shared(kit.stored, LAYOUT, LAYOUT.manifests_of(segment_id))
    plan = await kit.restore()
    damaged = [one.name for one in plan.damaged.items]
    # A seek reads the block before, too: that of the next segment's first entry, if it is of the same flush.
    assert damaged in (names[3:4], names[3:5])
    container = await kit.open()
    await assert_serves(container, {name: name.encode() for name in names if name not in damaged})
    await container.stop()
