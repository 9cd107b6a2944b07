"""Checks the head of a SegmentRead, by which a client learns where the data of a reply go before it has them."""

from __future__ import annotations

import struct

import pytest

from pravega_common.wire import commands as c
from pravega_common.wire.codec import decode_frame, encode, read_head
from pravega_common.wire.framing import FrameParser, receive_bytes_min

NAME = "scope/stream/7.#epoch.1"
REPLY = c.SegmentRead(NAME, 12_345, True, False, bytes(range(200)), 77)
FRAME = memoryview(encode(REPLY))
DATA_START = len(FRAME) - 200 - 8


def test_a_head_is_known_as_soon_as_its_last_byte_is_there() -> None:
    for length in range(len(FRAME)):
        head = read_head(FRAME[:length])
        assert head == (None if length < DATA_START else (NAME, 12_345, DATA_START, 200))


@pytest.mark.parametrize("received", [DATA_START, DATA_START + 1, DATA_START + 200, DATA_START + 203, len(FRAME) - 1])
def test_a_frame_goes_on_without_its_data(received: int) -> None:
    head = read_head(FRAME[:received])
    assert head is not None
    beginning = head.without_data(FRAME[:received])
    parser = FrameParser()
    assert parser.feed(FRAME[:received]) == []
    assert parser.unfinished == FRAME[:received]
    assert parser.restart(beginning) == []
    assert len(parser.get_buffer()) == 2 * receive_bytes_min
    rest = FRAME[max(received, DATA_START + 200) :]
    frames = parser.feed(bytes(rest) + encode(c.KeepAlive()))
    assert [decode_frame(struct.pack(">ii", code, len(data)) + bytes(data)) for code, data in frames] == [
        REPLY.with_fields(data=b""),
        c.KeepAlive(),
    ]


def test_a_reply_that_ends_with_its_data_is_complete_without_them() -> None:
    """A Pravega of old sends no request id."""
    old = memoryview(struct.pack(">ii", 10, len(FRAME) - 16) + bytes(FRAME[8:-8]))
    parser = FrameParser()
    parser.feed(old[:-1])
    head = read_head(parser.unfinished)
    assert head is not None
    ((code, payload),) = parser.restart(head.without_data(parser.unfinished))
    assert (code, bytes(payload)) == (10, bytes(old[8 : DATA_START - 4]) + bytes(4))
    assert parser.unfinished_bytes == 0


@pytest.mark.parametrize("length", [-1, 209, 2**31 - 1])
def test_a_length_that_is_not_that_of_the_frame_gives_no_head(length: int) -> None:
    wrong = bytearray(FRAME)
    struct.pack_into(">i", wrong, DATA_START - 4, length)
    assert read_head(memoryview(wrong)) is None


def test_other_frames_have_no_head() -> None:
    for command in (c.KeepAlive(), c.AppendBlockEnd(bytes(16), 3, bytes(100), 1, 1, 7)):
        assert read_head(memoryview(encode(command))) is None
    assert read_head(memoryview(encode(REPLY.with_fields(segment="s/ü/0.#epoch.0")))) is None
