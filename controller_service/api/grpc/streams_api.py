"""Serves the calls that create, update, truncate, seal, delete and scale streams (docs/controller-api.md 2.4)."""

from __future__ import annotations

from typing import Any

from controller_service.api.grpc.messages import (
    checked_stream,
    configuration_of,
    segment_range,
)
from controller_service.api.grpc.parts import ApiParts
from controller_service.errors import PreconditionFailed
from controller_service.store.records import TRANSITION, StreamState
from pravega_common.errors import InvalidArgument, ScopeNotFound, SegmentSealed, StreamNotFound, StreamNotSealed
from pravega_common.names import validate_stream_name
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import configuration_to


class StreamsApi:
    parts: ApiParts

    async def createStream(self, request: pb.StreamConfig, context: Any) -> pb.CreateStreamStatus:
        status = pb.CreateStreamStatus
        scope, stream = request.streamInfo.scope, request.streamInfo.stream
        try:
            validate_stream_name(stream)
        except InvalidArgument:
            return status(status=status.INVALID_STREAM_NAME)
        configuration = configuration_of(request)
        if configuration.scaling.min_segments < 1:
            return status(status=status.FAILURE)
        try:
            created = await self.parts.workflows.create.create(scope, stream, configuration)
        except ScopeNotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        return status(status=status.SUCCESS if created else status.STREAM_EXISTS)

    async def updateStream(self, request: pb.StreamConfig, context: Any) -> pb.UpdateStreamStatus:
        status = pb.UpdateStreamStatus
        scope, stream = checked_stream(request.streamInfo)
        configuration = configuration_of(request)
        if configuration.scaling.min_segments < 1:
            return status(status=status.FAILURE)
        try:
            await self.parts.workflows.update.update(self.parts.new_id(), scope, stream, configuration)
        except StreamNotFound:
            return status(status=status.STREAM_NOT_FOUND)
        except SegmentSealed:
            return status(status=status.STREAM_SEALED)
        return status(status=status.SUCCESS)

    async def truncateStream(self, request: pb.StreamCut, context: Any) -> pb.UpdateStreamStatus:
        status = pb.UpdateStreamStatus
        scope, stream = checked_stream(request.streamInfo)
        if not request.cut:
            return status(status=status.FAILURE)
        try:
            await self.parts.workflows.truncate.truncate(self.parts.new_id(), scope, stream, request.cut)
        except StreamNotFound:
            return status(status=status.STREAM_NOT_FOUND)
        except SegmentSealed:
            return status(status=status.STREAM_SEALED)
        except InvalidArgument:
            return status(status=status.FAILURE)
        return status(status=status.SUCCESS)

    async def sealStream(self, request: pb.StreamInfo, context: Any) -> pb.UpdateStreamStatus:
        status = pb.UpdateStreamStatus
        scope, stream = checked_stream(request)
        try:
            await self.parts.workflows.seal.seal(self.parts.new_id(), scope, stream)
        except StreamNotFound:
            return status(status=status.STREAM_NOT_FOUND)
        return status(status=status.SUCCESS)

    async def deleteStream(self, request: pb.StreamInfo, context: Any) -> pb.DeleteStreamStatus:
        status = pb.DeleteStreamStatus
        scope, stream = checked_stream(request)
        try:
            await self.parts.workflows.delete.delete(self.parts.new_id(), scope, stream)
        except StreamNotFound:
            return status(status=status.STREAM_NOT_FOUND)
        except StreamNotSealed:
            return status(status=status.STREAM_NOT_SEALED)
        return status(status=status.SUCCESS)

    async def checkStreamExists(self, request: pb.StreamInfo, context: Any) -> pb.ExistsResponse:
        scope, stream = checked_stream(request)
        try:
            await (await self.parts.store.open(scope, stream)).configuration()
        except StreamNotFound:
            return pb.ExistsResponse(exists=False)
        return pb.ExistsResponse(exists=True)

    async def getStreamConfiguration(self, request: pb.StreamInfo, context: Any) -> pb.StreamConfig:
        scope, stream = checked_stream(request)
        found = await (await self.parts.store.open(scope, stream)).configuration()
        return configuration_to(scope, stream, found.configuration)

    async def scale(self, request: pb.ScaleRequest, context: Any) -> pb.ScaleResponse:
        response = pb.ScaleResponse
        scope, stream = checked_stream(request.streamInfo)
        ranges = [(item.start, item.end) for item in request.newKeyRanges]
        if len({low for low, _ in ranges}) < len(ranges):
            raise InvalidArgument(f"two of the new key ranges start at the same key: {ranges}")
        try:
            # Its scaleTimestamp is of the client's clock: the ages of segments are by the controllers'.
            transition = await self.parts.workflows.scale.start(scope, stream, list(request.sealedSegments), ranges)
        except PreconditionFailed:
            return response(status=response.PRECONDITION_FAILED)
        except (InvalidArgument, SegmentSealed, StreamNotFound):
            return response(status=response.FAILURE)
        return response(
            status=response.STARTED,
            segments=[segment_range(scope, stream, segment) for segment in transition.new_segments],
            epoch=transition.active_epoch,
        )

    async def checkScale(self, request: pb.ScaleStatusRequest, context: Any) -> pb.ScaleStatusResponse:
        response = pb.ScaleStatusResponse
        scope, stream = checked_stream(request.streamInfo)
        try:
            opened = await self.parts.store.open(scope, stream, TRANSITION)
            active = await opened.current_epoch()
        except StreamNotFound:
            return response(status=response.INVALID_INPUT)
        if not 0 <= request.epoch <= active.epoch:
            return response(status=response.INVALID_INPUT)
        if request.epoch in (active.epoch, active.reference_epoch):
            return response(status=response.IN_PROGRESS)
        transition = await opened.transition()
        finishing = transition.is_empty or transition.new_epoch == active.epoch
        if request.epoch + 1 == active.reference_epoch and await opened.state() is StreamState.SCALING and finishing:
            return response(status=response.IN_PROGRESS)
        return response(status=response.SUCCESS)
