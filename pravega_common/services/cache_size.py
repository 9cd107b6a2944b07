"""Sizes the cache of a segment store by the memory of its machine."""

from __future__ import annotations

from typing import Final

from pravega_common.runtime.machine_memory import memory_bytes

memory_fraction: Final = 8
"""The caches of a machine's stores take an eighth of its memory: Redis, Spark and the page cache need theirs."""
cache_bytes_least: Final = 512 * 1024 * 1024
"""What a store needs for what is not in Tier 2 yet, and for its latest appends."""


def cache_bytes_default(stores: int = 1, machine_bytes: int | None = None) -> int:
    """Returns the bytes of the cache of each store on a machine with that memory; by default on this one."""
    whole_bytes = memory_bytes() if machine_bytes is None else machine_bytes
    return max(whole_bytes // memory_fraction // stores, cache_bytes_least)
