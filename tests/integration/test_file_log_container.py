"""A container whose log is in files: it recovers from them, and from a disk that was full.

The disk is a small tmpfs where mounting one is permitted, and in any case a file layer that grants so much space.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pravega_common.errors import DataCorruption
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.data_log import DurableDataLog
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.file_log.file_log import FileDataLog
from segment_service.file_log.files import Files
from segment_service.file_log.folder import FileLogFolder
from tests.support.containers import ContainerKit, read_all
from tests.support.eventually import eventually
from tests.support.faulty_files import FaultyFiles

MIB = 1 << 20
disk_bytes = 24 * MIB
reserve_bytes = 8 * MIB
plog_bytes = 2 * MIB
appends_at_once = 10
block = bytes(range(256)) * 1_000


class FileKit(ContainerKit):
    """Logs below ``root``; ``restart`` is what a new process of the store would find."""

    def __init__(self, root: Path, files: Files, reserve_bytes: int = reserve_bytes) -> None:
        super().__init__(checkpoints=CheckpointPolicy(100_000, MIB))
        self.write_to_tier2()
        self.root = root
        self._files = files
        self._reserve_bytes = reserve_bytes
        self._folder: FileLogFolder | None = None

    async def restart(self) -> None:
        if self._folder is not None:
            await self._folder.stop()
        self._folder = FileLogFolder(
            self.root, plog_bytes=plog_bytes, reserve_bytes=self._reserve_bytes, files=self._files, call_time_max_s=20
        )
        await self._folder.start()

    async def close(self) -> None:
        assert self._folder is not None
        await self._folder.stop()

    def make_log(self, container_id: int) -> DurableDataLog:
        assert self._folder is not None
        return FileDataLog(container_id, self._folder)


@pytest.fixture(params=["file layer", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Files]]:
    root = tmp_path / "disk"
    root.mkdir()
    if request.param == "file layer":
        files = FaultyFiles()
        files.room_bytes = disk_bytes
        yield root, files
        return
    mount = ["mount", "-t", "tmpfs", "-o", f"size={disk_bytes}", "tmpfs", str(root)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here: run as root")
    try:
        yield root, Files()
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.fixture
async def kit(disk: tuple[Path, Files]) -> AsyncIterator[FileKit]:
    kit = FileKit(*disk)
    await kit.restart()
    yield kit
    await kit.close()


async def fill(container: SegmentContainer) -> list[asyncio.Future[int]]:
    """Append, some blocks at a time, until the log says that it is full."""
    appends: list[asyncio.Future[int]] = []
    full = asyncio.ensure_future(container.durable_log.wait_full())
    while not full.done():
        appends += [container.append("s", [block]) for _ in range(appends_at_once)]
        acknowledged: asyncio.Future[Any] = asyncio.gather(*appends[-appends_at_once:])
        await asyncio.wait([full, acknowledged], return_when=asyncio.FIRST_COMPLETED)
    return appends


async def crash(container: SegmentContainer) -> None:
    container.fail(RuntimeError("crash"))
    with pytest.raises(RuntimeError):
        await container.wait_stopped()


async def test_a_full_disk_is_waited_for_and_freed(kit: FileKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    appends = await fill(container)
    acked = sum(append.done() for append in appends)
    assert acked * len(block) > disk_bytes - reserve_bytes - 8 * MIB
    assert not appends[-1].done()
    kit.chunks.resume()
    await asyncio.wait_for(asyncio.gather(*appends), 60)
    for _ in range(200):
        await asyncio.wait_for(container.append("s", [block]), 20)
    assert await read_all(container, "s") == block * (len(appends) + 200)
    await container.stop()


async def test_a_store_that_died_with_a_full_disk_starts_and_goes_on(kit: FileKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    kit.chunks.stop()
    appends = await fill(container)
    await crash(container)
    acked = sum(append.exception() is None for append in appends if append.done() and not append.cancelled())
    await kit.restart()
    kit.chunks.resume()
    container = await asyncio.wait_for(kit.open(), 60)
    found = (await container.get_info("s")).length
    assert acked * len(block) <= found <= len(appends) * len(block)
    for _ in range(50):
        await asyncio.wait_for(container.append("s", [block]), 20)
    assert await read_all(container, "s") == block * (found // len(block) + 50)
    await container.stop()


async def test_a_container_whose_first_start_found_no_room_starts_when_there_is_some(tmp_path: Path) -> None:
    """Tier 2 has a mark of it by then, and the log is empty."""
    files = FaultyFiles()
    files.room_bytes = 0
    kit = FileKit(tmp_path / "disk", files, reserve_bytes=0)
    kit.root.mkdir()
    await kit.restart()
    for _ in range(2):
        container = kit.make()
        start = asyncio.ensure_future(container.start())
        await eventually(lambda made=container: "is being written" in made.waits_for)  # type: ignore[misc]
        assert [name for name in kit.stored.objects if "/e/" in name], "a mark is stored"
        container.fail(RuntimeError("crash"))
        with pytest.raises(RuntimeError):
            await start
        await kit.restart()
    files.room_bytes = None
    container = await kit.open()
    await container.create_segment("s")
    await container.append("s", [block])
    await container.stop()
    await kit.restart()
    container = await kit.open()
    assert await read_all(container, "s") == block
    await container.stop()
    await kit.close()


async def test_many_crashes_lose_nothing(kit: FileKit) -> None:
    container = await kit.open()
    await container.create_segment("s")
    for round_number in range(1, 6):
        await asyncio.gather(*(container.append("s", [block]) for _ in range(20)))
        found = container.metadata.by_name("s")
        assert found is not None
        if round_number % 2:
            await eventually(lambda found=found: found.storage_length == found.length, "a flush")  # type: ignore[misc]
        await crash(container)
        await kit.restart()
        container = await kit.open()
        assert (await container.get_info("s")).length == round_number * 20 * len(block)
    assert await read_all(container, "s") == block * 100
    await container.stop()


async def test_an_emptied_folder_or_an_older_copy_is_refused(kit: FileKit, tmp_path: Path) -> None:
    container = await kit.open()
    await container.create_segment("s")
    shutil.copytree(kit.root / "c0", tmp_path / "older")
    await container.append("s", [block])
    found = container.metadata.by_name("s")
    assert found is not None
    await eventually(lambda: found.storage_length == found.length, "a flush")
    await container.stop()
    shutil.copytree(kit.root / "c0", tmp_path / "newest")
    for copy, reason in ((None, "Tier 1 was lost"), (tmp_path / "older", "older copy"), (tmp_path / "newest", "")):
        shutil.rmtree(kit.root / "c0")
        if copy is not None:
            shutil.copytree(copy, kit.root / "c0")
        await kit.restart()
        if reason:
            with pytest.raises(DataCorruption, match=reason):
                await refused(kit)
        else:
            container = await kit.open()
            assert await read_all(container, "s") == block
            await container.stop()


async def refused(kit: FileKit) -> None:
    """Opens the container, and waits for it to stop by itself if it started."""
    container = kit.make()
    await container.start()
    await asyncio.wait_for(container.wait_stopped(), 20)
