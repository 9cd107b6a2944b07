"""Deletes what waits for the garbage collector of a storage that runs nothing in the background."""

from __future__ import annotations

from segment_service.storage.rolling_storage import RollingStorage


async def collect_all(storage: RollingStorage) -> None:
    """Returns when nothing waits any more."""
    while await storage.garbage.collect():
        pass
