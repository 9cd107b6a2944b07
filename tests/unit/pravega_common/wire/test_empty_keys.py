"""Reads table keys without bytes as Java and Rust write them (docs/wire-protocol.md 1.5), anywhere in a frame."""

from __future__ import annotations

import pytest

from pravega_common.wire import codec
from pravega_common.wire.commands import (
    NO_VERSION,
    Command,
    ReadTable,
    RemoveTableKeys,
    TableRead,
    UpdateTableEntries,
    WireTableEntry,
    WireTableKey,
)
from pravega_common.wire.errors import TooManyItems, WireDecodeError

EMPTY, FULL = WireTableKey(b"", NO_VERSION), WireTableKey(b"k", 7)
REQUEST = "0000000000000001 0001 74 0000"
JAVA_EMPTY = "0000000c 00000000"
RUST_EMPTY = JAVA_EMPTY + "8000000000000000"
ONE_KEY = "0000000d 00000001 6b 0000000000000007"


def decoded(made: type[Command], payload: str) -> Command:
    return codec.decode(made.type_code, memoryview(bytes.fromhex(payload)))


@pytest.mark.parametrize(
    "command",
    [
        ReadTable(1, "t", "", (EMPTY,)),
        ReadTable(1, "t", "", (FULL, EMPTY)),
        ReadTable(1, "t", "", (EMPTY, FULL, EMPTY)),
        RemoveTableKeys(1, "t", "", (FULL, EMPTY), -1),
        RemoveTableKeys(1, "t", "", (EMPTY,), 4),
        UpdateTableEntries(1, "t", "", (WireTableEntry(EMPTY, b""),), -1),
        UpdateTableEntries(1, "t", "", (WireTableEntry(EMPTY, b"value"), WireTableEntry(FULL, b"v")), 12),
        TableRead(1, "t", (WireTableEntry(EMPTY, b""),)),
    ],
    ids=repr,
)
def test_what_our_writer_makes_our_reader_reads(command: Command) -> None:
    frame = codec.encode(command)
    assert codec.decode(command.type_code, memoryview(frame)[8:]) == command


@pytest.mark.parametrize("empty", [JAVA_EMPTY, RUST_EMPTY], ids=["java", "rust"])
def test_both_forms_are_read(empty: str) -> None:
    assert decoded(ReadTable, f"{REQUEST} 00000001 {empty}") == ReadTable(1, "t", "", (EMPTY,))
    both = f"{REQUEST} 00000002 {empty} {ONE_KEY}"
    assert decoded(ReadTable, both) == ReadTable(1, "t", "", (EMPTY, FULL))
    removal = f"{REQUEST} 00000002 {ONE_KEY} {empty} ffffffffffffffff"
    assert decoded(RemoveTableKeys, removal) == RemoveTableKeys(1, "t", "", (FULL, EMPTY), -1)


def test_a_key_that_is_cut_off_is_refused() -> None:
    with pytest.raises(WireDecodeError):
        decoded(ReadTable, f"{REQUEST} 00000001 0000000d 00000001 6b 00000000")


def test_a_list_above_the_limit_is_refused_by_its_count() -> None:
    payload = memoryview(codec.encode(ReadTable(5, "scope/table", "", (EMPTY,) * 11)))[8:]
    with pytest.raises(TooManyItems, match="11 items in one request; the limit is 10") as refused:
        codec.decode(ReadTable.type_code, payload, 10)
    assert (refused.value.request_id, refused.value.segment) == (5, "scope/table")
    assert codec.decode(ReadTable.type_code, payload, 11) == codec.decode(ReadTable.type_code, payload)
