"""Defines the calls of a bench on a store and its Spark connector; ours here, Kafka's in ``kafka/side.py``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_streams.client import StreamClient
from tests.bench import workload
from tests.bench.stamps import stamp_of

SCOPE: Final = "bench"
Event = tuple[int, int, float]
"""Partition, position within it, stamp."""


class Side(Protocol):
    """A target is a stream or a topic. Spark's readers and writers are given as they come from the session."""

    name: str
    address: str

    def new_target(self, kind: str, partitions: int = workload.partitions) -> str:
        """An empty one; ``kind`` is part of its name."""
        ...

    def drop(self, target: str) -> None: ...

    def rows(self, generated: DataFrame) -> DataFrame:
        """The columns ``routing_key`` and ``event`` under the names that the sink wants."""
        ...

    def writer(self, builder: Any, target: str) -> Any:
        """A ``DataFrameWriter`` or ``DataStreamWriter`` that goes to the target."""
        ...

    def read(self, builder: Any, target: str, *, full: bool) -> DataFrame:
        """All of the target, by ``spark.read`` or ``spark.readStream``; not ``full``: the events' bytes alone."""
        ...

    def stamped_events(self, spark: SparkSession, target: str) -> Iterator[Event]: ...

    def batch_positions(self, progress: Mapping[str, Any], target: str) -> dict[int, int]:
        """The end of a batch in each partition."""
        ...

    def close(self) -> None: ...


class PravegaSide:
    """Our services by our connector, with the options it has by default; ``ca_file`` for services with TLS."""

    def __init__(self, controller: str, *, name: str = "ours", ca_file: str = "") -> None:
        self.name = name
        self.address = controller
        self._trust = {"ca_file": ca_file} if ca_file else {}
        self.client = StreamClient(controller, ca_file=ca_file)
        self._numbers = itertools.count()

    def new_target(self, kind: str, partitions: int = workload.partitions) -> str:
        stream = f"{kind}-{next(self._numbers)}"
        self.client.controller.create_scope(SCOPE)
        self.client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(partitions)))
        return stream

    def drop(self, target: str) -> None:
        self.client.controller.seal_stream(SCOPE, target)
        self.client.controller.delete_stream(SCOPE, target)

    def rows(self, generated: DataFrame) -> DataFrame:
        return generated

    def writer(self, builder: Any, target: str) -> Any:
        return builder.format("pravega").options(**self.options(target))

    def read(self, builder: Any, target: str, *, full: bool) -> DataFrame:
        reader = builder.format("pravega").options(**self.options(target)).option("start_stream_cut", "earliest")
        frame: DataFrame = (reader if full else reader.schema("event binary")).load()
        return frame

    def options(self, target: str) -> dict[str, str]:
        return {"controller": self.address, **self._trust, "scope": SCOPE, "stream": target}

    def stamped_events(self, spark: SparkSession, target: str) -> Iterator[Event]:
        frame = self.read(spark.read, target, full=True).selectExpr("segment_id", "offset", "substring(event, 1, 8) s")
        return ((row.segment_id, row.offset, stamp_of(row.s)) for row in frame.collect())

    def batch_positions(self, progress: Mapping[str, Any], target: str) -> dict[int, int]:
        end = offset_json(progress["sources"][0]["endOffset"])
        return {int(segment): offset for segment, offset in end["streams"][f"{SCOPE}/{target}"].items()}

    def close(self) -> None:
        self.client.close()


def offset_json(offset: Any) -> dict[str, Any]:
    """Spark gives a source's offset as an object or as its text."""
    parsed: dict[str, Any] = json.loads(offset) if isinstance(offset, str) else offset
    return parsed
