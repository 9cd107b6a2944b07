"""Manifests: their bytes never change, and no damaged byte goes unseen."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.storage.chunk_format import ChunkForm
from segment_service.storage.chunk_names import ChunkId, Layout, ManifestId, ManifestKind, ManifestName
from segment_service.storage.manifest import ChunkRef, Manifest, decode, encode

GOLDEN = Path(__file__).parent / "golden"

BASE = Manifest(
    segment_id=42,
    id=ManifestId(3, 17),
    base=ManifestId(3, 17),
    start_offset=1_000,
    first_offset=900,
    is_sealed=False,
    is_deleted=False,
    merged_into=0,
    kept_from=0,
    kept_to=0,
    chunks=(
        ChunkRef(42, 1, 5, 4 << 20, ChunkForm.BLOCKS, 0xDEADBEEF),
        ChunkRef(7, 2, 1, 1 << 40, ChunkForm.RAW, 0),
    ),
)
DELTA = replace(
    BASE,
    id=ManifestId(3, 18),
    is_sealed=True,
    kept_from=1,
    kept_to=2,
    first_offset=900,
    chunks=(ChunkRef(42, 3, 9, 1, ChunkForm.BLOCKS, 1),),
)
TOMBSTONE = replace(BASE, is_deleted=True, merged_into=99, chunks=(), start_offset=0, first_offset=0)
ALL = {"base": BASE, "delta": DELTA, "tombstone": TOMBSTONE}


def golden(name: str, version: int) -> bytes:
    return bytes.fromhex((GOLDEN / f"manifest_{name}_v{version}.hex").read_text())


@pytest.mark.parametrize("name", ALL)
def test_bytes_are_those_of_version_2(name: str) -> None:
    assert encode(ALL[name]) == golden(name, 2)
    assert decode(golden(name, 2), name) == ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_version_1_is_read_and_its_chunks_are_raw(name: str) -> None:
    chunks = tuple(chunk._replace(form=ChunkForm.RAW, checksum=0) for chunk in ALL[name].chunks)
    assert decode(golden(name, 1), name) == replace(ALL[name], chunks=chunks)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ALL)
def test_no_wrong_bit_goes_unseen(name: str, version: int) -> None:
    data = golden(name, version)
    for bit in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DataCorruption, match="c/m/1"):
            decode(bytes(damaged), "c/m/1")


@pytest.mark.parametrize("length", [0, 3, 50, 103])
def test_no_cut_goes_unseen(length: int) -> None:
    with pytest.raises(DataCorruption):
        decode(encode(BASE)[:length], "cut")


def test_a_later_version_is_named() -> None:
    data = bytearray(encode(BASE))
    data[5] = 3
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "big")
    with pytest.raises(DataCorruption, match="version 3, this software reads 1 and 2"):
        decode(bytes(data), "later")


def test_a_later_form_of_chunks_is_named() -> None:
    data = bytearray(encode(BASE))
    form_at = 84 + 32
    assert data[form_at - 32 : form_at + 4] == struct.pack(">QQQQI", 42, 1, 5, 4 << 20, 1)
    data[form_at + 3] = 2
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "big")
    with pytest.raises(DataCorruption, match="a chunk of form 2, this software reads up to 1"):
        decode(bytes(data), "later")


def test_random_manifests_come_back() -> None:
    rng = random.Random(1)

    def many_bits() -> tuple[int, int]:
        return rng.getrandbits(63), rng.getrandbits(63)

    for _ in range(200):
        chunks = tuple(
            ChunkRef(*many_bits(), *many_bits(), ChunkForm(rng.randrange(2)), rng.getrandbits(32))
            for _ in range(rng.randrange(20))
        )
        manifest = replace(BASE, id=ManifestId(rng.getrandbits(63), rng.getrandbits(63)), kept_to=9, chunks=chunks)
        assert decode(encode(manifest), "random") == manifest


def test_names_sort_as_their_numbers_and_come_back() -> None:
    layout = Layout(3)
    ids = [ManifestId(epoch, sequence) for epoch in (1, 2, 15, 16, 300) for sequence in (1, 9, 10, 255, 70_000)]
    names = [layout.manifest(ManifestName(42, one, ManifestKind.DELTA_FOREIGN)) for one in ids]
    assert names == sorted(names)
    assert [layout.parse_manifest(name).id for name in names] == ids
    assert layout.parse_manifest(names[0]) == ManifestName(42, ids[0], ManifestKind.DELTA_FOREIGN)
    chunk = ChunkId(7, 255, 16)
    assert layout.chunk(chunk) == "c00003/d/0000000000000007/00000000000000ff-0000000000000010"
    assert layout.parse_chunk(layout.chunk(chunk)) == chunk
    assert [layout.epoch_in(name) for name in (layout.chunk(chunk), names[-1], layout.epoch(8, 1))] == [255, 300, 8]


@pytest.mark.parametrize(
    "name",
    [
        "c00004/m/000000000000002a/0000000000000001-0000000000000001-b",
        "c00003/m/2a/1-1-b",
        "c00003/m/000000000000002a/0000000000000001-0000000000000001-z",
        "c00003/m/000000000000002a/000000000000000x-0000000000000001-b",
        "c00003/m/stranger",
    ],
)
def test_strange_names_are_refused(name: str) -> None:
    with pytest.raises(DataCorruption):
        Layout(3).parse_manifest(name)
