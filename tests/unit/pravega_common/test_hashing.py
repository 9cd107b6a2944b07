"""Checks the published vectors of docs/wire-protocol.md 6.3, 6.4 and 7."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from pravega_common import hashing
from pravega_common.errors import InvalidArgument

ROUTING = [
    ("", 4448956735870400463, 0.24117842791623523),
    ("a", -1044246655373090880, 0.9433912753816884),
    ("hello", -6295574351161443649, 0.658716230571337),
    ("routing_key", 267340631954621811, 0.014492564697942356),
    ("k1", 8048424143611116271, 0.43630594707939774),
    ("key-0", 7232090487357425718, 0.39205241090023346),
    ("user/42", -7744657721337555516, 0.5801612636684592),
    ("0123456789abcdef", 3045915190952504846, 0.1651193933618651),
    ("héllo", 5002210464100481731, 0.27117037262037313),
    ("日本", 6442422614740318543, 0.34924442974855974),
    ("😀", -4150045341951966737, 0.7750255912171164),
]
TABLE = [
    (b"", 7812694549934316115, 0.42352702020022215),
    (b"\x01", 4964697850502693274, 0.2691368097624567),
    (b"\x00\x00\x00\x01", -3930601648653932707, 0.7869216576677149),
    (b"primarykey", 4768792579022737554, 0.2585167637154602),
]
CONTAINERS = [
    ("scope/stream/0", 3, 3, 65),
    ("scope/stream/1", 3, 15, 73),
    ("examples/foo/0", 0, 9, 9),
    ("_system/_requeststream/0", 1, 4, 162),
    ("_system/containers/metadata_1", 1, 13, 168),
    ("myscope/_RGgroup/0", 3, 4, 87),
    ("scope/kvt_kvtable/0", 2, 11, 18),
    ("_system/_tables/completedTransactionsBatches", 1, 1, 180),
]


def test_seeds() -> None:
    seeds = (hashing.ROUTING_SEED, hashing.TABLE_ROUTING_SEED, hashing.CONTAINER_SEED, hashing.ATTRIBUTE_SEED)
    assert seeds == (1741865571, -2020233499, 1661405012, 817748169)


@pytest.mark.parametrize(("key", "first_half", "position"), ROUTING)
def test_routing_positions(key: str, first_half: int, position: float) -> None:
    assert hashing.murmur3(key.encode("utf-16-le"), hashing.ROUTING_SEED)[0] == first_half
    assert hashing.position_of_key(key) == position


@pytest.mark.parametrize(("key", "first_half", "position"), TABLE)
def test_table_positions(key: bytes, first_half: int, position: float) -> None:
    assert hashing.murmur3(key, hashing.TABLE_ROUTING_SEED)[0] == first_half
    assert hashing.position_of_table_key(key) == position


@pytest.mark.parametrize("length", range(0, 50))
def test_both_murmur_implementations_agree_where_both_are_right(length: int) -> None:
    data = bytes((index * 37 + length) % 256 for index in range(length))
    # ``murmur3`` takes the second implementation for negative seeds only, where the first one is wrong.
    assert hashing.murmur3(data, 1741865571) == hashing._murmur3_sign_extended(data, 1741865571)


@pytest.mark.parametrize(("primary", "of_4", "of_16", "of_256"), CONTAINERS)
def test_containers(primary: str, of_4: int, of_16: int, of_256: int) -> None:
    for name in (primary, f"{primary}.#epoch.7", f"{primary}.#epoch.0#transaction.{'0' * 32}"):
        assert [hashing.container_of_segment(name, count) for count in (4, 16, 256)] == [of_4, of_16, of_256]


def test_attribute_id() -> None:
    assert hashing.attribute_id_of("RevisionStreamClientMark").hex() == "7df9a874246cc9d69397cdd19ead68c5"


def test_unit_interval() -> None:
    assert hashing.to_unit_interval(1 << 63) == 0.5
    assert hashing.to_unit_interval(3 << 62) == 0.75
    assert 1.0 > hashing.to_unit_interval(-1) > 0.999999999


def test_jump_hash_refuses_no_buckets() -> None:
    with pytest.raises(InvalidArgument, match="0 must be positive"):
        hashing.jump_hash(5, 0)


@pytest.mark.parametrize("as_type", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_columns_give_the_scalar_positions(as_type: pa.DataType) -> None:
    keys: list[str | None] = [key for key, _, _ in ROUTING]
    keys += ["x" * length for length in (7, 8, 9, 15, 16, 17, 255, 256, 257, 1000)] + [None, "é" * 8]
    column = pa.array(keys).cast(as_type)
    for start in (0, 3):
        positions = hashing.positions_of_keys(column.slice(start))
        for key, position in zip(keys[start:], positions, strict=True):
            assert math.isnan(position) if key is None else position == hashing.position_of_key(key)


def test_columns_longer_than_a_batch() -> None:
    keys = [f"key-{number}" for number in range(40_000)]
    chunked = pa.chunked_array([keys[:10], keys[10:]])
    positions = hashing.positions_of_keys(chunked)
    assert all(positions[index] == hashing.position_of_key(keys[index]) for index in range(0, 40_000, 97))


def test_empty_columns() -> None:
    assert len(hashing.positions_of_keys([])) == 0
    assert math.isnan(hashing.positions_of_keys([None])[0])
