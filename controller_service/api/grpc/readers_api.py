"""Serves the calls about reader groups, subscribers and writers' marks (docs/controller-api.md 5 and 7)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any, Final

from controller_service.api.grpc.messages import checked_stream
from controller_service.api.grpc.parts import ApiParts
from controller_service.errors import CutTruncated
from controller_service.store.cut_validity import is_valid_in
from controller_service.store.history import place_in
from controller_service.store.members import (
    ReaderGroupConfig,
    ReaderGroupRecord,
    ScopeMemberState,
)
from controller_service.store.records import SUBSCRIBERS, SubscriberRecord, SubscribersRecord
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut, is_at_or_after
from controller_service.store.writer_marks import NoteOutcome
from controller_service.workflows.reader_groups import ConfigMismatch
from pravega_common.errors import InvalidArgument, ScopeNotFound, StreamNotFound
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import scoped_name, split_scoped_name, validate_user_name
from pravega_common.proto import controller_pb2 as pb

_NIL_ID: Final = str(uuid.UUID(int=0))


class ReadersApi:
    parts: ApiParts

    async def createReaderGroup(
        self, request: pb.ReaderGroupConfiguration, context: Any
    ) -> pb.CreateReaderGroupResponse:
        response = pb.CreateReaderGroupResponse
        try:
            validate_user_name(request.readerGroupName, "reader group")
        except InvalidArgument:
            return response(status=response.INVALID_RG_NAME)
        group_id = _checked_id(request.readerGroupId)
        if group_id == _NIL_ID:
            group_id = str(uuid.UUID(hex=self.parts.new_id()))
        config = _config_of(request)
        try:
            record = await self.parts.groups.create(request.scope, request.readerGroupName, group_id, config)
        except ScopeNotFound:
            return response(status=response.SCOPE_NOT_FOUND)
        except StreamNotFound:
            return response(status=response.FAILURE)
        return response(config=_config_message(request.scope, request.readerGroupName, record))

    async def getReaderGroupConfig(self, request: pb.ReaderGroupInfo, context: Any) -> pb.ReaderGroupConfigResponse:
        response = pb.ReaderGroupConfigResponse
        record = await self.parts.groups.records.get(request.scope, request.readerGroup)
        if record is None or record.state is not ScopeMemberState.ACTIVE:
            return response(status=response.RG_NOT_FOUND, config=pb.ReaderGroupConfiguration())
        return response(config=_config_message(request.scope, request.readerGroup, record))

    async def updateReaderGroup(
        self, request: pb.ReaderGroupConfiguration, context: Any
    ) -> pb.UpdateReaderGroupResponse:
        response = pb.UpdateReaderGroupResponse
        group_id, config = _checked_id(request.readerGroupId), _config_of(request)
        try:
            generation = await self.parts.groups.update(
                request.scope, request.readerGroupName, group_id, request.generation, config
            )
        except ConfigMismatch:
            return response(status=response.INVALID_CONFIG)
        if generation is None:
            return response(status=response.RG_NOT_FOUND)
        return response(generation=generation)

    async def deleteReaderGroup(self, request: pb.ReaderGroupInfo, context: Any) -> pb.DeleteReaderGroupStatus:
        status = pb.DeleteReaderGroupStatus
        group_id = _checked_id(request.readerGroupId)
        deleted = await self.parts.groups.delete(request.scope, request.readerGroup, group_id)
        return status(status=status.SUCCESS if deleted else status.RG_NOT_FOUND)

    # ---- subscribers -------------------------------------------------------------------------------------------------

    async def listSubscribers(self, request: pb.StreamInfo, context: Any) -> pb.SubscribersResponse:
        scope, stream = checked_stream(request)
        try:
            opened = await self.parts.store.open(scope, stream, SUBSCRIBERS)
            await opened.state()
        except StreamNotFound:
            return pb.SubscribersResponse(status=pb.SubscribersResponse.STREAM_NOT_FOUND)
        record = await opened.read(SUBSCRIBERS) or SubscribersRecord()
        return pb.SubscribersResponse(subscribers=list(record.subscribers))

    async def updateSubscriberStreamCut(
        self, request: pb.SubscriberStreamCut, context: Any
    ) -> pb.UpdateSubscriberStatus:
        status = pb.UpdateSubscriberStatus
        scope, stream = checked_stream(request.streamCut.streamInfo)
        outcome = status.SUCCESS

        async def change(opened: StreamContext) -> None:
            nonlocal outcome
            await opened.state()
            subscribers = (await opened.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
            known = subscribers.get(request.subscriber)
            outcome = await _judge(opened, known, request)
            if known is None or outcome != status.SUCCESS:
                return
            now_ms = self.parts.store.clock.wall_ms()
            changed = SubscriberRecord(
                known.subscriber, known.group_id, known.generation, dict(request.streamCut.cut), now_ms
            )
            await opened.put(SUBSCRIBERS, SubscribersRecord({**subscribers, request.subscriber: changed}))

        try:
            await self.parts.store.update(scope, stream, change, SUBSCRIBERS)
        except StreamNotFound:
            return status(status=status.STREAM_NOT_FOUND)
        except InvalidArgument as error:
            # There was room for all when each came, but not for the segments that the stream got since.
            raise InvalidArgument(
                f"the positions of all subscribers of {scoped_name(scope, stream)} do not fit one record any more, and "
                f"that of {request.subscriber} stays as it was; remove subscribers that are not needed (pravega-spark "
                f"subscriber remove): {error}"
            ) from error
        if outcome == status.SUCCESS:
            self.parts.known_subscribers.heard_of(scoped_name(scope, stream), [request.subscriber])
        return status(status=outcome)

    # ---- writers -----------------------------------------------------------------------------------------------------

    async def noteTimestampFromWriter(self, request: pb.TimestampFromWriter, context: Any) -> pb.TimestampResponse:
        response = pb.TimestampResponse
        scope, stream = checked_stream(request.position.streamInfo)
        outcome = await self.parts.marks.note(
            scope, stream, request.writer, dict(request.position.cut), request.timestamp
        )
        results = {
            NoteOutcome.NOTED: response.SUCCESS,
            NoteOutcome.INVALID_TIME: response.INVALID_TIME,
            NoteOutcome.INVALID_POSITION: response.INVALID_POSITION,
        }
        return response(result=results[outcome])

    async def removeWriter(self, request: pb.RemoveWriterRequest, context: Any) -> pb.RemoveWriterResponse:
        response = pb.RemoveWriterResponse
        scope, stream = checked_stream(request.stream)
        known = await self.parts.marks.remove(scope, stream, request.writer)
        return response(result=response.SUCCESS if known else response.UNKNOWN_WRITER)


async def _judge(
    opened: StreamContext, known: SubscriberRecord | None, request: pb.SubscriberStreamCut
) -> pb.UpdateSubscriberStatus.Status.ValueType:
    status = pb.UpdateSubscriberStatus
    if known is None or known.group_id != request.readerGroupId:
        return status.SUBSCRIBER_NOT_FOUND
    if known.generation != request.generation:
        return status.GENERATION_MISMATCH
    try:
        placed = await place_in(opened, dict(request.streamCut.cut))
        if not await is_valid_in(opened, placed):
            return status.STREAM_CUT_NOT_VALID
        if known.cut and known.updated_ms and not await _follows(opened, placed, known.cut):
            return status.STREAM_CUT_NOT_VALID
    except InvalidArgument:
        return status.STREAM_CUT_NOT_VALID
    return status.SUCCESS


async def _follows(opened: StreamContext, placed: PlacedCut, known: SegmentOffsets) -> bool:
    """Whether no part of a cut lies before the one that a subscriber gave before."""
    try:
        return is_at_or_after(placed, await place_in(opened, known))
    except CutTruncated:
        return True


def _checked_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError as error:
        raise InvalidArgument(f"reader group id {text!r} is not a UUID") from error


def _config_of(request: pb.ReaderGroupConfiguration) -> ReaderGroupConfig:
    if request.maxOutstandingCheckpointRequest < 1:
        raise InvalidArgument(f"{request.maxOutstandingCheckpointRequest} outstanding checkpoints: must be at least 1")
    if not request.startingStreamCuts:
        raise InvalidArgument(f"reader group {request.scope}/{request.readerGroupName} reads no stream")
    try:
        retention = ReaderGroupRetention(request.retentionType)
    except ValueError as error:
        raise InvalidArgument(f"retention type {request.retentionType} must be 0, 1 or 2") from error
    return ReaderGroupConfig(
        request.groupRefreshTimeMillis,
        request.automaticCheckpointIntervalMillis,
        request.maxOutstandingCheckpointRequest,
        retention,
        _cuts_of(request.startingStreamCuts),
        _cuts_of(request.endingStreamCuts),
    )


def _cuts_of(messages: Iterable[pb.StreamCut]) -> dict[str, dict[int, int]]:
    """By the names of their streams; ``InvalidArgument`` for one that cannot be told apart in such a name again."""
    cuts = {scoped_name(*checked_stream(message.streamInfo)): dict(message.cut) for message in messages}
    for name in cuts:
        split_scoped_name(name)
    return cuts


def _cut_messages(cuts: dict[str, dict[int, int]]) -> list[pb.StreamCut]:
    messages = []
    for name, cut in cuts.items():
        scope, stream = split_scoped_name(name)
        messages.append(pb.StreamCut(streamInfo=pb.StreamInfo(scope=scope, stream=stream), cut=cut))
    return messages


def _config_message(scope: str, group: str, record: ReaderGroupRecord) -> pb.ReaderGroupConfiguration:
    config = record.config
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=group,
        groupRefreshTimeMillis=config.refresh_ms,
        automaticCheckpointIntervalMillis=config.checkpoint_ms,
        maxOutstandingCheckpointRequest=config.outstanding_checkpoints_max,
        retentionType=config.retention,
        generation=record.generation,
        readerGroupId=record.group_id,
        startingStreamCuts=_cut_messages(config.starting),
        endingStreamCuts=_cut_messages(config.ending),
    )
