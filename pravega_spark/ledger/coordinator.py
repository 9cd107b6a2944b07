"""Decides transaction sets by the controller's extension, or by the ledger of the sink where a controller has none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from pravega_common.errors import UnsupportedOperation
from pravega_common.model.transaction_sets import Registration, SetDecision, Sink, SinkStatus, TransactionSet
from pravega_spark.ledger.batch import BatchCommit, BatchRegistration
from pravega_spark.ledger.record import table_segment
from pravega_spark.ledger.table_ledger import TableLedger
from pravega_streams.client import StreamClient
from pravega_streams.table.blocking_table import BlockingTable

_log = logging.getLogger(__name__)

T = TypeVar("T")


class TransactionCoordinator:
    """The coordinator of transaction sets on one cluster.

    The first call finds out whether the controller has the extension, and all later ones take the same way. All
    controllers of a cluster must have it, or none: a sink's two kinds of record know nothing of each other.
    """

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._ledger: TableLedger | None = None
        self._opening = threading.Lock()
        """A task and the keeper of its lease may find out at the same time that there is no extension."""
        self._has_warned = False

    def register(self, registration: BatchRegistration) -> Registration:
        identity, members = registration.identity, registration.members
        return self._either(
            lambda: self._client.sets.register(identity.sink, identity.run_id, identity.batch_id, members),
            lambda ledger: ledger.register(registration),
        )

    def commit(self, commit: BatchCommit) -> SetDecision:
        return self._either(lambda: self._commit_by_extension(commit), lambda ledger: self._commit_by(ledger, commit))

    def _commit_by_extension(self, commit: BatchCommit) -> SetDecision:
        identity = commit.identity
        return self._client.sets.commit(
            identity.sink, identity.run_id, identity.batch_id, commit.members, commit.events, commit.size_bytes
        )

    def _commit_by(self, ledger: TableLedger, commit: BatchCommit) -> SetDecision:
        self._warn_once(commit.identity.sink)
        return ledger.commit(commit)

    def get(self, sink: Sink, batch_id: int, wait_ms: int = 0) -> tuple[TransactionSet, int]:
        """The batch's set, and the last committed batch id of the sink (-1 if none)."""
        return self._either(
            lambda: self._client.sets.get(sink, batch_id, wait_ms), lambda ledger: ledger.get(sink, batch_id)
        )

    def list_sinks(self) -> Iterator[SinkStatus]:
        """The records of all sinks in all scopes."""
        try:
            yield from self._client.sets.list_sinks()
            return
        except UnsupportedOperation:
            scopes = list(self._client.controller.list_scopes())
        for scope in scopes:
            yield from self._opened_ledger().list_sinks(scope)

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _either(self, by_extension: Callable[[], T], by_ledger: Callable[[TableLedger], T]) -> T:
        if self._ledger is None:
            try:
                return by_extension()
            except UnsupportedOperation as error:
                _log.info("no extension: %s", error)
        return by_ledger(self._opened_ledger())

    def _opened_ledger(self) -> TableLedger:
        with self._opening:
            if self._ledger is None:
                segments = self._client.segments
                self._ledger = TableLedger(self._client.controller, lambda segment: BlockingTable(segments, segment))
            return self._ledger

    def _warn_once(self, sink: Sink) -> None:
        """Warn once per query: Spark commits all batches of a query in one process. Its tasks, in many, do not warn."""
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the controller %s cannot decide several transactions as one: %s writes exactly once by a record in %s",
                self._client.controller.transport.endpoints[0],
                sink.query_id,
                table_segment(sink),
            )
