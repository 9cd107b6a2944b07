"""Runs the contract of ``RevisionedSegments`` on the fake and over the wire to a segment store."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller_service.segment_access.revisioned_segments import RevisionedSegments
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.segment_access.wire_access import WireSegmentAccess
from controller_service.segment_access.wire_revisions import MARK_ATTRIBUTE, WireRevisionedSegments, writers_max
from pravega_common.names import segment_name
from pravega_streams.connection.endpoints import Endpoint
from segment_service.host import append_processor
from tests.contract.revisioned_segments_contract import RevisionedSegmentsContract
from tests.support.fakes.revisioned_segments import InMemoryRevisionedSegments
from tests.support.fakes.segment_access import InMemorySegmentAccess
from tests.support.store_in_process import FixedEndpoint, RunningStore, running_store


class TestInMemoryRevisionedSegments(RevisionedSegmentsContract):
    @pytest.fixture
    def access(self) -> SegmentAccess:
        return InMemorySegmentAccess()

    @pytest.fixture
    def revisions(self, access: InMemorySegmentAccess) -> RevisionedSegments:
        return InMemoryRevisionedSegments(access)


class TestWireRevisionedSegments(RevisionedSegmentsContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[RunningStore]:
        async with running_store(tmp_path) as store:
            yield store

    @pytest.fixture
    def access(self, store: RunningStore) -> SegmentAccess:
        return WireSegmentAccess(store.client)

    @pytest.fixture
    def revisions(self, store: RunningStore) -> RevisionedSegments:
        self.resolver = FixedEndpoint(Endpoint("127.0.0.1", store.port))
        self.client = store.client
        return WireRevisionedSegments(store.client, self.resolver)

    def other(self, revisions: RevisionedSegments) -> RevisionedSegments:
        return WireRevisionedSegments(self.client, self.resolver)

    async def test_segments_share_writers(
        self, revisions: RevisionedSegments, access: SegmentAccess, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A store keeps a writer until its connection ends, and ends one that sets up too many."""
        monkeypatch.setattr(append_processor, "writers_per_connection_max", writers_max)
        segments = [segment_name("s", f"_MARK{number}", 0) for number in range(3 * writers_max)]
        await access.create_segments(segments)

        async def append_twice(segment: str) -> None:
            event = segment.encode()
            assert await revisions.append_at(segment, 0, event)
            assert await revisions.append_at(segment, 8 + len(event), event)

        async with asyncio.timeout(60):
            await asyncio.gather(*map(append_twice, segments))
        for segment in segments:
            event = struct.pack(">ii", 0, len(segment)) + segment.encode()
            assert await revisions.read(segment, 0, 1_000) == 2 * event
        assert isinstance(revisions, WireRevisionedSegments)
        assert not revisions._in_use, "locks outlive their use"  # private, as they show nowhere else


def test_the_mark_is_where_pravegas_clients_look_for_it() -> None:
    """The id as a Java client sent it (tests/data/transcripts, java-revisioned)."""
    assert MARK_ATTRIBUTE.hex() == "7df9a874246cc9d69397cdd19ead68c5"
