from __future__ import annotations

import numpy as np
import pytest

from pravega_common.errors import InvalidArgument
from pravega_common.hashing import position_of_key
from pravega_common.key_range import WHOLE_KEY_SPACE, KeyRange
from pravega_common.model.segments import SegmentRange
from pravega_common.segment_router import SegmentRouter


def segments(*ranges: KeyRange) -> list[SegmentRange]:
    return [SegmentRange("s", "t", number, keys.low, keys.high) for number, keys in enumerate(ranges)]


def test_router_takes_the_smallest_upper_edge_at_or_above() -> None:
    router = SegmentRouter(segments(*WHOLE_KEY_SPACE.split(4)))
    assert router.segment_of(0.0).segment_id == 0
    assert router.segment_of(0.25).segment_id == 0, "an edge belongs to the range below it, as in Java's ceiling lookup"
    assert router.segment_of(0.2500001).segment_id == 1
    assert router.segment_of(position_of_key("héllo")).segment_id == 1, "what a Java client chooses among four segments"
    positions = np.array([0.0, 0.25, 0.26, 0.5, 0.9999999999])
    chosen = [router.segments[index] for index in router.indexes_of(positions)]
    assert chosen == [router.segment_of(position) for position in positions]


def test_router_survives_rounding_at_the_upper_end() -> None:
    router = SegmentRouter(segments(KeyRange(0.0, 1.0 - 1e-12)))
    assert router.segment_of(1.0 - 1e-16).segment_id == 0


def test_router_refuses_gaps() -> None:
    with pytest.raises(InvalidArgument, match="do not cover"):
        SegmentRouter(segments(KeyRange(0.0, 0.4)))
