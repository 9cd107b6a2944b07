"""Submits commits and aborts of transactions to the controller's queue, where they outlive their call."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from random import Random
from typing import Final

from controller_service.queue.request_queue import Request, RequestQueue
from pravega_common.names import scoped_name, split_scoped_name
from pravega_common.runtime.clock import Clock

COMMIT_KIND: Final = "commit_transactions"
ABORT_KIND: Final = "abort_transaction"

commit_request_shared_s: Final = 1.0
"""How long a commit request that has not started serves later calls too. After that a new one is made, since the
old one may be running on another instance, which took it over and read the queue before the call."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    request_id: str
    submitted_s: float
    submitted: asyncio.Future[None]


class WorkScheduler:
    """One commit request per stream serves every transaction that is marked before it starts."""

    def __init__(self, queue: RequestQueue, clock: Clock, random: Random) -> None:
        self._queue = queue
        self._clock = clock
        self._random = random
        self._waiting: dict[str, _Waiting] = {}

    async def schedule_commit(self, scope: str, stream: str) -> str:
        """Have the stream's commit order worked off; durable on return. The id of the request that will do it.

        To be called after the transaction is in the commit order.
        """
        key = scoped_name(scope, stream)
        waiting = self._waiting.get(key)
        now_s = self._clock.monotonic_s()
        if waiting is not None and now_s - waiting.submitted_s < commit_request_shared_s:
            await asyncio.shield(waiting.submitted)
            return waiting.request_id
        request_id = f"commit/{key}/{self._random.getrandbits(64):016x}"
        submitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        submitted.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting[key] = _Waiting(request_id, now_s, submitted)
        try:
            await self._queue.submit(Request(request_id, COMMIT_KIND, key, {}))
        except BaseException as error:
            self._forget(key, request_id)
            if isinstance(error, Exception):
                submitted.set_exception(error)
            else:
                submitted.cancel()
            raise
        submitted.set_result(None)
        return request_id

    def commit_started(self, request: Request) -> tuple[str, str]:
        """Scope and stream of a commit request whose handler begins; from here on a new call makes a new request."""
        self._waiting.pop(request.key, None)
        return split_scoped_name(request.key)

    def _forget(self, key: str, request_id: str) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.request_id == request_id:
            del self._waiting[key]

    async def schedule_abort(self, scope: str, stream: str, identifier: uuid.UUID) -> str:
        """Have an aborting transaction cleaned up; aborts run concurrently, also within a stream."""
        name = scoped_name(scope, stream)
        request_id = f"abort/{name}/{identifier.hex}"
        payload = {"stream": name, "transaction": identifier.hex}
        await self._queue.submit(Request(request_id, ABORT_KIND, f"{name}#{identifier.hex}", payload))
        return request_id
