"""Defines permissions and the names of the resources that they are about, as access entries and tokens have them."""

from __future__ import annotations

import enum
from typing import Final

from pravega_common.names import MARK_PREFIX, READER_GROUP_PREFIX, TABLE_SUFFIX

ROOT: Final = "prn::/"
"""The resource of what belongs to no scope: listing and making scopes."""
INTERNAL_ROLE: Final = "internal"
"""The role that services of a cluster claim in their tokens; it may do everything."""


class Permission(enum.IntEnum):
    """A right on a resource; each one holds those below it."""

    NONE = 0
    READ = 1
    READ_UPDATE = 2


def scope_resource(scope: str) -> str:
    return f"{ROOT}scope:{scope}"


def stream_resource(scope: str, stream: str) -> str:
    """The resource that a stream, or what has the name of a stream, belongs to.

    The state of a reader group belongs to the group, the segments of a table to the table, and watermarks to the stream
    that they are about.
    """
    if stream.startswith(READER_GROUP_PREFIX):
        return reader_group_resource(scope, stream.removeprefix(READER_GROUP_PREFIX))
    if stream.endswith(TABLE_SUFFIX):
        return key_value_table_resource(scope, stream.removesuffix(TABLE_SUFFIX))
    return f"{scope_resource(scope)}/stream:{stream.removeprefix(MARK_PREFIX)}"


def reader_group_resource(scope: str, group: str) -> str:
    return f"{scope_resource(scope)}/reader-group:{group}"


def key_value_table_resource(scope: str, table: str) -> str:
    return f"{scope_resource(scope)}/key-value-table:{table}"
