from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from segment_service.contracts.attributes import ATTRIBUTES_IN_TIER2
from segment_service.contracts.log_identity import unknown_identity
from segment_service.metadata.snapshot import read_snapshot, write_snapshot
from tests.unit.segment_service.metadata.samples import sample_metadata

SEGMENTS = (
    "00000004"
    "0000000000000004000000000200000000000000000000000500000001000000000000018bcfe568000000000000000000000e00000001"
    "73636f70652f737472c3b86d2f30000102030405060708090a0b0c0d0e0fffffffffffffffff"
    "00000000000000050300000000000000030000000000000000000000000000000300000000000000000000000000000000000100000000"
    "62"
    "00000000000000060500000000000000020000000000000000000000000000000000000000000000000000000000000004000100000000"
    "74"
    "00000000000000070800000000000000000000000000000000000000000000000000000000000000000000000000000000000100000000"
    "64"
)
MERGES = (
    "00000002"
    "0000000000000004883e609a05d85c187a019cad93c1223700000000000000090000018bcfe56801"
    "0000000000000004d4b1b0202b21bb84e60a3d272ecab0db000000000000000b0000018bcfe56802"
)
COUNTERS = "0000000000000009000000000000004d0000000000000008"
GONE = "000000010000000000000003000167"
GOLDEN = "0300000002101112131415161718191a1b1c1d1e1f" + COUNTERS + "000000000000004c" + SEGMENTS + MERGES + GONE
VERSION_2 = "0200000002101112131415161718191a1b1c1d1e1f" + COUNTERS + SEGMENTS + MERGES
VERSION_1 = "0100000002" + COUNTERS + SEGMENTS
"""As commit 40bcc49 wrote it."""


def test_golden_bytes() -> None:
    metadata = sample_metadata()
    assert write_snapshot(metadata, metadata.segments.values()).hex() == GOLDEN


def test_golden_bytes_are_read_back() -> None:
    found = read_snapshot(bytes.fromhex(GOLDEN))
    assert found == sample_metadata()
    assert found.table_high_water == 76
    assert list(found.changes.gone()) == [(3, "g")]


def test_a_segment_with_an_attribute_index_has_a_version_of_its_own() -> None:
    """Some of its writers are in the index only: a program that knows none must not take it for the whole."""
    metadata = sample_metadata()
    metadata.segments[4].attributes[ATTRIBUTES_IN_TIER2] = 0x4D
    written = write_snapshot(metadata, metadata.segments.values()).hex()
    attribute = "80000000000000000000000000200005000000000000004d"
    first = "000102030405060708090a0b0c0d0e0fffffffffffffffff"
    golden = GOLDEN.replace("0e00000001" + "7363", "0e00000002" + "7363").replace(first, first + attribute)
    assert written == "04" + golden[2:]
    found = read_snapshot(bytes.fromhex(written))
    assert found == metadata
    assert found.segments[4].index_high_water == 0x4D


def test_version_2_knows_no_metadata_table() -> None:
    found = read_snapshot(bytes.fromhex(VERSION_2))
    assert found == sample_metadata()
    assert found.table_high_water == 0
    assert list(found.changes.gone()) == []


def test_a_segment_that_is_gone_and_may_be_in_the_table_is_remembered() -> None:
    metadata = sample_metadata()
    metadata.segments[6].in_table = metadata.segments[7].in_table = True
    found = read_snapshot(write_snapshot(metadata, metadata.segments.values()))
    assert sorted(found.changes.gone()) == [(3, "g"), (6, "t"), (7, "d")]


def test_version_1_has_no_identity_and_no_merges() -> None:
    metadata = sample_metadata()
    metadata.identity = unknown_identity
    metadata.segments[4].merges = None
    assert read_snapshot(bytes.fromhex(VERSION_1)) == metadata


def test_a_merge_into_an_unknown_segment_is_corrupt() -> None:
    snapshot = bytearray.fromhex(GOLDEN)
    snapshot[-40 - len(GONE) // 2 + 7] = 99
    with pytest.raises(DataCorruption, match="segment 99"):
        read_snapshot(bytes(snapshot))


def test_a_snapshot_of_another_length_or_version_is_corrupt() -> None:
    snapshot = bytes.fromhex(GOLDEN)
    of_other_versions = [bytes([version]) + snapshot[1:] for version in (0, 1, 2, 5)]
    for wrong in (snapshot[:-1], snapshot + b"\0", snapshot[:20], b"", snapshot[:-45], *of_other_versions):
        with pytest.raises(DataCorruption):
            read_snapshot(wrong)
