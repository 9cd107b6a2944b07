"""Administers scopes, streams and reader groups over REST (docs/controller-api.md 8). Errors have empty bodies."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from aiohttp import web

from controller_service.api.grpc.parts import ApiParts
from controller_service.api.rest.policies import configuration_of, stream_property
from controller_service.store.records import EpochRecord, StreamState
from controller_service.store.stream_context import StreamContext
from pravega_common.errors import (
    InvalidArgument,
    NotFound,
    PravegaError,
    ScopeNotEmpty,
    ScopeNotFound,
    SegmentNotFound,
    StreamNotSealed,
)
from pravega_common.names import READER_GROUP_PREFIX, SYSTEM_SCOPE, validate_user_name, validate_user_scope_name

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger(service="rest-api")


@web.middleware
async def map_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except PravegaError as error:
        status = _status_of(error)
        if status == 500:
            log.warning("request failed", method=request.method, path=request.path, error=repr(error))
        # The reason is for people; a line break in it would end the header.
        return web.Response(status=status, reason=" ".join(str(error).split())[:200])


def _status_of(error: PravegaError) -> int:
    match error:
        case InvalidArgument():
            return 400
        case NotFound() | SegmentNotFound():
            return 404
        case StreamNotSealed() | ScopeNotEmpty():
            return 412
    return 500


class AdminRoutes:
    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts
        self._store = parts.store

    def routes(self) -> list[web.RouteDef]:
        scope, stream = "/v1/scopes/{scope}", "/v1/scopes/{scope}/streams/{stream}"
        group = scope + "/readergroups/{group}"
        return [
            web.get("/v1/scopes", self._list_scopes),
            web.post("/v1/scopes", self._create_scope),
            web.get(scope, self._get_scope),
            web.delete(scope, self._delete_scope),
            web.get(scope + "/streams", self._list_streams),
            web.post(scope + "/streams", self._create_stream),
            web.get(stream, self._get_stream),
            web.put(stream, self._update_stream),
            web.delete(stream, self._delete_stream),
            web.put(stream + "/state", self._seal_stream),
            web.get(stream + "/scaling-events", self._scaling_events),
            web.get(scope + "/readergroups", self._list_groups),
            web.get(group, self._get_group),
            web.delete(group, self._delete_group),
        ]

    # ---- scopes ------------------------------------------------------------------------------------------------------

    async def _list_scopes(self, request: web.Request) -> web.Response:
        names: list[str] = []
        token = b""
        while True:
            page, token = await self._store.list_scopes(token)
            names += page
            if not token:
                return web.json_response({"scopes": [{"scopeName": name} for name in names]})

    async def _create_scope(self, request: web.Request) -> web.Response:
        scope = validate_user_scope_name(_text(await _body(request), "scopeName"))
        if not await self._store.create_scope(scope):
            return web.Response(status=409)
        return web.json_response({"scopeName": scope}, status=201)

    async def _get_scope(self, request: web.Request) -> web.Response:
        scope = request.match_info["scope"]
        if await self._store.scope(scope) is None:
            raise ScopeNotFound.of(scope)
        return web.json_response({"scopeName": scope})

    async def _delete_scope(self, request: web.Request) -> web.Response:
        scope = request.match_info["scope"]
        if scope == SYSTEM_SCOPE:
            return web.Response(status=412)
        await self._parts.workflows.delete_scope.delete_if_empty(self._parts.new_id(), scope)
        return web.Response(status=204)

    # ---- streams -----------------------------------------------------------------------------------------------------

    async def _list_streams(self, request: web.Request) -> web.Response:
        scope = request.match_info["scope"]
        kind, value = request.query.get("filter_type"), request.query.get("filter_value", "")
        found: list[dict[str, Any]] = []
        token = b""
        while True:
            if kind == "tag":
                names, token = await self._store.list_streams_with_tag(scope, value, token)
            else:
                page, token = await self._store.list_streams(scope, token)
                names = [name for name, _ in page if name.startswith("_") == (kind == "showInternalStreams")]
            for name in names:
                found += await self._properties(scope, name)
            if not token:
                return web.json_response({"streams": found})

    async def _properties(self, scope: str, stream: str) -> list[dict[str, Any]]:
        """One, or none of a stream that is being created or deleted."""
        try:
            context = await self._store.open(scope, stream)
            if await context.state() is StreamState.CREATING:
                return []
            return [stream_property(scope, stream, (await context.configuration()).configuration)]
        except NotFound:
            return []

    async def _create_stream(self, request: web.Request) -> web.Response:
        scope, body = request.match_info["scope"], await _body(request)
        stream = validate_user_name(_text(body, "streamName"))
        configuration = configuration_of(body)
        if not await self._parts.workflows.create.create(scope, stream, configuration):
            return web.Response(status=409)
        return web.json_response(stream_property(scope, stream, configuration), status=201)

    async def _get_stream(self, request: web.Request) -> web.Response:
        scope, stream = _stream_of(request)
        context = await self._store.open(scope, stream)
        return web.json_response(stream_property(scope, stream, (await context.configuration()).configuration))

    async def _update_stream(self, request: web.Request) -> web.Response:
        scope, stream = _stream_of(request)
        configuration = configuration_of(await _body(request))
        await self._parts.workflows.update.update(self._parts.new_id(), scope, stream, configuration)
        return web.json_response(stream_property(scope, stream, configuration))

    async def _delete_stream(self, request: web.Request) -> web.Response:
        await self._parts.workflows.delete.delete(self._parts.new_id(), *_stream_of(request))
        return web.Response(status=204)

    async def _seal_stream(self, request: web.Request) -> web.Response:
        wanted = _text(await _body(request), "streamState")
        if wanted != "SEALED":
            raise InvalidArgument(f"streamState is {wanted!r}, only SEALED can be asked for")
        await self._parts.workflows.seal.seal(self._parts.new_id(), *_stream_of(request))
        return web.json_response({"streamState": "SEALED"})

    async def _scaling_events(self, request: web.Request) -> web.StreamResponse:
        """The epochs made within a span of time, after the last one made before it.

        Sent while they are read: an error in the middle ends the answer early, without its last bracket.
        """
        since, until = _time(request, "from"), _time(request, "to")
        if since > until:
            raise InvalidArgument(f"from {since} is later than to {until}")
        context = await self._store.open(*_stream_of(request))
        last = (await context.current_epoch()).epoch
        first = max(0, await _first_epoch_since(context, since) - 1)
        response = web.StreamResponse(headers={"Content-Type": "application/json; charset=utf-8"})
        separator = b"["
        async for epoch in context.walk_epochs(range(first, last + 1)):
            if epoch.created_ms > until:
                break
            if not response.prepared:
                await response.prepare(request)
            await response.write(separator + json.dumps(_scaling_event(epoch)).encode())
            separator = b","
        if not response.prepared:
            return web.json_response([])
        await response.write(b"]")
        await response.write_eof()
        return response

    # ---- reader groups -----------------------------------------------------------------------------------------------

    async def _list_groups(self, request: web.Request) -> web.Response:
        """By their streams, so that groups are found whichever client made them; an empty answer has no list at all."""
        scope = request.match_info["scope"]
        names: list[str] = []
        token = b""
        while True:
            page, token = await self._store.list_streams(scope, token)
            names += [
                name.removeprefix(READER_GROUP_PREFIX) for name, _ in page if name.startswith(READER_GROUP_PREFIX)
            ]
            if not token:
                break
        return web.json_response({"readerGroups": [{"readerGroupName": name} for name in names]} if names else {})

    async def _get_group(self, request: web.Request) -> web.Response:
        """``onlineReaderIds`` is empty: which readers are online is known to the group's own stream only."""
        scope, group = request.match_info["scope"], request.match_info["group"]
        record = await self._parts.groups.records.get(scope, group)
        if record is None:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        streams = [name.partition("/")[2] for name in record.config.starting]
        return web.json_response(
            {"scopeName": scope, "readerGroupName": group, "streamList": streams, "onlineReaderIds": []}
        )

    async def _delete_group(self, request: web.Request) -> web.Response:
        scope, group = request.match_info["scope"], request.match_info["group"]
        record = await self._parts.groups.records.get(scope, group)
        if record is None or not await self._parts.groups.delete(scope, group, record.group_id):
            raise NotFound(f"reader group {scope}/{group} does not exist")
        return web.Response(status=204)


def _stream_of(request: web.Request) -> tuple[str, str]:
    return request.match_info["scope"], request.match_info["stream"]


async def _first_epoch_since(context: StreamContext, time_ms: int) -> int:
    """The first epoch made at a time or after, by bisection: each is made after the one before."""
    low, high = 0, (await context.current_epoch()).epoch + 1
    while low < high:
        middle = (low + high) // 2
        if (await context.epoch(middle)).created_ms < time_ms:
            low = middle + 1
        else:
            high = middle
    return low


def _scaling_event(epoch: EpochRecord) -> dict[str, Any]:
    return {
        "timestamp": epoch.created_ms,
        "segments": [
            {
                "number": segment.number,
                "epoch": segment.creation_epoch,
                "start": segment.created_ms,
                "keyStart": segment.key_start,
                "keyEnd": segment.key_end,
            }
            for segment in epoch.segments
        ],
        "splits": epoch.splits,
        "merges": epoch.merges,
    }


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.text())
    except ValueError as error:
        raise InvalidArgument(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise InvalidArgument("the body is not a JSON object")
    return body


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is missing or not a text")
    return value


def _time(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    if not text.isdigit():
        raise InvalidArgument(f"{name} is {text!r}, must be a time in milliseconds since 1970")
    return int(text)
