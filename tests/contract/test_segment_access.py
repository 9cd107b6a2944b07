"""Runs the contract of ``SegmentAccess`` on the fake and over the wire to a segment store."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.segment_access.wire_access import WireSegmentAccess
from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES, EXTENSIONS
from pravega_streams.connection import asynchronous
from tests.contract.segment_access_contract import Append, SegmentAccessContract
from tests.support.fakes.segment_access import InMemorySegmentAccess
from tests.support.store_in_process import RunningStore, running_store
from tests.support.wire_client import WireClient


class TestInMemorySegmentAccess(SegmentAccessContract):
    @pytest.fixture
    def access(self) -> SegmentAccess:
        return InMemorySegmentAccess()

    @pytest.fixture
    def append(self, access: InMemorySegmentAccess) -> Append:
        async def append(segment: str, length: int) -> None:
            access.append(segment, length)

        return append


@pytest.mark.parametrize("extensions", [EXTENSIONS, BATCHES, 0], ids=["lengths", "batches", "plain"])
class TestWireSegmentAccess(SegmentAccessContract):
    """With all that stores know, with batches alone, and with single requests as a plain Pravega gets them."""

    @pytest.fixture(autouse=True)
    def announce(self, extensions: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asynchronous, "EXTENSIONS", extensions)

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[RunningStore]:
        async with running_store(tmp_path) as store:
            yield store

    @pytest.fixture
    def access(self, store: RunningStore) -> SegmentAccess:
        return WireSegmentAccess(store.client)

    @pytest.fixture
    def append(self, store: RunningStore) -> Append:
        async def append(segment: str, length: int) -> None:
            client, writer = await WireClient.connect(store.port), uuid.uuid4().bytes
            await client.call(c.SetupAppend(1, writer, segment), c.AppendSetup)
            await client.call(c.AppendBlockEnd(writer, length, bytes(length), 1, 1, 2), c.DataAppended)
            await client.close()

        return append
