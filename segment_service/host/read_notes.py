"""Notes how many bytes of each segment were sent to readers since somebody looked."""

from __future__ import annotations

from typing import Final

segments_max: Final = 20_000
"""Segments that are noted between two looks; bytes of those beyond are noted without a name."""


class ReadNotes:
    """Bytes sent, by segment; under the empty name those of segments that are too many. Nothing while it is off."""

    def __init__(self) -> None:
        self.is_on = False
        self._bytes: dict[str, int] = {}

    def note(self, segment: str, length: int) -> None:
        if not self.is_on:
            return
        found = self._bytes
        if segment not in found and len(found) >= segments_max:
            segment = ""
        found[segment] = found.get(segment, 0) + length

    def take(self) -> dict[str, int]:
        """The bytes by segment, and forget them."""
        taken, self._bytes = self._bytes, {}
        return taken

    def stop(self) -> None:
        """Note nothing any more."""
        self.is_on = False
        self._bytes = {}
