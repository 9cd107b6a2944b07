"""A log in files is read while its owner writes and truncates it: nothing is missing, nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.file_log.container_files import ContainerFiles
from segment_service.file_log.files import ReadOnlyFiles
from segment_service.file_log.layout import header_bytes
from segment_service.file_log.plog_writer import Frame
from segment_service.maintenance.file_log_reading import FileLogSource
from segment_service.maintenance.log_reading import LogChanged
from tests.unit.segment_service.file_log.kit import folder_at, log_in

container_id = 1


async def payloads(root: Path) -> list[bytes]:
    return [bytes(entry.payload) async for entry in FileLogSource(root).read(container_id)]


def frame(number: int) -> bytes:
    return b"%06d" % number + bytes(2_000)


def bytes_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


async def test_a_log_that_was_never_made_is_empty(tmp_path: Path) -> None:
    assert await payloads(tmp_path) == []
    assert bytes_of(tmp_path) == {}


async def test_a_log_is_read_beside_its_owner_and_left_as_it_is(tmp_path: Path) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        addresses = [await log.append([frame(number)]) for number in range(100)]
        await log.truncate(addresses[40])
        before = bytes_of(tmp_path)
        assert await payloads(tmp_path) == [frame(number) for number in range(40, 100)]
        assert bytes_of(tmp_path) == before
        await log.append([b"not fenced"])
        await log.close()
    assert (await payloads(tmp_path))[-1] == b"not fenced"


async def test_every_reading_beside_appends_has_what_was_acknowledged_before(tmp_path: Path) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        acked = 0

        async def write() -> None:
            nonlocal acked
            for number in range(1_500):
                await log.append([frame(number)])
                acked = number + 1

        writing = asyncio.ensure_future(write())
        readings = 0
        while not writing.done():
            before = acked
            found = await payloads(tmp_path)
            assert found == [frame(number) for number in range(len(found))] and len(found) >= before
            readings += 1
        await writing
        assert readings > 3
        await log.close()


async def test_a_truncation_meanwhile_is_no_damage(tmp_path: Path) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        addresses = [await log.append([frame(number)]) for number in range(100)]
        reading = FileLogSource(tmp_path).read(container_id)
        assert bytes((await anext(reading)).payload) == frame(0)
        await log.truncate(addresses[99])
        with pytest.raises(LogChanged, match="truncated"):
            _ = [entry async for entry in reading]
        assert await payloads(tmp_path) == [frame(99)]
        await log.close()


def damage(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("number", [0, -1])
async def test_damage_is_named_beside_a_running_owner(tmp_path: Path, number: int) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        for one in range(100):
            await log.append([frame(one)])
        paths = sorted((tmp_path / "c1").glob("*.plog"))
        damage(paths[number], header_bytes + 200)
        with pytest.raises(DataCorruption):
            await payloads(tmp_path)
        await log.close()


async def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        for one in range(100):
            await log.append([frame(one)])
        await log.close()
    paths = sorted((tmp_path / "c1").glob("*.plog"))
    paths[1].unlink()
    with pytest.raises(DataCorruption, match="are gone"):
        await payloads(tmp_path)
    for path in paths:
        path.unlink(missing_ok=True)
    with pytest.raises(DataCorruption, match="are gone"):
        await payloads(tmp_path)
    (tmp_path / "c1" / "state").unlink()
    assert await payloads(tmp_path) == []


class LateFiles(ReadOnlyFiles):
    """Lets the owner append two entries before the third reading of the plog file: the look behind its end."""

    def __init__(self, append: Callable[[], None]) -> None:
        self.readings = 0
        self._append = append

    def read(self, descriptor: int, length: int, offset: int) -> bytes:
        self.readings += offset >= header_bytes
        if self.readings == 3:
            self._append()
        return super().read(descriptor, length, offset)


async def test_the_end_moves_while_it_is_looked_for(tmp_path: Path) -> None:
    """Entries that come between the search for the end and the look behind it are no sign of damage."""
    async with folder_at(tmp_path, plog_bytes=1_000_000) as folder:
        log = await log_in(folder)
        await log.append([frame(0)])
        owner = folder.container(container_id)

        def append() -> None:
            for number in (1, 2):
                data = frame(number)
                owner.append(log.epoch, [Frame([data], len(data), crc32c(data))])

        files = LateFiles(append)
        found = ContainerFiles(tmp_path / "c1", container_id, 0, files).look()
        assert found is not None and files.readings > 3
        again = ContainerFiles(tmp_path / "c1", container_id, 0, ReadOnlyFiles()).look()
        assert found == again and len(await payloads(tmp_path)) == 3
        await log.close()
