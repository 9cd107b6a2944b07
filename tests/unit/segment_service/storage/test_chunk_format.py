"""Chunks: their bytes never change, and no damaged byte of one goes unseen."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from pravega_common.invariants import InvariantViolation
from segment_service.storage import chunk_format
from segment_service.storage.chunk_format import (
    BlockRange,
    WrongBlock,
    block_bytes,
    check_blocks,
    cut,
    stored_length,
    unfilled,
    whole_checksum,
)

GOLDEN = Path(__file__).parent / "golden"
NAME = "c00003/d/000000000000002a/0000000000000007-0000000000000009"


async def encoded(data: bytes, name: str = NAME) -> bytes:
    return b"".join((await cut([data])).named(name))


async def test_bytes_of_a_small_chunk() -> None:
    stored = await encoded(b"0123456789")
    assert stored == bytes.fromhex((GOLDEN / "chunk_small.hex").read_text())
    assert (await cut([b"0123456789"])).checksum == 0x9896B477


async def test_bytes_of_a_chunk_of_three_blocks() -> None:
    data = random.Random(5).randbytes(2 * block_bytes + 100)
    stored = await encoded(data)
    assert len(stored) == len(data) + 12 == stored_length(len(data))
    assert stored[:block_bytes] == data[:block_bytes]
    assert stored[block_bytes + 4 : 2 * block_bytes + 4] == data[block_bytes : 2 * block_bytes]
    assert hashlib.sha256(stored).hexdigest() == (GOLDEN / "chunk_three_blocks.sha256").read_text().strip()


async def test_nothing_is_copied_and_the_cut_of_the_buffers_does_not_matter() -> None:
    rng = random.Random(6)
    data = rng.randbytes(3 * block_bytes + 5)
    cuts = sorted(rng.randrange(len(data)) for _ in range(20))
    views = [memoryview(data)[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    pieces = await cut([*views, b"", bytearray()])
    assert all(piece.obj is data for block in pieces.blocks for piece in block)
    assert b"".join(pieces.named(NAME)) == await encoded(data)


@pytest.mark.parametrize("length", [0, 1, block_bytes - 1, block_bytes, block_bytes + 1, 2 * block_bytes])
async def test_every_length_comes_back(length: int) -> None:
    data = random.Random(length).randbytes(length)
    stored = await encoded(data)
    assert len(stored) == stored_length(length)
    target = unfilled(length)
    found = check_blocks(NAME, 0, 0, target, stored)
    assert not isinstance(found, WrongBlock)
    assert bytes(target) == data
    assert whole_checksum(found) == (await cut([data])).checksum


@pytest.mark.parametrize("skipped", [0, 1, block_bytes - 1])
@pytest.mark.parametrize("length", [0, 1, block_bytes, block_bytes + 1, 2 * block_bytes + 1])
async def test_the_stretch_that_is_wanted_comes_back(skipped: int, length: int) -> None:
    data = random.Random(length).randbytes(3 * block_bytes)
    around = bytearray(b"-" * (length + 2))
    checksums = check_blocks(NAME, 0, skipped, memoryview(around)[1:-1], await encoded(data))
    assert checksums == (await cut([data])).checksums
    assert around == b"-" + data[skipped : skipped + length] + b"-"


async def test_blocks_that_are_short_of_what_is_wanted_are_refused() -> None:
    with pytest.raises(InvariantViolation, match="blocks of a chunk are short"):
        check_blocks(NAME, 0, 5, unfilled(6), await encoded(b"0123456789"))


async def test_no_flipped_bit_goes_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit of a chunk with small blocks, checksums and the short last block among them."""
    monkeypatch.setattr(chunk_format, "block_bytes", 16)
    monkeypatch.setattr(chunk_format, "stored_block_bytes", 20)
    stored = await encoded(random.Random(7).randbytes(70))
    assert len(stored) == 90
    for bit in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        found = check_blocks(NAME, 0, 0, unfilled(70), bytes(damaged))
        assert isinstance(found, WrongBlock)
        assert found.number == bit // 160


async def test_every_block_of_a_long_chunk_is_good_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_format, "block_bytes", 16)
    monkeypatch.setattr(chunk_format, "stored_block_bytes", 20)
    data = random.Random(9).randbytes(16 * 1_000 + 3)
    found = check_blocks(NAME, 0, 0, unfilled(len(data)), await encoded(data))
    assert found == (await cut([data])).checksums


async def test_blocks_and_objects_that_were_exchanged_are_noticed() -> None:
    data = random.Random(8).randbytes(2 * block_bytes)
    stored = await encoded(data)
    half = len(stored) // 2
    target = unfilled(block_bytes)
    assert isinstance(check_blocks(NAME, 0, 0, target, stored[half:] + stored[:half]), WrongBlock)
    assert isinstance(check_blocks(NAME, 1, 0, target, stored[:half]), WrongBlock)
    assert isinstance(check_blocks(NAME[:-1] + "8", 0, 0, target, stored), WrongBlock)


def test_a_range_takes_whole_blocks() -> None:
    assert BlockRange.around(0, 1, 10) == BlockRange(0, 1, 0, 14)
    assert BlockRange.around(block_bytes - 1, 2, 10**6) == BlockRange(0, 2, 0, 2 * block_bytes + 8)
    last = 10**6 // block_bytes
    begin = last * (block_bytes + 4)
    assert BlockRange.around(10**6 - 1, 1, 10**6) == BlockRange(last, last + 1, begin, stored_length(10**6) - begin)
