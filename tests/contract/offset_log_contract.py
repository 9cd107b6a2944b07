"""Says how every ``OffsetLog`` behaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from pravega_common.errors import Fenced, PravegaError
from segment_service.contracts.data_log import DurableDataLog, LogAddress
from segment_service.contracts.offset_log import FrameAt, OffsetLog, OffsetOutOfRange, WrongOffset


@dataclass(frozen=True)
class OwnedLog:
    """An initialized log, and the same by its offsets."""

    log: DurableDataLog
    offsets: OffsetLog


MakeOffsetLog = Callable[[], Awaitable[OwnedLog]]
"""Another owner of container 1's log on the store of this test. Plogs hold 256 KiB + one frame at most."""


def payload(number: int, size: int) -> bytes:
    return b"%08d" % number + bytes(size - 8)


async def frames(log: OffsetLog, offset: int, bytes_max: int = 2**40) -> list[FrameAt]:
    return [frame async for frame in log.read(offset, bytes_max)]


async def numbers(log: OffsetLog, offset: int, bytes_max: int = 2**40) -> list[int]:
    """The offsets that a read gives; each frame must be the one that was appended there."""
    found = await frames(log, offset, bytes_max)
    assert [int(bytes(frame.payload[:8])) for frame in found] == [frame.offset for frame in found]
    return [frame.offset for frame in found]


async def fill(log: OffsetLog, count: int, sizes: tuple[int, ...] = (120_000, 8, 3_000)) -> None:
    first = log.next_offset
    for start in range(first, first + count, 4):
        await asyncio.gather(
            *(
                log.append_at(number, [payload(number, sizes[number % len(sizes)])])
                for number in range(start, min(start + 4, first + count))
            )
        )


class OffsetLogContract:
    """A subclass gives the fixture ``make_offset_log``."""

    zombie_errors: tuple[type[PravegaError], ...] = (Fenced,)
    """The errors of an append to a log with a later owner."""

    async def test_an_empty_log(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        assert (log.next_offset, log.end_offset, await frames(log, 0, 10)) == (0, 0, [])
        (only,) = await log.plogs()
        assert (only.start, only.end, only.is_sealed) == (0, 0, False)

    async def test_an_append_at_another_offset_is_refused_with_the_current_one(
        self, make_offset_log: MakeOffsetLog
    ) -> None:
        log = (await make_offset_log()).offsets
        futures = [log.append_at(number, [payload(number, 20)]) for number in range(3)]
        for wrong in (0, 2, 4):
            with pytest.raises(WrongOffset, match="number 3") as refused:
                await log.append_at(wrong, [b"not there"])
            assert refused.value.current == 3
        await asyncio.gather(*futures, log.append_at(3, [payload(3, 20)]))
        assert (log.next_offset, log.end_offset) == (4, 4)
        assert await numbers(log, 0) == [0, 1, 2, 3]

    async def test_offsets_go_on_with_the_next_owner(self, make_offset_log: MakeOffsetLog) -> None:
        old = (await make_offset_log()).offsets
        await fill(old, 10)
        log = (await make_offset_log()).offsets
        assert (log.next_offset, log.end_offset) == (10, 10)
        with pytest.raises(WrongOffset):
            await log.append_at(9, [b"again"])
        await fill(log, 10)
        assert await numbers(log, 0) == list(range(20))

    async def test_any_part_is_read_over_many_plogs(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        await fill(log, 60)
        assert len(await log.plogs()) >= 3
        for offset in (0, 1, 17, 30, 59, 60):
            assert await numbers(log, offset) == list(range(offset, 60))
        assert await numbers(log, 5, 1) == [5]
        assert await numbers(log, 3, 120_009) == [3, 4, 5]
        assert await numbers(log, 3, 120_008) == [3, 4]

    async def test_reads_at_random_beside_appends(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        rng = random.Random(7)
        await fill(log, 10)
        writing = asyncio.create_task(fill(log, 60, (100_000, 8, 700, 40_000)))
        while not writing.done():
            offset, end = rng.randrange(log.end_offset), log.end_offset
            found = await numbers(log, offset, rng.choice((1, 50_000, 2**40)))
            assert found == list(range(offset, offset + len(found))) and found
            assert found[-1] < max(end, log.end_offset)
            await asyncio.sleep(0)
        await writing
        assert await numbers(log, 0) == list(range(70))

    async def test_frames_of_very_different_sizes_are_found(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        await fill(log, 200, (8, 8, 8, 8, 8, 8, 8, 8, 90_000))
        for offset in range(200):
            assert await numbers(log, offset, 1) == [offset]

    async def test_only_what_is_acknowledged_is_read(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        await fill(log, 2)
        future = log.append_at(2, [payload(2, 8)])
        if not future.done():
            assert await numbers(log, 0) in ([0, 1], [0, 1, 2])
            with pytest.raises(OffsetOutOfRange):
                await frames(log, 4)
        await future
        assert await numbers(log, 2) == [2]

    async def test_the_plogs_cover_the_log_without_gaps(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        await fill(log, 60)
        plogs = await log.plogs()
        assert (plogs[0].start, plogs[-1].end) == (0, 60)
        assert [plog.end for plog in plogs[:-1]] == [plog.start for plog in plogs[1:]]
        assert [plog.is_sealed for plog in plogs] == [True] * (len(plogs) - 1) + [False]
        found = [plog.number for plog in plogs]
        assert found == sorted(set(found))

    async def test_truncation_by_offset(self, make_offset_log: MakeOffsetLog) -> None:
        log = (await make_offset_log()).offsets
        await fill(log, 60)
        before = len(await log.plogs())
        for offset in (31, 32, 32, 45):
            await log.truncate_before(offset)
            assert await numbers(log, offset) == list(range(offset, 60))
            assert (await log.plogs())[0].start == offset
            with pytest.raises(OffsetOutOfRange, match=f"from {offset} to before 60"):
                await frames(log, offset - 1)
        assert len(await log.plogs()) < before
        for wrong in (44, 60, 61):
            with pytest.raises(OffsetOutOfRange):
                await log.truncate_before(wrong)
        following = (await make_offset_log()).offsets
        assert (await following.plogs())[0].start == 45
        await fill(following, 3)
        assert await numbers(following, 45) == list(range(45, 63))

    async def test_a_read_of_what_is_truncated_meanwhile_ends_with_an_error(
        self, make_offset_log: MakeOffsetLog
    ) -> None:
        log = (await make_offset_log()).offsets
        await fill(log, 60)
        reading = log.read(0, 2**40)
        assert (await anext(reading)).offset == 0
        await log.truncate_before(59)
        with pytest.raises(OffsetOutOfRange):
            found = [frame.offset async for frame in reading]
            assert found == list(range(1, len(found) + 1)), "what was read before is right"
            raise AssertionError(f"read {len(found)} frames that are gone")

    async def test_an_owner_that_was_fenced_learns_it(self, make_offset_log: MakeOffsetLog) -> None:
        old = (await make_offset_log()).offsets
        await fill(old, 4)
        await make_offset_log()
        with pytest.raises(self.zombie_errors):
            await old.append_at(4, [b"zombie"])
        with pytest.raises(Fenced):
            await frames(old, 0)

    async def test_it_is_the_same_log(self, make_offset_log: MakeOffsetLog) -> None:
        owned = await make_offset_log()
        address = await owned.log.append([payload(0, 8)])
        assert await owned.offsets.append_at(1, [payload(1, 8)]) > address
        assert owned.offsets.end_offset == 2
        assert isinstance(address, LogAddress)
        following = await make_offset_log()
        assert [bytes(entry.payload[:8]) async for entry in following.log.read()] == [b"00000000", b"00000001"]
