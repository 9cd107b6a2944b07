"""The times at which a store took events, as a column of a read, over the fake."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pravega_common.errors import ConfigurationError, DataCorruption, InvalidArgument, UnsupportedOperation
from pravega_spark.datasource import read_schema
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.rows.columns import RECORD_SOURCE_SCHEMA, SOURCE_SCHEMA, check_source_schema, sink_columns
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.ingest_times import IngestTimes
from pravega_spark.source.partition_reader import SpanPartition, read_spans
from pravega_spark.source.range_planner import Span
from tests.support.fakes.stream_gateway import FakeBoundaries
from tests.unit.pravega_spark.source.queries import numbered
from tests.unit.pravega_spark.streams import FakeStreams

SCHEMA = pa.schema([("event", pa.binary()), ("ingest_time", pa.timestamp("us", "UTC"))])
EVENT_BYTES = 18
SPAN = Span("s", "t", 0, 0, 6 * EVENT_BYTES)


@pytest.fixture
def streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeStreams:
    """Six events, written at 1,000 to 6,000 ms; each is a boundary."""
    forget_provisioned()
    made = FakeStreams(tmp_path)
    made.create("t")
    for index in range(6):
        monkeypatch.setattr(made.gateway, "now_ms", lambda index=index: 1_000 * (index + 1))
        made.append("t", 0, numbered(index, index + 1))
    return made


@pytest.fixture
def looks(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Looks into the index, which knows the first ``known`` boundaries only."""
    counted: Counter[str] = Counter(known=6)
    boundaries = streams.gateway.boundaries

    def known(scope: str, stream: str, segment_id: int) -> FakeBoundaries:
        counted["looks"] += 1
        found = boundaries(scope, stream, segment_id)
        del found._records[counted["known"] :]
        return found

    monkeypatch.setattr(streams.gateway, "boundaries", known)
    return counted


def read(streams: FakeStreams, schema: pa.Schema = SCHEMA, **given: str) -> pa.Table:
    options = {"controller": streams.controller, "path": "s/t", **given}
    batch = BatchReader(ReadOptions.parse(options, Use.BATCH_READ), schema)
    return pa.Table.from_batches([part for item in batch.partitions() for part in batch.read(item)])


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_rows_with_their_times(streams: FakeStreams) -> None:
    table = read(streams)
    assert table.schema == SCHEMA
    assert table.column(1).to_pylist() == [at(second) for second in range(1, 7)]


def test_a_span_is_looked_up_once(streams: FakeStreams, looks: Counter[str]) -> None:
    times = IngestTimes(streams.gateway, SPAN)
    offsets = np.arange(6, dtype=np.int64) * EVENT_BYTES
    for part in (offsets[:2], offsets[2:5], offsets[5:]):
        times.of(part)
    assert looks["looks"] == 1


def test_what_the_index_does_not_know_yet_has_the_time_of_the_reading(
    streams: FakeStreams, looks: Counter[str]
) -> None:
    looks["known"] = 2
    offsets = np.arange(6, dtype=np.int64) * EVENT_BYTES
    times = IngestTimes(streams.gateway, SPAN, lambda: 9_000)
    assert times.of(offsets[:4]).tolist() == [1_000_000, 2_000_000, 9_000_000, 9_000_000]
    assert looks["looks"] == 1
    looks["known"] = 5
    assert times.of(offsets[4:]).tolist() == [5_000_000, 9_000_000], "the index is looked up again"
    assert looks["looks"] == 2
    behind = IngestTimes(streams.gateway, SPAN, lambda: 3_000)
    assert behind.of(offsets).tolist()[-2:] == [5_000_000, 5_000_000], "a clock that is behind that of the store"


def test_a_store_without_an_index(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*given: object) -> FakeBoundaries:
        raise UnsupportedOperation("no index")

    monkeypatch.setattr(streams.gateway, "boundaries", refusing)
    with pytest.raises(UnsupportedOperation, match=r"'ingest_time'.*the store of s/t keeps no index.*leave it out"):
        read(streams)
    assert len(read(streams, SCHEMA.remove(1))) == 6


@pytest.mark.parametrize("fails", [True, False])
def test_a_segment_that_is_deleted_after_its_bytes_were_read(
    streams: FakeStreams, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    boundaries = streams.gateway.boundaries
    monkeypatch.setattr(streams.gateway, "boundaries", lambda scope, stream, item: boundaries(scope, stream, 99))
    rows = read_spans(SpanPartition(SPAN), SCHEMA, streams.controller, fail_on_data_loss=fails)
    if fails:
        with pytest.raises(DataCorruption, match=r"s/t was lost before it was read: segment 0\.#epoch\.0 "):
            list(rows)
    else:
        assert list(rows) == []


def test_option_and_schema() -> None:
    assert read_schema({"path": "s/t", "ingest_time": "true"}) == f"{SOURCE_SCHEMA}, ingest_time timestamp"
    with_records = {"path": "s/t", "ingestTime": "true", "format": "record"}
    assert read_schema(with_records) == f"{RECORD_SOURCE_SCHEMA}, ingest_time timestamp"
    with pytest.raises(ConfigurationError, match="'metadata' and 'ingest_time' exclude each other"):
        read_schema({"path": "s/t", "ingest_time": "true", "metadata": "Streams"})
    check_source_schema(SCHEMA)
    check_source_schema(pa.schema([SCHEMA.field(1)]), records=True)
    with pytest.raises(InvalidArgument, match="column 'ingest_time' must be timestamp, not"):
        check_source_schema(pa.schema([("ingest_time", pa.timestamp("us"))]))
    with pytest.raises(InvalidArgument, match=r"no column 'time'; its columns are: .*offset bigint, ingest_time time"):
        check_source_schema(pa.schema([("time", pa.timestamp("us", "UTC"))]))


def test_a_sink_leaves_it_out() -> None:
    assert sink_columns([("event", "binary"), ("ingest_time", "timestamp")]).event == 0
