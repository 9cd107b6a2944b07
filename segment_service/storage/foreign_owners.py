"""Keeps in Tier 2 which segments may list chunks that were written for others: merges move chunks, and not their names.

An object without bytes, whose name says it, is put before the manifest that lists such chunks for the first time, and
discarded after the first one without any. So who a chunk belongs to is found by a look at its own segment and at those
that these objects name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, Protocol

from pravega_common.errors import DataCorruption
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.chunk_names import ForeignOwner, Layout
from segment_service.storage.epoch_marks import PutFor

ANNOUNCED: Final = register("storage.concat.owner_announced")


class _WrittenFor(Protocol):
    """As ``ChunkRef`` and ``ChunkId``."""

    @property
    def segment_id(self) -> int: ...


class ForeignOwners:
    """Announces owners, and finds them. ``epoch`` is set before the first use."""

    def __init__(
        self,
        chunks: ChunkStorage,
        layout: Layout,
        put_for: PutFor,
        new_number: Callable[[], int],
    ) -> None:
        self.epoch = 0
        self._chunks = chunks
        self._layout = layout
        self._put_for = put_for
        self._new_number = new_number

    async def announce(self, owner_id: int, chunks: Iterable[_WrittenFor]) -> None:
        """Let ``owner_id`` be found as an owner of these chunks, once this returns."""
        for segment_id in sorted(origins(owner_id, chunks)):
            await self.announce_one(owner_id, segment_id)

    async def announce_one(self, owner_id: int, segment_id: int) -> None:
        """The same, of chunks that were written for ``segment_id``."""

        def fresh() -> tuple[None, str, Sequence[Buffer]]:
            one = ForeignOwner(segment_id, owner_id, self.epoch, self._new_number())
            return None, self._layout.foreign_owner(one), []

        await self._put_for(segment_id, fresh)
        failpoint(ANNOUNCED)

    async def announce_missing(self, owner_id: int, chunks: Iterable[_WrittenFor]) -> int:
        """As ``announce``, where nothing says so yet; returns the number of segments that it was put for. Where a name
        is not ours, ``DataCorruption`` once it is put for the others."""
        count, failure = 0, None
        for segment_id in sorted(origins(owner_id, chunks)):
            try:
                is_missing = await self._is_missing(owner_id, segment_id)
            except DataCorruption as error:
                failure = error
                continue
            if is_missing:
                await self.announce_one(owner_id, segment_id)
                count += 1
        if failure is not None:
            raise failure
        return count

    async def missing(self, owner_id: int, chunks: Iterable[_WrittenFor]) -> AsyncIterator[int]:
        """The segments of whose chunks ``owner_id`` has some and is not announced as an owner, in order."""
        for segment_id in sorted(origins(owner_id, chunks)):
            if await self._is_missing(owner_id, segment_id):
                yield segment_id

    async def _is_missing(self, owner_id: int, segment_id: int) -> bool:
        return all(one.owner_id != owner_id for one in await self.of(segment_id))

    async def of(self, segment_id: int) -> list[ForeignOwner]:
        """The announcements of the chunks that were written for this segment, by owner. ``DataCorruption`` if a name
        there is not ours: it may have been one."""
        prefix = self._layout.foreign_owners_of(segment_id)
        return [self._layout.parse_foreign_owner(info.name) async for info in self._chunks.list(prefix)]

    async def origins_of(self, owner_id: int) -> set[int]:
        """The segments of whose chunks it is announced as an owner. Lists all announcements of the container, for an
        owner whose manifests do not tell."""
        listed = self._chunks.list(self._layout.foreign_owners)
        found = [self._layout.parse_foreign_owner(info.name) async for info in listed]
        return {announced.segment_id for announced in found if announced.owner_id == owner_id}

    async def names(self, owner_id: int, gone: Iterable[_WrittenFor], left: Iterable[_WrittenFor] = ()) -> list[str]:
        """The names of what becomes garbage when the owner lists ``gone`` no more, and still ``left``."""
        found: list[str] = []
        segment_ids = origins(owner_id, gone)
        if segment_ids:
            segment_ids -= origins(owner_id, left)
        for segment_id in sorted(segment_ids):
            found += [self._layout.foreign_owner(one) for one in await self.of(segment_id) if one.owner_id == owner_id]
        return found


def origins(owner_id: int, chunks: Iterable[_WrittenFor]) -> set[int]:
    """The other segments that some of these chunks of ``owner_id`` were written for."""
    return {chunk.segment_id for chunk in chunks if chunk.segment_id != owner_id}
