from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
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


COUNTERS = "0000000000000009000000000000004d0000000000000008"
GOLDEN = "0200000002101112131415161718191a1b1c1d1e1f" + COUNTERS + SEGMENTS
WITHOUT_IDENTITY = "0100000002" + COUNTERS + SEGMENTS
"""As written by programs before version 2."""


def test_golden_bytes() -> None:
    metadata = sample_metadata()
    assert write_snapshot(metadata, metadata.segments.values()).hex() == GOLDEN


def test_golden_bytes_are_read_back() -> None:
    assert read_snapshot(bytes.fromhex(GOLDEN)) == sample_metadata()


def test_version_1_has_no_identity() -> None:
    metadata = sample_metadata()
    metadata.identity = unknown_identity
    assert read_snapshot(bytes.fromhex(WITHOUT_IDENTITY)) == metadata


def test_a_snapshot_of_another_length_or_version_is_corrupt() -> None:
    snapshot = bytes.fromhex(GOLDEN)
    for wrong in (snapshot[:-1], snapshot + b"\0", snapshot[:20], b"", b"\1" + snapshot[1:], b"\3" + snapshot[1:]):
        with pytest.raises(DataCorruption):
            read_snapshot(wrong)
