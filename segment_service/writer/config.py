"""Configures the storage writer: when it flushes, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segment_service.metadata.quarantine import recheck_s_default

shared_flushes_at_once_max: Final = 512
"""Small flushes at the same time where Tier 2 shares objects: two groups of those that it puts as one."""

starts_per_turn_max: Final = 2
"""Flushes that begin in one turn of the event loop; then it has its turn for others, appends above all."""


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """Sizes in bytes, times in seconds."""

    flush_bytes: int = 8 << 20
    """Waiting bytes from which on a segment is flushed at once."""

    flush_age_s: float = 1.0
    """Nothing waits longer, but for transactions and index segments."""

    transaction_age_s: float = 10.0
    """A transaction's segment waits longer: merged before that, its bytes go to Tier 2 as part of the target only."""

    merge_age_s: float = 0.25
    """A merge waits so long: a commit over many segments does not compete with what it leaves for Tier 2."""

    index_age_ratio: int = 5
    """Factor by which an index segment waits longer: it grows by a few bytes a second."""

    behind_bytes_max: int = 64 << 20
    """Bytes logged behind a waiting operation that let it be flushed at once: it keeps Tier 1 from being truncated."""

    flushes_at_once_max: int = 8
    """Segments flushed at the same time."""

    small_flushes_at_once_max: int = 0
    """As many segments more, of which each has ``small_flush_bytes`` at most: Tier 2 puts what many of them bring at
    the same time as one object."""

    small_flush_bytes: int = 64 << 10
    """Waiting bytes up to which a flush is a small one."""

    retry_delay_min_s: float = 0.1
    retry_delay_max_s: float = 10.0
    """Longest pause while Tier 2 fails; it is tried until it answers."""

    damage_recheck_s: float = recheck_s_default
    """After this time a segment that is damaged in Tier 2 is tried again."""

    tick_s: float = 0.1
    """How often the ages are looked at."""

    operations_per_read_max: int = 1_000
    """Operations taken from the log in one go."""

    burst_operations_min: int = 50
    """Operations of one read from which on they are part of a burst, such as a commit over many segments."""

    gather_s: float = 0.25
    """Pause after a read of a burst, unless it brought as much as a read or a flush takes at once: the callers of the
    burst are answered before the rest of it is looked at for Tier 2."""

    idle_segments_max: int = 50_000
    """Segments with nothing waiting whose state in Tier 2 is remembered."""
