"""Holds a fetch of bytes from Tier 2, and the places where Tier 2 has them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from segment_service.contracts.buffer import Buffer


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Bytes that are in Tier 2: ``places`` are (segment id, offset) to try in order, since a merge may move them from
    one to the next at any time; ``length`` is how many follow there in one piece."""

    places: tuple[tuple[int, int], ...]
    length: int


class Fetch:
    """Bytes [start, end) of one segment on their way from Tier 2; ``is_scanned``: for a sequential reader."""

    __slots__ = ("data", "end", "is_scanned", "start")

    def __init__(self, start: int, end: int, *, is_scanned: bool) -> None:
        self.is_scanned = is_scanned
        self.start = start
        self.end = end
        self.data: asyncio.Future[Buffer] = asyncio.get_running_loop().create_future()
        self.data.add_done_callback(_mark_retrieved)


def _mark_retrieved(future: asyncio.Future[Buffer]) -> None:
    """Accept that a read-ahead fails with nobody waiting: a reader of these bytes asks again."""
    if not future.cancelled():
        future.exception()
