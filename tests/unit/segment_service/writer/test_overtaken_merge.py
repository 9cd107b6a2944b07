"""A merge of cached bytes whose source an owner that was overtaken still brought to Tier 2."""

from __future__ import annotations

import asyncio
import random

import pytest

from pravega_common.runtime import failpoints
from segment_service.contracts.operations import MapSegment
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.writer import segment_flusher
from tests.support.eventually import eventually
from tests.support.fakes.faulty_chunk_storage import FaultRates
from tests.support.fakes.writer_source import TRANSACTION, CommittedLog
from tests.unit.segment_service.writer.test_storage_writer import _crash_at, _small_writes, new_owner, verify

__all__ = ["_small_writes"]

BYTES = bytes(range(200)) * 2


@pytest.mark.parametrize("is_crash", [False, True])
async def test_what_the_source_has_in_tier_2_goes_when_the_target_has_its_bytes(is_crash: bool) -> None:
    log, chunks, rng = CommittedLog(), InMemoryChunkStorage(), random.Random(0)
    target, source = _created(log, "scope/target"), _created(log, TRANSACTION)
    log.append(source, BYTES)
    log.merge(target, source)

    crashed = asyncio.Event()
    failpoints.arm(segment_flusher.STORED, _crash_at(1, crashed))
    first = await new_owner(log, chunks, rng, FaultRates())
    first.container.show_all()
    await eventually(crashed.is_set, "a part of the target is in Tier 2")
    failpoints.disarm_all()
    await first.stop()

    owner = await new_owner(log, chunks, rng, FaultRates())
    stored = await owner.storage.state(target)
    assert stored is not None and 0 < stored.length < len(BYTES)
    await owner.storage.write(source, 0, [BYTES[:100]])
    deleted = asyncio.Event()
    failpoints.arm(segment_flusher.SOURCE_DELETED, _crash_at(1, deleted) if is_crash else deleted.set)
    owner.container.show_all()
    await eventually(deleted.is_set, "the source is deleted")
    failpoints.disarm_all()
    if is_crash:
        await owner.stop()
        owner = await new_owner(log, chunks, rng, FaultRates())

    await owner.settle()
    await verify(owner, log, chunks)
    assert await owner.storage.state(source) is None
    await owner.stop()


def _created(log: CommittedLog, name: str) -> int:
    segment_id = log.next_id
    log.next_id += 1
    log.commit(MapSegment(sequence_number=log.next_sequence, name=name, segment_id=segment_id))
    return segment_id
