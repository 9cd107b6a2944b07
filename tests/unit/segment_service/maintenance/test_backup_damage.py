"""Damaged, unfinished and interrupted backups are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption
from pravega_common.runtime import failpoints
from segment_service.maintenance import container_backup, store_backup
from segment_service.maintenance.backup_files import INVENTORY, LOGS, read_header, read_inventory, read_log, verify
from segment_service.sorted_runs import run_writer
from tests.support.backups import LAYOUT, Place, Worker, backed_up, flushed, idle, restored, write_names
from tests.support.containers import read_all
from tests.support.damaged_map import damage_shared

BACKUP_STEPS = [
    store_backup.CHUNKS_COPIED,
    container_backup.LOG_BEGUN,
    container_backup.MARK_COPIED,
    container_backup.TABLE_COPIED,
    container_backup.SEGMENT_COPIED,
    container_backup.MANIFESTS_COPIED,
    store_backup.LOGS_COPIED,
    store_backup.INVENTORY_WRITTEN,
]


async def test_a_damaged_file_is_refused(folder: Path) -> None:
    header = verify(folder)
    assert header.backup_id and header.containers == 1 and len(header.parts) == 1
    for line in list(read_inventory(folder)):
        path = folder / line.name
        sound = path.read_bytes()
        for damaged in (sound[:-1], sound + b"x", bytes([sound[0] ^ 1]) + sound[1:]):
            path.write_bytes(damaged)
            with pytest.raises(DataCorruption, match="inventory says"):
                verify(folder)
        path.unlink()
        with pytest.raises(DataCorruption, match="missing from the backup"):
            verify(folder)
        path.write_bytes(sound)
    verify(folder)


async def test_a_damaged_inventory_is_refused(folder: Path) -> None:
    path = folder / INVENTORY
    sound = path.read_bytes()
    for position in range(0, len(sound), 7):
        for damaged in (sound[:position], sound[:position] + bytes([sound[position] ^ 1]) + sound[position + 1 :]):
            path.write_bytes(damaged)
            with pytest.raises(DataCorruption):
                verify(folder)
    path.write_bytes(sound.replace(b"backup 1", b"backup 2", 1))
    with pytest.raises(DataCorruption, match="a newer one made it"):
        read_header(folder)


async def test_a_log_that_ends_in_a_frame_is_refused(folder: Path) -> None:
    path = folder / LOGS / "c00000"
    sound = path.read_bytes()
    frames = len(list(read_log(path)))
    assert frames > 3
    path.write_bytes(sound[:-1])
    with pytest.raises(DataCorruption, match="cut short"):
        list(read_log(path))
    path.write_bytes(sound[:30] + bytes([sound[30] ^ 1]) + sound[31:])
    with pytest.raises(DataCorruption, match="damaged"):
        list(read_log(path))


async def test_an_interrupted_backup_is_none(place: Place, target: Place, tmp_path: Path) -> None:
    container = await place.open()
    worker = Worker(place, container, 3)
    await worker.run(20)
    steps = 0

    async def work() -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        await backed_up(place, tmp_path / "b", work)
    with pytest.raises(DataCorruption, match="no inventory"):
        target.restore_from(tmp_path / "b").verify()
    with pytest.raises(ConfigurationError, match="remove it and begin again"):
        await backed_up(place, tmp_path / "b", idle)
    await backed_up(place, tmp_path / "c", idle)
    with pytest.raises(ConfigurationError, match="is a backup already"):
        await backed_up(place, tmp_path / "c", idle)
    await container.stop()


@pytest.mark.parametrize("step", BACKUP_STEPS)
async def test_a_backup_that_crashed_anywhere_is_refused(place: Place, tmp_path: Path, step: str) -> None:
    container = await place.open()
    await Worker(place, container, 3).run(20)
    failpoints.arm(step, failpoints.raise_on_hit(step))
    with pytest.raises(failpoints.FailpointError):
        await backed_up(place, tmp_path / "b", idle)
    failpoints.disarm_all()
    if step == store_backup.INVENTORY_WRITTEN:
        verify(tmp_path / "b")
    else:
        with pytest.raises(DataCorruption, match="no inventory"):
            verify(tmp_path / "b")
    await container.stop()


async def test_a_deleted_segment_whose_chunks_go_first_is_not_damaged(place: Place, tmp_path: Path) -> None:
    """Its tombstone is the last that is deleted, and a backup may come between the two."""
    place.background = False  # so that the tombstone stays
    container = await place.open()
    await container.create_segment("scope/gone")
    await container.append("scope/gone", [b"bytes"])
    await flushed(place, container)
    await container.delete("scope/gone")
    await flushed(place, container)
    for name in [name for name in place.stored.objects if "/d/" in name]:
        await place.stored.delete_all([name])
    outcome = await backed_up(place, tmp_path / "b", idle)
    await container.stop()
    assert not outcome.damaged


@pytest.mark.parametrize("part", ["m", "d"])
async def test_damage_to_the_map_of_shared_objects_damages_the_segments_in_it(
    monkeypatch: pytest.MonkeyPatch, target: Place, tmp_path: Path, part: str
) -> None:
    monkeypatch.setattr(run_writer, "block_bytes", 1)  # an entry each
    place = Place()
    place.shares_objects, place.background = True, False
    await place.mark()
    container = await place.open()
    names = [f"segment-{number}" for number in range(8)]
    await write_names(place, container, names)
    segment_id = container.metadata.ids[names[3]]
    await container.stop()
    assert damage_shared(place.stored, LAYOUT, (LAYOUT.manifests_of if part == "m" else LAYOUT.chunks_of)(segment_id))
    outcome = await backed_up(place, tmp_path / "b", idle)
    # A seek reads the block before, too, and a look for the end of a segment's entries the one behind them: so those of
    # its neighbours, among the segments of the same flush.
    damaged = {found for _, found in outcome.damaged}
    assert segment_id in damaged and len(damaged) <= 3
    other = await restored(target, tmp_path / "b")
    for name in names:
        if container.metadata.ids[name] not in damaged:
            assert await read_all(other, name) == name.encode()
    await other.stop()
