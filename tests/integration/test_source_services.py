"""Checks the source's rules on running services, driven as Spark drives it: limits, time, deletion, scaling."""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections.abc import Iterator
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from pravega_common.errors import DataCorruption
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from pravega_common.stream_cut import StreamCut
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.filtering_batch_reader import FilteringBatchReader
from pravega_spark.source.stream_reader import StreamReader
from pravega_spark.standalone.process import StandaloneProcess
from tests.support.cluster import cluster
from tests.support.eventually import eventually
from tests.unit.pravega_spark.source.queries import Query, numbered

__all__ = ["cluster"]

SCHEMA = pa.schema([("event", pa.binary()), ("offset", pa.int64())])


class World:
    def __init__(self, controller: str) -> None:
        self.controller = controller
        self.gateway = ServiceGateway(controller)
        self.scope = f"scope-{uuid.uuid4().hex[:8]}"
        self.gateway.create_scope(self.scope)

    def create(self, segments: int = 1) -> None:
        self.gateway.create_stream(self.scope, "t", StreamConfiguration(ScalingPolicy.fixed(segments)))

    def append(self, segment_id: int, events: list[bytes], block: int = 1000) -> None:
        """Appends the events, ``block`` of them at once."""
        writer = self.gateway.open_writer(segment_name(self.scope, "t", segment_id))
        for first in range(0, len(events), block):
            piece = events[first : first + block]
            data = b"".join(struct.pack(">ii", 0, len(event)) + event for event in piece)
            writer.write(memoryview(data), len(piece))
            writer.flush()
        writer.close()

    def given(self, **more: str) -> dict[str, str]:
        return {"controller": self.controller, "scope": self.scope, "stream": "t", **more}

    def query(self, **more: str) -> Query:
        if "start_time" not in more:
            more.setdefault("start_stream_cut", "earliest")
        return Query(StreamReader(ReadOptions.parse(self.given(**more), Use.STREAM_READ), SCHEMA))

    def batch(self, kind: type[BatchReader] = BatchReader, **more: str) -> BatchReader:
        return kind(ReadOptions.parse(self.given(**more), Use.BATCH_READ), SCHEMA)


def rows(reader: BatchReader) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


@pytest.fixture
def world(cluster: StandaloneProcess) -> Iterator[World]:
    made = World(cluster.controller_uri)
    yield made
    made.gateway.close()


def test_event_limits_are_exact(world: World) -> None:
    """They are exact inside blocks too, and before the index knows the last block."""
    world.create(2)
    world.append(0, numbered(0, 9000))
    world.append(1, numbered(9000, 10000))
    query = world.query(max_events_per_trigger="2500", packed_bytes="0")
    sizes, events = [], []
    while (step := query.step()) is not None:
        sizes.append([len(part) for part in step])
        events += [event for part in step for event in part]
    assert sizes[0] == [2250, 250]
    assert [sum(parts) for parts in sizes] == [2500] * 4
    assert sorted(events) == sorted(numbered(0, 10000))
    assert [event for event in events if event < b"event-9000" and len(event) == 10] == numbered(0, 9000)
    reported = query.source.reportLatestOffset()
    assert reported is not None and (reported["lag_bytes"], reported["lag_events"]) == (0, 0)


def test_a_small_micro_batch_is_one_partition(world: World) -> None:
    """It has the events of both segments, and its limit is as exact as with a partition a segment."""
    world.create(2)
    world.append(0, numbered(0, 900))
    world.append(1, numbered(900, 1000))
    query = world.query(max_events_per_trigger="500")
    first, second = query.step(), query.step()
    assert first is not None and second is not None
    assert [len(part) for part in first] == [500] and [len(part) for part in second] == [500]
    assert sorted(first[0] + second[0]) == sorted(numbered(0, 1000))


def test_an_event_ends_the_pause_of_an_idle_source(world: World) -> None:
    """The source learns of it from the store: its pauses are never slept through."""
    world.create(3)
    moved_s = [0.0]

    def slept(delay_s: float) -> None:
        raise AssertionError(f"slept for {delay_s} s")

    options = ReadOptions.parse(world.given(start_stream_cut="earliest"), Use.STREAM_READ)
    query = Query(StreamReader(options, SCHEMA, lambda: time.monotonic() + moved_s[0], slept))
    query.step()
    for number in range(3):
        for _ in range(2):  # A look that finds nothing, and one long behind it.
            assert query.step() is None
            moved_s[0] += 600.0
        assert query.step() is None
        timer = Timer(0.1, lambda number=number: world.append(number, numbered(0, 3)))
        timer.start()
        steps = (query.step() for _ in range(60))  # Half a minute; the first of them on a machine with time.
        assert next(step for step in steps if step is not None) == [numbered(0, 3)]
        timer.join()


async def test_what_is_left_in_events(world: World) -> None:
    """About, and exactly as soon as the index knows all."""
    world.create()
    world.append(0, numbered(0, 9000))
    query = world.query(max_events_per_trigger="1000")
    query.step()

    def is_reported() -> bool:
        query.source.latestOffset(json.loads(query.log[-1]), query.source.getDefaultReadLimit())
        said = query.source.reportLatestOffset()
        assert said is not None and said["lag_bytes"] == 7000 * 18
        return bool(abs(said["lag_events"] - 7000) <= 100)

    await eventually(is_reported)


def test_by_time(world: World) -> None:
    world.create()
    world.append(0, numbered(0, 5000))
    # The index knows the time of a record by the store's own clock: the halves must lie apart.
    time.sleep(1.5)
    middle_ms = time.time_ns() // 1_000_000 - 500
    (low, high) = world.gateway.scale_stream(world.scope, "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    world.append(low.segment_id, numbered(5000, 7000))
    world.append(high.segment_id, numbered(7000, 9000))
    for reader in (
        lambda **given: [row[0] for row in rows(world.batch(**given))],
        lambda **given: world.query(**given).all(),
    ):
        assert sorted(reader(start_time=str(middle_ms))) == numbered(5000, 9000)
        before = sorted(reader(start_time="0", end_time=str(middle_ms)))
        assert before[:5000] == numbered(0, 5000)
        assert len(before) <= 9000


def test_deleted_and_created_anew(world: World) -> None:
    world.create(2)
    world.append(0, numbered(0, 40))
    query = world.query()
    assert query.all() == numbered(0, 40)
    going_on = world.query(fail_on_data_loss="false")
    going_on.log = list(query.log)
    world.gateway.seal_stream(world.scope, "t")
    world.gateway.delete_stream(world.scope, "t")
    with pytest.raises(
        DataCorruption, match=r"was lost before it was read: segment 0\.#epoch\.0 from offset 720, the segment is"
    ):
        query.step()
    assert going_on.step() is None
    world.create(3)
    with pytest.raises(
        DataCorruption, match=r"was deleted and made again, .* segment 0\.#epoch\.0 was to be read from offset 720"
    ):
        query.step()
    first = min(world.gateway.head_cut(world.scope, "t"))
    world.append(first, numbered(40, 60))
    assert going_on.all() == numbered(40, 60)
    assert going_on.step() is None


def test_truncated(world: World) -> None:
    world.create()
    world.append(0, numbered(0, 40))
    query = world.query(max_events_per_trigger="10")
    query.step()
    going_on = world.query(fail_on_data_loss="false", max_events_per_trigger="10")
    going_on.log = list(query.log)
    world.gateway.truncate_stream(world.scope, "t", {0: 25 * 18})
    with pytest.raises(
        DataCorruption, match=r"segment 0\.#epoch\.0 from offset 180, the first offset available is 450"
    ):
        query.step()
    assert going_on.all() == numbered(25, 40)


def test_what_is_left_behind_a_scaling(world: World) -> None:
    world.create()
    world.append(0, numbered(0, 40))
    low, high = world.gateway.scale_stream(world.scope, "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    world.append(low.segment_id, numbered(40, 50))
    world.append(high.segment_id, numbered(50, 60))
    query = world.query(max_events_per_trigger="10")
    lags = []
    while query.step() is not None:
        reported = query.source.reportLatestOffset()
        assert reported is not None
        lags.append(reported["lag_bytes"] // 18)
    assert lags == [50, 40, 30, 20, 10, 0]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_an_end_before_what_is_left(world: World, fails: str) -> None:
    """Only events that were still to be read are lost: all before the end, or none once it was reached."""
    world.create()
    world.append(0, numbered(0, 40))
    world.gateway.truncate_stream(world.scope, "t", {0: 25 * 18})
    start, end = (StreamCut(world.scope, "t", {0: count * 18}).as_text() for count in (10, 20))
    given = {"end_stream_cut": end, "fail_on_data_loss": fails}
    assert world.query(start_stream_cut=end, **given).all() == []
    query = world.query(start_stream_cut=start, **given)
    if fails == "true":
        with pytest.raises(
            DataCorruption, match=r"segment 0\.#epoch\.0 from offset 180, the first offset available is 450"
        ):
            query.step()
    else:
        assert query.all() == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_deleted_before_a_batch_is_repeated(world: World, fails: str) -> None:
    world.create()
    world.append(0, numbered(0, 40), block=10)
    given = {"order": "none", "min_partitions": "4", "fail_on_data_loss": fails}
    query = world.query(**given)
    start = query.source.initialOffset()
    query.step()
    (second,) = world.gateway.scale_stream(world.scope, "t", [0], [(0.0, 1.0)])
    world.gateway.truncate_stream(world.scope, "t", {second.segment_id: 0})
    repeated = world.query(**given)
    if fails == "true":
        with pytest.raises(DataCorruption, match=r"segment 0\.#epoch\.0 from offset 0, the segment is deleted"):
            repeated.rows(start, json.loads(query.log[0]))
    else:
        assert [row for part in repeated.rows(start, json.loads(query.log[0])) for row in part] == []


def test_filters_on_offsets(world: World) -> None:
    world.create()
    world.append(0, [b"x" * 1000] * 2000, block=50)
    reader = world.batch(FilteringBatchReader)
    assert isinstance(reader, FilteringBatchReader)
    left = list(reader.pushFilters([GreaterThanOrEqual(("offset",), 1_008_000), LessThan(("offset",), 1_108_800)]))
    assert len(left) == 2
    offsets = [row[1] for row in rows(reader)]
    assert set(range(1_008_000, 1_108_800, 1008)) <= set(offsets)
    assert len(offsets) < 800


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"max_events_per_trigger": "700"}, marks=pytest.mark.long),
        {"approx_bytes_per_trigger": "30000", "max_events_per_trigger": "900"},
    ],
)
def test_scaling_with_limits_and_available_now(world: World, limits: dict[str, str]) -> None:
    world.create()
    world.append(0, numbered(0, 3000))
    low, high = world.gateway.scale_stream(world.scope, "t", [0], [(0.0, 0.5), (0.5, 1.0)])
    world.append(low.segment_id, numbered(3000, 5000))
    world.append(high.segment_id, numbered(5000, 6000))
    (merged,) = world.gateway.scale_stream(world.scope, "t", [low.segment_id, high.segment_id], [(0.0, 1.0)])
    world.append(merged.segment_id, numbered(6000, 8000))
    query = world.query(**limits)
    query.source.prepareForTriggerAvailableNow()
    world.append(merged.segment_id, numbered(8000, 9000))
    steps = []
    while (step := query.step()) is not None:
        steps.append([event for part in step for event in part])
        assert len(steps[-1]) <= int(limits["max_events_per_trigger"])
    events = [event for step in steps for event in step]
    assert sorted(events) == numbered(0, 8000)
    assert events[:3000] == numbered(0, 3000)
    assert events[6000:] == numbered(6000, 8000)
    for first, last in ((3000, 5000), (5000, 6000)):
        assert [event for event in events if numbered(first, last)[0] <= event < b"event-%04d" % last] == numbered(
            first, last
        )
    query.source.prepareForTriggerAvailableNow()
    assert query.all() == numbered(8000, 9000)
