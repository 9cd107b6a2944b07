"""Imitates a plain Pravega in memory: transactions with leases, one table, a clock that tests move."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pravega_common.errors import BadKeyVersion, SegmentNotFound
from pravega_common.model.transaction_sets import SetMember
from pravega_common.model.transactions import PingStatus, TransactionState
from pravega_spark.ledger.table_ledger import TableLedger
from pravega_streams.errors import TransactionFailed
from pravega_streams.table.table_client import NOT_EXISTS, TableItem

lease_max_ms = 600_000
kept_s = 48 * 3600.0
"""How long a completed transaction is known (docs/controller-api.md 4.7)."""


@dataclass
class Transaction:
    state: TransactionState
    lease_ends_s: float
    ended_s: float = 0.0


class PlainPravega:
    """``watch(call)`` is called before and after every call with its name and ``"before"`` or ``"after"``; it may
    raise, and then the call was not done or its answer is lost."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.transactions: dict[uuid.UUID, Transaction] = {}
        self.tables: dict[str, dict[bytes, tuple[bytes, int]]] = {}
        self.watch: Callable[[str, str], None] = lambda call, when: None
        self.lease_max_ms = lease_max_ms
        self._versions = 0
        self._ids = 0

    def sets(self) -> TableLedger:
        """One client; a new process has a new one."""
        return TableLedger(
            self,
            lambda segment: Table(self, segment),
            monotonic_s=lambda: self.now_s,
            sleep=lambda seconds: None,
            extends_leases=False,
            parallel_calls=1,
        )

    def begin(self, partition: int = 0, lease_s: float = 30.0) -> SetMember:
        """A new open transaction."""
        self._ids += 1
        identifier = uuid.UUID(int=self._ids)
        self.transactions[identifier] = Transaction(TransactionState.OPEN, self.now_s + lease_s)
        return SetMember("scope", "stream", identifier, partition, 1, 10)

    def state(self, member: SetMember) -> TransactionState:
        found = self.transactions.get(member.transaction_id)
        if found is None:
            return TransactionState.UNKNOWN
        if found.state is TransactionState.OPEN and self.now_s > found.lease_ends_s:
            found.state, found.ended_s = TransactionState.ABORTED, found.lease_ends_s
        if found.state is not TransactionState.OPEN and self.now_s > found.ended_s + kept_s:
            return TransactionState.UNKNOWN
        return found.state

    # As ``TransactionCalls``

    def ping_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID, lease_ms: int) -> PingStatus:
        self.watch("ping", "before")
        answer = self._ping(transaction_id, lease_ms)
        self.watch("ping", "after")
        return answer

    def _ping(self, transaction_id: uuid.UUID, lease_ms: int) -> PingStatus:
        match self.state(SetMember("", "", transaction_id, 0)):
            case TransactionState.COMMITTED:
                return PingStatus.COMMITTED
            case TransactionState.ABORTED:
                return PingStatus.ABORTED
            case TransactionState.OPEN:
                if lease_ms > self.lease_max_ms:
                    return PingStatus.LEASE_TOO_LARGE
                self.transactions[transaction_id].lease_ends_s = self.now_s + lease_ms / 1000
                return PingStatus.OK
            case _:
                return PingStatus.UNKNOWN

    def transaction_state(self, scope: str, stream: str, transaction_id: uuid.UUID) -> TransactionState:
        self.watch("state", "before")
        answer = self.state(SetMember("", "", transaction_id, 0))
        self.watch("state", "after")
        return answer

    def commit_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        self._end("commit", transaction_id, TransactionState.COMMITTED)

    def abort_transaction(self, scope: str, stream: str, transaction_id: uuid.UUID) -> None:
        self._end("abort", transaction_id, TransactionState.ABORTED)

    def _end(self, call: str, transaction_id: uuid.UUID, wanted: TransactionState) -> None:
        self.watch(call, "before")
        state = self.state(SetMember("", "", transaction_id, 0))
        if state is TransactionState.OPEN:
            found = self.transactions[transaction_id]
            found.state, found.ended_s = wanted, self.now_s
        elif state is not wanted:
            raise TransactionFailed(f"{call} of {transaction_id}: it is {state.name}")
        self.watch(call, "after")

    def next_version(self) -> int:
        self._versions += 1
        return self._versions


class Table:
    """As ``RecordTable``."""

    def __init__(self, store: PlainPravega, segment: str) -> None:
        self._store = store
        self._segment = segment

    def create(self) -> bool:
        self._store.watch("create", "before")
        is_new = self._segment not in self._store.tables
        self._store.tables.setdefault(self._segment, {})
        self._store.watch("create", "after")
        return is_new

    def get(self, key: bytes) -> TableItem:
        self._store.watch("get", "before")
        if self._segment not in self._store.tables:
            raise SegmentNotFound(self._segment)
        value, version = self._store.tables[self._segment].get(key, (b"", NOT_EXISTS))
        self._store.watch("get", "after")
        return TableItem(key, value, version)

    def put(self, key: bytes, value: bytes, version: int) -> int:
        self._store.watch("put", "before")
        table = self._store.tables[self._segment]
        if table.get(key, (b"", NOT_EXISTS))[1] != version:
            raise BadKeyVersion(self._segment)
        written = self._store.next_version()
        table[key] = (value, written)
        self._store.watch("put", "after")
        return written

    def items(self) -> Iterator[TableItem]:
        if self._segment not in self._store.tables:
            raise SegmentNotFound(self._segment)
        for key, (value, version) in self._store.tables[self._segment].items():
            yield TableItem(key, value, version)
