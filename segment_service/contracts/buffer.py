"""Names the type of bytes that are handed on without a copy."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview


def kept_bytes(data: Buffer) -> int:
    """The memory that stays in use while ``data`` does: a view of a part keeps the whole."""
    if isinstance(data, memoryview) and data.obj is not None:
        return memoryview(data.obj).nbytes
    return len(data)
