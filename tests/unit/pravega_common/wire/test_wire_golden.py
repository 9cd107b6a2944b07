"""Checks frames of docs/wire-protocol.md 3.8 and 4, to the byte in both directions."""

from __future__ import annotations

import pytest

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    AppendBlock,
    AppendBlockEnd,
    AppendSetup,
    Command,
    ConditionalAppend,
    ConditionalBlockEnd,
    ConditionalCheckFailed,
    DataAppended,
    Hello,
    KeepAlive,
    ReadSegment,
    SegmentRead,
    SetupAppend,
)

WRITER = bytes.fromhex("101112131415161718191a1b1c1d1e1f")
SEGMENT = "s/t/0.#epoch.0"
RID = 0x1_0000_0000
READ_RID = 0x2_0000_0001
ABC = bytes.fromhex("0000000000000003616263")
TWO_EVENTS = ABC + bytes.fromhex("000000000000000568656c6c6f")
W_HEX = "10111213 14151617 18191a1b 1c1d1e1f"

GOLDEN: list[tuple[Command, str]] = [
    (Hello(17, 5), "ffffff81 00000008 00000011 00000005"),
    (KeepAlive(), "00000064 00000000"),
    (
        SetupAppend(RID, WRITER, SEGMENT, ""),
        f"00000001 0000002a 00000001 00000000 {W_HEX} 000e732f 742f302e 2365706f 63682e30 0000",
    ),
    (
        AppendSetup(RID, SEGMENT, WRITER, -(2**63)),
        f"00000002 00000030 00000001 00000000 000e732f 742f302e 2365706f 63682e30 {W_HEX} 80000000 00000000",
    ),
    (AppendBlock(WRITER, ABC), f"00000003 0000001b {W_HEX} 00000000 00000003 616263"),
    (
        AppendBlockEnd(WRITER, 11, b"", 1, 1, RID),
        f"00000004 0000002c {W_HEX} 0000000b 00000000 00000001 00000000 00000001 00000001 00000000",
    ),
    (
        DataAppended(WRITER, 1, -(2**63), RID, 11),
        f"00000007 00000030 {W_HEX} 00000000 00000001 80000000 00000000 00000001 00000000 00000000 0000000b",
    ),
    (
        AppendBlock(WRITER, TWO_EVENTS + bytes.fromhex("ffffffff000000080000000000000000")),
        f"00000003 00000038 {W_HEX} 00000000 00000003 61626300 00000000 00000568 656c6c6f ffffffff 00000008 00000000"
        " 00000000",
    ),
    (
        AppendBlockEnd(WRITER, 24, b"0123456789ab", 3, 6, RID),
        f"00000004 00000038 {W_HEX} 00000018 0000000c 30313233 34353637 38396162 00000003 00000000 00000006 00000001"
        " 00000000",
    ),
    (
        AppendBlockEnd(WRITER, 11, ABC, 1, 1, 7),
        f"00000004 00000037 {W_HEX} 0000000b 0000000b 00000000 00000003 616263 00000001 00000000 00000001 00000000"
        " 00000007",
    ),
    (
        ConditionalBlockEnd(WRITER, 2, 11, b"WXYZ", 8),
        f"00000059 00000030 {W_HEX} 00000000 00000002 00000000 0000000b 00000004 5758595a 00000000 00000008",
    ),
    (
        ConditionalAppend(WRITER, 2, 11, b"z", 9),
        f"00000005 00000031 {W_HEX} 00000000 00000002 00000000 0000000b 00000000 00000001 7a 00000000 00000009",
    ),
    (
        ConditionalCheckFailed(WRITER, 2, 9),
        f"00000008 00000020 {W_HEX} 00000000 00000002 00000000 00000009",
    ),
    (
        ReadSegment(SEGMENT, 0, 1024, "", READ_RID),
        "00000009 00000026 000e732f 742f302e 2365706f 63682e30 00000000 00000000 00000400 0000 00000002 00000001",
    ),
    (
        SegmentRead(SEGMENT, 0, True, False, ABC, READ_RID),
        "0000000a 00000031 000e732f 742f302e 2365706f 63682e30 00000000 00000000 01 00 0000000b 00000000 00000003"
        " 616263 00000002 00000001",
    ),
    (
        SegmentRead(SEGMENT, 11, False, True, b"", READ_RID),
        "0000000a 00000026 000e732f 742f302e 2365706f 63682e30 00000000 0000000b 00 01 00000000 00000002 00000001",
    ),
    (
        ReadSegment("scope/strm/0.#epoch.0", 0, 8 * 1024 * 1024, "", 15),
        "00000009 0000002d 0015 73636f70652f7374726d2f302e2365706f63682e30 0000000000000000 00800000 0000"
        " 000000000000000f",
    ),
]


@pytest.mark.parametrize(("command", "frame_hex"), GOLDEN, ids=lambda value: type(value).__name__)
def test_the_frame_is_that_of_the_reference(command: Command, frame_hex: str) -> None:
    frame = bytes.fromhex(frame_hex)
    assert codec.encode(command) == frame
    assert codec.decode(command.type_code, memoryview(frame)[8:]) == command
