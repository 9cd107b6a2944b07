"""Takes and leaves the states that keep other workflows away from a stream (docs/controller-api.md 3.1)."""

from __future__ import annotations

from controller_service.errors import OperationNotAllowed
from controller_service.queue.request_queue import Postpone
from controller_service.store.holds import Hold, free, take
from controller_service.store.records import STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import RejectedError


class Superseded(RejectedError):
    """This run of a request is not the current one: the request was finished elsewhere in the meantime."""


async def enter(
    store: StreamStore, scope: str, stream: str, state: StreamState, holder: str
) -> tuple[StreamContext, Hold]:
    """Move the stream to a working state on behalf of a request.

    ``Postpone`` while another request or workflow has the stream; ``SegmentSealed`` once it is sealed or being sealed.
    The same request enters again after a crash, wherever it runs.
    """
    try:
        return await take(store, scope, stream, state, holder)
    except OperationNotAllowed as error:
        raise Postpone(str(error)) from error


async def require_hold(context: StreamContext, holder: str) -> None:
    """Within a change of a record: ``Superseded`` unless the stream is still held for this request.

    A run that was paused for long may find that another instance finished its request and that others followed.
    """
    if (await context.state_record()).holder != holder:
        raise Superseded(f"request {holder} was finished elsewhere")


async def leave(store: StreamStore, hold: Hold) -> None:
    """Back to active, unless another run of the same request entered since: that one leaves."""
    await free(store, hold)


async def leave_for(store: StreamStore, scope: str, stream: str, holder: str) -> None:
    """Leave what an earlier run of a request left behind, once the request is known to be over."""

    async def change(context: StreamContext) -> None:
        if (await context.state_record()).holder == holder:
            context.stage(STATE, StateRecord(StreamState.ACTIVE))

    await store.update(scope, stream, change)
