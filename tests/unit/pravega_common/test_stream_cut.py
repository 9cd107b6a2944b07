"""Checks text and binary forms of stream cuts, docs/wire-protocol.md 6.5."""

from __future__ import annotations

import base64
import gzip
import pickle

import pytest

from pravega_common import stream_cut
from pravega_common.compact_numbers import (
    ByteReader,
    read_compact_int,
    read_compact_long,
    read_compact_signed_long,
    write_compact_int,
    write_compact_long,
    write_compact_signed_long,
)
from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.names import segment_id
from pravega_common.stream_cut import UNBOUNDED, StreamCut

TWO = StreamCut("scope", "stream", {0: 0, segment_id(1, 1): 1024})
ONE = StreamCut("scope", "stream", {segment_id(2, 1): 500})
TEXTS = [
    (TWO, "H4sIAAAAAAAA/zOwKk7OL0jVLy4pSk3MtTLQMYRhAyMTAE8zqygdAAAA"),
    (ONE, "H4sIAAAAAAAA/zOwKk7OL0jVLy4pSk3MtTKyMrQyNTAAABGI/xYWAAAA"),
    (UNBOUNDED, "UNBOUNDED"),
]


@pytest.mark.parametrize(("cut", "text"), TEXTS)
def test_texts_are_those_that_java_writes(cut: StreamCut, text: str) -> None:
    assert cut.as_text() == text
    assert StreamCut.from_text(text) == cut


def test_other_gzip_headers_are_read() -> None:
    packed = gzip.compress(b"0:scope/stream:2:1:500", mtime=12345)
    assert StreamCut.from_text(base64.b64encode(packed).decode()) == ONE


def test_binary_form() -> None:
    expected = "00010100 0000001b 000c 73636f70652f73747265616d 02 00 00 c000000100000001 2400"
    assert TWO.to_bytes() == bytes.fromhex(expected)
    assert StreamCut.from_bytes(TWO.to_bytes()) == TWO
    assert StreamCut.from_bytes(b"") is UNBOUNDED
    assert UNBOUNDED.to_bytes() == b""


def test_version_0_has_unsigned_offsets() -> None:
    body = bytes.fromhex("000c 73636f70652f73747265616d 01 00 4400")
    assert StreamCut.from_bytes(bytes.fromhex("00000100 00000012") + body).offsets == {0: 1024}


def test_every_shorter_binary_form_is_refused() -> None:
    data = TWO.to_bytes()
    for length in range(1, len(data)):
        with pytest.raises(DataCorruption):
            StreamCut.from_bytes(data[:length])


def text_of(plain: str) -> str:
    return base64.b64encode(gzip.compress(plain.encode(), mtime=0)).decode()


@pytest.mark.parametrize(
    "text",
    ["", "x", "!!!!", "AAAA", text_of("1:a/b:0:0:0"), text_of("0:a/b:0:0"), text_of("0:ab:0:0:0"),
     text_of("0:a/b:0,1:0:0"), text_of("0:a/b:x:0:0"), text_of("0:a/b:-1:0:0"), text_of("0:a/b:::"),
     TEXTS[0][1][:-8]],
)  # fmt: skip
def test_bad_texts_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        StreamCut.from_text(text)


def test_a_decompression_bomb_is_refused() -> None:
    bomb = base64.b64encode(gzip.compress(bytes(stream_cut.text_bytes_max + 1))).decode()
    with pytest.raises(InvalidArgument, match="larger than"):
        StreamCut.from_text(bomb)


def test_a_cut_is_a_value() -> None:
    positions = {0: 1}
    cut = StreamCut("a", "b", positions)
    positions[0] = 2
    assert cut.offsets == {0: 1}
    assert hash(cut) == hash(StreamCut("a", "b", {0: 1}))
    assert pickle.loads(pickle.dumps(cut)) == cut
    assert str(cut) == "a/b:0=1"


@pytest.mark.parametrize("bits", range(0, 63))
@pytest.mark.parametrize("delta", [-1, 0, 1])
def test_compact_numbers_at_every_edge(bits: int, delta: int) -> None:
    value = (1 << bits) + delta
    for write, read, values in (
        (write_compact_int, read_compact_int, [value] if value < (1 << 30) - 1 else []),
        (write_compact_long, read_compact_long, [value] if value < 1 << 62 else []),
        (write_compact_signed_long, read_compact_signed_long, [value, -value] if value < 1 << 61 else []),
    ):
        for item in values:
            reader = ByteReader(write(item))
            assert read(reader) == item
            assert reader.remaining == 0


def test_compact_numbers_have_limits() -> None:
    for write, value in (
        (write_compact_int, (1 << 30) - 1),
        (write_compact_int, -1),
        (write_compact_long, 1 << 62),
        (write_compact_long, -1),
        (write_compact_signed_long, 1 << 61),
    ):
        with pytest.raises(InvalidArgument):
            write(value)
