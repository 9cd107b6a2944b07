"""Taking and leaving the states that keep other workflows away from a stream (controller-api.md 3.1)."""

from __future__ import annotations

from controller_service.errors import OperationNotAllowed
from controller_service.store.records import StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.request_queue import Postpone
from pravega_common.errors import SegmentSealed


async def enter(store: StreamStore, scope: str, stream: str, state: StreamState) -> StreamContext:
    """Move the stream to a working state. ``Postpone`` while another workflow has it; ``SegmentSealed`` once the
    stream is sealed or being sealed."""

    async def change(context: StreamContext) -> None:
        if await context.state() in (StreamState.SEALING, StreamState.SEALED):
            raise SegmentSealed(context.name, f"stream {context.name} is sealed")
        await context.move_state(state)

    try:
        return await store.update(scope, stream, change)
    except OperationNotAllowed as error:
        raise Postpone(str(error)) from error


async def leave(store: StreamStore, scope: str, stream: str) -> None:
    """Back to active from a working state; an active stream stays as it is."""

    async def change(context: StreamContext) -> None:
        if await context.state() not in (StreamState.SEALING, StreamState.SEALED):
            await context.move_state(StreamState.ACTIVE)

    await store.update(scope, stream, change)
