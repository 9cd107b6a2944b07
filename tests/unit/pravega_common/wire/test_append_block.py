"""Checks the reassembly of append commands, docs/wire-protocol.md 3.3 and 3.8."""

from __future__ import annotations

import pytest

from pravega_common.wire.append_block import AppendDecoder, WireAppend
from pravega_common.wire.commands import (
    AppendBlock,
    AppendBlockEnd,
    Command,
    ConditionalAppend,
    ConditionalBlockEnd,
    KeepAlive,
    Padding,
    SetupAppend,
)
from pravega_common.wire.errors import WireProtocolError

WRITER = b"w" * 16
OTHER = b"o" * 16
SEGMENT = "s/t/0.#epoch.0"
EVENTS = bytes.fromhex("0000000000000003616263000000000000000568656c6c6f")
PADDING = bytes.fromhex("ffffffff000000080000000000000000")
PARTIAL = bytes.fromhex("fffffffe00000008000000000000000c")


@pytest.fixture
def decoder() -> AppendDecoder:
    made = AppendDecoder()
    made.accept(SetupAppend(1, WRITER, SEGMENT))
    return made


def stored(decoder: AppendDecoder, *commands: Command) -> WireAppend:
    results = [decoder.accept(command) for command in commands]
    assert results[:-1] == [None] * (len(results) - 1)
    last = results[-1]
    assert last is not None
    assert last.length == sum(map(len, last.parts))
    return last


def test_exact_block(decoder: AppendDecoder) -> None:
    append = stored(decoder, AppendBlock(WRITER, EVENTS), AppendBlockEnd(WRITER, 24, b"", 2, 2, 9))
    assert b"".join(append.parts) == EVENTS
    assert (append.segment, append.event_count, append.event_number, append.request_id) == (SEGMENT, 2, 2, 9)
    assert not append.is_conditional


def test_padded_block(decoder: AppendDecoder) -> None:
    append = stored(decoder, AppendBlock(WRITER, EVENTS + PADDING), AppendBlockEnd(WRITER, 24, b"", 2, 3, 9))
    assert b"".join(append.parts) == EVENTS


def test_partial_event_continues_in_the_block_end(decoder: AppendDecoder) -> None:
    end = AppendBlockEnd(WRITER, 24, b"0123456789ab", 3, 6, 9)
    append = stored(decoder, AppendBlock(WRITER, EVENTS + PARTIAL), end)
    assert b"".join(append.parts) == EVENTS + bytes.fromhex("000000000000000c") + b"0123456789ab"
    assert append.length == 44


def test_whole_batch_in_the_block_end_ignores_the_size(decoder: AppendDecoder) -> None:
    append = stored(decoder, AppendBlockEnd(WRITER, -5, EVENTS, 2, 2, 7))
    assert append.parts == (EVENTS,)


def test_empty_append_is_legal(decoder: AppendDecoder) -> None:
    assert stored(decoder, AppendBlockEnd(WRITER, 0, b"", 1, 1, 7)).length == 0


def test_payload_is_not_copied(decoder: AppendDecoder) -> None:
    data = memoryview(bytearray(EVENTS))
    append = stored(decoder, AppendBlock(WRITER, data), AppendBlockEnd(WRITER, 24, b"", 2, 2, 9))
    (part,) = append.parts
    assert isinstance(part, memoryview)
    assert part.obj is data.obj


def test_conditional_append_stores_the_event_header(decoder: AppendDecoder) -> None:
    append = stored(decoder, ConditionalAppend(WRITER, 2, 11, b"z", 9))
    assert b"".join(append.parts) == bytes.fromhex("00000000000000017a")
    assert (append.expected_offset, append.event_count, append.is_conditional) == (11, 1, True)


def test_conditional_block_end_stores_data_as_it_is(decoder: AppendDecoder) -> None:
    append = stored(decoder, ConditionalBlockEnd(WRITER, 0, 0, b"WXYZ", 8))
    assert append.parts == (b"WXYZ",)
    assert append.is_conditional


def test_equal_event_numbers_are_allowed_and_lower_ones_are_not(decoder: AppendDecoder) -> None:
    stored(decoder, AppendBlockEnd(WRITER, 0, b"", 1, 5, 7))
    stored(decoder, AppendBlockEnd(WRITER, 0, b"", 1, 5, 7))
    with pytest.raises(WireProtocolError, match="event number 4 after 5"):
        decoder.accept(AppendBlockEnd(WRITER, 0, b"", 1, 4, 7))


def test_second_setup_points_the_writer_to_another_segment(decoder: AppendDecoder) -> None:
    decoder.accept(SetupAppend(2, WRITER, "s/t/1.#epoch.0"))
    assert stored(decoder, AppendBlockEnd(WRITER, 0, b"", 1, 1, 7)).segment == "s/t/1.#epoch.0"


def test_a_forgotten_writer_must_set_up_again(decoder: AppendDecoder) -> None:
    decoder.forget(WRITER, "another/segment/0")
    stored(decoder, AppendBlockEnd(WRITER, 0, b"", 1, 1, 7))
    decoder.forget(WRITER, SEGMENT)
    with pytest.raises(WireProtocolError, match="not set up"):
        decoder.accept(AppendBlockEnd(WRITER, 0, b"", 1, 2, 7))


def test_lone_padding_is_ignored(decoder: AppendDecoder) -> None:
    assert decoder.accept(Padding(b"anything")) is None


@pytest.mark.parametrize(
    "command",
    [
        AppendBlock(OTHER, b""),
        AppendBlockEnd(OTHER, 0, b"", 1, 1, 1),
        ConditionalAppend(OTHER, 1, 0, b"", 1),
        ConditionalBlockEnd(OTHER, 1, 0, b"", 1),
        AppendBlockEnd(WRITER, 0, b"", 0, 1, 1),
        AppendBlockEnd(WRITER, 0, b"", -1, 1, 1),
        AppendBlockEnd(WRITER, 0, b"", 1, -1, 1),
        ConditionalAppend(WRITER, 1, -1, b"", 1),
        KeepAlive(),
    ],
    ids=repr,
)
def test_refused_commands(decoder: AppendDecoder, command: Command) -> None:
    with pytest.raises(WireProtocolError):
        decoder.accept(command)


@pytest.mark.parametrize(
    "command",
    [
        SetupAppend(2, OTHER, SEGMENT),
        Padding(b""),
        ConditionalAppend(WRITER, 1, 0, b"", 1),
        ConditionalBlockEnd(WRITER, 1, 0, b"", 1),
        AppendBlock(WRITER, b""),
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_may_come_between_block_and_end(decoder: AppendDecoder, command: Command) -> None:
    decoder.accept(AppendBlock(WRITER, EVENTS))
    with pytest.raises(WireProtocolError, match="block is open"):
        decoder.accept(command)


@pytest.mark.parametrize(
    ("block", "size", "end_data"),
    [
        (EVENTS, 25, b""),
        (EVENTS, -1, b""),
        (EVENTS + PADDING, 24, b"x"),
        (EVENTS + b"\0" * 7, 24, b""),
        (EVENTS + bytes.fromhex("0000000000000000"), 24, b""),
        (EVENTS + bytes.fromhex("fffffffe00000009") + bytes(8), 24, b""),
        (EVENTS + bytes.fromhex("fffffffeffffffff"), 24, b""),
    ],
)
def test_bad_block_ends(decoder: AppendDecoder, block: bytes, size: int, end_data: bytes) -> None:
    decoder.accept(AppendBlock(WRITER, block))
    with pytest.raises(WireProtocolError):
        decoder.accept(AppendBlockEnd(WRITER, size, end_data, 1, 1, 1))


def test_block_and_end_of_different_writers(decoder: AppendDecoder) -> None:
    decoder.accept(SetupAppend(2, OTHER, SEGMENT))
    decoder.accept(AppendBlock(WRITER, EVENTS))
    with pytest.raises(WireProtocolError, match="another writer"):
        decoder.accept(AppendBlockEnd(OTHER, 24, b"", 1, 1, 1))
