"""Takes and frees the working states of a stream: each run marks the state as its own and frees only what it wrote.

Two runs may have one state at the same time: those of one request that two instances run, and those of commits. The
last one that took the state frees it, so no run loses the state while it works.
"""

from __future__ import annotations

from dataclasses import dataclass

from controller_service.errors import OperationNotAllowed
from controller_service.store.records import STATE, EpochRecord, StateRecord, StreamState, epoch_key
from controller_service.store.serializer import encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import (
    DataCorruption,
    SegmentNotFound,
    SegmentSealed,
    StreamNotFound,
    UnknownOutcome,
    VersionConflict,
)


@dataclass(frozen=True, slots=True)
class Hold:
    """A working state that this run took, at the version of the state record that it wrote."""

    scope: str
    stream: str
    stream_id: str
    version: int


async def take(
    store: StreamStore,
    scope: str,
    stream: str,
    state: StreamState,
    holder: str,
    found: StreamContext | None = None,
) -> tuple[StreamContext, Hold]:
    """Write the state with a new mark, also when the stream is in that state for this holder already.

    ``OperationNotAllowed`` while another holder or state has the stream; ``SegmentSealed`` once it is sealed or being
    sealed. ``found``: what was read a moment ago, which saves a read; after a lost race everything is read again.
    """
    mark = StateRecord(state, holder, store.new_round())

    async def change(context: StreamContext) -> None:
        old = await context.state_record()
        if old.state in (StreamState.SEALING, StreamState.SEALED):
            raise SegmentSealed(context.name, f"stream {context.name} is sealed")
        if old.state is not StreamState.ACTIVE and (old.state, old.holder) != (state, holder):
            raise OperationNotAllowed(f"Stream: {context.stream} State: {old.state.name}")
        context.stage(STATE, mark)

    if found is not None:
        try:
            await change(found)
            await found.flush()
            return found, Hold(scope, stream, found.stream_id, found.version(STATE))
        except (VersionConflict, UnknownOutcome):
            pass
    context = await store.update(scope, stream, change)
    return context, Hold(scope, stream, context.stream_id, context.version(STATE))


async def free(store: StreamStore, hold: Hold) -> None:
    """Back to active, unless another run took the state since. One write, of the version that this run wrote."""
    table = StreamStore.metadata_table(hold.scope, hold.stream, hold.stream_id)
    try:
        await store.tables.put(table, STATE.name, encode(StateRecord(StreamState.ACTIVE)), hold.version)
        return
    except VersionConflict:
        return
    except SegmentNotFound as error:
        store.forget(hold.scope, hold.stream)
        raise StreamNotFound.of(hold.scope, hold.stream) from error
    except UnknownOutcome:
        pass

    async def change(context: StreamContext) -> None:
        await context.state_record()
        if context.stream_id == hold.stream_id and context.version(STATE) == hold.version:
            context.stage(STATE, StateRecord(StreamState.ACTIVE))

    await store.update(hold.scope, hold.stream, change)


async def stage_epoch(context: StreamContext, epoch: EpochRecord) -> None:
    """Stage a new epoch, or find it on record from an earlier attempt.

    ``DataCorruption`` if another one of this number is on record: two runs worked on the stream's epochs.
    """
    standing = await context.read(epoch_key(epoch.epoch))
    if standing is None:
        context.stage(epoch_key(epoch.epoch), epoch)
    elif standing != epoch:
        raise DataCorruption(
            f"epoch {epoch.epoch} of stream {context.name} is on record with segments {list(standing.segment_ids)[:8]} "
            f"and reference epoch {standing.reference_epoch}, segments {list(epoch.segment_ids)[:8]} and reference "
            f"epoch {epoch.reference_epoch} were to be written: another run changed the epochs at the same time"
        )
