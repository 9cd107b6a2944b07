"""The bytes of an attribute index in Tier 2: they stay as long as segments do."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from segment_service.attribute_index.entries import decode_value, encode_value
from segment_service.contracts.table_maps import attribute_map_name, segment_of_attribute_map, segment_of_table_map

GOLDEN = bytes.fromhex("01 0000000000000107")
NEGATIVE = bytes.fromhex("01 8000000000000001")


def test_golden_bytes() -> None:
    assert encode_value(0x107) == GOLDEN
    assert encode_value(-(1 << 63) + 1) == NEGATIVE
    assert decode_value(GOLDEN, "s") == 0x107
    assert decode_value(NEGATIVE, "s") == -(1 << 63) + 1


@pytest.mark.parametrize("data", [b"", GOLDEN[:-1], GOLDEN + b"x", b"\x01"])
def test_damaged_bytes(data: bytes) -> None:
    with pytest.raises(DataCorruption, match="some-segment"):
        decode_value(data, "some-segment")


def test_a_later_version_is_refused_by_its_number() -> None:
    with pytest.raises(DataCorruption, match="version 2; this program reads 1: if a newer program wrote it, run that"):
        decode_value(b"\x02" + GOLDEN[1:], "s")


def test_names_of_maps() -> None:
    assert attribute_map_name(0xABC) == "attributes-0000000000000abc"
    assert segment_of_attribute_map(attribute_map_name(0xABC)) == 0xABC
    assert segment_of_table_map(attribute_map_name(0xABC)) is None
    assert segment_of_attribute_map("attributes-") is None
