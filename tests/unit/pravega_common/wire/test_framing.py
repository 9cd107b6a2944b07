"""Checks the splitting of bytes into frames."""

from __future__ import annotations

import struct
import weakref

import pytest

from pravega_common.wire import framing
from pravega_common.wire.codec import encode, payload_bytes_max
from pravega_common.wire.commands import AppendBlockEnd, Hello, KeepAlive
from pravega_common.wire.errors import WireDecodeError
from pravega_common.wire.framing import FrameParser

WRITER = bytes(16)


def frame(type_code: int, payload: bytes) -> bytes:
    return struct.pack(">ii", type_code, len(payload)) + payload


def plain(frames: list[framing.Frame]) -> list[tuple[int, bytes]]:
    return [(code, bytes(view)) for code, view in frames]


def test_frames_arriving_byte_by_byte() -> None:
    stream = frame(4, b"abc") + frame(100, b"") + frame(-127, b"xy")
    parser = FrameParser()
    got: list[tuple[int, bytes]] = []
    for index in range(len(stream)):
        got += plain(parser.feed(stream[index : index + 1]))
    assert got == [(4, b"abc"), (100, b""), (-127, b"xy")]
    assert parser.unfinished_bytes == 0


def test_views_stay_valid_while_the_stream_goes_on() -> None:
    parser = FrameParser()
    held: list[tuple[bytes, memoryview]] = []
    for number in range(2_000):
        payload = number.to_bytes(4, "big") * (number % 300)
        for _, view in parser.feed(frame(3, payload)):
            held.append((payload, view))
    assert len(held) == 2_000
    assert all(bytes(view) == payload for payload, view in held)
    assert all(view.readonly for _, view in held)


def test_a_frame_larger_than_every_buffer_arrives_whole() -> None:
    payload = bytes(range(256)) * (5 * 4096)
    parser = FrameParser()
    stream = frame(3, payload) + frame(100, b"")
    got: list[framing.Frame] = []
    for start in range(0, len(stream), 100_000):
        got += parser.feed(stream[start : start + 100_000])
    assert plain(got) == [(3, payload), (100, b"")]


class _Memory(bytearray):
    """Memory of a buffer, which can be watched."""


@pytest.mark.parametrize("large_bytes", [1_100_000, 3_000_000])
def test_a_used_up_buffer_is_kept_by_its_views_only(large_bytes: int) -> None:
    made: list[weakref.ref[_Memory]] = []

    def new_buffer(size: int) -> memoryview:
        memory = _Memory(size)
        made.append(weakref.ref(memory))
        return memoryview(memory)

    parser = FrameParser(new_buffer=new_buffer)
    payload = bytes(range(250)) * (large_bytes // 250)
    held = parser.feed(frame(3, payload))
    assert parser.unfinished_bytes == 0
    assert plain(parser.feed(frame(100, b"") + frame(3, b"abc"))) == [(100, b""), (3, b"abc")]
    assert plain(held) == [(3, payload)]
    again = parser.feed(frame(3, payload))
    assert len(made) == 4
    del held, again
    assert [memory() is None for memory in made] == [True] * 4


def test_a_process_with_few_connections_reads_the_same_out_of_small_buffers() -> None:
    stream = b"".join(frame(3, bytes([number % 256]) * (number * 37)) for number in range(400))
    parsers = FrameParser(), FrameParser(new_buffer=framing.small_buffer)
    got = [[plain(parser.feed(stream[at : at + 9_999])) for at in range(0, len(stream), 9_999)] for parser in parsers]
    assert got[0] == got[1]
    assert len(parsers[0].get_buffer()) == len(parsers[1].get_buffer()) > framing.buffer_bytes_min


def test_the_transport_may_fill_the_buffer_itself() -> None:
    stream = encode(AppendBlockEnd(WRITER, 3, b"abc", 1, 1, 7)) + encode(KeepAlive())
    parser = FrameParser()
    space = parser.get_buffer(1)
    space[: len(stream)] = stream
    assert [code for code, _ in parser.buffer_updated(len(stream))] == [4, 100]


def test_buffers_grow_only_while_they_are_filled() -> None:
    parser = FrameParser()
    assert len(parser.get_buffer()) == framing.buffer_bytes_min
    sizes = set()
    for _ in range(400):
        parser.feed(frame(3, bytes(10_000)))
        sizes.add(len(parser.get_buffer()))
    assert max(sizes) <= framing.buffer_bytes_max
    assert max(sizes) > framing.buffer_bytes_max // 2


@pytest.mark.parametrize("length", [-1, -(2**31), payload_bytes_max + 1, 2**31 - 1])
def test_a_bad_length_ends_the_stream_after_the_frames_before_it(length: int) -> None:
    parser = FrameParser()
    frames = parser.feed(frame(100, b"") + struct.pack(">ii", 4, length))
    assert plain(frames) == [(100, b"")]
    assert parser.failure is not None
    with pytest.raises(WireDecodeError, match=str(length)):
        parser.get_buffer()


def test_the_largest_payload_is_accepted() -> None:
    parser = FrameParser()
    assert parser.feed(struct.pack(">ii", 3, payload_bytes_max)) == []
    assert parser.failure is None
    assert len(parser.get_buffer()) == payload_bytes_max


def test_frames_above_the_limit_are_cut_out_later() -> None:
    parser = FrameParser(frames_max=3)
    data = b"".join(encode(KeepAlive()) for _ in range(7)) + encode(Hello(17, 5))[:5]
    parser.get_buffer()[: len(data)] = data
    counts = [len(parser.buffer_updated(len(data)))]
    while parser.has_more:
        assert parser.unfinished_bytes == 0, "complete frames count as one that is not"
        counts.append(len(parser.more()))
    assert counts == [3, 3, 1]
    assert parser.unfinished_bytes == 5
    rest = encode(Hello(17, 5))[5:]
    parser.get_buffer()[: len(rest)] = rest
    ((type_code, _),) = parser.buffer_updated(len(rest))
    assert type_code == Hello.type_code and not parser.has_more


def test_a_malformed_header_behind_frames_above_the_limit_is_found_behind_them() -> None:
    parser = FrameParser(frames_max=1)
    data = encode(KeepAlive()) * 2 + b"\x00\x00\x00\x01\xff\xff\xff\xff"
    parser.get_buffer()[: len(data)] = data
    assert len(parser.buffer_updated(len(data))) == 1
    assert parser.failure is None
    assert len(parser.more()) == 1
    assert parser.has_more and parser.failure is None
    assert parser.more() == []
    assert parser.failure is not None and not parser.has_more


@pytest.mark.parametrize("hello_bytes", [255, 512, 700, 1_526])
def test_a_tls_handshake_of_any_length_is_known_as_one(hello_bytes: int) -> None:
    """Newer versions of OpenSSL say hello at more length, whose low byte is where the sign of a frame's length is."""
    parser = FrameParser()
    parser.feed(struct.pack(">BHH", 22, 0x0301, hello_bytes) + b"\x01\x00" + bytes(hello_bytes - 2))
    assert parser.begins_tls
    assert "begins TLS" in str(parser.failure)
