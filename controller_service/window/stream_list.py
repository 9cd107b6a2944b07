"""Lists the streams of all scopes page by page, and searches their names.

A page asks for the records of the streams on it alone. An answer looks at a bounded number of names, and into a bounded
number of scopes, and has a token to go on from there. The token names the scope and has the stores' own continuations,
so that streams and scopes that come or go between two pages move no others: the order of a store's list is stable.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, Generic, TypeVar

from controller_service.store.records import StreamEntry
from controller_service.window.answers import StreamListPage, StreamRow
from controller_service.window.parts import WindowParts
from controller_service.window.policies import retention_in_words, scaling_in_words
from pravega_common.errors import InvalidArgument, NotFound, ScopeNotFound
from pravega_common.names import is_possible_name
from pravega_common.runtime.joined import all_ended

rows_max: Final = 50
names_looked_at_max: Final = 5_000
scopes_looked_at_max: Final = 500
"""Scopes that one answer looks into, with two requests to the stores each: about a second."""
chunk_names: Final = 250
"""Names that are read from a scope's list at once."""
scopes_chunk: Final = 100
place_attempts_max: Final = 3
"""Reads for the place behind a name within a page: one, and more where names come or go at the same time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Position:
    """The place where a listing goes on: behind some names of a scope, or with the next scope when none is named."""

    scopes: str | None = ""
    """The continuation of the list of scopes, in hex; empty for its start, None when no other scope follows."""
    scope: str = ""
    names: str = ""
    """The continuation within the scope, in hex; empty for its start."""

    def token(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def from_token(cls, token: str) -> Position:
        """``InvalidArgument`` for any other text than that of ``token``."""
        try:
            found = cls(**json.loads(base64.urlsafe_b64decode(token)))
            if type(found.scope) is not str or (found.scope and not is_possible_name(found.scope)):
                raise ValueError("no scope")
            (
                found.scope.encode(),
                bytes.fromhex("" if found.scopes is None else found.scopes),
                bytes.fromhex(found.names),
            )
        except (ValueError, TypeError, RecursionError, binascii.Error):
            raise InvalidArgument(f"{token[:40]!r} is not a token of this list") from None
        return found


@dataclass(frozen=True, slots=True)
class _NamedStream:
    scope: str
    name: str
    entry: StreamEntry


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
    walk = _Walk(parts, wanted.scope, Position.from_token(token) if token else Position())
    found: list[_NamedStream] = []
    names, scopes, following = 0, 0, None
    async for looked in walk.looks():
        if looked is None:
            scopes += 1
        else:
            names += 1
            if wanted.takes(looked.scope, looked.name):
                found.append(looked)
        if len(found) == rows_max or names == names_looked_at_max or scopes == scopes_looked_at_max:
            following = await walk.position()
            break
    rows = await all_ended(_row(parts, named) for named in found)
    return StreamListPage(streams=rows, names_looked_at=names, next=following.token() if following else None)


class _Pages(Generic[T]):
    """Gives the items of a list of the store one by one, and the store's continuation behind the last one given.

    ``read`` reads a page from a continuation on. ``start`` is None for a list that is at its end.
    """

    def __init__(
        self,
        read: Callable[[bytes, int], Awaitable[tuple[Sequence[tuple[str, T]], bytes]]],
        start: str | None,
        chunk: int,
    ) -> None:
        self._read = read
        self._chunk = chunk
        self._start = b""
        self._page: Sequence[tuple[str, T]] = ()
        self._given = 0
        self._following = None if start is None else bytes.fromhex(start)

    async def next(self) -> tuple[str, T] | None:
        while self._given == len(self._page):
            if self._following is None:
                return None
            start = self._following
            page, following = await self._read(start, self._chunk)
            self._start, self._page, self._given, self._following = start, page, 0, following or None
        self._given += 1
        return self._page[self._given - 1]

    async def behind(self) -> bytes | None:
        """The continuation behind what was given; None at the end. Within a page that page is read again up to there:
        only the store knows where a name lies in its order."""
        if self._given == len(self._page):
            return self._following
        given = {name for name, _ in self._page[: self._given]}
        count = self._given
        for _ in range(place_attempts_max):
            page, following = await self._read(self._start, count)
            if not page or page[-1][0] in given:
                return following or None
            # Some are gone, and one comes with this page that was not given: it must not be skipped.
            count = max((index for index, (name, _) in enumerate(page, 1) if name in given), default=0)
            if not count:
                break
        # Nothing of the page is left, or it changes all the time: to repeat names is better than to skip some.
        return self._start


class _Walk:
    """Goes through the names of all scopes from a position on, or of one scope ``only``."""

    def __init__(self, parts: WindowParts, only: str, start: Position) -> None:
        self._store = parts.store
        self._only = only
        self._scopes = _Pages(self._read_scopes, None if only else start.scopes, scopes_chunk)
        self._scope = only or start.scope
        """The scope whose names are read; empty between two scopes."""
        self._streams = self._streams_of(self._scope, start.names)

    async def looks(self) -> AsyncIterator[_NamedStream | None]:
        """The names in their order, and None behind those of each scope."""
        while True:
            if not self._scope:
                found = await self._scopes.next()
                if found is None:
                    return
                self._scope = found[0]
                self._streams = self._streams_of(self._scope, "")
            while (named := await self._next_stream()) is not None:
                yield named
            self._scope = ""
            yield None

    async def position(self) -> Position | None:
        """The place behind what was looked at last; None at the end of all."""
        names = None
        if self._scope:
            with suppress(ScopeNotFound):  # deleted after its names were read: the next scope follows
                names = await self._streams.behind()
        scopes = await self._scopes.behind()
        if names is not None:
            return Position(None if scopes is None else scopes.hex(), self._scope, names.hex())
        return None if scopes is None else Position(scopes.hex())

    async def _next_stream(self) -> _NamedStream | None:
        try:
            found = await self._streams.next()
        except ScopeNotFound:
            # One that was deleted since its name was read has no streams.
            if self._only:
                raise
            return None
        return None if found is None else _NamedStream(self._scope, *found)

    def _streams_of(self, scope: str, start: str) -> _Pages[StreamEntry]:
        async def read(token: bytes, count: int) -> tuple[list[tuple[str, StreamEntry]], bytes]:
            return await self._store.list_streams(scope, token, count)

        return _Pages(read, start, chunk_names)

    async def _read_scopes(self, token: bytes, count: int) -> tuple[list[tuple[str, None]], bytes]:
        names, following = await self._store.list_scopes(token, count)
        return [(name, None) for name in names], following


async def _row(parts: WindowParts, named: _NamedStream) -> StreamRow:
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
