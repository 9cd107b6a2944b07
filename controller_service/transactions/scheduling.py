"""Submits commits and aborts of transactions to the controller's queue, where they outlive their call.

Each stream has at most one request of each kind in the queue of a controller. What comes while one waits is served by
it, also while it is repeated because the stream is blocked; what comes while one runs makes it look again at its end.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Final

from controller_service.queue.request_queue import Request, RequestQueue
from pravega_common.names import scoped_name

COMMIT_KIND: Final = "commit_transactions"
ABORT_KIND: Final = "abort_transaction"

aborts_named_max: Final = 1_000
"""Aborting transactions of a stream that are remembered by id; beyond that they are looked for in the table."""


@dataclass(slots=True)
class AbortsToDo:
    """The transactions that an abort request has to clean up: these, or all that are aborting."""

    ids: set[uuid.UUID] = field(default_factory=set)
    all: bool = False

    def add(self, identifier: uuid.UUID) -> None:
        if len(self.ids) < aborts_named_max:
            self.ids.add(identifier)
        else:
            self.all = True


class WorkScheduler:
    """One commit request per stream serves every transaction that is marked before its last look at the order."""

    def __init__(self, queue: RequestQueue, instance: str) -> None:
        """``instance``: this run of a controller, whose abort requests are not mixed up with those that it adopts."""
        self._queue = queue
        self.instance = instance
        self._looking: set[str] = set()
        """Streams whose commit order a run has looked at, or is about to, with nothing scheduled since."""
        self._aborts: dict[str, AbortsToDo] = {}

    # ---- commits -----------------------------------------------------------------------------------------------------

    async def schedule_commit(self, scope: str, stream: str) -> str:
        """Have the stream's commit order worked off; durable on return. The id of the request that will do it.

        To be called after the transaction is in the commit order.
        """
        key = scoped_name(scope, stream)
        # A run that is under way joins this to its request, which is in the table, and looks again before it ends.
        self._looking.discard(key)
        request_id = f"commit/{key}"
        await self._queue.submit(Request(request_id, COMMIT_KIND, key, {}))
        return request_id

    def commit_looks(self, stream: str) -> None:
        """To be called by a run of a commit request before it reads the commit order."""
        self._looking.add(stream)

    def commit_ended(self, stream: str) -> bool:
        """Whether nothing was scheduled since the run's last look, so that it may end, at once; else it looks again."""
        is_over = stream in self._looking
        self._looking.discard(stream)
        return is_over

    # ---- aborts ------------------------------------------------------------------------------------------------------

    async def schedule_abort(self, scope: str, stream: str, identifier: uuid.UUID) -> str:
        """Have an aborting transaction cleaned up, beside the stream's other work; durable on return."""
        name = scoped_name(scope, stream)
        self._aborts.setdefault(name, AbortsToDo()).add(identifier)
        request_id = f"abort/{self.instance}/{name}"
        payload = {"stream": name, "instance": self.instance}
        await self._queue.submit(Request(request_id, ABORT_KIND, f"{name}#aborts", payload))
        return request_id

    def take_aborts(self, request: Request) -> AbortsToDo | None:
        """Take the aborts that the request has to do now; None if nothing is left. What fails is put back."""
        payload = request.payload
        if "transaction" in payload:  # as former versions stored it
            return AbortsToDo({uuid.UUID(hex=payload["transaction"])})
        if payload["instance"] != self.instance:
            return AbortsToDo(all=True)
        return self._aborts.pop(payload["stream"], None)

    def put_back(self, request: Request, to_do: AbortsToDo) -> None:
        """Keep what failed for the next attempt of the request."""
        if request.payload.get("instance") == self.instance:
            kept = self._aborts.setdefault(request.payload["stream"], AbortsToDo())
            kept.all |= to_do.all
            for identifier in to_do.ids:
                kept.add(identifier)
