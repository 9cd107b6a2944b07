"""Defines the versions of the wire protocol, and which can talk to each other (docs/wire-protocol.md 3.1).

See docs/wire-protocol.md 1.2.
"""

from __future__ import annotations

from typing import Final

WIRE_VERSION: Final = 17
OLDEST_COMPATIBLE_VERSION: Final = 5
LOCATE_OFFSET_VERSION: Final = 17
BATCHES: Final = 1
"""Bit of ``Hello.extensions``: the peer knows RequestBatch."""
READ_BATCHES: Final = 2
"""Bit of ``Hello.extensions``: a RequestBatch may hold reads."""
SEGMENT_LENGTHS: Final = 4
"""Bit of ``Hello.extensions``: the peer knows GetSegmentLengths."""
EXTENSIONS: Final = BATCHES | READ_BATCHES | SEGMENT_LENGTHS
"""All extensions of the protocol that this project speaks; a plain Pravega has none."""
batch_requests_max: Final = 1_000
"""Requests of one batch."""
lengths_asked_max: Final = 1_000
"""Segments whose lengths one request asks for."""
batch_bytes_max: Final = 1024 * 1024
"""Bytes of the requests of one batch, with their frame headers."""
batch_read_bytes_max: Final = 4 * 1024 * 1024
"""Bytes that the reads of one batch may ask for together."""


def is_compatible(high_version: int, low_version: int) -> bool:
    """Whether a peer that speaks ``low_version`` to ``high_version`` shares a version with this project."""
    return low_version <= WIRE_VERSION and high_version >= OLDEST_COMPATIBLE_VERSION
