"""Lists what a scope has, for ``scope delete``, ``table list`` and ``group list``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import ScopeNotEmpty, ScopeNotFound, UnsupportedOperation
from pravega_common.listed import listed
from pravega_common.names import READER_GROUP_PREFIX, is_internal_scope
from pravega_spark.commands.output import counted
from pravega_streams.client import StreamClient

named_max: Final = 3
"""Members of a kind that a refusal names."""


@dataclass(frozen=True, slots=True)
class ScopeContents:
    """The members of a scope that hold it: all that a user made there."""

    scope: str
    streams: list[str]
    groups: list[str]
    tables: list[str]

    def check_empty(self) -> None:
        """Raises ``ScopeNotEmpty``, with the command that removes each kind."""
        kinds = (
            ("stream", self.streams, "stream delete {} --seal"),
            ("reader group", self.groups, "group delete {}"),
            ("key-value table", self.tables, "table delete {}"),
        )
        left = [
            f"{counted(len(names), kind)} ({listed(names, named_max)}), "
            f"{'which' if len(names) == 1 else 'each of which'} goes by: pravega-spark "
            + command.format(f"{self.scope}/{names[0] if len(names) == 1 else 'NAME'}")
            for kind, names, command in kinds
            if names
        ]
        if left:
            raise ScopeNotEmpty(f"scope '{self.scope}' is not empty; it has {'; '.join(left)}")


def contents_of(client: StreamClient, scope: str) -> ScopeContents:
    """Lists what is left in a scope; ``ScopeNotFound``."""
    names = _stream_names(client, scope)
    streams = [name for name in names if not name.startswith("_")]
    return ScopeContents(scope, streams, _groups_of(names), _tables_or_none(client, scope))


def group_names(client: StreamClient, scope: str) -> list[str]:
    """The reader groups of a scope that have a registration, and so a stream; ``ScopeNotFound``."""
    return _groups_of(_stream_names(client, scope))


def table_names(client: StreamClient, scope: str) -> list[str]:
    """The key-value tables of a scope; ``ScopeNotFound``."""
    try:
        return sorted(client.key_value_tables.list(scope))
    except ScopeNotFound as error:
        raise absent_scope(scope) from error


def names_by_scope(
    client: StreamClient, scope: str, names_of: Callable[[StreamClient, str], list[str]]
) -> list[tuple[str, str]]:
    """The names that the one scope has which is named (``ScopeNotFound``), or without a name all scopes of users."""
    if scope:
        return [(scope, name) for name in names_of(client, scope)]
    found = []
    for item in sorted(item for item in client.controller.list_scopes() if not is_internal_scope(item)):
        with suppress(ScopeNotFound):  # deleted since it was listed
            found += [(item, name) for name in names_of(client, item)]
    return found


def absent_scope(scope: str) -> ScopeNotFound:
    return ScopeNotFound(f"scope '{scope}' does not exist; see pravega-spark scope list")


def _stream_names(client: StreamClient, scope: str) -> list[str]:
    try:
        return sorted(client.controller.list_streams(scope))
    except ScopeNotFound as error:
        raise absent_scope(scope) from error


def _groups_of(streams: list[str]) -> list[str]:
    return [name.removeprefix(READER_GROUP_PREFIX) for name in streams if name.startswith(READER_GROUP_PREFIX)]


def _tables_or_none(client: StreamClient, scope: str) -> list[str]:
    try:
        return table_names(client, scope)
    except UnsupportedOperation:  # a Pravega from before there were tables
        return []
