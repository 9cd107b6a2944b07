"""Short writes, a full disk, failed writes and syncs, and power cuts."""

from __future__ import annotations

import asyncio
import errno
import random
from pathlib import Path
from typing import Any

import pytest

from pravega_common.errors import DataCorruption, PravegaError, Unavailable, UnknownOutcome
from segment_service.contracts.data_log import LogAddress
from tests.support.fakes.clock import ManualClock
from tests.support.faulty_files import FaultyFiles
from tests.unit.segment_service.file_log.kit import folder_at, log_in, payloads_at


async def test_short_writes_go_on_where_they_ended(tmp_path: Path) -> None:
    files = FaultyFiles()
    frames = [random.Random(number).randbytes(2_000) for number in range(5)]
    async with folder_at(tmp_path, files) as folder:
        log = await log_in(folder)
        files.write_bytes_max = 7
        await asyncio.gather(*(log.append([frame[:100], frame[100:]]) for frame in frames))
        await log.close()
    assert await payloads_at(tmp_path) == frames


async def test_frames_that_wait_share_one_sync(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with folder_at(tmp_path, files) as folder:
        log = await log_in(folder)
        await log.append([b"makes the file"])
        files.hold_sync.clear()
        first = log.append([b"first"])
        await asyncio.sleep(0.05)  # real time: the frame must reach its thread
        others = [log.append([b"%d" % number]) for number in range(20)]
        before = files.syncs
        files.hold_sync.set()
        await asyncio.gather(first, *others)
        assert files.syncs - before == 2
        await log.close()


@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_after_a_failed_write_or_sync_the_log_is_over(tmp_path: Path, kind: str) -> None:
    files = FaultyFiles()
    async with folder_at(tmp_path, files) as folder:
        log = await log_in(folder)
        heard: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        log.on_failure(heard.set_result)
        address = await log.append([b"acked"])
        if kind == "write":
            files.write_error = errno.EIO
        else:
            files.sync_error = errno.EIO
        syncs = files.syncs
        with pytest.raises(UnknownOutcome, match="a write or sync failed"):
            await log.append([b"unknown"])
        assert isinstance(await heard, UnknownOutcome)
        files.write_error = 0
        with pytest.raises(Unavailable, match="the log is over"):
            await log.append([b"late"])
        with pytest.raises(PravegaError):
            await log.truncate(address)
        assert files.syncs == syncs  # a failed sync is never tried again
        new = await log_in(folder)
        found = [bytes(entry.payload) async for entry in new.read()]
        assert found in ([b"acked"], [b"acked", b"unknown"])
        await new.append([b"of the new owner"])
        await new.close()
    assert (await payloads_at(tmp_path))[-1] == b"of the new owner"


async def test_a_full_disk_is_waited_for(tmp_path: Path) -> None:
    files, clock = FaultyFiles(), ManualClock()
    async with folder_at(tmp_path, files) as folder:
        log = await log_in(folder, clock)
        files.room_bytes = 100_000
        acked: list[LogAddress] = []
        futures = [log.append([b"%03d" % number + bytes(10_000)]) for number in range(20)]
        for future in futures:
            future.add_done_callback(lambda done: acked.append(done.result()))
        await asyncio.wait_for(log.wait_full(), 10)
        assert 0 < len(acked) < 20
        files.room_bytes = 1_000_000
        assert log.is_full
        await clock.advance(2)
        await asyncio.wait_for(asyncio.gather(*futures), 10)
        assert not log.is_full
        assert acked == sorted(acked)
        await log.close()
    assert [int(payload[:3]) for payload in await payloads_at(tmp_path)] == list(range(20))


@pytest.mark.parametrize("refused", ["create", "rename"])
async def test_a_disk_without_room_for_one_more_name_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A file system may have no room for the node of a file, or for its name in the folder."""
    files, clock = FaultyFiles(), ManualClock()
    call = getattr(files, refused)

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    async with folder_at(tmp_path, files) as folder:
        log = await log_in(folder, clock)
        await log.append([bytes(40_000)])
        monkeypatch.setattr(files, refused, refuse)
        waiting = log.append([bytes(40_000)])  # goes to another file
        full = asyncio.ensure_future(log.wait_full())
        both: tuple[asyncio.Future[Any], ...] = (full, waiting)
        await asyncio.wait(both, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert log.is_full and not waiting.done()
        assert not (tmp_path / "c1" / "plog.new").exists(), "it keeps what others may need"
        monkeypatch.setattr(files, refused, call)
        await clock.advance(2)
        address = await asyncio.wait_for(waiting, 10)
        assert address.plog_number == 1
        await log.close()
    assert len(await payloads_at(tmp_path)) == 2


async def test_the_reserve_lets_a_full_log_be_truncated(tmp_path: Path) -> None:
    """What waits and the checkpoint behind it go to a new file; truncation there frees all before, and the reserve."""
    files, clock = FaultyFiles(), ManualClock()
    files.room_bytes = 300_000
    async with folder_at(tmp_path, files, reserve_bytes=100_000) as folder:
        log = await log_in(folder, clock)
        waiting = [log.append([b"%03d" % number + bytes(10_000)]) for number in range(25)]
        await asyncio.wait_for(log.wait_full(), 10)
        log.relieve()
        checkpoint = log.append([b"checkpoint"])
        log.relieve()
        for _ in range(100):
            await clock.advance(1)
            await asyncio.sleep(0.01)  # real time: the frames are written on a thread
            if checkpoint.done():
                break
        await asyncio.gather(*waiting)
        address = await checkpoint
        assert address.plog_number > waiting[0].result().plog_number
        await log.truncate(address)
        assert (tmp_path / "reserve").stat().st_size == 100_000
        await log.append([b"goes on"])
        await log.close()
    assert await payloads_at(tmp_path) == [b"checkpoint", b"goes on"]


async def test_a_full_disk_stops_neither_take_over_nor_truncation(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with folder_at(tmp_path, files) as folder:
        log = await log_in(folder)
        addresses = [await log.append([bytes(30_000)]) for _ in range(8)]
        files.room_bytes = 0
        new = await log_in(folder)
        assert [entry.address async for entry in new.read()] == addresses
        await new.truncate(addresses[5])
        assert files.room_bytes > 0
        await new.append([b"there is room again"])
        await new.close()
        await log.close()


async def test_a_file_removed_below_the_log_is_noticed(tmp_path: Path) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        await log.append([b"acked"])
        (tmp_path / "c1" / "0000000000.plog").unlink()
        with pytest.raises(UnknownOutcome, match="removed"):
            await log.append([b"into nothing"])
        with pytest.raises(DataCorruption, match="are gone"):
            await log_in(folder)


async def test_a_disk_that_hangs_ends_the_log_in_time(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with folder_at(tmp_path, files, time_max_s=0.2) as folder:
        log = await log_in(folder)
        await log.append([b"acked"])
        files.hold_sync.clear()
        with pytest.raises(UnknownOutcome, match="no answer within"):
            await log.append([b"stuck"])
        with pytest.raises(Unavailable):
            await log_in(folder)
        files.hold_sync.set()
        await log.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, seed: int) -> None:
    """Power is cut on copies while frames are written, files begun and truncations made."""
    chooser, files = random.Random(seed), FaultyFiles()
    root = tmp_path / "live"
    async with folder_at(root, files) as folder:
        log = await log_in(folder)
        acked: dict[int, LogAddress] = {}
        written, first = 0, 0
        for round_number in range(6):
            futures = [
                log.append([b"%06d" % number + bytes(chooser.randrange(9_000))])
                for number in range(written, written + 8)
            ]
            files.write_bytes_max = chooser.choice([0, 3_000])
            for number, future in enumerate(futures, written):
                acked[number] = await future
                if chooser.random() < 0.3:
                    files.cut_power(root, tmp_path / "cut")
                    known = max(acked)
                    found = [int(payload[:6]) for payload in await payloads_at(tmp_path / "cut")]
                    assert found == list(range(first, len(found) + first))
                    assert found[-1] >= known
            written += 8
            if chooser.random() < 0.5:
                first = chooser.randrange(first, written)
                await log.truncate(acked[first])
            if round_number == 3:
                await log.close()
                log = await log_in(folder)
        await log.close()


async def test_a_sync_that_does_nothing_would_be_noticed(tmp_path: Path) -> None:
    """The test of the power cut: with syncs that lie, acknowledged frames are gone from the copy."""

    class LyingFiles(FaultyFiles):
        def sync(self, descriptor: int) -> None:
            if self.syncs < 6:
                super().sync(descriptor)

    files, root = LyingFiles(), tmp_path / "live"
    async with folder_at(root, files) as folder:
        log = await log_in(folder)
        for number in range(10):
            await log.append([b"%d" % number])
        files.cut_power(root, tmp_path / "cut")
        await log.close()
    assert len(await payloads_at(tmp_path / "cut")) < 10
