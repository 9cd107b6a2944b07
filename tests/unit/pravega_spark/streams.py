"""Streams in the fake store, for tests of readers and writers."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentRange
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.gateway.connect import gateway_for, register_scheme
from pravega_spark.rows.framing import EventWindow
from pravega_spark.source.range_planner import Span
from tests.support.fakes.stream_gateway import FakeGateway, address_scheme, open_address

SCOPE = "s"


class FakeStreams:
    """A fresh store in a directory. Streams are of scope ``s``."""

    def __init__(self, directory: Path) -> None:
        register_scheme(address_scheme, open_address)
        self.controller = f"{address_scheme}://{directory}"
        gateway = gateway_for(self.controller)
        assert isinstance(gateway, FakeGateway)
        self.gateway = gateway
        self.gateway.create_scope(SCOPE)

    def create(self, stream: str, segments: int = 1) -> None:
        self.gateway.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(segments)))

    def append(self, stream: str, segment_id: int, events: Iterable[bytes]) -> None:
        """One block per event, so that every event boundary is known."""
        for event in events:
            name = SegmentRange(SCOPE, stream, segment_id, 0.0, 1.0).name
            self.gateway.append(name, struct.pack(">ii", 0, len(event)) + event, 1)

    def scale(self, stream: str, sealed: list[int], ranges: list[tuple[float, float]]) -> list[int]:
        return [item.segment_id for item in self.gateway.scale_stream(SCOPE, stream, sealed, ranges)]

    def events(self, stream: str) -> dict[int, list[bytes]]:
        """All committed events, by segment."""
        every = self.gateway.segments_between(SCOPE, stream, {}, self.gateway.tail_cut(SCOPE, stream))
        made = {}
        for item in every:
            info = self.gateway.segment_info(SCOPE, stream, item)
            made[item] = self.read(Span(SCOPE, stream, item, info.start_offset, info.length))
        return made

    def read(self, span: Span) -> list[bytes]:
        source = self.gateway.open_range(
            SegmentRange(span.scope, span.stream, span.segment_id, 0.0, 1.0).name, span.start, span.end
        )
        window = EventWindow(span.start, max(8, span.length))
        window.filled(source.read_into(window.free()))
        index = window.index()
        assert index.end == span.length, "a span must end between two events"
        events: list[bytes] = window.events(index).to_pylist()
        return events


def batch(events: list[bytes | None], keys: list[str | None] | None = None) -> pa.RecordBatch:
    columns: Mapping[str, pa.Array] = {"event": pa.array(events, pa.binary())}
    if keys is not None:
        columns = {**columns, "routing_key": pa.array(keys, pa.string())}
    return pa.RecordBatch.from_pydict(dict(columns))
