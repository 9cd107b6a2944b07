"""Checks that frames follow one another, and finds the last frame that counts in a plog."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogAddress, LogEntry
from segment_service.plog.frame import Frame, FrameKind, decode_frame, envelope_bytes
from segment_service.plog.plog_client import PlogEntry

offset_max: Final = 2**62
"""Above every offset in a plog."""


@dataclass(slots=True)
class Chain:
    """Where the chain of frames stands; ``None`` accepts what comes first (nothing is known after a truncation)."""

    next_sequence: int | None = None
    last: LogAddress | None = None
    epoch: int = 0

    def accept(self, frame: Frame, address: LogAddress, where: str) -> None:
        """``DataCorruption`` unless the frame is the next one."""
        header = frame.header
        if self.next_sequence is not None and header.sequence != self.next_sequence:
            raise DataCorruption(f"{where}: frame {header.sequence} where {self.next_sequence} must follow")
        if self.last is not None and header.previous != self.last:
            raise DataCorruption(f"{where}: follows {header.previous}, but the frame before it is at {self.last}")
        if header.epoch < self.epoch:
            raise DataCorruption(f"{where}: of epoch {header.epoch}, after a frame of epoch {self.epoch}")
        self.next_sequence = header.sequence + 1
        self.last = address
        self.epoch = header.epoch


@dataclass(frozen=True, slots=True)
class PlogEnd:
    """The last contiguous frame of a plog that was fenced."""

    offset: int
    payload_sizes: list[int]
    """Bytes of each frame found, in order, envelope not counted."""


async def find_end(
    entries: AsyncIterator[PlogEntry], number: int, start: int, chain: Chain, kind: FrameKind = FrameKind.DATA
) -> PlogEnd:
    """Follow the frames from ``start`` up to the first gap.

    What lies behind a gap was refused or lost on its way and never acknowledged. If one of the frames read says that
    more than what was found had been acknowledged, the server lost data: ``DataCorruption``.
    """
    offset, sizes, acked, gap = start, [], 0, False
    async for entry in entries:
        where = f"plog {number}, offset {entry.start}"
        frame = decode_frame(entry.data, where)
        acked = max(acked, frame.header.acked)
        gap = gap or entry.start != offset
        if gap:
            continue
        check_kind(frame, kind, where)
        chain.accept(frame, LogAddress(number, entry.start), where)
        offset = entry.end
        sizes.append(entry.end - entry.start - envelope_bytes)
    if acked > (chain.next_sequence or 0):
        raise DataCorruption(
            f"plog {number} ends after frame {(chain.next_sequence or 0) - 1} at offset {offset}, "
            f"but {acked} frames had been acknowledged: the server lost data"
        )
    return PlogEnd(offset, sizes)


async def sealed_frames(
    entries: AsyncIterator[PlogEntry], number: int, start: int, end: int, chain: Chain
) -> AsyncIterator[LogEntry]:
    """The frames of a sealed plog from ``start`` to ``end``, where no gap is allowed."""
    offset = start
    async for entry in entries:
        where = f"plog {number}, offset {entry.start}"
        if entry.start != offset:
            raise DataCorruption(f"{where}: the frame before it ends at {offset}")
        frame = decode_frame(entry.data, where)
        check_kind(frame, FrameKind.DATA, where)
        address = LogAddress(number, entry.start)
        chain.accept(frame, address, where)
        offset = entry.end
        yield LogEntry(address, frame.payload)
    if offset != end:
        raise DataCorruption(f"plog {number} ends at {offset}, but was sealed at {end}: the server lost data")


def check_kind(frame: Frame, kind: FrameKind, where: str) -> None:
    if frame.header.kind is not kind:
        raise DataCorruption(f"{where}: a {frame.header.kind.name} frame in a log of {kind.name} frames")
