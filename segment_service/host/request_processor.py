"""Serves requests other than appends: decode, call the store, encode (docs/wire-protocol.md 2.1, 2.3, 4).

A handler is a coroutine from a request to its reply. It raises the store's errors; ``RequestProcessor.answer`` turns
them into replies. Reads are apart (``read``): they may wait for as long as a segment's tail stays where it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from pravega_common import names
from pravega_common.errors import (
    BadAttributeUpdate,
    BadOffset,
    InvalidArgument,
    Outcome,
    PravegaError,
    SegmentMerged,
    SegmentNotFound,
    UnsupportedOperation,
)
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import Command, MergedSource, ReadSegment
from segment_service.contracts.attributes import (
    CREATION_TIME,
    ROLLOVER_SIZE,
    SCALE_POLICY_RATE,
    SCALE_POLICY_TYPE,
    SEGMENT_TYPE,
    SEGMENT_TYPE_TRANSIENT,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.segment_store import ReadResult, SegmentState, SegmentStore, read_bytes_max
from segment_service.contracts.table_store import TableStore
from segment_service.host.error_replies import error_reply, operation_name
from segment_service.host.info_batches import info_reply
from segment_service.host.read_batches import ReadBatches
from segment_service.host.request_batches import CloseConnection, RequestBatches, no_reply
from segment_service.host.request_checks import check_is_no_table, check_segment_name, client_attribute
from segment_service.host.request_times import RequestTimes
from segment_service.host.segment_lengths import lengths_of
from segment_service.host.table_requests import TableRequests
from segment_service.host.token_check import TokenCheck

read_bytes_min: Final = 8
"""A read asks the store for at least this much, however little was suggested (docs/wire-protocol.md 4)."""
merges_in_flight_max: Final = 64
"""Merges of one batch that are on their way to the log at a time."""
merge_attribute_updates_max: Final = 1_000
"""Attribute updates of one merge; they travel with it in one operation of the log."""
merge_sources_max: Final = 256
"""Sources of one batch merge: fewer than merges that a target remembers, so that a batch can be made again."""
scale_type_max: Final = 2

_MERGES = (wire.MergeSegments, wire.MergeSegmentsBatch)
_READS = (wire.GetStreamSegmentInfo, wire.GetSegmentLengths, wire.GetSegmentAttribute, wire.LocateOffset)
_NOT_FOR_TABLES: Final = (wire.TruncateSegment, wire.UpdateSegmentAttribute, *_MERGES)
"""Requests that would leave bytes in a table that are no entries, or take entries away that its index names."""
_Handler = Callable[[Any], Coroutine[Any, Any, Command]]
_REPLACE = AttributeUpdateType.REPLACE


class RequestProcessor:
    """Serves the requests of all connections of one store; holds no state of a connection."""

    def __init__(
        self,
        store: SegmentStore,
        tables: TableStore,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        tokens: TokenCheck,
        times: RequestTimes,
        on_merged: Callable[[str], None],
    ) -> None:
        """``on_merged`` gets the name of each segment that was merged."""
        self._store = store
        self._on_merged = on_merged
        self._tokens = tokens
        self._clock = clock
        self._random_bytes = random_bytes
        self._batches = RequestBatches(
            self.answer, ReadBatches(self._read_in_memory, self._read_now, times.note_sent), self._state_of, clock
        )
        table = TableRequests(tables)
        self._handlers: dict[type[Command], _Handler] = {
            wire.GetStreamSegmentInfo: self._get_info,
            wire.GetSegmentLengths: self._get_lengths,
            wire.CreateSegment: self._create,
            wire.SealSegment: self._seal,
            wire.DeleteSegment: self._delete,
            wire.TruncateSegment: self._truncate,
            wire.UpdateSegmentPolicy: self._update_policy,
            wire.GetSegmentAttribute: self._get_attribute,
            wire.UpdateSegmentAttribute: self._update_attribute,
            wire.MergeSegments: self._merge,
            wire.MergeSegmentsBatch: self._merge_batch,
            wire.LocateOffset: self._locate_offset,
            wire.GetTableSegmentInfo: table.info,
            wire.CreateTableSegment: table.create,
            wire.DeleteTableSegment: table.delete,
            wire.UpdateTableEntries: table.update,
            wire.RemoveTableKeys: table.remove,
            wire.ReadTable: table.read,
            wire.ReadTableKeys: table.read_keys,
            wire.ReadTableEntries: table.read_entries,
            wire.ReadTableEntriesDelta: table.read_delta,
        }

    def serves(self, command: Command) -> bool:
        return type(command) in self._handlers or isinstance(command, wire.RequestBatch)

    async def answer(self, request: Any) -> Command:
        """The reply to a request that ``serves`` accepts; raises ``CloseConnection`` when no reply is right."""
        if isinstance(request, wire.RequestBatch):
            return await self._batches.answer(request)
        if isinstance(request, wire.GetSegmentLengths):
            try:
                return await self._answer_one(request)
            except CloseConnection as error:  # It stands for many, as a batch does.
                return no_reply(request, error)
        return await self._answer_one(request)

    async def _answer_one(self, request: Any) -> Command:
        segment = _segment_of(request)
        try:
            check_segment_name(segment)
            self._tokens.check(request)
            _check_index_is_only_read(request)
            if isinstance(request, _NOT_FOR_TABLES):
                await check_is_no_table(self._store, getattr(request, "target", segment))
            return await self._handlers[type(request)](request)
        except PravegaError as error:
            if isinstance(request, wire.MergeSegmentsBatch) and isinstance(error, SegmentNotFound):
                segment = error.segment
            return _reply_or_close(error, request, segment, _echoed_offset(request, error))

    def _state_of(self, request: wire.GetStreamSegmentInfo) -> SegmentState | None:
        """The state of a segment, without waiting; None where ``answer`` has to wait for it, or refuses it."""
        try:
            self._tokens.check(request)
            return self._store.state_in_memory(request.segment)
        except PravegaError:
            return None

    # ---- reads -------------------------------------------------------------------------------------------------------

    async def read(self, request: ReadSegment) -> ReadResult | Command:
        """Bytes of a segment, waiting for them at its tail; or the reply that says why they cannot be read."""
        try:
            check_segment_name(request.segment)
            self._tokens.check(request)
            if request.offset < 0:
                raise InvalidArgument(f"offset {request.offset} of {request.segment} is negative")
            return await self._store.read(request.segment, request.offset, _length_of(request))
        except BadOffset as error:
            # As the real store: a read beyond the end of a sealed segment has no answer.
            raise CloseConnection(str(error)) from error
        except PravegaError as error:
            return _reply_or_close(error, request, request.segment, request.offset)

    def _read_in_memory(self, request: ReadSegment) -> ReadResult | None:
        """Bytes of a segment, without waiting; None where ``_read_now`` has to wait for them, or refuses."""
        try:
            self._tokens.check(request)
            return self._store.read_in_memory(request.segment, request.offset, _length_of(request))
        except PravegaError:
            return None

    async def _read_now(self, request: ReadSegment) -> ReadResult | Command:
        """Read without waiting; NoReply where a read alone would wait at a tail, or close its connection."""
        try:
            return await self._read_there(request)
        except CloseConnection as error:
            return no_reply(request, error)

    async def _read_there(self, request: ReadSegment) -> ReadResult | Command:
        try:
            check_segment_name(request.segment)
            self._tokens.check(request)
            found = self._store.state_in_memory(request.segment) or await self._store.get_info(request.segment)
        except PravegaError as error:
            return _reply_or_close(error, request, request.segment, request.offset)
        if request.offset >= found.length and not found.is_sealed:
            return wire.NoReply(request.request_id, f"{request.segment} has {found.length} bytes")
        return await self.read(request)

    # ---- transient segments ------------------------------------------------------------------------------------------

    def transient_name(self, request: wire.CreateTransientSegment) -> str:
        """A new name for a transient segment of the parent named in the request; ``InvalidArgument`` if it has none."""
        check_segment_name(request.parent_segment)
        segment = names.transient_segment_name(request.parent_segment, request.writer_id, self._random_bytes(16))
        check_segment_name(segment)
        return segment

    async def create_transient(self, request: wire.CreateTransientSegment, segment: str) -> Command:
        try:
            self._tokens.check(request)
            await self._store.create_segment(
                segment,
                (
                    AttributeUpdate(CREATION_TIME, _REPLACE, self._clock.wall_ms()),
                    AttributeUpdate(SEGMENT_TYPE, _REPLACE, SEGMENT_TYPE_TRANSIENT),
                ),
            )
        except PravegaError as error:
            return _reply_or_close(error, request, segment, -1)
        return wire.SegmentCreated(request.request_id, segment)

    async def delete_transient(self, segment: str) -> bool:
        """Delete a transient segment; whether it is gone (merged ones are), or else worth another try."""
        try:
            await self._store.delete(segment)
        except PravegaError as error:
            return error.outcome is Outcome.REJECTED
        return True

    # ---- segments ----------------------------------------------------------------------------------------------------

    async def _get_info(self, request: wire.GetStreamSegmentInfo) -> Command:
        found = await self._store.get_info(request.segment)
        state = SegmentState(found.start_offset, found.length, found.is_sealed, found.last_modified_ms)
        return info_reply(request, state)

    async def _get_lengths(self, request: wire.GetSegmentLengths) -> Command:
        return wire.SegmentLengths(request.request_id, await lengths_of(self._store, request.segments, self._clock))

    async def _create(self, request: wire.CreateSegment) -> Command:
        await self._store.create_segment(
            request.segment,
            (
                AttributeUpdate(CREATION_TIME, _REPLACE, self._clock.wall_ms()),
                *_policy_updates(request.scale_type, request.target_rate),
                AttributeUpdate(ROLLOVER_SIZE, _REPLACE, max(request.rollover_size_bytes, 0)),
            ),
        )
        return wire.SegmentCreated(request.request_id, request.segment)

    async def _seal(self, request: wire.SealSegment) -> Command:
        await self._store.seal(request.segment)
        return wire.SegmentSealed(request.request_id, request.segment)

    async def _delete(self, request: wire.DeleteSegment) -> Command:
        await self._store.delete(request.segment)
        return wire.SegmentDeleted(request.request_id, request.segment)

    async def _truncate(self, request: wire.TruncateSegment) -> Command:
        await self._store.truncate(request.segment, request.truncation_offset)
        return wire.SegmentTruncated(request.request_id, request.segment)

    async def _locate_offset(self, request: wire.LocateOffset) -> Command:
        offset = await self._store.locate_offset(request.segment, request.target_offset)
        return wire.OffsetLocated(request.request_id, request.segment, offset)

    # ---- attributes --------------------------------------------------------------------------------------------------

    async def _update_policy(self, request: wire.UpdateSegmentPolicy) -> Command:
        await self._store.update_attributes(request.segment, _policy_updates(request.scale_type, request.target_rate))
        return wire.SegmentPolicyUpdated(request.request_id, request.segment)

    async def _get_attribute(self, request: wire.GetSegmentAttribute) -> Command:
        value = await self._store.get_attribute(request.segment, AttributeId(request.attribute_id))
        return wire.SegmentAttribute(request.request_id, value)

    async def _update_attribute(self, request: wire.UpdateSegmentAttribute) -> Command:
        update = AttributeUpdate(
            client_attribute(request.attribute_id),
            AttributeUpdateType.REPLACE_IF_EQUALS,
            request.new_value,
            request.expected_value,
        )
        try:
            await self._store.update_attributes(request.segment, (update,))
        except BadAttributeUpdate:
            return wire.SegmentAttributeUpdated(request.request_id, success=False)
        return wire.SegmentAttributeUpdated(request.request_id, success=True)

    # ---- merges ------------------------------------------------------------------------------------------------------

    async def _merge(self, request: wire.MergeSegments) -> Command:
        if len(request.attribute_updates) > merge_attribute_updates_max:
            raise InvalidArgument(
                f"{request.source}: {len(request.attribute_updates)} attribute updates in one merge; "
                f"the limit is {merge_attribute_updates_max}"
            )
        check_segment_name(request.target)
        updates = tuple(_attribute_update(item) for item in request.attribute_updates)
        try:
            length = (await self._store.merge(request.target, request.source, updates)).target_length
        except BadAttributeUpdate:
            return wire.SegmentAttributeUpdated(request.request_id, success=False)
        except SegmentMerged as error:
            if error.target_length is None:
                raise
            length = error.target_length
        self._on_merged(request.source)
        return wire.SegmentsMerged(request.request_id, request.target, request.source, length)

    async def _merge_batch(self, request: wire.MergeSegmentsBatch) -> Command:
        _check_batch(request)
        await self._check_sources(request)
        merged: list[MergedSource] = []
        for sources in _chunked(request.sources, merges_in_flight_max):
            if len(sources) == 1:  # A commit of one transaction: 1,000 segments need no task each.
                lengths = [await self._merge_one(request.target, sources[0])]
            else:
                # Started in order, which is the order in which the store merges them; answered together.
                lengths = await all_ended(self._merge_one(request.target, source) for source in sources)
            merged += map(MergedSource, sources, lengths)
        return wire.SegmentsBatchMerged(request.request_id, request.target, tuple(merged))

    async def _check_sources(self, request: wire.MergeSegmentsBatch) -> None:
        """Refuse a batch with a missing source before any of it is merged; one that was merged before is not missing.

        A controller that resumes a commit names sources that it merged before.
        """
        await self._require(request.target)
        for source in request.sources:
            try:
                await self._require(source)
            except SegmentNotFound:
                # Of a source that is gone, a merge changes nothing: it only tells whether there was one.
                await self._merge_one(request.target, source)

    async def _require(self, segment: str) -> None:
        """``SegmentNotFound`` for a segment that is not there."""
        if self._store.state_in_memory(segment) is None:
            await self._store.get_info(segment)

    async def _merge_one(self, target: str, source: str) -> int:
        try:
            length = (await self._store.merge(target, source)).target_length
        except SegmentMerged as error:
            if error.target_length is None:
                raise
            length = error.target_length
        self._on_merged(source)
        return length


def _length_of(request: ReadSegment) -> int:
    return min(max(request.suggested_length, read_bytes_min), read_bytes_max)


def _segment_of(request: Any) -> str:
    """The segment that replies to the request name: of a merge the source, of a batch the target, of many the first.

    See docs/wire-protocol.md 2.1.
    """
    if isinstance(request, wire.MergeSegments):
        return request.source
    if isinstance(request, wire.MergeSegmentsBatch):
        return request.target
    if isinstance(request, wire.GetSegmentLengths):
        return next(iter(request.segments), "")
    segment: str = request.segment
    return segment


def _echoed_offset(request: Any, error: PravegaError) -> int:
    if isinstance(request, wire.TruncateSegment) and isinstance(error, SegmentNotFound):
        return request.truncation_offset
    return -1


def _reply_or_close(error: PravegaError, request: Any, segment: str, offset: int) -> Command:
    reply = error_reply(error, request.request_id, segment, operation_name(request), offset=offset)
    if reply is None:
        raise CloseConnection(f"{operation_name(request)} of {segment} failed: {error!r}") from error
    return reply


def _check_batch(request: wire.MergeSegmentsBatch) -> None:
    if len(request.sources) > merge_sources_max:
        raise InvalidArgument(
            f"{request.target}: {len(request.sources)} sources in one merge; the limit is {merge_sources_max}"
        )
    for source in request.sources:
        check_segment_name(source)


def _check_index_is_only_read(request: Any) -> None:
    """Index segments are written by the container alone: what clients find there must be true."""
    if isinstance(request, _READS):
        return
    segments = (request.target, *_sources_of(request)) if isinstance(request, _MERGES) else (request.segment,)
    for segment in segments:
        if names.is_index_segment(segment):
            raise UnsupportedOperation(f"{segment} is an index segment, which clients may only read")


def _sources_of(request: wire.MergeSegments | wire.MergeSegmentsBatch) -> tuple[str, ...]:
    return (request.source,) if isinstance(request, wire.MergeSegments) else tuple(request.sources)


def _policy_updates(scale_type: int, target_rate: int) -> tuple[AttributeUpdate, AttributeUpdate]:
    if not 0 <= scale_type <= scale_type_max:
        raise InvalidArgument(f"scale type {scale_type} must be in 0..{scale_type_max}")
    return (
        AttributeUpdate(SCALE_POLICY_TYPE, _REPLACE, scale_type),
        AttributeUpdate(SCALE_POLICY_RATE, _REPLACE, target_rate),
    )


def _attribute_update(item: wire.WireAttributeUpdate) -> AttributeUpdate:
    try:
        kind = AttributeUpdateType(item.update_type)
    except ValueError:
        raise InvalidArgument(f"attribute update type {item.update_type} must be in 0..4") from None
    return AttributeUpdate(client_attribute(item.attribute_id), kind, item.new_value, item.old_value)


def _chunked(items: Iterable[str], size: int) -> Iterable[list[str]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk
