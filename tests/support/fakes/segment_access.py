"""Keeps segments and their lengths in memory behind ``SegmentAccess``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pravega_common.errors import SegmentNotFound, SegmentSealed, TableNotEmpty
from pravega_common.model.segments import SegmentInfo


@dataclass(slots=True)
class InMemorySegment:
    start_offset: int = 0
    length: int = 0
    is_sealed: bool = False
    scale_type: int = 0
    target_rate: int = 0
    rollover_size_bytes: int = 0
    last_modified_ms: int = 0


class OneByOne:
    """Serves calls about many segments by calls about one, so that a proxy can delay or break off each of these."""

    async def infos(self: Any, segments: Sequence[str]) -> list[SegmentInfo]:
        return _without_errors(await asyncio.gather(*map(self.info, segments), return_exceptions=True))

    async def infos_found(self: Any, segments: Sequence[str]) -> list[SegmentInfo | None]:
        outcomes = await asyncio.gather(*map(self.info, segments), return_exceptions=True)
        return _without_errors([None if isinstance(one, SegmentNotFound) else one for one in outcomes])

    async def lengths(self: Any, segments: Sequence[str]) -> list[int | None]:
        return [None if info is None else info.length for info in await OneByOne.infos_found(self, segments)]

    async def merge_batches(
        self: Any, merges: Sequence[tuple[str, Sequence[str]]]
    ) -> list[list[int] | SegmentNotFound | SegmentSealed]:
        calls = (self.merge_batch(target, sources) for target, sources in merges)
        outcomes: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
        _without_errors([one for one in outcomes if not isinstance(one, SegmentNotFound | SegmentSealed)])
        return outcomes


def _without_errors(outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes


class InMemorySegmentAccess(OneByOne):
    """``append`` plays the writer. ``tables`` holds table segments: name to key length."""

    def __init__(self) -> None:
        self.segments: dict[str, InMemorySegment] = {}
        self.tables: dict[str, int] = {}
        self.merges: dict[tuple[str, str], int] = {}
        """The target's length after each merge, by target and source: what a store keeps a record of."""

    def append(self, segment: str, length: int) -> int:
        """Grows a segment as a writer would; returns its new length."""
        found = self._segment(segment)
        if found.is_sealed:
            raise SegmentSealed(segment)
        found.length += length
        return found.length

    async def create_segments(
        self, segments: Sequence[str], *, scale_type: int = 0, target_rate: int = 0, rollover_size_bytes: int = 0
    ) -> None:
        for name in segments:
            new = InMemorySegment(
                scale_type=scale_type, target_rate=target_rate, rollover_size_bytes=rollover_size_bytes
            )
            self.segments.setdefault(name, new)

    async def seal_segments(self, segments: Sequence[str]) -> None:
        for name in segments:
            self._segment(name).is_sealed = True

    async def delete_segments(self, segments: Sequence[str]) -> None:
        for name in segments:
            self.segments.pop(name, None)

    async def truncate_segment(self, segment: str, offset: int) -> None:
        found = self._segment(segment)
        found.start_offset = max(found.start_offset, min(offset, found.length))

    async def update_policy(self, segment: str, scale_type: int, target_rate: int) -> None:
        found = self._segment(segment)
        found.scale_type, found.target_rate = scale_type, target_rate

    async def info(self, segment: str) -> SegmentInfo:
        found = self._segment(segment)
        return SegmentInfo(segment, found.start_offset, found.length, found.is_sealed, found.last_modified_ms)

    async def merge_batch(self, target: str, sources: Sequence[str]) -> list[int]:
        into = self._segment(target)
        if into.is_sealed and any(source in self.segments for source in sources):
            raise SegmentSealed(target)
        for source in sources:
            if source not in self.segments and (target, source) not in self.merges:
                raise SegmentNotFound(source)
        lengths = []
        for source in sources:
            merged = self.segments.pop(source, None)
            if merged is not None:
                into.length += merged.length
                self.merges[target, source] = into.length
            lengths.append(self.merges[target, source])
        return lengths

    async def create_table_segment(self, segment: str, key_length: int = 0, rollover_size_bytes: int = 0) -> None:
        self.tables.setdefault(segment, key_length)

    async def delete_table_segment(self, segment: str, must_be_empty: bool) -> None:
        if must_be_empty and self.tables.get(segment, 0) < 0:
            raise TableNotEmpty(segment)
        self.tables.pop(segment, None)

    def _segment(self, name: str) -> InMemorySegment:
        found = self.segments.get(name)
        if found is None:
            raise SegmentNotFound(name)
        return found
