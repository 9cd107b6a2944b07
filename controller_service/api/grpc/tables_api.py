"""Serves the calls about key-value tables (docs/controller-api.md 6)."""

from __future__ import annotations

from functools import partial
from typing import Any

from controller_service.api.grpc.messages import page_start, page_token, segment_range
from controller_service.api.grpc.parts import ApiParts
from controller_service.api.visible_page import visible_page
from controller_service.errors import IllegalState
from controller_service.store.epochs import equal_segments
from controller_service.store.members import KeyValueTableRecord, ScopeMemberState
from controller_service.workflows.key_value_tables import partitions_max
from pravega_common.errors import InvalidArgument, NotFound, ScopeNotFound
from pravega_common.model.table_limits import check_fixed_key_length
from pravega_common.names import validate_user_name
from pravega_common.proto import controller_pb2 as pb
from pravega_common.resources import key_value_table_resource


class TablesApi:
    parts: ApiParts

    async def createKeyValueTable(self, request: pb.KeyValueTableConfig, context: Any) -> pb.CreateKeyValueTableStatus:
        status = pb.CreateKeyValueTableStatus
        try:
            validate_user_name(request.kvtName, "key-value table")
        except InvalidArgument:
            return status(status=status.INVALID_TABLE_NAME)
        _check(request)
        record = KeyValueTableRecord(
            self.parts.new_id(),
            self.parts.store.clock.wall_ms(),
            ScopeMemberState.CREATING,
            request.partitionCount,
            request.primaryKeyLength,
            request.secondaryKeyLength,
            request.rolloverSizeBytes,
        )
        try:
            created = await self.parts.tables.create(request.scope, request.kvtName, record)
        except ScopeNotFound:
            return status(status=status.SCOPE_NOT_FOUND)
        return status(status=status.SUCCESS if created else status.TABLE_EXISTS)

    async def deleteKeyValueTable(self, request: pb.KeyValueTableInfo, context: Any) -> pb.DeleteKVTableStatus:
        status = pb.DeleteKVTableStatus
        deleted = await self.parts.tables.delete(request.scope, request.kvtName)
        return status(status=status.SUCCESS if deleted else status.TABLE_NOT_FOUND)

    async def getKeyValueTableConfiguration(
        self, request: pb.KeyValueTableInfo, context: Any
    ) -> pb.KeyValueTableConfigResponse:
        response = pb.KeyValueTableConfigResponse
        record = await self.parts.tables.records.get(request.scope, request.kvtName)
        if record is None:
            return response(status=response.TABLE_NOT_FOUND)
        return response(
            config=pb.KeyValueTableConfig(
                scope=request.scope,
                kvtName=request.kvtName,
                partitionCount=record.partition_count,
                primaryKeyLength=record.primary_key_length,
                secondaryKeyLength=record.secondary_key_length,
                rolloverSizeBytes=record.rollover_size_bytes,
            )
        )

    async def getCurrentSegmentsKeyValueTable(self, request: pb.KeyValueTableInfo, context: Any) -> pb.SegmentRanges:
        """The stream in the answer is the table's own name, without the suffix of its segments.

        One that is being made is waited for, as clients repeat INTERNAL; one that is being deleted never comes back.
        """
        record = await self.parts.tables.records.get(request.scope, request.kvtName)
        if record is None:
            raise NotFound(f"key-value table {request.scope}/{request.kvtName} does not exist")
        if record.state is ScopeMemberState.DELETING:
            raise NotFound(f"key-value table {request.scope}/{request.kvtName} is being deleted")
        if record.state is not ScopeMemberState.ACTIVE:
            raise IllegalState(f"key-value table {request.scope}/{request.kvtName} is {record.state.value}")
        # Not of an epoch: a table may have more partitions than a stream has segments, as its epochs are not on record.
        segments = equal_segments(record.segment_numbers.start, record.partition_count, record.created_ms)
        return pb.SegmentRanges(
            segmentRanges=[segment_range(request.scope, request.kvtName, segment) for segment in segments]
        )

    async def listKeyValueTablesInScope(
        self, request: pb.KVTablesInScopeRequest, context: Any
    ) -> pb.KVTablesInScopeResponse:
        scope = request.scope.scope
        start = page_start(request.continuationToken)
        if start is None:
            return pb.KVTablesInScopeResponse(continuationToken=request.continuationToken)
        try:
            names, continuation = await visible_page(
                partial(self._table_names, scope), start, partial(key_value_table_resource, scope)
            )
        except ScopeNotFound:
            return pb.KVTablesInScopeResponse(status=pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND)
        return pb.KVTablesInScopeResponse(
            kvtables=[pb.KeyValueTableInfo(scope=scope, kvtName=name) for name in names],
            continuationToken=page_token(continuation),
        )

    async def _table_names(self, scope: str, start: bytes) -> tuple[list[str], bytes]:
        tables, following = await self.parts.tables.records.page(scope, start)
        return [name for name, _ in tables], following


def _check(request: pb.KeyValueTableConfig) -> None:
    if not 1 <= request.partitionCount <= partitions_max:
        raise InvalidArgument(f"a table of {request.partitionCount} partitions: must be in 1..{partitions_max}")
    if request.primaryKeyLength < 1 or request.secondaryKeyLength < 0:
        raise InvalidArgument(
            f"key lengths {request.primaryKeyLength} and {request.secondaryKeyLength}: "
            "the primary key's must be positive, the secondary key's not negative"
        )
    # Else a store ends the connection that asks for the segments, which many others use.
    check_fixed_key_length(request.kvtName, request.primaryKeyLength + request.secondaryKeyLength)
    if request.rolloverSizeBytes < 0:
        raise InvalidArgument(
            f"rollover size {request.rolloverSizeBytes} must not be negative (0: the store's default)"
        )
