"""Recovery from logs that do not fit, and what it takes from which checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.time_slices import slice_s
from pravega_common.services.base import Service
from segment_service.cache.in_memory import InMemoryCacheStorage
from segment_service.cache.manager import CacheManager
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.contracts.operations import (
    Append,
    Barrier,
    Checkpoint,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
)
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.data_frame_builder import DataFrameBuilder
from segment_service.durable_log.memory_log import MemoryLog
from segment_service.durable_log.memory_state import MemoryState
from segment_service.durable_log.recovery import (
    Recovered,
    recover,
    sequence_gap_per_epoch,
    steps_per_clock_reading,
)
from segment_service.durable_log.serializer import serialize
from segment_service.metadata.back_pressure import PendingBytes, StoreBackPressure
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.snapshot import write_snapshot
from segment_service.read_index.container_read_index import ContainerReadIndex
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.rolling_storage import RollingStorage
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.data_log import InMemoryDataLog, InMemoryLogStore
from tests.support.loop_turns import counted_turns


class FixedLog(InMemoryDataLog):
    """A log with the given operations in it."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        super().__init__(1, InMemoryLogStore())
        self.operations = operations

    async def read(self) -> AsyncIterator[LogEntry]:
        builder: DataFrameBuilder[int] = DataFrameBuilder(1)
        for operation in self.operations:
            add = builder.add_checkpoint if isinstance(operation, Checkpoint) else builder.add
            head, body, length = serialize(operation)
            add(head, body, length, 0)
        builder.close()
        for number, frame in enumerate(builder.full):
            yield LogEntry(LogAddress(0, number), memoryview(b"".join(frame.buffers)))


def checkpoint(sequence_number: int, *segments: SegmentMetadata, container_id: int = 1) -> Checkpoint:
    metadata = ContainerMetadata(container_id, 1, sequence_number, 100)
    return Checkpoint(sequence_number=sequence_number, snapshot=write_snapshot(metadata, segments))


def append(sequence_number: int, segment_id: int, offset: int, length: int) -> Append:
    return Append(
        sequence_number=sequence_number, segment_id=segment_id, data=[bytes(length)], length=length, offset=offset
    )


async def recovered(*operations: Operation, clock: Clock | None = None) -> tuple[MemoryState, Recovered]:
    log = FixedLog(operations)
    metadata = ContainerMetadata(1)
    storage = RollingStorage(InMemoryChunkStorage(), 1, SystemClock(), background=False)
    cache = CacheManager(InMemoryCacheStorage())
    index = ContainerReadIndex(metadata, storage, cache, Service("test").spawn, log.check_owner)
    state = MemoryState(metadata, MemoryLog(), index, PendingBytes(StoreBackPressure()))
    await log.initialize()
    return state, await recover(log, state, clock or SystemClock())


async def test_an_empty_log_is_a_new_container() -> None:
    state, result = await recovered()
    assert (result.operations, state.metadata.sequence_number, state.metadata.epoch) == (0, 0, 1)


async def test_everything_before_the_first_checkpoint_is_in_tier2() -> None:
    """The log was truncated there when Tier 2 had it all, which the checkpoint itself could not know."""
    first = checkpoint(
        10,
        SegmentMetadata(1, "s", length=50, storage_length=20),
        SegmentMetadata(2, "sealed", length=5, is_sealed=True),
        SegmentMetadata(3, "merged", length=7, is_sealed=True, is_merged=True, merged_into=1),
        SegmentMetadata(4, "deleted", length=7, is_deleted=True),
    )
    state, result = await recovered(first, append(11, 1, 50, 5))
    assert set(state.metadata.segments) == {1, 2}
    assert (state.metadata.segments[1].storage_length, state.metadata.segments[1].length) == (50, 55)
    assert state.metadata.segments[2].is_sealed_in_storage
    assert state.pending.unflushed == 5
    assert state.metadata.next_segment_id == 100
    assert result.truncation_points == [(10, LogAddress(0, 0))]
    assert result.sequence_number == 11 + sequence_gap_per_epoch


async def test_a_later_checkpoint_tells_how_far_tier2_had_come() -> None:
    operations = [
        checkpoint(1, SegmentMetadata(1, "s"), SegmentMetadata(2, "t"), SegmentMetadata(3, "gone")),
        append(2, 1, 0, 100),
        append(3, 2, 0, 10),
        Seal(sequence_number=4, segment_id=2, offset=10),
        Merge(sequence_number=5, segment_id=1, source_id=2, offset=100, length=10),
        Delete(sequence_number=6, segment_id=3),
        checkpoint(7, SegmentMetadata(1, "s", length=110, storage_length=110)),
        append(8, 1, 110, 1),
    ]
    state, result = await recovered(*operations)
    assert set(state.metadata.segments) == {1}
    assert state.metadata.segments[1].storage_length == 110
    assert state.pending.unflushed == 1
    assert [number for number, _ in result.truncation_points] == [1, 7]
    assert len(state.memory_log) == len(operations)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([Barrier(sequence_number=1)], "does not begin with a checkpoint"),
        ([checkpoint(1), Barrier(sequence_number=3), Barrier(sequence_number=2)], "2 follows 3"),
        ([checkpoint(1), append(2, 9, 0, 1)], "unknown segment id 9"),
        ([checkpoint(1, container_id=2)], "checkpoint of container 2"),
        ([checkpoint(1, SegmentMetadata(1, "s")), checkpoint(2)], "missing from a checkpoint"),
    ],
)
async def test_what_does_not_fit_is_corruption(operations: list[Operation], message: str) -> None:
    with pytest.raises(DataCorruption, match=message):
        await recovered(*operations)


async def test_a_checkpoint_that_holds_another_state_is_corruption() -> None:
    wrong = checkpoint(5)
    wrong.sequence_number = 6
    with pytest.raises(DataCorruption, match="holds the state at 5"):
        await recovered(wrong)


async def test_names_of_deleted_segments_are_used_again() -> None:
    operations = [
        checkpoint(1),
        MapSegment(sequence_number=2, name="s", segment_id=100),
        Delete(sequence_number=3, segment_id=100),
        MapSegment(sequence_number=4, name="s", segment_id=101),
    ]
    state, _ = await recovered(*operations)
    assert state.metadata.ids == {"s": 101}
    assert state.metadata.next_segment_id == 102


class TickingClock(ManualClock):
    """A millisecond passes between two looks at it."""

    def monotonic_s(self) -> float:
        self._now_s += 0.001
        return super().monotonic_s()


async def test_a_long_replay_gives_the_loop_its_turns() -> None:
    operations = [
        checkpoint(1),
        *(
            MapSegment(sequence_number=number, segment_id=number, name=str(number))
            for number in range(2, 2 + 100 * steps_per_clock_reading)
        ),
    ]
    with counted_turns() as turns:
        _, found = await recovered(*operations, clock=TickingClock())
    assert found.operations == len(operations)
    # Two hundred looks at the clock, for records and for what became of their segments, a millisecond each.
    assert slice_s == 0.01
    assert 16 <= turns.count <= 24


async def test_a_large_checkpoint_gives_the_loop_its_turns() -> None:
    """Each of its segments is read, taken over, and compared with what a later checkpoint knows of it."""
    metadata = ContainerMetadata(1, sequence_number=1, next_segment_id=1_000_000)
    count = 50 * steps_per_clock_reading
    segments = [SegmentMetadata(number, f"s{number}") for number in range(1, count + 1)]
    first = Checkpoint(sequence_number=1, snapshot=write_snapshot(metadata, segments))
    metadata.sequence_number = 2
    second = Checkpoint(sequence_number=2, snapshot=write_snapshot(metadata, segments))
    with counted_turns() as turns:
        state, _ = await recovered(first, second, clock=TickingClock())
    assert len(state.metadata.segments) == count
    # Five passes over the segments, of fifty looks at the clock each.
    assert 20 <= turns.count <= 30
