"""A truncation that is found in Tier 2 stays: a manifest that was put without an answer may come behind it."""

from __future__ import annotations

import pytest

from pravega_common.errors import UnknownOutcome
from segment_service.contracts.operations import Truncate
from tests.unit.segment_service.storage.test_settled_state import StuckChunks
from tests.unit.segment_service.writer.test_damaged_merge import World
from tests.unit.segment_service.writer.test_storage_writer import verify

BYTES = b"0123456789"


async def test_it_is_not_taken_back_by_an_older_state_that_lands_behind_it() -> None:
    world, chunks = World(), StuckChunks()
    world.chunks = chunks
    log, segment = world.log, world.create("scope/segment")
    log.append(segment, BYTES)
    first = await world.owner()
    await first.settle()
    chunks.is_stuck = True
    with pytest.raises(UnknownOutcome):
        await first.storage.truncate(segment, 5)
    truncated, chunks.waiting = chunks.waiting, []
    with pytest.raises(UnknownOutcome):
        await first.storage.truncate(segment, 2)
    older, chunks.waiting = chunks.waiting, truncated
    chunks.is_stuck = False
    await chunks.land()
    await first.stop()

    log.commit(Truncate(sequence_number=log.next_sequence, segment_id=segment, offset=5))
    second = await world.owner()
    await second.settle()
    chunks.waiting = older
    await chunks.land()
    await second.stop()
    third = await world.owner()
    await third.settle()
    await verify(third, log, chunks)
    await third.stop()
