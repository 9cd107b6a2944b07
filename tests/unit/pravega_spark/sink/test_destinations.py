"""Rows that name their stream themselves are split, written in one set or refused, over the fake."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from pravega_common.errors import ConfigurationError, InvalidArgument
from pravega_common.model.transaction_sets import SetState, Sink
from pravega_spark.datasource import batch_writer
from pravega_spark.gateway.provisioning import Provision, forget_provisioned, provision_stream
from pravega_spark.ledger.batch import BatchIdentity
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import SinkColumns
from pravega_spark.rows.framing import event_lengths
from pravega_spark.rows.record_columns import RecordColumns
from pravega_spark.sink.batch_commit import abort_batch, commit_batch, segments_advised_max
from pravega_spark.sink.commit_protocol import ReplayDiffers, TaskMessage
from pravega_spark.sink.destinations import Destinations
from pravega_spark.sink.direct_writer import MultiStreamWriter
from pravega_spark.sink.transaction_writer import TransactionWriter
from tests.unit.pravega_spark.streams import FakeStreams

COLUMNS = SinkColumns(0, 1, 2)
IDENTITY = BatchIdentity(Sink("query", "s/*"), "run-1", 0)
OPTIONS = WriteOptions.parse({"scope": "s"}, Use.STREAM_WRITE)


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    made = FakeStreams(tmp_path)
    made.create("a", 3)
    made.create("b")
    return made


def rows(first: int, last: int, targets: list[str | None]) -> pa.RecordBatch:
    numbers = range(first, last)
    return pa.RecordBatch.from_pydict(
        {
            "event": pa.array([f"event {number:03}".encode() for number in numbers], pa.binary()),
            "routing_key": pa.array([f"{number % 5}" for number in numbers], pa.string()),
            "stream": pa.array([targets[number % len(targets)] for number in numbers], pa.string()),
        }
    )


def writer(
    streams: FakeStreams, identity: BatchIdentity = IDENTITY, partition: int = 0, streams_max: int = 64
) -> TransactionWriter:
    destinations = Destinations("s", None, streams_max)
    return TransactionWriter(
        streams.gateway,
        identity,
        destinations,
        COLUMNS,
        partition=partition,
        lease_ms=30_000,
        provision=provision_of(streams),
    )


def provision_of(streams: FakeStreams, options: WriteOptions = OPTIONS) -> Provision:
    def provision(scope: str, stream: str, is_lost: bool) -> None:
        provision_stream(streams.gateway, options, scope, stream, is_lost=is_lost)

    return provision


def committed(streams: FakeStreams, stream: str) -> list[int]:
    events = [event for events in streams.events(stream).values() for event in events]
    return sorted(int(event.split()[1]) for event in events)


def in_order(streams: FakeStreams, stream: str) -> bool:
    for events in streams.events(stream).values():
        for key in range(5):
            numbers = [int(event.split()[1]) for event in events if int(event.split()[1]) % 5 == key]
            if numbers != sorted(numbers):
                return False
    return True


class TestSplit:
    def test_rows_keep_their_order_and_lengths(self) -> None:
        batch = rows(0, 7, ["a", "other/b", "a"])
        lengths = event_lengths(batch.column(0))
        parts = list(Destinations("s", None).split(batch, COLUMNS, lengths))
        assert [part.stream for part in parts] == [("s", "a"), ("other", "b")]
        assert [part.rows.column(0).to_pylist() for part in parts] == [
            [b"event 000", b"event 002", b"event 003", b"event 005", b"event 006"],
            [b"event 001", b"event 004"],
        ]
        assert [len(part.lengths) for part in parts] == [5, 2]

    def test_both_spellings_of_a_stream_are_one(self, streams: FakeStreams) -> None:
        message = writer(streams).write([rows(0, 10, ["a", "s/a"])])
        assert len(message.members) == 1
        commit_batch(streams.gateway, OPTIONS, [message], 0)
        assert in_order(streams, "a")

    def test_rows_without_a_destination(self, streams: FakeStreams) -> None:
        with pytest.raises(InvalidArgument, match="2 of 6 rows have null in column 'stream'"):
            writer(streams).write([rows(0, 6, ["a", None, "b"])])

    @pytest.mark.parametrize("name", ["", "a b", "s/", "/a", "s/a/b"])
    def test_names_that_are_none(self, streams: FakeStreams, name: str) -> None:
        with pytest.raises(InvalidArgument, match=r"column 'stream' holds '.*', which is no stream"):
            writer(streams).write([rows(0, 2, [name])])

    def test_too_many_streams_in_one_task(self, streams: FakeStreams) -> None:
        with pytest.raises(InvalidArgument, match="more than 2 streams, s/c is one too many; repartition by column"):
            writer(streams, streams_max=2).write([rows(0, 2, ["a", "b"]), rows(2, 3, ["c"])])
        assert set(streams.gateway.transaction_states().values()) == {"aborted"}


class TestExactlyOnce:
    def batch(self, streams: FakeStreams, identity: BatchIdentity = IDENTITY, last: int = 60) -> list[TaskMessage]:
        return [
            writer(streams, identity, partition).write(
                [rows(partition * 30, min(last, partition * 30 + 30), ["a", "b"])]
            )
            for partition in range(2)
        ]

    def test_all_streams_of_a_batch_in_one_set(self, streams: FakeStreams) -> None:
        messages = self.batch(streams)
        assert committed(streams, "a") == committed(streams, "b") == []
        commit_batch(streams.gateway, OPTIONS, messages, 0)
        assert committed(streams, "a") == list(range(0, 60, 2))
        assert committed(streams, "b") == list(range(1, 60, 2))
        assert in_order(streams, "a")
        recorded, _ = streams.gateway.transaction_set(IDENTITY.sink, 0)
        assert (recorded.state, recorded.events, len(recorded.members)) == (SetState.FINISHED, 60, 4)
        assert sum(member.events for member in recorded.members) == 60
        assert sum(member.bytes for member in recorded.members) == recorded.bytes

    def test_a_replay_writes_to_none_of_them(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, OPTIONS, self.batch(streams), 0)
        again = self.batch(streams, replace(IDENTITY, run_id="run-2"))
        assert [(message.events, message.members) for message in again] == [(30, ()), (30, ())]
        commit_batch(streams.gateway, OPTIONS, again, 0)
        with pytest.raises(ReplayDiffers):
            commit_batch(streams.gateway, OPTIONS, self.batch(streams, replace(IDENTITY, run_id="run-2"), last=59), 0)
        assert committed(streams, "b") == list(range(1, 60, 2))

    def test_abort_ends_the_transactions_of_all_streams(self, streams: FakeStreams) -> None:
        abort_batch(streams.gateway, self.batch(streams))
        assert list(streams.gateway.transaction_states().values()) == ["aborted"] * 4

    def test_one_stream_that_is_gone_refuses_the_batch(self, streams: FakeStreams) -> None:
        messages = self.batch(streams)
        streams.gateway.abort_transaction("s", "b", messages[0].members[1].transaction_id)
        with pytest.raises(Exception, match="nothing of it is readable"):
            commit_batch(streams.gateway, OPTIONS, messages, 0)
        assert committed(streams, "a") == []

    def test_streams_that_are_missing_are_made(self, streams: FakeStreams) -> None:
        commit_batch(streams.gateway, OPTIONS, [writer(streams).write([rows(0, 4, ["new", "later/new"])])], 0)
        assert committed(streams, "new") == [0, 2]
        assert streams.gateway.list_streams("later") == ["new"]

    def test_a_stream_that_this_process_knew_before_it_was_deleted_is_made(self, streams: FakeStreams) -> None:
        """A worker of Spark outlives queries, and streams."""
        commit_batch(streams.gateway, OPTIONS, self.batch(streams), 0)
        streams.gateway.delete_stream("s", "b")
        after = BatchIdentity(IDENTITY.sink, IDENTITY.run_id, 1)
        commit_batch(streams.gateway, OPTIONS, self.batch(streams, after), 1)
        assert (len(committed(streams, "a")), len(committed(streams, "b"))) == (60, 30)


def test_at_least_once(streams: FakeStreams) -> None:
    task = MultiStreamWriter(streams.gateway, Destinations("s", None), COLUMNS)
    message = task.write([rows(0, 50, ["a", "b"]), rows(50, 100, ["b", "a"])])
    assert message.events == 100
    assert committed(streams, "a") == [*range(0, 50, 2), *range(51, 100, 2)]
    assert sorted(committed(streams, "a") + committed(streams, "b")) == list(range(100))
    assert in_order(streams, "a")


def test_at_least_once_into_a_stream_that_was_deleted_meanwhile(streams: FakeStreams) -> None:
    for _ in range(2):
        streams.gateway.delete_stream("s", "b")
        task = MultiStreamWriter(streams.gateway, Destinations("s", None), COLUMNS, provision_of(streams))
        assert task.write([rows(0, 10, ["b"])]).events == 10
    assert committed(streams, "b") == list(range(10))
    streams.gateway.delete_stream("s", "b")
    refused = WriteOptions.parse({"scope": "s", "allow_create_stream": "false"}, Use.STREAM_WRITE)
    task = MultiStreamWriter(streams.gateway, Destinations("s", None), COLUMNS, provision_of(streams, refused))
    with pytest.raises(ConfigurationError, match="stream does not exist: 's/b'"):
        task.write([rows(0, 10, ["b"])])


class TestOptions:
    def columns_of(self, streams: FakeStreams, ddl: str, **given: str) -> SinkColumns | RecordColumns:
        from pyspark.sql.types import StringType, StructType

        schema = StructType()
        for name in ddl.split():
            schema = schema.add(name, StringType())
        options = {"controller": streams.controller, "scope": "s", **given}
        return batch_writer(options, schema, overwrite=False)._columns

    def test_the_option_goes_before_the_column(self, streams: FakeStreams) -> None:
        """Rows read from a stream have a column of that name."""
        assert self.columns_of(streams, "event stream") == SinkColumns(0, None, 1)
        assert self.columns_of(streams, "event stream", stream="a") == SinkColumns(0, None)

    def test_neither(self, streams: FakeStreams) -> None:
        with pytest.raises(
            ConfigurationError, match=r"missing required option 'stream'.* or a column 'stream' that says"
        ):
            self.columns_of(streams, "event")

    def test_the_sink_of_a_whole_scope(self) -> None:
        assert OPTIONS.destination == "s/*"
        assert WriteOptions.parse({"scope": "s", "stream": "t"}, Use.BATCH_WRITE).destination == "s/t"


def test_too_many_transaction_segments_are_told_once(streams: FakeStreams, caplog: pytest.LogCaptureFixture) -> None:
    sink = Sink("wide", "s/a")
    with caplog.at_level(logging.WARNING):
        for number, segments in enumerate([segments_advised_max, segments_advised_max + 1, segments_advised_max + 1]):
            message = TaskMessage(BatchIdentity(sink, "run", number), 0, 0, 0, (), segments)
            commit_batch(streams.gateway, OPTIONS, [message], number)
    (record,) = [item for item in caplog.records if "transaction segments" in item.getMessage()]
    assert "batch 1 of wide" in record.getMessage()
    assert "coalesce(n)" in record.getMessage()
    assert "spark.sql.shuffle.partitions" in record.getMessage()


def test_a_task_tells_how_many_segments_it_has(streams: FakeStreams) -> None:
    assert writer(streams).write([rows(0, 10, ["a", "b"])]).segments == 4
