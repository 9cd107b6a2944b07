"""Which way batches are decided on a cluster: by its controller's extension, or by a record where it has none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pravega_common.errors import UnsupportedOperation
from pravega_common.model.transaction_sets import Registration, SetDecision, SetMember, Sink, SinkStatus, TransactionSet
from pravega_spark.ledger.plain_pravega import PlainSets
from pravega_spark.ledger.record import table_segment
from pravega_streams.client import StreamClient
from pravega_streams.table.blocking_table import BlockingTable

_log = logging.getLogger(__name__)

T = TypeVar("T")


class DetectedSets:
    """The first call finds out, and all later ones of this object go the same way.

    All controllers of a cluster must have the extension, or none: a sink's two kinds of record know nothing of each
    other.
    """

    def __init__(self, client: StreamClient) -> None:
        self._client = client
        self._extension = client.sets
        self._plain: PlainSets | None = None
        self._is_told = False

    def register(self, sink: Sink, run_id: str, batch_id: int, members: Sequence[SetMember]) -> Registration:
        return self._either(
            lambda: self._extension.register(sink, run_id, batch_id, members),
            lambda plain: plain.register(sink, run_id, batch_id, members),
        )

    def commit(
        self,
        sink: Sink,
        run_id: str,
        batch_id: int,
        members: Sequence[SetMember],
        events: int,
        size_bytes: int,
        on_unresolved: str,
    ) -> SetDecision:
        def by_record(plain: PlainSets) -> SetDecision:
            self._tell(sink)
            return plain.commit(sink, run_id, batch_id, members, events, size_bytes, on_unresolved)

        return self._either(
            lambda: self._extension.commit(sink, run_id, batch_id, members, events, size_bytes), by_record
        )

    def get(self, sink: Sink, batch_id: int) -> tuple[TransactionSet, int]:
        return self._either(lambda: self._extension.get(sink, batch_id), lambda plain: plain.get(sink, batch_id))

    def list_sinks(self) -> Iterator[SinkStatus]:
        """Of all scopes."""
        try:
            yield from self._extension.list_sinks()
            return
        except UnsupportedOperation:
            scopes = list(self._client.controller.list_scopes())
        for scope in scopes:
            yield from self._plain_sets().list_sinks(scope)

    def close(self) -> None:
        if self._plain is not None:
            self._plain.close()

    def _either(self, extension: Callable[[], T], record: Callable[[PlainSets], T]) -> T:
        if self._plain is None:
            try:
                return extension()
            except UnsupportedOperation as error:
                _log.info("no extension: %s", error)
        return record(self._plain_sets())

    def _plain_sets(self) -> PlainSets:
        if self._plain is None:
            segments = self._client.segments
            self._plain = PlainSets(self._client.controller, lambda segment: BlockingTable(segments, segment))
        return self._plain

    def _tell(self, sink: Sink) -> None:
        """Once per query: Spark commits all batches of a query in one process. Its tasks, in many, say nothing."""
        if not self._is_told:
            self._is_told = True
            _log.warning(
                "the controller %s cannot decide several transactions as one: %s writes exactly once by a record in %s",
                self._client.controller.transport.endpoints[0],
                sink.query_id,
                table_segment(sink),
            )
