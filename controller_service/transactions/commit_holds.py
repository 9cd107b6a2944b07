"""Takes and frees the state of a stream for runs of commits."""

from __future__ import annotations

from dataclasses import dataclass

from controller_service.store.holds import Hold, free, take
from controller_service.store.records import StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.transaction_store import TransactionStore
from pravega_common.errors import SegmentSealed


@dataclass(slots=True)
class CommitRun:
    """One run of a commit request, with the state that it took; None too while the stream is being sealed."""

    scope: str
    stream: str
    hold: Hold | None = None


class CommitHolds:
    """Each run marks the state as its own before it works on a round, and the last one that did frees it."""

    def __init__(self, transactions: TransactionStore) -> None:
        self._transactions = transactions
        self._streams: StreamStore = transactions.streams

    async def enter(self, run: CommitRun, context: StreamContext) -> StreamContext:
        """Keep other workflows off the stream's epochs, also if another run of commits does; the stream as it is then.

        A stream that is being sealed lets its last commits through.
        """
        try:
            context, run.hold = await take(
                self._streams, run.scope, run.stream, StreamState.COMMITTING_TRANSACTIONS, "", found=context
            )
            return context
        except SegmentSealed:
            context = await self._streams.open(run.scope, run.stream)
            if await context.state() is StreamState.SEALING:
                run.hold = None
                return context
            raise

    async def withdraw(self, run: CommitRun, state: CommitState) -> None:
        """Leave before a round, since what is next in the order cannot be committed: others may use the stream.

        The record of the idle round is written again first, so that no other run begins one on what it read before.
        """
        if run.hold is not None:
            await self._transactions.begin_round(run.scope, run.stream, state, state.committing)
            await free(self._streams, run.hold)

    async def leave(self, run: CommitRun, context: StreamContext | None) -> bool:
        """Free the state, unless another run took it since. True: new work has come, and nothing was freed.

        ``context``: the stream as it is, for a run that does not hold it.

        No round can begin behind this: the order was empty after this run took the state, so a run that read an order
        that was not empty finds the round's record changed.
        """
        if run.hold is None and context is not None:
            if await context.state() is not StreamState.COMMITTING_TRANSACTIONS:
                return False
            # Another run is at its end, or died there: its request came here, or stands where it will be carried out.
            await self.enter(run, context)
            state = await self._transactions.commit_state(run.scope, run.stream)
            if not state.is_idle:
                return True
        if run.hold is not None:
            await free(self._streams, run.hold)
            run.hold = None
        return False
