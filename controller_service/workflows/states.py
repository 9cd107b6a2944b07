"""Takes and leaves the states that keep other workflows away from a stream (docs/controller-api.md 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from controller_service.errors import OperationNotAllowed
from controller_service.queue.request_queue import Postpone
from controller_service.store.holds import Hold, free, take
from controller_service.store.records import STATE, StateRecord, StreamState
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import FailedError, RejectedError


class Superseded(RejectedError):
    """This run of a request is not the current one: the request was finished elsewhere in the meantime."""


class StepFailed(FailedError):
    """Work that is half done, and has no way back, cannot go on now: it is tried again."""


@contextmanager
def no_way_back(subject: str) -> Iterator[None]:
    """Repeats the steps inside when something refuses them: they have to be carried out to the end.

    The queue drops a request that is refused. Two runs of one deletion meet segments and lists that the other one took
    away already, which is a refusal to each of them: dropped by both, the rest would stay.
    """
    try:
        yield
    except RejectedError as error:
        raise StepFailed(f"{subject}: {error}") from error


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
