"""Deletes a sealed stream with everything that belongs to it (docs/controller-api.md 3.8)."""

from __future__ import annotations

from typing import Final

from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.remove_stream import StreamRemoval, require_ended
from pravega_common.errors import StreamNotFound
from pravega_common.names import scoped_name

KIND: Final = "delete_stream"


class DeleteStream:
    def __init__(self, store: StreamStore, queue: RequestQueue, removal: StreamRemoval) -> None:
        self._store = store
        self._queue = queue
        self._removal = removal
        queue.register(KIND, self.handle)

    async def delete(self, request_id: str, scope: str, stream: str) -> None:
        """``StreamNotFound``; ``StreamNotSealed``. A stream that was never completed may be deleted, too."""
        entry = await self._store.entry(scope, stream)
        if entry is None:
            raise StreamNotFound.of(scope, stream)
        try:
            context = await self._store.open(scope, stream)
            require_ended(context, await context.state())
        except StreamNotFound:
            # Never completed.
            pass
        payload = {"scope": scope, "stream": stream, "stream_id": entry.stream_id}
        await run_and_wait(self._queue, Request(f"{KIND}-{request_id}", KIND, scoped_name(scope, stream), payload))

    async def handle(self, request: Request) -> None:
        await self.carry_out(request.payload["scope"], request.payload["stream"], request.payload["stream_id"])

    async def carry_out(self, scope: str, stream: str, stream_id: str) -> None:
        """All steps, for this and other workflows' handlers, as ``StreamRemoval.carry_out``."""
        await self._removal.carry_out(scope, stream, stream_id)
