"""Takes and leaves the states that keep other workflows away from a stream (docs/controller-api.md 3.1)."""

from __future__ import annotations

from controller_service.errors import OperationNotAllowed
from controller_service.queue.request_queue import Postpone
from controller_service.store.records import STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import RejectedError, SegmentSealed


class Superseded(RejectedError):
    """This run of a request is not the current one: the request was finished elsewhere in the meantime."""


async def enter(store: StreamStore, scope: str, stream: str, state: StreamState, holder: str) -> StreamContext:
    """Move the stream to a working state on behalf of a request.

    ``Postpone`` while another request or workflow has the stream; ``SegmentSealed`` once it is sealed or being sealed.
    The same request enters again after a crash, wherever it runs.
    """

    async def change(context: StreamContext) -> None:
        found = await context.state_record()
        if found.state in (StreamState.SEALING, StreamState.SEALED):
            raise SegmentSealed(context.name, f"stream {context.name} is sealed")
        if found.state is state and found.holder == holder:
            return
        if found.state is not StreamState.ACTIVE:
            raise OperationNotAllowed(f"Stream: {context.stream} State: {found.state.name}")
        context.stage(STATE, StateRecord(state, holder))

    try:
        return await store.update(scope, stream, change)
    except OperationNotAllowed as error:
        raise Postpone(str(error)) from error


async def require_hold(context: StreamContext, holder: str) -> None:
    """Within a change of a record: ``Superseded`` unless the stream is still held for this request.

    A run that was paused for long may find that another instance finished its request and that others followed.
    """
    if (await context.state_record()).holder != holder:
        raise Superseded(f"request {holder} was finished elsewhere")


async def leave(store: StreamStore, scope: str, stream: str, holder: str) -> None:
    """Back to active, if the stream is still held for this request."""

    async def change(context: StreamContext) -> None:
        if (await context.state_record()).holder == holder:
            context.stage(STATE, StateRecord(StreamState.ACTIVE))

    await store.update(scope, stream, change)
