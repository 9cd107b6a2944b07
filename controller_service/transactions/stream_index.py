"""Keeps an index of the streams on which each controller has begun or decided transactions a short while ago.

``transactionOwners`` has one key for each controller that works on transactions, and ``transactionStreams-<owner>`` the
streams of one. A controller looks after its own streams, whose names it has in memory; those of a controller that lost
its lease are taken over by the others. So a sweep costs one call, and some for each stream in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from controller_service.store.versioned_store import ANY_VERSION, VersionedStore
from pravega_common.errors import SegmentNotFound
from pravega_common.names import scoped_name, split_scoped_name
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended

OWNERS_TABLE: Final = "transactionOwners"
FORMER_TABLE: Final = "transactionStreams"
"""Every stream that ever had a transaction, as versions before the index by owner kept them."""
kept_s: Final = 600.0
"""A stream without transactions stays in the index for so long after its last use: longer than any call takes between
the entry and the record that it is for."""
page_size: Final = 500

StreamName = tuple[str, str]
"""Scope and stream."""


class StreamIndex:
    def __init__(
        self, store: VersionedStore, owner: str, clock: Clock, live_owners: Callable[[], Awaitable[set[str]]]
    ) -> None:
        self._store = store
        self._owner = owner
        self._clock = clock
        self._live_owners = live_owners
        self._used_s: dict[StreamName, float] = {}
        """When each stream of this controller was used last, on its monotonic clock."""
        self._unsure: set[StreamName] = set()
        """Those of them whose entry is there or not: putting or removing it failed, or the caller was cut off."""
        self._dropping: dict[StreamName, asyncio.Event] = {}
        """Streams whose entry is being removed; set when that has ended."""
        self._is_listed = False

    async def create_tables(self) -> None:
        await all_ended(map(self._store.create_table, (OWNERS_TABLE, FORMER_TABLE)))

    async def use(self, scope: str, stream: str) -> None:
        """Have the stream looked after, from before its next record on; without a call if it was used lately."""
        name = (scope, stream)
        while (dropping := self._dropping.get(name)) is not None:
            await dropping.wait()  # else the removal might come after the entry that is put here
        if name in self._unsure:
            self._used_s[name] = self._clock.monotonic_s()  # else a sweep might remove the entry that is put here
        if name not in self._used_s or name in self._unsure:
            try:
                await self._put_or_stand_again(name)
            except BaseException:
                # It may be listed all the same, and only streams that are known here are ever dropped.
                self._used_s[name] = self._clock.monotonic_s()
                self._unsure.add(name)
                raise
            self._unsure.discard(name)
        self._used_s[name] = self._clock.monotonic_s()

    async def _put_or_stand_again(self, name: StreamName) -> None:
        try:
            await self._put(name)
        except SegmentNotFound:
            # Others held this controller for dead, and took its streams over.
            self._is_listed = False
            for listed in dict.fromkeys((*self.own(), name)):
                await self._put(listed)

    async def _put(self, name: StreamName) -> None:
        if not self._is_listed:
            await self._store.create_table(_table_of(self._owner))
            await self._store.put(OWNERS_TABLE, self._owner, b"", ANY_VERSION)
            self._is_listed = True
        await self._store.put(_table_of(self._owner), scoped_name(*name), b"", ANY_VERSION)

    def own(self) -> list[StreamName]:
        return list(self._used_s)

    async def drop_if_unused(self, scope: str, stream: str) -> None:
        """For a stream that was found without transactions: forget it, unless it was used lately."""
        name = (scope, stream)
        used_s = self._used_s.get(name)
        if used_s is not None and self._clock.monotonic_s() - used_s > kept_s:
            await self.drop(scope, stream)

    async def drop(self, scope: str, stream: str) -> None:
        """For a stream that is gone, too."""
        name = (scope, stream)
        if name in self._dropping:
            return
        ended = self._dropping[name] = asyncio.Event()
        used_s = self._used_s.pop(name, self._clock.monotonic_s())
        self._unsure.discard(name)
        try:
            await self._store.remove(_table_of(self._owner), scoped_name(scope, stream))
        except SegmentNotFound:
            self._is_listed = False
        except BaseException:
            # The entry may be left: a later sweep comes to drop it.
            self._used_s[name] = used_s
            self._unsure.add(name)
            raise
        finally:
            del self._dropping[name]
            ended.set()

    # ---- the streams of others ---------------------------------------------------------------------------------------

    async def stand_again(self) -> None:
        """Write the own index again if others took it over: they held this controller for dead."""
        if self._is_listed and await self._store.get(OWNERS_TABLE, self._owner) is None:
            self._is_listed = False
            for name in self.own():
                await self._put(name)

    async def left(self) -> list[str]:
        """The owners that have no lease any more."""
        # In this order: an owner takes its lease before it is listed.
        owners = await self._keys(OWNERS_TABLE)
        live = {self._owner, *await self._live_owners()}
        return [owner for owner in owners if owner not in live]

    async def streams_of(self, owner: str) -> list[StreamName]:
        try:
            return _names(await self._keys(_table_of(owner)))
        except SegmentNotFound:
            return []

    async def forget_owner(self, owner: str) -> None:
        """After all its streams are looked after by somebody else."""
        await self._store.delete_table(_table_of(owner))
        await self._store.remove(OWNERS_TABLE, owner)

    async def former_streams(self) -> list[StreamName]:
        return _names(await self._keys(FORMER_TABLE))

    async def forget_former(self, names: Collection[StreamName]) -> None:
        await self._store.remove_many(FORMER_TABLE, [scoped_name(*name) for name in names])

    async def all_streams(self) -> list[StreamName]:
        """The streams of all owners, for an operator."""
        owners = [await self.streams_of(owner) for owner in await self._keys(OWNERS_TABLE)]
        return sorted({*await self.former_streams(), *(name for names in owners for name in names)})

    async def _keys(self, table: str) -> list[str]:
        keys: list[str] = []
        token = b""
        while True:
            page = await self._store.scan(table, token, page_size)
            keys += [key for key, _ in page.entries]
            token = page.continuation
            if not token:
                return keys


def _names(keys: Collection[str]) -> list[StreamName]:
    return [split_scoped_name(key) for key in keys]


def _table_of(owner: str) -> str:
    return f"transactionStreams-{owner}"
