"""Writes streams on running services: a query's rows are there exactly once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from pravega_common.errors import AccessDenied
from pravega_common.model.transaction_sets import SetState, Sink
from pravega_spark.ledger.batch import BatchIdentity, BatchRegistration
from pravega_spark.sink.sink_secret import FILE_NAME
from pravega_streams.client import StreamClient
from tests.spark.streams import Streams


def source(streams: Streams) -> DataFrame:
    rows = streams.stream("from").load()
    return rows.selectExpr("event", "concat('k', cast(cast(event as string) as int) % 10) as routing_key")


def test_two_batches_with_and_without_keys(streams: Streams) -> None:
    streams.create("from", 2)
    for name, rows in (("keyed", source(streams)), ("plain", streams.stream("from").load().select("event"))):
        for last in (100, 200):
            if name == "keyed":
                streams.fill("from", last - 100, last)
            streams.run(rows, name, name, default_num_segments=3)
        assert streams.numbers(name) == list(range(200))


def test_the_decision_is_recorded_under_the_query(streams: Streams) -> None:
    streams.fill("from", 0, 100, default_num_segments=2)
    query = streams.run(source(streams), "to")
    recorded, last = streams.gateway.transaction_set(Sink(query.id, f"{streams.scope}/to"), 0)
    assert (recorded.state, recorded.events, last) == (SetState.FINISHED, 100, 0)
    assert recorded.run_id == query.runId


def test_a_sink_is_listed_with_the_name_of_its_query(streams: Streams) -> None:
    """The name that its last batch had: another one is taken, and none is taken as well."""
    for number, name in enumerate(("orders", "bills", "")):
        streams.fill("from", 10 * number, 10 * number + 10)
        query = streams.run(source(streams), "to", **({"queryName": name} if name else {}))
        with StreamClient(streams.controller) as client:
            (sink,) = [item.sink for item in client.sets.list_sinks() if item.sink.query_id == query.id]
        assert (query.name or "", sink.label) == (name, name)
    assert streams.numbers("to") == list(range(30))


def test_a_batch_that_spark_forgot_is_not_written_again(streams: Streams, tmp_path: Path) -> None:
    """The driver died between our commit and Spark's own commit file."""
    streams.fill("from", 0, 100, default_num_segments=2)
    streams.run(source(streams), "to")
    for file in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        file.unlink()
    for file in (tmp_path / "checkpoint" / "commits").glob(".*"):
        file.unlink()
    streams.fill("from", 100, 150)
    streams.run(source(streams), "to")
    assert streams.numbers("to") == list(range(150))


def test_a_checkpoint_that_went_back_stops_the_query(streams: Streams, tmp_path: Path) -> None:
    streams.fill("from", 0, 10)
    streams.run(source(streams), "to")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "old")
    for last in (20, 30):
        streams.fill("from", last - 10, last)
        streams.run(source(streams), "to")
    with pytest.raises(StreamingQueryException, match="the checkpoint is older than the stream"):
        streams.run(source(streams), "to", "old")
    assert streams.numbers("to") == list(range(30))


def test_another_machine_goes_on_with_the_checkpoint_and_a_stranger_does_not(streams: Streams, tmp_path: Path) -> None:
    """The stranger has everything of the checkpoint but the secret, and so another one."""
    streams.fill("from", 0, 10)
    query = streams.run(source(streams), "to")
    for copy in ("moved", "stolen"):
        shutil.copytree(tmp_path / "checkpoint", tmp_path / copy)
    (tmp_path / "stolen" / FILE_NAME).unlink()
    streams.fill("from", 10, 20)
    with pytest.raises(StreamingQueryException, match="shows another secret than the run that made it"):
        streams.run(source(streams), "to", "stolen")
    assert streams.run(source(streams), "to", "moved").id == query.id
    with pytest.raises(AccessDenied):
        streams.gateway.register_transactions(
            BatchRegistration(BatchIdentity(Sink(query.id, f"{streams.scope}/to"), "stranger", 2**63 - 1), ())
        )
    streams.fill("from", 20, 30)
    streams.run(source(streams), "to", "moved")
    assert streams.numbers("to") == list(range(30))
    secret = (tmp_path / "moved" / FILE_NAME).read_text().split()[2]
    shown = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert {path.name for path in shown} == {FILE_NAME}


def test_two_queries_into_one_stream(streams: Streams) -> None:
    streams.fill("from", 0, 100)
    streams.run(source(streams), "to", "first")
    streams.run(source(streams), "to", "second")
    assert streams.numbers("to") == sorted([*range(100), *range(100)])


def test_a_deleted_checkpoint_is_a_new_sink(streams: Streams, tmp_path: Path) -> None:
    streams.fill("from", 0, 100)
    streams.run(source(streams), "to")
    shutil.rmtree(tmp_path / "checkpoint")
    streams.run(source(streams), "to")
    assert streams.numbers("to") == sorted([*range(100), *range(100)])


def test_at_least_once(streams: Streams) -> None:
    streams.fill("from", 0, 300, default_num_segments=2)
    streams.run(source(streams), "to", exactly_once="false", default_num_segments=2)
    assert streams.numbers("to") == list(range(300))


def test_without_waiting_for_readers(streams: Streams) -> None:
    streams.fill("from", 0, 100)
    streams.run(source(streams), "to", read_after_write_consistency="false")
    for _ in range(100):
        if len(streams.numbers("to")) == 100:
            return
    pytest.fail("a committed batch never came to its readers")


def test_scale_of_the_target_between_batches(streams: Streams) -> None:
    streams.create("from")
    streams.create("to")
    for step in range(3):
        streams.fill("from", step * 100, step * 100 + 100)
        streams.run(source(streams), "to")
        if step == 0:
            streams.gateway.scale_stream(streams.scope, "to", [0], [(0.0, 0.5), (0.5, 1.0)])
    assert streams.numbers("to") == list(range(300))


def test_aggregation_with_append(streams: Streams) -> None:
    streams.fill("from", 0, 100)

    def write(rows: DataFrame, batch_id: int) -> None:
        counted = rows.groupBy("routing_key").count().selectExpr("to_json(struct(*)) as event")
        streams.write(counted, "to", txn_app_id="counts", txn_version=batch_id)

    query = (
        source(streams)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(streams.folder / "counts"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert streams.read("to").count() == 10


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("event as text", "required attribute 'event' not found"),
        ("1 as event", "event attribute type must be a string or binary"),
        ("event, true as routing_key", "routing_key attribute type must be a string or binary or tinyint"),
    ],
)
def test_wrong_columns(streams: Streams, columns: str, message: str) -> None:
    streams.fill("from", 0, 10)
    with pytest.raises(Exception, match=message):
        streams.run(streams.stream("from").load().selectExpr(*columns.split(", ")), "to")


def test_complete_mode_is_refused(streams: Streams) -> None:
    streams.fill("from", 0, 10)
    counted = source(streams).groupBy("routing_key").count().selectExpr("to_json(struct(*)) as event")
    writer = counted.writeStream.format("pravega").outputMode("complete").options(**streams.options("to"))
    with pytest.raises(Exception, match=r"output mode complete would write the whole result .* use append, or foreach"):
        writer.option("checkpointLocation", str(streams.folder / "x")).trigger(
            availableNow=True
        ).start().awaitTermination(60)


def test_null_events_stop_the_query(streams: Streams) -> None:
    streams.fill("from", 0, 10)
    rows = streams.stream("from").load().selectExpr("if(cast(event as string) = '000003', null, event) as event")
    with pytest.raises(StreamingQueryException, match="1 of 10 events are null"):
        streams.run(rows, "to")
    assert streams.numbers("to") == []


def test_rows_that_name_their_stream(streams: Streams) -> None:
    """One batch writes several streams, one of them of another scope, and they are decided together under the query."""
    streams.fill("from", 0, 100, default_num_segments=2)
    number = "cast(cast(event as string) as int)"
    rows = streams.stream("from").load()
    target = f"case {number} % 3 when 0 then 'a' when 1 then '{streams.scope}/b' else '{streams.scope}-2/c' end"
    rows = rows.selectExpr("event", f"concat('k', {number} % 10) as routing_key", f"{target} as stream")
    options = streams.options("", default_num_segments=2)
    del options["stream"]
    for expected in (100, 150):
        writer = rows.writeStream.format("pravega").options(**options)
        query = writer.option("checkpointLocation", str(streams.folder / "split")).trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        assert streams.numbers("a") == list(range(0, expected, 3))
        assert streams.numbers("b") == list(range(1, expected, 3))
        assert streams.numbers("c", scope=f"{streams.scope}-2") == list(range(2, expected, 3))
        streams.fill("from", 100, 150)
    recorded, last = streams.gateway.transaction_set(Sink(query.id, f"{streams.scope}/*"), 1)
    assert (recorded.state, recorded.events, last) == (SetState.FINISHED, 50, 1)
    assert {member.stream for member in recorded.members} == {"a", "b", "c"}
