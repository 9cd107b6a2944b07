"""Checks traffic reports against bytes that Pravega 0.13 wrote, docs/wire-protocol.md 6.6."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection, splits_max
from pravega_common.names import segment_id

HOT = AutoScaleEvent("scope", "stream", 0, ScaleDirection.UP, 1_700_000_000_000, 2, False, 7)
SILENT = AutoScaleEvent("s", "t", segment_id(5, 3), ScaleDirection.DOWN, 1_700_000_000_123, 0, True, -9)
GOLDEN = [
    (
        HOT,
        "00020001000000002a 0005 73636f7065 0006 73747265616d 0000000000000000 00 0000018bcfe56800 02 00 "
        "0000000000000007",
    ),
    (SILENT, "000200010000000021 0001 73 0001 74 0000000300000005 01 0000018bcfe5687b 00 01 fffffffffffffff7"),
    (
        AutoScaleEvent("scope", "stream", 1, ScaleDirection.UP, 1, 300, False, 2**63 - 1),
        "00020001000000002b 0005 73636f7065 0006 73747265616d 0000000000000001 00 0000000000000001 812c 00 "
        "7fffffffffffffff",
    ),
    (
        AutoScaleEvent("scope", "stream", 1, ScaleDirection.UP, 1, 20_000, False, -(2**63)),
        "00020001000000002d 0005 73636f7065 0006 73747265616d 0000000000000001 00 0000000000000001 c0004e20 00 "
        "8000000000000000",
    ),
]


@pytest.mark.parametrize(("event", "text"), GOLDEN)
def test_the_bytes_are_those_that_java_writes(event: AutoScaleEvent, text: str) -> None:
    assert event.to_bytes() == bytes.fromhex(text)
    assert AutoScaleEvent.from_bytes(memoryview(bytes.fromhex(text))) == event


def test_the_reports_of_a_stream_have_one_routing_key() -> None:
    assert HOT.routing_key == "scope/stream"


def test_later_revisions_are_ignored() -> None:
    data = bytearray(HOT.to_bytes())
    data[3] = 2
    assert AutoScaleEvent.from_bytes(bytes(data) + bytes.fromhex("01 00000002 abcd")) == HOT


def test_every_shorter_event_is_refused() -> None:
    data = SILENT.to_bytes()
    for length in range(len(data)):
        with pytest.raises(DataCorruption):
            AutoScaleEvent.from_bytes(data[:length])


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        (0, 1),
        (1, 3),
        (2, 1),
        (3, 0),
        (4, 1),
        (5, 0x80),
        (8, 0x20),
        (8, 0xFF),
        (11, 0xC3),
        (11, 0x2F),
        (23, 2),
        (15, 0xFF),
    ],
)
def test_bytes_that_hold_no_event_are_refused(at: int, byte: int) -> None:
    """Format, type, version, revisions, revision, length (three), name (two), direction, segment id."""
    data = bytearray(SILENT.to_bytes())
    data[at] = byte
    with pytest.raises(DataCorruption):
        AutoScaleEvent.from_bytes(bytes(data))


def test_an_event_of_another_type_is_named() -> None:
    data = bytearray(HOT.to_bytes())
    data[1] = 7
    with pytest.raises(DataCorruption, match="type 7"):
        AutoScaleEvent.from_bytes(bytes(data))


@pytest.mark.parametrize(
    "change",
    [
        {"scope": ""},
        {"stream": "a/b"},
        {"segment_id": -1},
        {"segment_id": 2**63},
        {"timestamp_ms": -1},
        {"splits": -1},
        {"splits": splits_max + 1},
        {"request_id": 2**63},
    ],
)
def test_values_that_the_format_does_not_hold_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        replace(HOT, **change)
