"""Binds, releases, orders and aborts the member transactions of a set."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.sets.sink_store import Registered
from controller_service.sets.transaction_set import MemberRecord
from controller_service.transactions.completions import Expectation
from controller_service.transactions.lifecycle import BindingSets, TransactionService
from controller_service.transactions.records import ActiveTransaction, RegistrationRecord, SetReference
from controller_service.transactions.transaction_store import Change, Found
from pravega_common.errors import DataCorruption, PravegaError, StreamNotFound
from pravega_common.model.transactions import TransactionState
from pravega_common.names import scoped_name, split_scoped_name
from pravega_common.runtime.joined import all_ended

members_per_step_max: Final = 500
"""Records read or written in one call."""
aborts_concurrent_max: Final = 32

Chunk = tuple[str, str, list[uuid.UUID]]
"""Scope, stream, and transactions of it."""


@dataclass(frozen=True, slots=True)
class LostMember:
    """A transaction that a committed set promised, and that is neither there nor committed."""

    scope: str
    stream: str
    id: uuid.UUID
    detail: str


class MemberTransactions:
    """Every operation is idempotent and reads before it writes; streams are worked on concurrently."""

    def __init__(self, transactions: TransactionService, sets: BindingSets) -> None:
        self._transactions = transactions
        self._records = transactions.records
        self._sets = sets

    async def bind(self, reference: SetReference, batch_id: int, members: Sequence[MemberRecord]) -> str:
        """Bind all members to the set; empty when that succeeded, else why it cannot.

        A failure may leave some bound: the caller refuses the set and releases them.
        """

        async def bind(chunk: Chunk) -> str:
            scope, stream, ids = chunk
            found = await self._records.get_many(scope, stream, ids)
            changes: list[Change] = []
            for identifier, item in zip(ids, found, strict=True):
                if item is None:
                    ended = await self._records.completed_state(scope, stream, identifier)
                    return _not_open(scope, stream, identifier, ended)
                obstacle = await self._obstacle(chunk, identifier, item.record, reference, batch_id)
                if obstacle:
                    return obstacle
                if item.record.bound_to != reference:
                    changes.append((identifier, dataclasses.replace(item.record, bound_to=reference), item.version))
            if changes:
                await self._records.put_many(scope, stream, changes)
            return ""

        return await self._checked(members, bind)

    async def _obstacle(
        self,
        chunk: Chunk,
        identifier: uuid.UUID,
        record: ActiveTransaction,
        reference: SetReference,
        batch_id: int,
    ) -> str:
        scope, stream, _ = chunk
        if record.state is not TransactionState.OPEN:
            return _not_open(scope, stream, identifier, record.state)
        registered = record.registration
        if registered is not None and (registered.sink, registered.batch_id) != (reference.sink, batch_id):
            return f"transaction {identifier} of {scope}/{stream} was registered for another batch or sink"
        bound = record.bound_to
        if bound is not None and bound != reference and await self._sets.holds(bound):
            return f"transaction {identifier} of {scope}/{stream} belongs to another transaction set"
        return ""

    async def register(self, registration: RegistrationRecord, members: Sequence[MemberRecord]) -> str:
        """Note on each member which batch it is for; empty, else which member is not open."""

        async def register(chunk: Chunk) -> str:
            scope, stream, ids = chunk
            found = await self._records.get_many(scope, stream, ids)
            changes: list[Change] = []
            for identifier, item in zip(ids, found, strict=True):
                if item is None or item.record.state is not TransactionState.OPEN:
                    state = TransactionState.UNKNOWN if item is None else item.record.state
                    return _not_open(scope, stream, identifier, state)
                if item.record.registration != registration and item.record.bound_to is None:
                    noted = dataclasses.replace(item.record, registration=registration)
                    changes.append((identifier, noted, item.version))
            if changes:
                await self._records.put_many(scope, stream, changes)
            return ""

        return await self._checked(members, register)

    async def release(self, reference: SetReference, members: Sequence[MemberRecord]) -> None:
        """Let go of what is still bound to a set that can never commit."""

        async def release(chunk: Chunk) -> str:
            scope, stream, ids = chunk
            found = await self._records.get_many(scope, stream, ids)
            changes = [
                (identifier, dataclasses.replace(item.record, bound_to=None), item.version)
                for identifier, item in zip(ids, found, strict=True)
                if item is not None and _is_bound(item, reference)
            ]
            if changes:
                await self._records.put_many(scope, stream, changes)
            return ""

        await self._checked(members, release)

    async def stream_ids(self, members: Sequence[MemberRecord]) -> dict[str, str]:
        """The ids of the streams of members that are bound, by ``scope/stream``: none of them can be deleted."""
        streams = dict.fromkeys(member.stream for member in members)
        return {stream: (await self._records.tables(*split_scoped_name(stream))).stream_id for stream in streams}

    async def order(
        self, reference: SetReference, members: Sequence[MemberRecord], stream_ids: Mapping[str, str]
    ) -> tuple[tuple[str, ...], PravegaError | None]:
        """Put the members of a committed set into the commit orders of their streams, in the order given.

        Returns the streams where that is done and what keeps one of the others from it: ``DataCorruption`` if a member
        was lost, since a committed set's member is open and bound, committing, or committed. One that an operator gave
        up is passed over, as is a stream that was deleted, also if there is another one of its name by now.
        """

        async def order_stream(chunks: Sequence[Chunk]) -> PravegaError | None:
            scope, stream, _ = chunks[0]
            try:
                # One after the other: the order of the whole stream is that of the members.
                for chunk in chunks:
                    await self._records.retrying(lambda chunk=chunk: self._order_chunk(reference, chunk))  # type: ignore[misc]
            except (StreamNotFound, DataCorruption) as error:
                return None if await self._is_deleted(scope, stream, stream_ids) else error
            except PravegaError as error:
                return error
            return None

        by_stream: dict[str, list[Chunk]] = {}
        for chunk in _chunks(members):
            by_stream.setdefault(scoped_name(*chunk[:2]), []).append(chunk)
        problems = await all_ended(map(order_stream, by_stream.values()))
        done = tuple(stream for stream, problem in zip(by_stream, problems, strict=True) if problem is None)
        return done, next(filter(None, problems), None)

    async def _is_deleted(self, scope: str, stream: str, stream_ids: Mapping[str, str]) -> bool:
        """A stream is deleted only when no transaction is left in it. One that merely lost its records is not.

        ``stream_ids``: those of the set; a stream of another id was made again under the name.
        """
        entry = await self._records.streams.entry(scope, stream)
        return entry is None or entry.stream_id != stream_ids.get(scoped_name(scope, stream), entry.stream_id)

    async def _order_chunk(self, reference: SetReference, chunk: Chunk) -> None:
        scope, stream, ids = chunk
        found, commits = await self._records.get_with_commits(scope, stream, ids)
        changes: list[Change] = []
        for identifier, item in zip(ids, found, strict=True):
            if item is not None and _is_bound(item, reference):
                marked = dataclasses.replace(item.record, state=TransactionState.COMMITTING)
                changes.append((identifier, marked, item.version))
                continue
            lost = await self._lost(reference, scope, stream, identifier, item)
            if lost is not None:
                raise DataCorruption(lost.detail)
        if changes:
            await self._transactions.order.add(scope, stream, changes, commits)

    async def lost(
        self, reference: SetReference, members: Sequence[MemberRecord], stream_ids: Mapping[str, str]
    ) -> list[LostMember]:
        """The members that keep a committed set out of the commit orders until an operator gives them up."""

        async def look(chunk: Chunk) -> list[LostMember]:
            scope, stream, ids = chunk
            try:
                found = await self._records.get_many(scope, stream, ids)
            except StreamNotFound:
                return []
            looked = [
                await self._lost(reference, scope, stream, identifier, item)
                for identifier, item in zip(ids, found, strict=True)
                if item is None or not _is_bound(item, reference)
            ]
            lost = [item for item in looked if item is not None]
            return [] if lost and await self._is_deleted(scope, stream, stream_ids) else lost

        return [item for found in await all_ended(map(look, _chunks(members))) for item in found]

    async def _lost(
        self, reference: SetReference, scope: str, stream: str, identifier: uuid.UUID, item: Found | None
    ) -> LostMember | None:
        """The loss of a member that is not bound any more; None if it went on as decided, or an operator gave it up."""
        found = await self._records.completed(scope, stream, identifier) if item is None else item.record
        state = TransactionState.UNKNOWN if found is None else found.state
        if state in (TransactionState.COMMITTING, TransactionState.COMMITTED) or (found is not None and found.lost):
            return None
        detail = (
            f"transaction {identifier} of {scope}/{stream} is {state.value}, but its set {reference.sequence} "
            f"of sink {reference.sink} is committed"
        )
        return LostMember(scope, stream, identifier, detail)

    async def schedule(self, members: Iterable[MemberRecord]) -> None:
        """Have the commit orders of the members' streams worked off."""
        streams = dict.fromkeys(member.stream for member in members)
        schedule = self._transactions.scheduler.schedule_commit
        await all_ended(schedule(*split_scoped_name(stream)) for stream in streams)

    def expect(self, members: Sequence[MemberRecord]) -> Expectation:
        """Something to wait with until this controller has made all members readable."""
        return self._transactions.completions.expect([uuid.UUID(hex=member.transaction) for member in members])

    async def unfinished(self, members: Sequence[MemberRecord]) -> int:
        """The number of members that are not completed."""

        async def count(chunk: Chunk) -> int:
            scope, stream, ids = chunk
            try:
                return sum(item is not None for item in await self._records.get_many(scope, stream, ids))
            except StreamNotFound:
                if await self._is_deleted(scope, stream, {}):
                    return 0
                raise

        return sum(await all_ended(map(count, _chunks(members))))

    async def abort(self, transactions: Sequence[Registered]) -> None:
        """Abort those that are open and held by no set; the others are left alone."""
        for start in range(0, len(transactions), aborts_concurrent_max):
            await all_ended(
                self._transactions.abort(*split_scoped_name(item.stream), uuid.UUID(hex=item.transaction))
                for item in transactions[start : start + aborts_concurrent_max]
            )

    async def _checked(self, members: Sequence[MemberRecord], work: Callable[[Chunk], Awaitable[str]]) -> str:
        """Run ``work`` on all chunks; the first complaint, or an empty text."""

        async def run(chunk: Chunk) -> str:
            try:
                return await self._records.retrying(lambda: work(chunk))
            except StreamNotFound as error:
                return str(error)

        return next(filter(None, await all_ended(map(run, _chunks(members)))), "")


def _is_bound(item: Found, reference: SetReference) -> bool:
    return item.record.state is TransactionState.OPEN and item.record.bound_to == reference


def _not_open(scope: str, stream: str, identifier: uuid.UUID, state: TransactionState) -> str:
    return f"transaction {identifier} of {scope}/{stream} is {state.value}, not open"


def _chunks(members: Iterable[MemberRecord]) -> list[Chunk]:
    """Members by stream, in their order, a bounded number at a time."""
    by_stream: dict[str, list[uuid.UUID]] = {}
    for member in members:
        by_stream.setdefault(member.stream, []).append(uuid.UUID(hex=member.transaction))
    return [
        (*split_scoped_name(stream), ids[start : start + members_per_step_max])
        for stream, ids in by_stream.items()
        for start in range(0, len(ids), members_per_step_max)
    ]
