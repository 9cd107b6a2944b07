"""Creates a stream with its mark stream, which streams of the system have none of (docs/controller-api.md 3.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from controller_service.errors import QuotaExceeded, StreamBeingDeleted
from controller_service.policies.auto_scale import check_policy
from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.segment_access.late_segments import insist
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.epochs import initial_epoch
from controller_service.store.records import (
    CONFIGURATION,
    STATE,
    ConfigurationRecord,
    ScopeRecord,
    StateRecord,
    StreamEntry,
    StreamState,
    epoch_key,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.remove_stream import StreamRemoval
from controller_service.workflows.stream_use import StreamCounts
from pravega_common.errors import (
    PravegaError,
    SegmentNotFound,
    StreamNotFound,
    StreamNotSealed,
    Unavailable,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import MARK_PREFIX, SYSTEM_SCOPE, mark_stream, scoped_name
from pravega_common.runtime.failpoints import failpoint, register

KIND: Final = "create_stream"

ENTRY_ADDED = register("controller.create_stream_entry_added")
RECORDS_WRITTEN = register("controller.create_stream_records_written")
SEGMENTS_CREATED = register("controller.create_stream_segments_created")

T = TypeVar("T")

_MARK_CONFIGURATION: Final = StreamConfiguration(ScalingPolicy.fixed(1))


class CreateStream:
    def __init__(self, store: StreamStore, access: SegmentAccess, queue: RequestQueue, removal: StreamRemoval) -> None:
        self._store = store
        self._access = access
        self._queue = queue
        self._removal = removal
        self._use = StreamCounts(store)
        queue.register(KIND, self.handle)

    async def create(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        """False if the stream exists; one that an earlier attempt left half-made is completed first.

        ``ScopeNotFound`` if the scope is missing or being deleted, ``InvalidArgument`` for a bad number of segments or
        a policy by which nothing scales, ``QuotaExceeded`` for a scope that has no room for it, ``StreamBeingDeleted``
        for one of the name that goes: told that it exists, the caller would go on without a stream.
        """
        check_policy(configuration.scaling)
        segments = configuration.scaling.min_segments
        initial_epoch(0, segments, 0)
        entry, added = await self._store.add_entry(scope, stream, configuration.tags, segments)
        failpoint(ENTRY_ADDED)
        if entry.deleting:
            if not added:
                raise _being_deleted(scope, stream)
            return True
        if not added and await self._is_complete(scope, stream):
            return False
        payload = {
            "scope": scope,
            "stream": stream,
            "stream_id": entry.stream_id,
            "configuration": encode(configuration).decode(),
        }
        await run_and_wait(self._queue, Request(f"{KIND}-{entry.stream_id}", KIND, scoped_name(scope, stream), payload))
        return added

    async def _is_complete(self, scope: str, stream: str) -> bool:
        try:
            context = await self._store.open(scope, stream)
            record = await context.state_record()
        except StreamNotFound:
            return False
        if record.is_deleting:
            raise _being_deleted(scope, stream)
        return record.state is not StreamState.CREATING

    async def handle(self, request: Request) -> None:
        scope, stream = request.payload["scope"], request.payload["stream"]
        configuration = decode(StreamConfiguration, request.payload["configuration"].encode())
        await self.carry_out(scope, stream, request.payload["stream_id"], configuration)

    async def create_within(self, scope: str, stream: str, configuration: StreamConfiguration) -> None:
        """For other workflows' handlers, which are repeated themselves: create a stream unless it is there.

        ``QuotaExceeded`` for a scope that has no room for it.
        """
        entry = await self._added(scope, stream, configuration)
        await self.carry_out(scope, stream, entry.stream_id, configuration)

    async def _added(self, scope: str, stream: str, configuration: StreamConfiguration) -> StreamEntry:
        """``StreamBeingDeleted`` where one of the name goes."""
        segments = 0 if stream.startswith(MARK_PREFIX) else configuration.scaling.min_segments
        entry, _ = await self._store.add_entry(scope, stream, configuration.tags, segments)
        if entry.deleting:
            raise _being_deleted(scope, stream)
        return entry

    async def carry_out(self, scope: str, stream: str, stream_id: str, configuration: StreamConfiguration) -> bool:
        """All steps behind the entry in the scope's list. False if the stream is gone, or its deletion is under way."""
        found = await self._store.entry_with_scope(scope, stream)
        if found is None or found[0].stream_id != stream_id or found[0].deleting:
            await self._is_gone(scope, stream, stream_id, configuration)
            return False
        entry, record = found
        await self._admit(scope, stream, stream_id, record, configuration)
        if stream.startswith(MARK_PREFIX) or scope == SYSTEM_SCOPE:
            made = await self._complete(scope, stream, stream_id, configuration)
        else:
            made = await self._complete_beside_marks(scope, stream, stream_id, configuration)
        context = await insist(lambda: self._activate(stream_id, *made), self._store.clock)
        if context is None:
            await self._remove_lone_mark_stream(scope, stream, stream_id)
            return False
        # Another attempt may have written the records, and a quota that came meanwhile counts them only if they stood.
        await self._use.settle(scope, stream, stream_id)
        # The records may be those of another attempt than the entry.
        tags = (await context.configuration()).configuration.tags
        if tags != entry.tags:
            await self._store.set_tags(scope, stream, stream_id, tags)
        return True

    async def _admit(
        self, scope: str, stream: str, stream_id: str, record: ScopeRecord, configuration: StreamConfiguration
    ) -> None:
        """Count the stream against the quota of its scope. ``QuotaExceeded``: nothing is left of it."""
        if stream.startswith(MARK_PREFIX):
            return
        try:
            await self._use.begin(scope, stream, stream_id, record, configuration.scaling.min_segments)
        except QuotaExceeded:
            if not await self._take_back(scope, stream, stream_id):
                return
            raise

    async def _take_back(self, scope: str, stream: str, stream_id: str) -> bool:
        """Remove a stream that is refused; false if an earlier run of this request completed it before the quota."""
        try:
            await (await self._store.open(scope, stream)).state()
        except StreamNotFound:
            # Without records there are no segments.
            await self._store.remove_stream(scope, stream, stream_id)
            await self._remove_lone_mark_stream(scope, stream, stream_id)
            return True
        try:
            await self._removal.carry_out(scope, stream, stream_id)
        except StreamNotSealed:
            return False
        return True

    async def _is_gone(self, scope: str, stream: str, stream_id: str, configuration: StreamConfiguration) -> None:
        """For a stream that was deleted, or refused by another run of this request; then ``QuotaExceeded``."""
        entry = await self._store.entry(scope, stream)
        if entry is not None and entry.stream_id == stream_id:
            # Whoever began to remove it may have died.
            try:
                await self._removal.carry_out(scope, stream, stream_id)
            except StreamNotSealed:
                # The stream of a reader group, whose removal marks the entry before it seals the stream, and goes on.
                pass
        await self._remove_lone_mark_stream(scope, stream, stream_id)
        if not stream.startswith(MARK_PREFIX):
            await self._store.require_room(scope, stream, configuration.scaling.min_segments)

    async def _complete_beside_marks(
        self, scope: str, stream: str, stream_id: str, configuration: StreamConfiguration
    ) -> tuple[StreamContext, Sequence[str]]:
        """``_complete``, with the mark stream at the same time."""
        made, marks = await asyncio.gather(
            self._complete(scope, stream, stream_id, configuration),
            self._create_mark_stream(scope, stream),
            return_exceptions=True,
        )
        if isinstance(made, StreamNotFound):
            # This ends the request, so nobody else would come to the mark stream.
            await self._remove_lone_mark_stream(scope, stream, stream_id)
        if isinstance(made, BaseException):
            raise made
        if isinstance(marks, BaseException):
            # The segments are there, and the next attempt asks for nothing if the stream was deleted meanwhile.
            context, segments = made
            await insist(lambda: self._take_away_if_gone(context, segments), self._store.clock)
            raise marks
        return made

    async def _create_mark_stream(self, scope: str, stream: str) -> None:
        name = mark_stream(stream)
        entry, _ = await self._store.add_entry(scope, name, ())
        if entry.deleting:
            # Not by waiting: who began to delete it may have died, or have found this stream in the other one's place.
            await self._removal.carry_out(scope, name, entry.stream_id)
            raise Unavailable(f"mark stream {scope}/{name} was being deleted")
        try:
            made = await self._complete(scope, name, entry.stream_id, _MARK_CONFIGURATION)
        except StreamNotFound as error:
            # It was that of an earlier stream of the name, and went with it.
            raise Unavailable(f"mark stream {scope}/{name} is being deleted") from error
        await insist(lambda: self._activate(entry.stream_id, *made), self._store.clock)

    async def _remove_lone_mark_stream(self, scope: str, stream: str, stream_id: str) -> None:
        """For a stream that was, or is being, deleted while it was created: its mark stream may have come after that.

        One that a later stream of the name has by now stays.
        """
        if stream.startswith(MARK_PREFIX) or scope == SYSTEM_SCOPE:
            return
        mark = await self._store.entry(scope, mark_stream(stream))
        entry = await self._store.entry(scope, stream)
        if mark is not None and (entry is None or entry.deleting or entry.stream_id == stream_id):
            await self._removal.carry_out(scope, mark_stream(stream), mark.stream_id)

    async def _complete(
        self, scope: str, stream: str, stream_id: str, configuration: StreamConfiguration
    ) -> tuple[StreamContext, Sequence[str]]:
        """Write the records unless they stand already, then create the segments; the records and those names."""
        first_number = await self._store.first_segment_number(scope, stream)

        async def write_records(context: StreamContext) -> None:
            if await context.read(STATE) is not None:
                return
            policy = configuration.scaling
            epoch = initial_epoch(first_number, policy.min_segments, self._store.clock.wall_ms())
            await context.put(STATE, StateRecord(StreamState.CREATING))
            await context.put(CONFIGURATION, ConfigurationRecord(configuration))
            await context.put(epoch_key(0), epoch)
            context.stage_current(epoch)

        await self._store.retained.note(scope, stream, stream_id, configuration)
        context = await self._store.update_of(scope, stream, stream_id, write_records, epoch_key(0))
        failpoint(RECORDS_WRITTEN)
        if await context.state() is not StreamState.CREATING:
            return context, ()
        stored = (await context.configuration()).configuration
        await self._store.retained.note(scope, stream, stream_id, stored)
        epoch = await context.current_epoch()
        segments = epoch.names(scope, stream)
        try:
            await self._access.create_segments(
                segments,
                scale_type=stored.scaling.scale_type,
                target_rate=stored.scaling.target_rate,
                rollover_size_bytes=stored.rollover_size_bytes,
            )
        except PravegaError:
            # Some of them may exist, and the next attempt asks for nothing if the stream was deleted meanwhile.
            await insist(lambda: self._take_away_if_gone(context, segments), self._store.clock)
            raise
        failpoint(SEGMENTS_CREATED)
        return context, segments

    async def _activate(self, stream_id: str, found: StreamContext, segments: Sequence[str]) -> StreamContext | None:
        """Make the stream active. None if it was deleted meanwhile: the deletion may have passed before the segments
        came, so they are taken away again."""

        async def activate(context: StreamContext) -> None:
            _require(context, stream_id)
            if await context.state() is StreamState.CREATING:
                await context.move_state(StreamState.ACTIVE)

        try:
            context = await self._changed(found, activate)
            if not (await context.state_record()).is_deleting:
                return context
        except StreamNotFound:
            self._store.forget(found.scope, found.stream)
        await self._access.delete_segments(segments)
        return None

    async def _take_away_if_gone(self, made: StreamContext, segments: Sequence[str]) -> None:
        """Delete what was made for a stream whose deletion may have passed before it came."""
        try:
            context = await self._store.open(made.scope, made.stream, STATE)
            if context.stream_id == made.stream_id and not (await context.state_record()).is_deleting:
                return
        except StreamNotFound:
            self._store.forget(made.scope, made.stream)
        await self._access.delete_segments(segments)

    async def _changed(self, found: StreamContext, change: Callable[[StreamContext], Awaitable[None]]) -> StreamContext:
        """``StreamStore.update`` that begins with what was read before."""
        try:
            await change(found)
            await found.flush()
            return found
        except SegmentNotFound as error:
            raise StreamNotFound.of(found.scope, found.stream) from error
        except (VersionConflict, UnknownOutcome):
            return await self._store.update(found.scope, found.stream, change)


def _being_deleted(scope: str, stream: str) -> StreamBeingDeleted:
    return StreamBeingDeleted(f"stream {scope}/{stream} is being deleted; it can be created again when that has ended")


def _require(context: StreamContext, stream_id: str) -> None:
    """``StreamNotFound`` if this is a later stream of the same name."""
    if context.stream_id != stream_id:
        raise StreamNotFound.of(context.scope, context.stream)
