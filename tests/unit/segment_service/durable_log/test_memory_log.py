from __future__ import annotations

import asyncio

import pytest

from pravega_common.invariants import InvariantViolation
from segment_service.contracts.operations import Barrier
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


def test_sequence_numbers_never_go_back() -> None:
    log = MemoryLog()
    log.extend(barriers(5))
    with pytest.raises(InvariantViolation):
        log.extend(barriers(5))
