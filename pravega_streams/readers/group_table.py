"""Shares the state of a reader group through its table: reads what changed, writes by compare-and-set.

Every update is conditional on the count of each map that it changes, and on that of ``assigned_segments``, which every
client changes with every update of a group: so updates of a group follow one another, whichever client makes them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pravega_common.errors import (
    BadKeyVersion,
    DataCorruption,
    InvalidArgument,
    KeyNotFound,
    NotFound,
    PravegaError,
    SegmentNotFound,
    Throttled,
    UnknownOutcome,
)
from pravega_common.names import table_segment_name, validate_user_name
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_streams.connection.repeated_calls import doubt_about_call
from pravega_streams.readers.group_records import (
    ASSIGNED,
    COUNT_VALUE,
    DEFAULT_KEY,
    DISTANCE,
    FUTURE,
    REMOVALS,
    UNASSIGNED,
    EntryChange,
    changes_between,
    key_of,
    read_value,
    split_key,
    state_of,
    value_of,
)
from pravega_streams.readers.group_state import GroupState
from pravega_streams.readers.transitions import Transition
from pravega_streams.table.table_client import NOT_EXISTS, TableClient, TableDelta, TableItem

conflicts_max: Final = 64
"""Updates in a row that lose against another client before the call fails with ``Throttled``."""
conflict_delay_max_s: Final = 0.1
page_entries: Final = 1_000
"""Changed entries that are asked for at once."""
tombstones_max: Final = 256
"""Tombstones of segments that were read, and of readers that left, above which the older half is removed."""


class GroupTable:
    """The state of one reader group as this client last saw it. Tasks that use it at a time take turns.

    Errors of every method: ``NotFound`` if there is no such group, ``DataCorruption`` for entries that no client
    writes, and those of ``TableClient``.
    """

    def __init__(self, tables: TableClient, scope: str, group: str, *, clock: Clock | None = None) -> None:
        self.segment = table_segment_name(scope, validate_user_name(group, "reader group"), 0)
        self._tables = tables
        self._name = f"{scope}/{group}"
        self._clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        """Held for as long as a call may leave what is known of the group half taken over."""
        self._state: GroupState | None = None
        self._has_news = False
        """Whether entries were taken over that are not in the state: the look that met them has failed."""
        self._position = 0
        self._versions: dict[bytes, int] = {}
        self._maps: dict[str, dict[str, object]] = {}
        self._tombstones: dict[bytes, tuple[str, str]] = {}
        self._removal = 0
        """Version of the mark of the last removal of tombstones that is known."""

    @property
    def state(self) -> GroupState:
        """The state last seen."""
        if self._state is None:
            raise NotFound(f"there is no reader group {self._name}")
        return self._state

    async def create(self, initial: GroupState) -> GroupState:
        """Make the group, unless it exists already; returns its state."""
        async with self._turn:
            await self._tables.create(self.segment)
            await self._fetch()
            return await self._write(lambda state: initial if state is None else state)

    async def delete(self) -> bool:
        """Delete the group with all that it knows; whether it was there."""
        async with self._turn:
            self._clear()
            self._state = None
            return await self._tables.delete(self.segment)

    async def refresh(self) -> GroupState:
        """Take over what other clients changed."""
        async with self._turn:
            await self._fetch()
            return self.state

    async def update(self, transition: Transition) -> GroupState:
        """Apply a transition to the latest state and return the new one.

        The transition is asked again, with the state as it is then, after a lost race and after an answer that did not
        come, so it must give the state it got once it is done.
        """
        async with self._turn:
            if self._state is None or self._has_news:
                await self._fetch()
            return await self._write(lambda state: transition(self.state if state is None else state))

    async def _write(self, transition: Callable[[GroupState | None], GroupState]) -> GroupState:
        for _ in range(conflicts_max):
            try:
                new = transition(self._state)
            except PravegaError:
                # Refused by the state last seen; only the latest one counts, here and when nothing is to be done.
                if not await self._fetch():
                    raise
                continue
            changes = list(changes_between(self._state, new))
            if not changes:
                if not await self._fetch():
                    return self.state
                continue
            try:
                await self._put(changes)
            except (BadKeyVersion, KeyNotFound):
                await self._catch_up()
                continue
            except UnknownOutcome as error:
                await self._resolve(error)
                continue
            await self._remove_old_tombstones()
            return self.state
        raise Throttled(f"reader group {self._name}: {conflicts_max} updates in a row lost against other clients")

    async def _put(self, changes: list[EntryChange]) -> None:
        keys = {key_of(change.outer, change.inner): value_of(change) for change in changes}
        for outer in {ASSIGNED, *(change.outer for change in changes)}:
            keys[key_of(outer)] = COUNT_VALUE
        items = [TableItem(key, value, self._versions.get(key, NOT_EXISTS)) for key, value in keys.items()]
        versions = await self._tables.put(self.segment, items)
        for item, version in zip(items, versions, strict=True):
            self._apply(replace(item, version=version))
        self._state = state_of(self._maps)

    async def _catch_up(self) -> None:
        """After a lost race: what was lost against, or everything if nothing new explains it."""
        await self._clock.sleep(random.uniform(0, conflict_delay_max_s))
        if not await self._fetch():
            self._clear()
            await self._fetch()

    async def _resolve(self, unknown: UnknownOutcome) -> None:
        """Look what became of an update; where that fails, nobody knows."""
        try:
            await self._catch_up()
        except PravegaError as error:
            if (doubt := doubt_about_call(error, unknown, is_closed=True)) is not None:
                raise doubt from error
            raise

    async def _fetch(self) -> bool:
        """Whether anything changed since the last time."""
        try:
            await self._take_over()
            changed = self._has_news
            if changed or self._state is None:
                self._state = await self._state_of_all()
        except SegmentNotFound as error:
            self._clear()
            self._state = None
            raise NotFound(f"there is no reader group {self._name}") from error
        self._has_news = False
        return changed

    async def _take_over(self) -> None:
        """Read the entries that changed, or all of them where another client has removed tombstones meanwhile: what
        they were of would be taken for what it was before."""
        while True:
            known = self._removal
            is_whole = await self._read_on()
            if is_whole or self._removal == known:
                return
            self._clear()

    async def _read_on(self) -> bool:
        """Read from where the last look came to; whether all that is known now is of one moment."""
        while True:
            page = await self._page()
            if any(item.version < self._versions.get(item.key, 0) for item in page.items):
                # Versions only grow: the group was deleted and made again.
                self._clear()
                continue
            if page.should_clear:
                self._clear()
            # Entries that this client wrote before its first look are of no page.
            is_all = not self._versions
            for item in page.items:
                self._has_news = self._apply(item) or self._has_news
            if page.items or page.should_clear:
                self._position = max(self._position, page.last_position)
            if page.reached_end or not page.items:
                return is_all

    async def _state_of_all(self) -> GroupState | None:
        try:
            return state_of(self._maps)
        except DataCorruption:
            # The group may have been made again and be larger than the old one was, of which there are entries here.
            self._clear()
            await self._take_over()
            return state_of(self._maps)

    async def _page(self) -> TableDelta:
        try:
            return await self._tables.delta(self.segment, self._position, page_entries)
        except InvalidArgument:
            if not self._position:
                raise
            # The table is shorter than it was: the group was deleted and made again.
            self._clear()
            return await self._tables.delta(self.segment, 0, page_entries)

    def _clear(self) -> None:
        """Forget the entries, to read all of them again. The state stays the one last seen, whatever becomes of that:
        a group is gone only if its table is."""
        self._has_news = True
        self._position = 0
        self._versions, self._maps, self._tombstones = {}, {}, {}

    def _apply(self, item: TableItem) -> bool:
        """Take an entry over; whether it is new."""
        if self._versions.get(item.key) == item.version:
            return False
        outer, inner = split_key(item.key)
        value = None if inner is None else read_value(outer, item.value)
        # One that cannot be read is not known: it is refused at each look.
        self._versions[item.key] = item.version
        if inner is None:
            return True
        if outer == REMOVALS:
            self._removal = item.version
        self._tombstones.pop(item.key, None)
        self._maps.setdefault(outer, {}).pop(inner, None)
        if value is None:
            self._tombstones[item.key] = (outer, inner)
        else:
            self._maps[outer][inner] = value
        return True

    # ---- tombstones

    async def _remove_old_tombstones(self) -> None:
        """Forget the older half of the tombstones once they are many.

        Only those that nobody writes again: the Rust client takes a key that it knows and that is gone for a failure
        to be waited out. A segment that was read to its end comes back in no transition; the name of a reader may, but
        not while it is among the latest.
        """
        if len(self._tombstones) <= tombstones_max:
            return
        ended = [key for key, (outer, inner) in self._tombstones.items() if self._has_ended(outer, inner)]
        old = sorted(ended, key=lambda key: self._versions[key])[: max(0, len(ended) - tombstones_max // 2)]
        if not old:
            return
        if not await self._mark_removal():
            return
        try:
            await self._tables.remove(self.segment, [(key, self._versions[key]) for key in old])
        except (BadKeyVersion, KeyNotFound, UnknownOutcome):
            # Another client was first; it shows when the table is read from its beginning next.
            pass
        except PravegaError:
            return  # The update before it was done; another one comes back to them.
        for key in old:
            del self._tombstones[key], self._versions[key]

    async def _mark_removal(self) -> bool:
        """Write a mark before tombstones are removed, for clients that have not read them; whether that was done.

        A look shows what a table has from a place on, so it leaves out what was removed.
        """
        keys = key_of(REMOVALS), key_of(REMOVALS, DEFAULT_KEY)
        items = [TableItem(key, COUNT_VALUE, self._versions.get(key, NOT_EXISTS)) for key in keys]
        try:
            versions = await self._tables.put(self.segment, items)
        except PravegaError:
            return False  # The update before it was done; another one comes back to them.
        for item, version in zip(items, versions, strict=True):
            self._apply(replace(item, version=version))
        return True

    def _has_ended(self, outer: str, inner: str) -> bool:
        state = self.state
        if outer in (UNASSIGNED, FUTURE):
            held = any(inner in positions for positions in state.assigned.values())
            return not held and inner not in state.unassigned and inner not in state.future
        if outer in (ASSIGNED, DISTANCE):
            return inner not in state.assigned
        return True
