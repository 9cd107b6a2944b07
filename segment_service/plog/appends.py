"""Checks and fails appends of a log, on whatever its entries are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pravega_common.errors import InvalidArgument, PravegaError
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress, frame_bytes_max

frames_pending_max: Final = 1024
"""Frames not yet acknowledged; callers keep to ``frames_in_flight_max``, this only bounds a mistake."""


def frame_bytes(frame: Sequence[Buffer]) -> int:
    return sum(memoryview(part).nbytes for part in frame)


def frame_refusal(size: int) -> InvalidArgument | None:
    """The error for a frame of a length that no log takes."""
    if 0 < size <= frame_bytes_max:
        return None
    return InvalidArgument(f"frame of {size} bytes; 1 to {frame_bytes_max} are allowed")


def fail_append(future: asyncio.Future[LogAddress], error: PravegaError) -> None:
    """End an append with an error, unless it has ended."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it retrieved: an abandoned append is not worth a warning
