"""A segment that was merged twice, and whose bytes were truncated where they live by then."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Sequence

import pytest

from pravega_common.runtime.clock import SystemClock
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.operations import Truncate
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.writer import segment_aggregator
from tests.support.fakes.faulty_chunk_storage import FaultRates
from tests.support.fakes.writer_source import CommittedLog
from tests.unit.segment_service.writer import test_storage_writer

HASTY = dataclasses.replace(
    test_storage_writer.CONFIG,
    burst_operations_min=1,
    gather_s=0.5,
    merge_age_s=0.0,
    flush_age_s=0.0,
    quiet_age_ratio=1.0,
    transaction_age_s=0.0,
    tick_s=0.005,
)
"""The writer writes at once what it has read, and reads the log only now and then."""


async def test_bytes_that_were_truncated_two_merges_up_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer has read the first merge and not the second; the cache dropped the bytes."""
    monkeypatch.setattr(segment_aggregator, "write_bytes_max", 40)
    monkeypatch.setattr(test_storage_writer, "CONFIG", HASTY)
    monkeypatch.setattr(test_storage_writer, "YieldingClock", lambda rng: SystemClock())
    log, chunks, rng = CommittedLog(), InMemoryChunkStorage(), random.Random(0)
    owner = await test_storage_writer.new_owner(log, chunks, rng, FaultRates())
    upper, middle, lower = (log.create_named(name) for name in ("scope/upper", "scope/middle", "scope/lower"))
    log.append(lower, b"a" * 10)
    owner.container.show_all()
    await asyncio.wait_for(owner.writer.flush(owner.container.last_sequence), 5)
    # The writer rests after what it has read, for gather_s; nothing says that it does not any more.
    await asyncio.sleep(HASTY.gather_s + 0.2)

    is_reached, is_open = asyncio.Event(), asyncio.Event()
    write = owner.storage.write

    async def held(segment_id: int, offset: int, data: Sequence[Buffer], sequence: int | None = None) -> None:
        if segment_id == lower and offset == 10:
            is_reached.set()
            await is_open.wait()
        await write(segment_id, offset, data, sequence)

    monkeypatch.setattr(owner.storage, "write", held)
    log.append(lower, b"b" * 30)
    log.append(lower, b"c" * 40)
    log.merge(middle, lower)
    owner.container.show_all()
    await asyncio.wait_for(is_reached.wait(), 5)
    log.merge(upper, middle)
    log.commit(Truncate(sequence_number=log.next_sequence, segment_id=upper, offset=80))
    owner.container.show_all()
    is_open.set()
    await owner.settle()
    await test_storage_writer.verify(owner, log, chunks)
    await owner.stop()
