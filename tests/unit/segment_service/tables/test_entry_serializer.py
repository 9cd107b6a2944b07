"""The bytes of a table segment's records do not change by accident, and what is no record is refused."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.model.table_limits import key_bytes_max, value_bytes_max
from segment_service.tables.entry_serializer import (
    TableRecord,
    parse_records,
    record_header_bytes,
    serialize_put,
    serialize_removal,
)

PUT = "00000000030000000480000000000000006b657976616c75"
COPIED = "00000000030000000400000000000000096b657976616c75"
REMOVAL = "0000000003ffffffff80000000000000006b6579"


def test_golden_bytes() -> None:
    assert serialize_put(b"key", b"valu").hex() == PUT
    assert serialize_put(b"key", b"valu", 9).hex() == COPIED
    assert serialize_removal(b"key").hex() == REMOVAL


def test_golden_bytes_are_read_back() -> None:
    data = bytes.fromhex(PUT + COPIED + REMOVAL)
    length = len(PUT) // 2
    assert list(parse_records(data, 100)) == [
        TableRecord(100, b"key", memoryview(b"valu"), 100),
        TableRecord(100 + length, b"key", memoryview(b"valu"), 9),
        TableRecord(100 + 2 * length, b"key", None, 100 + 2 * length),
    ]


@pytest.mark.parametrize("length", range(len(PUT) // 2))
def test_a_record_that_is_cut_is_left_out(length: int) -> None:
    whole = bytes.fromhex(PUT)
    assert list(parse_records(whole[:length], 0)) == []
    assert len(list(parse_records(whole + whole[:length], 0))) == 1


@pytest.mark.parametrize(
    ("at", "size", "value"),
    [
        (0, 1, 1),
        (1, 4, 0),
        (1, 4, -1),
        (1, 4, key_bytes_max + 1),
        (5, 4, -2),
        (5, 4, value_bytes_max + 1),
    ],
)
def test_what_is_no_record_is_refused(at: int, size: int, value: int) -> None:
    """The bytes have their checksums in the store: one that fails never comes here."""
    data = bytearray(bytes.fromhex(PUT))
    data[at : at + size] = value.to_bytes(size, signed=True)
    with pytest.raises(DataCorruption, match="no table record at offset 50"):
        list(parse_records(data, 50))


def test_every_field_is_told_apart() -> None:
    """A flipped bit gives another record, an unfinished one or an error, and never the same."""
    whole = bytes.fromhex(PUT)
    (sound,) = parse_records(whole, 100)
    assert sound.version == 100
    for position in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            try:
                found = list(parse_records(data, 100))
            except DataCorruption:
                assert position < record_header_bytes
                continue
            assert found != [sound]
