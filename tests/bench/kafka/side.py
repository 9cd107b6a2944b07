"""Makes topics, and drives Spark's Kafka connector with options for throughput."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession

from tests.bench import workload
from tests.bench.sides import Event, offset_json
from tests.bench.stamps import stamp_of

answer_time_max_s: Final = 30.0
poll_s: Final = 0.05
SINK_TUNED: Final = {"batch.size": 1 << 20, "linger.ms": 20, "buffer.memory": 128 << 20, "acks": "all"}
"""Producer batches as large as our blocks; the client's own are 16 KiB, sent at once."""
SOURCE_TUNED: Final = {
    "max.partition.fetch.bytes": 16 << 20,
    "fetch.max.bytes": 64 << 20,
    "max.poll.records": 20_000,
    "receive.buffer.bytes": 1 << 20,
}


class KafkaSide:
    """One broker by Spark's Kafka connector."""

    name = "kafka"

    def __init__(self, bootstrap: str) -> None:
        self.address = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._numbers = itertools.count()

    def new_target(self, kind: str, partitions: int = workload.partitions) -> str:
        topic = f"{kind}-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(answer_time_max_s)
        deadline_s = time.monotonic() + answer_time_max_s
        while topic not in (known := self._admin.list_topics(timeout=answer_time_max_s).topics) or (
            len(known[topic].partitions) < partitions
        ):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"topic {topic} did not appear within {answer_time_max_s:.0f} s")
            time.sleep(poll_s)
        return topic

    def drop(self, target: str) -> None:
        self._admin.delete_topics([target])[target].result(answer_time_max_s)

    def rows(self, generated: DataFrame) -> DataFrame:
        return generated.selectExpr("routing_key as key", "event as value")

    def writer(self, builder: Any, target: str) -> Any:
        return builder.format("kafka").options(**self._options(SINK_TUNED), topic=target)

    def read(self, builder: Any, target: str, *, full: bool) -> DataFrame:
        reader = builder.format("kafka").options(**self._options(SOURCE_TUNED), subscribe=target)
        frame: DataFrame = reader.option("startingOffsets", "earliest").load()
        return frame.select("key", "value") if full else frame.select("value")

    def _options(self, tuned: Mapping[str, object]) -> dict[str, str]:
        given = {"bootstrap.servers": self.address, **tuned}
        return {f"kafka.{name}": str(value) for name, value in given.items()}

    def stamped_events(self, spark: SparkSession, target: str) -> Iterator[Event]:
        reader = spark.read.format("kafka").options(**self._options(SOURCE_TUNED), subscribe=target)
        frame = reader.load().selectExpr("partition", "offset", "substring(value, 1, 8) s")
        return ((row.partition, row.offset, stamp_of(row.s)) for row in frame.collect())

    def batch_positions(self, progress: Mapping[str, Any], target: str) -> dict[int, int]:
        end = offset_json(progress["sources"][0]["endOffset"])
        return {int(partition): offset for partition, offset in end[target].items()}

    def close(self) -> None:
        """Before the broker ends: the client would look for it."""
        del self._admin
