"""The room of file systems is looked at when somebody asks, and not more often than every ten seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

from segment_service.config import SegmentStoreConfig
from segment_service.health.disk_space import DiskSpace, look_age_max_s
from tests.support.fakes.clock import ManualClock


async def test_the_figures_are_those_of_the_file_system(tmp_path: Path) -> None:
    disks = DiskSpace({"tier1": tmp_path, "tier2": tmp_path / "not" / "made yet"}, ManualClock())
    assert disks.known == {}
    await disks.look()
    usage = shutil.disk_usage(tmp_path)
    for use in ("tier1", "tier2"):
        assert disks.known[use].bytes == usage.total
        assert 0 < disks.known[use].free <= usage.total
    disks.close()


async def test_they_are_kept_for_a_while(tmp_path: Path) -> None:
    clock = ManualClock()
    disks = DiskSpace({"tier2": tmp_path}, clock)
    await disks.look()
    first = disks.known
    await clock.advance(look_age_max_s - 1)
    await disks.look()
    assert disks.known is first
    await clock.advance(1)
    await disks.look()
    assert disks.known is not first and disks.known.keys() == first.keys()
    disks.close()


async def test_without_a_folder_nothing_is_told() -> None:
    disks = DiskSpace({}, ManualClock())
    await disks.look()
    assert disks.known == {}
    disks.close()


def test_the_folders_are_those_that_the_store_writes_to() -> None:
    config = SegmentStoreConfig.from_values(
        {
            "tier1": {"url": "file:///log"},
            "tier2": {"url": "file:///long%20term"},
            "cache": {"disk_folder": "/blocks"},
        }
    )
    assert config.disk_folders == {"tier1": Path("/log"), "tier2": Path("/long term"), "cache": Path("/blocks")}
    away = SegmentStoreConfig.from_values({"tier2": {"url": "https://s3:9000/bucket"}})
    assert away.disk_folders == {}
