"""Keeps in Tier 2 which segments of one container changed of late: only these can have garbage after a crash.

A segment is noted before anything of it is put or discarded, and stays noted until all that its changes left is
deleted; after a change that failed, or a put that had no answer and may be done late, until later owners have looked.
So the sweep of a later owner looks at the segments that journals of earlier epochs name, and at no others. A segment
that changes again and again is noted once; one put serves all changes that wait for one.

Notes are collected in generations. The next one begins when the present one has many segments, or is old, and names
those again that are left to later owners; the objects of the one before are deleted behind the garbage of its last
change. Layout of an object, big-endian::

    magic "PVCJ" | version u16 | reserved u16 | epoch u64 | count u32 | count x segment id u64
    | crc32c u32 over everything before
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

from pravega_common.errors import DataCorruption, Fenced
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.chunk_names import Layout
from segment_service.storage.epoch_marks import PutFresh
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.shared_put import SharedPut

NOTED: Final = register("storage.journal.noted")

generation_ids_max: Final = 16_384
"""Segments of one generation; more that wait at the same time make one that is larger. Bounds what a sweep looks at."""

generation_time_max_s: Final = 600.0
"""Age of a generation from which on the next change begins another, so that segments at rest are not swept again."""

generation_objects_max: Final = 16
"""Objects of one generation; then one takes the place of all."""

lasting_ids_max: Final = 4_096
"""Segments left to later owners that one generation takes over from the one before. If there are more, that one is
left to later owners as a whole, so that they are not written again and again."""

_MAGIC: Final = b"PVCJ"
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">4sHHQI")
_CRC: Final = struct.Struct(">I")
_ID_BYTES: Final = 8


class JournalObject(NamedTuple):
    """An object of an earlier owner."""

    name: str
    epoch: int
    length: int


def encode(epoch: int, segment_ids: Sequence[int]) -> bytes:
    count = len(segment_ids)
    body = _HEADER.pack(_MAGIC, _VERSION, 0, epoch, count) + struct.pack(f">{count}Q", *segment_ids)
    return body + _CRC.pack(crc32c(body))


def decode(data: bytes, name: str, epoch: int) -> tuple[int, ...]:
    """The segment ids in the object ``name``, whose name carries ``epoch``. ``DataCorruption`` for anything else."""
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEADER.size + _CRC.size:
        raise DataCorruption(f"{name} in Tier 2 is no journal of changes: it begins with {data[:8]!r}")
    _, version, _, written_epoch, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise DataCorruption(
            f"journal {name} has version {version}; this program reads {_VERSION}: if a newer one wrote it, run that"
        )
    if len(data) != _HEADER.size + count * _ID_BYTES + _CRC.size:
        raise DataCorruption(f"journal {name} announces {count} segments and has {len(data)} bytes")
    body = memoryview(data)[: -_CRC.size]
    if crc32c(body) != _CRC.unpack(data[-_CRC.size :])[0]:
        raise DataCorruption(f"journal {name} fails its checksum")
    if written_epoch != epoch:
        raise DataCorruption(f"journal {name} says that it is of epoch {written_epoch}")
    return struct.unpack_from(f">{count}Q", body, _HEADER.size)


@dataclass(slots=True, eq=False)
class _Generation:
    began_s: float
    dropped_before: int
    """Names that the garbage collector had given up when it began."""
    ids: set[int] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    """The objects that say so, and puts without an answer."""
    changes: int = 0
    """Changes under way."""
    is_lasting: bool = False
    """Whether it is left to later owners as a whole."""


class ChangeJournal:
    """Notes changes of the own epoch, and reads what earlier owners noted. ``epoch`` is set before the first use."""

    def __init__(
        self,
        chunks: ChunkStorage,
        layout: Layout,
        garbage: GarbageCollector,
        clock: Clock,
        put_fresh: PutFresh,
        new_number: Callable[[], int],
    ) -> None:
        self.epoch = 0
        self._chunks = chunks
        self._layout = layout
        self._garbage = garbage
        self._clock = clock
        self._put_fresh = put_fresh
        self._new_number = new_number
        self._current = self._new_generation()
        self._over: list[_Generation] = []
        """Those before, as long as their objects are needed here: until their changes have ended, and the present one
        names what they leave to later owners."""
        self._lasting: set[int] = set()
        """Segments left to later owners, but for those in generations that are."""
        self._wanted: dict[int, None] = {}
        self._puts = SharedPut()

    @contextlib.asynccontextmanager
    async def noted(self, *segment_ids: int, is_lasting: bool = False) -> AsyncIterator[None]:
        """Let these segments change inside: what is put or discarded for them is found after a crash. ``is_lasting``:
        later owners look at them in any case."""
        generation = await self._generation_with(segment_ids)
        if is_lasting:
            self.leave(*segment_ids)
        generation.changes += 1
        try:
            yield
        except BaseException:
            self.leave(*segment_ids)  # a chunk that was put for it may be in no manifest, and nobody discards it
            raise
        finally:
            generation.changes -= 1
            self._end_over()

    def leave(self, *segment_ids: int) -> None:
        """Let later owners look at these segments, whatever becomes of their garbage here. Those that do not change
        now are noted with the next put."""
        self._lasting.update(segment_ids)

    async def earlier(self) -> list[JournalObject]:
        """The objects of earlier owners, by epoch. ``Fenced`` if there is one of a later owner."""
        found = []
        async for info in self._chunks.list(self._layout.journals):
            epoch = self._layout.parse_journal(info.name)
            if epoch > self.epoch:
                raise Fenced(f"{info.name} was made by a later owner than epoch {self.epoch}")
            if epoch < self.epoch:
                found.append(JournalObject(info.name, epoch, info.length))
        return found

    async def read(self, journal: JournalObject) -> tuple[int, ...]:
        """The segments that it names. ``SegmentNotFound`` if it is gone: all that they left was deleted."""
        data = await self._chunks.get(journal.name, 0, journal.length)
        return decode(data, journal.name, journal.epoch)

    # --- the own epoch

    async def _generation_with(self, segment_ids: Sequence[int]) -> _Generation:
        """The present generation, once it has these segments, durably. A put that fails, fails for all that wait."""
        while True:
            current = self._current
            if current.ids.issuperset(segment_ids) and not self._is_old(current):
                return current
            self._wanted |= dict.fromkeys(segment_ids)
            await self._puts.join(self._store_wanted)

    async def _store_wanted(self) -> None:
        await asyncio.sleep(0)  # changes that begin in the same turn of the loop share the put
        wanted, self._wanted = self._wanted, {}
        await self._store(wanted.keys())

    async def _store(self, wanted: Iterable[int]) -> None:
        """Store the segments in the present generation, or as the beginning of the next one."""
        before = generation = self._current
        new_ids = set(wanted)
        if self._is_old(generation) or (generation.ids and len(generation.ids) + len(new_ids) > generation_ids_max):
            generation = self._new_generation()
        if len(self._lasting) > lasting_ids_max:
            before.is_lasting = True
            self._lasting -= before.ids
        new_ids |= self._lasting - generation.ids
        is_whole = len(generation.names) >= generation_objects_max
        data = encode(self.epoch, sorted(generation.ids | new_ids if is_whole else new_ids))

        def fresh() -> tuple[str, str, Sequence[Buffer]]:
            name = self._layout.journal(self.epoch, self._new_number())
            return name, name, [data]

        unanswered: list[str] = []
        try:
            stored = await self._put_fresh(fresh, unanswered)
        finally:
            generation.names += unanswered
        failpoint(NOTED)
        if is_whole:
            self._garbage.discard(generation.names)
            generation.names = []
        generation.names.append(stored)
        generation.ids |= new_ids
        if generation is not before:
            self._current = generation
            self._over.append(before)
        self._end_over()

    def _new_generation(self) -> _Generation:
        return _Generation(self._clock.monotonic_s(), self._garbage.dropped_names)

    def _is_old(self, generation: _Generation) -> bool:
        return self._clock.monotonic_s() - generation.began_s >= generation_time_max_s

    def _end_over(self) -> None:
        """Discard the objects of generations whose last change has ended, once the present one names what they leave to
        later owners; not if garbage was given up meanwhile, which the next owner finds by them."""
        for generation in [one for one in self._over if not one.changes]:
            stays = generation.is_lasting or generation.dropped_before != self._garbage.dropped_names
            if stays or self._current.ids.issuperset(self._lasting & generation.ids):
                self._over.remove(generation)
                if not stays:
                    self._garbage.discard_last(generation.names)
