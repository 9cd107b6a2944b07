"""Watermarks in Pravega's bytes: golden ones, damaged ones, and versions from the future."""

from __future__ import annotations

import struct

import pytest

from controller_service.watermarks.watermark import (
    SegmentPosition,
    Watermark,
    decode_watermark,
    encode_watermark,
    watermark_bytes_max,
)
from pravega_common.errors import DataCorruption
from pravega_common.invariants import InvariantViolation
from pravega_common.names import segment_id, segments_per_stream_max

HALVES = Watermark(1_000, 2_000, (SegmentPosition(0, 0.0, 0.5, 100), SegmentPosition(segment_id(2, 1), 0.5, 1.0, 258)))
GOLDEN = bytes.fromhex(
    "00 00 01  00 00000061"
    "00000000000003e8 00000000000007d0 02"
    "00 00 01  00 00000018  0000000000000000 0000000000000000 3fe0000000000000  0000000000000064"
    "00 00 01  00 00000018  0000000100000002 3fe0000000000000 3ff0000000000000  0000000000000102"
)


def spread(count: int) -> Watermark:
    position = tuple(SegmentPosition(n, n / count, (n + 1) / count, n) for n in range(count))
    return Watermark(-5, 1 << 62, position)


def test_golden_bytes() -> None:
    assert encode_watermark(HALVES) == GOLDEN
    assert decode_watermark(GOLDEN) == HALVES


@pytest.mark.parametrize(
    ("count", "compact"),
    [(1, "01"), (127, "7f"), (128, "8080"), (segments_per_stream_max, "9194")],
)
def test_the_number_of_segments_is_compact(count: int, compact: str) -> None:
    data = encode_watermark(spread(count))
    assert data[24:].startswith(bytes.fromhex(compact))
    assert len(data) <= watermark_bytes_max
    assert decode_watermark(data) == spread(count)


def test_numbers_of_four_bytes_are_read() -> None:
    """Pravega writes them from 16,384 segments on; a smaller number in that form is the same number."""
    data = bytearray(GOLDEN)
    data[24:25] = bytes.fromhex("c0000002")
    data[4:8] = struct.pack(">I", 0x61 + 3)
    assert decode_watermark(data) == HALVES


def test_later_revisions_are_passed_over() -> None:
    data = bytearray(GOLDEN + bytes.fromhex("01 00000003 aabbcc"))
    data[2] = 2
    assert decode_watermark(data) == HALVES


@pytest.mark.parametrize("length", range(len(GOLDEN)))
def test_a_cut_watermark_is_damaged(length: int) -> None:
    with pytest.raises(DataCorruption):
        decode_watermark(GOLDEN[:length])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 1),  # the serializer's format
        (1, 1),  # a version from the future
        (2, 0),  # no revision
        (3, 9),  # another first revision
        (7, 0xFF),  # longer than what follows
        (8, 0x7F),  # the lower bound above the upper one
        (24, 0x7F),  # more segments than there are
        (25, 1),  # a segment's format
        (33, 0x80),  # a negative segment
        (49, 0xBF),  # a negative upper key
    ],
)
def test_damage_is_found(at: int, value: int) -> None:
    data = bytearray(GOLDEN)
    data[at] = value
    with pytest.raises(DataCorruption):
        decode_watermark(data)


def test_what_no_reader_could_use_is_not_written() -> None:
    for wrong in (Watermark(2, 1, HALVES.position), Watermark(1, 2, ())):
        with pytest.raises(InvariantViolation):
            encode_watermark(wrong)
