"""Connects to the Tier 2 of a store's settings."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from segment_service.config import SegmentStoreConfig
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.factory import make_chunk_storage


@contextlib.asynccontextmanager
async def open_tier2(config: SegmentStoreConfig) -> AsyncIterator[ChunkStorage]:
    """The Tier 2 that the settings name, connected."""
    chunks = make_chunk_storage(
        config.tier2.url,
        s3=config.tier2.s3_access,
        call_time_max_s=config.tier2.call_time_max_ms / 1000,
    )
    await chunks.start()
    try:
        yield chunks
    finally:
        await chunks.close()
