"""Brings the committed operations of one container to Tier 2, and acknowledges them."""

from __future__ import annotations

import asyncio
import math
import random

from pravega_common.errors import ContainerOffline, FailedError, UnknownOutcome
from pravega_common.names import is_index_segment, is_transaction_segment
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
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
from segment_service.writer.ack_calculator import AckCalculator
from segment_service.writer.config import WriterConfig
from segment_service.writer.segment_aggregator import Merging, SegmentAggregator
from segment_service.writer.segment_flusher import SegmentFlusher

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
    ) -> None:
        super().__init__(f"storage-writer-{source.container_id}")
        self.config = config or WriterConfig()
        self._source = source
        self._clock = clock
        self._aggregators: dict[int, SegmentAggregator] = {}
        self._waiting: dict[int, SegmentAggregator] = {}
        """Those with something to flush."""
        self._merged_at: dict[int, tuple[int, int]] = {}
        self.flusher = SegmentFlusher(
            source, storage, self._aggregators, self._merged_at, clock, rng or random.Random(), self.config
        )
        self._acks = AckCalculator()
        self._log_bytes = 0
        self._slots = asyncio.Semaphore(self.config.flushes_at_once_max)
        self._progress = asyncio.Event()
        self._flush_up_to = 0
        self._acknowledged = asyncio.Condition()

    @property
    def acknowledged(self) -> int:
        """The sequence number up to which all is in Tier 2."""
        return self._acks.acknowledged

    async def on_start(self) -> None:
        self.spawn(self._read(), "read")
        self.spawn(self._tick(), "tick")
        self.spawn(self._acknowledge(), "acknowledge")

    async def flush(self, sequence_number: int) -> None:
        """Bring everything up to this operation to Tier 2 without waiting for sizes and ages; returns when it is.
        ``ContainerOffline`` if the writer stops before that."""
        self._flush_up_to = max(self._flush_up_to, sequence_number)
        async with self._acknowledged:
            await self._acknowledged.wait_for(lambda: self.acknowledged >= sequence_number or not self.is_running)
        if self.acknowledged < sequence_number:
            raise ContainerOffline(f"{self.name} stopped at {self.acknowledged}, before {sequence_number}")

    async def on_stop(self) -> None:
        async with self._acknowledged:
            self._acknowledged.notify_all()

    # --- from the log

    async def _read(self) -> None:
        while True:
            operations = await self._source.read_operations(self._acks.last_read, self.config.operations_per_read_max)
            touched: dict[int, SegmentAggregator] = {}
            now_s = self._clock.monotonic_s()
            for operation in operations:
                self._acks.read(operation.sequence_number)
                aggregator = self._take(operation, now_s)
                if aggregator is not None:
                    touched[aggregator.segment_id] = aggregator
            for aggregator in touched.values():
                self._consider(aggregator, now_s)
            self._drop_idle()
            self._progress.set()

    def _take(self, operation: Operation, now_s: float) -> SegmentAggregator | None:
        """Give the operation to its aggregator; ``None`` if Tier 2 has nothing to do with it."""
        if isinstance(operation, MapSegment):
            is_new = operation.sequence_number > self._source.recovered_sequence_number
            self._aggregators[operation.segment_id] = _aggregator_for(operation.segment_id, operation.name, is_new)
            return None
        if not isinstance(operation, SegmentOperation) or isinstance(operation, UpdateAttributes):
            return None
        aggregator = self._aggregator(operation.segment_id)
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
        return aggregator

    def _merge(self, target: SegmentAggregator, operation: Merge, now_s: float) -> None:
        source = self._aggregator(operation.source_id)
        self._merged_at[operation.source_id] = (operation.segment_id, operation.offset)
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
            del self._aggregators[operation.source_id]
            self._waiting.pop(operation.source_id, None)

    def _aggregator(self, segment_id: int) -> SegmentAggregator:
        aggregator = self._aggregators.get(segment_id)
        if aggregator is None:
            metadata = self._source.segment(segment_id)
            aggregator = _aggregator_for(segment_id, "" if metadata is None else metadata.name, is_new=False)
            self._aggregators[segment_id] = aggregator
        return aggregator

    def _drop_idle(self) -> None:
        """Forget segments without anything to do; what Tier 2 has of them is asked again when they are used."""
        excess = len(self._aggregators) - len(self._waiting) - self.config.idle_segments_max
        if excess <= 0:
            return
        idle = [one for one in self._aggregators.values() if one.is_idle and not one.is_busy]
        for aggregator in idle[:excess]:
            if aggregator.segment_id not in self._merged_at:
                del self._aggregators[aggregator.segment_id]

    # --- to Tier 2

    async def _tick(self) -> None:
        """Look at the ages, and at what holds Tier 1 back."""
        while True:
            await self._clock.sleep(self.config.tick_s)
            now_s = self._clock.monotonic_s()
            for aggregator in list(self._waiting.values()):
                self._consider(aggregator, now_s)

    def _consider(self, aggregator: SegmentAggregator, now_s: float) -> None:
        """Start a flush of the segment if it is due."""
        if aggregator.is_idle or self._aggregators.get(aggregator.segment_id) is not aggregator:
            if self._waiting.get(aggregator.segment_id) is aggregator:
                del self._waiting[aggregator.segment_id]
                self._progress.set()
            return
        self._waiting[aggregator.segment_id] = aggregator
        if not aggregator.is_busy and self._due_at_s(aggregator) <= now_s:
            aggregator.is_busy = True
            self.spawn(self._flush(aggregator), f"flush-{aggregator.segment_id}")

    def _due_at_s(self, aggregator: SegmentAggregator) -> float:
        """The time at which the segment is to be flushed; infinity while that must wait for another operation."""
        config = self.config
        if self.flusher.is_held_back(aggregator):
            return math.inf
        if aggregator.held_until_s != -math.inf:
            return aggregator.held_until_s
        oldest = aggregator.oldest
        if oldest is None or aggregator.is_deleting or aggregator.merging_count:
            return -math.inf
        if aggregator.pending_bytes >= config.flush_bytes or oldest.sequence <= self._flush_up_to:
            return -math.inf
        if self._log_bytes - oldest.log_position > config.behind_bytes_max:
            return -math.inf
        if aggregator.is_transaction:
            return oldest.since_s + config.transaction_age_s
        return oldest.since_s + config.flush_age_s * (config.index_age_ratio if aggregator.is_index else 1)

    async def _flush(self, aggregator: SegmentAggregator) -> None:
        """Flush until nothing of it is due any more: what came in the meantime may wait for more."""
        try:
            async with self._slots, aggregator.lock:
                await self.flusher.run(aggregator, lambda: self._goes_on(aggregator))
        finally:
            aggregator.is_busy = False
        self._consider(aggregator, self._clock.monotonic_s())
        self._progress.set()

    def _goes_on(self, aggregator: SegmentAggregator) -> bool:
        self._progress.set()
        return self._due_at_s(aggregator) <= self._clock.monotonic_s()

    # --- back to the log

    async def _acknowledge(self) -> None:
        while True:
            await self._progress.wait()
            self._progress.clear()
            highest = self._acks.highest(one.first_sequence for one in self._waiting.values())
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


def _aggregator_for(segment_id: int, name: str, is_new: bool) -> SegmentAggregator:
    return SegmentAggregator(
        segment_id, is_new=is_new, is_transaction=is_transaction_segment(name), is_index=is_index_segment(name)
    )
