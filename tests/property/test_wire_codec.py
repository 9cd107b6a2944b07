"""The codec on arbitrary commands and arbitrary bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    COMMANDS,
    Command,
    MergedSource,
    StorageFlushed,
    WireAttributeUpdate,
    WireChunkInfo,
    WireTableEntry,
    WireTableKey,
)
from pravega_common.wire.errors import WireDecodeError
from pravega_common.wire.framing import FrameParser

i64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
blobs = st.binary(max_size=200)
keys = st.builds(WireTableKey, st.binary(min_size=1, max_size=40), i64)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i8": st.integers(-128, 127),
    "bool": st.booleans(),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": i64,
    "uuid": st.binary(min_size=16, max_size=16),
    "str": texts,
    "bytes": blobs,
    "raw": blobs,
    "event": blobs,
    "keys": st.lists(keys, max_size=4).map(tuple),
    "entries": st.lists(st.builds(WireTableEntry, keys, blobs), max_size=4).map(tuple),
    "versions": st.lists(i64, max_size=4).map(tuple),
    "strings": st.lists(texts, max_size=4).map(tuple),
    "frames": st.lists(st.builds(codec.encode, st.builds(StorageFlushed, i64)), max_size=4).map(tuple),
    "flags": st.integers(0, 127),
    "merged": st.lists(st.builds(MergedSource, texts, i64), max_size=4).map(tuple),
    "chunks": st.lists(st.builds(WireChunkInfo, i64, i64, i64, texts, st.booleans()), max_size=4).map(tuple),
    "updates": st.lists(
        st.builds(WireAttributeUpdate, st.binary(min_size=16, max_size=16), st.integers(0, 4), i64, i64), max_size=4
    ).map(tuple),
}


@st.composite
def commands(draw: st.DrawFn) -> Command:
    made = COMMANDS[draw(st.sampled_from(sorted(COMMANDS)))]
    return made(*(draw(VALUES[kind.name]) for _, kind in made.layout))


@given(commands())
@settings(max_examples=1500, deadline=None)
def test_every_command_round_trips(command: Command) -> None:
    frame = codec.encode(command)
    ((type_code, payload),) = FrameParser().feed(frame)
    assert codec.decode(type_code, payload) == command
    assert codec.decode_by_layout(type(command), payload) == command
    assert b"".join(codec.encode_by_layout(command)) == frame
    # Java and Rust ignore what follows the layout; so must we, except where the rest is the value.
    if command.layout and command.layout[-1][1].name != "raw":
        assert codec.decode(type_code, memoryview(bytes(payload) + b"\0" * 9)) is not None


@given(commands(), st.data())
@settings(max_examples=800, deadline=None)
def test_a_shortened_payload_is_refused_or_takes_defaults(command: Command, data: st.DataObject) -> None:
    payload = codec.encode(command)[8:]
    if not payload:
        return
    length = data.draw(st.integers(0, len(payload) - 1))
    try:
        decoded = codec.decode(command.type_code, memoryview(payload)[:length])
    except WireDecodeError as error:
        assert error.command == type(command).__name__
    else:
        has_optional_end = any(kind.presence_bytes or kind.name == "raw" for _, kind in command.layout)
        assert has_optional_end
        assert type(decoded) is type(command)


@given(st.sampled_from(sorted(COMMANDS)), st.binary(max_size=400))
@settings(max_examples=3000, deadline=None)
def test_arbitrary_bytes_decode_or_are_refused(type_code: int, payload: bytes) -> None:
    try:
        codec.encode(codec.decode(type_code, memoryview(payload)))
    except WireDecodeError as error:
        assert str(error)


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3000)), max_size=20), st.data())
@settings(max_examples=200, deadline=None)
def test_frames_survive_any_cutting_of_the_stream(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(codec.frame_header(code, len(payload)) + payload for code, payload in frames)
    parser = FrameParser()
    received = []
    while stream:
        size = data.draw(st.integers(1, min(len(stream), 5000)))
        received += parser.feed(stream[:size])
        stream = stream[size:]
    assert [(code, bytes(view)) for code, view in received] == frames
