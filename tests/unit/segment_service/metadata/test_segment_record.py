"""The record of one segment: golden bytes, and what is refused."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2, NULL_ATTRIBUTE_VALUE, AttributeId
from segment_service.metadata.segment_record import read_record, write_record
from tests.unit.segment_service.metadata.samples import sample_metadata

GOLDEN = (
    "01"
    "0000000000000004100000000200000000000000000000000500000001000000000000018bcfe568000000000000000000000e00000001"
    "73636f70652f737472c3b86d2f30000102030405060708090a0b0c0d0e0fffffffffffffffff"
    "00000002"
    "883e609a05d85c187a019cad93c1223700000000000000090000018bcfe56801"
    "d4b1b0202b21bb84e60a3d272ecab0db000000000000000b0000018bcfe56802"
)


def test_golden_bytes() -> None:
    segment = sample_metadata().segments[4]
    segment.in_table = True
    assert write_record(segment).hex() == GOLDEN
    found = read_record(bytes.fromhex(GOLDEN))
    assert found == segment
    assert found.in_table


def test_bytes_of_another_length_or_version_are_corrupt() -> None:
    record = bytes.fromhex(GOLDEN)
    for length in range(len(record)):
        with pytest.raises(DataCorruption):
            read_record(record[:length])
    with pytest.raises(DataCorruption):
        read_record(record + b"\0")
    with pytest.raises(DataCorruption, match=r"version 3.*run that one"):
        read_record(b"\3" + record[1:])


WITH_INDEX = (
    "02"
    "0000000000000004000000000200000000000000000000000500000001000000000000018bcfe568000000000000000000000e00000003"
    "73636f70652f737472c3b86d2f30"
    "000102030405060708090a0b0c0d0e0fffffffffffffffff"
    "80000000000000000000000000200005000000000000004d"
    "6162736563742d2d2d2d7772697465728000000000000000"
    "00000000"
)


def test_golden_bytes_of_a_segment_with_an_attribute_index() -> None:
    """Some of its writers are in the index only: a program that knows none must not take it for the whole."""
    segment = sample_metadata().segments[4]
    segment.merges = None
    segment.attributes[ATTRIBUTES_IN_TIER2] = 77
    segment.attributes[AttributeId(b"absect----writer")] = NULL_ATTRIBUTE_VALUE
    assert write_record(segment).hex() == WITH_INDEX
    found = read_record(bytes.fromhex(WITH_INDEX))
    assert found == segment
    assert found.index_high_water == 77
