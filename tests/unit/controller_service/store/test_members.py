"""Reads records of key-value tables that other versions wrote, or has them refuse ours."""

from __future__ import annotations

import dataclasses
import json

import pytest

from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from controller_service.store.serializer import decode, encode
from pravega_common.invariants import InvariantViolation

FIRST_LIFE = KeyValueTableRecord("id", 5, ScopeMemberState.ACTIVE, 3, 4, 2, 7)
FORMER = (
    b'{"_v":1,"table_id":"id","created_ms":5,"state":"active","partition_count":3,"primary_key_length":4,'
    b'"secondary_key_length":2,"rollover_size_bytes":7}'
)


def test_a_record_of_a_former_version_begins_with_segment_0() -> None:
    assert decode(KeyValueTableRecord, FORMER) == FIRST_LIFE
    assert FIRST_LIFE.segment_numbers == range(3)


@pytest.mark.parametrize("first, version", [(None, 1), (0, 1), (3, 2)])
def test_former_versions_refuse_a_table_whose_segments_they_would_misname(first: int | None, version: int) -> None:
    record = dataclasses.replace(FIRST_LIFE, first_segment_number=first)
    assert json.loads(encode(record))["_v"] == version
    assert decode(KeyValueTableRecord, encode(record)) == record


def test_a_table_whose_first_number_is_not_chosen_has_no_segments() -> None:
    with pytest.raises(InvariantViolation, match="no segment numbers yet"):
        _ = dataclasses.replace(FIRST_LIFE, first_segment_number=None).segment_numbers
