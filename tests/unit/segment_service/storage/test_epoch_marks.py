"""The bytes of epoch marks, old and new and damaged, and which mark counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pravega_common.errors import DataCorruption, Fenced, SegmentNotFound, Unavailable
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.segment_storage import EpochMark, LogState
from segment_service.storage.chunk_names import Layout
from segment_service.storage.epoch_marks import decode_mark, encode_mark
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.fakes.clock import ManualClock

LOG = LogState(bytes(range(16)), 77, 8)
GOLDEN = "5056454d00010000000102030405060708090a0b0c0d0e0f0000000000000009000000000000004d0000000000000008ff9bb1b4"


GOLDEN_SHARED = (
    "5056454d00020000000102030405060708090a0b0c0d0e0f0000000000000009000000000000004d00000000000000084c9abbf6"
)
"""Of a container that shares objects: programs that know version 1 only refuse it by its version."""


def test_golden_bytes() -> None:
    assert encode_mark(EpochMark(9, LOG)).hex() == GOLDEN
    assert encode_mark(EpochMark(9, LOG), shares_objects=True).hex() == GOLDEN_SHARED
    for golden in (GOLDEN, GOLDEN_SHARED):
        assert decode_mark(bytes.fromhex(golden), "name", 9) == EpochMark(9, LOG)


def test_marks_before_version_1_tell_the_epoch_only() -> None:
    assert decode_mark(b"open", "name", 9) == EpochMark(9, None)


@pytest.mark.parametrize(
    ("data", "epoch", "message"),
    [
        (b"", 9, "is no epoch mark"),
        (b"opened", 9, "is no epoch mark"),
        (b"PVEM", 9, "is no epoch mark"),
        (bytes.fromhex(GOLDEN)[:-1], 9, "has 51 bytes, not 52"),
        (bytes.fromhex(GOLDEN) + b"x", 9, "has 53 bytes, not 52"),
        (bytes.fromhex(GOLDEN.replace("4d0000000000000008", "4e0000000000000008")), 9, "fails its checksum"),
        (b"PVEM\0\3" + bytes.fromhex(GOLDEN)[6:], 9, "has version 3; this program reads 1 and 2"),
        (b"PVEM\0\2" + bytes.fromhex(GOLDEN)[6:], 9, "fails its checksum"),
        (bytes.fromhex(GOLDEN), 8, "says that it is of epoch 9"),
    ],
)
def test_anything_else_is_damaged(data: bytes, epoch: int, message: str) -> None:
    with pytest.raises(DataCorruption, match=message):
        decode_mark(data, "name", epoch)


async def no_barrier() -> None:
    """Returns at once."""


class Opened:
    """A container's Tier 2 over a log whose state the test sets."""

    def __init__(self, epoch: int, chunks: InMemoryChunkStorage) -> None:
        self.epoch = epoch
        self.clock = ManualClock()
        self.log = LOG
        self.storage = RollingStorage(chunks, 3, self.clock, background=False)

    async def start(self) -> RollingStorage:
        await self.storage.start(self.epoch, no_barrier, lambda: self.log)
        return self.storage


async def marks(chunks: InMemoryChunkStorage) -> list[str]:
    return [info.name async for info in chunks.list(Layout(3).epochs)]


async def test_the_newest_mark_counts_and_the_others_go() -> None:
    chunks = InMemoryChunkStorage()
    one, two = Opened(1, chunks), Opened(2, chunks)
    assert await one.storage.newest_mark() is None
    assert await one.storage.first_object() == ""
    await one.start()
    assert await two.storage.newest_mark() == EpochMark(1, LOG)
    await two.start()
    one.log = replace(LOG, high_water=999)
    await one.storage.mark(999)  # of an owner that does not know yet that it was fenced
    assert await two.storage.newest_mark() == EpochMark(2, LOG)
    two.log = replace(LOG, high_water=100, next_segment_id=9)
    await two.storage.mark(100)
    assert await one.storage.newest_mark() == EpochMark(2, two.log)
    await two.storage.garbage.collect()
    assert len(await marks(chunks)) == 2, "the fenced owner's is left to the next one"
    three = await Opened(3, chunks).start()
    await three.garbage.collect()
    assert len(await marks(chunks)) == 1
    assert (await three.first_object()).startswith("c00003/e/")


async def test_an_epoch_is_opened_once() -> None:
    chunks = InMemoryChunkStorage()
    await Opened(2, chunks).start()
    for epoch in (1, 2):
        with pytest.raises(Fenced, match="opened at epoch 2"):
            await Opened(epoch, chunks).start()


async def test_a_mark_never_says_less_than_the_one_before() -> None:
    opened = Opened(1, InMemoryChunkStorage())
    await opened.start()
    opened.log = replace(LOG, high_water=LOG.high_water + 1, identity=bytes(16))
    with pytest.raises(InvariantViolation, match="says less"):
        await opened.storage.mark(LOG.high_water + 1)


async def test_marks_that_keep_vanishing_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = InMemoryChunkStorage()
    opened = Opened(1, chunks)
    await opened.start()

    async def vanishes(name: str, offset: int, length: int) -> bytes:
        raise SegmentNotFound(name)

    monkeypatch.setattr(chunks, "get", vanishes)
    with pytest.raises(Unavailable, match="keep vanishing"):
        await opened.storage.newest_mark()


async def test_what_is_not_durable_gets_no_mark() -> None:
    opened = Opened(1, InMemoryChunkStorage())
    await opened.start()
    with pytest.raises(InvariantViolation, match="not durable"):
        await opened.storage.write(7, 0, [b"x"], LOG.high_water + 1)


class HeldMarks(InMemoryChunkStorage):
    """Holds puts of marks back until ``gate`` is set, and then lets the next ``failures`` of them fail."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.marks = 0
        self.failures = 0

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        if "/e/" in name:
            self.marks += 1
            await self.gate.wait()
            if self.failures:
                self.failures -= 1
                raise Unavailable("no mark now")
        await super().put(name, data)

    def manifests(self) -> list[str]:
        return [name for name in self.objects if "/m/" in name]


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_changes_wait_for_a_mark_and_share_it() -> None:
    chunks = HeldMarks()
    opened = Opened(1, chunks)
    storage = await opened.start()
    await storage.write(1, 0, [b"x"], LOG.high_water)
    assert (chunks.marks, len(chunks.manifests())) == (1, 1), "the first mark covers it"
    chunks.gate.clear()
    opened.log = replace(LOG, high_water=100)
    first = asyncio.create_task(storage.write(2, 0, [b"x"], 90))
    await some_turns()
    opened.log = replace(LOG, high_water=120)
    others = [asyncio.create_task(storage.write(segment, 0, [b"x"], 90 + segment)) for segment in range(3, 23)]
    await some_turns()
    assert (chunks.marks, len(chunks.manifests())) == (2, 1)
    assert len([name for name in chunks.objects if "/d/" in name]) == 22, "chunks do not wait"
    chunks.gate.set()
    await asyncio.gather(first, *others)
    assert chunks.marks == 3, "one that was under way, and one for all that it did not cover"
    await storage.concat(2, 1, 4, 120)
    await storage.seal(2, 120)
    await storage.truncate(3, 1, 120)
    await storage.delete(5, 120)
    assert chunks.marks == 3


@pytest.mark.parametrize("change", ["seal", "truncate", "concat", "delete", "empty write"])
async def test_no_change_shows_without_its_mark(change: str) -> None:
    chunks = HeldMarks()
    opened = Opened(1, chunks)
    storage = await opened.start()
    for segment in (1, 2):
        await storage.write(segment, 0, [b"xy"], LOG.high_water)
    opened.log = replace(LOG, high_water=100)
    before = chunks.manifests()
    calls = {
        "seal": lambda: storage.seal(1, 100),
        "truncate": lambda: storage.truncate(1, 1),
        "concat": lambda: storage.concat(1, 2, 2, 100),
        "delete": lambda: storage.delete(1, 100),
        "empty write": lambda: storage.write(3, 0, [], 100),
    }
    chunks.failures = 1
    with pytest.raises(Unavailable, match="no mark now"):
        await calls[change]()
    assert chunks.manifests() == before
    await calls[change]()
    assert chunks.manifests() != before


async def test_a_mark_that_fails_fails_all_that_wait_and_leaves_no_chunk() -> None:
    chunks = HeldMarks()
    opened = Opened(1, chunks)
    storage = await opened.start()
    opened.log = replace(LOG, high_water=100)
    chunks.gate.clear()
    chunks.failures = 1
    writes = [asyncio.create_task(storage.write(segment, 0, [b"x"], 90)) for segment in (1, 2)]
    await some_turns()
    chunks.gate.set()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(one) for one in results] == [Unavailable, Unavailable]
    assert not chunks.manifests()
    await storage.garbage.collect()
    assert not [name for name in chunks.objects if "/d/" in name]


async def test_a_write_that_is_given_up_leaves_its_mark_to_another() -> None:
    chunks = HeldMarks()
    opened = Opened(1, chunks)
    storage = await opened.start()
    opened.log = replace(LOG, high_water=100)
    chunks.gate.clear()
    first, second = (asyncio.create_task(storage.write(segment, 0, [b"x"], 90)) for segment in (1, 2))
    await some_turns()
    first.cancel()
    await some_turns()
    chunks.gate.set()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert chunks.marks == 3
