"""Lists the streams of all scopes page by page, and searches their names.

A page asks for the records of the streams on it alone. An answer looks at a bounded number of names, and into a bounded
number of scopes, and has a token to go on from there.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from controller_service.store.records import StreamEntry
from controller_service.window.answers import StreamListPage, StreamRow
from controller_service.window.parts import WindowParts
from controller_service.window.policies import retention_in_words, scaling_in_words
from pravega_common.errors import InvalidArgument, NotFound, ScopeNotFound
from pravega_common.runtime.joined import all_ended

rows_max: Final = 50
names_looked_at_max: Final = 5_000
scopes_looked_at_max: Final = 500
"""Scopes that one answer looks into, with two requests to the stores each: about a second."""
chunk_names: Final = 250
"""Names that are read from a scope's list at once."""
scopes_chunk: Final = 100


@dataclass(frozen=True, slots=True)
class Position:
    """The place where a listing goes on: a scope on a page of scopes, and the names of a page that were seen."""

    scopes: str = ""
    scope: int = 0
    names: str = ""
    skip: int = 0

    def token(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def from_token(cls, token: str) -> Position:
        """``InvalidArgument`` for any other text than that of ``token``."""
        try:
            found = cls(**json.loads(base64.urlsafe_b64decode(token)))
            if not all(type(count) is int and count >= 0 for count in (found.scope, found.skip)):
                raise ValueError("no count")
            bytes.fromhex(found.scopes), bytes.fromhex(found.names)
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise InvalidArgument(f"{token[:40]!r} is not a token of this list") from None
        return found


@dataclass(frozen=True, slots=True)
class _Named:
    scope: str
    name: str
    entry: StreamEntry
    after: Position
    """Where to go on behind it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """``text``: part of ``scope/stream``, in any case. ``scope``: this one alone; empty for all."""

    text: str = ""
    scope: str = ""
    internal: bool = False

    def takes(self, scope: str, stream: str) -> bool:
        if stream.startswith("_") and not self.internal:
            return False
        return self.text.lower() in f"{scope}/{stream}".lower()


async def list_streams(parts: WindowParts, wanted: Wanted, token: str = "") -> StreamListPage:
    """``InvalidArgument`` for a malformed token, ``ScopeNotFound``."""
    start = Position.from_token(token) if token else Position()
    found: list[_Named] = []
    names, scopes, following = 0, 0, None
    async for looked in _names(parts, wanted.scope, start):
        if isinstance(looked, Position):
            scopes, after = scopes + 1, looked
        else:
            names, after = names + 1, looked.after
            if wanted.takes(looked.scope, looked.name):
                found.append(looked)
        if len(found) == rows_max or names == names_looked_at_max or scopes == scopes_looked_at_max:
            following = after.token()
            break
    rows = await all_ended(_row(parts, named) for named in found)
    return StreamListPage(streams=rows, names_looked_at=names, next=following)


async def _names(parts: WindowParts, only: str, start: Position) -> AsyncIterator[_Named | Position]:
    """The names in their order, and behind those of each scope the position of the next one."""
    position = start
    while True:
        scopes, following = ([only], b"")
        if not only:
            scopes, following = await parts.store.list_scopes(bytes.fromhex(position.scopes), scopes_chunk)
        while position.scope < len(scopes):
            async for named in _names_of(parts, scopes[position.scope], position, required=bool(only)):
                yield named
            position = Position(position.scopes, position.scope + 1)
            yield position
        if not following:
            return
        position = Position(following.hex())


async def _names_of(parts: WindowParts, scope: str, start: Position, required: bool) -> AsyncIterator[_Named]:
    position = start
    while True:
        try:
            page, following = await parts.store.list_streams(scope, bytes.fromhex(position.names), chunk_names)
        except ScopeNotFound:
            # One that was deleted since its name was read has no streams.
            if required:
                raise
            return
        for index, (name, entry) in enumerate(page):
            if index >= position.skip:
                yield _Named(scope, name, entry, replace(position, skip=index + 1))
        if not following:
            return
        position = replace(position, names=following.hex(), skip=0)


async def _row(parts: WindowParts, named: _Named) -> StreamRow:
    common: dict[str, Any] = {
        "scope": named.scope,
        "stream": named.name,
        "created_ms": named.entry.created_ms,
        "tags": list(named.entry.tags),
        "is_internal": named.name.startswith("_"),
    }
    try:
        context = await parts.store.open(named.scope, named.name)
        epoch, configuration = await context.current_epoch(), (await context.configuration()).configuration
        return StreamRow(
            **common,
            state=(await context.state()).value,
            epoch=epoch.epoch,
            segment_count=len(epoch.segments),
            scaling=scaling_in_words(configuration.scaling),
            retention=retention_in_words(configuration.retention),
        )
    except NotFound:
        return StreamRow(**common, unknown="it is being created or deleted")
