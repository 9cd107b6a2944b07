"""The connections that a controller opens to segment stores end when it stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_service.config import ControllerConfig
from controller_service.service import serve
from pravega_common.names import REQUEST_STREAM, SYSTEM_SCOPE
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.cluster.factory import make_cpo
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore

lease_ms = 60_000


@pytest.fixture
async def segments() -> InMemorySegmentStore:
    return InMemorySegmentStore()


@pytest.fixture
async def server(segments: InMemorySegmentStore) -> AsyncIterator[WireServer]:
    made = WireServer(segments, InMemoryTableStore(segments), segments)
    await made.start()
    yield made
    await made.stop()


async def test_a_stopped_controller_leaves_no_connection(
    server: WireServer, segments: InMemorySegmentStore, tmp_path: Path
) -> None:
    oracle = f"file:{tmp_path / 'cpo'}"
    cpo = make_cpo(oracle, allow_unsafe_redis=False, clock=SystemClock())
    await cpo.renew_lease(SEGMENT_STORE_KIND, "store", Member("127.0.0.1", server.port, "store").to_payload(), lease_ms)
    settings = {"controller": {"listen": "127.0.0.1:0", "rest": "", "containers": 1}, "cluster": {"cpo": oracle}}
    serving = asyncio.ensure_future(serve(ControllerConfig.from_values(settings)))
    try:
        wanted = f"{SYSTEM_SCOPE}/{REQUEST_STREAM}/"
        await eventually(lambda: any(name.startswith(wanted) for name in segments.segment_names), "the request stream")
        assert server.connection_count > 0
    finally:
        signal.raise_signal(signal.SIGTERM)
        await serving
        await cpo.close()
    await eventually(lambda: server.connection_count == 0, "the end of the connections")
