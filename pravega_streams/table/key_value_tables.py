"""Creates, lists and deletes key-value tables (docs/controller-api.md 6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import InvalidArgument, NotFound, ScopeNotFound
from pravega_common.names import USER_NAME_RULE, table_segment_name
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.controller.call_numbers import checked_number, checked_text, named_scope
from pravega_streams.controller.transport import ControllerTransport
from pravega_streams.errors import ControllerRefused

setting_max: Final = 2**31 - 1
"""The largest number that a call to the controller carries in a table's settings; the controller allows less."""


@dataclass(frozen=True, slots=True)
class KeyValueTableSettings:
    """The shape of a table, which never changes. Lengths of keys are in bytes."""

    partitions: int
    primary_key_length: int
    secondary_key_length: int = 0

    def __post_init__(self) -> None:
        for name, least in (("partitions", 1), ("primary_key_length", 1), ("secondary_key_length", 0)):
            checked_number(f"a table's {name}", getattr(self, name), setting_max, least)

    @property
    def key_length(self) -> int:
        return self.primary_key_length + self.secondary_key_length


class KeyValueTableClient:
    """Blocking calls about key-value tables. Errors: ``ScopeNotFound``, those of ``ControllerTransport``."""

    def __init__(self, transport: ControllerTransport) -> None:
        self._transport = transport

    def create(self, scope: str, table: str, settings: KeyValueTableSettings) -> bool:
        """Whether it is new."""
        request = pb.KeyValueTableConfig(
            scope=checked_text("a scope", scope),
            kvtName=checked_text("a table", table),
            partitionCount=settings.partitions,
            primaryKeyLength=settings.primary_key_length,
            secondaryKeyLength=settings.secondary_key_length,
        )
        status = pb.CreateKeyValueTableStatus.Status.Name(
            self._transport.controller("createKeyValueTable", request).status
        )
        match status:
            case "SUCCESS" | "TABLE_EXISTS":
                return status == "SUCCESS"
            case "SCOPE_NOT_FOUND":
                raise ScopeNotFound(f"createKeyValueTable {scope}/{table}: there is no scope {scope}")
            case "INVALID_TABLE_NAME":
                raise InvalidArgument(f"createKeyValueTable: {table!r} is no name of a table; {USER_NAME_RULE}")
        raise ControllerRefused(f"createKeyValueTable {scope}/{table}: {status}")

    def delete(self, scope: str, table: str) -> bool:
        """Whether it was there."""
        request = _named_table(scope, table)
        status = self._transport.controller("deleteKeyValueTable", request).status
        if status == pb.DeleteKVTableStatus.FAILURE:
            raise ControllerRefused(f"deleteKeyValueTable {scope}/{table}: FAILURE")
        return bool(status == pb.DeleteKVTableStatus.SUCCESS)

    def settings(self, scope: str, table: str) -> KeyValueTableSettings:
        """The shape of a table; ``NotFound``."""
        request = _named_table(scope, table)
        reply = self._transport.controller("getKeyValueTableConfiguration", request)
        if reply.status == pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND:
            raise NotFound(f"there is no key-value table {scope}/{table}")
        if reply.status != pb.KeyValueTableConfigResponse.SUCCESS:
            raise ControllerRefused(f"getKeyValueTableConfiguration {scope}/{table}: FAILURE")
        config = reply.config
        return KeyValueTableSettings(config.partitionCount, config.primaryKeyLength, config.secondaryKeyLength)

    def segments(self, scope: str, table: str) -> tuple[str, ...]:
        """Names of the segments of its partitions, by position of the key; ``NotFound``. They are others for a table
        that was deleted and made again."""
        request = _named_table(scope, table)
        ranges = self._transport.controller("getCurrentSegmentsKeyValueTable", request).segmentRanges
        return tuple(
            table_segment_name(scope, table, item.segmentId.segmentId)
            for item in sorted(ranges, key=lambda item: item.minKey)
        )

    def list(self, scope: str) -> Iterator[str]:
        """Names within the scope."""
        token = ""
        while True:
            request = pb.KVTablesInScopeRequest(
                scope=named_scope(scope), continuationToken=pb.ContinuationToken(token=token)
            )
            reply = self._transport.controller("listKeyValueTablesInScope", request)
            if reply.status == pb.KVTablesInScopeResponse.SCOPE_NOT_FOUND:
                raise ScopeNotFound(f"listKeyValueTablesInScope: there is no scope {scope}")
            if not reply.kvtables:
                return
            yield from (item.kvtName for item in reply.kvtables)
            token = reply.continuationToken.token


def _named_table(scope: str, table: str) -> pb.KeyValueTableInfo:
    return pb.KeyValueTableInfo(scope=checked_text("a scope", scope), kvtName=checked_text("a table", table))
