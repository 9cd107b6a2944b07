"""Asks our controller to decide several transactions as one (transaction_sets.proto)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pravega_common.model.transaction_sets import Registration, SetDecision, SetMember, Sink, SinkStatus, TransactionSet
from pravega_common.proto import transaction_sets_pb2 as pb
from pravega_common.proto_forms import from_wire
from pravega_common.set_forms import COMMIT_STATUSES, REGISTER_STATUSES, member_to, set_from, sink_from, sink_to
from pravega_streams.controller.transport import ControllerTransport


class TransactionSetClient:
    """Blocking calls; each may be repeated with the same arguments. ``UnsupportedOperation`` on a plain Pravega.

    ``AccessDenied`` for a sink that has a secret, to who does not show it.
    """

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def register(self, sink: Sink, run_id: str, batch_id: int, members: Sequence[SetMember]) -> Registration:
        """Bind transactions to their batch, if any, and keep all of the batch's transactions open."""
        request = pb.RegisterTransactionsRequest(
            sink=sink_to(sink), run_id=run_id, batch_id=batch_id, members=[member_to(item) for item in members]
        )
        reply = self._transport.transaction_sets("RegisterTransactions", request)
        return Registration(
            from_wire(REGISTER_STATUSES, reply.status),
            reply.detail,
            reply.last_committed_batch_id,
            reply.renewed_for_ms,
        )

    def commit(
        self, sink: Sink, run_id: str, batch_id: int, members: Sequence[SetMember], events: int, size_bytes: int
    ) -> SetDecision:
        """Decide a batch, whole or not at all. ``events`` and ``size_bytes`` are what the batch read and wrote."""
        request = pb.CommitTransactionSetRequest(
            sink=sink_to(sink),
            run_id=run_id,
            batch_id=batch_id,
            members=[member_to(item) for item in members],
            events=events,
            bytes=size_bytes,
        )
        reply = self._transport.transaction_sets("CommitTransactionSet", request)
        return SetDecision(from_wire(COMMIT_STATUSES, reply.status), reply.detail, set_from(reply.set))

    def get(self, sink: Sink, batch_id: int, wait_ms: int = 0) -> tuple[TransactionSet, int]:
        """The batch's set, and the last committed batch id of the sink (-1 if none).

        ``wait_ms``: how long the controller may wait for a set that it is about to make readable.
        """
        request = pb.GetTransactionSetRequest(sink=sink_to(sink), batch_id=batch_id, wait_ms=wait_ms)
        reply = self._transport.transaction_sets("GetTransactionSet", request)
        return set_from(reply.set), reply.last_committed_batch_id

    def list_sinks(self) -> Iterator[SinkStatus]:
        continuation = ""
        while True:
            reply = self._transport.transaction_sets("ListSinks", pb.ListSinksRequest(continuation=continuation))
            for item in reply.sinks:
                sink = sink_from(item.sink)
                last = set_from(item.last_set)
                yield SinkStatus(sink, item.last_committed_batch_id, item.run_id, item.touched_ms, last)
            continuation = reply.continuation
            if not continuation:
                return

    def forget(self, sink: Sink, *, secret_only: bool = False) -> None:
        """Make an operator's decision: the sink starts over, or only takes another secret from its next run.

        ``NotFound``; ``InvalidArgument`` while it has work to do, so that nothing that is decided is forgotten.
        """
        request = pb.ForgetSinkRequest(sink=sink_to(sink), secret_only=secret_only)
        self._transport.transaction_sets("ForgetSink", request)
