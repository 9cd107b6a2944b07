"""Chooses the segment of every row of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pravega_common.hashing import positions_of_keys
from pravega_common.model.segments import SegmentRange
from pravega_common.segment_router import SegmentRouter
from pravega_spark.rows.arrays import Int64s
from pravega_spark.rows.framing import block_bytes_max, event_header_bytes
from pravega_spark.rows.keys import key_texts

KeyPositions = npt.NDArray[np.float64]

_probe_rows: Final = 256


class RowRouter:
    """A router of rows to segments.

    Rows with a key go where its hash falls; rows without one go to the segments in turn, a block at a time.

    Turns, not a random segment for each row: blocks stay large, and the load is spread all the same.
    """

    def __init__(self, segments: Sequence[SegmentRange], first_turn: int) -> None:
        """``first_turn``: any number; a random one spreads short batches of many tasks."""
        self._router = SegmentRouter(segments)
        self.segments: tuple[SegmentRange, ...] = self._router.segments
        self._turn = first_turn % len(self.segments)
        self._turn_bytes = 0

    def key_positions(self, keys: pa.Array | None, lengths: Int64s) -> KeyPositions:
        """The position of each row in the key space [0, 1)."""
        if keys is None:
            return self._in_turn(lengths)
        found = positions_of_keys(_distinct_texts(keys) if _repeats(keys) else key_texts(keys))
        without = np.isnan(found)
        if without.any():
            found[without] = self._in_turn(lengths[without])
        return found

    def indexes(self, positions: KeyPositions) -> npt.NDArray[np.uint16]:
        """The index into ``segments`` of the segment at each position."""
        return self._router.indexes_of(positions).astype(np.uint16)

    def _in_turn(self, lengths: Int64s) -> KeyPositions:
        middles = np.array([(item.key_low + item.key_high) / 2 for item in self.segments])
        before = np.cumsum(lengths + event_header_bytes) - (lengths + event_header_bytes) + self._turn_bytes
        turns = self._turn + before // block_bytes_max
        total = self._turn_bytes + int((lengths + event_header_bytes).sum())
        self._turn = (self._turn + total // block_bytes_max) % len(self.segments)
        self._turn_bytes = total % block_bytes_max
        chosen: KeyPositions = middles[turns % len(self.segments)]
        return chosen


def _distinct_texts(keys: pa.Array) -> pa.Array:
    encoded = keys.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices, key_texts(encoded.dictionary))


def _repeats(keys: pa.Array) -> bool:
    """Whether most rows share their key with others, so that looking for the distinct ones pays."""
    probe = keys.slice(0, _probe_rows)
    return len(keys) >= _probe_rows and len(probe.unique()) <= _probe_rows // 2
