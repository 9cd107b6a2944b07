"""A restore of a backup needs empty places, and is made again after an interruption."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, PravegaError
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from segment_service.maintenance import backup_restore
from segment_service.maintenance.backup_files import read_inventory, verify
from segment_service.maintenance.doctor import StoreDoctor
from segment_service.maintenance.log_reading import LogChanged
from segment_service.maintenance.store_backup import BackupOutcome, StoreBackup
from segment_service.maintenance.store_restore import StoreRestore
from segment_service.store import check_container_count, container_marker_prefix
from tests.support.backups import Place, write_names
from tests.support.log_reading import InMemoryLogSource

RESTORE_STEPS = [
    backup_restore.BLOCKED,
    backup_restore.OBJECT_PUT,
    backup_restore.LOG_BEGUN,
    backup_restore.FRAME_WRITTEN,
    backup_restore.LOG_WRITTEN,
    backup_restore.RELEASED,
]


async def test_what_is_left_of_a_log_is_not_empty_either(folder: Path, target: Place) -> None:
    container = await target.open()
    await container.stop()
    for name in list(target.stored.objects):
        await target.stored.delete_all([name])
    restore, source = target.restore_from(folder), InMemoryLogSource(target.logs)

    def missing() -> None:
        raise LogChanged("plog 7 is on no server", is_loss=True)

    source.before_entry = missing
    restore._source = source
    with pytest.raises(ConfigurationError, match=r"Tier 1 is not empty.*plog 7"):
        await restore.carry_out(restore.verify())


async def test_a_restore_needs_empty_places(folder: Path, place: Place, target: Place) -> None:
    restore = place.restore_from(folder)
    with pytest.raises(ConfigurationError, match="Tier 2 is not empty"):
        await restore.carry_out(restore.verify())
    container = await target.open()
    await container.stop()
    for name in list(target.stored.objects):
        await target.stored.delete_all([name])
    restore = target.restore_from(folder)
    with pytest.raises(ConfigurationError, match="Tier 1 is not empty"):
        await restore.carry_out(restore.verify())
    assert not target.stored.objects
    target.logs.restore(0)
    await target.cpo.set_once(CONTAINER_COUNT_KEY, "1")
    with pytest.raises(ConfigurationError, match="the CPO is not empty"):
        await restore.carry_out(restore.verify())
    assert not target.stored.objects


@pytest.mark.parametrize("step", RESTORE_STEPS)
async def test_an_interrupted_restore_is_refused_at_a_start_and_made_again(
    folder: Path, target: Place, step: str
) -> None:
    restore = target.restore_from(folder)
    header = restore.verify()
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(failpoints.FailpointError):
        await restore.carry_out(header)
    failpoints.disarm_all()
    if step != backup_restore.RELEASED:
        with pytest.raises(DataCorruption):
            await target.make().start()
        await target.restore_from(folder).carry_out(header)
    container = await target.open()
    assert container.metadata.identity.hex() == header.parts[0].identity
    assert container.epoch > header.parts[0].epoch
    with pytest.raises(PravegaError):
        await target.restore_from(folder).carry_out(header)
    await container.stop()


@pytest.mark.parametrize("step", [step for step in RESTORE_STEPS if step != backup_restore.RELEASED])
async def test_an_interrupted_restore_goes_on_from_the_backup_and_not_from_tier2(
    folder: Path, target: Place, step: str
) -> None:
    """Tier 2 has a part of the backup: taken for the whole, it would lose the rest and the log of the backup."""
    header = target.restore_from(folder).verify()
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(failpoints.FailpointError):
        await target.restore_from(folder).carry_out(header)
    failpoints.disarm_all()
    await check_container_count(target.cpo, target.stored, 1, "x")  # as a store that was started too early
    source = InMemoryLogSource(target.logs)
    with pytest.raises(ConfigurationError, match=r"interrupted.*store restore --from"):
        await StoreRestore(target.cpo, target.chunks, source, target, target.clock).plan(1)
    with pytest.raises(DataCorruption, match=r"interrupted.*store restore --from"):
        await target.make().start()
    report = await StoreDoctor(target.chunks, source, target.clock).examine_container(0)
    (finding,) = [one for one in report.findings if one.kind == "log"]
    assert "store restore --from" in finding.remedy
    await target.restore_from(folder).carry_out(header)
    await (await target.open()).stop()


async def test_a_container_that_got_a_new_log_before_its_restore_is_not_taken_for_restored(tmp_path: Path) -> None:
    """A store was started when the first of two containers was blocked, and the second one had nothing yet."""
    place, target = Place(), Place()
    await place.stored.put(f"{container_marker_prefix}2/x", [b"containers\n"])
    for container_id in range(2):
        container = await place.open(container_id)
        await write_names(place, container, ["segment"])
        await container.stop()
    source = InMemoryLogSource(place.logs)
    await StoreBackup(place.chunks, source, tmp_path / "b", place.clock, sync=False).run("c", 2)
    header = target.restore_from(tmp_path / "b").verify()
    failpoints.arm(backup_restore.BLOCKED, failpoints.raise_on_hit(backup_restore.BLOCKED))
    with pytest.raises(failpoints.FailpointError):
        await target.restore_from(tmp_path / "b").carry_out(header)
    failpoints.disarm_all()
    await (await target.open(1)).stop()
    with pytest.raises(ConfigurationError, match="container 1 has another log than the backup"):
        await target.restore_from(tmp_path / "b").carry_out(header)


async def test_of_two_backups_at_once_in_one_folder_one_is_made(place: Place, tmp_path: Path) -> None:
    container = await place.open()
    await write_names(place, container, ["first", "second"])
    backups = [
        StoreBackup(place.chunks, InMemoryLogSource(place.logs), tmp_path / "b", place.clock, sync=False)
        for _ in range(2)
    ]
    made, refused = sorted(
        await asyncio.gather(*(one.run("c", 1) for one in backups), return_exceptions=True),
        key=lambda one: isinstance(one, BaseException),
    )
    await container.stop()
    assert isinstance(refused, ConfigurationError) and "is not empty and no backup" in str(refused)
    assert made == BackupOutcome(verify(tmp_path / "b"), len(list(read_inventory(tmp_path / "b"))))
