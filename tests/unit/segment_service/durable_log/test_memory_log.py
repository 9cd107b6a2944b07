from __future__ import annotations

import asyncio
import random

import pytest

from pravega_common.invariants import InvariantViolation
from segment_service.contracts.operations import Barrier
from segment_service.durable_log import memory_log
from segment_service.durable_log.memory_log import MemoryLog


def barriers(*numbers: int) -> list[Barrier]:
    return [Barrier(sequence_number=number) for number in numbers]


async def test_reads_go_on_where_the_last_one_ended_also_over_gaps() -> None:
    log = MemoryLog()
    log.extend(barriers(1, 2, 3, 1000, 1001))
    assert [item.sequence_number for item in await log.read(0, 2)] == [1, 2]
    assert [item.sequence_number for item in await log.read(2, 10)] == [3, 1000, 1001]
    assert [item.sequence_number for item in await log.read(500, 10)] == [1000, 1001]


async def test_a_read_at_the_end_waits() -> None:
    log = MemoryLog()
    log.extend(barriers(1))
    waiting = asyncio.ensure_future(log.read(1, 10))
    await asyncio.sleep(0)
    assert not waiting.done()
    log.extend(barriers(2))
    assert [item.sequence_number for item in await waiting] == [2]


async def test_truncation() -> None:
    log = MemoryLog()
    log.extend(barriers(1, 2, 5, 6))
    log.truncate(4)
    assert len(log) == 2
    assert [item.sequence_number for item in await log.read(0, 10)] == [5, 6]
    log.truncate(100)
    assert len(log) == 0 and log.last_sequence_number == 6


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_log, "block_operations", 7)
    monkeypatch.setattr(memory_log, "truncated_at_once_max", 20)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("_small")
async def test_blocks_are_not_to_be_seen(seed: int) -> None:
    """Any course of additions, reads and truncations is that of one list."""
    rng = random.Random(seed)
    log, kept, last = MemoryLog(), list[int](), 0
    for _ in range(200):
        numbers = [last := last + rng.choice((1, 1, 1, 50)) for _ in range(rng.choice((0, 1, 5, 30)))]
        log.extend(barriers(*numbers))
        kept += numbers
        up_to = rng.choice([0, *kept[:40]]) + rng.randint(0, 3)
        before = len(log)
        has_more = log.truncate(up_to)
        assert before - len(log) == min(20, sum(number <= up_to for number in kept))
        del kept[: before - len(log)]
        assert has_more == (bool(kept) and kept[0] <= up_to)
        assert len(log) == len(kept)
        if kept:
            after = rng.choice((0, rng.choice(kept) - 1))
            found = [item.sequence_number for item in await log.read(after, rng.randint(1, 10))]
            wanted = [number for number in kept if number > after]
            assert found and found == wanted[: len(found)]


def test_a_truncation_touches_one_block_and_what_it_forgets() -> None:
    log = MemoryLog()
    log.extend(barriers(*range(1, 50_001)))
    untouched = list(log._blocks)[1:]
    sizes = list(map(len, untouched))
    assert not log.truncate(10)
    assert all(found is kept for found, kept in zip(list(log._blocks)[1:], untouched, strict=True))
    assert list(map(len, untouched)) == sizes
    assert log.truncate(50_000), "a call ends before all are forgotten"
    assert len(log) == 50_000 - 10 - memory_log.truncated_at_once_max
    while log.truncate(50_000):
        pass
    assert not len(log)


def test_sequence_numbers_never_go_back() -> None:
    log = MemoryLog()
    log.extend(barriers(5))
    with pytest.raises(InvariantViolation):
        log.extend(barriers(5))
