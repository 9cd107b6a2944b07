"""Writes with format=record, over the fake: the events in the store, and how rows of Spark 4.0 become columns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

from pravega_common.errors import ConfigurationError, InvalidArgument
from pravega_spark import datasource
from pravega_spark.datasource import batch_writer, read_schema
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import RECORD_SOURCE_SCHEMA, SOURCE_SCHEMA
from pravega_spark.sink import copied_events
from pravega_spark.sink.row_stream_writer import RowStreamWriter, batches_of, bytes_per_batch
from pravega_spark.spark_version import ARROW_STREAM_SINK
from tests.support.record_reference import PlainRecord, unpack
from tests.unit.pravega_spark.streams import FakeStreams

ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    copied_events._warned.clear()
    made = FakeStreams(tmp_path)
    made.create("t", 3)
    return made


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def rows(first: int, last: int) -> pa.RecordBatch:
    numbers = range(first, last)
    columns = [
        [b"k%d" % (number % 5) for number in numbers],
        [None if number % 5 == 4 else str(number) for number in numbers],
        [[("n", str(number).encode())] for number in numbers],
        list(numbers),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


@pytest.mark.parametrize("exactly_once", ["true", "false"])
def test_records_are_in_the_store_in_order_of_their_keys(streams: FakeStreams, exactly_once: str) -> None:
    options = {"controller": streams.controller, "scope": "s", "stream": "t", "format": "record"}
    writer = batch_writer({**options, "exactly_once": exactly_once}, from_arrow_schema(ARROW), overwrite=False)
    message = writer.write(iter([rows(0, 50), rows(50, 100)]))
    writer.commit([message])
    by_segment = [[unpack(event) for event in events] for events in streams.events("t").values()]
    found: dict[bytes | None, list[PlainRecord]] = {}
    for records in by_segment:
        for key in {record.key for record in records}:
            assert key not in found
            found[key] = [record for record in records if record.key == key]
    assert found == {
        b"k%d" % key: [
            PlainRecord(
                None if key == 4 else str(number).encode(),
                b"k%d" % key,
                (("n", str(number).encode()),),
                number,
            )
            for number in range(key, 100, 5)
        ]
        for key in range(5)
    }


@pytest.mark.usefixtures("berlin")
def test_rows_of_spark_4_0_have_times_without_a_zone() -> None:
    times = [datetime(2026, 7, 1, 14, 0), datetime(2026, 10, 25, 1, 59), datetime(2026, 10, 25, 3, 0), None]
    headers = [Row(key="a", value=bytearray(b"1")), Row(key="b", value=None)]
    made = [Row(key=bytearray(b"k"), value=None, headers=headers, timestamp=moment) for moment in times]
    (batch,) = batches_of(iter(made), ARROW)
    assert batch.column("key").to_pylist() == [b"k"] * 4
    assert batch.column("headers").to_pylist()[0] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    shown = [None if moment is None else f"{moment:%d %H:%M}" for moment in batch.column("timestamp").to_pylist()]
    assert shown == ["01 12:00", "24 23:59", "25 02:00", None]


@pytest.mark.usefixtures("berlin")
def test_an_hour_that_comes_twice_is_refused() -> None:
    row = Row(key=None, value="v", headers=None, timestamp=datetime(2026, 10, 25, 2, 30))
    with pytest.raises(InvalidArgument, match=r"the time 2026-10-25 02:30:00 without its zone.*executorEnv\.TZ=UTC"):
        list(batches_of(iter([row]), ARROW))


def test_large_rows_of_spark_4_0_come_in_small_batches() -> None:
    """In a batch of 4,096 the bytes would be too many for a column of Arrow, or for the worker."""
    large, headers = "v" * (bytes_per_batch // 4), [Row(key="a", value=bytes(bytes_per_batch // 2))]
    texts = [Row(key=None, value=large, headers=None, timestamp=None)] * 6
    packed = [Row(key=None, value=None, headers=headers, timestamp=None)] * 3
    asked = iter(texts + packed)
    made = batches_of(asked, ARROW)
    assert next(made).num_rows == 4
    assert next(made).num_rows == 3, "the headers count"
    assert len(list(asked)) == 2, "no row behind a batch is asked for"


def test_a_streaming_write_of_rows(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource, "has", lambda feature: feature != ARROW_STREAM_SINK)
    options = {"controller": streams.controller, "scope": "s", "stream": "t", "format": "record"}
    schema = from_arrow_schema(ARROW)
    writer = datasource.stream_writer({**options, "exactly_once": "false"}, schema, overwrite=False)
    assert isinstance(writer, RowStreamWriter)
    made = [
        Row(key=bytearray(b"k"), value="v", headers=[Row(key="a", value=None)], timestamp=datetime.fromtimestamp(5)),
        Row(key=None, value=None, headers=None, timestamp=None),
    ]
    writer.write(iter(made))
    found = [unpack(event) for events in streams.events("t").values() for event in events]
    wanted = {PlainRecord(b"v", b"k", (("a", None),), 5_000_000), PlainRecord(None)}
    assert len(found) == 2 and set(found) == wanted


def test_a_copy_of_plain_events_warns_once_of_lost_keys(streams: FakeStreams, caplog: pytest.LogCaptureFixture) -> None:
    def warnings(ddl: str, **given: str) -> int:
        caplog.clear()
        options = {"controller": streams.controller, "scope": "s", "stream": "t", **given}
        schema = from_arrow_schema(pa.schema([(name, pa.string()) for name in ddl.split()]))
        batch_writer(options, schema, overwrite=False)
        return len([item for item in caplog.records if "lose their order" in item.getMessage()])

    streams.create("u")
    assert warnings("event") == 0
    assert warnings("event routing_key segment_id offset") == 0
    assert warnings("value segment_id offset", format="record") == 0
    assert warnings("event scope stream Segment_id OFFSET") == 1
    assert warnings("event segment_id offset") == 0
    assert warnings("event segment_id offset", stream="u") == 1


def test_a_copy_by_segment_keeps_the_order_of_each(streams: FakeStreams, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of one segment go to one segment, without a warning; the three others may share one."""
    schema = pa.schema([("event", pa.binary()), ("Segment_ID", pa.int64()), ("offset", pa.int64())])
    options = {"controller": streams.controller, "scope": "s", "stream": "t", "route_by": "segment"}
    writer = datasource.batch_writer({**options, "exactly_once": "false"}, from_arrow_schema(schema), overwrite=False)
    numbers = range(300)
    columns = [[b"%03d" % number for number in numbers], [number % 7 << 32 for number in numbers], list(numbers)]
    writer.write(iter([pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=schema)]))
    found = streams.events("t")
    assert sorted(int(event) for events in found.values() for event in events) == list(numbers)
    for source in range(7):
        holders = [[n for n in map(int, events) if n % 7 == source] for events in found.values()]
        assert [some for some in holders if some] == [list(range(source, 300, 7))]
    assert sum(1 for events in found.values() if events) > 1
    assert "lose their order" not in caplog.text
    for names, said in (
        ("event offset", "needs the column 'segment_id'"),
        ("event key segment_id", "'key' is a routing"),
    ):
        ddl = from_arrow_schema(pa.schema([(name, pa.string()) for name in names.split()]))
        with pytest.raises(ConfigurationError, match=said):
            datasource.batch_writer(options, ddl, overwrite=False)


def test_the_schema_of_a_read() -> None:
    assert read_schema({"path": "s/t", "format": "Record"}) == RECORD_SOURCE_SCHEMA
    assert read_schema({"path": "s/t", "format": "event"}) == read_schema({"path": "s/t"}) == SOURCE_SCHEMA


def test_refused_options() -> None:
    with pytest.raises(ConfigurationError, match="'format' is 'avro', but must be event or record"):
        WriteOptions.parse({"path": "s/t", "format": "avro"}, Use.WRITE)
    with pytest.raises(ConfigurationError, match="'metadata' and 'format' exclude each other"):
        ReadOptions.parse({"path": "s/t", "format": "record", "metadata": "StreamInfo"}, Use.BATCH_READ)
    with pytest.raises(ConfigurationError, match="'format' and 'route_by' exclude each other"):
        WriteOptions.parse({"path": "s/t", "format": "record", "route_by": "segment"}, Use.WRITE)
    assert ReadOptions.parse({"path": "s/t", "format": "event", "metadata": "StreamInfo"}, Use.BATCH_READ).metadata
