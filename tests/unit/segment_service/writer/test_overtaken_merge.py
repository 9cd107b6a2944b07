"""A merge of cached bytes whose source an owner that was overtaken still brought to Tier 2."""

from __future__ import annotations

import asyncio
import random

import pytest

from pravega_common.runtime import failpoints
from segment_service.contracts.operations import Delete
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.writer import segment_flusher
from tests.support.eventually import eventually
from tests.support.fakes.faulty_chunk_storage import FaultRates
from tests.support.fakes.writer_source import TRANSACTION, CommittedLog
from tests.unit.segment_service.writer.test_storage_writer import Owner, _crash_at, _small_writes, new_owner, verify

__all__ = ["_small_writes"]

BYTES = bytes(range(200)) * 2


@pytest.mark.parametrize("is_crash", [False, True])
async def test_what_the_source_has_in_tier_2_goes_when_the_target_has_its_bytes(is_crash: bool) -> None:
    log, chunks, rng = CommittedLog(), InMemoryChunkStorage(), random.Random(0)
    target, source = log.create_named("scope/target"), log.create_named(TRANSACTION)
    owner = await _owner_of_half_a_merge(log, chunks, rng, target, source)
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


async def test_the_target_is_deleted_while_what_the_source_has_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    log, chunks, rng = CommittedLog(), InMemoryChunkStorage(), random.Random(0)
    target, source = log.create_named("scope/target"), log.create_named(TRANSACTION)
    owner = await _owner_of_half_a_merge(log, chunks, rng, target, source)
    delete = owner.storage.delete
    deletions: list[int] = []

    async def deleted_meanwhile(segment_id: int, sequence: int | None = None) -> None:
        deletions.append(segment_id)
        if deletions == [source]:
            log.commit(Delete(sequence_number=log.next_sequence, segment_id=target))
            owner.container.show_all()
            for _ in range(50):
                await asyncio.sleep(0)
        await delete(segment_id, sequence)

    monkeypatch.setattr(owner.storage, "delete", deleted_meanwhile)
    owner.container.show_all()
    await owner.settle()
    await verify(owner, log, chunks)
    assert deletions[0] == source and target in deletions
    await owner.stop()


async def _owner_of_half_a_merge(
    log: CommittedLog, chunks: InMemoryChunkStorage, rng: random.Random, target: int, source: int
) -> Owner:
    """An owner after one that died with a part of the merged bytes in the target, and some in the source, too."""
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
    return owner
