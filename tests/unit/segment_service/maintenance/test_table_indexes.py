"""Containers with tables whose index is in Tier 2 are copied, examined and restored: no key is lost, none is wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption, SegmentNotFound
from pravega_common.runtime import failpoints
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.table_maps import segment_of_table_map, table_map_name
from segment_service.contracts.table_store import TableEntry, TableKey
from segment_service.maintenance import container_backup
from segment_service.maintenance.backup_files import TIER2
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.findings import ContainerReport
from segment_service.maintenance.read_only import ContainerReader
from segment_service.storage.chunk_names import MapObjectId
from segment_service.tables import paged_index, paging, table_segment
from segment_service.tables.paged_index import PagedKeyIndex
from segment_service.tables.table_extension import TableExtension
from tests.support.backups import LAYOUT, Place, backed_up, flushed, idle, restored, truncated
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually
from tests.support.log_reading import InMemoryLogSource
from tests.unit.segment_service.maintenance.test_tier2_restore import Kit

T = "scope/table"
MAP = table_map_name(1)
keys_max = 120


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "keys_in_memory_max", 10)
    monkeypatch.setattr(paged_index, "flush_keys", 8)
    monkeypatch.setattr(paged_index, "cached_keys_max", 16)
    monkeypatch.setattr(table_segment, "compaction_bytes_min", 3_000)


def key(number: int) -> bytes:
    return b"key-%03d" % number


class Writer:
    """Puts and removes keys, and remembers every state that each of them had: the last is the one it must have."""

    def __init__(self, container: SegmentContainer, seed: int = 0) -> None:
        self.container = container
        self.tables = TableExtension(container, maps=container)
        self.random = random.Random(seed)
        self.states: dict[bytes, list[bytes | None]] = {key(number): [None] for number in range(keys_max)}
        self.number = 0

    async def begin(self) -> None:
        await self.tables.create_table(T)
        await self.work(60)

    async def work(self, steps: int) -> None:
        for _ in range(steps):
            await self.step()

    async def step(self) -> None:
        self.number += 1
        some = [key(number) for number in self.random.sample(range(keys_max), 6)]
        if self.random.random() < 0.75:
            value = b"%d" % self.number + bytes(self.random.choice([0, 60, 2_000]))
            await self.tables.put(T, [TableEntry(one, value) for one in some])
            for one in some:
                self.states[one].append(value)
        else:
            await self.tables.remove(T, [TableKey(one) for one in some])
            for one in some:
                self.states[one].append(None)

    def counts(self) -> dict[bytes, int]:
        """How many states each key had until now."""
        return {one: len(states) for one, states in self.states.items()}

    def now(self) -> dict[bytes, bytes]:
        return {one: states[-1] for one, states in self.states.items() if states[-1] is not None}


async def everything(tables: TableExtension) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    page = await tables.iterate(T, 7)
    while page.entries:
        found |= {entry.key: entry.value for entry in page.entries}
        page = await tables.iterate(T, 7, page.continuation)
    assert (await tables.table_info(T)).entry_count == len(found)
    return found


async def written(kit: ContainerKit) -> Writer:
    writer = Writer(await kit.open())
    await writer.begin()
    await flushed(kit, writer.container)
    await writer.container.table.flush()
    return writer


async def assert_serves(container: SegmentContainer, writer: Writer, before: dict[bytes, int]) -> None:
    """Each key is as it was when the copy began, or later; and so it stays, through a change and a restart."""
    tables = TableExtension(container, maps=container)
    found = await everything(tables)
    for one, states in writer.states.items():
        assert found.get(one) in states[before[one] - 1 :], one
    await tables.put(T, [TableEntry(key(0), b"now"), TableEntry(key(keys_max), b"more")])
    assert await everything(tables) == found | {key(0): b"now", key(keys_max): b"more"}


def index_of(tables: TableExtension) -> PagedKeyIndex:
    index = tables._tables[T].index
    assert isinstance(index, PagedKeyIndex)
    return index


async def stamped(container: SegmentContainer) -> bool:
    """Whether there is an index of this log, before anybody asks for the table."""
    table_map = container.table_map(T, 1)
    await table_map.open()
    return table_map.stamp is not None and table_map.stamp.identity == table_map.identity


async def examined(kit: ContainerKit) -> ContainerReport:
    return await StoreDoctor(kit.chunks, InMemoryLogSource(kit.logs), kit.clock).examine_container(0, deep=True)


def files(kit: ContainerKit) -> list[str]:
    return sorted(name for name in kit.stored.objects if name.startswith(LAYOUT.map_files(MAP)))


def test_names() -> None:
    assert segment_of_table_map(table_map_name(0xABC)) == 0xABC
    for other in (
        "segments",
        "keys-",
        "keys-12",
        "keys-" + "g" * 16,
        "keys-" + "A" * 16,
        "keys-+" + "1" * 15,
        "1" * 16,
    ):
        assert segment_of_table_map(other) is None, other


# --- backup and restore


@pytest.mark.parametrize("seed", range(8))
async def test_a_table_that_is_copied_while_it_changes(tmp_path: Path, seed: int) -> None:
    place, target = Place(), Place()
    await place.mark()
    writer = Writer(await place.open(), seed)
    await writer.begin()
    before = writer.counts()
    await backed_up(place, tmp_path / "b", lambda: writer.work(2))
    await writer.container.stop()
    other = await restored(target, tmp_path / "b")
    assert await stamped(other), "the index came with the backup"
    await assert_serves(other, writer, before)
    await flushed(target, other)
    await other.table.flush()
    report = await examined(target)
    assert (report.findings, report.table_indexes) == ([], 1)
    await other.stop()
    again = await target.open()
    entries = await TableExtension(again, maps=again).get(T, [key(0), key(keys_max)])
    assert [entry.value for entry in entries] == [b"now", b"more"]
    await again.stop()


async def test_the_compactor_cuts_the_log_above_a_copied_index(
    place_with_table: tuple[Place, Writer], tmp_path: Path
) -> None:
    """The copied index lies below the log that comes with it, and is made again."""
    place, writer = place_with_table
    before, cuts = writer.counts(), 0

    async def work() -> None:
        nonlocal cuts
        if (tmp_path / "b" / TIER2 / LAYOUT.map_manifests(MAP)).exists() and cuts < 3:
            cuts += 1
            start = (await writer.container.get_info(T)).start_offset
            while (await writer.container.get_info(T)).start_offset == start:
                await writer.step()

    await backed_up(place, tmp_path / "b", work)
    assert cuts == 3
    await writer.container.stop()
    target = Place()
    other = await restored(target, tmp_path / "b")
    await assert_serves(other, writer, before)
    await other.stop()


@pytest.fixture
async def place_with_table() -> tuple[Place, Writer]:
    place = Place()
    await place.mark()
    return place, await written(place)


async def test_an_index_that_is_damaged_is_not_copied_and_made_again(
    place_with_table: tuple[Place, Writer], tmp_path: Path
) -> None:
    place, writer = place_with_table
    for name in files(place):
        await place.stored.delete_all([name])
    await backed_up(place, tmp_path / "b", idle)
    await writer.container.stop()
    target = Place()
    other = await restored(target, tmp_path / "b")
    assert not await stamped(other)
    await assert_serves(other, writer, writer.counts())
    await other.stop()


async def test_a_table_that_is_deleted_while_it_is_copied(
    place_with_table: tuple[Place, Writer], tmp_path: Path
) -> None:
    """The log is truncated beyond its copy, so that all is looked at again: the index leaves the backup."""
    place, writer = place_with_table
    copied = tmp_path / "b" / TIER2 / LAYOUT.map_manifests(MAP)
    is_deleted = False

    async def removed() -> bool:
        await writer.container._storage.garbage.collect()  # type: ignore[attr-defined]  # a rolling storage
        return not files(place)

    async def work() -> None:
        nonlocal is_deleted
        if copied.exists() and not is_deleted:
            is_deleted = True
            await writer.tables.delete_table(T, must_be_empty=False)
            await flushed(place, writer.container)
            await truncated(place, writer.container)
            await eventually(removed, "the end of the index")

    await backed_up(place, tmp_path / "b", work)
    assert is_deleted and not list(copied.glob("*"))
    await writer.container.stop()
    target = Place()
    other = await restored(target, tmp_path / "b")
    with pytest.raises(SegmentNotFound):
        await TableExtension(other, maps=other).table_info(T)
    await flushed(target, other)
    await other.table.flush()  # it does not know the segment any more
    await other.table_maps.sweep()

    async def swept() -> bool:
        await other._storage.garbage.collect()  # type: ignore[attr-defined]  # a rolling storage
        return not files(target)

    await eventually(swept, "the files of the index")
    await other.stop()


async def test_a_map_that_is_not_known_is_refused(place_with_table: tuple[Place, Writer], tmp_path: Path) -> None:
    place, writer = place_with_table
    await place.stored.put(f"{LAYOUT.maps}newer/m/{1:016x}-{1:016x}", [b"?"])
    with pytest.raises(DataCorruption, match=r"t/newer in Tier 2 is a map that this program does not know"):
        await backed_up(place, tmp_path / "b", idle)
    [finding] = (await examined(place)).findings
    assert finding.kind == "index" and "run the version" in finding.remedy
    await writer.container.stop()


async def test_a_crash_after_an_index_was_copied(place_with_table: tuple[Place, Writer], tmp_path: Path) -> None:
    place, writer = place_with_table
    failpoints.arm(container_backup.INDEX_COPIED, failpoints.raise_on_hit(container_backup.INDEX_COPIED))
    with pytest.raises(failpoints.FailpointError):
        await backed_up(place, tmp_path / "b", idle)
    failpoints.disarm_all()
    await backed_up(place, tmp_path / "c", idle)
    await writer.container.stop()


async def test_a_restore_from_tier2_alone() -> None:
    """The index is ahead of the bytes that Tier 2 has, and of a log that is gone: it is made again."""
    kit = Kit()
    writer = await written(kit)
    before = writer.now()
    assert index_of(writer.tables).covered > 0
    await writer.container.stop()
    kit.logs.restore(0)
    await kit.restore()
    other = await kit.open()
    assert not await stamped(other)
    tables = TableExtension(other, maps=other)
    assert await everything(tables) == before
    await tables.put(T, [TableEntry(key(keys_max), b"more")])
    await eventually(lambda: stamped(other), "the index of the new log")
    await flushed(kit, other)
    await other.table.flush()
    assert (await examined(kit)).findings == []
    await other.stop()


# --- doctor


async def assert_found(place: Place) -> None:
    [finding] = (await examined(place)).findings
    assert (finding.kind, finding.segment_id, finding.segment) == ("index", 1, T)
    assert f"delete all objects below {LAYOUT.maps}{MAP}/" in finding.remedy


async def test_damage_of_an_index_is_found_and_its_remedy_helps(place_with_table: tuple[Place, Writer]) -> None:
    place, writer = place_with_table
    report = await examined(place)
    assert (report.findings, report.table_indexes) == ([], 1)
    expected = writer.now()
    await writer.container.stop()
    manifest = await ContainerReader(place.chunks, 0, place.clock).newest_map(MAP)
    assert manifest is not None
    live = [MapObjectId(file.epoch, file.counter) for run in manifest.runs for file in run.files]
    for name in (LAYOUT.map_manifest(MAP, manifest.id), *(LAYOUT.map_file(MAP, file) for file in live)):
        sound = bytes(place.stored.objects[name])
        for damaged in (sound[:-1], bytes([sound[0] ^ 1]) + sound[1:]):
            place.stored.objects[name] = damaged
            await assert_found(place)
        await place.stored.delete_all([name])
        if "/r/" in name:
            await assert_found(place)
        await place.stored.put(name, [sound])
    for name in [one for one in place.stored.objects if one.startswith(f"{LAYOUT.maps}{MAP}/")]:
        await place.stored.delete_all([name])
    container = await place.open()
    assert await everything(TableExtension(container, maps=container)) == expected
    await container.stop()
