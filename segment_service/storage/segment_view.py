"""Holds one segment's chunks, and makes the manifest of their next change. No I/O."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from segment_service.storage.chunk_format import ChunkForm, block_bytes
from segment_service.storage.chunk_names import ManifestId, ManifestName
from segment_service.storage.manifest import ChunkRef, Manifest

delta_chunks_max = 128
"""Chunks that a delta may add to its base; the next change writes a new base. Bounds both the bytes of a flush's
manifest and what must be read to open a segment (always two objects at most)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the list of chunks: some leave in front, some at the back, some are added at the back."""

    drop_front: int = 0
    drop_back: int = 0
    add: tuple[ChunkRef, ...] = ()
    start_offset: int | None = None
    """Beyond the length only if all chunks leave: the segment then begins and ends there."""
    seal: bool = False
    delete: bool = False
    """A tombstone. It keeps the list, so that any owner that finds it can finish deleting."""
    merged_into: int = 0
    """With ``delete``: the chunks belong to that segment now, so the list becomes empty."""


class SegmentView:
    """The state of a segment as of one manifest."""

    __slots__ = (
        "_kept_from",
        "_kept_to",
        "base_name",
        "chunks",
        "has_foreign",
        "is_dangling",
        "is_deleted",
        "is_sealed",
        "length",
        "name",
        "segment_id",
        "start_offset",
        "starts",
    )

    def __init__(self, segment_id: int) -> None:
        self.segment_id = segment_id
        self.name: ManifestName | None = None
        """Name of the manifest that counts; ``None`` before the first."""
        self.base_name: ManifestName | None = None
        self.chunks: list[ChunkRef] = []
        self.starts: list[int] = []
        """Offset of each chunk's first byte."""
        self.start_offset = 0
        self.length = 0
        self.is_sealed = False
        self.is_deleted = False
        self.is_dangling = False
        self.has_foreign = False
        self._kept_from = 0
        self._kept_to = 0

    @classmethod
    def of(cls, name: ManifestName, manifest: Manifest, base_name: ManifestName, base: Manifest) -> SegmentView:
        """The view that a manifest (and its base, the same for a base) describes."""
        kept: tuple[ChunkRef, ...] = ()
        if not manifest.is_base:
            if manifest.kept_to > len(base.chunks):
                raise DataCorruption(f"manifest {name}: keeps {manifest.kept_to} of {len(base.chunks)} chunks")
            kept = base.chunks[manifest.kept_from : manifest.kept_to]
        view = cls(manifest.segment_id)
        view._set(name, base_name, manifest, [*kept, *manifest.chunks])
        return view

    @classmethod
    def dangling(cls, segment_id: int, name: ManifestName) -> SegmentView:
        """A manifest whose base is missing. A segment that is gone may come back so, when a put that had no answer is
        done after all; of a living one it is damage."""
        view = cls(segment_id)
        view.name = name
        view.is_dangling = True
        return view

    @property
    def exists(self) -> bool:
        """Whether Tier 2 holds the segment (a tombstone holds nothing)."""
        return self.name is not None and not self.is_deleted and not self.is_dangling

    def locate(self, offset: int, length: int) -> Iterator[tuple[ChunkRef, int, int]]:
        """The pieces (chunk, offset in it, length) that make up a range, which must lie inside the chunks."""
        check(offset >= self.first_offset and offset + length <= self.length, "range outside", offset=offset)
        index = max(0, bisect_right(self.starts, offset) - 1)
        while length > 0:
            chunk = self.chunks[index]
            within = offset - self.starts[index]
            taken = min(length, chunk.length - within)
            if taken > 0:
                yield chunk, within, taken
            offset += taken
            length -= taken
            index += 1

    def block_around(self, offset: int) -> tuple[int, int] | None:
        """The start and the end of the block that holds ``offset``; ``None`` for a chunk without blocks."""
        index = max(0, bisect_right(self.starts, offset) - 1)
        chunk, chunk_start = self.chunks[index], self.starts[index]
        if chunk.form != ChunkForm.BLOCKS:
            return None
        start = offset - (offset - chunk_start) % block_bytes
        return start, min(start + block_bytes, chunk_start + chunk.length)

    @property
    def first_offset(self) -> int:
        return self.starts[0] if self.starts else self.length

    def chunks_below(self, offset: int) -> int:
        """The number of chunks that lie wholly below the offset."""
        return max(0, bisect_right(self.starts, offset) - 1) if offset < self.length else len(self.chunks)

    def next_manifest(self, change: Change, id: ManifestId) -> Manifest:
        """The manifest of the state after a change; a delta where one is allowed."""
        count = len(self.chunks)
        end = count - change.drop_back
        check(0 <= change.drop_front <= end, "a change drops more chunks than there are", change=change)
        in_base = self._kept_to - self._kept_from
        start_offset = self.start_offset if change.start_offset is None else change.start_offset
        first_offset = self.starts[change.drop_front] if change.drop_front < count else max(self.length, start_offset)
        added = (*self.chunks[max(in_base, change.drop_front) : max(in_base, end)], *change.add)
        kept_from = self._kept_from + min(change.drop_front, in_base)
        kept_to = max(kept_from, self._kept_from + min(end, in_base))
        base = self.base_name.id if self.base_name else None
        as_delta = base is not None and base.epoch == id.epoch and len(added) <= delta_chunks_max and not change.delete
        chunks = added if as_delta else (*self.chunks[change.drop_front : end], *change.add)
        return Manifest(
            segment_id=self.segment_id,
            id=id,
            base=base if as_delta and base is not None else id,
            start_offset=start_offset,
            first_offset=first_offset,
            is_sealed=self.is_sealed or change.seal,
            is_deleted=change.delete,
            merged_into=change.merged_into,
            kept_from=kept_from if as_delta else 0,
            kept_to=kept_to if as_delta else 0,
            chunks=() if change.merged_into else chunks,
        )

    def foreign_after(self, change: Change) -> bool:
        """Whether there are chunks written for other segments after the change (may say yes too often)."""
        return self.has_foreign or any(chunk.segment_id != self.segment_id for chunk in change.add)

    def apply(self, change: Change, name: ManifestName, manifest: Manifest) -> None:
        """Move to the state of the manifest that was made for the change and is now stored. Costs what the change
        costs, not what the segment's length costs."""
        self.has_foreign = self.foreign_after(change)
        if change.merged_into:
            self._set(name, name, manifest, [])
            return
        if change.drop_back:
            del self.chunks[-change.drop_back :], self.starts[-change.drop_back :]
        if change.drop_front:
            del self.chunks[: change.drop_front], self.starts[: change.drop_front]
        offset = self.starts[-1] + self.chunks[-1].length if self.chunks else manifest.first_offset
        for chunk in change.add:
            self.chunks.append(chunk)
            self.starts.append(offset)
            offset += chunk.length
        self.length = offset
        self._set_fields(name, name if manifest.is_base else self.base_name, manifest)

    def _set(self, name: ManifestName, base_name: ManifestName, manifest: Manifest, chunks: list[ChunkRef]) -> None:
        ends = list(itertools.accumulate((chunk.length for chunk in chunks), initial=manifest.first_offset))
        self.chunks = chunks
        self.starts = ends[:-1]
        self.length = ends[-1]
        self.has_foreign = any(chunk.segment_id != manifest.segment_id for chunk in chunks)
        self._set_fields(name, base_name, manifest)

    def _set_fields(self, name: ManifestName, base_name: ManifestName | None, manifest: Manifest) -> None:
        self.name = name
        self.base_name = base_name
        self.start_offset = manifest.start_offset
        self.is_sealed = manifest.is_sealed
        self.is_deleted = manifest.is_deleted
        self.is_dangling = False
        self._kept_from = manifest.kept_from
        self._kept_to = len(self.chunks) if manifest.is_base else manifest.kept_to
        check(
            self.first_offset <= self.start_offset <= self.length or self.is_deleted,
            "a segment in Tier 2 starts outside its chunks",
            segment=self.segment_id,
            first=self.first_offset,
            start=self.start_offset,
            length=self.length,
        )
