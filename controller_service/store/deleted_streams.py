"""Remembers the segment numbers of deleted streams, so that no name of a segment comes twice.

The names fall by hash into ``shard_count`` records. Each has the numbers of up to ``names_per_shard_max`` names, and a
floor: when there are more names, the one with the lowest number goes, and the floor rises to that number. All streams
of the shard begin at the floor or above, also those whose name was never used, so nothing is ever forgotten.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

from controller_service.store.records import DeletedStream
from controller_service.store.serializer import decode, encode
from controller_service.store.tag_index import Repeat
from controller_service.store.versioned_store import ABSENT, VersionedStore
from pravega_common.names import scoped_name

DELETED_STREAMS_TABLE: Final = "deletedStreams"
shard_count: Final = 128
names_per_shard_max: Final = 128
"""Some 5 KB a record. The numbers of new streams rise by those of one stream with every 16,384 names deleted."""


@dataclass(frozen=True, slots=True)
class DeletedNames:
    """One shard of the names of deleted streams."""

    floor: int = 0
    """No stream of the shard begins below this segment number."""
    numbers: dict[str, int] = field(default_factory=dict)
    """``scope/stream`` to the number where a stream of that name begins, above the floor."""

    def first_number(self, name: str) -> int:
        return max(self.floor, self.numbers.get(name, 0))

    def with_name(self, name: str, number: int) -> DeletedNames:
        """With a name that begins at a number or above from now on."""
        numbers = {**self.numbers, name: max(number, self.first_number(name))}
        floor = self.floor
        if len(numbers) > names_per_shard_max:
            floor = max(floor, min(numbers.values()))
        return DeletedNames(floor, {known: value for known, value in numbers.items() if value > floor})


class DeletedStreams:
    """Former versions kept a record for each name, which is read, and replaced when a stream of that name goes."""

    def __init__(self, tables: VersionedStore, repeat: Repeat) -> None:
        self._tables = tables
        self._repeat = repeat

    async def first_segment_number(self, scope: str, stream: str) -> int:
        """The number of the first segment of a stream to be made: above all that a deleted one of its name used."""
        return max((await self._read(scoped_name(scope, stream)))[0])

    async def record(self, scope: str, stream: str, next_number: int) -> None:
        """Have streams of a name begin at a number or above, before the entry of the deleted one goes. Idempotent."""
        name = scoped_name(scope, stream)

        async def write() -> None:
            (of_shard, of_former), shard, version = await self._read(name)
            number = max(next_number, of_former)
            if number > of_shard:
                changed = encode(shard.with_name(name, number))
                await self._tables.put(DELETED_STREAMS_TABLE, _shard_key(name), changed, version)
            if of_former:
                await self._tables.remove(DELETED_STREAMS_TABLE, name)

        await self._repeat(f"number of deleted stream {name}", write)

    async def _read(self, name: str) -> tuple[tuple[int, int], DeletedNames, int]:
        """The numbers by the shard and by a record of a former version, the shard, and its version."""
        found, former = await self._tables.get_many(DELETED_STREAMS_TABLE, [_shard_key(name), name])
        shard = DeletedNames() if found is None else decode(DeletedNames, found.value)
        of_former = 0 if former is None else decode(DeletedStream, former.value).next_segment_number
        return (shard.first_number(name), of_former), shard, ABSENT if found is None else found.version


def _shard_key(name: str) -> str:
    """No name of a stream in its scope: those have a slash."""
    return f"shard-{zlib.crc32(name.encode()) % shard_count}"
