"""Tests truncation points on the fake gateway: on event boundaries, across scale events, never too much."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pravega_common.errors import SegmentNotFound
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentInfo
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id, segment_name
from pravega_spark.commands.trimming import Trimmer
from pravega_streams.event.event_writer import frame_event
from tests.support.fakes.stream_gateway import FakeGateway

EVENT = b"x" * 92  # 100 bytes with its header.
LEFT, RIGHT = segment_id(1, 1), segment_id(2, 1)


class TimedGateway(FakeGateway):
    """A fake gateway with times, which the test sets, and on demand without event boundaries."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.modified_ms: dict[int, int] = {}
        self.knows_boundaries = True

    def segment_info(self, scope: str, stream: str, segment_id: int) -> SegmentInfo:
        info = super().segment_info(scope, stream, segment_id)
        return replace(info, last_modified_ms=self.modified_ms.get(segment_id, 0))

    def locate_offset(self, scope: str, stream: str, segment_id: int, offset: int) -> int:
        if self.knows_boundaries:
            return super().locate_offset(scope, stream, segment_id, offset)
        return self.segment_info(scope, stream, segment_id).length


class NoIndexes:
    """A fake segment client of a store without index segments."""

    def info(self, segment: str) -> SegmentInfo:
        raise SegmentNotFound(segment)


class Client:
    segments = NoIndexes()


@pytest.fixture
def gateway(tmp_path: Path) -> TimedGateway:
    made = TimedGateway(str(tmp_path))
    made.create_scope("s")
    made.create_stream("s", "t", StreamConfiguration(ScalingPolicy.fixed(1)))
    return made


@pytest.fixture
def trimmer(gateway: TimedGateway) -> Trimmer:
    return Trimmer(Client(), gateway, "s", "t")  # type: ignore[arg-type]


def fill(gateway: TimedGateway, identifier: int, events: int) -> None:
    writer = gateway.open_writer(segment_name("s", "t", identifier))
    for _ in range(events):
        writer.write(frame_event(EVENT), 1)
    writer.flush()


@pytest.mark.parametrize("knows_boundaries", [True, False])
@pytest.mark.parametrize(("keep", "cut"), [(0, 1000), (1, 900), (100, 900), (450, 500), (999, 0), (5000, 0)])
def test_bytes_of_one_segment(
    gateway: TimedGateway, trimmer: Trimmer, keep: int, cut: int, knows_boundaries: bool
) -> None:
    gateway.knows_boundaries = knows_boundaries
    fill(gateway, 0, 10)
    assert trimmer.keep_bytes(keep) == {0: cut}


def test_bytes_over_a_scale_event(gateway: TimedGateway, trimmer: Trimmer) -> None:
    fill(gateway, 0, 10)
    gateway.scale_stream("s", "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    fill(gateway, LEFT, 4)
    fill(gateway, RIGHT, 8)
    assert trimmer.keep_bytes(1500) == {0: 700}
    assert trimmer.keep_bytes(1200) == {LEFT: 0, RIGHT: 0}
    # In proportion to what each has, and down to an event's boundary.
    assert trimmer.keep_bytes(600) == {LEFT: 200, RIGHT: 400}
    assert trimmer.keep_bytes(590) == {LEFT: 200, RIGHT: 400}
    assert trimmer.keep_bytes(0) == {LEFT: 400, RIGHT: 800}
    cut = trimmer.keep_bytes(600)
    gateway.truncate_stream("s", "t", cut)
    assert trimmer.keep_bytes(600) == cut
    assert trimmer.keep_bytes(10_000) == cut


def test_an_empty_stream_keeps_what_it_has(trimmer: Trimmer) -> None:
    assert trimmer.keep_bytes(0) == {0: 0}
    assert trimmer.since(10**15) == {0: 0}


def test_time_by_the_last_change_of_segments(gateway: TimedGateway, trimmer: Trimmer) -> None:
    fill(gateway, 0, 10)
    gateway.scale_stream("s", "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    fill(gateway, LEFT, 4)
    fill(gateway, RIGHT, 8)
    gateway.modified_ms = {0: 1_000, LEFT: 2_000, RIGHT: 3_000}
    assert trimmer.since(999) == {0: 0}
    assert trimmer.since(1_000) == {LEFT: 0, RIGHT: 0}
    assert trimmer.since(2_500) == {LEFT: 400, RIGHT: 0}
    assert trimmer.since(3_000) == {LEFT: 400, RIGHT: 800}


def test_an_unknown_time_keeps_the_segment(gateway: TimedGateway, trimmer: Trimmer) -> None:
    fill(gateway, 0, 10)
    assert trimmer.since(10**15) == {0: 0}
