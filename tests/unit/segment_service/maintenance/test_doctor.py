"""The examination of a cluster's data: sound while stores run, and every kind of damage with its remedy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, PravegaError, Unavailable
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from pravega_common.services.cluster.sqlite_cpo import SqliteCPO
from segment_service.config import SegmentStoreConfig
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.buffer import Buffer
from segment_service.maintenance import doctor_command, log_reading
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.findings import ContainerReport, findings_max
from segment_service.maintenance.log_reading import LogChanged
from segment_service.sorted_runs import run_writer
from segment_service.storage.chunk_names import Layout
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.store import container_marker_prefix
from tests.support.backups import flushed, write_names
from tests.support.containers import ContainerKit
from tests.support.damaged_map import damage_shared
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.log_reading import InMemoryLogSource

LAYOUT = Layout(0)
NAMES = [f"segment-{number}" for number in range(12)]


objects_alone = pytest.mark.parametrize("kit", [False], ids=["alone"], indirect=True)
"""For tests that look for objects of a segment in Tier 2 itself."""


@pytest.fixture(params=[False, True], ids=["alone", "shared"])
def kit(request: pytest.FixtureRequest) -> ContainerKit:
    """Small objects of its Tier 2 are objects of their own, or share others."""
    kit = ContainerKit()
    kit.shares_objects = request.param
    kit.write_to_tier2()
    return kit


def doctor(kit: ContainerKit, *, source: InMemoryLogSource | None = None) -> StoreDoctor:
    return StoreDoctor(kit.chunks, source or InMemoryLogSource(kit.logs), kit.clock)


@pytest.fixture
async def written(kit: ContainerKit) -> AsyncIterator[SegmentContainer]:
    """A running container: segments in several chunks, one merged, all in the metadata table."""
    container = await kit.open()
    for name in NAMES:
        await container.create_segment(name)
        for _ in range(3):
            await container.append(name, [name.encode() * 10_000])
            await flushed(kit, container)
    await container.create_segment("transaction")
    await container.append("transaction", [b"merged" * 10_000])
    await flushed(kit, container)
    await container.merge(NAMES[0], "transaction")
    await flushed(kit, container)
    await container.table.flush()
    yield container
    await container.stop()


def objects(kit: ContainerKit, container: SegmentContainer, name: str, kind: str) -> list[str]:
    found = container.metadata.by_name(name)
    assert found is not None
    prefix = (LAYOUT.manifests_of if kind == "m" else LAYOUT.chunks_of)(found.segment_id)
    return sorted(one for one in kit.stored.objects if one.startswith(prefix))


def flip(kit: ContainerKit, name: str, position: int = -1) -> None:
    damaged = bytearray(kit.stored.objects[name])
    damaged[position] ^= 1
    kit.stored.objects[name] = bytes(damaged)


async def examined(kit: ContainerKit, *, deep: bool = False) -> ContainerReport:
    return await doctor(kit).examine_container(0, deep=deep)


class ReadAlone(InMemoryChunkStorage):
    """The objects of another storage, none of which may be changed through this one."""

    def __init__(self, other: InMemoryChunkStorage) -> None:
        super().__init__()
        self.objects, self._names = other.objects, other._names

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        raise AssertionError(f"{name} was written")

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        raise AssertionError(f"{names} were deleted")


@pytest.mark.parametrize("deep", [False, True])
async def test_a_running_container_is_sound(kit: ContainerKit, written: SegmentContainer, deep: bool) -> None:
    """It goes on while it is examined, and nothing is changed by that: also its log was only read."""
    examination = StoreDoctor(ReadAlone(kit.stored), InMemoryLogSource(kit.logs), kit.clock)
    report = await examination.examine_container(0, deep=deep)
    assert report.findings == []
    assert kit.logs.container(0).epoch == 1
    assert (report.epoch, report.identity) == (1, written.metadata.identity.hex())
    assert report.high_water == written.durable_log.last_durable
    assert report.table_entries == len(NAMES) == report.segments
    assert report.chunks == 3 * len(NAMES) + 1 and report.length == sum(len(n) * 30_000 for n in NAMES) + 60_000
    assert report.log is not None
    assert (report.log.last_operation, report.log.epoch) == (written.durable_log.last_durable, 1)
    assert report.log.next_segment_id == written.metadata.next_segment_id == report.next_segment_id
    assert report.orphans == 0


async def test_a_container_that_never_ran_is_sound(kit: ContainerKit) -> None:
    report = await doctor(kit).examine(2)
    assert report.count == 0 and [one.epoch for one in report.containers] == [0, 0]
    assert json.loads(json.dumps(report.to_json()))["is_sound"] is True


async def test_a_tier2_without_the_cluster_is_told(kit: ContainerKit) -> None:
    """Empty, or another one: the CPO knows the cluster, and Tier 2 does not."""
    cpo = InMemoryCPO(kit.clock)
    examination = StoreDoctor(kit.chunks, InMemoryLogSource(kit.logs), kit.clock, cpo=cpo)
    assert (await examination.examine(2)).count == 0  # a cluster that was never started
    await cpo.set_once(CONTAINER_COUNT_KEY, "2")
    report = await examination.examine(2)
    (finding,) = report.findings
    assert finding.kind == "cluster" and "Tier 2 is empty, or another one" in finding.text
    assert report.count == 1
    await kit.stored.put(f"{container_marker_prefix}2/x", [b"containers\n"])
    assert (await examination.examine(2)).count == 0


async def test_a_tier2_without_the_cluster_and_no_cpo_is_not_sound(kit: ContainerKit) -> None:
    class Away(InMemoryCPO):
        async def get_constant(self, key: str) -> str | None:
            raise Unavailable("the CPO is away")

    examination = StoreDoctor(kit.chunks, InMemoryLogSource(kit.logs), kit.clock, cpo=Away(kit.clock))
    (finding,) = (await examination.examine(2)).findings
    assert finding.kind == "server" and "the CPO is away" in finding.text
    assert (await StoreDoctor(kit.chunks, None, kit.clock, cpo=Away(kit.clock)).examine(2)).count == 0


@pytest.mark.parametrize("is_made", [False, True])
async def test_the_command_asks_the_cpo_of_the_settings_and_makes_none(tmp_path: Path, is_made: bool) -> None:
    file = tmp_path / "store.toml"
    file.write_text(
        f'[store]\ncontainers = 2\n[cluster]\ncpo = "file:{tmp_path}/cpo"\n'
        f'[tier1]\nurl = "file://{tmp_path}/log"\n[tier2]\nurl = "file://{tmp_path}/tier2"\n'
    )
    settings = SegmentStoreConfig.load(file)
    if is_made:
        cpo = SqliteCPO(tmp_path / "cpo")
        await cpo.set_once(CONTAINER_COUNT_KEY, "2")
        await cpo.close()
    report = await doctor_command.examine(settings, [], deep=False, with_tier1=True)
    assert report.count == is_made
    assert (tmp_path / "cpo").exists() is is_made


@pytest.mark.parametrize("number", [-1, 2])
async def test_a_container_that_the_cluster_has_not_is_refused(kit: ContainerKit, number: int) -> None:
    with pytest.raises(ConfigurationError, match=f"container {number}: there are containers 0 to 1"):
        await doctor(kit).examine(2, [0, number])


async def test_work_under_the_examination_is_not_reported(kit: ContainerKit, written: SegmentContainer) -> None:
    """Appends, merges, truncations, deletions, compactions and flushes of the table while it is looked at."""
    is_over = False

    async def work() -> None:
        number = 0
        while not is_over:
            number += 1
            name = NAMES[number % len(NAMES)]
            await written.append(name, [b"x" * 2_000])
            transaction = f"transaction-{number}"
            await written.create_segment(transaction)
            await written.append(transaction, [b"y" * 500])
            if number % 3 == 0:
                await written.delete(transaction)
            else:
                await written.merge(name, transaction)
            if number % 5 == 0:
                await written.truncate(name, (await written.get_info(name)).length - 100)
            if number % 10 == 0:
                await written.table.flush()
                await written.durable_log.checkpoint()
                await written._storage.garbage.collect()  # type: ignore[attr-defined]  # what a running store does
            await asyncio.sleep(0)

    working = asyncio.ensure_future(work())
    for number in range(30):
        report = await doctor(kit).examine_container(0, deep=number % 2 == 0)
        assert report.findings == [], number
    is_over = True
    await working


async def test_a_missing_and_a_short_chunk_are_found(kit: ContainerKit, written: SegmentContainer) -> None:
    missing = objects(kit, written, NAMES[1], "d")[1]
    await kit.stored.delete_all([missing])
    short = objects(kit, written, NAMES[2], "d")[0]
    kit.stored.objects[short] = kit.stored.objects[short][:-1]
    report = await examined(kit)
    assert [(one.kind, one.segment) for one in report.findings] == [("chunk", NAMES[1]), ("chunk", NAMES[2])]
    assert f"{missing} is missing" in report.findings[0].text and short in report.findings[1].text
    assert all("restore the object" in one.remedy for one in report.findings)
    assert report.damaged_segments == [written.metadata.ids[NAMES[1]], written.metadata.ids[NAMES[2]]]


async def test_an_announcement_that_is_lost_is_found_and_its_remedy_makes_it_again(
    kit: ContainerKit, written: SegmentContainer
) -> None:
    (announced,) = (name for name in kit.stored.objects if name.startswith(LAYOUT.foreign_owners))
    await kit.stored.delete_all([announced])
    assert (await examined(kit)).findings == []  # the first sweep announces what programs before it did not
    await written._storage.sweeper.sweep()  # type: ignore[attr-defined]  # a rolling storage
    assert (await examined(kit)).findings == []
    for name in [name for name in kit.stored.objects if name.startswith((LAYOUT.foreign_owners, LAYOUT.journals))]:
        await kit.stored.delete_all([name])
    report = await examined(kit)
    (finding,) = report.findings
    assert (finding.kind, finding.segment, report.damaged_segments) == ("owner", NAMES[0], [])
    assert "written for segment 13," in finding.text and LAYOUT.journal_of_all in finding.remedy
    await kit.stored.put(LAYOUT.journal_of_all, [b"all"])
    await written.stop()
    container = await kit.open()
    await container._storage.sweeper.sweep()  # type: ignore[attr-defined]
    assert (await examined(kit)).findings == []
    await container.stop()


@objects_alone
async def test_a_merged_chunk_that_is_missing_is_found(kit: ContainerKit, written: SegmentContainer) -> None:
    source = next(one for one in kit.stored.objects if one.startswith(LAYOUT.chunks_of(len(NAMES) + 1)))
    await kit.stored.delete_all([source])
    assert [(one.kind, one.segment) for one in (await examined(kit)).findings] == [("chunk", NAMES[0])]


async def test_a_flipped_bit_is_found_by_a_deep_examination(kit: ContainerKit, written: SegmentContainer) -> None:
    for name in objects(kit, written, NAMES[3], "d")[:2]:
        flip(kit, name, 70_000)
    assert (await examined(kit)).findings == []
    (finding,) = (await examined(kit, deep=True)).findings
    assert "expected" in finding.text and "1 more of its 3 chunks" in finding.text


@objects_alone
async def test_damaged_and_lost_manifests_are_found(kit: ContainerKit, written: SegmentContainer) -> None:
    flip(kit, objects(kit, written, NAMES[4], "m")[-1])
    for name in objects(kit, written, NAMES[5], "m"):
        await kit.stored.delete_all([name])
    bases = [name for name in objects(kit, written, NAMES[6], "m") if name.endswith("-b")]
    await kit.stored.delete_all([bases[0]])
    report = await examined(kit)
    found = {one.segment: one for one in report.findings}
    assert found.keys() == {NAMES[4], NAMES[5], NAMES[6]} and {one.kind for one in report.findings} == {"manifest"}
    assert "fails its checksum" in found[NAMES[4]].text
    assert "list 0 bytes" in found[NAMES[5]].text
    assert "base" in found[NAMES[6]].text
    assert report.orphans is None


@pytest.mark.parametrize("part", ["m", "d"])
async def test_damage_to_the_map_of_shared_objects_is_found_and_the_rest_examined(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(run_writer, "block_bytes", 1)  # an entry each
    kit = ContainerKit()
    kit.shares_objects = True
    kit.write_to_tier2()
    container = await kit.open()
    await write_names(kit, container, NAMES, 10)
    segment_id = container.metadata.ids[NAMES[4]]
    await container.stop()  # or it may merge the damage away
    assert damage_shared(kit.stored, LAYOUT, (LAYOUT.manifests_of if part == "m" else LAYOUT.chunks_of)(segment_id))
    # A seek reads the block before, too: that of the manifest behind it, if it is of the same flush. Behind a manifest
    # comes the next segment's, behind the last chunk the first one.
    beside = [[segment_id, segment_id + 1]] if part == "m" else [[first, segment_id] for first in range(segment_id)]
    possible = [[segment_id], *beside]
    for deep in (False, True):
        report = await examined(kit, deep=deep)
        damaged = list(report.damaged_segments)
        assert damaged in possible
        assert any("map shared" in one.text and one.segment_id is None for one in report.findings)
        assert len(report.findings) == len(damaged) + 1 and report.orphans is None
        assert report.segments == len(NAMES) - len(damaged) + (part == "d")


@objects_alone
async def test_a_segment_deleted_of_late_is_no_damage(kit: ContainerKit, written: SegmentContainer) -> None:
    """The metadata table has it still; the log tells."""
    await written.delete(NAMES[7])
    await flushed(kit, written)
    await written._storage.garbage.collect()  # type: ignore[attr-defined]  # as a running store does
    assert not [one for one in kit.stored.objects if one.startswith(LAYOUT.manifests_of(8))]
    assert (await examined(kit)).findings == []
    (finding,) = (await StoreDoctor(kit.chunks, None, kit.clock).examine_container(0)).findings
    assert "deleted shortly before" in finding.remedy


async def test_a_damaged_table_is_found_and_the_rest_examined(kit: ContainerKit, written: SegmentContainer) -> None:
    run = next(name for name in sorted(kit.stored.objects) if "/t/segments/r/" in name)
    flip(kit, run, 10)
    await kit.stored.delete_all([objects_of_first_segment(kit)])
    report = await examined(kit)
    assert sorted(one.kind for one in report.findings) == ["chunk", "table"]
    assert report.segments == len(NAMES)
    await kit.stored.delete_all([run])
    assert any("missing" in one.text for one in (await examined(kit)).findings if one.kind == "table")
    flip(kit, max(name for name in kit.stored.objects if "/t/segments/m/" in name))
    assert "fails its checksum" in next(one for one in (await examined(kit)).findings if one.kind == "table").text


def objects_of_first_segment(kit: ContainerKit) -> str:
    return min(name for name in kit.stored.objects if name.startswith(LAYOUT.chunks))


async def test_a_damaged_mark_is_found(kit: ContainerKit, written: SegmentContainer) -> None:
    flip(kit, max(name for name in kit.stored.objects if name.startswith(LAYOUT.epochs)))
    report = await examined(kit)
    assert [one.kind for one in report.findings] == ["mark"] and report.epoch == 1


async def test_a_lost_log_and_an_older_one_are_found(kit: ContainerKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    older = kit.logs.backup(0)
    await container.append("s", [b"more"])
    await flushed(kit, container)
    await container.stop()
    kit.logs.restore(0, older)
    (finding,) = (await examined(kit)).findings
    assert finding.kind == "log" and "an older copy of Tier 1 came back" in finding.text
    kit.logs.restore(0)
    (finding,) = (await examined(kit)).findings
    assert "Tier 1 was lost" in finding.text


async def test_a_damaged_log_is_found(kit: ContainerKit, written: SegmentContainer) -> None:
    kit.logs.damage(0, kit.logs.entries(0)[0].address)
    (finding,) = (await examined(kit)).findings
    assert finding.kind == "log" and "fails its checksum" in finding.text


async def test_servers_that_are_away_are_found(kit: ContainerKit, written: SegmentContainer) -> None:
    source = InMemoryLogSource(kit.logs)

    def away() -> None:
        raise Unavailable("127.0.0.1:1 is not reachable")

    source.before_entry = away
    (finding,) = (await doctor(kit, source=source).examine_container(0)).findings
    assert finding.kind == "server" and "not reachable" in finding.text


async def test_a_log_that_the_settings_do_not_lead_to_is_not_lost(kit: ContainerKit, written: SegmentContainer) -> None:
    source = InMemoryLogSource(kit.logs)

    def elsewhere() -> None:
        raise ConfigurationError("plog 7 is in group old, which these settings do not name")

    source.before_entry = elsewhere
    (finding,) = (await doctor(kit, source=source).examine_container(0)).findings
    assert finding.kind == "server" and "group old" in finding.text and "settings" in finding.remedy


async def test_a_log_truncated_under_the_reading_is_read_again(kit: ContainerKit, written: SegmentContainer) -> None:
    source, calls = InMemoryLogSource(kit.logs), 0

    def freed() -> None:
        nonlocal calls
        calls += 1
        if calls < log_reading.read_attempts_max:
            raise LogChanged(f"plog {calls} was freed")

    source.before_entry = freed
    assert (await doctor(kit, source=source).examine_container(0)).findings == []

    def missing() -> None:
        raise LogChanged("plog 7 is on no server", is_loss=True)

    source.before_entry = missing
    (finding,) = (await doctor(kit, source=source).examine_container(0)).findings
    assert (finding.kind, finding.text) == ("log", "plog 7 is on no server")


async def test_chunks_that_no_manifest_lists_are_counted(kit: ContainerKit, written: SegmentContainer) -> None:
    await kit.stored.put(f"{LAYOUT.chunks_of(1)}{0:016x}-{7:016x}", [b"of an earlier epoch"])
    await kit.stored.put(f"{LAYOUT.chunks_of(1)}{1:016x}-{99_999:016x}", [b"whose manifest is on its way"])
    report = await examined(kit)
    assert (report.orphans, report.findings) == (1, [])


async def test_another_number_of_containers_is_found(kit: ContainerKit) -> None:
    await kit.stored.put("cluster/containers-4/x", [b"containers\n"])
    assert (await doctor(kit).examine(4)).count == 0
    (finding,) = (await doctor(kit).examine(3)).findings
    assert "made with 4 containers" in finding.text


@objects_alone
async def test_findings_are_bounded(kit: ContainerKit, written: SegmentContainer) -> None:
    report = ContainerReport(0)
    for finding in (await examined_with_damage(kit, written)).findings * (findings_max + 5):
        report.add(finding)
    assert len(report.findings) == findings_max and report.more_findings == 5


async def examined_with_damage(kit: ContainerKit, written: SegmentContainer) -> ContainerReport:
    flip(kit, objects(kit, written, NAMES[4], "m")[-1])
    return await examined(kit)
