"""Runs a segment store in this process: real containers behind a real socket, with log and disks in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.cluster.registry import CONTAINER_COUNT_KEY
from pravega_streams.connection.endpoints import Endpoint, WithoutTokens
from pravega_streams.segment.raw_client import RawClient
from segment_service.config import SegmentStoreConfig
from segment_service.plog.cluster_registration import ServerFacts
from segment_service.plog.group_choice import ChoiceByUse
from segment_service.service import SegmentStoreProcess, StoreParts
from segment_service.storage.in_memory import InMemoryChunkStorage
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore

SETTINGS = """
[store]
id = "store"
listen = "127.0.0.1:0"
containers = 2
[tier1]
allow_unsafe_redis = true
[tier2]
url = "memory:"
"""


class FixedEndpoint(WithoutTokens):
    """Resolves every segment to one store."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def resolve(self, segment: str) -> Endpoint:
        return self._endpoint

    def forget(self, segment: str) -> None:
        pass


async def _nobody_knows(address: str) -> ServerFacts:
    """Answers for a server that no test runs."""
    return ServerFacts(address, None)


@dataclass(frozen=True)
class RunningStore:
    """A store, and a client of it."""

    port: int
    client: RawClient
    cpo: InMemoryCPO
    process: SegmentStoreProcess


@asynccontextmanager
async def running_store(folder: Path, clock: Clock | None = None) -> AsyncIterator[RunningStore]:
    """Starts a store and a client of it, and stops both at the end. ``clock``: that of the store's machine."""
    settings = folder / "store.toml"
    settings.write_text(SETTINGS)
    cpo, logs = InMemoryCPO(), InMemoryLogStore()
    await cpo.set_once(CONTAINER_COUNT_KEY, "2")
    process = SegmentStoreProcess(
        SegmentStoreConfig.load(settings),
        StoreParts(
            cpo,
            InMemoryChunkStorage(),
            lambda container, _: InMemoryDataLog(container, logs),
            clock or SystemClock(),
            ChoiceByUse(),
            ask_server=_nobody_knows,
        ),
    )
    await process.start()
    await cpo.put_assignment(0, {0: "store", 1: "store"})
    endpoint = Endpoint(*process.published)
    client = RawClient(FixedEndpoint(endpoint))
    yield RunningStore(endpoint.port, client, cpo, process)
    client.close()
    await process.stop()
