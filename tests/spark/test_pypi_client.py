"""Checks that Spark and the unmodified PyPI client ``pravega`` read each other's events."""

from __future__ import annotations

import asyncio

import pravega_client

from tests.spark.streams import Streams
from tests.support.rust_client import rust_stream_manager

read_time_max_s = 60.0


async def read_group(manager: pravega_client.StreamManager, scope: str, stream: str, count: int) -> list[str]:
    reader = manager.create_reader_group("group", scope, stream).create_reader("reader")
    events: list[str] = []
    async with asyncio.timeout(read_time_max_s):
        while len(events) < count:
            piece = await reader.get_segment_slice_async()
            events += [event.data().decode() for event in piece]
            reader.release_segment(piece)
    reader.reader_offline()
    return events


async def test_it_reads_what_spark_wrote(streams: Streams) -> None:
    streams.fill("t", 0, 500, default_num_segments=2)
    streams.fill("from", 500, 600)
    streams.run(streams.stream("from").load().select("event"), "t")
    manager = rust_stream_manager(streams.controller)
    got = await read_group(manager, streams.scope, "t", 600)
    assert sorted(got) == [f"{number:06}" for number in range(600)]


def test_spark_reads_what_it_wrote(streams: Streams) -> None:
    streams.create("t", 2)
    manager = rust_stream_manager(streams.controller)
    writer = manager.create_writer(streams.scope, "t")
    for number in range(300):
        writer.write_event(f"{number:06}", routing_key=f"k{number % 10}")
    writer.flush()
    transactions = manager.create_transaction_writer(streams.scope, "t", 1)
    transaction = transactions.begin_txn()
    for number in range(300, 310):
        transaction.write_event(f"{number:06}", routing_key="k")
    assert streams.numbers("t") == list(range(300))
    transaction.commit()
    query = streams.collect(streams.stream("t").load(), "pypi")
    while len(streams.collected("pypi")) < 310:
        query.processAllAvailable()
    assert sorted(int(event) for event in streams.collected("pypi")) == list(range(310))


async def test_keys_mean_the_same_segment_to_both(streams: Streams) -> None:
    streams.create("t", 4)
    manager = rust_stream_manager(streams.controller)
    writer = manager.create_writer(streams.scope, "t")
    for number in range(40):
        writer.write_event(f"{number:06}", routing_key=f"k{number % 10}")
    writer.flush()
    streams.write(streams.rows(40, 80), "t")
    rows = streams.read("t").selectExpr("cast(cast(event as string) as int) % 10 as key", "segment_id").distinct()
    assert rows.count() == 10
