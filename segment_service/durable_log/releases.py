"""Remembers the requests that a full Tier 1 has to take before it can be freed, and bounds the room that they get."""

from __future__ import annotations

import asyncio
from typing import Final

frames_over_max: Final = 64
"""Frames, at most 1 MiB each, that may exceed the memory of a full Tier 1 for one request: its own and those before
it, which are few, as it goes to the front of the queue."""


class Releases:
    """Keeps the requests that wait for no room while the storage writer holds a damaged segment. Tier 1 keeps all from
    the first held operation on until the segment is whole or deleted."""

    def __init__(self) -> None:
        self._waiting: dict[int | None, tuple[asyncio.Future[None], int]] = {}

    def add(self, segment_id: int | None, durable: asyncio.Future[None], frames_total: int) -> None:
        """Remember the deletion of a segment, or for ``None`` the first checkpoint of an owner. ``frames_total``: the
        frames that were durable before it came."""
        self._forget_done()
        self._waiting[segment_id] = durable, frames_total

    def has(self, segment_id: int) -> bool:
        """Whether the deletion of the segment waits already: another one is as any other request."""
        self._forget_done()
        return segment_id in self._waiting

    def may_exceed(self, frames_total: int) -> bool:
        """Whether more frames may go in without room, now that ``frames_total`` are durable."""
        self._forget_done()
        return any(frames_total - before < frames_over_max for _, before in self._waiting.values())

    def _forget_done(self) -> None:
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if not waiting[0].done()}
