"""Golden bytes of plog files and of the log's state, and damaged ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress
from segment_service.file_log.files import Files
from segment_service.file_log.layout import (
    PlogFileHeader,
    decode_header,
    decode_mark,
    encode_header,
    encode_mark,
    header_bytes,
)
from segment_service.file_log.log_state import (
    FileLogState,
    StateFile,
    decode_state,
    encode_state,
    file_name,
    slot_bytes,
)

HEADER = PlogFileHeader(3, 5, bytes(range(16)), bytes(range(16, 32)), 9, 1_000, LogAddress(4, 4_200), 8_192)
GOLDEN_HEADER = bytes.fromhex(
    "504c4748"  # magic
    "01000000"  # version, reserved
    "0000000300000005"  # container, number
    "000102030405060708090a0b0c0d0e0f"  # identity
    "101112131415161718191a1b1c1d1e1f"  # salt
    "0000000000000009"  # epoch
    "00000000000003e8"  # first sequence
    "0000000400001068"  # previous address
    "00002000"  # previous end
    "000000000000000000000000"  # reserved
    "fd97e03d"  # CRC32C of all before
)
STATE = FileLogState(3, bytes(range(16)), 7, 9, 1_234, 5, LogAddress(4, 4_200))
GOLDEN_STATE = bytes.fromhex(
    "504c4753"  # magic
    "01000000"  # version, reserved
    "00000003"  # container
    "0000000000000007"  # turn
    "000102030405060708090a0b0c0d0e0f"  # identity
    "0000000000000009"  # epoch
    "00000000000004d2"  # acked
    "00000005"  # last number
    "0000000400001068"  # truncated at
    "00000000"  # reserved
    "478514ed"  # CRC32C of all before
)
GOLDEN_MARK = bytes.fromhex("00000042df99d938")


def test_golden_bytes() -> None:
    assert encode_header(HEADER) == GOLDEN_HEADER.ljust(header_bytes, b"\0")
    assert decode_header(GOLDEN_HEADER, "here") == HEADER
    assert encode_state(STATE) == GOLDEN_STATE.ljust(slot_bytes, b"\0")
    assert decode_state(GOLDEN_STATE, "here") == STATE
    assert encode_mark(HEADER.salt, 4_096, 66) == GOLDEN_MARK
    assert decode_mark(GOLDEN_MARK, 0, HEADER.salt, 4_096) == 66


def test_nothing_is_also_kept() -> None:
    first = replace(HEADER, previous=None, first_sequence=0)
    assert decode_header(encode_header(first), "here") == first
    new = FileLogState(1, bytes(16))
    assert decode_state(encode_state(new), "here") == new


@pytest.mark.parametrize("at", range(len(GOLDEN_HEADER)))
def test_every_damaged_byte_of_a_header_is_noticed(at: int) -> None:
    damaged = bytearray(GOLDEN_HEADER)
    damaged[at] ^= 0x10
    with pytest.raises(DataCorruption, match="here"):
        decode_header(damaged, "here")


@pytest.mark.parametrize("at", [at for at in range(len(GOLDEN_STATE)) if at != 4])
def test_every_damaged_byte_of_a_slot_is_noticed(at: int) -> None:
    damaged = bytearray(GOLDEN_STATE)
    damaged[at] ^= 0x10
    assert decode_state(damaged, "here") is None


@pytest.mark.parametrize("length", [0, 10, len(GOLDEN_HEADER) - 1])
def test_what_is_cut_is_noticed(length: int) -> None:
    with pytest.raises(DataCorruption, match="too few"):
        decode_header(GOLDEN_HEADER[:length], "here")
    assert decode_state(GOLDEN_STATE[: min(length, len(GOLDEN_STATE) - 1)], "here") is None


def test_later_formats_are_refused_by_number() -> None:
    for golden, decode in ((GOLDEN_HEADER, decode_header), (GOLDEN_STATE, decode_state)):
        later = bytearray(golden)
        later[4] = 2
        with pytest.raises(DataCorruption, match="format 2 is not known here; format 1 is"):
            decode(later, "here")


def test_a_mark_counts_at_its_place_in_its_file_only() -> None:
    assert decode_mark(GOLDEN_MARK, 0, HEADER.salt, 4_097) is None
    assert decode_mark(GOLDEN_MARK, 0, HEADER.identity, 4_096) is None
    assert decode_mark(bytes(8), 0, HEADER.salt, 4_096) is None
    assert decode_mark(GOLDEN_MARK, 1, HEADER.salt, 4_096) is None


def test_the_slots_are_written_in_turn_and_the_later_one_counts(tmp_path: Path) -> None:
    file = StateFile(tmp_path, Files())
    assert file.read() is None
    state = FileLogState(1, bytes(16))
    file.create(state)
    for epoch in range(1, 5):
        state = file.write(replace(state, epoch=epoch))
        assert file.read() == state
    path = tmp_path / file_name
    content = bytearray(path.read_bytes())
    content[20] ^= 1  # the slot of turn 4
    path.write_bytes(content)
    found = file.read()
    assert found is not None
    assert (found.turn, found.epoch) == (3, 3)
    content[slot_bytes + 20] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataCorruption, match="neither of its slots is whole"):
        file.read()
