"""Checks that the client refuses event boundaries on a real Pravega 0.13, which keeps no index of them."""

from __future__ import annotations

import uuid

import pytest

from pravega_common.errors import SegmentNotFound, UnsupportedOperation
from pravega_common.names import segment_name
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.segment.event_index import EventIndex
from tests.interop.real_pravega import RealPravega


def test_no_index_before_0_14(real_pravega: RealPravega) -> None:
    scope = f"index-{uuid.uuid4().hex[:8]}"
    with StreamClient(real_pravega.controller_uri) as client:
        client.controller.create_scope(scope)
        client.controller.create_stream(scope, "events")
        with EventWriter(client, scope, "events") as writer:
            writer.write(b"event", "key")
        (segment_id,) = client.tail_cut(scope, "events")
        segment = segment_name(scope, "events", segment_id)
        with pytest.raises(UnsupportedOperation, match=r"0\.14"):
            EventIndex.of(client.segments, segment)
        with pytest.raises(UnsupportedOperation):
            client.segments.locate_offset(segment, 1)
        with pytest.raises(SegmentNotFound):
            EventIndex.of(client.segments, segment_name(scope, "other", 0))
