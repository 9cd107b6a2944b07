"""Checks one frame of every command to the byte, as pinned in tests/data/wire/commands.hex.

A changed line there is a changed protocol. To add a command, run this file as a program and review the difference.
"""

from __future__ import annotations

from typing import Any

import pytest

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    COMMANDS,
    Command,
    KeepAlive,
    MergedSource,
    StorageFlushed,
    WireAttributeUpdate,
    WireChunkInfo,
    WireTableEntry,
    WireTableKey,
)
from tests.support.repository import DATA

GOLDEN = DATA / "wire" / "commands.hex"
SAMPLES: dict[str, Any] = {
    "i8": -2,
    "bool": True,
    "i32": -0x01020304,
    "i64": 0x0102030405060708,
    "uuid": bytes(range(16)),
    "str": "é/\0😀",
    "bytes": b"\x01\x02\x03",
    "raw": b"\x04\x05",
    "event": b"\x06",
    "keys": (WireTableKey(b"k", 7), WireTableKey(b"kk")),
    "entries": (WireTableEntry(WireTableKey(b"k", -1), b"v"), WireTableEntry(WireTableKey(b"kk", 9), b"")),
    "versions": (1, -1),
    "strings": ("a", ""),
    "merged": (MergedSource("s", 5),),
    "frames": (codec.encode(KeepAlive()), codec.encode(StorageFlushed(7))),
    "flags": 3,
    "chunks": (WireChunkInfo(1, 2, 3, "c", False),),
    "updates": (WireAttributeUpdate(bytes(16), 4, 1, -(2**63)),),
}


def sample(made: type[Command]) -> Command:
    return made(*(SAMPLES[kind.name] for _, kind in made.layout))


def golden_lines() -> list[str]:
    return [f"{made.__name__} {codec.encode(sample(made)).hex()}" for _, made in sorted(COMMANDS.items())]


def test_no_command_changed() -> None:
    assert golden_lines() == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("line", GOLDEN.read_text().splitlines(), ids=lambda line: line.split()[0])
def test_the_pinned_frame_decodes(line: str) -> None:
    name, frame_hex = line.split()
    frame = bytes.fromhex(frame_hex)
    command = codec.decode(int.from_bytes(frame[:4], "big", signed=True), memoryview(frame)[8:])
    assert type(command).__name__ == name
    assert command == sample(type(command))


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(golden_lines()) + "\n")
