"""The envelope of records: golden bytes, damage, and agreement with the plain reference."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.errors import InvalidArgument
from pravega_spark.rows.record_envelope import NotARecord, RecordParts, pack_records
from tests.support.record_reference import PlainRecord, pack, unpack

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIME = pa.timestamp("us", "UTC")

FULL = PlainRecord(b"\x00v", b"k\xff", (("né", b"\x01\x02"), ("empty", b""), ("null", None)), 1_700_000_000_123_456)
GOLDEN = {
    PlainRecord(b"v", b"k", None, None): "E70203000000000000000000000001000000006B76",
    PlainRecord(None, b"k", None, -1): "E70209FFFFFFFFFFFFFFFF00000001000000006B",
    PlainRecord(b"", None, (), 0): "E7020E0000000000000000000000000000000400000000",
    PlainRecord(None): "E7020000000000000000000000000000000000",
    FULL: (
        "E7020F00060A2418202240000000020000002A6BFF"
        "0000000300000003000000020000000500000000000000" + "04FFFFFFFF6EC3A90102656D7074796E756C6C0076"
    ),
}


def packed(records: Sequence[PlainRecord]) -> list[bytes]:
    headers = [None if record.headers is None else list(record.headers) for record in records]
    events: list[bytes] = pack_records(
        pa.array([record.value for record in records], pa.binary()),
        pa.array([record.key for record in records], pa.binary()),
        pa.array(headers, HEADERS),
        pa.array([record.timestamp for record in records], pa.int64()).cast(TIME),
    ).to_pylist()
    return events


def unpacked(events: pa.Array) -> list[PlainRecord]:
    parts = RecordParts(events)
    headers = parts.headers(HEADERS)
    headers.validate(full=True)
    return [
        PlainRecord(value, key, None if items is None else tuple((one["key"], one["value"]) for one in items), time)
        for value, key, items, time in zip(
            parts.values().to_pylist(),
            parts.keys().to_pylist(),
            headers.to_pylist(),
            parts.timestamps(TIME).cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]


def read(*events: bytes) -> list[PlainRecord]:
    return unpacked(pa.array(events, pa.binary()))


@pytest.mark.parametrize(("record", "text"), GOLDEN.items(), ids=range(len(GOLDEN)))
def test_golden_bytes(record: PlainRecord, text: str) -> None:
    event = bytes.fromhex(text)
    assert packed([record]) == [event] == [pack(record)]
    assert read(event) == [record] == [unpack(event)]


records = st.builds(
    PlainRecord,
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=10),
    st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4).map(tuple),
    st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
)


@given(st.lists(records, max_size=20), st.integers(0, 3), st.integers(0, 3))
def test_columns_agree_with_the_reference(made: list[PlainRecord], before: int, after: int) -> None:
    events = [pack(record) for record in made]
    assert packed(made) == events
    # A slice of a larger column, whose neighbours are no records.
    column = pa.array([b"?" * 7] * before + events + [b"!"] * after, pa.binary()).slice(before, len(events))
    assert unpacked(column) == made


@given(records, st.data())
def test_damage_is_found_wherever_the_reference_finds_it(record: PlainRecord, data: st.DataObject) -> None:
    """A damaged record is refused, or means what the reference takes it for; never an error of another kind."""
    event = bytearray(pack(record))
    for _ in range(data.draw(st.integers(1, 3))):
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(event[: data.draw(st.integers(0, len(event)))])
    column = pa.array([pack(FULL), damaged, pack(record)], pa.binary())
    try:
        wanted = unpack(damaged)
    except ValueError:
        with pytest.raises(NotARecord) as caught:
            unpacked(column)
        assert caught.value.index == 1
    else:
        assert unpacked(column) == [FULL, wanted, record]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (b"", "less than 19 bytes"),
        (b"plain event of some length", "begins with 0x706C.*, not with 0xE7; leave option 'format' out"),
        (b"\xe7\x01" + bytes(17), "version is 1, and this one reads 2; leave option 'format' out, .*from_envelope"),
        (b"\xe7\x09" + bytes(17), "version is 9, and this one reads 2; use the pravega-spark that wrote it"),
        (b"\xe7\x02\x10" + bytes(16), "flags have bits that mean nothing"),
        (b"\xe7\x02\x00" + bytes(16) + b"x", "a part that its flags call null has bytes"),
        (b"\xe7\x02\x01" + bytes(8) + b"\xff\xff\xff\xff" + bytes(4), "lengths are more than it has bytes"),
        (b"\xe7\x02\x04" + bytes(12) + b"\x00\x00\x00\x03abc", "headers are cut short"),
        (b"\xe7\x02\x04" + bytes(12) + b"\x00\x00\x00\x04\xff\xff\xff\xff", "headers are cut short"),
        (
            b"\xe7\x02\x04" + bytes(12) + struct.pack(">III", 13, 1, 1) + struct.pack(">i", -2) + b"n",
            "lengths of its headers do not add up",
        ),
        (
            b"\xe7\x02\x04" + bytes(12) + struct.pack(">III", 13, 1, 1) + struct.pack(">i", 0) + b"\xff",
            "the name of a header is not UTF-8",
        ),
    ],
)
def test_each_kind_of_damage_has_its_reason(event: bytes, why: str) -> None:
    with pytest.raises(NotARecord, match=f"event 1 is no record: .*{why}") as caught:
        read(pack(FULL), event)
    assert caught.value.index == 1


def test_headers_that_nobody_wants_are_not_looked_at() -> None:
    event = b"\xe7\x02\x06" + bytes(12) + b"\x00\x00\x00\x03abcv"
    assert RecordParts(pa.array([event])).values().to_pylist() == [b"v"]


def test_texts_and_integers_are_written_as_they_are_routed() -> None:
    events = pack_records(pa.array(["é", None, "c"]), pa.array([1, -20, None], pa.int32())).cast(pa.binary())
    assert unpacked(events) == [PlainRecord("é".encode(), b"1"), PlainRecord(None, b"-20"), PlainRecord(b"c")]


def test_headers_of_a_sliced_column_with_texts_as_values() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    rows = pa.array([[("a", "1")], None, [("b", "2"), ("c", None)], []], kind).slice(1)
    events = pack_records(pa.nulls(3, pa.binary()), headers=rows).cast(pa.binary())
    assert [record.headers for record in unpacked(events)] == [None, (("b", b"2"), ("c", None)), ()]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_header_without_a_name_is_refused(header: dict[str, object] | None) -> None:
    rows = pa.array([[{"key": "a", "value": b""}, header]], HEADERS)
    with pytest.raises(InvalidArgument, match="1 of 2 headers have no name"):
        pack_records(pa.array([b"v"]), headers=rows)


def test_times_of_any_zone_and_unit() -> None:
    times = pa.array([1_500], pa.timestamp("ms", "Europe/Berlin"))
    events = pack_records(pa.array([b"v"]), timestamps=times).cast(pa.binary())
    assert unpacked(events)[0].timestamp == 1_500_000
