"""Shares read-ahead among scans, and bounds what comes from Tier 2 at a time."""

from __future__ import annotations

import asyncio

import pytest

from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.contracts.second_level_cache import SegmentKey
from segment_service.read_index import fetch_budget
from segment_service.read_index.fetch_budget import (
    FetchBudget,
    fetch_bytes_max,
    fetched_bytes_max,
    read_ahead_bytes,
    scan_ahead_bytes_max,
    scan_fetch_bytes_max,
    scan_generations_max,
)
from tests.support.fakes.container_without_log import FakeContainer, container, joined

MIB = 1 << 20


def budget_of(cache_mib: int = 512) -> tuple[FetchBudget, CacheManager]:
    cache = CacheManager(InMemoryCacheStorage(cache_mib * MIB))
    return FetchBudget(cache), cache


def scan(budget: FetchBudget, segment_id: int, offset: int = 8 * MIB, run: int = 8 * MIB) -> None:
    budget.note_read(SegmentKey(0, segment_id), offset, run)


def test_a_reader_becomes_a_scan_when_it_has_read_as_much_as_was_read_ahead() -> None:
    budget, _ = budget_of()
    scan(budget, 1, run=read_ahead_bytes - 1)
    assert budget.scan_count == 0
    assert (budget.fetch_bytes(read_ahead_bytes - 1), budget.ahead_bytes(1)) == (fetch_bytes_max, read_ahead_bytes)
    scan(budget, 1, run=read_ahead_bytes)
    assert budget.scan_count == 1
    assert budget.fetch_bytes(read_ahead_bytes) == scan_fetch_bytes_max
    assert budget.ahead_bytes(read_ahead_bytes) == scan_ahead_bytes_max


def test_many_scans_never_read_more_ahead_than_their_part_of_the_cache() -> None:
    budget, cache = budget_of()
    for number in range(32):
        scan(budget, number)
        ahead = budget.ahead_bytes(8 * MIB)
        assert ahead == read_ahead_bytes or ahead * budget.scan_count <= cache.storage.bytes_max // 4
    assert ahead == read_ahead_bytes
    assert budget.fetch_bytes(8 * MIB) == fetch_bytes_max, "long fetches are for those that may read far ahead"


def test_a_scan_counts_once_while_it_goes_on_and_no_more_when_it_stopped() -> None:
    budget, cache = budget_of()
    scan(budget, 1, 8 * MIB, 8 * MIB)
    scan(budget, 1, 10 * MIB, 10 * MIB)
    scan(budget, 2, 30 * MIB, 5 * MIB)
    assert budget.scan_count == 2
    cache.generation += scan_generations_max
    scan(budget, 1, 12 * MIB, 12 * MIB)
    cache.generation += 1
    scan(budget, 1, 14 * MIB, 14 * MIB)
    assert budget.scan_count == 1


def test_the_scans_that_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_budget, "scans_max", 5)
    budget, _ = budget_of()
    for number in range(20):
        scan(budget, number)
    assert budget.scan_count == 5


async def scanned(c: FakeContainer, mib: int) -> int:
    """A segment of which nothing is in the cache, read up to a scan's beginning."""
    segment = c.create("s")
    for _ in range(mib):
        c.append(segment, bytes(MIB))
    await c.flush(segment)
    c.evict()
    for number in range(3):
        await c.index.read(segment, 2 * number * MIB, 2 * MIB)
    return segment


async def test_a_scan_is_fetched_in_long_reads_far_ahead() -> None:
    async with container(cache_bytes=256 * MIB) as c:
        segment = await scanned(c, 64)
        c.storage.reads.clear()
        await c.index.read(segment, 6 * MIB, 2 * MIB)
        for _ in range(20):
            await asyncio.sleep(0)
        assert max(length for _, _, length in c.storage.reads) == scan_fetch_bytes_max
        assert max(offset + length for _, offset, length in c.storage.reads) >= 8 * MIB + scan_ahead_bytes_max
        read = await c.index.read(segment, 8 * MIB, 2 * MIB)
        assert joined(read.data) == bytes(2 * MIB)


async def test_what_is_on_its_way_stays_within_the_budget_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_budget, "fetched_bytes_max", 8 * MIB)
    async with container(cache_bytes=256 * MIB) as c:
        segment = await scanned(c, 64)
        c.storage.reads.clear()
        c.storage.gate.clear()
        reader = asyncio.create_task(c.index.read(segment, 30 * MIB, 2 * MIB))
        waiting = [asyncio.create_task(c.index.read(segment, offset * MIB, MIB)) for offset in range(33, 64, 2)]
        await c.storage.wait_reads(2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert 4 * MIB < sum(length for _, _, length in c.storage.reads) <= 8 * MIB
        c.storage.gate.set()
        assert len(joined((await reader).data)) == 2 * MIB
        assert all(len(joined(read.data)) == MIB for read in await asyncio.gather(*waiting))


def test_the_budget_of_a_store_has_room_for_the_scan_of_a_container() -> None:
    assert fetched_bytes_max >= 2 * scan_ahead_bytes_max
