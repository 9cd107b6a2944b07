"""The cache of decoded parts stays within its budget, and forgets an object as a whole."""

from __future__ import annotations

from segment_service.sorted_runs.block_cache import BlockCache, entry_bytes
from segment_service.sorted_runs.run_format import RunBlock

BLOCK = RunBlock([b"key"], [b"value"])
stored_bytes = 1_000
charge = stored_bytes + entry_bytes


def test_the_parts_used_least_recently_go_first() -> None:
    cache = BlockCache(3 * charge)
    for offset in range(3):
        cache.add(("file", offset), BLOCK, stored_bytes)
    assert cache.block(("file", 0)) is BLOCK
    cache.add(("other", 0), BLOCK, stored_bytes)
    assert [cache.block(("file", offset)) is not None for offset in range(3)] == [True, False, True]
    assert (len(cache), cache.bytes_used) == (3, 3 * charge)


def test_an_object_is_forgotten_as_a_whole_and_may_come_again() -> None:
    cache = BlockCache(3 * charge)
    for key in (("file", 0), ("other", 0), ("file", 1)):
        cache.add(key, BLOCK, stored_bytes)
    cache.forget("file")
    cache.forget("file")
    assert (len(cache), cache.bytes_used) == (1, charge)
    assert cache.block(("other", 0)) is BLOCK
    assert cache.block(("file", 0)) is None
    for offset in range(3):  # the last one evicts the other object's part, the last of it
        cache.add(("file", offset), BLOCK, stored_bytes)
    cache.forget("other")
    assert (len(cache), cache.bytes_used) == (3, 3 * charge)


def test_what_is_larger_than_the_budget_is_not_kept() -> None:
    cache = BlockCache(charge - 1)
    cache.add(("file", 0), BLOCK, stored_bytes)
    assert (len(cache), cache.bytes_used) == (0, 0)
    cache.forget("file")
