"""Serves the calls about segments: current ones, head, successors, owners (docs/controller-api.md 2.4, 3.10)."""

from __future__ import annotations

from typing import Any, Final

from controller_service.api.grpc.messages import (
    checked_segment,
    checked_stream,
    segment_range,
    segment_ranges,
)
from controller_service.api.grpc.parts import ApiParts
from controller_service.buckets.spread import buckets_of
from controller_service.errors import EpochTruncated
from controller_service.store.cut_validity import is_valid_in
from controller_service.store.history import place_in, segments_between
from controller_service.store.records import StreamState, epoch_key
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut
from controller_service.store.stream_positions import head_of, open_segments, successors_of
from pravega_common.errors import InvalidArgument
from pravega_common.names import segment_name
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import cluster_time_key, segment_id_to

_END_OFFSET: Final = (1 << 63) - 1


class SegmentsApi:
    parts: ApiParts

    async def getCurrentSegments(self, request: pb.StreamInfo, context: Any) -> pb.SegmentRanges:
        scope, stream = checked_stream(request)
        found = await open_segments(self.parts.store, scope, stream)
        return pb.SegmentRanges(segmentRanges=[segment_range(scope, stream, segment) for segment in found])

    async def getEpochSegments(self, request: pb.GetEpochSegmentsRequest, context: Any) -> pb.SegmentRanges:
        scope, stream = checked_stream(request.streamInfo)
        if request.epoch < 0:
            raise InvalidArgument(f"epoch {request.epoch} must not be negative")
        opened = await self.parts.store.open(scope, stream, epoch_key(request.epoch))
        if request.epoch < (oldest := (await opened.history()).oldest_epoch):
            raise EpochTruncated(f"epoch {request.epoch} of stream {opened.name} was truncated: {oldest} is the oldest")
        return segment_ranges(scope, stream, await opened.epoch(request.epoch))

    async def getSegments(self, request: pb.GetSegmentsRequest, context: Any) -> pb.SegmentsAtTime:
        """The head of the stream; the time is ignored, as by real controllers."""
        scope, stream = checked_stream(request.streamInfo)
        head = await head_of(self.parts.store, scope, stream)
        return pb.SegmentsAtTime(
            segments=[
                pb.SegmentsAtTime.SegmentLocation(
                    segmentId=segment_id_to(scope, stream, identifier), offset=max(0, offset)
                )
                for identifier, offset in head.items()
            ]
        )

    async def getSegmentsImmediatelyFollowing(self, request: pb.SegmentId, context: Any) -> pb.SuccessorResponse:
        scope, stream = checked_stream(request.streamInfo)
        found = await successors_of(self.parts.store, scope, stream, request.segmentId)
        return pb.SuccessorResponse(
            segments=[
                pb.SuccessorResponse.SegmentEntry(segment=segment_range(scope, stream, successor), value=predecessors)
                for successor, predecessors in found
            ]
        )

    async def getSegmentsImmediatlyFollowing(self, request: pb.SegmentId, context: Any) -> pb.SuccessorResponse:
        """The old spelling."""
        return await self.getSegmentsImmediatelyFollowing(request, context)

    async def getSegmentsBetween(self, request: pb.StreamCutRange, context: Any) -> pb.StreamCutRangeResponse:
        scope, stream = checked_stream(request.streamInfo)
        start, end = dict(getattr(request, "from")), dict(request.to)
        if not start and not end:
            raise InvalidArgument(f"both stream cuts of {scope}/{stream} are empty")
        opened = await self.parts.store.open(scope, stream)
        first = await self._placed_or(opened, start, (await opened.history()).oldest_epoch, 0)
        last = await self._placed_or(opened, end, (await opened.current_epoch()).epoch, _END_OFFSET)
        between = await segments_between(opened, first, last)
        return pb.StreamCutRangeResponse(segments=[segment_id_to(scope, stream, identifier) for identifier in between])

    @staticmethod
    async def _placed_or(opened: StreamContext, cut: dict[int, int], epoch: int, offset: int) -> PlacedCut:
        """The cut, or for an empty one all segments of an epoch at the given offset."""
        if not cut:
            cut = dict.fromkeys((await opened.epoch(epoch)).segment_ids, offset)
        return await place_in(opened, cut)

    async def getURI(self, request: pb.SegmentId, context: Any) -> pb.NodeUri:
        """Owner of a segment's container; neither the segment nor the stream need exist."""
        host, port = await self.parts.hosts.owner_of(segment_name(*checked_segment(request)))
        return pb.NodeUri(endpoint=host, port=port)

    async def isSegmentValid(self, request: pb.SegmentId, context: Any) -> pb.SegmentValidityResponse:
        scope, stream = checked_stream(request.streamInfo)
        opened = await self.parts.store.open(scope, stream)
        is_open = await opened.state() is not StreamState.SEALED
        found = (await opened.current_epoch()).find(request.segmentId)
        return pb.SegmentValidityResponse(response=is_open and found is not None)

    async def isStreamCutValid(self, request: pb.StreamCut, context: Any) -> pb.StreamCutValidityResponse:
        scope, stream = checked_stream(request.streamInfo)
        opened = await self.parts.store.open(scope, stream)
        return pb.StreamCutValidityResponse(
            response=await is_valid_in(opened, await place_in(opened, dict(request.cut)))
        )

    async def getDelegationToken(self, request: pb.StreamInfo, context: Any) -> pb.DelegationToken:
        """Empty: with authentication the guard puts the token in. Asked for by every client, also for streams that do
        not exist."""
        return pb.DelegationToken()

    async def getControllerServerList(self, request: pb.ServerRequest, context: Any) -> pb.ServerResponse:
        """With the time of the cluster behind the answer, in metadata that other clients do not look at."""
        addresses = await self.parts.hosts.controllers()
        context.set_trailing_metadata(((cluster_time_key, str(self.parts.store.clock.wall_ms())),))
        return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint=host, port=port) for host, port in addresses])

    async def getControllerToBucketMapping(
        self, request: pb.ControllerToBucketMappingRequest, context: Any
    ) -> pb.ControllerToBucketMappingResponse:
        """The buckets of each live controller, which are the same for retention and watermarks."""
        if request.serviceType not in pb.ControllerToBucketMappingRequest.BucketType.values():
            raise InvalidArgument(f"service type {request.serviceType} must be 0 (retention) or 1 (watermarks)")
        live = await self.parts.live_ids()
        return pb.ControllerToBucketMappingResponse(
            mapping={controller: pb.BucketIds(id=sorted(buckets_of(controller, live))) for controller in live}
        )
