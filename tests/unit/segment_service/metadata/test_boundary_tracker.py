"""The choice of boundaries, and its cost for an append."""

from __future__ import annotations

import pytest

from pravega_common.event_index import IndexRecord
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    INDEX_OWNER,
    INDEXED_LENGTH,
    INDEXED_TIME,
    MERGED_EVENT_COUNT,
)
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.boundary_tracker import (
    NOTHING_INDEXED,
    BoundaryTracker,
    ascending,
    indexed_bytes_min,
    last_record,
    marks_max,
)
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.index_segments import index_of, recover_boundaries

NAME = "scope/stream/0.#epoch.0"
KIB = 1024


class World:
    """A container's metadata with one segment, grown as commits do it; counts the calls into the tracker."""

    def __init__(self, name: str = NAME) -> None:
        self.metadata = ContainerMetadata(0)
        self.tracker: BoundaryTracker = self.metadata.boundaries
        self.segment = self.add(7, name)
        self.calls = 0
        self.grown = 0
        self.tracker.on_growth = self._grew

    def _grew(self) -> None:
        self.grown += 1

    def add(self, segment_id: int, name: str) -> SegmentMetadata:
        segment = SegmentMetadata(segment_id, name)
        self.metadata.segments[segment_id] = segment
        self.metadata.ids[name] = segment_id
        return segment

    def append(self, length: int, events: int = 1, time_ms: int = 5) -> None:
        segment = self.segment
        segment.length += length
        segment.last_modified_ms = time_ms
        segment.attributes[EVENT_COUNT] = segment.attributes.get(EVENT_COUNT, 0) + events
        if segment.length >= segment.next_boundary:
            self.calls += 1
            self.tracker.reached(segment)

    def merge(self, length: int, events: int, time_ms: int = 5) -> None:
        segment = self.segment
        segment.length += length
        segment.last_modified_ms = time_ms
        segment.attributes[MERGED_EVENT_COUNT] = segment.attributes.get(MERGED_EVENT_COUNT, 0) + events
        self.tracker.merged(segment)

    def records(self) -> list[IndexRecord]:
        return self.tracker.records(index_of(self.metadata, self.segment), self.segment)

    def write(self) -> list[IndexRecord]:
        """As the indexer does it, when the append is durable at once."""
        records = self.records()
        index = index_of(self.metadata, self.segment) or self.add(8, NAME + "#index")
        last = records[-1] if records else last_record(index)
        index.attributes |= {
            INDEX_OWNER: self.segment.segment_id,
            EVENT_COUNT: last.event_count,
            INDEXED_LENGTH: last.length,
            INDEXED_TIME: last.time_ms,
        }
        self.tracker.written(self.segment, last.length)
        return records


def test_small_appends_are_one_comparison_each() -> None:
    world = World()
    for _ in range(1_000):
        world.append(100)
    assert world.calls == 1 + 100_000 // indexed_bytes_min
    assert world.grown == 1
    assert [record.length for record in world.records()] == [65_600, 100_000]


def test_boundaries_are_ends_of_blocks_at_least_so_far_apart() -> None:
    world = World()
    for _ in range(40):
        world.append(10 * KIB, events=3)
    lengths = [record.length // KIB for record in world.write()]
    assert lengths == [70, 140, 210, 280, 350, 400]
    assert world.records() == []


def test_a_large_block_has_one_boundary_at_its_end() -> None:
    world = World()
    world.append(1 << 20, events=1_000)
    world.append(1 << 20, events=500)
    assert world.write() == [(1 << 20, 1_000, 5), (2 << 20, 1_500, 5)]


def test_the_end_of_a_quiet_segment_gets_its_record() -> None:
    world = World()
    world.append(10, events=2, time_ms=100)
    assert world.tracker.waiting(10) == [7]
    assert world.write() == [(10, 2, 100)]
    assert world.tracker.waiting(10) == []
    world.append(5, time_ms=110)
    assert world.grown == 2
    assert world.write() == [(15, 3, 110)]


def test_growth_while_records_are_written_waits_for_the_next_round() -> None:
    world = World()
    world.append(70 * KIB)
    taken = world.records()
    world.append(70 * KIB)
    world.append(10)
    world.add(8, NAME + "#index").attributes |= {INDEX_OWNER: 7, INDEXED_LENGTH: taken[-1].length, EVENT_COUNT: 1}
    world.tracker.written(world.segment, taken[-1].length)
    assert world.tracker.waiting(10) == [7]
    assert [record.length for record in world.write()] == [140 * KIB, 140 * KIB + 10]


def test_every_merge_is_a_boundary_and_brings_its_events() -> None:
    world = World()
    world.append(10, events=2)
    world.merge(100, events=7)
    world.append(10)
    world.merge(5, events=1)
    assert world.write() == [(110, 9, 5), (125, 11, 5)]
    assert world.segment.attributes[EVENT_COUNT] == 3


@pytest.mark.parametrize(
    "name",
    [
        "s",
        "_system/_requeststream/0.#epoch.0",
        "scope/_MARKstream/0.#epoch.0",
        "scope/_RGgroup/0.#epoch.0",
        "scope/group_kvtable/0.#epoch.0",
        f"{NAME}#transaction.{'0' * 32}",
        f"{NAME}#transient.{'0' * 32}.{'0' * 32}",
        f"{NAME}#index",
        "scope/stream/0",
    ],
)
def test_other_segments_are_asked_about_once(name: str) -> None:
    world = World(name)
    for _ in range(10):
        world.append(1 << 20)
    world.merge(100, events=1)
    assert (world.calls, world.grown, len(world.tracker)) == (1, 0, 0)


def test_counts_and_times_never_go_back() -> None:
    world = World()
    world.append(70 * KIB, events=10, time_ms=1_000)
    world.write()
    world.segment.attributes[EVENT_COUNT] = 3
    world.append(70 * KIB, events=1, time_ms=900)
    assert world.write() == [(140 * KIB, 10, 1_000)]


def test_what_waits_is_bounded() -> None:
    world = World()
    for _ in range(3 * marks_max):
        world.append(indexed_bytes_min)
    records = world.records()
    assert marks_max // 2 <= len(records) <= marks_max
    assert records[-1].length == 3 * marks_max * indexed_bytes_min
    assert all(record.event_count == record.length // indexed_bytes_min for record in records)


def test_recovery_finds_what_is_missing_and_what_is_left_over() -> None:
    world = World()
    world.append(70 * KIB)
    world.write()
    world.append(10)
    other = world.add(9, "scope/other/0.#epoch.0")
    other.length = 50  # as a checkpoint had it: nobody replayed an append
    bare = world.add(10, "scope/bare/0.#epoch.0")
    done = world.add(12, "scope/done/0.#epoch.0")
    world.add(13, "scope/done/0.#epoch.0#index").attributes[INDEX_OWNER] = 12
    orphan = world.add(11, "scope/gone/0.#epoch.0#index")
    tracker = world.metadata.boundaries = BoundaryTracker()
    assert recover_boundaries(world.metadata) == [orphan.name]
    assert sorted(tracker.waiting(10)) == [7, 9, 10]
    assert tracker.records(index_of(world.metadata, world.segment), world.segment) == [(70 * KIB + 10, 2, 5)]
    assert tracker.records(index_of(world.metadata, other), other) == [(50, 0, 0)]
    assert tracker.records(index_of(world.metadata, bare), bare) == []
    assert done.next_boundary == 1


def test_an_index_of_an_earlier_segment_of_the_name_does_not_count() -> None:
    world = World()
    world.append(10)
    world.add(8, NAME + "#index").attributes |= {INDEX_OWNER: 3, INDEXED_LENGTH: 1_000_000, EVENT_COUNT: 99}
    assert index_of(world.metadata, world.segment) is None
    assert world.records() == [(10, 1, 5)]


def test_a_segment_that_was_given_up_begins_again() -> None:
    world = World()
    world.append(70 * KIB)
    world.tracker.given_up(world.segment)
    assert len(world.tracker) == 0
    world.append(1)
    assert world.records() == [(70 * KIB + 1, 2, 5)]


def test_ascending_drops_what_is_known() -> None:
    records = [IndexRecord(5, 1, 1), IndexRecord(5, 1, 1), IndexRecord(4, 9, 9), IndexRecord(6, 0, 0)]
    assert ascending(NOTHING_INDEXED, records) == [(5, 1, 1), (6, 1, 1)]
    assert ascending(IndexRecord(5, 7, 8), records) == [(6, 7, 8)]
