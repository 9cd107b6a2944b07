"""Does the steps of the aggregators: the I/O of the storage writer, and the notes to its container."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import structlog

from pravega_common.errors import DataCorruption, Fenced, PravegaError, SegmentDamaged, UnknownOutcome
from pravega_common.invariants import unreachable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.latency import LatencyCounts
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.writer_data_source import WriterDataSource
from segment_service.writer.aggregators import Aggregators
from segment_service.writer.config import WriterConfig
from segment_service.writer.segment_aggregator import (
    Deletion,
    Merging,
    Reconcile,
    Sealing,
    SegmentAggregator,
    Skip,
    Source,
    Step,
    Truncation,
    Write,
)

STORED = register("writer.stored_before_metadata")
MERGED = register("writer.merged_before_metadata")
SOURCE_DELETED = register("writer.source_deleted_before_metadata")

merge_depth_max = 8
"""Merges stacked on each other; the same limit as the read index has."""


class SegmentFlusher:
    """Flushes one aggregator at a time; the caller holds its lock."""

    def __init__(
        self,
        source: WriterDataSource,
        storage: SegmentStorage,
        aggregators: Aggregators,
        clock: Clock,
        rng: random.Random,
        config: WriterConfig,
        flushes: LatencyCounts,
    ) -> None:
        self.flushed_bytes = 0
        self.writes = 0
        self._source = source
        self._storage = storage
        self._aggregators = aggregators
        self._clock = clock
        self._rng = rng
        self._config = config
        self._flushes = flushes
        self._log = structlog.get_logger(service=f"storage-writer-{source.container_id}")

    async def run(self, aggregator: SegmentAggregator, goes_on: Callable[[], bool]) -> None:
        """Do steps as long as there are any and ``goes_on`` says so. A step is repeated until Tier 2 does it.

        Damage in Tier 2 holds the segment: its operations stay in Tier 1, and are tried again after a while.
        """
        aggregator.held_until_s = -math.inf
        try:
            await self._run(aggregator, goes_on)
        except SegmentDamaged as error:
            self._hold(aggregator, error)
        else:
            self._free(aggregator)

    async def _run(self, aggregator: SegmentAggregator, goes_on: Callable[[], bool]) -> None:
        failures = 0
        while goes_on():
            try:
                if not await self._advance_as_owner(aggregator):
                    return
                failures = 0
            except (Fenced, DataCorruption):  # also ``SegmentDamaged``
                raise
            except PravegaError as error:
                aggregator.uncertain()
                failures += 1
                self._log.warning(
                    "flush failed, trying again", segment=aggregator.segment_id, failures=failures, error=repr(error)
                )
                await self._clock.sleep(self._delay_s(failures))

    def _hold(self, aggregator: SegmentAggregator, error: SegmentDamaged) -> None:
        aggregator.held_until_s = self._clock.monotonic_s() + self._config.damage_recheck_s
        for segment_id in (aggregator.segment_id, error.segment_id):
            held = self._aggregators.get(segment_id)
            if held is not None:
                held.uncertain()  # it may be restored meanwhile
            aggregator.held_segments.add(segment_id)
            self._source.hold(segment_id, str(error))

    def _free(self, aggregator: SegmentAggregator) -> None:
        while aggregator.held_segments:
            self._source.free(aggregator.held_segments.pop())

    def is_held_back(self, aggregator: SegmentAggregator) -> bool:
        """Whether the aggregator must not be flushed by itself: what becomes of its bytes is decided in the log
        already (deleted or merged away), the operation that says so comes, or its target does the work."""
        if aggregator.is_deleting or aggregator.ended:
            return False
        metadata = self._source.segment(aggregator.segment_id)
        return metadata is None or metadata.is_deleted or metadata.is_merged

    async def _advance_as_owner(self, aggregator: SegmentAggregator) -> bool:
        """``_advance``. Damage is believed only after the log says that there is no later owner: what that one brought
        to Tier 2, or deleted there, looks the same to one that was fenced without knowing it."""
        try:
            return await self._advance(aggregator)
        except DataCorruption:
            await self._source.check_owner()
            raise

    async def _advance(self, aggregator: SegmentAggregator) -> bool:
        """One step; whether there was one."""
        aggregator.settle()
        await self._notify_ended(aggregator)
        if self.is_held_back(aggregator):
            return False
        metadata = self._source.segment(aggregator.segment_id)
        step = aggregator.next_step(metadata.start_offset if metadata is not None else 0)
        if step is None:
            return False
        await self._do(aggregator, step)
        aggregator.settle()
        await self._notify_ended(aggregator)
        return True

    async def _do(self, aggregator: SegmentAggregator, step: Step) -> None:
        segment_id = aggregator.segment_id
        if isinstance(step, Write):
            await self._write(aggregator, step)
        elif isinstance(step, Reconcile):
            await self._reconcile(aggregator)
        elif isinstance(step, Skip):
            await self._compare_once(aggregator)
            await self._storage.truncate(segment_id, step.offset)  # for a truncation that is ahead in the log
            aggregator.skipped(step.offset)
            self._notify_length(aggregator)
        elif isinstance(step, Sealing):
            if aggregator.stored is not None:
                await self._storage.seal(segment_id, step.sequence)
                failpoint(STORED)
            aggregator.finished(step)
            self._source.sealed_in_storage(segment_id)
        elif isinstance(step, Truncation):
            await self._storage.truncate(segment_id, step.offset, step.sequence)
            failpoint(STORED)
            aggregator.finished(step)
        elif isinstance(step, Merging):
            await self._compare_once(aggregator)
            await self._merge(aggregator, step)
        elif isinstance(step, Deletion):
            await self._delete(aggregator, step)
        else:
            unreachable("unknown step", step=step)

    async def _reconcile(self, aggregator: SegmentAggregator, *, notify: bool = True) -> None:
        """Learn what Tier 2 really has. ``SegmentDamaged`` if it is less than it had. ``DataCorruption`` if it is more
        than was committed, and at first sight in an epoch more than the log had at its recovery, however much came
        since: then it is the log that is wrong, and the container stops.

        Without ``notify`` the container keeps the bytes in the cache.
        """
        metadata = self._source.segment(aggregator.segment_id)
        known = 0 if metadata is None or metadata.is_deleted else metadata.storage_length
        state = await self._storage.settled_state(aggregator.segment_id, known)
        metadata = self._source.segment(aggregator.segment_id)
        found = state.length if state is not None else 0
        if metadata is not None and not metadata.is_deleted:
            is_first = metadata.recovered_length is not None
            most = metadata.length if metadata.recovered_length is None else metadata.recovered_length
            if not metadata.is_merged:
                _check_not_shorter(metadata, found)
            if found > most:
                reason = ": the log is an older copy, or another segment used this id" if is_first else ""
                raise DataCorruption(
                    f"segment {metadata.name} (id {aggregator.segment_id}): Tier 2 has {found} bytes, it must have at "
                    f"least {metadata.storage_length} and at most {most}{reason}"
                )
            metadata.recovered_length = None
        aggregator.reconciled(state)
        if notify:
            self._notify_length(aggregator)

    async def _compare_once(self, aggregator: SegmentAggregator) -> None:
        """Ask Tier 2 about a segment of this epoch too, before a step that does not itself refuse bytes that an earlier
        owner put there under its id. (A write does: it begins at 0.)"""
        metadata = self._source.segment(aggregator.segment_id)
        if metadata is not None and not metadata.is_deleted and metadata.recovered_length is not None:
            await self._reconcile(aggregator)

    async def _write(self, aggregator: SegmentAggregator, step: Write) -> None:
        segment_id, start, end = aggregator.segment_id, step.start, step.end
        gone = min(max(start, self._source.truncated_below(segment_id)), end)
        data = [memoryview(bytes(gone - start))] if gone > start else []
        if gone < end:
            data += self._source.read_cached(segment_id, gone, end - gone)
        metadata = self._source.segment(segment_id)
        began_s = self._clock.monotonic_s()
        try:
            # The zeros come of a truncation that is ahead in the log.
            await self._storage.write(segment_id, start, data, step.sequence if gone == start else None)
        except UnknownOutcome:
            self._compared(metadata)  # Tier 2 had [0, start) and nothing more, else it had refused
            raise
        self._compared(metadata)
        failpoint(STORED)
        self._flushes.note(self._clock.monotonic_s() - began_s)
        self.flushed_bytes += end - start
        self.writes += 1
        aggregator.written(end)
        self._notify_length(aggregator)

    @staticmethod
    def _compared(metadata: SegmentMetadata | None) -> None:
        if metadata is not None:
            metadata.recovered_length = None

    async def _merge(self, target: SegmentAggregator, merging: Merging) -> None:
        """A merge of a source that is, or may be, in Tier 2 under its own id."""
        self._check_readable(target.segment_id, merging.source_id)
        source = self._aggregators.obtain(merging.source_id)
        async with source.lock:
            try:
                is_moved = await self._move(target, merging, source)
                if is_moved:
                    await self._let_go(target.segment_id, merging, source)
            except PravegaError:
                source.uncertain()
                raise
        if is_moved:
            failpoint(MERGED)
            target.finished(merging)
            self._notify_merged(
                Source(target.segment_id, merging.source_id, False, merging.sequence), target.stored_length
            )
            self._notify_length(target)

    def _check_readable(self, target_id: int, source_id: int) -> None:
        """``SegmentDamaged`` while bytes of one of the two cannot be read: what is left of them stays where it is."""
        for segment_id in (target_id, source_id):
            reason = self._source.unreadable_reason(segment_id)
            if reason is not None:
                raise SegmentDamaged(segment_id, f"the merge of segment {source_id} into {target_id} waits: {reason}")

    async def _let_go(self, target_id: int, merging: Merging, source: SegmentAggregator) -> None:
        """The target has all bytes of a merged segment, and so those of the segments merged into that one."""
        for inner in source.merged_sources():
            aggregator = self._aggregators.get(inner.source_id)
            if aggregator is not None:
                await self._let_go(target_id, merging, aggregator)
            await self._storage.concat(target_id, merging.offset, inner.source_id, merging.sequence)
            self._notify_merged(inner, 0)

    async def _move(self, target: SegmentAggregator, merging: Merging, source: SegmentAggregator) -> bool:
        """Bring the source's bytes into the target in Tier 2; false if they come as bytes of the target instead, or
        nobody needs them any more."""
        if not source.is_known:
            await self._reconcile(source, notify=False)
        if target.stored_length >= merging.offset + merging.length:
            if source.stored is not None:
                await self._concat(target, merging)
            return True
        _check_not_shorter(self._source.segment(merging.source_id), source.stored_length)
        await self._join_cached_mergings(source)
        partly_joined = target.stored_length > merging.offset
        if not source.merging_count and (partly_joined or source.stored_length == 0):
            target.join(merging, source)
            self._aggregators.drop(merging.source_id)
            return False
        self._notify_length(source)
        if not await self._complete(source, merging.length):
            return False
        await self._concat(target, merging)
        return True

    async def _concat(self, target: SegmentAggregator, merging: Merging) -> None:
        await self._storage.concat(target.segment_id, merging.offset, merging.source_id, merging.sequence)

    async def _join_cached_mergings(self, aggregator: SegmentAggregator) -> None:
        """Merges into a segment that is itself merged away: those of cached bytes become bytes of it."""
        for merging in aggregator.mergings:
            if aggregator.stored_length >= merging.offset + merging.length:
                continue  # Tier 2 has moved the bytes, and maybe let go of what they came from
            source = self._aggregators.obtain(merging.source_id)
            async with source.lock:
                if not source.is_known:
                    await self._reconcile(source, notify=False)
                _check_not_shorter(self._source.segment(merging.source_id), source.stored_length)
                await self._join_cached_mergings(source)
                if source.stored is None and not source.merging_count:
                    aggregator.join(merging, source)
                    self._aggregators.drop(merging.source_id)

    async def _complete(self, source: SegmentAggregator, length: int) -> bool:
        """Bring all of a merged segment to Tier 2 under its own id; false if its target is gone meanwhile."""
        while True:
            source.settle()
            await self._notify_ended(source)
            if source.stored_length >= length:
                return True
            if self._target_is_gone(source.segment_id):
                return False
            step = source.next_step(0)
            if step is None or isinstance(step, Sealing | Truncation | Deletion):
                raise SegmentDamaged(
                    source.segment_id,
                    f"merged segment {source.segment_id}: {source.stored_length} of {length} bytes are in Tier 2, and "
                    "the others are not in the log",
                )
            await self._do(source, step)

    def _target_is_gone(self, segment_id: int) -> bool:
        """Whether the segment that has the bytes now was deleted: then they are nowhere, and need not be."""
        for _ in range(merge_depth_max):
            metadata = self._source.segment(segment_id)
            if metadata is None or metadata.is_deleted:
                return True
            if not metadata.is_merged:
                return False
            segment_id = metadata.merged_into
        return False

    async def _delete(self, aggregator: SegmentAggregator, deletion: Deletion) -> None:
        for merged in deletion.sources:
            await self._drop_merged(merged, deletion.last_sequence)
        if aggregator.stored is not None or not aggregator.is_known:
            await self._storage.delete(aggregator.segment_id, deletion.last_sequence)
            failpoint(STORED)
        aggregator.finished(deletion)
        self._aggregators.drop(aggregator.segment_id)
        self._source.deleted_in_storage(aggregator.segment_id)

    async def _drop_merged(self, merged: Source, sequence: int) -> None:
        """A segment that was merged into one that is deleted ends with it, and so do those merged into it."""
        source = self._aggregators.get(merged.source_id)
        if source is None:
            await self._storage.delete(merged.source_id, sequence)
        else:
            async with source.lock:
                for inner in source.merged_sources():
                    await self._drop_merged(inner, sequence)
                await self._storage.delete(merged.source_id, sequence)
        self._notify_merged(merged, 0)

    async def _notify_ended(self, aggregator: SegmentAggregator) -> None:
        while aggregator.ended:
            _, merged = aggregator.ended[0]
            if merged.in_storage:
                await self._storage.delete(merged.source_id, merged.sequence)
                failpoint(SOURCE_DELETED)
            if not aggregator.ended or aggregator.ended[0][1] is not merged:
                return  # The target was deleted meanwhile, and its deletion has the source.
            length = aggregator.stored_length if merged.target_id == aggregator.segment_id else 0
            self._notify_merged(merged, length)
            aggregator.ended_first()

    def _notify_merged(self, merged: Source, target_length: int) -> None:
        target = self._source.segment(merged.target_id)
        known = min(target_length, target.length) if target is not None else 0
        self._aggregators.merged.discard(merged.source_id)
        self._aggregators.drop(merged.source_id)
        self._source.merged_in_storage(merged.target_id, merged.source_id, known)

    def _notify_length(self, aggregator: SegmentAggregator) -> None:
        metadata: SegmentMetadata | None = self._source.segment(aggregator.segment_id)
        if metadata is not None and not metadata.is_deleted and aggregator.stored_length > metadata.storage_length:
            self._source.storage_length_changed(aggregator.segment_id, aggregator.stored_length)

    def _delay_s(self, failures: int) -> float:
        """Doubling with jitter, capped."""
        ceiling = min(self._config.retry_delay_max_s, self._config.retry_delay_min_s * float(1 << min(failures, 20)))
        return ceiling * (0.5 + self._rng.random() / 2)


def _check_not_shorter(metadata: SegmentMetadata | None, found: int) -> None:
    """``SegmentDamaged`` if Tier 2 has less of a segment than it had. Of one that is merged only while its target lacks
    bytes: when that has all, Tier 2 lets the segment go."""
    if metadata is not None and found < metadata.storage_length:
        raise SegmentDamaged(
            metadata.segment_id,
            f"segment {metadata.name} (id {metadata.segment_id}): Tier 2 has {found} bytes, it must have at least "
            f"{metadata.storage_length}: restore its objects from a copy",
        )
