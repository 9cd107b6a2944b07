"""Gives suites of what stands on chunk storage every adapter of it: inherit one of these before the suite."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.arrow_files import ArrowChunkStorage
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.minio import MinioChunkStorage, MinioSettings
from tests.support.servers import MinioServer


class OverMemory:
    @pytest.fixture
    async def chunks(self) -> ChunkStorage:
        return InMemoryChunkStorage()


class OverFilesystem:
    @pytest.fixture
    async def chunks(self, tmp_path: Path) -> AsyncIterator[ChunkStorage]:
        chunks = FilesystemChunkStorage(tmp_path / "tier2", threads_max=4)
        await chunks.start()
        yield chunks
        await chunks.close()


class OverArrow:
    @pytest.fixture
    async def chunks(self, tmp_path: Path) -> AsyncIterator[ChunkStorage]:
        chunks = ArrowChunkStorage(f"file://{tmp_path}/tier2", threads_max=4)
        await chunks.start()
        yield chunks
        await chunks.close()


class OverMinio:
    @pytest.fixture
    async def chunks(self, minio_server: MinioServer) -> AsyncIterator[ChunkStorage]:
        bucket = f"test-{uuid.uuid4().hex}"
        chunks = MinioChunkStorage(
            MinioSettings(minio_server.address, minio_server.access_key, minio_server.secret_key, bucket)
        )
        await chunks.start()
        yield chunks
        await chunks.close()
