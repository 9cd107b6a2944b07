"""Brings the committed operations of one container to Tier 2, and acknowledges them."""

from __future__ import annotations

import asyncio
import math
import random

from pravega_common.errors import ContainerOffline, FailedError, UnknownOutcome
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.latency import LatencyCounts
from segment_service.contracts.operations import (
    Append,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
    SegmentOperation,
    Truncate,
    UpdateAttributes,
)
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.writer_data_source import WriterDataSource
from segment_service.metadata.back_pressure import operation_bytes
from segment_service.writer.ack_calculator import AckCalculator
from segment_service.writer.aggregators import Aggregators
from segment_service.writer.config import (
    WriterConfig,
    age_groups,
    container_phase,
    looks_per_turn_max,
    starts_per_turn_max,
)
from segment_service.writer.flush_schedule import FlushSchedule
from segment_service.writer.segment_aggregator import Item, Merging, SegmentAggregator
from segment_service.writer.segment_flusher import SegmentFlusher
from segment_service.writer.segment_order import SegmentOrder

__all__ = ["StorageWriter", "WriterConfig"]

BEFORE_ACKNOWLEDGE = register("writer.before_acknowledge")


class StorageWriter(Service):
    """Reads committed operations in order, gathers them by segment, flushes segments, acknowledges.

    A failing Tier 2 is never an error here: it is tried until it answers, and back-pressure stops the appends.
    A segment that is damaged there is held, and the others go on. ``Fenced`` and any other ``DataCorruption`` end the
    service, and with it the container.
    """

    def __init__(
        self,
        source: WriterDataSource,
        storage: SegmentStorage,
        clock: Clock,
        config: WriterConfig | None = None,
        rng: random.Random | None = None,
        flushes: LatencyCounts | None = None,
    ) -> None:
        """``flushes``: counts how long the writes of segments to Tier 2 take."""
        super().__init__(f"storage-writer-{source.container_id}")
        self.config = config or WriterConfig()
        self._source = source
        self._clock = clock
        self._aggregators = Aggregators(source, self.config.idle_segments_max)
        self.flusher = SegmentFlusher(
            source, storage, self._aggregators, clock, rng or random.Random(), self.config, flushes or LatencyCounts()
        )
        self._waiting = SegmentOrder[int]()
        """Segments with something to flush, by the lowest sequence number of it."""
        self._schedule = FlushSchedule()
        self._flushing = 0
        self._small_flushing = 0
        """The flushes under way that took places for small ones."""
        self._acks = AckCalculator()
        self._log_bytes = 0
        """Bytes of the appends that were read, with the memory that each operation takes until Tier 2 has it."""
        self._progress = asyncio.Event()
        self._may_start = asyncio.Event()
        """Set when a flush may have fallen due, or found a place."""
        self._flush_up_to = 0
        self._hurried = asyncio.Event()
        """Set while a flush waits for operations that were not read yet."""
        self._acknowledged = asyncio.Condition()

    @property
    def acknowledged(self) -> int:
        """The sequence number up to which all is in Tier 2."""
        return self._acks.acknowledged

    async def on_start(self) -> None:
        self.spawn(self._read(), "read")
        self.spawn(self._tick(), "tick")
        self.spawn(self._start(), "start")
        self.spawn(self._acknowledge(), "acknowledge")

    async def flush(self, sequence_number: int) -> None:
        """Bring everything up to this operation to Tier 2 without waiting for sizes and ages; returns when it is.
        ``ContainerOffline`` if the writer stops before that."""
        if sequence_number > self._flush_up_to:
            for segment_id in self._waiting.between(self._flush_up_to + 1, sequence_number):
                self._aggregators.note(segment_id)
            self._flush_up_to = sequence_number
            self._hurried.set()
            self._progress.set()
        async with self._acknowledged:
            await self._acknowledged.wait_for(lambda: self.acknowledged >= sequence_number or not self.is_running)
        if self.acknowledged < sequence_number:
            raise ContainerOffline(f"{self.name} stopped at {self.acknowledged}, before {sequence_number}")

    async def on_stop(self) -> None:
        async with self._acknowledged:
            self._acknowledged.notify_all()

    # --- from the log

    async def _read(self) -> None:
        count_max = self.config.operations_per_read_max
        taken, before = 0, self._log_bytes
        while True:
            operations = await self._source.read_operations(self._acks.last_read, count_max)
            now_s = self._clock.monotonic_s()
            for operation in operations:
                self._log_bytes += operation_bytes
                self._acks.read(operation.sequence_number)
                self._take(operation, now_s)
            self._schedule.log_grew(self._log_bytes)
            self._review()
            if self._acks.highest(self._waiting.lowest) > self.acknowledged:  # appends wait for their flush first
                self._progress.set()
            taken += len(operations)
            if len(operations) == count_max:
                await asyncio.sleep(0)  # A log that is far ahead answers each read at once.
                continue
            if self._is_burst(taken, self._log_bytes - before - taken * operation_bytes):
                await self._gather()
            taken, before = 0, self._log_bytes

    def _is_burst(self, operations: int, size: int) -> bool:
        """Whether all that there were to read were many small operations."""
        return operations >= self.config.burst_operations_min and size < self.config.flush_bytes

    async def _gather(self) -> None:
        """Let the burst pass, unless somebody waits for its flush."""
        if self._flush_up_to <= self._acks.last_read:
            self._hurried.clear()
        ends = {
            self.spawn(self._clock.sleep(self.config.gather_s), "gather"),
            self.spawn(self._hurried.wait(), "hurry"),
        }
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()

    def _take(self, operation: Operation, now_s: float) -> None:
        """Give the operation to its aggregator, if Tier 2 has anything to do with it."""
        if isinstance(operation, MapSegment):
            is_new = operation.sequence_number > self._source.recovered_sequence_number
            self._aggregators.create(operation.segment_id, operation.name, is_new=is_new)
            return
        if not isinstance(operation, SegmentOperation) or isinstance(operation, UpdateAttributes):
            return
        aggregator = self._aggregators.obtain(operation.segment_id)
        sequence = operation.sequence_number
        if isinstance(operation, Append):
            self._log_bytes += operation.length
            aggregator.append(sequence, operation.offset, operation.length, now_s, self._log_bytes)
        elif isinstance(operation, Seal):
            aggregator.seal(sequence, now_s, self._log_bytes)
        elif isinstance(operation, Truncate):
            aggregator.truncate(sequence, operation.offset, now_s, self._log_bytes)
        elif isinstance(operation, Merge):
            self._merge(aggregator, operation, now_s)
        elif isinstance(operation, Delete):
            aggregator.delete(sequence, now_s, self._log_bytes)

    def _merge(self, target: SegmentAggregator, operation: Merge, now_s: float) -> None:
        source = self._aggregators.obtain(operation.source_id)
        self._aggregators.merged.add(operation.source_id)
        joins = source.can_be_joined
        target.merge(
            Merging(
                operation.sequence_number,
                now_s,
                self._log_bytes,
                operation.source_id,
                operation.offset,
                operation.length,
            ),
            source,
        )
        if joins:
            self._aggregators.drop(operation.source_id)

    # --- to Tier 2

    async def _tick(self) -> None:
        """Look at what fell due, while anything waits for its time."""
        while True:
            await self._schedule.wait_timed()
            await self._clock.sleep(self.config.tick_s)
            self._schedule.advance(self._clock.monotonic_s())
            self._wake_starter()

    def _review(self) -> None:
        """Look at the segments that changed since the last review, and at no others."""
        now_s = self._clock.monotonic_s()
        for segment_id in self._aggregators.take_changed():
            aggregator = self._aggregators.get(segment_id)
            if aggregator is None or aggregator.is_idle:
                self._waiting.set(segment_id, None)
                self._schedule.forget(segment_id)
                if aggregator is not None:
                    self._aggregators.rest(segment_id)
                continue
            self._aggregators.stir(segment_id)
            self._waiting.set(segment_id, aggregator.first_sequence)
            if not aggregator.is_busy:
                self._plan(aggregator, now_s)
        self._wake_starter()

    def _wake_starter(self) -> None:
        if self._schedule.has_due:
            self._may_start.set()

    def _plan(self, aggregator: SegmentAggregator, now_s: float) -> None:
        oldest = aggregator.oldest
        is_held = aggregator.held_until_s != -math.inf
        position = None if oldest is None or is_held else self._due_position(oldest)
        self._schedule.plan(aggregator.segment_id, self._due_at_s(aggregator), position, now_s)

    def _due_position(self, oldest: Item) -> int:
        """The length of the log from which on the segment falls due, or is due earlier, as its container is not quiet
        any more."""
        behind, quiet_end = oldest.log_position + self.config.behind_bytes_max + 1, self._quiet_end(oldest)
        return min(behind, quiet_end) if self._log_bytes < quiet_end else behind

    def _quiet_end(self, oldest: Item) -> int:
        """The length of the log from which on its container is not quiet any more for what waits since then: one for
        all that waits."""
        round_bytes = max(self.config.quiet_log_bytes, 1)
        return (oldest.log_position // round_bytes + 1) * round_bytes

    async def _start(self) -> None:
        """Start flushes of what is due, a few in each turn of the event loop."""
        while True:
            await self._may_start.wait()
            self._may_start.clear()
            self._start_flushes()
            await asyncio.sleep(0)

    def _start_flushes(self) -> None:
        """Start flushes of what is due, as many as there may be at once and in one turn."""
        now_s = self._clock.monotonic_s()
        started = looked = 0
        while self._flushing < self.config.flushes_at_once_max + self.config.small_flushes_at_once_max:
            if started == starts_per_turn_max or looked == looks_per_turn_max:
                self._may_start.set()
                return
            looked += 1
            segment_id = self._schedule.take()
            if segment_id is None:
                return
            aggregator = self._aggregators.get(segment_id)
            if aggregator is None or aggregator.is_idle:
                continue
            if self._due_at_s(aggregator) > now_s:  # things changed while it waited for its turn
                self._plan(aggregator, now_s)
                continue
            is_small = self._is_small(aggregator)
            if not is_small and self._flushing - self._small_flushing >= self.config.flushes_at_once_max:
                self._schedule.put_back(segment_id)
                return
            aggregator.is_busy = True
            self._flushing += 1
            self._small_flushing += is_small
            started += 1
            self.spawn(self._flush(aggregator, is_small=is_small), f"flush-{segment_id}")

    def _is_small(self, aggregator: SegmentAggregator) -> bool:
        """Whether a flush of the segment takes one of the places for small ones."""
        if self._small_flushing >= self.config.small_flushes_at_once_max:
            return False
        return aggregator.pending_bytes <= self.config.small_flush_bytes and not aggregator.merging_count

    def _due_at_s(self, aggregator: SegmentAggregator) -> float:
        """The time at which the segment is to be flushed; infinity while that must wait for another operation."""
        config = self.config
        if self.flusher.is_held_back(aggregator):
            return math.inf
        if aggregator.held_until_s != -math.inf:
            return aggregator.held_until_s
        oldest = aggregator.oldest
        if oldest is None or aggregator.is_deleting:
            return -math.inf
        first = aggregator.first_sequence
        if aggregator.pending_bytes >= config.flush_bytes or (first is not None and first <= self._flush_up_to):
            return -math.inf
        if self._log_bytes - oldest.log_position > config.behind_bytes_max:
            return -math.inf
        if aggregator.merging_count:
            return oldest.since_s + config.merge_age_s
        if aggregator.is_transaction:
            return oldest.since_s + config.transaction_age_s
        ratio = config.index_age_ratio if aggregator.is_index else self._age_ratio(aggregator.segment_id)
        if config.quiet_age_ratio > ratio and self._log_bytes < self._quiet_end(oldest):
            return self._quiet_due_at_s(aggregator.segment_id, oldest.since_s)
        return oldest.since_s + config.flush_age_s * ratio

    def _quiet_due_at_s(self, segment_id: int, since_s: float) -> float:
        """The next time that the segments of a group have in common, so that all which wait then share their puts. Each
        container has times of its own, so that a store of many has not all of them at once."""
        round_s = self.config.flush_age_s * self.config.quiet_age_ratio
        if not round_s:  # nothing is to wait
            return since_s
        groups = min(1 + len(self._waiting) // self.config.quiet_group_segments, age_groups)
        phase_s = (segment_id % groups / groups + self._source.container_id * container_phase) % 1 * round_s
        return (since_s + round_s - phase_s) // round_s * round_s + phase_s

    def _age_ratio(self, segment_id: int) -> float:
        """The factor by which a segment waits longer while many do, by its group."""
        largest = min(max(len(self._waiting) / self.config.many_segments, 1.0), self.config.many_age_ratio_max)
        return 1.0 + (largest - 1.0) * (segment_id % age_groups) / (age_groups - 1)

    async def _flush(self, aggregator: SegmentAggregator, *, is_small: bool) -> None:
        """Flush until nothing of it is due any more: what came in the meantime may wait for more."""
        try:
            async with aggregator.lock:
                await self.flusher.run(aggregator, lambda: self._goes_on(aggregator))
        finally:
            aggregator.is_busy = False
            self._flushing -= 1
            self._small_flushing -= is_small
        self._aggregators.note(aggregator.segment_id)
        self._review()
        self._progress.set()

    def _goes_on(self, aggregator: SegmentAggregator) -> bool:
        self._progress.set()
        return self._due_at_s(aggregator) <= self._clock.monotonic_s()

    # --- back to the log

    async def _acknowledge(self) -> None:
        while True:
            await self._progress.wait()
            self._progress.clear()
            self._review()
            highest = self._acks.highest(self._waiting.lowest)
            if highest <= self._acks.acknowledged:
                continue
            failpoint(BEFORE_ACKNOWLEDGE)
            try:
                await self._source.acknowledge(highest)
            except (FailedError, UnknownOutcome) as error:
                self.log.warning("acknowledging failed, trying again", error=repr(error))
                await self._clock.sleep(self.config.retry_delay_min_s)
                self._progress.set()
                continue
            self._acks.acknowledged = highest
            async with self._acknowledged:
                self._acknowledged.notify_all()
