"""Gives a round of commits epochs of its own, after its stream has moved to other segments."""

from __future__ import annotations

from controller_service.segment_access.late_segments import take_away_if_late
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.epochs import duplicate_epoch
from controller_service.store.holds import stage_epoch
from controller_service.store.records import EpochRecord, SealedSegmentRecord, sealed_segment_key
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.transactions.commit_merges import MERGED, CommitMerges, names_by_number
from controller_service.transactions.records import CommittingRecord
from pravega_common import names
from pravega_common.errors import DataCorruption, PravegaError, StreamNotFound
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended

DUPLICATES_CREATED = register("transaction_commit.duplicates_created")
DUPLICATES_SEALED = register("transaction_commit.duplicates_sealed")
EPOCHS_RECORDED = register("transaction_commit.epochs_recorded")
ACTIVE_SEALED = register("transaction_commit.active_sealed")
EPOCH_MOVED = register("transaction_commit.epoch_moved")


class RollingCommit:
    """Every step may run again, on any instance; the stream's state is held meanwhile."""

    def __init__(self, streams: StreamStore, segments: SegmentAccess, merges: CommitMerges) -> None:
        self._streams = streams
        self._segments = segments
        self._merges = merges

    async def roll(self, context: StreamContext, record: CommittingRecord, active: EpochRecord) -> dict[int, list[int]]:
        """The stream has moved to other segments: the round gets an epoch of its own, a duplicate of the
        transactions' epoch, and a duplicate of the active epoch follows it."""
        original = await context.epoch(record.epoch)
        started_ms = max(record.started_ms, active.created_ms + 1)
        holding = duplicate_epoch(original, active.epoch + 1, started_ms, active)
        following = duplicate_epoch(active, active.epoch + 2, started_ms + 1, active)
        try:
            return await self._roll(context, record, active, holding, following)
        except PravegaError:
            late = (*holding.segments, *following.segments)
            await take_away_if_late(self._streams, self._segments, context, late)
            raise

    async def _roll(
        self,
        context: StreamContext,
        record: CommittingRecord,
        active: EpochRecord,
        holding: EpochRecord,
        following: EpochRecord,
    ) -> dict[int, list[int]]:
        await self._create_segments(context, holding, following)
        failpoint(DUPLICATES_CREATED)
        positions = await self._fill_duplicates(context, record, holding)
        sizes = {identifier: lengths[-1] for identifier, lengths in positions.items()}
        failpoint(DUPLICATES_SEALED)
        await self._record_epochs(context, active, holding, following, sizes)
        failpoint(EPOCHS_RECORDED)
        await self._segments.seal_segments(active.names(context.scope, context.stream))
        failpoint(ACTIVE_SEALED)
        await self._move_epoch(context, active, following)
        failpoint(EPOCH_MOVED)
        return positions

    async def _create_segments(self, context: StreamContext, holding: EpochRecord, following: EpochRecord) -> None:
        configuration = (await context.configuration()).configuration
        rollover = configuration.rollover_size_bytes
        holding_names = holding.names(context.scope, context.stream)
        await all_ended(
            (
                self._segments.create_segments(holding_names, rollover_size_bytes=rollover),
                self._segments.create_segments(
                    following.names(context.scope, context.stream),
                    scale_type=int(configuration.scaling.scale_type),
                    target_rate=configuration.scaling.target_rate,
                    rollover_size_bytes=rollover,
                ),
            )
        )

    async def _fill_duplicates(
        self, context: StreamContext, record: CommittingRecord, holding: EpochRecord
    ) -> dict[int, list[int]]:
        """Merge into the duplicates and seal them. They are sealed only after every merge was verified: in a
        repetition, sealed ones hold everything, and their length proves it."""
        infos = await self._segments.infos(holding.names(context.scope, context.stream))
        if not any(info.is_sealed for info in infos):
            positions = await self._merges.merge_into(context, record, holding)
            failpoint(MERGED)
        else:
            lengths = {segment.number: info.length for segment, info in zip(holding.segments, infos, strict=True)}
            positions = {}
            targets = names_by_number(context, holding, [target.number for target in record.targets])
            for target, name in zip(record.targets, targets, strict=True):
                after = [lengths[target.number]] * len(target.source_lengths)
                self._merges.verify(record, target, name, after)
                positions[names.segment_id(target.number, holding.epoch)] = after
        await self._segments.seal_segments(holding.names(context.scope, context.stream))
        return positions

    async def _record_epochs(
        self,
        context: StreamContext,
        active: EpochRecord,
        holding: EpochRecord,
        following: EpochRecord,
        sizes: dict[int, int],
    ) -> None:
        """Successors are on record before the stores seal the active segments, so that a reader that finds one sealed
        finds what follows it."""

        async def change(fresh: StreamContext) -> None:
            _require_same(fresh, context)
            for epoch in (holding, following):
                await stage_epoch(fresh, epoch)
            sealed = await fresh.sealed([*active.segment_ids, *holding.segment_ids])
            for identifier in active.segment_ids:
                if identifier not in sealed:
                    fresh.stage(sealed_segment_key(identifier), SealedSegmentRecord(holding.epoch))
            for identifier in holding.segment_ids:
                if identifier not in sealed:
                    size = sizes[identifier]
                    fresh.stage(sealed_segment_key(identifier), SealedSegmentRecord(following.epoch, size))

        await self._streams.update(context.scope, context.stream, change)

    async def _move_epoch(self, context: StreamContext, active: EpochRecord, following: EpochRecord) -> None:
        """Record the sizes of what was sealed and make the last duplicate the current epoch."""
        infos = await self._segments.infos(active.names(context.scope, context.stream))
        sizes = {segment.segment_id: info.length for segment, info in zip(active.segments, infos, strict=True)}

        async def change(fresh: StreamContext) -> None:
            _require_same(fresh, context)
            current = (await fresh.current_epoch()).epoch
            if current >= following.epoch:
                return
            if current != active.epoch:
                raise DataCorruption(
                    f"stream {fresh.name} is at epoch {current}, a commit moves it from {active.epoch} to "
                    f"{following.epoch}: another run changed the epochs at the same time"
                )
            await fresh.sealed(list(sizes))
            for identifier, size in sizes.items():
                fresh.stage(sealed_segment_key(identifier), SealedSegmentRecord(active.epoch + 1, size))
            await fresh.epoch(following.epoch)
            fresh.stage_current(following)

        await self._streams.update(context.scope, context.stream, change)


def _require_same(fresh: StreamContext, context: StreamContext) -> None:
    """``StreamNotFound`` if this is a later stream of the name: a run that stood still has nothing to record there."""
    if fresh.stream_id != context.stream_id:
        raise StreamNotFound.of(context.scope, context.stream)
