"""Registers reader groups with the controller, which keeps their positions for retention (docs/controller-api.md 7)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterable
from typing import Final

from pravega_common.errors import InvalidArgument, NotFound, ScopeNotFound
from pravega_common.model.reader_groups import GroupRegistration, ReaderGroupRetention
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import USER_NAME_RULE
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.controller.call_numbers import (
    checked_cut,
    checked_number,
    checked_text,
    named_stream,
)
from pravega_streams.controller.transport import ControllerTransport
from pravega_streams.errors import ControllerRefused

_NEW_ID: Final = str(uuid.UUID(int=0))
"""Asks the controller to choose the id."""
checkpoint_interval_ms: Final = 30_000
outstanding_checkpoints_max: Final = 3
subscriber_refresh_ms: Final = 3_000
"""Pravega's default; a group without readers has nothing to refresh."""


class ReaderGroupClient:
    """Blocking calls about reader groups and subscribers."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def create(
        self,
        scope: str,
        group: str,
        streams: Iterable[tuple[str, str]],
        retention: ReaderGroupRetention,
        refresh_time_ms: int,
    ) -> GroupRegistration:
        """Register a group, or return how it is registered already. ``ScopeNotFound``, ``InvalidArgument``."""
        return _registration(self._create(_configuration(scope, group, streams, retention, refresh_time_ms)))

    def subscribe(self, scope: str, group: str, streams: Collection[tuple[str, str]]) -> GroupRegistration:
        """Register a group without readers as a subscriber of these streams, and of no others.

        A group that is registered for other streams is changed, and must then publish its cuts again.
        ``InvalidArgument`` for a bad name, or that of a group of another kind, ``ScopeNotFound``,
        ``ControllerRefused``.
        """
        wanted = _configuration(scope, group, streams, ReaderGroupRetention.MANUAL, subscriber_refresh_ms)
        found = self._create(wanted)
        if found.retentionType != ReaderGroupRetention.MANUAL:
            raise InvalidArgument(f"{scope}/{group} is a reader group of another kind; choose another name")
        held = {(cut.streamInfo.scope, cut.streamInfo.stream) for cut in found.startingStreamCuts}
        if held == set(streams):
            return _registration(found)
        wanted.readerGroupId, wanted.generation = found.readerGroupId, found.generation
        return self._update(wanted)

    def renew(self, registration: GroupRegistration) -> GroupRegistration:
        """Give a group its next generation, in which its cuts may go back behind those that it has published.

        ``NotFound`` if it is not registered, ``ControllerRefused`` if somebody else changes it at the same time.
        """
        found = self._find(registration.scope, registration.group)
        if found is None:
            raise NotFound(f"updateReaderGroup {registration.subscriber}: there is no such group")
        return self._update(found)

    def _update(self, config: pb.ReaderGroupConfiguration) -> GroupRegistration:
        """Make this the configuration of a group that has the generation in it."""
        reply = self._transport.controller("updateReaderGroup", config)
        if reply.status != pb.UpdateReaderGroupResponse.SUCCESS:
            status = pb.UpdateReaderGroupResponse.Status.Name(reply.status)
            raise ControllerRefused(f"updateReaderGroup {config.scope}/{config.readerGroupName}: {status}")
        config.generation = reply.generation
        return _registration(config)

    def _create(self, request: pb.ReaderGroupConfiguration) -> pb.ReaderGroupConfiguration:
        """The configuration that stands."""
        scope, group = request.scope, request.readerGroupName
        reply = self._transport.controller("createReaderGroup", request)
        response = pb.CreateReaderGroupResponse
        if reply.status == response.SCOPE_NOT_FOUND:
            raise ScopeNotFound(f"createReaderGroup {scope}/{group}: there is no scope {scope}")
        if reply.status == response.INVALID_RG_NAME:
            raise InvalidArgument(f"createReaderGroup: {group!r} is no name of a reader group; {USER_NAME_RULE}")
        if reply.status != response.SUCCESS:
            raise ControllerRefused(f"createReaderGroup {scope}/{group}: FAILURE; do all its streams exist?")
        config: pb.ReaderGroupConfiguration = reply.config
        return config

    def find(self, scope: str, group: str) -> GroupRegistration | None:
        """Return how a group is registered; None if it is not."""
        found = self._find(scope, group)
        return None if found is None else _registration(found)

    def _find(self, scope: str, group: str) -> pb.ReaderGroupConfiguration | None:
        request = pb.ReaderGroupInfo(
            scope=checked_text("a scope", scope), readerGroup=checked_text("a reader group", group)
        )
        reply = self._transport.controller("getReaderGroupConfig", request)
        if reply.status == pb.ReaderGroupConfigResponse.RG_NOT_FOUND:
            return None
        if reply.status != pb.ReaderGroupConfigResponse.SUCCESS:
            raise ControllerRefused(f"getReaderGroupConfig {scope}/{group}: FAILURE")
        config: pb.ReaderGroupConfiguration = reply.config
        return config

    def delete(self, registration: GroupRegistration) -> bool:
        """Whether it was there."""
        request = pb.ReaderGroupInfo(
            scope=registration.scope,
            readerGroup=registration.group,
            readerGroupId=registration.group_id,
            generation=registration.generation,
        )
        reply = self._transport.controller("deleteReaderGroup", request)
        if reply.status == pb.DeleteReaderGroupStatus.FAILURE:
            raise ControllerRefused(f"deleteReaderGroup {registration.subscriber}: FAILURE")
        return bool(reply.status == pb.DeleteReaderGroupStatus.SUCCESS)

    def subscribers(self, scope: str, stream: str) -> list[str]:
        """Names, ``scope/group``, of the groups that hold a stream's events back from retention."""
        reply = self._transport.controller("listSubscribers", named_stream(scope, stream))
        if reply.status != pb.SubscribersResponse.SUCCESS:
            raise NotFound(f"listSubscribers: there is no stream {scope}/{stream}")
        return list(reply.subscribers)

    def update_cut(self, registration: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        """Let retention drop what lies before the cut, as far as this group goes.

        ``NotFound`` for an unknown stream or group, ``InvalidArgument`` for a cut that does not belong to the stream or
        lies before the one published last, ``ControllerRefused`` if the group was changed since it was looked up, and
        if the positions of all subscribers do not fit their record.
        """
        request = pb.SubscriberStreamCut(
            subscriber=registration.subscriber,
            generation=registration.generation,
            readerGroupId=registration.group_id,
            streamCut=pb.StreamCut(streamInfo=named_stream(scope, stream), cut=checked_cut(cut)),
        )
        try:
            reply = self._transport.controller("updateSubscriberStreamCut", request)
        except InvalidArgument as error:
            # A cut that is wrong has a status of its own.
            raise ControllerRefused(str(error)) from error
        status = pb.UpdateSubscriberStatus.Status.Name(reply.status)
        what = f"cut of {registration.subscriber} in {scope}/{stream}: {status}"
        match status:
            case "SUCCESS":
                return
            case "STREAM_NOT_FOUND" | "SUBSCRIBER_NOT_FOUND":
                raise NotFound(what)
            case "STREAM_CUT_NOT_VALID":
                raise InvalidArgument(what)
        raise ControllerRefused(what)


class AsyncReaderGroupClient:
    """The calls of a ``ReaderGroupClient`` that readers make, without blocking their loop: a ``GroupRegistry``."""

    def __init__(self, blocking: ReaderGroupClient) -> None:
        self._blocking = blocking

    async def find(self, scope: str, group: str) -> GroupRegistration | None:
        return await asyncio.to_thread(self._blocking.find, scope, group)

    async def renew(self, registration: GroupRegistration) -> GroupRegistration:
        return await asyncio.to_thread(self._blocking.renew, registration)

    async def update_cut(self, registration: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        await asyncio.to_thread(self._blocking.update_cut, registration, scope, stream, cut)


def _configuration(
    scope: str,
    group: str,
    streams: Iterable[tuple[str, str]],
    retention: ReaderGroupRetention,
    refresh_time_ms: int,
) -> pb.ReaderGroupConfiguration:
    return pb.ReaderGroupConfiguration(
        scope=checked_text("a scope", scope),
        readerGroupName=checked_text("a reader group", group),
        groupRefreshTimeMillis=checked_number("the refresh time of a group in milliseconds", refresh_time_ms),
        automaticCheckpointIntervalMillis=checkpoint_interval_ms,
        maxOutstandingCheckpointRequest=outstanding_checkpoints_max,
        retentionType=retention.value,
        generation=0,
        readerGroupId=_NEW_ID,
        startingStreamCuts=[pb.StreamCut(streamInfo=named_stream(*stream)) for stream in streams],
    )


def _registration(config: pb.ReaderGroupConfiguration) -> GroupRegistration:
    return GroupRegistration(
        config.scope,
        config.readerGroupName,
        config.readerGroupId,
        config.generation,
        ReaderGroupRetention(config.retentionType),
    )
