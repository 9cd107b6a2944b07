"""The attributes of writers that left memory go with a backup, are examined, and survive a restore."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import (
    ATTRIBUTES_IN_TIER2,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
    is_core,
)
from segment_service.contracts.table_maps import attribute_map_name
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.findings import ContainerReport
from tests.support.backups import LAYOUT, Place, backed_up, flushed, idle, restored, truncated
from tests.support.containers import ContainerKit
from tests.support.event_writers import hold_few, writer
from tests.support.log_reading import InMemoryLogSource
from tests.unit.segment_service.maintenance.test_tier2_restore import Kit

S = "scope/stream/0.#epoch.0"
writers = 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    hold_few(monkeypatch, 10)


class Writers:
    """Appends an event of each writer in turn, as it would after it connected again."""

    def __init__(self, container: SegmentContainer) -> None:
        self.container = container
        self.last = dict.fromkeys(range(writers), 0)
        self._turn = 0

    async def work(self, count: int) -> None:
        for _ in range(count):
            number, self._turn = self._turn % writers, self._turn + 1
            value, before = self.last[number] + 1, await self.container.get_attribute(S, writer(number))
            assert max(before, 0) == self.last[number]
            update = AttributeUpdate(writer(number), AttributeUpdateType.REPLACE_IF_EQUALS, value, before)
            await self.container.append(S, [b"x"], [update])
            self.last[number] = value


async def known(container: SegmentContainer) -> dict[int, int]:
    return {number: max(await container.get_attribute(S, writer(number)), 0) for number in range(writers)}


async def begun(kit: ContainerKit) -> Writers:
    container = await kit.open()
    await container.create_segment(S)
    made = Writers(container)
    await made.work(2 * writers)
    await flushed(kit, container)
    await container.table.flush()
    await made.work(writers)
    found = container.metadata.by_name(S)
    assert found is not None
    assert sum(not is_core(key) for key in found.attributes) < writers // 2
    return made


async def examined(kit: ContainerKit) -> ContainerReport:
    return await StoreDoctor(kit.chunks, InMemoryLogSource(kit.logs), kit.clock).examine_container(0, deep=True)


async def test_a_backup_while_writers_go_on(tmp_path: Path) -> None:
    place, target = Place(), Place()
    await place.mark()
    made = await begun(place)
    before = dict(made.last)
    await backed_up(place, tmp_path / "b", lambda: made.work(3))
    await made.container.stop()
    other = await restored(target, tmp_path / "b")
    found = await known(other)
    assert sum(found.values()) == (await other.get_info(S)).length, "each event is counted once"
    assert all(before[number] <= value <= made.last[number] for number, value in found.items())
    await flushed(target, other)
    await other.table.flush()
    report = await examined(target)
    assert (report.findings, report.attribute_indexes) == ([], 1)
    await other.stop()


@pytest.mark.parametrize("lost", ["files", "a manifest's bytes"])
async def test_a_damaged_index_is_found_and_is_as_damaged_in_a_backup(lost: str, tmp_path: Path) -> None:
    """The backup names it, and has everything else; who is on record in memory or in the log may go on."""
    place, target = Place(), Place()
    await place.mark()
    made = await begun(place)
    await truncated(place, made.container)  # most writers are on record in the index alone
    await made.container.stop()
    index = attribute_map_name(1)
    if lost == "files":
        for name in [name for name in place.stored.objects if name.startswith(LAYOUT.map_files(index))]:
            await place.stored.delete_all([name])
    else:
        newest = max(name for name in place.stored.objects if name.startswith(LAYOUT.map_manifests(index)))
        data = await place.stored.get(newest, 0, (await place.stored.info(newest)).length)
        await place.stored.delete_all([newest])
        await place.stored.put(newest, [data[:-1] + bytes([data[-1] ^ 1])])
    report = await examined(place)
    assert [finding.segment_id for finding in report.findings if finding.kind == "index"] == [1]
    assert "restore the object from a copy" in report.findings[0].remedy
    outcome = await backed_up(place, tmp_path / "b", idle)
    assert (outcome.damaged, outcome.damaged_indexes) == ((), ((0, 1),))
    other = await restored(target, tmp_path / "b")
    assert (await other.get_info(S)).length == 3 * writers
    refused = 0
    for number, value in made.last.items():
        try:
            assert await other.get_attribute(S, writer(number)) == value
        except DataCorruption:
            refused += 1
    assert 0 < refused < writers
    await other.stop()


async def index_objects(place: Place) -> dict[str, bytes]:
    index = f"{LAYOUT.maps}{attribute_map_name(1)}/"
    names = [name for name in place.stored.objects if name.startswith(index)]
    return {name: bytes(await place.stored.get(name, 0, (await place.stored.info(name)).length)) for name in names}


@pytest.mark.parametrize("came_back_older", [False, True])
async def test_an_index_that_is_missing_or_older_than_the_segments_record_is_found(came_back_older: bool) -> None:
    place = Place()
    made = await begun(place)
    before = await index_objects(place)
    await made.work(writers)
    await truncated(place, made.container)
    await made.container.stop()
    assert (await examined(place)).findings == []
    await place.stored.delete_all(list(await index_objects(place)))
    if came_back_older:
        for name, data in before.items():
            await place.stored.put(name, [data])
    [finding] = (await examined(place)).findings
    assert (finding.kind, finding.segment, finding.segment_id) == ("index", S, 1)
    assert ("is of operation" if came_back_older else "is missing") in finding.text
    assert "restore the object from a copy" in finding.remedy


async def test_a_restore_from_tier_2_alone() -> None:
    kit = Kit()
    made = await begun(kit)
    await flushed(kit, made.container)
    await made.container.table.flush()
    await made.container.stop()
    kit.logs.restore(0)
    await kit.restore()
    container = await kit.open()
    assert await known(container) == made.last
    assert await container.get_attribute(S, AttributeId(b"another-writer--")) == NULL_ATTRIBUTE_VALUE
    await container.stop()


async def test_a_backup_with_an_older_index_than_its_log_starts_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its index was copied before writers came back and others left memory for them, which its log notes: what is in
    memory after the first start must be enough for the records that it writes."""
    hold_few(monkeypatch, 24)
    place, target = Place(), Place()
    await place.mark()
    made = await begun(place)
    await truncated(place, made.container)
    segment = made.container.metadata.by_name(S)
    assert segment is not None
    noted = segment.attributes[ATTRIBUTES_IN_TIER2]

    async def writers_come_back() -> None:
        is_copied = list((tmp_path / "b").rglob(f"*{attribute_map_name(1)}/m/*"))
        while is_copied and segment.attributes[ATTRIBUTES_IN_TIER2] == noted:
            for number in range(writers):
                await made.container.get_attribute(S, writer(number))
            await asyncio.sleep(0)

    await backed_up(place, tmp_path / "b", writers_come_back)
    assert segment.attributes[ATTRIBUTES_IN_TIER2] > noted, "nothing left memory behind the copy of the index"
    await made.container.stop()
    container = await restored(target, tmp_path / "b")
    for _ in range(3):
        await flushed(target, container)
        await container.table.flush()
        await truncated(target, container)
        await container.stop()
        container = await target.open()
    assert await known(container) == made.last
    made.container = container
    await made.work(writers)
    await container.stop()
