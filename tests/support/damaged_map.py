"""Damages the map of shared objects of a container where it has one segment."""

from __future__ import annotations

from segment_service.storage.chunk_names import Layout
from segment_service.storage.in_memory import InMemoryChunkStorage


def damage_shared(stored: InMemoryChunkStorage, layout: Layout, prefix: str) -> int:
    """Flip a bit of the first entry below the prefix in each file of the map; how many files have one."""
    key, damaged = prefix.removeprefix(layout.prefix).encode(), 0
    for name in [name for name in stored.objects if name.startswith(layout.map_files("shared"))]:
        data = bytearray(stored.objects[name])
        position = data.find(key)  # blocks come before the tail, which has keys, too
        if position >= 0:
            data[position] ^= 1
            stored.objects[name] = bytes(data)
            damaged += 1
    return damaged
