"""Keeps the known bytes of one segment: bytes that were acknowledged and bytes that a reader saw must agree."""

from __future__ import annotations

import numpy as np


class ByteImage:
    """Bytes by offset, with a mark for those that are known."""

    def __init__(self) -> None:
        self._bytes = np.zeros(0, dtype=np.uint8)
        self._known = np.zeros(0, dtype=bool)

    def learn(self, offset: int, data: bytes) -> int | None:
        """Note the bytes; the first offset where they differ from what was known, if they do (nothing is noted)."""
        end = offset + len(data)
        self._grow(end)
        new = np.frombuffer(data, dtype=np.uint8)
        wrong = self._known[offset:end] & (self._bytes[offset:end] != new)
        if wrong.any():
            return offset + int(wrong.argmax())
        self._bytes[offset:end] = new
        self._known[offset:end] = True
        return None

    def known(self, offset: int, length: int) -> bytes | None:
        """The bytes, if all of them are known."""
        end = offset + length
        if end > len(self._known) or not self._known[offset:end].all():
            return None
        return self._bytes[offset:end].tobytes()

    def _grow(self, end: int) -> None:
        size = len(self._known)
        if end > size:
            more = max(end, 2 * size, 4096) - size
            self._bytes = np.concatenate([self._bytes, np.zeros(more, dtype=np.uint8)])
            self._known = np.concatenate([self._known, np.zeros(more, dtype=bool)])
