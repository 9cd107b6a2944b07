from __future__ import annotations

import asyncio

from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.back_pressure import PendingBytes, StoreBackPressure, operation_bytes


async def test_it_closes_at_the_limit_and_opens_below() -> None:
    store = StoreBackPressure(100)
    share = PendingBytes(store)
    share.accepted(99)
    assert store.is_open
    share.accepted(1)
    assert not store.is_open and not store.refuses
    waiting = asyncio.ensure_future(store.wait_open())
    await asyncio.sleep(0)
    assert not waiting.done()
    share.dropped(1)
    await waiting
    share.accepted(51)
    assert store.refuses


async def test_bytes_count_until_tier_2_has_them() -> None:
    store = StoreBackPressure(1_000)
    share = PendingBytes(store)
    segment = SegmentMetadata(1, "s", length=30)
    share.accepted(30)
    share.committed(1, 30)
    assert (share.in_flight, share.unflushed, store.bytes) == (0, 30, 30)
    segment.storage_length = 10
    share.flushed(segment)
    assert store.bytes == 20
    segment.storage_length = 30
    share.flushed(segment)
    share.flushed(segment)
    assert store.bytes == 0


async def test_a_merge_moves_what_is_not_flushed_to_the_target() -> None:
    store = StoreBackPressure(1_000)
    share = PendingBytes(store)
    for segment_id, length in ((1, 5), (2, 7)):
        share.accepted(length)
        share.committed(segment_id, length)
    share.merged(1, 2)
    target = SegmentMetadata(1, "s", length=12, storage_length=5)
    share.flushed(target)
    assert store.bytes == 7
    share.deleted(1)
    assert store.bytes == 0


async def test_a_container_takes_its_share_along() -> None:
    store = StoreBackPressure(10)
    one, two = PendingBytes(store), PendingBytes(store)
    one.accepted(5)
    one.committed(1, 3)
    two.accepted(6)
    assert not store.is_open
    one.clear()
    assert store.is_open and store.bytes == 6


async def test_operations_count_until_they_are_acknowledged() -> None:
    store = StoreBackPressure(1_000, operations_max=10)
    share, other = PendingBytes(store), PendingBytes(store)
    share.operations_added(6)
    other.operations_added(3)
    assert store.is_open and store.held_bytes == 9 * operation_bytes
    other.operations_added(1)
    assert not store.is_open and not store.refuses_operations
    waiting = asyncio.ensure_future(store.wait_open())
    await asyncio.sleep(0)
    share.operations_acknowledged(1)
    await waiting
    share.operations_added(6)
    assert store.refuses_operations and not store.refuses
    share.clear()
    assert store.is_open and store.operations == 4


async def test_a_full_part_holds_the_store_up_whatever_is_counted() -> None:
    store = StoreBackPressure(1_000)
    store.hold("cache", True)
    store.hold("cache", True)
    store.change(-0)
    assert not store.is_open and store.held_by == {"cache"}
    store.hold("cache", False)
    assert store.is_open
