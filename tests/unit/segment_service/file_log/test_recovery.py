"""What a new owner finds after a crash: torn tails are cut, what was acknowledged never is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption
from segment_service.file_log.layout import encode_mark, header_bytes
from tests.unit.segment_service.file_log.kit import folder_at, log_in, payloads_at

FRAMES = [b"%03d" % number + random.Random(number).randbytes(900) for number in range(20)]
stored_bytes = 903 + 64


async def written(root: Path, frames: list[bytes] = FRAMES) -> Path:
    """A log with these frames in one file, as a killed process leaves it; its last plog file."""
    async with folder_at(root / "live") as folder:
        log = await log_in(folder)
        for frame in frames:
            await log.append([frame])
        shutil.copytree(root / "live", root / "dead")
        await log.close()
    return max((root / "dead" / "c1").glob("*.plog"))


async def test_a_tail_torn_anywhere_is_cut_where_it_fails(tmp_path: Path) -> None:
    plog = await written(tmp_path)
    whole = plog.read_bytes()
    last = header_bytes + stored_bytes * (len(FRAMES) - 1)
    chooser = random.Random(1)
    for cut in (last, last + 1, last + 8, last + 30, last + 64, last + stored_bytes - 1):
        for tail in (b"", bytes(2_000), chooser.randbytes(2_000)):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(tmp_path / "dead", tmp_path / "copy")
            (tmp_path / "copy" / "c1" / plog.name).write_bytes(whole[:cut] + tail)
            assert await payloads_at(tmp_path / "copy") == FRAMES[:-1]
            assert await payloads_at(tmp_path / "copy") == FRAMES[:-1]  # the next owner decides the same


@pytest.mark.parametrize("number", [0, 7, 17])
async def test_damage_below_what_was_acknowledged_is_reported(tmp_path: Path, number: int) -> None:
    plog = await written(tmp_path)
    content = bytearray(plog.read_bytes())
    content[header_bytes + number * stored_bytes + 100] ^= 1
    plog.write_bytes(content)
    with pytest.raises(DataCorruption, match=f"whole up to entry {number - 1} .* 19 entries had been acknowledged"):
        await payloads_at(tmp_path / "dead")


async def test_a_tail_lost_after_a_clean_stop_is_reported(tmp_path: Path) -> None:
    await written(tmp_path)
    plog = max((tmp_path / "live" / "c1").glob("*.plog"))
    plog.write_bytes(plog.read_bytes()[: header_bytes + stored_bytes * (len(FRAMES) - 1) + 5])
    with pytest.raises(DataCorruption, match="19 entries were found, 20 had been acknowledged"):
        await payloads_at(tmp_path / "live")


async def test_a_payload_that_looks_like_a_later_entry_is_no_entry(tmp_path: Path) -> None:
    """A user may store bytes of a plog file in an event; torn, it must not pass for an acknowledgement."""
    donor = await written(tmp_path / "donor")
    pretender = donor.read_bytes()[header_bytes + 5 * stored_bytes :][: 10 * stored_bytes]
    known_salt = encode_mark(bytes(16), header_bytes, stored_bytes - 8)
    plog = await written(tmp_path, [b"first", known_salt + pretender])
    content = bytearray(plog.read_bytes())
    content[header_bytes + 5 + 64 + 40] ^= 1  # inside the second entry's envelope
    plog.write_bytes(content)
    assert await payloads_at(tmp_path / "dead") == [b"first"]


async def test_entries_of_several_files_and_owners_come_back(tmp_path: Path) -> None:
    frames = [random.Random(number).randbytes(30_000) for number in range(12)]
    for owner in range(3):
        async with folder_at(tmp_path) as folder:
            log = await log_in(folder)
            for frame in frames[owner * 4 : owner * 4 + 4]:
                await log.append([frame])
            await log.close()
    assert await payloads_at(tmp_path) == frames
    assert len(list((tmp_path / "c1").glob("*.plog"))) == 6


@pytest.mark.parametrize("lost", [0, 1, 3])
async def test_a_file_that_is_gone_is_reported(tmp_path: Path, lost: int) -> None:
    await written(tmp_path, [bytes(30_000)] * 8)
    (tmp_path / "dead" / "c1" / f"{lost:010d}.plog").unlink()
    with pytest.raises(DataCorruption, match=rf"plog files \[{lost}\] of 0 to 3 are gone"):
        await payloads_at(tmp_path / "dead")


async def test_a_file_that_lost_its_middle_or_end_is_reported(tmp_path: Path) -> None:
    await written(tmp_path, [bytes(30_000)] * 8)
    plog = tmp_path / "dead" / "c1" / "0000000001.plog"
    content = plog.read_bytes()
    for damaged in (content[:40_000], content[:10_000] + b"\1" + content[10_001:]):
        plog.write_bytes(damaged)
        with pytest.raises(DataCorruption):
            await payloads_at(tmp_path / "dead")


async def test_a_file_of_another_log_is_refused(tmp_path: Path) -> None:
    other = await written(tmp_path / "other")
    plog = await written(tmp_path)
    shutil.copy(other, plog)
    with pytest.raises(DataCorruption, match="of another log or container"):
        await payloads_at(tmp_path / "dead")


async def test_files_without_a_state_are_no_new_log(tmp_path: Path) -> None:
    await written(tmp_path)
    (tmp_path / "dead" / "c1" / "state").unlink()
    with pytest.raises(DataCorruption, match="has plog files and no state"):
        await payloads_at(tmp_path / "dead")


async def test_a_file_that_was_not_recorded_yet_is_taken(tmp_path: Path) -> None:
    """The process died between naming the file and recording it: nothing was acknowledged in it."""
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        state = (tmp_path / "c1" / "state").read_bytes()
        await log.append([b"lost with the record"])
        await log.close()
    plog = tmp_path / "c1" / "0000000000.plog"
    plog.write_bytes(plog.read_bytes()[:header_bytes])
    (tmp_path / "c1" / "state").write_bytes(state)
    (tmp_path / "c1" / "plog.new").write_bytes(b"half")
    assert await payloads_at(tmp_path) == []
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        assert (await log.append([b"next"])).plog_number == 1
        await log.close()
    assert await payloads_at(tmp_path) == [b"next"]


async def test_a_folder_has_one_process(tmp_path: Path) -> None:
    async with folder_at(tmp_path):
        with pytest.raises(ConfigurationError, match="is in use by process"):
            async with folder_at(tmp_path):
                pass
    async with folder_at(tmp_path):
        pass


async def test_a_crash_after_the_truncation_was_recorded_leaves_files_that_the_next_one_removes(tmp_path: Path) -> None:
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        addresses = [await log.append([bytes(30_000)]) for _ in range(8)]
        first = tmp_path / "c1" / "0000000000.plog"
        content = first.read_bytes()
        await log.truncate(addresses[4])
        assert not first.exists()
        first.write_bytes(content)
        await log.close()
    async with folder_at(tmp_path) as folder:
        log = await log_in(folder)
        assert [entry.address async for entry in log.read()] == addresses[4:]
        await log.truncate(addresses[5])
        assert not first.exists()
        await log.close()
