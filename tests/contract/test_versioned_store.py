"""Runs the contract of ``VersionedStore`` in memory and on the tables of a real segment store.

The store runs in this process behind a real socket; its disks are in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.table_backend import TableVersionedStore
from controller_service.store.versioned_store import VersionedStore
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient
from segment_service.config import load_config
from segment_service.service import SegmentStoreProcess, StoreParts
from segment_service.storage.in_memory import InMemoryChunkStorage
from tests.contract.versioned_store_contract import VersionedStoreContract
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore

SETTINGS = """
[store]
id = "store"
listen = "127.0.0.1:0"
containers = 2
[tier2]
url = "memory:"
"""


class FixedEndpoint:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def resolve(self, segment: str) -> Endpoint:
        return self._endpoint

    def forget(self, segment: str) -> None:
        pass


class TestInMemoryVersionedStore(VersionedStoreContract):
    @pytest.fixture
    def store(self) -> VersionedStore:
        return InMemoryVersionedStore()


class TestTableVersionedStore(VersionedStoreContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[VersionedStore]:
        settings = tmp_path / "store.toml"
        settings.write_text(SETTINGS)
        clock, cpo, logs = SystemClock(), InMemoryCPO(), InMemoryLogStore()
        await cpo.set_once(CONTAINER_COUNT_KEY, "2")
        process = SegmentStoreProcess(
            load_config(settings),
            StoreParts(cpo, InMemoryChunkStorage(), lambda container, _: InMemoryDataLog(container, logs), clock),
        )
        await process.start()
        await cpo.put_assignment(0, {0: "store", 1: "store"})
        client = RawClient(FixedEndpoint(Endpoint(*process.published)))
        yield TableVersionedStore(TableClient(client))
        client.close()
        await process.stop()
