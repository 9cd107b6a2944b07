"""Frames: golden bytes, damage, and records that span them."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress, LogEntry, frame_bytes_max
from segment_service.durable_log.data_frame import HEADER, TRAILER, parse_header
from segment_service.durable_log.data_frame_builder import DataFrameBuilder
from segment_service.durable_log.data_frame_reader import DataFrameReader

PLAIN = "504601000000000000000003000000140000000d030000000868656164626f6479395d05e9"
WITH_CHECKPOINT = "504601010000000000000003000000140000001103000000066370736e617003000000017874455e15"


def frames_of(builder: DataFrameBuilder[int]) -> list[bytes]:
    builder.close()
    frames = [b"".join(frame.buffers) for frame in builder.full]
    assert [len(frame) for frame in frames] == [frame.length for frame in builder.full]
    return frames


def read(frames: list[bytes], reader: DataFrameReader | None = None) -> list[bytes]:
    reader = reader or DataFrameReader()
    entries = [LogEntry(LogAddress(0, number), memoryview(frame)) for number, frame in enumerate(frames)]
    return [bytes(record.data) for entry in entries for record in reader.feed(entry)]


def resealed(frame: bytes) -> bytes:
    """The frame with a checksum that fits its bytes."""
    body = frame[: -TRAILER.size]
    return body + TRAILER.pack(crc32c(body))


def test_golden_bytes() -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(3)
    builder.add(b"head", [b"bo", b"dy"], 8, 1)
    assert frames_of(builder)[0].hex() == PLAIN
    assert read([bytes.fromhex(PLAIN)]) == [b"headbody"]


def test_golden_bytes_of_a_checkpoint() -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(3)
    builder.add_checkpoint(b"cp", [b"snap"], 6, 1)
    builder.add(b"x", [], 1, 2)
    assert frames_of(builder)[0].hex() == WITH_CHECKPOINT
    records = list(DataFrameReader().feed(LogEntry(LogAddress(4, 5), memoryview(bytes.fromhex(WITH_CHECKPOINT)))))
    assert [(bytes(item.data), item.address, item.begins_frame) for item in records] == [
        (b"cpsnap", LogAddress(4, 5), True),
        (b"x", LogAddress(4, 5), False),
    ]


def test_every_flipped_bit_is_found() -> None:
    frame = bytes.fromhex(PLAIN)
    for position in range(len(frame) * 8):
        damaged = bytearray(frame)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(DataCorruption):
            read([bytes(damaged)])


@pytest.mark.parametrize("length", [0, 10, len(PLAIN) // 2 - 1])
def test_a_short_frame_is_corrupt(length: int) -> None:
    with pytest.raises(DataCorruption):
        read([bytes.fromhex(PLAIN)[:length]])


def test_a_frame_of_a_future_version_is_refused() -> None:
    frame = bytearray(bytes.fromhex(PLAIN))
    frame[2] = 2
    with pytest.raises(DataCorruption, match="version 2"):
        read([resealed(bytes(frame))])


def test_a_header_that_lies_is_corrupt() -> None:
    frame = bytes.fromhex(PLAIN)
    magic, version, flags, epoch, first, length = HEADER.unpack_from(frame)
    for header in ((first + 1, length), (first, length + 1), (0, length)):
        lying = HEADER.pack(magic, version, flags, epoch, *header) + frame[HEADER.size :]
        with pytest.raises(DataCorruption):
            read([resealed(lying)])


def test_an_oversized_frame_is_refused() -> None:
    with pytest.raises(DataCorruption, match=str(frame_bytes_max)):
        read([bytes(frame_bytes_max + 1)])


def test_a_large_record_spans_frames_without_a_copy() -> None:
    body = memoryview(bytes(range(256)) * 10_000)
    builder: DataFrameBuilder[int] = DataFrameBuilder(1)
    builder.add(b"small", [], 5, 1)
    builder.add(b"large", [body], 5 + len(body), 2)
    builder.add(b"last", [], 4, 3)
    frames = frames_of(builder)
    assert len(frames) == 3
    assert [frame.completed for frame in builder.full] == [[1], [], [2, 3]]
    assert all(
        buffer.obj is body.obj
        for frame in builder.full
        for buffer in frame.buffers
        if isinstance(buffer, memoryview)
        if len(buffer) > 5
    )
    assert parse_header(memoryview(frames[0])).first_record == HEADER.size
    assert parse_header(memoryview(frames[1])).first_record == 0
    assert parse_header(memoryview(frames[2])).first_record > HEADER.size
    assert read(frames) == [b"small", b"large" + body, b"last"]


def test_a_checkpoint_begins_a_new_frame() -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(1)
    builder.add(b"a", [], 1, 1)
    builder.add_checkpoint(b"c", [], 1, 2)
    frames = frames_of(builder)
    assert [frame.begins_with_checkpoint for frame in builder.full] == [False, True]
    assert read(frames) == [b"a", b"c"]


def test_a_record_cut_off_by_a_new_epoch_is_dropped() -> None:
    old: DataFrameBuilder[int] = DataFrameBuilder(1)
    old.add(b"whole", [], 5, 1)
    old.add(b"cut", [bytes(frame_bytes_max)], 3 + frame_bytes_max, 2)
    new: DataFrameBuilder[int] = DataFrameBuilder(2)
    new.add(b"next", [], 4, 3)
    assert read([frames_of(old)[0], *frames_of(new)]) == [b"whole", b"next"]


def test_a_gap_inside_an_epoch_is_corrupt() -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(1)
    builder.add(b"large", [bytes(3 * frame_bytes_max)], 5 + 3 * frame_bytes_max, 1)
    builder.add(b"next", [], 4, 2)
    frames = frames_of(builder)
    with pytest.raises(DataCorruption):
        read(frames[1:])
    follower: DataFrameBuilder[int] = DataFrameBuilder(1)
    follower.add(b"next", [], 4, 2)
    with pytest.raises(DataCorruption):
        read([frames[0], *frames_of(follower)])


def test_an_older_epoch_after_a_newer_one_is_corrupt() -> None:
    builders: list[DataFrameBuilder[int]] = [DataFrameBuilder(2), DataFrameBuilder(1)]
    for builder in builders:
        builder.add(b"x", [], 1, 1)
    with pytest.raises(DataCorruption, match="epoch 1 after epoch 2"):
        read([frames_of(builder)[0] for builder in builders])


def test_tags_without_bytes_complete_with_the_open_frame() -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(1)
    assert not builder.attach(0)
    builder.add(b"a", [], 1, 1)
    assert builder.attach(2)
    assert builder.open_tags() == [1, 2]
    builder.close()
    assert builder.full[0].completed == [1, 2]


@pytest.mark.parametrize(("filled", "is_split"), [(frame_bytes_max // 2, True), (frame_bytes_max * 15 // 16, False)])
def test_a_record_that_the_next_frame_takes_whole_is_not_split_behind_an_almost_full_one(
    filled: int, is_split: bool
) -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(3)
    first, second = bytes(filled), bytes([1]) * (frame_bytes_max * 15 // 16)
    builder.add(b"", [first], len(first), 1)
    builder.add(b"", [second], len(second), 2)
    frames = frames_of(builder)
    assert [frame.completed for frame in builder.full] == [[1], [2]]
    assert (len(frames[0]) > filled + 100) is is_split
    assert read(frames) == [first, second]


def test_a_record_that_no_frame_takes_whole_fills_the_open_one() -> None:
    builder: DataFrameBuilder[int] = DataFrameBuilder(3)
    first, second = bytes(frame_bytes_max * 15 // 16), bytes([1]) * frame_bytes_max
    builder.add(b"", [first], len(first), 1)
    builder.add(b"", [second], len(second), 2)
    frames = frames_of(builder)
    assert len(frames[0]) == frame_bytes_max
    assert read(frames) == [first, second]
