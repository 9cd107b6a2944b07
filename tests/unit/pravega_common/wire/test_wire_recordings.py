"""Checks that every recorded frame decodes, and encodes back to the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.wire import codec
from pravega_common.wire.commands import COMMANDS, Command, CreateTableSegment, MergeSegments
from pravega_common.wire.errors import WireDecodeError
from tests.support.recordings import RecordedFrame, all_wire_frames, frames_of, wire_files

# Hand-made frames of the probe: an unknown type, and payloads that end before the first mandatory field does.
MALFORMED_ON_PURPOSE = {
    ("probe-wire.wire.jsonl", 119),
    ("probe-wire.wire.jsonl", 124),
    ("probe-wire.wire.jsonl", 140),
}
# The Rust client leaves out the optional fields at the end of these.
SHORTER_IN_RUST: tuple[type[Command], ...] = (MergeSegments, CreateTableSegment)


def is_decodable(frame: RecordedFrame) -> bool:
    return (
        frame.type_code is not None and not frame.is_cut_short and (frame.file, frame.line) not in MALFORMED_ON_PURPOSE
    )


@pytest.mark.parametrize("path", wire_files(), ids=lambda path: path.name)
def test_recorded_frames_round_trip(path: Path) -> None:
    for frame in filter(is_decodable, frames_of(path)):
        assert frame.type_code is not None
        command = codec.decode(frame.type_code, memoryview(frame.payload))
        assert type(command).__name__ == frame.name, frame
        encoded = codec.encode(command)[8:]
        if frame.file.startswith("py-") and isinstance(command, SHORTER_IN_RUST):
            assert encoded.startswith(frame.payload), frame
            assert not any(encoded[len(frame.payload) :]), frame
        else:
            assert encoded == frame.payload, frame


@pytest.mark.parametrize("path", wire_files(), ids=lambda path: path.name)
def test_the_fast_codecs_agree_with_the_layouts(path: Path) -> None:
    for frame in filter(is_decodable, frames_of(path)):
        assert frame.type_code is not None
        view = memoryview(frame.payload)
        command = codec.decode(frame.type_code, view)
        by_layout = codec.decode_by_layout(type(command), view)
        assert by_layout == command, frame
        assert b"".join(codec.encode_by_layout(command)) == codec.encode(command), frame


def test_frames_malformed_on_purpose_are_refused_with_a_reason() -> None:
    refused = [frame for frame in all_wire_frames() if (frame.file, frame.line) in MALFORMED_ON_PURPOSE]
    assert len(refused) == len(MALFORMED_ON_PURPOSE)
    for frame in refused:
        assert frame.type_code is not None
        with pytest.raises(WireDecodeError, match=r"unknown type code 999|ends inside field segment"):
            codec.decode(frame.type_code, memoryview(frame.payload))


def test_the_recordings_hold_most_commands() -> None:
    seen = {frame.type_code for frame in all_wire_frames()}
    never_recorded = {
        "Padding", "PartialEvent", "StorageFlushed", "ListStorageChunks", "StorageChunksListed", "Event",
        "OffsetLocated", "WrongHost", "AuthTokenCheckFailed",
        "RequestBatch", "RequestBatchAnswered", "NoReply", "GetSegmentLengths", "SegmentLengths",  # of this project
    }  # fmt: skip
    missing = {made.__name__ for code, made in COMMANDS.items() if code not in seen}
    assert missing <= never_recorded
