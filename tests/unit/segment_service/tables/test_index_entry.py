"""The bytes of the entries of an index in Tier 2: they stay as long as tables do."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from segment_service.tables.index_entry import (
    Totals,
    decode_entry,
    decode_totals,
    encode_entry,
    encode_totals,
    entry_bytes,
    entry_key,
    value_stored_bytes_max,
)
from segment_service.tables.key_index import Slot

ENTRY = bytes.fromhex("01 0000000000000007 0000000000000109 00000002 0003 01") + b"keyab"
WITHOUT_VALUE = bytes.fromhex("01 0000000000000007 0000000000000109 00000401 0003 00") + b"key"
TOTALS = bytes.fromhex("01 0000000000001000 0000000000000005 0000000000000800")


def test_golden_bytes() -> None:
    assert encode_entry(b"key", Slot(7, 0x109, 2, b"ab")) == ENTRY
    assert encode_entry(b"key", Slot(7, 0x109, value_stored_bytes_max + 1, b"v" * 1025)) == WITHOUT_VALUE
    assert encode_totals(Totals(0x1000, 5, 0x800)) == TOTALS
    assert entry_key(b"\x00\xff") == b"e\x00\xff"


def test_what_was_written_is_read() -> None:
    key, slot = decode_entry(ENTRY, "table")
    assert (key, slot.version, slot.offset, slot.value_length, slot.value) == (b"key", 7, 0x109, 2, b"ab")
    key, slot = decode_entry(WITHOUT_VALUE, "table")
    assert (key, slot.value_length, slot.value) == (b"key", 1025, None)
    assert decode_totals(TOTALS, "table") == Totals(0x1000, 5, 0x800)


@pytest.mark.parametrize("data", [b"", ENTRY[:-1], ENTRY + b"x", b"\x02" + ENTRY[1:], WITHOUT_VALUE[:-1], ENTRY[:5]])
def test_a_damaged_entry_is_data_corruption(data: bytes) -> None:
    with pytest.raises(DataCorruption, match="table: its index in Tier 2"):
        decode_entry(data, "table")


@pytest.mark.parametrize("data", [b"", TOTALS[:-1], TOTALS + b"x", b"\x02" + TOTALS[1:]])
def test_damaged_totals_are_data_corruption(data: bytes) -> None:
    with pytest.raises(DataCorruption, match="table: its index in Tier 2"):
        decode_totals(data, "table")


def test_the_bytes_of_an_entry_are_not_counted_too_low() -> None:
    for slot in (Slot(7, 9, 2, b"ab"), Slot(7, 9, 5_000, None)):
        assert entry_bytes(b"key", slot) >= len(encode_entry(b"key", slot)) + 32
