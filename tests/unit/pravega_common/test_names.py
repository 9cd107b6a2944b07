"""Checks names of scopes, streams and segments."""

from __future__ import annotations

import uuid

import pytest

from pravega_common import names
from pravega_common.errors import InvalidArgument

TXN = uuid.UUID("00000002-0000-0001-0000-00000000000a")
SEGMENT = "scope/stream/3.#epoch.2"


def test_segment_ids() -> None:
    identifier = names.segment_id(3, 2)
    assert identifier == (2 << 32) + 3
    assert (names.segment_number(identifier), names.segment_epoch(identifier)) == (3, 2)
    with pytest.raises(InvalidArgument):
        names.segment_id(-1, 0)


def test_segment_names() -> None:
    identifier = names.segment_id(3, 2)
    assert names.segment_name("scope", "stream", identifier) == SEGMENT
    assert names.table_segment_name("scope", "kvt", 0) == "scope/kvt_kvtable/0.#epoch.0"
    assert names.parse_segment_name(SEGMENT) == names.SegmentName("scope", "stream", identifier)
    assert names.parse_segment_name("scope/stream/7").segment_id == 7


def test_transaction_segments() -> None:
    name = names.transaction_segment_name(SEGMENT, TXN)
    assert name == SEGMENT + "#transaction.0000000200000001000000000000000a"
    parsed = names.parse_segment_name(name)
    assert parsed.transaction_id == TXN
    assert str(parsed) == name
    assert names.is_transaction_segment(name)
    assert not names.is_transaction_segment(name[:-1])
    assert names.parent_segment_name(name) == SEGMENT


def test_transient_segments() -> None:
    name = names.transient_segment_name(SEGMENT, b"\x01" * 16, b"\x02" * 16)
    assert name == f"{SEGMENT}#transient.{'01' * 16}.{'02' * 16}"
    assert names.is_transient_segment(name)
    assert names.parent_segment_name(name) == SEGMENT
    assert names.primary_segment_name(name) == "scope/stream/3"


def test_primary_names() -> None:
    assert names.primary_segment_name(SEGMENT) == "scope/stream/3"
    assert names.primary_segment_name(SEGMENT + "#index") == "scope/stream/3"
    assert names.primary_segment_name(names.transaction_segment_name(SEGMENT, TXN)) == "scope/stream/3"
    assert names.primary_segment_name("_system/containers/metadata_1") == "_system/containers/metadata_1"


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a/b/c", "a/b/c/0.#epoch.0", "/b/0.#epoch.0", "a/b/0.#epoch.", "a/b/-1.#epoch.0", "a/b/0.#epoch.0x",
     "a/b/99999999999.#epoch.0", "a/b/٣.#epoch.0" + "#transaction." + "g" * 32],
)  # fmt: skip
def test_names_that_are_no_stream_segments(name: str) -> None:
    with pytest.raises(InvalidArgument):
        names.parse_segment_name(name)


def test_user_stream_segments() -> None:
    assert names.is_user_stream_segment(SEGMENT)
    assert names.is_user_stream_segment("A.b-9/x.y-Z/0.#epoch.12")
    for name in (
        names.index_segment_name(SEGMENT),
        names.transaction_segment_name(SEGMENT, TXN),
        names.transient_segment_name(SEGMENT, b"w" * 16, b"u" * 16),
        names.table_segment_name("scope", "group", 0),
        "_system/_requeststream/0.#epoch.0",
        "_system/stream/0.#epoch.0",
        "scope/_MARKstream/0.#epoch.0",
        "scope/_RGgroup/0.#epoch.0",
        "scope/stream/3",
        "scope/stream/3.#epoch.",
        SEGMENT + chr(10),
    ):
        assert not names.is_user_stream_segment(name), name


def test_transaction_ids() -> None:
    identifier = names.transaction_id(5, 0x1_2345_6789, -1)
    assert names.transaction_epoch(identifier) == 5
    high, low = names.transaction_id_bits(identifier)
    assert low >= 0, "other clients sign-extend the lower half"
    assert names.transaction_id_from_bits(high, low) == identifier
    assert names.transaction_id_from_bits(-1, -2) == uuid.UUID(int=2**128 - 2)


@pytest.mark.parametrize("name", ["_system", "a", "A.b-9", "_RGgroup", "x" * 255])
def test_internal_names_are_accepted(name: str) -> None:
    assert names.validate_stream_name(name) == name
    assert names.validate_scope_name(name) == name


@pytest.mark.parametrize("name", ["", "_", "__a", "a_b", "a/b", "a b", "é", "a\n", "x" * 256])
def test_bad_names_are_refused(name: str) -> None:
    for validate in (names.validate_stream_name, names.validate_scope_name, names.validate_user_scope_name):
        with pytest.raises(InvalidArgument):
            validate(name)


def test_users_get_the_narrower_rule() -> None:
    assert names.validate_user_name("x" * 250) == "x" * 250
    for name in ("_a", "x" * 251):
        with pytest.raises(InvalidArgument, match="reader group"):
            names.validate_user_name(name, "reader group")


def test_scoped_names() -> None:
    assert names.split_scoped_name("a/b") == ("a", "b")
    for name in ("a", "a/b/c", "/b", "a/"):
        with pytest.raises(InvalidArgument):
            names.split_scoped_name(name)


def test_internal_streams() -> None:
    assert names.is_internal_stream("_system", "x")
    assert names.is_internal_stream("s", names.mark_stream("x"))
    assert not names.is_internal_stream("s", "x")
    assert names.reader_group_stream("g") == "_RGg"
