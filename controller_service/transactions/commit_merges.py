"""Measures and merges the segments of the transactions that one round of commits takes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog

from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.records import EpochRecord
from controller_service.store.stream_context import StreamContext
from controller_service.transactions.records import CommittingRecord, MergeTarget, transaction_segments
from pravega_common.errors import DataCorruption, SegmentNotFound, SegmentSealed
from pravega_common.model.segments import SegmentInfo
from pravega_common.runtime.failpoints import register

MERGED = register("transaction_commit.merged")

calls_concurrent_max: Final = 64
"""Calls to the segment stores that one round keeps in flight."""


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
        try:
            measured = await self.infos([*sources, *targets])
        except SegmentNotFound as error:
            raise DataCorruption(
                f"segment {error.segment} of {context.name} is missing before its transaction was merged"
            ) from error
        lengths = [info.length for info in measured]
        before = lengths[len(sources) :] or [0] * len(numbers)
        per_target = len(ids)
        return tuple(
            MergeTarget(number, before[index], tuple(lengths[index * per_target : (index + 1) * per_target]))
            for index, number in enumerate(numbers)
        )

    async def infos(self, segments: Sequence[str]) -> list[SegmentInfo]:
        """Look segments up, in their order. ``SegmentNotFound`` names one that is missing."""
        infos: list[SegmentInfo] = []
        for start in range(0, len(segments), calls_concurrent_max):
            chunk = segments[start : start + calls_concurrent_max]
            infos.extend(await asyncio.gather(*map(self._segments.info, chunk)))
        return infos

    async def left(
        self, context: StreamContext, ids: Sequence[uuid.UUID], targets: Sequence[MergeTarget]
    ) -> list[MergeTarget]:
        """The targets of a round as they are when others take their place: what of the sources is not merged yet."""

        async def left(source: str) -> int:
            try:
                return (await self._segments.info(source)).length
            except SegmentNotFound:
                return 0

        return [
            MergeTarget(
                target.number, 0, tuple([await left(source) for source in _sources(context, ids, target.number)])
            )
            for target in targets
        ]

    async def merge_into(
        self, context: StreamContext, record: CommittingRecord, epoch: EpochRecord
    ) -> dict[int, list[int]]:
        """Merge a round's sources into an epoch; per segment id, the offset behind each transaction."""
        ids = record.ids
        by_number = {segment.number: segment for segment in epoch.segments}

        async def merge(target: MergeTarget) -> tuple[int, list[int]]:
            segment = by_number[target.number]
            name = segment.name(context.scope, context.stream)
            sources = _sources(context, ids, target.number)
            lengths = await self._merge_present(record, target, name, sources)
            self.verify(record, target, name, lengths)
            return segment.segment_id, lengths

        return dict(await all_ended(*map(merge, record.targets)))

    async def _merge_present(
        self, record: CommittingRecord, target: MergeTarget, segment: str, sources: list[str]
    ) -> list[int]:
        """Merge the sources; the target's length after each.

        The store answers a merge that is made again from its record. A source that is missing without one is an error,
        unless it is known to hold nothing (a round that went on as a rolling one merged it elsewhere before), or an
        operator accepted the loss.
        """
        lengths_known = dict(zip(sources, target.source_lengths, strict=True))
        left = list(sources)
        while True:
            try:
                merged = dict(zip(left, await self._segments.merge_batch(segment, left), strict=True))
                break
            except SegmentNotFound as error:
                if error.segment not in left:
                    raise
                if lengths_known[error.segment] and not record.loss_accepted:
                    raise DataCorruption(
                        f"{error.segment} of {lengths_known[error.segment]} bytes is missing, and {segment} has no "
                        "record of its merge: a transaction segment vanished without having been merged"
                    ) from error
                left.remove(error.segment)
        if not merged:
            return [(await self._segments.info(segment)).length] * len(sources)
        lengths, before = [], min(merged.values())
        for source in sources:
            before = merged.get(source, before)
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


async def all_ended(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """The results of all, once none of them is in flight any more; then the error of one if any failed.

    That a segment is sealed counts only if nothing else went wrong: it makes the caller measure what the others did.
    """
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if errors:
        raise next((error for error in errors if not isinstance(error, SegmentSealed)), errors[0])
    return outcomes


def names_by_number(context: StreamContext, epoch: EpochRecord, numbers: Sequence[int]) -> list[str]:
    """The names of an epoch's segments with these numbers."""
    by_number = {segment.number: segment for segment in epoch.segments}
    return [by_number[number].name(context.scope, context.stream) for number in numbers]


def _sources(context: StreamContext, ids: Sequence[uuid.UUID], number: int) -> list[str]:
    """The segments with this number of all transactions, in commit order."""
    return [
        name for identifier in ids for name in transaction_segments(context.scope, context.stream, identifier, [number])
    ]
