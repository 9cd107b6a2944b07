"""The blocks of a task with several segments: gathered over Arrow batches, without holding on to the batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.errors import SegmentSealed, Unavailable
from pravega_common.model.segments import SegmentRange
from pravega_common.names import segment_name
from pravega_spark.gateway.contract import SegmentWriter, StreamGateway
from pravega_spark.rows.framing import block_bytes_max, event_lengths
from pravega_spark.sink.routing import KeyPositions, RowRouter
from pravega_spark.sink.segment_writers import SegmentWriters
from pravega_streams.event.block_writer import BlockWriters
from tests.support.eventually import eventually_blocking
from tests.support.fakes.wire_store import FakeSegment, FakeStore

NAMES = [segment_name("s", "t", number) for number in range(2)]
event_bytes, rows_per_batch = 100, 10_000
framed_bytes = event_bytes + 8


class WritesOnly:
    """All of a gateway that is needed here."""

    def __init__(self, store: FakeStore) -> None:
        self.writers = BlockWriters(store, attach_time_s=1)

    def open_writer(self, segment: str) -> SegmentWriter:
        return self.writers.open(segment, uuid.uuid4().bytes)


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    for name in NAMES:
        made.segments[name] = FakeSegment()
    yield made
    made.close()


@pytest.fixture
def writers(store: FakeStore) -> Iterator[SegmentWriters]:
    gateway = WritesOnly(store)
    halves = [SegmentRange("s", "t", 0, 0.0, 0.5), SegmentRange("s", "t", 1, 0.5, 1.0)]
    yield SegmentWriters(cast("StreamGateway", gateway), RowRouter(halves, 0), lambda segment: segment.name)
    gateway.writers.close()


def write(writers: SegmentWriters, share_of_second: float) -> None:
    """One batch, with a number of rows for the second segment."""
    events = pa.array([b"x" * event_bytes] * rows_per_batch, pa.binary())
    positions: KeyPositions = np.full(rows_per_batch, 0.25)
    positions[: int(rows_per_batch * share_of_second)] = 0.75
    writers.write(events, event_lengths(events), positions)


def test_blocks_gather_over_batches(store: FakeStore, writers: SegmentWriters) -> None:
    batches = 30
    for _ in range(batches):
        write(writers, 0.1)
    writers.flush()
    rows = batches * rows_per_batch
    for name, count in zip(NAMES, (rows * 9 // 10, rows // 10), strict=True):
        sizes = store.segments[name].block_sizes
        assert sum(sizes) == count * framed_bytes
        assert min(sizes[:-1]) > block_bytes_max - framed_bytes  # filled up with the first rows of the next batch
        assert max(sizes) <= block_bytes_max


def test_a_segment_with_few_rows_does_not_keep_whole_batches(store: FakeStore, writers: SegmentWriters) -> None:
    """A hot key: the other segments gather a long time, and must not hold what went elsewhere."""
    before = pa.total_allocated_bytes()
    for _ in range(100):
        write(writers, 0.001)
    assert pa.total_allocated_bytes() - before < 32 * block_bytes_max
    writers.flush()
    assert len(store.segments[NAMES[1]].data) == 100 * 10 * framed_bytes


def test_what_a_merged_segment_took_is_not_written_again(store: FakeStore, writers: SegmentWriters) -> None:
    """The second segment has its rows, and the answer is on its way while the first one is found sealed."""
    write(writers, 0.5)
    writers.flush()
    store.segments[NAMES[0]].sealed = True
    write(writers, 0.5)
    writers.start_flush()
    with pytest.raises(SegmentSealed):
        writers.flush()
    eventually_blocking(lambda: len(store.segments[NAMES[1]].data) == rows_per_batch * framed_bytes)
    store.segments[NAMES[1]].sealed = True
    merged = RowRouter([SegmentRange("s", "t", 2, 0.0, 1.0)], 0)
    left = writers.reroute(merged, lambda segment: segment.name)
    assert sum(piece.event_count for piece in left) == rows_per_batch // 2, "those of the first segment alone"


def test_writers_are_closed_where_following_a_scale_fails(
    writers: SegmentWriters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they hold counts for all tasks of the worker, and Spark uses a worker again."""
    write(writers, 0.5)
    closed: list[str] = []
    for name in NAMES:
        monkeypatch.setattr(writers.writer(name), "close", lambda name=name: closed.append(name))

    def flush() -> None:
        raise Unavailable("away")

    monkeypatch.setattr(writers.writer(NAMES[0]), "flush", flush)
    with pytest.raises(Unavailable):
        writers.reroute(RowRouter([SegmentRange("s", "t", 2, 0.0, 1.0)], 0), lambda segment: segment.name)
    assert closed == NAMES
