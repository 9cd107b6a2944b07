"""Writes transactions on one stream, for code without an event loop."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Final

from pravega_common.errors import SegmentNotFound, SegmentSealed, StreamNotFound, UnknownOutcome
from pravega_common.model.transactions import NewTransaction, PingStatus, TransactionState
from pravega_common.names import transaction_segment_name
from pravega_common.segment_router import SegmentRouter
from pravega_streams.client import StreamClient
from pravega_streams.errors import TransactionFailed
from pravega_streams.event.block_writer import BlockWriter, BlockWriters
from pravega_streams.event.event_writer import frame_event, position_for

lease_default_ms: Final = 90_000
commit_time_max_s: Final = 120.0
commit_poll_s: Final = 0.02
"""The first pause before the state of a transaction that is being committed is asked for again."""
commit_poll_max_s: Final = 0.5
"""The pauses double up to this: while a store is away the commits of all its streams stand."""


class Transaction:
    """Events that become readable together, or not at all. Made by ``TransactionalWriter.begin``.

    Threads may share it: writes, flushes and the decision wait for each other, ``ping`` and ``state`` for nobody.
    Errors: ``TransactionFailed`` once it was committed or aborted, or timed out, ``InvalidArgument`` for an event that
    is too large, and those of ``BlockWriter``. Also an event whose ``write`` raised ``Unavailable`` or
    ``UnknownOutcome`` is the transaction's, and not to be written again: ``flush`` and ``commit`` go on with it.
    """

    def __init__(
        self,
        client: StreamClient,
        scope: str,
        stream: str,
        begun: NewTransaction,
        lease_ms: int,
        writer_id: str = "",
    ) -> None:
        self.transaction_id = begun.transaction_id
        self._client = client
        self._scope = scope
        self._stream = stream
        self._lease_ms = lease_ms
        self._router = SegmentRouter(begun.segments)
        self._turn = threading.RLock()  # As a Ctrl-C in Python 3.14 may leave it held by its thread.
        self._blocks = BlockWriters(client.segments.endpoints)
        self._writers: dict[int, BlockWriter] = {}
        self._writer_id = writer_id
        self._is_decided = False
        """Whether it was committed or aborted by this object."""

    def write(self, event: bytes | bytearray | memoryview, routing_key: str | None = None) -> None:
        framed, segment = frame_event(event), self._router.segment_of(position_for(routing_key))
        with self._turn:
            if self._is_decided:
                raise self._ended()
            writer = self._writers.get(segment.segment_id)
            if writer is None:
                name = transaction_segment_name(segment.name, self.transaction_id)
                writer = self._blocks.open(name, uuid.uuid4().bytes)
                self._writers[segment.segment_id] = writer
            try:
                writer.write(framed, 1)
            except (SegmentNotFound, SegmentSealed) as error:
                raise self._ended() from error

    def flush(self) -> None:
        """Return when everything written is durable."""
        with self._turn:
            try:
                # All are on their way before the first is waited for: each waits for the disk of its store.
                for writer in self._writers.values():
                    writer.start_flush()
                for writer in self._writers.values():
                    writer.flush()
            except (SegmentNotFound, SegmentSealed) as error:
                raise self._ended() from error

    def ping(self) -> None:
        """Renew the lease."""
        status = self._client.controller.ping_transaction(
            self._scope, self._stream, self.transaction_id, self._lease_ms
        )
        if status is not PingStatus.OK:
            raise TransactionFailed(f"transaction {self.transaction_id} cannot be renewed: {status.name}")

    def commit(self, *, wait: bool = True, time_ms: int | None = None) -> None:
        """Flush and commit; with ``wait`` the events are readable on return, or it is ``UnknownOutcome`` whether they
        are by now, or ``StreamNotFound`` once they are gone with their stream. ``time_ms``: the writer's time behind
        these events, as with ``EventWriter.note_time``; one that goes back is not noted."""
        with self._turn:
            self._decide_to_commit(time_ms)
        if wait:
            self._wait_for_commit()

    def _decide_to_commit(self, time_ms: int | None) -> None:
        self.flush()
        self._blocks.close()
        controller = self._client.controller
        if time_ms is None:
            controller.commit_transaction(self._scope, self._stream, self.transaction_id)
        else:
            controller.commit_transaction(
                self._scope, self._stream, self.transaction_id, writer_id=self._writer_id, time_ms=time_ms
            )
        self._is_decided = True

    def _wait_for_commit(self) -> None:
        deadline_s, pause_s = time.monotonic() + commit_time_max_s, commit_poll_s
        while (state := self.state()) is not TransactionState.COMMITTED:
            if state in (TransactionState.ABORTING, TransactionState.ABORTED):
                raise TransactionFailed(
                    f"transaction {self.transaction_id} is {state.name}: it was to be committed, lost data, and an "
                    "operator gave it up"
                )
            if state is TransactionState.UNKNOWN:
                raise StreamNotFound(
                    f"transaction {self.transaction_id} is committed, and stream {self._scope}/{self._stream} was "
                    "deleted since"
                )
            if time.monotonic() > deadline_s:
                raise UnknownOutcome(
                    f"transaction {self.transaction_id} is to be committed, and not readable after "
                    f"{commit_time_max_s:.0f} s; ask for its state"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, commit_poll_max_s)

    def abort(self) -> None:
        with self._turn:
            self._blocks.close()
            self._client.controller.abort_transaction(self._scope, self._stream, self.transaction_id)
            self._is_decided = True

    def state(self) -> TransactionState:
        return self._client.controller.transaction_state(self._scope, self._stream, self.transaction_id)

    def _ended(self) -> TransactionFailed:
        return TransactionFailed(f"transaction {self.transaction_id} is {self.state().name} and takes no more events")


class TransactionalWriter:
    """Begins transactions on one stream. ``lease_ms``: how long one stays open without ``ping``; ``writer_id`` names
    the writer in reports of time."""

    def __init__(self, client: StreamClient, scope: str, stream: str, lease_ms: int = lease_default_ms) -> None:
        self._client = client
        self._scope = scope
        self._stream = stream
        self._lease_ms = lease_ms
        self.writer_id = uuid.uuid4().hex

    def begin(self) -> Transaction:
        begun = self._client.controller.create_transaction(self._scope, self._stream, self._lease_ms)
        return Transaction(self._client, self._scope, self._stream, begun, self._lease_ms, self.writer_id)
