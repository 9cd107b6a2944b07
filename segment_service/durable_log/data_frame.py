"""Defines the data frame, the unit that is written to Tier 1.

Layout, big-endian::

    magic u16 | version u8 | flags u8 | epoch u64 | first_record u32 | entries_length u32
    entries:  flags u8 (1 = begins a record, 2 = ends one) | length u32 | bytes
    crc32c u32 over everything before

``first_record`` is the position in the frame of the first entry that begins a record, 0 if none does: a record may
span frames, so a frame may begin in the middle of one. The epoch is that of the log's owner: a record cut off at the
end of one epoch was never acknowledged and is dropped, one cut off inside an epoch is corruption.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import frame_bytes_max

FRAME_MAGIC: Final = 0x5046
FRAME_VERSION: Final = 1
FLAG_CHECKPOINT: Final = 1
"""The frame begins with a checkpoint: a truncation point."""

ENTRY_BEGINS: Final = 1
ENTRY_ENDS: Final = 2
ENTRY_WHOLE: Final = ENTRY_BEGINS | ENTRY_ENDS

HEADER: Final = struct.Struct(">HBBQII")
ENTRY: Final = struct.Struct(">BI")
TRAILER: Final = struct.Struct(">I")

entry_bytes_min: Final = 64
"""Bytes of a record that are worth an entry at the end of a frame; with less room the frame is closed."""


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The header of a data frame."""

    epoch: int
    begins_with_checkpoint: bool
    first_record: int
    entries_length: int


def parse_header(frame: memoryview) -> FrameHeader:
    """Check a whole frame and return its header. ``DataCorruption`` if it is not exactly one intact frame."""
    if not HEADER.size + TRAILER.size <= len(frame) <= frame_bytes_max:
        raise DataCorruption(f"data frame of {len(frame)} bytes; {HEADER.size + TRAILER.size} to {frame_bytes_max}")
    magic, version, flags, epoch, first_record, entries_length = HEADER.unpack_from(frame)
    if magic != FRAME_MAGIC:
        raise DataCorruption(f"data frame begins with {magic:#06x}, not with {FRAME_MAGIC:#06x}")
    (expected,) = TRAILER.unpack_from(frame, len(frame) - TRAILER.size)
    actual = crc32c(frame[: -TRAILER.size])
    if actual != expected:
        raise DataCorruption(f"data frame has checksum {actual:#010x}, its trailer says {expected:#010x}")
    if version != FRAME_VERSION:
        raise DataCorruption(f"data frame has version {version}; this program reads {FRAME_VERSION}")
    if HEADER.size + entries_length + TRAILER.size != len(frame):
        raise DataCorruption(f"data frame of {len(frame)} bytes says it has {entries_length} bytes of entries")
    return FrameHeader(epoch, bool(flags & FLAG_CHECKPOINT), first_record, entries_length)
