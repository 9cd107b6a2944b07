"""Runs and manifests of sorted maps: their bytes never change, and no damaged byte goes unseen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.runtime.clock import SystemClock
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.contracts.segment_storage import LogState
from segment_service.sorted_runs import run_writer
from segment_service.sorted_runs.key_filter import add_keys, empty_filter, may_contain
from segment_service.sorted_runs.map_manifest import MapManifest, Run, RunFile, decode, encode
from segment_service.sorted_runs.run_format import block_body, decode_block, decode_tail
from segment_service.storage.chunk_names import Layout, ManifestId, MapObjectId

GOLDEN = Path(__file__).parent / "golden"

MANIFEST = MapManifest(
    ManifestId(3, 17),
    LogState(bytes(range(16)), 1 << 40, 99),
    (
        Run((RunFile(3, 16, 900, 800, 5, 1, b"a", b"f"), RunFile(3, 15, 70, 60, 1, 0, b"g", b"g" * 300))),
        Run((RunFile(1, 2, 1 << 20, 1 << 19, 4_000, 0, b"", b"\xff"),)),
    ),
)
REMOVED = MapManifest(ManifestId(4, 1), LogState(bytes(16), 0, 1), (), is_removed=True)
MANIFESTS = {"manifest": MANIFEST, "manifest_removed": REMOVED}
NAME = "c00003/t/things/r/0000000000000003-0000000000000010"


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}_v1.hex").read_text())


async def small_file() -> tuple[bytes, RunFile]:
    """A file of three blocks."""
    encoder = run_writer._FileEncoder()  # private: a file is made nowhere else
    encoder.add([b"a", b"b"], [b"1", None])
    encoder.add([b"c"], [b""])
    encoder.add([b"d" * 20, b"e"], [b"4" * 30, b"5"])
    await encoder.prepare(TimeSlices(SystemClock()))
    buffers, file = encoder.encode_as(NAME)
    return b"".join(buffers), file


@pytest.mark.parametrize("name", MANIFESTS)
def test_bytes_of_manifests(name: str) -> None:
    assert encode(MANIFESTS[name]) == golden(name)
    assert decode(golden(name), name) == MANIFESTS[name]


@pytest.mark.parametrize("name", MANIFESTS)
def test_every_damaged_byte_of_a_manifest_is_seen(name: str) -> None:
    data = golden(name)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(DataCorruption, match="object-name"):
            decode(bytes(damaged), "object-name")
    for length in range(len(data)):
        with pytest.raises(DataCorruption, match="object-name"):
            decode(data[:length], "object-name")


def test_another_version_names_the_way_out() -> None:
    data = bytearray(golden("manifest"))
    data[5] = 9
    with pytest.raises(DataCorruption, match=r"version 9.*use the version that wrote it"):
        decode(bytes(data), "m")


async def test_bytes_of_a_file() -> None:
    data, file = await small_file()
    assert data == golden("run_file")
    assert (file.length, file.entries, file.tombstones, file.first_key, file.last_key) == (len(data), 5, 1, b"a", b"e")


async def test_a_file_is_read_as_it_was_written() -> None:
    data, file = await small_file()
    tail = decode_tail(data[file.tail_offset :], NAME, file.tail_offset)
    assert (tail.entries, tail.tombstones, tail.first_keys) == (5, 1, [b"a", b"c", b"d" * 20])
    entries: list[tuple[bytes, bytes | None]] = []
    for offset, length in tail.places:
        block = decode_block(data[offset : offset + length], NAME, offset)
        entries += zip(block.keys, block.values, strict=True)
    assert entries == [(b"a", b"1"), (b"b", None), (b"c", b""), (b"d" * 20, b"4" * 30), (b"e", b"5")]
    assert all(may_contain(tail.filter, key) for key, _ in entries)


async def test_every_damaged_byte_of_a_file_is_seen_and_named() -> None:
    data, file = await small_file()
    tail = decode_tail(data[file.tail_offset :], NAME, file.tail_offset)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(DataCorruption, match=NAME):
            for offset, length in tail.places:
                decode_block(bytes(damaged[offset : offset + length]), NAME, offset)
            decode_tail(bytes(damaged[file.tail_offset :]), NAME, file.tail_offset)


async def test_a_block_at_another_place_or_of_another_object_is_refused() -> None:
    data, file = await small_file()
    tail = decode_tail(data[file.tail_offset :], NAME, file.tail_offset)
    (offset, length), (other, _) = tail.places[:2]
    for name, place in ((NAME, other), (NAME[:-1] + "1", offset)):
        with pytest.raises(DataCorruption):
            decode_block(data[offset : offset + length], name, place)


def test_no_block_is_read_of_too_few_bytes() -> None:
    body = block_body([b"a"], [b"1"])
    for length in range(len(body)):
        with pytest.raises(DataCorruption):
            decode_block(body[:length], NAME, 0)


def test_the_filter_has_few_false_positives() -> None:
    rng = random.Random(5)
    keys = [rng.randbytes(12) for _ in range(5_000)]
    bits = empty_filter(len(keys))
    add_keys(bits, keys)
    assert all(may_contain(bits, key) for key in keys)
    wrong = sum(may_contain(bits, rng.randbytes(13)) for _ in range(5_000))
    assert wrong < 5_000 * 0.03


def test_names_carry_epochs_and_are_read_back() -> None:
    layout = Layout(3)
    assert layout.map_file("things", MapObjectId(3, 16)) == NAME
    assert layout.epoch_in(NAME) == 3
    assert layout.epoch_in(layout.map_manifest("things", ManifestId(7, 1))) == 7
    for name in ("c00003/t/things", "c00003/t/things/x/" + "0" * 16 + "-" + "0" * 16, "c00003/t/things/r/1-2"):
        with pytest.raises(DataCorruption):
            layout.epoch_in(name)
