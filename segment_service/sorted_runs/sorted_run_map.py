"""Implements a sorted map as immutable sorted runs under manifests; see the README of this folder."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Final, TypeVar

from pravega_common.errors import DataCorruption, Fenced, InvalidArgument, SegmentNotFound, Unavailable
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended
from pravega_common.runtime.time_slices import TimeSlices
from segment_service.contracts.segment_storage import LogState
from segment_service.contracts.sorted_map import (
    map_changes_bytes_max,
    map_key_bytes_max,
    map_scan_entries_max,
    map_value_bytes_max,
)
from segment_service.sorted_runs.map_manifest import MapManifest, Run, RunFile
from segment_service.sorted_runs.map_objects import REMEDY, MapObjects
from segment_service.sorted_runs.merging import merge, merges_at_once_max, runs_max, runs_to_merge
from segment_service.sorted_runs.run_reader import is_surely_absent, look_up, walk
from segment_service.sorted_runs.run_writer import RunWriter

RUN_STORED: Final = register("sorted_runs.run_stored_before_manifest")
MANIFEST_STORED: Final = register("sorted_runs.manifest_stored")
MERGED_RUN_STORED: Final = register("sorted_runs.merged_run_stored_before_manifest")
MERGE_MANIFEST_STORED: Final = register("sorted_runs.merge_manifest_stored")

T = TypeVar("T")

read_attempts_max: Final = 4
"""How often a read begins again when runs are merged away under it."""

look_ups_at_once_max: Final = 16
"""Blocks that one call for many keys waits for at the same time."""

entries_per_turn: Final = 64
"""Changes that are handed on before the clock is looked at."""


class SortedRunMap:
    """``SortedMap`` over the objects of one map."""

    def __init__(
        self, objects: MapObjects, clock: Clock, on_flush: Callable[[SortedRunMap], None] = lambda _: None
    ) -> None:
        """``on_flush``: called when there may be runs to merge."""
        self._objects = objects
        self._clock = clock
        self._on_flush = on_flush
        self._manifest: MapManifest | None = None
        self._is_open = False
        self._writing = asyncio.Lock()
        """Held while a manifest is made of the one before."""
        self._merge_places = asyncio.Semaphore(merges_at_once_max)
        self._merging: dict[tuple[Run, ...], asyncio.Future[None]] = {}
        """The runs of each merge under way, and what is done when it ends."""
        self._removing = asyncio.Lock()
        self._to_discard: list[str] = []
        """What no manifest lists any more once another one is stored."""

    @property
    def map_name(self) -> str:
        return self._objects.map_name

    @property
    def is_open(self) -> bool:
        return self._is_open

    @property
    def stamp(self) -> LogState | None:
        return None if self._manifest is None else self._manifest.stamp

    @property
    def run_lengths(self) -> list[int]:
        """Bytes of each run, newest first."""
        return [run.length for run in self._runs]

    @property
    def tombstones_share(self) -> float:
        """Tombstones among all entries; 0 without any."""
        files = [file for run in self._runs for file in run.files]
        entries = sum(file.entries for file in files)
        return sum(file.tombstones for file in files) / entries if entries else 0.0

    @property
    def _runs(self) -> tuple[Run, ...]:
        return () if self._manifest is None else self._manifest.runs

    async def newest_stamp(self) -> LogState | None:
        manifest, _ = await self._objects.newest_manifest(check_epoch=False)
        return None if manifest is None else manifest.stamp

    async def open(self) -> None:
        manifest, replaced = await self._objects.newest_manifest()
        listed = {(file.epoch, file.counter) for run in (manifest.runs if manifest else ()) for file in run.files}
        orphans = [file for file in await self._objects.earlier_files() if tuple(file) not in listed]
        self._objects.discard(replaced)
        names = [self._objects.orphan_name(file) for file in orphans]
        if manifest is not None and manifest.is_removed:
            self._objects.discard([*names, self._objects.manifest_name(manifest.id)])
            manifest, names = None, []
        # A fenced owner may still store a manifest that names them: not before one of this epoch replaced it.
        self._to_discard = names
        self._manifest = manifest
        self._is_open = True

    async def flush(self, changes: Mapping[bytes, bytes | None], stamp: LogState) -> None:
        check(self._is_open, "flush of a map that is not open", map=self.map_name)
        _check_limits(changes)
        while len(self._runs) >= runs_max:
            if not await self.merge_once() and len(self._runs) >= runs_max:  # nobody else merged meanwhile
                await asyncio.wait(self._merging.values(), return_when=asyncio.FIRST_COMPLETED)
        run = await self._write_run(changes)
        failpoint(RUN_STORED)
        await self._commit(lambda runs: (run, *runs) if run is not None else runs, stamp, run)
        failpoint(MANIFEST_STORED)
        self._on_flush(self)

    async def _write_run(self, changes: Mapping[bytes, bytes | None]) -> Run | None:
        slices = TimeSlices(self._clock)
        writer = RunWriter(self._objects, slices)
        keys = sorted(changes)
        try:
            for first in range(0, len(keys), entries_per_turn):
                some = keys[first : first + entries_per_turn]
                await writer.add(some, [changes[key] for key in some])
            return await writer.finish()
        except BaseException:
            self._to_discard += map(self._objects.file_name, writer.files)
            raise

    async def _commit(
        self, change: Callable[[tuple[Run, ...]], tuple[Run, ...]], stamp: LogState | None, added: Run | None
    ) -> None:
        """Store the manifest of the changed runs; what no manifest lists any more then becomes garbage."""
        async with self._writing:
            before = self._manifest
            stamp = stamp or (None if before is None else before.stamp)
            if stamp is None:
                raise InvalidArgument(f"map {self.map_name} has no state yet")
            _check_stamp(None if before is None else before.stamp, stamp)
            runs, known = change(self._runs), stamp
            try:
                stored = await self._objects.put_manifest(lambda name: MapManifest(name, known, runs), self._to_discard)
            except BaseException:
                # A manifest without an answer may list them: they go once another one is stored.
                if added is not None:
                    self._to_discard += map(self._objects.file_name, added.files)
                raise
            self._manifest = stored
            garbage, self._to_discard = self._to_discard, []
            if before is not None:
                garbage += map(self._objects.file_name, _dropped(before.runs, runs))
                garbage.append(self._objects.manifest_name(before.id))
            self._objects.discard(garbage)

    # --- merging

    @property
    def can_merge(self) -> bool:
        """Whether ``merge_once`` has something to do."""
        return bool(self._runs_to_merge())

    async def merge_once(self) -> bool:
        """Merge some runs if there are any to merge; whether there were. While many old runs are merged, newer ones
        may be merged beside them: flushes go on meanwhile."""
        async with self._merge_places:
            merged = self._runs_to_merge()
            if not merged:
                return False
            ended = self._merging[merged] = asyncio.get_running_loop().create_future()
            try:
                await self._merge(merged, oldest=merged[-1] == self._runs[-1])
            finally:
                del self._merging[merged]
                ended.set_result(None)
            return True

    def _runs_to_merge(self) -> tuple[Run, ...]:
        """The newest runs that should become one, of those that are newer than all that are being merged."""
        under_way = {id(run) for runs in self._merging for run in runs}  # its hash would be that of all its files
        free = tuple(itertools.takewhile(lambda run: id(run) not in under_way, self._runs))
        is_full, share = len(self._runs) >= runs_max, 0.0 if under_way else self.tombstones_share
        return free[: runs_to_merge([run.length for run in free], is_full=is_full, tombstones_share=share)]

    async def _merge(self, merged: tuple[Run, ...], *, oldest: bool) -> None:
        slices = TimeSlices(self._clock)
        writer = RunWriter(self._objects, slices)
        try:
            await merge(merged, self._objects, writer, slices, oldest=oldest)
            run = await writer.finish()
        except SegmentNotFound as error:
            self._to_discard += map(self._objects.file_name, writer.files)
            raise await self._missing(error) from error
        except BaseException:
            self._to_discard += map(self._objects.file_name, writer.files)
            raise
        failpoint(MERGED_RUN_STORED)
        await self._commit(lambda now: _replaced(now, merged, run), None, run)
        failpoint(MERGE_MANIFEST_STORED)

    # --- reads

    async def get(self, key: bytes) -> bytes | None:
        return await self._read(lambda runs: look_up(self._objects, runs, key))

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        ordered = sorted(set(keys))
        share = -(-len(ordered) // look_ups_at_once_max) or 1
        parts = [ordered[first : first + share] for first in range(0, len(ordered), share)]

        async def look_all_up(runs: tuple[Run, ...]) -> dict[bytes, bytes]:
            slices, found = TimeSlices(self._clock), dict[bytes, bytes]()
            await all_ended(self._look_up(runs, part, found, slices) for part in parts)
            return found

        return await self._read(look_all_up)

    async def _look_up(
        self, runs: tuple[Run, ...], keys: Sequence[bytes], found: dict[bytes, bytes], slices: TimeSlices
    ) -> None:
        """Look keys up in order: neighbours share a block."""
        for key in keys:
            value = await look_up(self._objects, runs, key)
            if value is not None:
                found[key] = value
            await slices.step()

    def is_surely_absent(self, key: bytes) -> bool:
        check(self._is_open, "question to a map that is not open", map=self.map_name)
        return is_surely_absent(self._objects, self._runs, key)

    async def scan(self, first: bytes, count_max: int, end: bytes | None = None) -> list[tuple[bytes, bytes]]:
        if not 0 < count_max <= map_scan_entries_max:
            raise InvalidArgument(f"a scan of {count_max} entries; 1 to {map_scan_entries_max} are allowed")

        async def take(runs: tuple[Run, ...]) -> list[tuple[bytes, bytes]]:
            found: list[tuple[bytes, bytes]] = []
            async with aclosing(walk(self._objects, runs, first, TimeSlices(self._clock), end=end)) as pieces:
                async for keys, values in pieces:
                    found.extend((key, value) for key, value in zip(keys, values, strict=True) if value is not None)
                    if len(found) >= count_max:
                        break
            return found[:count_max]

        return await self._read(take)

    async def _read(self, ask: Callable[[tuple[Run, ...]], Awaitable[T]]) -> T:
        """The answer of one state of the map; asked again if that one was merged away meanwhile."""
        check(self._is_open, "read of a map that is not open", map=self.map_name)
        for _ in range(read_attempts_max):
            runs = self._runs
            try:
                return await ask(runs)
            except SegmentNotFound as error:
                if runs is self._runs:
                    raise await self._missing(error) from error
        raise Unavailable(f"map {self.map_name}: its runs keep being merged while they are read")

    async def _missing(self, error: SegmentNotFound) -> Fenced | DataCorruption:
        """The error for an object that the newest manifest known here lists and that is gone: a later owner deletes
        what its own manifests replaced."""
        manifest, _ = await self._objects.newest_manifest()  # ``Fenced`` if it is a later owner's
        if manifest is None:
            await self._objects.pass_barrier()  # one that removed the map leaves nothing that shows its epoch
            listed = "and so is every manifest"
        else:
            listed = f"which manifest {manifest.id} lists"
        return DataCorruption(f"map {self.map_name} in Tier 2: {error.segment} is missing, {listed}; {REMEDY}")

    async def remove_all(self) -> None:
        async with self._removing, AsyncExitStack() as merges:
            for _ in range(merges_at_once_max):
                await merges.enter_async_context(self._merge_places)
            await merges.enter_async_context(self._writing)
            before = self._manifest
            if before is None:
                return
            known = before.stamp
            end = await self._objects.put_manifest(
                lambda name: MapManifest(name, known, (), is_removed=True), self._to_discard
            )
            files = [self._objects.file_name(file) for run in before.runs for file in run.files]
            garbage = [*self._to_discard, *files, self._objects.manifest_name(before.id)]
            self._objects.discard([*garbage, self._objects.manifest_name(end.id)])
            self._manifest, self._to_discard, self._is_open = None, [], False


def _replaced(runs: tuple[Run, ...], merged: tuple[Run, ...], run: Run | None) -> tuple[Run, ...]:
    """The runs with some neighbours of them merged into one; flushes meanwhile are in front of them."""
    first = runs.index(merged[0])
    check(runs[first : first + len(merged)] == merged, "runs changed while they were merged", first=first)
    return (*runs[:first], *((run,) if run is not None else ()), *runs[first + len(merged) :])


def _dropped(before: Sequence[Run], now: Sequence[Run]) -> list[RunFile]:
    """The files that no run has any more. A run that stays is the same object, and its files are not looked at."""
    stay = {id(run) for run in before}.intersection(map(id, now))
    live = {file for run in now if id(run) not in stay for file in run.files}
    return [file for run in before if id(run) not in stay for file in run.files if file not in live]


def _check_limits(changes: Mapping[bytes, bytes | None]) -> None:
    total = 0
    for key, value in changes.items():
        length = 0 if value is None else len(value)
        if not 0 < len(key) <= map_key_bytes_max:
            raise InvalidArgument(f"a key of {len(key)} bytes; 1 to {map_key_bytes_max} are allowed")
        if length > map_value_bytes_max:
            raise InvalidArgument(f"a value of {length} bytes; at most {map_value_bytes_max} are allowed")
        total += len(key) + length
    if total > map_changes_bytes_max:
        raise InvalidArgument(f"changes of {total} bytes in one flush; at most {map_changes_bytes_max} are allowed")


def _check_stamp(before: LogState | None, now: LogState) -> None:
    check(now.high_water >= 0 and now.next_segment_id >= 1, "not a state of a log", state=now)
    if before is not None:
        check(
            before.high_water <= now.high_water and before.next_segment_id <= now.next_segment_id,
            "the stamp of a map went back",
            before=before,
            now=now,
        )
