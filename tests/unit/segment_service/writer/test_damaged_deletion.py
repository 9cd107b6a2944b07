"""A segment whose manifest is damaged is deleted: the deletion ends, and Tier 1 can be truncated behind it."""

from __future__ import annotations

import pytest

from segment_service.contracts.operations import Delete
from tests.unit.segment_service.writer.test_damaged_merge import World, merge
from tests.unit.segment_service.writer.test_storage_writer import verify


@pytest.mark.parametrize("is_merged", [False, True])
async def test_it_ends_and_what_is_before_it_is_acknowledged(is_merged: bool) -> None:
    """``is_merged``: what is damaged was merged into what is deleted, and Tier 2 has not moved it."""
    world = World()
    log = world.log
    hurt, target = world.create("scope/hurt"), world.create("scope/target")
    log.append(hurt, b"in Tier 2")
    log.append(target, b"target")
    first = await world.owner()
    await first.settle()
    await first.stop()
    for name, data in world.take_manifests(hurt).items():
        await world.chunks.put(name, [data[:-1] + bytes([data[-1] ^ 1])])

    log.append(hurt, b", and in the log")
    if is_merged:
        merge(log, target, hurt)
    log.commit(Delete(sequence_number=log.next_sequence, segment_id=target if is_merged else hurt))
    owner = await world.owner()
    await owner.settle()
    assert not owner.container.held
    await verify(owner, log, world.chunks)
    await owner.stop()
