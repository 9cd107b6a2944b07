"""Makes containers whose logs and CPO are on one real Redis, and whose Tier 2 is a directory."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_cpo import RedisCPO
from segment_service.contracts.data_log import DurableDataLog
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.plog.plog_client import PlogSettings
from segment_service.plog.redis_log import RedisDataLog
from segment_service.storage.filesystem import FilesystemChunkStorage
from tests.support.containers import ContainerKit
from tests.support.fakes.faulty_chunk_storage import FaultyChunkStorage
from tests.support.servers import RedisServer

SETTINGS = PlogSettings(block_bytes=3_000_000, heal_time_max_s=1.0, reply_timeout_s=5.0)


class RedisKit(ContainerKit):
    """``register`` first, and again after the server lost everything, as a store does at its start."""

    def __init__(self, server: RedisServer, folder: Path, checkpoints: CheckpointPolicy | None = None) -> None:
        super().__init__(cache_bytes=256 * 1024 * 1024, unflushed_bytes_max=128 * 1024 * 1024, checkpoints=checkpoints)
        self.server = server
        self.cpo = RedisCPO(server.address)
        self.tier2 = FilesystemChunkStorage(folder)
        self.chunks = FaultyChunkStorage(self.tier2, random.Random(7), self.clock)
        self.write_to_tier2()

    async def register(self) -> None:
        group = PersistenceGroup("group", (self.server.address,))
        await self.cpo.put_persistence_cluster(PersistenceCluster("test", (group,)))

    async def start(self) -> None:
        await self.tier2.start()
        await self.register()

    async def close(self) -> None:
        await self.cpo.close()
        await self.tier2.close()

    def make_log(self, container_id: int) -> DurableDataLog:
        return RedisDataLog(container_id, "store", self.cpo, "test", SETTINGS)

    @property
    def used_memory(self) -> int:
        return self._memory("used_memory")

    def _memory(self, name: str) -> int:
        lines = self.server.call("INFO", "memory").decode().splitlines()
        return next(int(line.partition(":")[2]) for line in lines if line.startswith(f"{name}:"))

    def limit_memory(self, more_bytes: int) -> None:
        """Let the server take so many bytes more than it has."""
        self.server.call("CONFIG", "SET", "maxmemory", str(self.used_memory + more_bytes))

    def back_up(self, folder: Path) -> None:
        """Copy the server's files as they are now; it is stopped for that."""
        self.server.stop()
        shutil.copytree(self.server.folder, folder)
        self.server.start()

    def restore(self, folder: Path | None) -> None:
        """Start the server on a copy of its files, or without any."""
        self.server.kill()
        shutil.rmtree(self.server.folder)
        if folder is None:
            self.server.folder.mkdir()
        else:
            shutil.copytree(folder, self.server.folder)
        self.server.start()
