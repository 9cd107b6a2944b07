"""Reads chunks, and gives out no byte that fails its checksum."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import structlog

from pravega_common.errors import DataCorruption, SegmentDamaged
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.chunk_format import (
    BlockRange,
    ChunkForm,
    WrongBlock,
    block_bytes,
    check_blocks,
    whole_checksum,
)
from segment_service.storage.chunk_names import Layout
from segment_service.storage.manifest import ChunkRef
from segment_service.storage.offload import Offload, in_place, offloaded_bytes_min

REMEDY = "restore the object from a copy"
"""What an operator can do."""

read_attempts_max = 2
"""Reads of bytes that fail their checksum: a bit that flipped on its way is right at the second."""


class ChunkReader:
    """Reads ranges of chunks of one container."""

    def __init__(self, chunks: ChunkStorage, layout: Layout, offload: Offload = in_place) -> None:
        """Checks what is long through ``offload``."""
        self._chunks = chunks
        self._offload = offload
        self._layout = layout
        self._log = structlog.get_logger(service="chunk-reader")

    async def read(self, segment_id: int, chunk: ChunkRef, offset: int, length: int) -> list[Buffer]:
        """Bytes [offset, offset + length) of the chunk, which must hold them, in pieces. ``segment_id`` is its owner's.

        ``SegmentNotFound`` if the object is missing (it may have been replaced), ``SegmentDamaged`` if it is short or
        fails its checksums.
        """
        name = self._layout.chunk(chunk.id)
        if chunk.form == ChunkForm.RAW:
            with damage_to(segment_id):
                return [await self._chunks.get(name, offset, length)]
        blocks = BlockRange.around(offset, length, chunk.length)
        data, checksums = await self._read_blocks(segment_id, name, blocks)
        if len(checksums) == chunk.block_count and whole_checksum(checksums) != chunk.checksum:
            raise SegmentDamaged(
                segment_id,
                f"segment {segment_id} in Tier 2: chunk {name} has the checksum {whole_checksum(checksums):#010x}, its "
                f"manifest says {chunk.checksum:#010x}: it holds other bytes; {REMEDY}",
            )
        return _trimmed(data, offset % block_bytes, length)

    async def _read_blocks(self, segment_id: int, name: str, blocks: BlockRange) -> tuple[list[memoryview], list[int]]:
        attempt = 0
        while True:
            attempt += 1
            with damage_to(segment_id):
                stored = await self._chunks.get(name, blocks.stored_offset, blocks.stored_length)
            check_all = functools.partial(check_blocks, name, blocks.first, stored)
            found = await self._offload(check_all) if len(stored) >= offloaded_bytes_min else check_all()
            if not isinstance(found, WrongBlock):
                return found
            self._log.warning("a block fails its checksum", chunk=name, block=found.number, attempt=attempt)
            if attempt == read_attempts_max:
                raise SegmentDamaged(
                    segment_id,
                    f"segment {segment_id} in Tier 2: chunk {name}, offset {found.number * block_bytes}: block "
                    f"{found.number} has the checksum {found.found:#010x}, expected {found.expected:#010x}; {REMEDY}",
                )


def _trimmed(data: list[memoryview], skipped: int, length: int) -> list[Buffer]:
    """``length`` bytes of the pieces, without the first ``skipped``."""
    pieces: list[Buffer] = []
    for piece in data:
        taken = piece[skipped : skipped + length]
        pieces.append(taken)
        length -= len(taken)
        skipped = 0
    check(length == 0, "blocks of a chunk are short", missing=length)
    return pieces


@contextlib.contextmanager
def damage_to(segment_id: int) -> Iterator[None]:
    """Let corruption found inside be damage to this segment, and to no other."""
    try:
        yield
    except SegmentDamaged:
        raise
    except DataCorruption as error:
        raise SegmentDamaged(segment_id, f"segment {segment_id} in Tier 2: {error}; {REMEDY}") from error
