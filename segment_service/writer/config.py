"""Configures the storage writer: when it flushes, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from segment_service.contracts.segment_storage import write_bytes_max
from segment_service.metadata.quarantine import recheck_s_default

shared_flushes_at_once_max: Final = 512
"""Small flushes at the same time where Tier 2 shares objects: two groups of those that it puts as one."""

age_groups: Final = 8
"""Groups of segments that fall due at different times where many wait; those of a group share objects of Tier 2."""

container_phase: Final = 0.618
"""By this part of a round the rounds of a quiet container come later than those of the container before: multiples of
the golden section lie apart, however many they are."""

quiet_log_bytes_max: Final = 16 << 20
"""Largest log of a container that is quiet behind what waits: more is worth the puts of a flush."""

quiet_share: Final = 4
"""The quiet containers of a store leave at most a quarter of what it may hold unflushed for long."""

starts_per_turn_max: Final = 2
"""Flushes that begin in one turn of the event loop; then it has its turn for others, appends above all."""

looks_per_turn_max: Final = 64
"""Segments that fell due and are looked at in one turn: some are to wait longer since they did."""


@dataclass(frozen=True, slots=True)
class WriterConfig:
    """Sizes in bytes, times in seconds."""

    flush_bytes: int = write_bytes_max
    """Waiting bytes from which on a segment is flushed at once: by default as many as one write takes, since each flush
    has a mark, a manifest and their deletion beside its bytes."""

    flush_age_s: float = 1.0
    """Nothing waits longer, but for transactions, index segments, where many segments wait, and in quiet containers."""

    quiet_age_ratio: float = 10.0
    """Factor by which a segment waits longer, at most, while its container is quiet: each flush costs some puts, for
    which object stores ask a price, however little it brings. Segments that do fall due together, and so share them."""

    quiet_log_bytes: int = quiet_log_bytes_max
    """Bytes logged behind a waiting operation, with ``operation_bytes`` for each, up to which a container is quiet."""

    quiet_group_segments: int = 1_000
    """Waiting segments of a quiet container that fall due at the same time; where more wait, they do in groups."""

    many_segments: int = 50
    """Waiting segments of a busy container from which on they wait longer, in proportion to their number: each brings
    more at a time, and the flushes of a second stay as many. They fall due in groups, of which each waits its own
    time."""

    many_age_ratio_max: float = 5.0
    """The largest factor by which a group waits longer."""

    transaction_age_s: float = 10.0
    """A transaction's segment waits longer: merged before that, its bytes go to Tier 2 as part of the target only."""

    merge_age_s: float = 0.25
    """A merge waits so long: a commit over many segments does not compete with what it leaves for Tier 2."""

    index_age_ratio: int = 5
    """Factor by which an index segment waits longer: it grows by a few bytes a second."""

    behind_bytes_max: int = 64 << 20
    """Bytes logged behind a waiting operation, with ``operation_bytes`` for each, that let it be flushed at once: it
    keeps Tier 1 from being truncated."""

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

    operations_per_read_max: int = 64
    """Operations taken from the log in one turn of the event loop: some 1 ms."""

    burst_operations_min: int = 50
    """Operations, of reads without a pause, from which on they are part of a burst, such as a commit over many
    segments."""

    gather_s: float = 1.0
    """Pause after a burst was read, unless it brought as many bytes as a flush takes at once: the callers of the
    burst are answered before the rest of it is looked at for Tier 2. Tasks that write to 1,000 segments and the commit
    behind them take half a second."""

    idle_segments_max: int = 50_000
    """Segments with nothing waiting whose state in Tier 2 is remembered."""


def quiet_log_bytes(unflushed_bytes_max: int, containers: int) -> int:
    """``WriterConfig.quiet_log_bytes`` for a store that may come to have all containers."""
    return min(quiet_log_bytes_max, unflushed_bytes_max // (quiet_share * containers))
