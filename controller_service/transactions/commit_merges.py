"""Measures and merges the segments of the transactions that one round of commits takes."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.records import EpochRecord
from controller_service.store.stream_context import StreamContext
from controller_service.transactions.records import CommittingRecord, MergeTarget, transaction_segments
from pravega_common.errors import DataCorruption, SegmentNotFound, SegmentSealed
from pravega_common.runtime.failpoints import register

MERGED = register("transaction_commit.merged")


@dataclass(slots=True)
class _TargetMerge:
    """The merge of all sources of a round into one segment."""

    target: MergeTarget
    segment_id: int
    segment: str
    sources: list[str]
    left: list[str] = field(init=False)
    """The sources that are not known to be missing."""
    merged: dict[str, int] | None = None
    """The segment's length after each of those; None until they are merged."""

    def __post_init__(self) -> None:
        self.left = list(self.sources)

    def may_lack(self, source: str) -> bool:
        """Whether a source is known to hold nothing."""
        return self._length_of(source) == 0

    def vanished(self, source: str) -> DataCorruption:
        return DataCorruption(
            f"{source} of {self._length_of(source)} bytes is missing, and {self.segment} has no record of its merge: a "
            "transaction segment vanished without having been merged"
        )

    def _length_of(self, source: str) -> int:
        return self.target.source_lengths[self.sources.index(source)]


class CommitMerges:
    """The segments of one round: how long they are, and their merges. Every call may be made again."""

    def __init__(self, segments: SegmentAccess) -> None:
        self._segments = segments
        self._log = structlog.get_logger(service="transactions")

    async def measure(
        self, context: StreamContext, ids: Sequence[uuid.UUID], original: EpochRecord, into: EpochRecord | None
    ) -> tuple[MergeTarget, ...]:
        """The lengths of all sources, and of the targets in epoch ``into`` (None: they are yet to be made).

        ``DataCorruption`` if a source is missing: nothing has merged it yet.
        """
        numbers = [segment.number for segment in original.segments]
        sources = [name for number in numbers for name in _sources(context, ids, number)]
        targets = [] if into is None else names_by_number(context, into, numbers)
        measured = [*sources, *targets]
        lengths: list[int] = []
        for name, length in zip(measured, await self._segments.lengths(measured), strict=True):
            if length is None:
                raise DataCorruption(f"segment {name} of {context.name} is missing before its transaction was merged")
            lengths.append(length)
        before = lengths[len(sources) :] or [0] * len(numbers)
        per_target = len(ids)
        return tuple(
            MergeTarget(number, before[index], tuple(lengths[index * per_target : (index + 1) * per_target]))
            for index, number in enumerate(numbers)
        )

    async def left(
        self, context: StreamContext, ids: Sequence[uuid.UUID], targets: Sequence[MergeTarget]
    ) -> list[MergeTarget]:
        """The targets of a round as they are when others take their place: what of the sources is not merged yet."""
        sources = [name for target in targets for name in _sources(context, ids, target.number)]
        lengths = [0 if info is None else info.length for info in await self._segments.infos_found(sources)]
        return [
            MergeTarget(target.number, 0, tuple(lengths[index * len(ids) : (index + 1) * len(ids)]))
            for index, target in enumerate(targets)
        ]

    async def merge_into(
        self, context: StreamContext, record: CommittingRecord, epoch: EpochRecord
    ) -> dict[int, list[int]]:
        """Merge a round's sources into an epoch; per segment id, the offset behind each transaction."""
        ids = record.ids
        by_number = {segment.number: segment for segment in epoch.segments}
        merges = [
            _TargetMerge(
                target,
                by_number[target.number].segment_id,
                by_number[target.number].name(context.scope, context.stream),
                _sources(context, ids, target.number),
            )
            for target in record.targets
        ]
        errors = await self._merge_present(record, merges)
        positions = {}
        for merge in merges:
            if merge.merged is None:
                continue
            positions[merge.segment_id] = lengths = await self._lengths_after(merge)
            try:
                self.verify(record, merge.target, merge.segment, lengths)
            except DataCorruption as error:
                errors.append(error)
        if errors:
            raise _first_that_counts(errors)
        return positions

    async def _merge_present(
        self, record: CommittingRecord, merges: Sequence[_TargetMerge]
    ) -> list[SegmentSealed | DataCorruption]:
        """Merge the sources of all targets; the errors of those that cannot be, once no merge is in flight any more.

        The store answers a merge that is made again from its record. A source that is missing without one is an error,
        unless it is known to hold nothing (a round that went on as a rolling one merged it elsewhere before), or an
        operator accepted the loss.
        """
        errors: list[SegmentSealed | DataCorruption] = []
        waiting = list(merges)
        while waiting:
            outcomes = await self._segments.merge_batches([(merge.segment, merge.left) for merge in waiting])
            again = []
            for merge, outcome in zip(waiting, outcomes, strict=True):
                if isinstance(outcome, SegmentSealed):
                    errors.append(outcome)
                elif not isinstance(outcome, SegmentNotFound):
                    merge.merged = dict(zip(merge.left, outcome, strict=True))
                elif outcome.segment not in merge.left:
                    raise outcome
                elif merge.may_lack(outcome.segment) or record.loss_accepted:
                    merge.left.remove(outcome.segment)
                    again.append(merge)
                else:
                    errors.append(merge.vanished(outcome.segment))
            waiting = again
        return errors

    async def _lengths_after(self, merge: _TargetMerge) -> list[int]:
        """The target's length after each source, of one that was merged elsewhere as after the one before it."""
        if not merge.merged:
            return [(await self._segments.info(merge.segment)).length] * len(merge.sources)
        lengths, before = [], min(merge.merged.values())
        for source in merge.sources:
            before = merge.merged.get(source, before)
            lengths.append(before)
        return lengths

    def verify(self, record: CommittingRecord, target: MergeTarget, segment: str, lengths_after: list[int]) -> None:
        """``DataCorruption`` if a target does not hold what was merged, unless an operator accepted the loss."""
        try:
            target.verify(segment, lengths_after)
        except DataCorruption as error:
            if not record.loss_accepted:
                raise
            self._log.error("bytes are missing in a commit, as an operator accepted", error=str(error))


def _first_that_counts(errors: Sequence[BaseException]) -> BaseException:
    """That a segment is sealed counts only if nothing else went wrong: the caller measures then what others did."""
    return next((error for error in errors if not isinstance(error, SegmentSealed)), errors[0])


def names_by_number(context: StreamContext, epoch: EpochRecord, numbers: Sequence[int]) -> list[str]:
    """The names of an epoch's segments with these numbers."""
    by_number = {segment.number: segment for segment in epoch.segments}
    return [by_number[number].name(context.scope, context.stream) for number in numbers]


def _sources(context: StreamContext, ids: Sequence[uuid.UUID], number: int) -> list[str]:
    """The segments with this number of all transactions, in commit order."""
    return [
        name for identifier in ids for name in transaction_segments(context.scope, context.stream, identifier, [number])
    ]
