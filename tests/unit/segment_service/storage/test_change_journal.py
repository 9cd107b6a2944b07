"""Journals of changes: their bytes, what shares a put, and when they go."""

from __future__ import annotations

import asyncio
import random

import pytest

from pravega_common.errors import DataCorruption, Fenced, Unavailable, UnknownOutcome
from segment_service.storage import change_journal, garbage
from segment_service.storage.change_journal import JournalObject, decode, encode
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.faulty_chunk_storage import FaultRates, FaultyChunkStorage
from tests.support.log_states import some_log
from tests.support.tier2_garbage import collect_all

GOLDEN = "5056434a000100000000000000000009000000020000000000000007fffffffffffffffe292f3fb1"


def test_its_bytes_stay() -> None:
    data = encode(9, [7, 2**64 - 2])
    assert data.hex() == GOLDEN
    assert decode(data, "name", 9) == (7, 2**64 - 2)
    assert decode(encode(9, []), "name", 9) == ()


def test_damage_is_named() -> None:
    whole = encode(9, [1, 2, 3])
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        with pytest.raises(DataCorruption, match="name"):
            decode(bytes(damaged), "name", 9)
        with pytest.raises(DataCorruption, match="name"):
            decode(whole[:place], "name", 9)
    with pytest.raises(DataCorruption, match="epoch 9"):
        decode(whole, "name", 8)
    with pytest.raises(DataCorruption, match=r"version 2; .* if a newer one wrote it, run that"):
        decode(whole[:4] + b"\0\2" + whole[6:], "name", 9)


class Kit:
    """An owner of a container, and its journals."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.chunks = InMemoryChunkStorage()
        self.faulty = FaultyChunkStorage(self.chunks, random.Random(1), self.clock)
        self.is_fenced = False

    async def open(self, epoch: int = 1) -> RollingStorage:
        storage = RollingStorage(self.faulty, 1, self.clock, background=False)
        await storage.start(epoch, self._barrier, some_log)
        return storage

    async def _barrier(self) -> None:
        if self.is_fenced:
            raise Fenced("a later owner")

    def journals(self) -> list[tuple[int, ...]]:
        return [decode(data, name, 1) for name, data in sorted(self.chunks.objects.items()) if "/j/" in name]


@pytest.fixture
def kit() -> Kit:
    return Kit()


async def change_in_the_next_generation(kit: Kit, storage: RollingStorage, segment_id: int) -> None:
    await kit.clock.advance(change_journal.generation_time_max_s)
    async with storage._journal.noted(segment_id):  # private: a change that leaves nothing
        pass
    await collect_all(storage)


async def test_a_segment_is_noted_once_and_before_anything_of_it_is_put(kit: Kit) -> None:
    storage = await kit.open()
    await storage.write(7, 0, [b"one"])
    names = list(kit.chunks.objects)
    assert [name[6:9] for name in names if "/e/" not in name] == ["/j/", "/d/", "/m/"]
    await storage.write(7, 3, [b"two"])
    await storage.seal(7)
    await storage.write(8, 0, [b"one"])
    assert kit.journals() == [(7,), (8,)]


async def test_changes_that_begin_together_share_one_put(kit: Kit) -> None:
    storage = await kit.open()
    await asyncio.gather(*(storage.write(number, 0, [b"data"]) for number in range(1, 501)))
    assert kit.journals() == [tuple(range(1, 501))]


async def test_nothing_changes_when_it_cannot_be_noted_and_the_next_attempt_can(kit: Kit) -> None:
    storage = await kit.open()
    kit.faulty.rates = FaultRates(unknown_lost=1.0)
    failures = await asyncio.gather(storage.write(7, 0, [b"x"]), storage.write(8, 0, [b"x"]), return_exceptions=True)
    assert [type(error) for error in failures] == [UnknownOutcome, UnknownOutcome]
    kit.faulty.rates = FaultRates()
    assert not [name for name in kit.chunks.objects if "/e/" not in name]
    await storage.write(7, 0, [b"x"])
    assert kit.journals() == [(7,)]


async def test_a_change_that_is_cancelled_leaves_the_put_to_others(kit: Kit) -> None:
    storage = await kit.open()
    first = asyncio.create_task(storage.write(7, 0, [b"x"]))
    second = asyncio.create_task(storage.write(8, 0, [b"x"]))
    await asyncio.sleep(0)
    assert storage._journal._puts.is_under_way  # private: one of the two puts for both
    first.cancel()
    await second
    assert 8 in [one for ids in kit.journals() for one in ids]


async def test_many_objects_become_one(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_journal, "generation_objects_max", 4)
    storage = await kit.open()
    for number in range(1, 6):
        await storage.write(number, 0, [b"x"])
    await collect_all(storage)
    assert kit.journals() == [(1, 2, 3, 4, 5)]


async def test_a_generation_goes_behind_the_garbage_of_its_changes(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_journal, "generation_ids_max", 2)
    storage = await kit.open()
    for number in (1, 2, 3):
        await storage.write(number, 0, [b"x"])
        await storage.truncate(number, 1)
    assert kit.journals() == [(1,), (2,), (3,)]
    kit.faulty.rates = FaultRates(unavailable=0.5)
    while kit.faulty.rates.unavailable:
        try:
            await collect_all(storage)
            kit.faulty.rates = FaultRates()
        except Unavailable:
            if any("/d/" in name for name in kit.chunks.objects if f"/{3:016x}/" not in name):
                assert kit.journals() == [(1,), (2,), (3,)]
    assert kit.journals() == [(3,)]
    assert not [name for name in kit.chunks.objects if "/d/" in name]


async def test_an_old_generation_ends_with_the_next_change_but_not_before_one_under_way(kit: Kit) -> None:
    storage = await kit.open()
    await storage.write(7, 0, [b"x"])
    async with storage._journal.noted(7):  # private: a change that takes long
        await kit.clock.advance(change_journal.generation_time_max_s)
        await storage.write(8, 0, [b"x"])
        await collect_all(storage)
        assert kit.journals() == [(7,), (8,)]
    await collect_all(storage)
    assert kit.journals() == [(8,)]


async def test_a_generation_stays_when_garbage_was_given_up(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = await kit.open()
    await storage.write(7, 0, [b"x"])
    monkeypatch.setattr(garbage, "waiting_names_max", 0)
    await storage.truncate(7, 1)
    monkeypatch.undo()
    await kit.clock.advance(change_journal.generation_time_max_s)
    await storage.write(8, 0, [b"x"])
    await collect_all(storage)
    assert kit.journals() == [(7,), (8,)]


async def test_the_next_generation_names_what_is_left_to_later_owners(kit: Kit) -> None:
    storage = await kit.open()
    journal = storage._journal  # private: changes that end as a test wants
    for number in (7, 8):
        async with journal.noted(number, is_lasting=number == 7):
            pass
    for number in (9, 10):
        await change_in_the_next_generation(kit, storage, number)
        assert kit.journals() == [(7, number)]


async def test_an_old_generation_stays_until_the_next_one_names_what_it_leaves(kit: Kit) -> None:
    storage = await kit.open()
    journal = storage._journal  # private: changes that end as a test wants
    with pytest.raises(Unavailable):
        async with journal.noted(7):
            await kit.clock.advance(change_journal.generation_time_max_s)
            async with journal.noted(8):
                pass
            raise Unavailable("a change that failed long after it began")
    await collect_all(storage)
    assert kit.journals() == [(7,), (8,)]
    async with journal.noted(9):
        pass
    await collect_all(storage)
    assert kit.journals() == [(8,), (7, 9)]


async def test_a_generation_stays_when_it_leaves_many(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_journal, "lasting_ids_max", 1)
    storage = await kit.open()
    journal = storage._journal  # private: changes that end as a test wants
    async with journal.noted(7, 8, is_lasting=True):
        pass
    for number in (9, 10):
        await change_in_the_next_generation(kit, storage, number)
        assert kit.journals() == [(7, 8), (number,)]


async def test_those_of_earlier_owners_are_read_and_one_of_a_later_one_fences(kit: Kit) -> None:
    one = await kit.open(1)
    await one.write(7, 0, [b"x"])
    two = await kit.open(2)
    (journal,) = await two._journal.earlier()
    assert isinstance(journal, JournalObject) and journal.epoch == 1
    assert await two._journal.read(journal) == (7,)
    await two.write(8, 0, [b"x"])
    with pytest.raises(Fenced, match="later owner than epoch 1"):
        await one._journal.earlier()
