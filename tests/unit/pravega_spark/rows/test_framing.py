"""Framing and parsing of whole columns against the plain per-event definition."""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_spark.rows import framing


def plain_frame(event: bytes) -> bytes:
    return struct.pack(">ii", 0, len(event)) + event


def frame_all(events: list[bytes], kind: pa.DataType | None = None) -> bytes:
    array = pa.array(events, kind or pa.binary())
    return b"".join(block.data for block in framing.blocks_by_segment(array, framing.event_lengths(array), None))


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str)
def test_lengths(kind: pa.DataType) -> None:
    events = pa.array(["one", "", "three"], kind)
    for first, count in ((0, 3), (1, 2), (2, 1), (3, 0)):
        assert framing.event_lengths(events.slice(first, count)).tolist() == [3, 0, 5][first : first + count]


def test_lengths_of_nothing_without_borders() -> None:
    """Arrow allows a column of no values to have no borders."""
    nothing = pa.py_buffer(b"")
    assert framing.event_lengths(pa.Array.from_buffers(pa.binary(), 0, [None, nothing, nothing])).tolist() == []


def read_all(data: bytes, window_bytes: int = 64, step: int = 1000) -> tuple[list[bytes], list[int], int]:
    window = framing.EventWindow(100, window_bytes)
    events: list[bytes] = []
    offsets: list[int] = []
    position = 0
    while True:
        free = window.free()
        count = min(len(free), step, len(data) - position)
        free[:count] = data[position : position + count]
        window.filled(count)
        position += count
        index = window.index()
        if len(index.starts):
            events += window.events(index).to_pylist()
            offsets += (index.starts.astype(np.int64) + window.offset).tolist()
        window.consume(index)
        if position == len(data):
            return events, offsets, window.unconsumed_bytes


@pytest.fixture(params=[True, False], ids=["views", "joined"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Framing as with the newest PyArrow, and as with the oldest."""
    monkeypatch.setattr(framing, "views_can_be_built", request.param)


@pytest.mark.usefixtures("both_ways")
class TestWriting:
    def test_bytes_are_header_and_event(self) -> None:
        assert frame_all([b"abc", b"", b"hello"]) == bytes.fromhex(
            "00000000000000036162630000000000000000000000000000000568656c6c6f"
        )

    @pytest.mark.parametrize("size", [0, 1, 4, 11, 12, 13, 14, 10_000])
    def test_events_of_any_length_come_in_the_order_of_their_segments(self, size: int) -> None:
        events = [bytes([index]) * (size + index % 3) for index in range(50)]
        array = pa.array([b"before", *events, b"behind"]).slice(1, 50)
        segments = np.array([index % 2 for index in range(50)], dtype=np.uint16)
        blocks = framing.blocks_by_segment(array, framing.event_lengths(array), segments)
        framed = b"".join(bytes(block.data) for block in blocks)
        assert framed == b"".join(map(plain_frame, events[0::2] + events[1::2]))

    @pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
    def test_every_kind_of_column(self, kind: pa.DataType) -> None:
        values = ["abc", "", "hé"] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None
        events = [b"abc", b"", "hé".encode()]
        assert frame_all(values or events, kind) == b"".join(map(plain_frame, events))  # type: ignore[arg-type]

    def test_sliced_column(self) -> None:
        array = pa.array([b"zero", b"one", b"two", b"three"]).slice(1, 2)
        blocks = list(framing.blocks_by_segment(array, framing.event_lengths(array), None))
        assert b"".join(block.data for block in blocks) == plain_frame(b"one") + plain_frame(b"two")

    def test_no_events_make_no_block(self) -> None:
        array = pa.array([], pa.binary())
        assert list(framing.blocks_by_segment(array, framing.event_lengths(array), None)) == []

    def test_segments_keep_their_order(self) -> None:
        events = [f"{index}".encode() for index in range(1000)]
        segments = np.array([random.Random(index).randrange(5) for index in range(1000)], dtype=np.uint16)
        array = pa.array(events)
        got: dict[int, bytes] = {}
        counts: dict[int, int] = {}
        for block in framing.blocks_by_segment(array, framing.event_lengths(array), segments):
            got[block.segment_index] = got.get(block.segment_index, b"") + bytes(block.data)
            counts[block.segment_index] = counts.get(block.segment_index, 0) + block.event_count
        for segment in range(5):
            mine = [event for event, owner in zip(events, segments, strict=True) if owner == segment]
            assert got[segment] == b"".join(map(plain_frame, mine))
            assert counts[segment] == len(mine)

    def test_blocks_end_between_events(self) -> None:
        events = [bytes(size) for size in (600_000, 600_000, 300_000, 3_000_000, 10)]
        array = pa.array(events)
        blocks = list(framing.blocks_by_segment(array, framing.event_lengths(array), None))
        assert [block.event_count for block in blocks] == [1, 2, 1, 1]
        assert b"".join(block.data for block in blocks) == b"".join(map(plain_frame, events))

    @pytest.mark.parametrize(
        ("gathered", "counts"),
        [
            (0, [3, 2]),
            (framing.block_bytes_max - 300_000, [1, 3, 1]),
            (framing.block_bytes_max - 299_999, [3, 2]),  # no event fits: what has gathered goes alone
            (framing.block_bytes_max, [3, 2]),
        ],
    )
    def test_the_first_block_of_a_segment_fills_up_what_has_gathered(self, gathered: int, counts: list[int]) -> None:
        events = pa.array([bytes(300_000 - framing.event_header_bytes)] * 10)
        segments = np.array([0, 1] * 5, dtype=np.uint16)
        waiting = [gathered, 0]
        blocks = list(framing.blocks_by_segment(events, framing.event_lengths(events), segments, waiting.__getitem__))
        assert [block.event_count for block in blocks if block.segment_index == 0] == counts
        assert [block.event_count for block in blocks if block.segment_index == 1] == [3, 2]

    def test_null_events_are_counted(self) -> None:
        with pytest.raises(InvalidArgument, match="2 of 3 events are null"):
            framing.event_lengths(pa.array([None, b"x", None]))

    def test_largest_event(self) -> None:
        framing.event_lengths(pa.array([bytes(framing.event_bytes_max)]))
        with pytest.raises(InvalidArgument, match="larger than 8388608 bytes, the largest has 8388609"):
            framing.event_lengths(pa.array([bytes(framing.event_bytes_max + 1)]))


class TestReading:
    @given(st.lists(st.binary(max_size=40), max_size=60), st.integers(8, 200), st.integers(1, 90))
    @settings(max_examples=150, deadline=None)
    def test_any_events_in_any_pieces(self, events: list[bytes], window_bytes: int, step: int) -> None:
        data = b"".join(map(plain_frame, events))
        got, offsets, rest = read_all(data, window_bytes, step)
        assert got == events
        assert rest == 0
        starts = np.cumsum([0, *(8 + len(event) for event in events)])[:-1] + 100
        assert offsets == starts.tolist()

    @pytest.mark.parametrize("odd_one", [None, 0, 5, 20, 99])
    def test_equal_lengths_with_an_odd_one(self, odd_one: int | None) -> None:
        events = [b"x" * (7 if index == odd_one else 100) for index in range(100)]
        assert read_all(b"".join(map(plain_frame, events)), 5000)[0] == events

    def test_window_grows_for_a_large_event(self) -> None:
        events = [b"a", b"b" * 100_000, b"c"]
        assert read_all(b"".join(map(plain_frame, events)), 64, 64)[0] == events

    def test_what_is_cut_off_is_left_over(self) -> None:
        data = plain_frame(b"whole") + plain_frame(b"cut off")[:-1]
        got, _, rest = read_all(data)
        assert (got, rest) == ([b"whole"], 14)

    @pytest.mark.parametrize("header", ["0000000100000003", "00000000ffffffff", "ffffffff00000008"])
    def test_not_a_header(self, header: str) -> None:
        with pytest.raises(DataCorruption, match=r"offset 100 .* at byte 13"):
            read_all(plain_frame(b"whole") + bytes.fromhex(header) + b"abcdef")

    def test_events_stay_when_the_window_is_reused(self) -> None:
        window = framing.EventWindow(0, 64)
        frame = plain_frame(b"first")
        window.free()[: len(frame)] = frame
        window.filled(len(frame))
        index = window.index()
        events = window.events(index)
        window.consume(index)
        window.free()[:13] = bytes(13)
        assert events.to_pylist() == [b"first"]
