"""The frame envelope: golden bytes, and every damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.errors import DataCorruption
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.checksums import checksum_of
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.entry import (
    PlogEntryHeader,
    PlogEntryKind,
    append_bytes_max,
    decode_entry,
    encode_entry,
    encode_envelope,
    envelope_bytes,
)

GOLDEN_HEADER = PlogEntryHeader(PlogEntryKind.DATA, 7, 1_000, 998, LogAddress(3, 4_096))
GOLDEN_PAYLOAD = b"hello plog"
GOLDEN = bytes.fromhex(
    "504c4746"  # magic
    "01010000"  # version, kind, reserved
    "0000000000000007"  # epoch
    "00000000000003e8"  # sequence
    "00000000000003e6"  # acked
    "0000000300001000"  # previous address
    "0000000000000000"  # reserved
    "0000000a"  # payload bytes
    "28c917a7"  # CRC32C of all other bytes
    "68656c6c6f20706c6f67"
)


def test_golden_bytes() -> None:
    assert encode_entry(GOLDEN_HEADER, GOLDEN_PAYLOAD) == GOLDEN
    frame = decode_entry(GOLDEN, "here")
    assert (frame.header, bytes(frame.payload)) == (GOLDEN_HEADER, GOLDEN_PAYLOAD)


@given(
    st.sampled_from(PlogEntryKind),
    st.integers(0, 2**63),
    st.integers(0, 2**63),
    st.none() | st.builds(LogAddress, st.integers(0, 2**32 - 2), st.integers(0, 2**32 - 2)),
    st.lists(st.binary(max_size=40), max_size=4),
)
def test_round_trip(
    kind: PlogEntryKind, epoch: int, sequence: int, previous: LogAddress | None, parts: list[bytes]
) -> None:
    header = PlogEntryHeader(kind, epoch, sequence, sequence // 2, previous)
    payload = b"".join(parts)
    data = encode_envelope(header, len(payload), checksum_of(parts)) + payload
    assert len(data) == envelope_bytes + len(payload)
    frame = decode_entry(memoryview(data), "here")
    assert (frame.header, bytes(frame.payload)) == (header, payload)


@pytest.mark.parametrize("position", range(len(GOLDEN)))
def test_any_flipped_bit_is_noticed(position: int) -> None:
    for bit in range(8):
        damaged = bytearray(GOLDEN)
        damaged[position] ^= 1 << bit
        with pytest.raises(DataCorruption, match="here"):
            decode_entry(damaged, "here")


@pytest.mark.parametrize("length", range(len(GOLDEN)))
def test_any_truncation_is_noticed(length: int) -> None:
    with pytest.raises(DataCorruption, match="here"):
        decode_entry(GOLDEN[:length], "here")


def test_bytes_after_the_end_are_noticed() -> None:
    with pytest.raises(DataCorruption, match="10 payload bytes holds 11"):
        decode_entry(GOLDEN + b"x", "here")


def test_a_future_version_is_named() -> None:
    future = GOLDEN[:4] + b"\x02" + GOLDEN[5:]
    with pytest.raises(DataCorruption, match="entry format 2 is not known here; format 1 is"):
        decode_entry(future, "here")


def test_a_frame_above_the_append_limit_is_refused() -> None:
    payload = bytes(append_bytes_max - envelope_bytes + 1)
    with pytest.raises(InvariantViolation, match="plog entry too large"):
        encode_entry(GOLDEN_HEADER, payload)
