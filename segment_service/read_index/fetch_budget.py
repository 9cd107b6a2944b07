"""Shares what a store may bring from Tier 2 among its readers: bytes on their way, and bytes that nobody read yet."""

from __future__ import annotations

from typing import Final

from pravega_common.runtime.byte_gate import ByteGate
from segment_service.cache.manager import CacheManager, ahead_of_scans_fraction
from segment_service.contracts.second_level_cache import SegmentKey

fetch_bytes_max: Final = 1024 * 1024
"""One read of Tier 2."""
scan_fetch_bytes_max: Final = 4 * 1024 * 1024
"""One read of Tier 2 for a scan: an object store takes longer to begin an answer than to send this. Also the largest
block that a fetch puts into the cache."""
read_ahead_bytes: Final = 4 * 1024 * 1024
"""How far ahead of a sequential reader fetches are started. One that has read as much in one piece is a scan."""
scan_ahead_bytes_max: Final = 32 * 1024 * 1024
"""How far ahead of a scan fetches are started while there are few of them."""
fetched_bytes_max: Final = 64 * 1024 * 1024
"""Bytes on their way from Tier 2 at a time, for one store; further ones wait, read-ahead is left out. Each is in memory
twice for a moment: as it came, and as the cache gets it."""
scan_generations_max: Final = 4
"""Generations of the cache after which a scan that read nothing counts no more."""
scans_max: Final = 1_024
"""Scans that are counted; of more, the latest ones."""


class FetchBudget:
    """One for all containers of a store.

    ``run``, here and below, is the number of bytes that a reader has read in one piece: 0 for a random read.
    """

    def __init__(self, cache: CacheManager) -> None:
        self.gate = ByteGate(fetched_bytes_max)
        self._cache = cache
        self._scans: dict[tuple[SegmentKey, int], int] = {}
        """The generation of the cache at the last read of each scan, by segment and first offset; the oldest first."""

    @property
    def scan_count(self) -> int:
        """Scans that have read lately."""
        return len(self._scans)

    def note_read(self, segment: SegmentKey, offset: int, run: int) -> None:
        """Counts the reader of the segment whose next read begins at ``offset``."""
        if run < read_ahead_bytes:
            return
        now = self._cache.generation
        key = segment, offset - run
        self._scans.pop(key, None)
        self._scans[key] = now
        oldest = next(iter(self._scans))
        while now - self._scans[oldest] > scan_generations_max or len(self._scans) > scans_max:
            del self._scans[oldest]
            oldest = next(iter(self._scans))

    def ahead_bytes(self, run: int) -> int:
        """Returns how far ahead of such a reader fetches are started."""
        if run < read_ahead_bytes:
            return read_ahead_bytes
        share = int(self._cache.storage.bytes_max * ahead_of_scans_fraction) // max(1, self.scan_count)
        return min(max(share, read_ahead_bytes), scan_ahead_bytes_max)

    def fetch_bytes(self, run: int) -> int:
        """Returns the length of the longest fetch for such a reader."""
        is_alone = run >= read_ahead_bytes and self.ahead_bytes(run) >= 2 * scan_fetch_bytes_max
        return scan_fetch_bytes_max if is_alone else fetch_bytes_max
