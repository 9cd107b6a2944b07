"""Metadata records: golden text, round trips, and the state that they add up to."""

from __future__ import annotations

import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, InvalidArgument
from pravega_common.invariants import InvariantViolation
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.metadata_records import (
    FullRecord,
    InitRecord,
    MetadataRecord,
    PlogRecord,
    StreamRecord,
    SwitchRecord,
    TruncateRecord,
    apply,
    decode_record,
    encode_record,
)
from segment_service.plog.plog import PlogHeader, PlogId
from segment_service.plog.plog_client import PlogSettings


def plog(number: int, sealed: int | None = None, first: int = 0) -> PlogRecord:
    return PlogRecord(number, PlogId("main", "g0", f"{number:032x}"), first, LogAddress(0, first), sealed)


RECORDS: list[tuple[MetadataRecord, str]] = [
    (
        InitRecord("data", PlogRecord(0, PlogId("main", "g0", "ab"), 0, None)),
        '{"plog":[0,"main/g0/ab",0,null,null],"stream":"data","type":"init"}',
    ),
    (
        SwitchRecord("data", 100, PlogRecord(1, PlogId("main", "g0", "cd"), 9, LogAddress(0, 80))),
        '{"plog":[1,"main/g0/cd",9,[0,80],null],"sealed":100,"stream":"data","type":"switch"}',
    ),
    (TruncateRecord("data", LogAddress(1, 17)), '{"stream":"data","type":"truncate","up_to":[1,17]}'),
    (
        FullRecord(
            {"data": StreamRecord((PlogRecord(0, PlogId("m", "g", "ab"), 0, None, 5),), LogAddress(0, 2), 3)}, 8
        ),
        '{"number":8,"streams":{"data":[[[0,"m/g/ab",0,null,5]],[0,2],3]},"type":"full"}',
    ),
]


@pytest.mark.parametrize(("record", "text"), RECORDS)
def test_golden_text(record: MetadataRecord, text: str) -> None:
    assert encode_record(record).decode() == text
    assert decode_record(text.encode()) == record


@pytest.mark.parametrize("text", ["", "{", "[]", '{"type":"later"}', '{"type":"init","stream":"data","plog":[0]}'])
def test_what_is_no_record_is_corruption(text: str) -> None:
    with pytest.raises(DataCorruption, match="metadata record"):
        decode_record(text.encode())


def test_a_stream_grows_switches_and_is_truncated() -> None:
    state = apply(FullRecord(), InitRecord("data", plog(0)))
    state = apply(state, SwitchRecord("data", 500, plog(1, first=7)))
    state = apply(state, SwitchRecord("data", 0, plog(4, first=7)))
    stream = state.streams["data"]
    assert [(record.number, record.sealed) for record in stream.plogs] == [(0, 500), (4, None)]
    assert stream.next_number == 5
    state = apply(state, TruncateRecord("data", LogAddress(4, 0)))
    assert [record.number for record in state.streams["data"].plogs] == [4]
    assert state.streams["data"].truncated_at == LogAddress(4, 0)
    assert apply(FullRecord(), state) == state


def test_impossible_changes_are_invariant_violations() -> None:
    state = apply(FullRecord(), InitRecord("data", plog(3)))
    with pytest.raises(InvariantViolation, match="used twice"):
        apply(state, SwitchRecord("data", 5, plog(3)))
    with pytest.raises(InvariantViolation, match="initialized twice"):
        apply(state, InitRecord("data", plog(4)))
    with pytest.raises(InvariantViolation, match="beyond the last plog"):
        apply(state, TruncateRecord("data", LogAddress(9, 0)))


def test_plog_headers_describe_themselves() -> None:
    header = PlogHeader(PlogId("main", "g0", "ab"), 3, "data", 9, 4, 1024)
    text = '{"format":1,"id":"main/g0/ab","container":3,"stream":"data","number":9,"epoch":4,"block":1024}'
    assert header.to_json() == text
    assert PlogHeader.from_json(text.encode()) == header
    with pytest.raises(DataCorruption, match="format 2"):
        PlogHeader.from_json(text.replace('"format":1', '"format":2').encode())
    with pytest.raises(DataCorruption, match="cannot be read"):
        PlogHeader.from_json(b"{}")
    with pytest.raises(InvalidArgument, match="cluster/group/random"):
        PlogId.parse("main/g0")


def test_a_plog_must_hold_a_full_frame() -> None:
    with pytest.raises(ConfigurationError, match="plogs of 1000 bytes hold no full frame; use 1048632 or more"):
        PlogSettings(block_bytes=1000)
