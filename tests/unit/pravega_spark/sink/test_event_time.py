"""The sink notes the greatest event time of each batch behind its rows, exactly once and at least once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pravega_common.errors import ConfigurationError, InvalidArgument, Unavailable
from pravega_common.runtime.failpoints import FailpointError, arm, disarm_all, raise_on_hit
from pravega_spark.datasource import batch_writer
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.rows.event_time import EventTimes
from pravega_spark.sink.event_time_notes import BEFORE_NOTE
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary()), ("at", pa.timestamp("us", tz="UTC"))])
BOTH = pytest.mark.parametrize("exactly_once", ["true", "false"])


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    made = FakeStreams(tmp_path)
    made.create("t", 2)
    return made


def rows(*times_us: int | None) -> pa.RecordBatch:
    events = [str(time).encode() for time in times_us]
    return pa.RecordBatch.from_arrays([pa.array(events), pa.array(times_us, SCHEMA.field("at").type)], schema=SCHEMA)


def writer(streams: FakeStreams, schema: pa.Schema = SCHEMA, **given: str) -> Any:
    usual = {"controller": streams.controller, "scope": "s", "stream": "t", "event_time_column": "At"}
    return batch_writer({**usual, **given}, from_arrow_schema(schema), overwrite=False)


def write(streams: FakeStreams, *tasks: pa.RecordBatch, **given: str) -> None:
    made = writer(streams, **given)
    made.commit([made.write(iter([task])) for task in tasks])


def notes(streams: FakeStreams, stream: str = "t") -> list[tuple[int, dict[int, int]]]:
    return list(streams.gateway.noted("s", stream).values())


@BOTH
def test_the_greatest_time_of_all_tasks_stands_behind_all_rows(streams: FakeStreams, exactly_once: str) -> None:
    write(streams, rows(5_000_000, 7_123_456), rows(None), rows(6_000_000), exactly_once=exactly_once)
    assert notes(streams) == [(7_123, dict(streams.gateway.tail_cut("s", "t")))]
    assert sum(len(events) for events in streams.events("t").values()) == 4


@BOTH
def test_rows_without_times_note_nothing(streams: FakeStreams, exactly_once: str) -> None:
    write(streams, rows(None, None), rows(), exactly_once=exactly_once)
    assert notes(streams) == []


def test_times_before_1970_are_rounded_down() -> None:
    times = EventTimes("at")
    list(times.watch([rows(-1)]))
    assert times.greatest_ms == -1


def test_a_time_that_goes_back_changes_nothing(streams: FakeStreams) -> None:
    write(streams, rows(9_000_000), txn_app_id="app", txn_version="1")
    write(streams, rows(8_000_000), txn_app_id="app", txn_version="2")
    assert [time for time, _ in notes(streams)] == [9_000]


def test_a_crash_before_the_note_is_made_up_for_by_the_replay(streams: FakeStreams) -> None:
    arm(BEFORE_NOTE, raise_on_hit(BEFORE_NOTE))
    try:
        with pytest.raises(FailpointError):
            write(streams, rows(9_000_000), txn_app_id="app", txn_version="1")
    finally:
        disarm_all()
    assert notes(streams) == []
    write(streams, rows(9_000_000), txn_app_id="app", txn_version="1")
    assert notes(streams) == [(9_000, dict(streams.gateway.tail_cut("s", "t")))]
    assert sum(len(events) for events in streams.events("t").values()) == 1


def test_a_note_that_fails_leaves_the_batch_committed(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(type(streams.gateway), "note_time", fail)
    write(streams, rows(9_000_000))
    assert sum(len(events) for events in streams.events("t").values()) == 1
    assert "waits for the next batch: away" in caplog.text


@BOTH
def test_each_stream_that_got_rows_has_the_time(streams: FakeStreams, exactly_once: str) -> None:
    for name in ("u", "v"):
        streams.create(name)
    schema = pa.schema([*SCHEMA, ("stream", pa.string())])
    times = pa.array([1_000_000, 2_000_000], SCHEMA.field("at").type)
    task = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"]), times, pa.array(["t", "u"])], schema=schema)
    given = {"controller": streams.controller, "scope": "s", "event_time_column": "at", "exactly_once": exactly_once}
    made = batch_writer(given, from_arrow_schema(schema), overwrite=False)
    made.commit([made.write(iter([task]))])
    assert [[time for time, _ in notes(streams, name)] for name in ("t", "u", "v")] == [[2_000], [2_000], []]


def test_records_have_their_own_timestamp(streams: FakeStreams) -> None:
    schema = pa.schema([("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    task = pa.RecordBatch.from_arrays([pa.array([b"a"]), pa.array([3_000_000], schema.field(1).type)], schema=schema)
    made = writer(streams, schema, format="record", event_time_column="timestamp")
    made.commit([made.write(iter([task]))])
    assert [time for time, _ in notes(streams)] == [3_000]


@pytest.mark.parametrize(
    ("given", "schema", "reason"),
    [
        ({"event_time_column": "when"}, SCHEMA, "names 'when'"),
        ({"event_time_column": "event"}, SCHEMA, "must be a timestamp, 'event' is binary"),
        ({}, pa.schema([*SCHEMA, ("other", pa.string())]), "'other' would be lost"),
    ],
)
def test_columns_that_do_not_fit(streams: FakeStreams, given: dict[str, str], schema: pa.Schema, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        writer(streams, schema, **given)


def test_a_time_is_not_noted_ahead_of_its_rows(streams: FakeStreams) -> None:
    with pytest.raises(ConfigurationError, match="read_after_write_consistency=true"):
        writer(streams, read_after_write_consistency="false")


def test_without_the_option_the_column_is_lost_and_nothing_noted(streams: FakeStreams) -> None:
    given = {"controller": streams.controller, "scope": "s", "stream": "t"}
    with pytest.raises(InvalidArgument, match="'at' would be lost"):
        batch_writer(given, from_arrow_schema(SCHEMA), overwrite=False)
