"""Reads ranges of events on real services, while their streams are truncated and deleted."""

from __future__ import annotations

from functools import partial

import pytest

from pravega_common.errors import StreamNotFound
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.errors import EventsTruncated
from pravega_streams.event.event_writer import EventWriter
from tests.support.cluster import client, cluster, new_stream_in

__all__ = ["client", "cluster"]

SCOPE = "ranges"
pytestmark = pytest.mark.timeout(120)
new_stream = partial(new_stream_in, SCOPE)


def write_events(client: StreamClient, stream: str, count: int) -> None:
    with EventWriter(client, SCOPE, stream) as writer:
        for number in range(count):
            writer.write(b"event %d" % number, str(number))


def test_read_events_says_what_was_truncated_meanwhile(client: StreamClient) -> None:
    stream = new_stream(client, 2)
    write_events(client, stream, 20)
    events = read_events(client, SCOPE, stream)
    first = next(events)
    assert first.next_offset > first.offset == 0
    client.controller.truncate_stream(SCOPE, stream, client.tail_cut(SCOPE, stream))
    with pytest.raises(EventsTruncated) as caught:
        list(events)
    assert caught.value.next_offset is not None and caught.value.next_offset > caught.value.offset
    assert list(read_events(client, SCOPE, stream)) == []


def test_read_events_says_that_a_segment_is_gone(client: StreamClient) -> None:
    stream = new_stream(client)
    write_events(client, stream, 20)
    start = client.head_cut(SCOPE, stream)
    client.controller.scale_stream(SCOPE, stream, [0], [(0.0, 1.0)])
    end = client.tail_cut(SCOPE, stream)
    client.controller.truncate_stream(SCOPE, stream, end)
    with pytest.raises(EventsTruncated) as caught:
        list(read_events(client, SCOPE, stream, start, end))
    assert caught.value.next_offset is None


def test_read_events_says_that_the_stream_is_gone(client: StreamClient) -> None:
    stream = new_stream(client, 2)
    write_events(client, stream, 20)
    events = read_events(client, SCOPE, stream)
    next(events)
    client.controller.seal_stream(SCOPE, stream)
    client.controller.delete_stream(SCOPE, stream)
    with pytest.raises(StreamNotFound):
        list(events)
