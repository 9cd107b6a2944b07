"""Asks for and decides the transactions of a batch on a plain Pravega: states, leases, commits, aborts."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pravega_common.errors import NotFound, PravegaError
from pravega_common.model.transaction_sets import SetMember
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.ledger.record import MemberStatus
from pravega_streams.errors import TransactionFailed

_log = logging.getLogger(__name__)

AFTER_ONE_COMMIT: Final = register("spark.plain.after_one_commit")

lease_ms: Final = 600_000
"""The largest that a controller accepts by default (docs/controller-api.md 4.2)."""
lease_ms_fallback: Final = 30_000
"""For a controller that is configured to accept less."""
commit_window_share: Final = 4
"""Members are committed only within this part of the lease after they were all seen open; then they are asked again.
So a driver that slept through the leases commits nothing on what it saw before."""
parallel_calls_max: Final = 8


class TransactionCalls(Protocol):
    """The calls to the controller; ``ControllerClient`` has them."""

    def ping_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID, lease_ms: int) -> PingStatus: ...

    def transaction_state(self, scope: str, stream: str, transaction_id: uuid.UUID) -> TransactionState: ...

    def commit_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None: ...

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None: ...


@dataclass(frozen=True, slots=True)
class TransactionStates:
    """The states of members, and when the first of them was asked for (monotonic seconds)."""

    of: dict[uuid.UUID, MemberStatus]
    asked_s: float
    lease_ms: int

    @property
    def commit_until_s(self) -> float:
        return self.asked_s + self.lease_ms / 1000 / commit_window_share


class BatchMembers:
    """The transactions of batches on one controller. Safe to use from several threads.

    Errors of all calls but ``abort_quietly``: ``Unavailable``, ``UnknownOutcome``: call again.
    """

    def __init__(
        self, transactions: TransactionCalls, monotonic_s: Callable[[], float], parallel_calls: int = parallel_calls_max
    ) -> None:
        self._transactions = transactions
        self._monotonic_s = monotonic_s
        self._lease_ms = lease_ms
        self._parallel_calls = parallel_calls
        self._lock = threading.Lock()
        self._readable: set[uuid.UUID] = set()
        """Those of the set that was asked for last, which is asked for until all are readable."""

    def states(self, members: Sequence[SetMember]) -> TransactionStates:
        """Ask for the states of members, and give the open ones the largest lease that is accepted."""
        asked_s = self._monotonic_s()
        calls = min(len(members), self._parallel_calls)
        if calls > 1:
            with ThreadPoolExecutor(calls, "pravega-pings") as pool:
                found = list(pool.map(self._state, members))
        else:
            found = [self._state(member) for member in members]
        of = {member.transaction_id: state for member, state in zip(members, found, strict=True)}
        return TransactionStates(of, asked_s, self._lease_ms)

    def is_open(self, member: SetMember) -> bool:
        return self._state(member) is MemberStatus.OPEN

    def commit_open(self, members: Sequence[SetMember], states: TransactionStates) -> TransactionStates | None:
        """Commit the open members in their order; ``None`` to ask for all states again."""
        of = dict(states.of)
        for member in members:
            if of[member.transaction_id] is not MemberStatus.OPEN:
                continue
            if self._monotonic_s() > states.commit_until_s:
                return None
            try:
                self._transactions.commit_transaction(member.scope, member.stream, member.transaction_id)
            except TransactionFailed:
                return None
            of[member.transaction_id] = MemberStatus.COMMITTED
            failpoint(AFTER_ONE_COMMIT, member.scope)
        return replace(states, of=of)

    def abort_open(self, members: Sequence[SetMember], states: TransactionStates) -> TransactionStates | None:
        """Abort the open members; ``None`` to ask for all states again."""
        of = dict(states.of)
        for member in members:
            if of[member.transaction_id] is not MemberStatus.OPEN:
                continue
            try:
                self._transactions.abort_transaction(member.scope, member.stream, member.transaction_id)
            except TransactionFailed:
                return None
            of[member.transaction_id] = MemberStatus.ABORTED
        return replace(states, of=of)

    def abort_quietly(self, members: Sequence[SetMember]) -> None:
        """Abort members that nobody needs; what fails is left to its lease."""
        for member in members:
            try:
                self._transactions.abort_transaction(member.scope, member.stream, member.transaction_id)
            except PravegaError as error:
                _log.info("transaction %s was not aborted, its lease will end it: %s", member.transaction_id, error)

    def are_readable(self, members: Sequence[SetMember]) -> bool:
        """True unless a member of a committed set is still being merged.

        A plain controller says so, or forgot the transaction long after it was merged. The members that a skipped set
        lacks (``on_unresolved_batch``) will never be there and are not waited for.
        """
        with self._lock:
            self._readable &= {member.transaction_id for member in members}
        return all(map(self._is_readable, members))

    def _is_readable(self, member: SetMember) -> bool:
        if member.transaction_id not in self._readable:
            state = self._transactions.transaction_state(member.scope, member.stream, member.transaction_id)
            if state is TransactionState.COMMITTING:
                return False
            with self._lock:
                self._readable.add(member.transaction_id)
        return True

    def _state(self, member: SetMember) -> MemberStatus:
        try:
            status = self._ping(member)
        except NotFound:
            return MemberStatus.UNKNOWN
        match status:
            case PingStatus.OK:
                return MemberStatus.OPEN
            case PingStatus.COMMITTED:
                return MemberStatus.COMMITTED
            case PingStatus.ABORTED:
                return MemberStatus.ABORTED
            case PingStatus.UNKNOWN:
                return MemberStatus.UNKNOWN
            case _:  # It lives too long already, or its timer is not at hand: the lease stays, the state is asked.
                return self._asked_state(member)

    def _ping(self, member: SetMember) -> PingStatus:
        name = (member.scope, member.stream, member.transaction_id)
        status = self._transactions.ping_transaction(*name, self._lease_ms)
        if status is PingStatus.LEASE_TOO_LARGE and self._lease_ms > lease_ms_fallback:
            self._lease_ms = lease_ms_fallback
            status = self._transactions.ping_transaction(*name, self._lease_ms)
        return status

    def _asked_state(self, member: SetMember) -> MemberStatus:
        state = self._transactions.transaction_state(member.scope, member.stream, member.transaction_id)
        if state is TransactionState.OPEN:
            return MemberStatus.OPEN
        if state in (TransactionState.COMMITTING, TransactionState.COMMITTED):
            return MemberStatus.COMMITTED
        if state in (TransactionState.ABORTING, TransactionState.ABORTED):
            return MemberStatus.ABORTED
        return MemberStatus.UNKNOWN
