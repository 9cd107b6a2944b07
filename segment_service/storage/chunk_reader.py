"""Reads chunks, and gives out no byte that fails its checksum."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator

import structlog

from pravega_common.errors import DataCorruption, SegmentDamaged
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.chunk_format import (
    BlockRange,
    ChunkForm,
    WrongBlock,
    block_bytes,
    check_blocks,
    unfilled,
    whole_checksum,
)
from segment_service.storage.chunk_names import Layout
from segment_service.storage.manifest import ChunkRef

REMEDY = "restore the object from a copy"
"""What an operator can do."""

read_attempts_max = 2
"""Reads of bytes that fail their checksum: a bit that flipped on its way is right at the second."""


class ChunkReader:
    """Reads ranges of chunks of one container."""

    def __init__(self, chunks: ChunkStorage, layout: Layout) -> None:
        self._chunks = chunks
        self._layout = layout
        self._log = structlog.get_logger(service="chunk-reader")

    async def read(self, segment_id: int, chunk: ChunkRef) -> memoryview:
        """All bytes of the chunk. Errors as ``read_into`` has them."""
        target = unfilled(chunk.length)
        await self.read_into(segment_id, chunk, 0, target)
        return target.toreadonly()

    async def read_into(self, segment_id: int, chunk: ChunkRef, offset: int, target: memoryview) -> None:
        """Fill ``target`` with the bytes of the chunk from ``offset`` on, which it must have. ``segment_id`` is its
        owner's. After an error ``target`` has nothing to be used.

        ``SegmentNotFound`` if the object is missing (it may have been replaced), ``SegmentDamaged`` if it is short or
        fails its checksums.
        """
        name = self._layout.chunk(chunk.id)
        if chunk.form == ChunkForm.RAW:
            with damage_to(segment_id):
                copy = functools.partial(operator.setitem, target, slice(None))
                await self._chunks.get_with(name, offset, len(target), copy)
            return
        blocks = BlockRange.around(offset, len(target), chunk.length)
        checksums = await self._read_blocks(segment_id, name, blocks, offset % block_bytes, target)
        if len(checksums) == chunk.block_count and whole_checksum(checksums) != chunk.checksum:
            raise SegmentDamaged(
                segment_id,
                f"segment {segment_id} in Tier 2: chunk {name} has the checksum {whole_checksum(checksums):#010x}, its "
                f"manifest says {chunk.checksum:#010x}: it holds other bytes; {REMEDY}",
            )

    async def _read_blocks(
        self, segment_id: int, name: str, blocks: BlockRange, skipped: int, target: memoryview
    ) -> list[int]:
        check_all = functools.partial(check_blocks, name, blocks.first, skipped, target)
        attempt = 0
        while True:
            attempt += 1
            with damage_to(segment_id):
                found = await self._chunks.get_with(name, blocks.stored_offset, blocks.stored_length, check_all)
            if not isinstance(found, WrongBlock):
                return found
            self._log.warning("a block fails its checksum", chunk=name, block=found.number, attempt=attempt)
            if attempt == read_attempts_max:
                raise SegmentDamaged(
                    segment_id,
                    f"segment {segment_id} in Tier 2: chunk {name}, offset {found.number * block_bytes}: block "
                    f"{found.number} has the checksum {found.found:#010x}, expected {found.expected:#010x}; {REMEDY}",
                )


@contextlib.contextmanager
def damage_to(segment_id: int) -> Iterator[None]:
    """Let corruption found inside be damage to this segment, and to no other."""
    try:
        yield
    except SegmentDamaged:
        raise
    except DataCorruption as error:
        raise SegmentDamaged(segment_id, f"segment {segment_id} in Tier 2: {error}; {REMEDY}") from error
