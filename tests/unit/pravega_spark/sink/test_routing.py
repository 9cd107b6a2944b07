"""Rows to segments."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.hashing import position_of_key
from pravega_common.model.segments import SegmentRange
from pravega_spark.rows.framing import block_bytes_max
from pravega_spark.sink.routing import RowRouter


def router(count: int, first_turn: int = 0) -> RowRouter:
    segments = [SegmentRange("s", "t", index, index / count, (index + 1) / count) for index in range(count)]
    return RowRouter(list(reversed(segments)), first_turn)


@pytest.mark.parametrize("rows", [10, 500])
def test_keys_go_where_their_hash_falls(rows: int) -> None:
    keys = [f"key-{index % 37} é" for index in range(rows)]
    made = router(5)
    indexes = made.indexes(made.key_positions(pa.array(keys), np.full(rows, 10)))
    for key, index in zip(keys, indexes, strict=True):
        segment = made.segments[index]
        assert segment.key_low <= position_of_key(key) < segment.key_high


def test_rows_without_a_key_take_turns_by_block() -> None:
    made = router(3, first_turn=1)
    lengths = np.full(8, block_bytes_max // 2 - 8)
    first = made.indexes(made.key_positions(None, lengths))
    assert first.tolist() == [1, 1, 2, 2, 0, 0, 1, 1]
    assert made.indexes(made.key_positions(None, lengths[:3])).tolist() == [2, 2, 0]
    assert made.indexes(made.key_positions(None, lengths[:2])).tolist() == [0, 1]


def test_null_keys_among_others() -> None:
    made = router(4)
    keys = pa.array(["hello", None, "k1", None])
    positions = made.key_positions(keys, np.full(4, 10))
    assert positions[0] == position_of_key("hello")
    assert positions[2] == position_of_key("k1")
    assert made.indexes(positions)[1] == made.indexes(positions)[3] == 0
