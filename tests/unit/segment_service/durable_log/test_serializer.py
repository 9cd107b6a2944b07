"""The records of the log: golden bytes, and what is refused."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.operations import Append, Operation
from segment_service.durable_log.serializer import deserialize, serialize
from tests.unit.segment_service.durable_log.samples import SAMPLES

GOLDEN = {
    "map_segment": "0101000000000000000100000000000000070000018bcfe56800000e73636f70652f737472c3b86d2f30"
    "00000001000102030405060708090a0b0c0d0e0ffffffffffffffffd",
    "append": "01020000000000000002000000000000000700000100000000000000018bcfe568010000000500000002"
    "000102030405060708090a0b0c0d0e0f0000000000000009101112131415161718191a1b1c1d1e1f80000000000000006162636465",
    "append_empty": "010200000000000000030000000000000007000000000000000500000000000000010000000000000000",
    "seal": "0103000000000000000400000000000000070000000000000005",
    "truncate": "0104000000000000000500000000000000070000000000000004",
    "merge": "01050000000000000006000000000000000700000000000000080000000000000005000000000000000b000000000000000c"
    "00000001101112131415161718191a1b1c1d1e1f0000000000000001",
    "update_attributes": "01060000000000000007000000000000000700000001000102030405060708090a0b0c0d0e0f0000000000000001",
    "delete": "010700000000000000080000000000000007",
    "checkpoint": "01080000000000000009736e617073686f74",
    "activate_segment": "010a000000000000000a00000000000000077265636f7264",
    "barrier": "01094000000000000001",
}


def record_of(operation: Operation) -> bytes:
    head, body, length = serialize(operation)
    record = head + b"".join(body)
    assert len(record) == length
    return record


def comparable(operation: Operation) -> Operation:
    """With the parts that are not in the record, or in another shape there, made equal."""
    if isinstance(operation, Append):
        assert operation.data is not None
        operation.data = (b"".join(operation.data),)
    if hasattr(operation, "values"):
        operation.values = list(operation.values)
    return operation


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes(name: str) -> None:
    assert record_of(SAMPLES[name]).hex() == GOLDEN[name]


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_bytes_are_read_back(name: str) -> None:
    assert comparable(deserialize(memoryview(bytes.fromhex(GOLDEN[name])))) == comparable(SAMPLES[name])


def test_the_data_of_an_append_stays_a_view() -> None:
    data = memoryview(bytearray(b"payload"))
    assert serialize(Append(sequence_number=1, segment_id=1, data=[data], length=7, offset=0)).body[0] is data


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("checkpoint", "activate_segment")])
def test_a_record_of_another_length_is_corrupt(name: str) -> None:
    record = bytes.fromhex(GOLDEN[name])
    for wrong in (record[:-1], record + b"\0", record[:5], b""):
        with pytest.raises(DataCorruption):
            deserialize(memoryview(wrong))


def test_an_unknown_version_or_type_is_refused() -> None:
    with pytest.raises(DataCorruption, match="version 2"):
        deserialize(memoryview(bytes.fromhex("02094000000000000001")))
    with pytest.raises(DataCorruption, match="type 99"):
        deserialize(memoryview(bytes.fromhex("01634000000000000001")))


def test_the_cached_form_of_an_append_has_no_record() -> None:
    with pytest.raises(InvariantViolation):
        serialize(Append(sequence_number=1, segment_id=1, data=None, length=7, offset=0))
