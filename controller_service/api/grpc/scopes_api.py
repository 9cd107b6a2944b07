"""Serves the calls that create, delete and list scopes (docs/controller-api.md 2.4)."""

from __future__ import annotations

from functools import partial
from typing import Any

from controller_service.api.grpc.messages import page_start, page_token
from controller_service.api.grpc.parts import ApiParts
from controller_service.api.visible_page import visible_page
from controller_service.store.scope_store import STREAMS_LIST
from pravega_common.errors import InvalidArgument, ScopeNotEmpty, ScopeNotFound, SegmentNotFound
from pravega_common.model.stream_configuration import tag_chars_max
from pravega_common.names import SYSTEM_SCOPE, validate_scope_name
from pravega_common.proto import controller_pb2 as pb
from pravega_common.resources import scope_resource, stream_resource


class ScopesApi:
    parts: ApiParts

    async def createScope(self, request: pb.ScopeInfo, context: Any) -> pb.CreateScopeStatus:
        _require_scope(request.scope)
        try:
            validate_scope_name(request.scope)
        except InvalidArgument:
            return pb.CreateScopeStatus(status=pb.CreateScopeStatus.INVALID_SCOPE_NAME)
        created = await self.parts.store.create_scope(request.scope)
        return pb.CreateScopeStatus(
            status=pb.CreateScopeStatus.SUCCESS if created else pb.CreateScopeStatus.SCOPE_EXISTS
        )

    async def deleteScope(self, request: pb.ScopeInfo, context: Any) -> pb.DeleteScopeStatus:
        _require_scope(request.scope)
        status = pb.DeleteScopeStatus
        if request.scope == SYSTEM_SCOPE:
            return status(status=status.SCOPE_NOT_EMPTY)
        try:
            await self.parts.workflows.delete_scope.delete_if_empty(self.parts.new_id(), request.scope)
        except ScopeNotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        except ScopeNotEmpty:
            return status(status=status.SCOPE_NOT_EMPTY)
        return status(status=status.SUCCESS)

    async def deleteScopeRecursive(self, request: pb.ScopeInfo, context: Any) -> pb.DeleteScopeStatus:
        _require_scope(request.scope)
        if request.scope == SYSTEM_SCOPE:
            return pb.DeleteScopeStatus(status=pb.DeleteScopeStatus.FAILURE)
        await self.parts.workflows.delete_scope.delete(request.scope)
        return pb.DeleteScopeStatus(status=pb.DeleteScopeStatus.SUCCESS)

    async def checkScopeExists(self, request: pb.ScopeInfo, context: Any) -> pb.ExistsResponse:
        _require_scope(request.scope)
        return pb.ExistsResponse(exists=await self.parts.store.scope(request.scope) is not None)

    async def listScopes(self, request: pb.ScopesRequest, context: Any) -> pb.ScopesResponse:
        start = page_start(request.continuationToken)
        if start is None:
            return pb.ScopesResponse(continuationToken=request.continuationToken)
        names, continuation = await visible_page(self.parts.store.list_scopes, start, scope_resource)
        return pb.ScopesResponse(scopes=names, continuationToken=page_token(continuation))

    async def listStreamsInScope(self, request: pb.StreamsInScopeRequest, context: Any) -> pb.StreamsInScopeResponse:
        return await self._list_streams(request.scope.scope, request.continuationToken, None)

    async def listStreamsInScopeForTag(
        self, request: pb.StreamsInScopeWithTagRequest, context: Any
    ) -> pb.StreamsInScopeResponse:
        return await self._list_streams(request.scope.scope, request.continuationToken, request.tag)

    async def _list_streams(
        self, scope: str, token: pb.ContinuationToken, tag: str | None
    ) -> pb.StreamsInScopeResponse:
        """A page of streams, internal ones included. An empty scope name is not found rather than an error, since
        clients repeat an error ten times."""
        start = page_start(token)
        if start is None:
            return pb.StreamsInScopeResponse(continuationToken=token)
        store = self.parts.store
        names: list[str] = []
        try:
            if tag is not None and len(tag) > tag_chars_max:
                # No stream has it. Whether the scope exists is answered all the same.
                await store.list_table(scope, STREAMS_LIST)
                start = b""
            else:
                read = partial(self._stream_names, scope, tag)
                names, start = await visible_page(read, start, partial(stream_resource, scope))
        except (ScopeNotFound, SegmentNotFound):
            return pb.StreamsInScopeResponse(status=pb.StreamsInScopeResponse.SCOPE_NOT_FOUND)
        return pb.StreamsInScopeResponse(
            streams=[pb.StreamInfo(scope=scope, stream=name) for name in names], continuationToken=page_token(start)
        )

    async def _stream_names(self, scope: str, tag: str | None, start: bytes) -> tuple[list[str], bytes]:
        if tag is not None:
            return await self.parts.store.list_streams_with_tag(scope, tag, start)
        streams, following = await self.parts.store.list_streams(scope, start)
        return [name for name, _ in streams], following


def _require_scope(scope: str) -> None:
    if not scope:
        raise InvalidArgument("the scope's name is empty")
