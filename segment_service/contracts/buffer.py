"""Names the type of bytes that are handed on without a copy."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
