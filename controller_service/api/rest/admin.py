"""Administers scopes, streams and reader groups over REST (docs/controller-api.md 8)."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence

from controller_service.api.grpc.parts import ApiParts
from controller_service.api.rest.bodies import (
    CreateStreamRequest,
    ReaderGroupName,
    ReaderGroupProperty,
    ReaderGroupsList,
    ScalingEvent,
    ScopeLimits,
    ScopeProperty,
    ScopeQuotaProperty,
    ScopesList,
    ScopeUsed,
    SealedState,
    SegmentOfEpoch,
    StreamProperty,
    StreamsFilter,
    StreamsList,
    TimeSpan,
    UpdateStreamRequest,
)
from controller_service.api.rest.operation import RestOperation
from controller_service.api.rest.policies import configuration_of, stream_property
from controller_service.store.records import EpochRecord, StreamState
from controller_service.store.stream_context import StreamContext
from pravega_common.errors import AlreadyExists, InvalidArgument, NotFound, ScopeNotEmpty, ScopeNotFound
from pravega_common.model.scope_quota import ScopeQuota
from pravega_common.names import READER_GROUP_PREFIX, SYSTEM_SCOPE, validate_user_name, validate_user_scope_name
from pravega_common.resources import scope_resource, stream_resource
from pravega_common.services.security.principal import may_see


class ScopeOperations:
    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._store = parts.store

    def operations(self) -> Sequence[RestOperation]:
        all_scopes, scope, tag = "/v1/scopes", "/v1/scopes/{scope}", "scopes"
        quota = scope + "/quota"
        return (
            RestOperation("GET", all_scopes, "Lists scopes.", self.list_all, tag=tag),
            RestOperation("POST", all_scopes, "Creates a scope.", self.create, (400, 409), 201, tag),
            RestOperation("GET", scope, "Finds a scope.", self.get, (404,), tag=tag),
            RestOperation("DELETE", scope, "Deletes a scope that is empty.", self.delete, (404, 412), 204, tag),
            RestOperation("GET", quota, "Shows a scope's quota and its use.", self.get_quota, (404,), tag=tag),
            RestOperation("PUT", quota, "Replaces a scope's quota.", self.set_quota, (400, 404), tag=tag),
        )

    async def list_all(self) -> ScopesList:
        names: list[str] = []
        token = b""
        while True:
            page, token = await self._store.list_scopes(token)
            names += [name for name in page if may_see(scope_resource(name))]
            if not token:
                return ScopesList(scopes=[ScopeProperty(scope_name=name) for name in names])

    async def create(self, body: ScopeProperty) -> ScopeProperty:
        scope = validate_user_scope_name(body.scope_name)
        if not await self._store.create_scope(scope):
            raise AlreadyExists(f"scope {scope} exists already")
        return body

    async def get(self, scope: str) -> ScopeProperty:
        if await self._store.scope(scope) is None:
            raise ScopeNotFound.of(scope)
        return ScopeProperty(scope_name=scope)

    async def delete(self, scope: str) -> None:
        if scope == SYSTEM_SCOPE:
            raise ScopeNotEmpty(f"scope {scope} is the system's own and stays")
        await self._parts.workflows.delete_scope.delete_if_empty(self._parts.new_id(), scope)

    async def get_quota(self, scope: str) -> ScopeQuotaProperty:
        found = await self._parts.workflows.quota.describe(scope)
        limits = ScopeLimits(**dataclasses.asdict(found.quota))
        used = ScopeUsed(streams=found.use.streams, segments=found.use.segments) if found.is_counted else None
        return ScopeQuotaProperty(limits=limits, used=used)

    async def set_quota(self, scope: str, body: ScopeLimits) -> ScopeLimits:
        await self._parts.workflows.quota.set(scope, ScopeQuota(**body.model_dump()))
        return body


class StreamOperations:
    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._store = parts.store

    def operations(self) -> Sequence[RestOperation]:
        streams, tag = "/v1/scopes/{scope}/streams", "streams"
        stream = streams + "/{stream}"
        events = stream + "/scaling-events"
        return (
            RestOperation("GET", streams, "Lists streams with their properties.", self.list_all, (400, 404), tag=tag),
            RestOperation("POST", streams, "Creates a stream.", self.create, (400, 403, 404, 409), 201, tag),
            RestOperation("GET", stream, "Finds a stream.", self.get, (404,), tag=tag),
            RestOperation("PUT", stream, "Replaces a stream's configuration.", self.update, (400, 403, 404), tag=tag),
            RestOperation("DELETE", stream, "Deletes a stream that is sealed.", self.delete, (404, 412), 204, tag),
            RestOperation("PUT", stream + "/state", "Seals a stream.", self.seal, (400, 404), tag=tag),
            RestOperation("GET", events, "Lists a stream's scaling events.", self.scaling_events, (400, 404), tag=tag),
        )

    async def list_all(self, scope: str, query: StreamsFilter) -> StreamsList:
        found: list[StreamProperty] = []
        token = b""
        while True:
            if query.filter_type == "tag":
                names, token = await self._store.list_streams_with_tag(scope, query.filter_value, token)
            else:
                page, token = await self._store.list_streams(scope, token)
                internal = query.filter_type == "showInternalStreams"
                names = [name for name, _ in page if name.startswith("_") == internal]
            for name in names:
                if not may_see(stream_resource(scope, name)):
                    continue
                found += await self._properties(scope, name)
            if not token:
                return StreamsList.model_construct(streams=found)

    async def _properties(self, scope: str, stream: str) -> list[StreamProperty]:
        """One, or none of a stream that is being created or deleted."""
        try:
            context = await self._store.open(scope, stream)
            if await context.state() is StreamState.CREATING:
                return []
            return [stream_property(scope, stream, (await context.configuration()).configuration)]
        except NotFound:
            return []

    async def create(self, scope: str, body: CreateStreamRequest) -> StreamProperty:
        stream = validate_user_name(body.stream_name)
        configuration = configuration_of(body)
        if not await self._parts.workflows.create.create(scope, stream, configuration):
            raise AlreadyExists(f"stream {scope}/{stream} exists already")
        return stream_property(scope, stream, configuration)

    async def get(self, scope: str, stream: str) -> StreamProperty:
        context = await self._store.open(scope, stream)
        return stream_property(scope, stream, (await context.configuration()).configuration)

    async def update(self, scope: str, stream: str, body: UpdateStreamRequest) -> StreamProperty:
        configuration = configuration_of(body)
        await self._parts.workflows.update.update(self._parts.new_id(), scope, stream, configuration)
        return stream_property(scope, stream, configuration)

    async def delete(self, scope: str, stream: str) -> None:
        await self._parts.workflows.delete.delete(self._parts.new_id(), scope, stream)

    async def seal(self, scope: str, stream: str, body: SealedState) -> SealedState:
        await self._parts.workflows.seal.seal(self._parts.new_id(), scope, stream)
        return body

    async def scaling_events(self, scope: str, stream: str, query: TimeSpan) -> AsyncIterator[ScalingEvent]:
        """The epochs made within a span of time, after the last one made before it."""
        if query.since > query.until:
            raise InvalidArgument(f"from {query.since} is later than to {query.until}")
        context = await self._store.open(scope, stream)
        last = (await context.current_epoch()).epoch
        oldest = (await context.history()).oldest_epoch
        first = max(oldest, await _first_epoch_since(context, query.since, oldest) - 1)
        async for epoch in context.walk_epochs(range(first, last + 1)):
            if epoch.created_ms > query.until:
                return
            yield _scaling_event(epoch)


class ReaderGroupOperations:
    def __init__(self, parts: ApiParts) -> None:
        self._store = parts.store
        self._groups = parts.groups

    def operations(self) -> Sequence[RestOperation]:
        groups, tag = "/v1/scopes/{scope}/readergroups", "reader groups"
        group = groups + "/{group}"
        return (
            RestOperation("GET", groups, "Lists reader groups.", self.list_all, (404,), tag=tag),
            RestOperation("GET", group, "Finds a reader group.", self.get, (404,), tag=tag),
            RestOperation("DELETE", group, "Deletes a reader group.", self.delete, (404,), 204, tag),
        )

    async def list_all(self, scope: str) -> ReaderGroupsList:
        """By their streams, so that groups are found whichever client made them."""
        names: list[str] = []
        token = b""
        while True:
            page, token = await self._store.list_streams(scope, token)
            names += [
                name.removeprefix(READER_GROUP_PREFIX)
                for name, _ in page
                if name.startswith(READER_GROUP_PREFIX) and may_see(stream_resource(scope, name))
            ]
            if not token:
                return ReaderGroupsList(
                    reader_groups=[ReaderGroupName(reader_group_name=name) for name in names] or None
                )

    async def get(self, scope: str, group: str) -> ReaderGroupProperty:
        record = await self._groups.records.get(scope, group)
        if record is None:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        streams = [name.partition("/")[2] for name in record.config.starting]
        return ReaderGroupProperty(scope_name=scope, reader_group_name=group, stream_list=streams, online_reader_ids=[])

    async def delete(self, scope: str, group: str) -> None:
        record = await self._groups.records.get(scope, group)
        if record is None or not await self._groups.delete(scope, group, record.group_id):
            raise NotFound(f"reader group {scope}/{group} does not exist")


async def _first_epoch_since(context: StreamContext, time_ms: int, oldest: int) -> int:
    """The first epoch on record made at a time or after, by bisection: each is made after the one before."""
    low, high = oldest, (await context.current_epoch()).epoch + 1
    while low < high:
        middle = (low + high) // 2
        if (await context.epoch(middle)).created_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _scaling_event(epoch: EpochRecord) -> ScalingEvent:
    segments = [
        SegmentOfEpoch(
            number=segment.number,
            epoch=segment.creation_epoch,
            start=segment.created_ms,
            key_start=segment.key_start,
            key_end=segment.key_end,
        )
        for segment in epoch.segments
    ]
    return ScalingEvent(timestamp=epoch.created_ms, segments=segments, splits=epoch.splits, merges=epoch.merges)
