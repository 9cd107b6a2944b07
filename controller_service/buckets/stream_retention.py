"""Applies retention to one stream: records the tail, decides, truncates, forgets what lies before the head."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import structlog

from controller_service.errors import CutTruncated, WaitTimedOut
from controller_service.policies.retention import (
    BoundFacts,
    Relation,
    TruncationBound,
    candidates,
    compare,
    decide,
    lower_bound,
)
from controller_service.queue.request_ids import digest_of
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.cut_validity import is_valid_in
from controller_service.store.history import bytes_between, place_in
from controller_service.store.records import (
    RETENTION_SET,
    SUBSCRIBERS,
    TRUNCATION,
    RetentionCutRecord,
    RetentionReference,
    RetentionSetRecord,
    StreamState,
    SubscribersRecord,
    retention_cut_key,
)
from controller_service.store.retained_streams import is_retained
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut, is_at_or_after
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.truncate_stream import TruncateStream
from pravega_common.errors import NotFound, SegmentNotFound
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.segments import SegmentOffsets
from pravega_common.runtime.failpoints import failpoint, register

references_max: Final = 4_096
"""References of one stream: 85 days at 30 min each. Keeps the record well below the largest value of a table."""

RECORDED = register("controller.retention_recorded")
TRUNCATED = register("controller.retention_truncated")
FORGOTTEN = register("controller.retention_forgotten")
CUT_REMOVED = register("controller.retention_cut_removed")

_IDLE: Final = (StreamState.CREATING, StreamState.SEALING)


class StreamRetention:
    def __init__(
        self,
        store: StreamStore,
        access: SegmentAccess,
        truncate: TruncateStream,
        period_ms: int,
        heard_of: Callable[[str, Iterable[str]], None] = lambda stream, subscribers: None,
    ) -> None:
        """``period_ms``: least time between two cuts of a stream. ``heard_of`` takes the subscribers of a stream, by
        ``scope/stream``, whenever they are read."""
        self._store = store
        self._access = access
        self._truncate = truncate
        self._period_ms = period_ms
        self._heard_of = heard_of
        self._log = structlog.get_logger(service="retention")

    async def apply(self, scope: str, stream: str) -> bool:
        """Do what is due; False for a stream that takes no part until somebody gives it a policy.

        Idempotent; ``StreamNotFound``, and whatever the store and the segments' calls raise.
        """
        return await self.apply_to(await self._store.open(scope, stream))

    async def apply_to(self, context: StreamContext) -> bool:
        """``apply`` to a stream that was just opened: without a policy it costs nothing more."""
        scope, stream = context.scope, context.stream
        configuration = (await context.configuration()).configuration
        policy, state = configuration.retention, await context.state()
        if policy is None or not is_retained(configuration) or state is StreamState.SEALED:
            return False
        if state in _IDLE:
            return True
        if await _has_truncated(context):
            await self._remove_dropped(context)
            await self._forget(scope, stream)
        await self._store.update(scope, stream, self._record_tail, RETENTION_SET)
        failpoint(RECORDED)
        context = await self._store.open(scope, stream, RETENTION_SET, SUBSCRIBERS, TRUNCATION)
        await self._remove_dropped(context)
        cut = await self._where(context, policy)
        if cut is not None:
            await self._truncate_at(context, cut)
        failpoint(TRUNCATED)
        await self._forget(scope, stream)
        return True

    # ---- the set of cuts ---------------------------------------------------------------------------------------------

    async def _record_tail(self, context: StreamContext) -> None:
        """Stage a reference to the tail of now, unless the last one is younger than the period.

        One that lies further ahead than that is of a clock that was wrong: waiting for its time would stop retention.
        """
        record = await context.read(RETENTION_SET) or RetentionSetRecord()
        references = record.references
        now_ms = self._store.clock.wall_ms()
        if references and abs(now_ms - references[-1].recorded_ms) < self._period_ms:
            return
        if now_ms in {*(reference.recorded_ms for reference in references), *record.dropped}:
            return  # A clock that went back names no second cut like the first.
        epoch = await context.current_epoch()
        names = epoch.names(context.scope, context.stream)
        infos = await self._access.infos(names)
        cut = {identifier: info.length for identifier, info in zip(epoch.segment_ids, infos, strict=True)}
        size = await _size_till(context, references[-1] if references else None, await place_in(context, cut))
        await context.put(retention_cut_key(now_ms), RetentionCutRecord(cut))
        references = (*references, RetentionReference(now_ms, size))
        context.stage(RETENTION_SET, dataclasses.replace(record, references=references))

    async def _forget(self, scope: str, stream: str) -> None:
        """Drop the references that lie before the head, and some if there are too many, and then their cuts."""

        async def change(context: StreamContext) -> None:
            record = await context.read(RETENTION_SET) or RetentionSetRecord()
            references = record.references
            head = (await context.truncation()).cut
            first = 0
            if head:
                first = max(0, await _newest_not_after(context, references, await place_in(context, head)))
                if references and await _placed(context, references[first]) is None:
                    first += 1
            kept = thinned(references[first:])
            if len(kept) < len(references):
                gone = sorted(reference.recorded_ms for reference in set(references) - set(kept))
                context.stage(RETENTION_SET, RetentionSetRecord(tuple(kept), (*record.dropped, *gone)))

        context = await self._store.update(scope, stream, change, RETENTION_SET, TRUNCATION)
        failpoint(FORGOTTEN)
        await self._remove_dropped(context)

    async def _remove_dropped(self, context: StreamContext) -> None:
        """Remove the cuts that are not referred to any more, those also that an earlier run died removing.

        Before more are dropped: what waits to be removed is one run's.
        """
        record = await context.read(RETENTION_SET) or RetentionSetRecord()
        removed = frozenset(record.dropped)
        for recorded_ms in sorted(removed.difference(reference.recorded_ms for reference in record.references)):
            try:
                await self._store.tables.remove(context.metadata_table, retention_cut_key(recorded_ms).name)
            except SegmentNotFound:
                # The stream was deleted, and its cuts with it.
                return
            failpoint(CUT_REMOVED)

        async def change(context: StreamContext) -> None:
            record = await context.read(RETENTION_SET) or RetentionSetRecord()
            left = tuple(recorded_ms for recorded_ms in record.dropped if recorded_ms not in removed)
            if left != record.dropped:
                context.stage(RETENTION_SET, dataclasses.replace(record, dropped=left))

        if removed:
            await self._store.update(context.scope, context.stream, change, RETENTION_SET)

    # ---- truncation --------------------------------------------------------------------------------------------------

    async def _where(self, context: StreamContext, policy: RetentionPolicy) -> SegmentOffsets | None:
        """The cut to truncate at, or None."""
        references = (await context.read(RETENTION_SET) or RetentionSetRecord()).references
        found = candidates(policy, references, self._store.clock.wall_ms())
        bound = await self._lower_bound(context)
        if bound is None:
            target = decide(policy, found, None)
        elif not await is_valid_in(context, bound):
            self._log.warning("subscribers' cuts contradict each other", stream=context.name, bound=bound.cut)
            return None
        else:
            newest = await _newest_not_after(context, references, bound)
            before = references[newest] if newest >= 0 else None
            retained = 0
            if policy.retention_type is RetentionType.SIZE:
                retained = references[-1].size_till - await _size_till(context, before, bound)
            relation = beyond = Relation.BEFORE
            if found.minimum is not None:
                relation = compare(await _cut_of(context, found.minimum[1]), bound)
            if found.beyond is not None:
                beyond = compare(bound, await _cut_of(context, found.beyond[1]))
            target = decide(policy, found, BoundFacts(retained, relation, beyond, before))
            if isinstance(target, TruncationBound) and min(bound.cut.values()) < 0:
                # Nobody could begin to read there: what is not reached yet waits for segments that would be gone.
                target = before
        if target is None:
            return None
        if isinstance(target, TruncationBound):
            return None if bound is None else bound.cut
        return (await _cut_of(context, target)).cut

    async def _lower_bound(self, context: StreamContext) -> PlacedCut | None:
        """None while no subscriber has released anything. One that is behind the head is at the head."""
        known = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
        subscribers = known.values()
        self._heard_of(context.name, known)
        head_cut = (await context.truncation()).cut
        head = await place_in(context, head_cut) if head_cut else None
        cuts = [await _from_head(context, subscriber.cut, head) for subscriber in subscribers if subscriber.cut]
        return await place_in(context, lower_bound(cuts)) if cuts else None

    async def _truncate_at(self, context: StreamContext, cut: SegmentOffsets) -> None:
        """A cut that the head has reached already is passed over."""
        head = (await context.truncation()).cut
        if head == cut:
            return
        if head and not is_at_or_after(await place_in(context, cut), await place_in(context, head)):
            return
        self._log.info("retention truncates", stream=context.name, segments=len(cut))
        # The same as long as the head stays: of a stream that is busy for long one request waits, and not one of each
        # run, which would all have their turn before what it is busy with.
        request_id = f"retention-{self._store.instance}-{context.stream_id}-{digest_of(sorted(head.items()))}"
        try:
            await self._truncate.truncate(request_id, context.scope, context.stream, cut)
        except WaitTimedOut as error:
            self._log.info("truncation continues", stream=context.name, error=str(error))


def thinned(references: Sequence[RetentionReference]) -> list[RetentionReference]:
    """Every second one, the oldest and the newest among them, if there are more than ``references_max``."""
    if len(references) <= references_max:
        return list(references)
    return [*references[:-1:2], references[-1]]


async def _has_truncated(context: StreamContext) -> bool:
    """Whether the oldest reference lies before the oldest epoch on record."""
    if (await context.history()).oldest_epoch == 0:
        return False
    references = (await context.read(RETENTION_SET) or RetentionSetRecord()).references
    return bool(references) and await _placed(context, references[0]) is None


async def _cut_of(context: StreamContext, reference: RetentionReference) -> PlacedCut:
    return await place_in(context, await _stored_cut(context, reference))


async def _placed(context: StreamContext, reference: RetentionReference) -> PlacedCut | None:
    """None for a reference that lies before the oldest epoch on record, and so before the head."""
    return await _placed_or_none(context, await _stored_cut(context, reference))


async def _stored_cut(context: StreamContext, reference: RetentionReference) -> SegmentOffsets:
    record = await context.read(retention_cut_key(reference.recorded_ms))
    if record is None:
        raise NotFound(f"stream {context.name}: the cut of {reference.recorded_ms} was forgotten meanwhile")
    return record.cut


async def _placed_or_none(context: StreamContext, cut: SegmentOffsets) -> PlacedCut | None:
    try:
        return await place_in(context, cut)
    except CutTruncated:
        return None


async def _from_head(context: StreamContext, cut: SegmentOffsets, head: PlacedCut | None) -> PlacedCut:
    """A cut, or the head if part of it lies before that."""
    if head is None:
        return await place_in(context, cut)
    placed = await _placed_or_none(context, cut)
    return placed if placed is not None and is_at_or_after(placed, head) else head


async def _newest_not_after(context: StreamContext, references: Sequence[RetentionReference], cut: PlacedCut) -> int:
    """Index of the newest reference that no part of ``cut`` lies before, or -1: by bisection, as tails only grow."""
    low, high = -1, len(references) - 1
    while low < high:
        middle = (low + high + 1) // 2
        placed = await _placed(context, references[middle])
        if placed is None or compare(cut, placed) is Relation.EQUAL_OR_AFTER:
            low = middle
        else:
            high = middle - 1
    return low


async def _size_till(context: StreamContext, before: RetentionReference | None, cut: PlacedCut) -> int:
    """Bytes of the stream up to ``cut``, counted from a reference that is not after it, or from the start.

    Without a reference a stream that lost epochs is counted from its head: no cut that is asked about lies before it.
    """
    if before is not None:
        return before.size_till + await bytes_between(context, await _cut_of(context, before), cut)
    if (await context.history()).oldest_epoch == 0:
        return await bytes_between(context, None, cut)
    head = await context.truncation()
    return head.size_till + await bytes_between(context, await place_in(context, head.cut), cut)
