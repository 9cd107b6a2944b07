"""Finds the obstacles of a stream's commits and carries out the two remedies that an operator has.

A commit that was promised is never dropped by itself, so data that is lost stops its stream; a transaction that is lost
on its way from a committed set into the commit order stops the sink of the set. A transaction that
lost data before anything of it was merged can be given up: none of it is ever readable. A round that lost data in the
middle has merged the rest already: all that can be done is to let it end without the lost bytes.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from controller_service.segment_access.segment_access import SegmentAccess, calls_at_once_max
from controller_service.sets.members import LostMember
from controller_service.store.stream_context import StreamContext
from controller_service.store.versioned_store import ABSENT
from controller_service.transactions.commit_queue import commit_batch_max
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.records import ActiveTransaction, CommittingRecord, transaction_segments
from controller_service.transactions.scheduling import WorkScheduler
from controller_service.transactions.stream_index import StreamIndex
from controller_service.transactions.transaction_store import Change, Found, TransactionStore
from pravega_common import names
from pravega_common.errors import DataCorruption, InvalidArgument, SegmentNotFound, StreamNotFound
from pravega_common.model.commits import Obstacle, ObstacleKind
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import both_ended, each_ended

looks_max: Final = 3
"""How often a stream is looked at again because it moved: one that moves is not blocked."""

GIVEN_UP = register("transaction_repair.given_up")
LOSS_ACCEPTED = register("transaction_repair.loss_accepted")


@dataclass(frozen=True, slots=True)
class CommitFindings:
    """The commit order of a stream, the round in it, and what keeps either from going on."""

    state: CommitState
    obstacles: tuple[Obstacle, ...] = ()

    @property
    def are_idle(self) -> bool:
        return self.state.is_idle


class Sets(Protocol):
    """The transaction sets, as seen from the repair."""

    async def lost_members(self, stream: str = "") -> list[LostMember]:
        """As ``TransactionSetService.lost_members``: of ``scope/stream``, or of all."""
        ...


class CommitRepair:
    def __init__(
        self,
        records: TransactionStore,
        index: StreamIndex,
        segments: SegmentAccess,
        scheduler: WorkScheduler,
        sets: Sets,
    ) -> None:
        self._records = records
        self._index = index
        self._segments = segments
        self._scheduler = scheduler
        self._sets = sets
        self._log = structlog.get_logger(service="transactions")

    # ---- looking -----------------------------------------------------------------------------------------------------

    async def look(self, scope: str, stream: str) -> CommitFindings:
        """``StreamNotFound``. Obstacles are those of the round, or of the next one; a stream that moves has none. Then
        come the transactions that committed sets lost on their way into the order."""
        name = names.scoped_name(scope, stream)
        commits, lost = await both_ended(self._look_at_order(scope, stream), self._sets.lost_members(name))
        return _with_lost(commits, scope, stream, lost)

    async def _look_at_order(self, scope: str, stream: str) -> CommitFindings:
        for _ in range(looks_max):
            context, state = await both_ended(
                self._records.streams.open(scope, stream), self._records.commit_state(scope, stream)
            )
            if state.committing.is_idle:
                obstacles = await self._before_a_round(context, state)
            else:
                obstacles = await self._in_the_round(context, state.committing)
            if not obstacles:
                return CommitFindings(state)
            # What was missing may have been merged by a round that began, or ended, while it was looked for.
            again = await self._records.commit_state(scope, stream)
            if again.committing_version == state.committing_version:
                return CommitFindings(again, tuple(obstacles))
        return CommitFindings(again)

    async def blocked_streams(self) -> list[tuple[str, str, tuple[Obstacle, ...]]]:
        """Scope, stream and obstacles of every stream that has any."""
        blocked = []
        lost = await self._sets.lost_members()
        streams = {*await self._index.all_streams(), *((member.scope, member.stream) for member in lost)}
        for scope, stream in sorted(streams):
            try:
                commits = CommitFindings(await self._records.commit_state(scope, stream))
                if not commits.are_idle:
                    commits = await self._look_at_order(scope, stream)
                obstacles = _with_lost(commits, scope, stream, lost).obstacles
            except StreamNotFound:
                continue
            except DataCorruption as error:
                obstacles = (Obstacle(ObstacleKind.LOST_SEGMENT, str(error)),)
            if obstacles:
                blocked.append((scope, stream, obstacles))
        return blocked

    async def _before_a_round(self, context: StreamContext, state: CommitState) -> list[Obstacle]:
        scope, stream = context.scope, context.stream
        state = await self._records.with_next_blocks(scope, stream, state, commit_batch_max)
        batch = state.queue.next_batch(state.blocks)
        if not batch:
            return []
        obstacles = []
        for identifier, found in zip(batch, await self._records.get_many(scope, stream, batch), strict=True):
            obstacle = await self._of_transaction(context, identifier, found)
            if obstacle is not None:
                obstacles.append(obstacle)
        active = await context.current_epoch()
        original = await context.epoch(names.transaction_epoch(batch[0]))
        if active.reference_epoch == original.reference_epoch:
            targets = active.names(scope, stream)
            lengths = await self._lengths(targets)
            obstacles += [
                Obstacle(ObstacleKind.LOST_SEGMENT, f"segment {name} of the stream is gone")
                for name, length in zip(targets, lengths, strict=True)
                if length is None
            ]
        return obstacles

    async def _of_transaction(
        self, context: StreamContext, identifier: uuid.UUID, found: Found | None
    ) -> Obstacle | None:
        scope, stream = context.scope, context.stream
        if found is None:
            state = await self._records.completed_state(scope, stream, identifier)
            fits = state is TransactionState.COMMITTED
        else:
            state = found.record.state
            fits = state is TransactionState.COMMITTING
        if not fits or found is None:
            detail = f"transaction {identifier} is in the commit order, but is {state.value}"
            return None if fits else Obstacle(ObstacleKind.STRAY_ENTRY, detail, identifier)
        sources = transaction_segments(scope, stream, identifier, found.record.segments)
        gone = [name for name, length in zip(sources, await self._lengths(sources), strict=True) if length is None]
        if not gone:
            return None
        detail = f"transaction {identifier} lost {len(gone)} of its {len(sources)} segments: {', '.join(gone[:3])}"
        return Obstacle(ObstacleKind.LOST_TRANSACTION, detail, identifier)

    async def _in_the_round(self, context: StreamContext, record: CommittingRecord) -> list[Obstacle]:
        """Sources first: one that is merged in between is counted as there, and its target is only longer."""
        scope, stream = context.scope, context.stream
        numbers = [target.number for target in record.targets]
        sources = [transaction_segments(scope, stream, item, numbers) for item in record.ids]
        left = [await self._lengths(of_one) for of_one in sources]
        targets = await self._target_names(context, record)
        lengths = await self._lengths(targets)
        obstacles = []
        for index, (target, name, length) in enumerate(zip(record.targets, targets, lengths, strict=True)):
            if length is None and not record.rolling:
                obstacles.append(Obstacle(ObstacleKind.LOST_SEGMENT, f"segment {name} of the stream is gone"))
                continue
            gone = [size for size, there in zip(target.source_lengths, left, strict=True) if there[index] is None]
            least = target.length_before + sum(gone)
            if (length or 0) < least and not record.loss_accepted:
                detail = f"segment {name} has {length or 0} bytes, {least} expected: {least - (length or 0)} are lost"
                obstacles.append(Obstacle(ObstacleKind.SHORT_MERGE, detail))
            elif length is not None and not record.loss_accepted:
                missing = [
                    (of_one[index], size)
                    for of_one, there, size in zip(sources, left, target.source_lengths, strict=True)
                    if size and there[index] is None
                ]
                obstacles += await self._without_record(name, missing)
        return obstacles

    async def _without_record(self, target: str, gone: Sequence[tuple[str, int]]) -> list[Obstacle]:
        """The sources, of those that are gone, whose merge the store does not know of. Asking changes nothing: the
        merge of a segment that is gone only tells whether there was one."""
        obstacles = []
        for source, size in gone:
            try:
                await self._segments.merge_batch(target, [source])
            except SegmentNotFound:
                detail = f"segment {source} of {size} bytes is gone, and {target} has no record of its merge"
                obstacles.append(Obstacle(ObstacleKind.SHORT_MERGE, detail))
        return obstacles

    @staticmethod
    async def _target_names(context: StreamContext, record: CommittingRecord) -> list[str]:
        """The segments that receive a round's bytes, in the order of its targets; a rolling round makes its own."""
        if record.rolling:
            ids = [names.segment_id(target.number, record.active_epoch + 1) for target in record.targets]
        else:
            active = await context.epoch(record.active_epoch)
            by_number = {segment.number: segment.segment_id for segment in active.segments}
            ids = [by_number[target.number] for target in record.targets]
        return [names.segment_name(context.scope, context.stream, identifier) for identifier in ids]

    async def _lengths(self, segments: Sequence[str]) -> list[int | None]:
        """None where there is no segment."""

        async def length(segment: str) -> int | None:
            try:
                return (await self._segments.info(segment)).length
            except SegmentNotFound:
                return None

        return await each_ended(length, segments, at_once=calls_at_once_max)

    # ---- ways out ----------------------------------------------------------------------------------------------------

    async def give_up(self, scope: str, stream: str, identifier: uuid.UUID) -> None:
        """Take a transaction that is an obstacle out of the commit order and abort what is left of it. Idempotent.

        ``InvalidArgument`` for any other transaction, ``StreamNotFound``.
        """

        async def attempt() -> None:
            found = await self._records.get(scope, stream, identifier)
            if await self._was_given_up(scope, stream, identifier, found):
                return
            commits = await self.look(scope, stream)
            obstacle = next((one for one in commits.obstacles if one.transaction == identifier), None)
            if obstacle is None:
                raise InvalidArgument(_why_not(identifier, commits, found))
            changes: list[Change] = []
            if obstacle.kind is ObstacleKind.LOST_TRANSACTION:
                changes = [await self._given_up(scope, stream, identifier, found)]
            await self._records.give_up(scope, stream, changes, commits.state, [identifier])
            self._log.error("transaction given up by an operator", stream=f"{scope}/{stream}", reason=obstacle.detail)
            failpoint(GIVEN_UP)

        await self._records.retrying(attempt)
        left = await self._records.get(scope, stream, identifier)
        if left is not None and left.record.state is TransactionState.ABORTING:
            await self._scheduler.schedule_abort(scope, stream, identifier)
        await self._scheduler.schedule_commit(scope, stream)

    async def _given_up(self, scope: str, stream: str, identifier: uuid.UUID, found: Found | None) -> Change:
        """To be aborted and marked as lost; without a record a new one, from what the id tells."""
        if found is not None:
            return identifier, _lost(found.record), found.version
        epoch = await (await self._records.streams.open(scope, stream)).epoch(names.transaction_epoch(identifier))
        numbers = tuple(segment.number for segment in epoch.segments)
        now_ms = self._records.streams.clock.wall_ms()
        return identifier, _lost(ActiveTransaction(TransactionState.OPEN, now_ms, 0, now_ms, now_ms, numbers)), ABSENT

    async def _was_given_up(self, scope: str, stream: str, identifier: uuid.UUID, found: Found | None) -> bool:
        if found is not None:
            return found.record.lost
        ended = await self._records.completed(scope, stream, identifier)
        return ended is not None and ended.lost

    async def accept_loss(self, scope: str, stream: str) -> None:
        """Let the round that lost bytes end with what is there. Idempotent. ``InvalidArgument`` unless the round is the
        obstacle, ``StreamNotFound``."""

        async def attempt() -> None:
            commits = await self.look(scope, stream)
            if commits.state.committing.loss_accepted:
                return
            details = [one.detail for one in commits.obstacles if one.kind is ObstacleKind.SHORT_MERGE]
            if not details:
                raise InvalidArgument(f"no commit of {scope}/{stream} has lost bytes on its way: nothing to accept")
            accepted = dataclasses.replace(commits.state.committing, loss_accepted=True)
            await self._records.begin_round(scope, stream, commits.state, accepted)
            self._log.error("loss accepted by an operator", stream=f"{scope}/{stream}", reasons=details)
            failpoint(LOSS_ACCEPTED)

        await self._records.retrying(attempt)
        await self._scheduler.schedule_commit(scope, stream)


def _lost(record: ActiveTransaction) -> ActiveTransaction:
    return dataclasses.replace(record, state=TransactionState.ABORTING, bound_to=None, lost=True)


def _with_lost(commits: CommitFindings, scope: str, stream: str, lost: Sequence[LostMember]) -> CommitFindings:
    obstacles = tuple(
        Obstacle(ObstacleKind.LOST_TRANSACTION, item.detail, item.id)
        for item in lost
        if (item.scope, item.stream) == (scope, stream)
    )
    return dataclasses.replace(commits, obstacles=commits.obstacles + obstacles)


def _why_not(identifier: uuid.UUID, commits: CommitFindings, found: Found | None) -> str:
    if identifier in commits.state.committing.ids:
        return (
            f"transaction {identifier} is being merged, parts of it may be readable: it cannot be given up; if its "
            "round has lost bytes, accept the loss"
        )
    if found is not None and found.record.state is TransactionState.COMMITTING:
        return f"transaction {identifier} waits for its turn and nothing that is next in the order shows it to be lost"
    return f"transaction {identifier} does not wait for its commit"
