"""Defines the contract between the storage writer and Tier 2: segments as growing byte strings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pravega_common.errors import SegmentDamaged
from segment_service.contracts.buffer import Buffer

write_bytes_max = 16 << 20
"""Bytes of one write, which is one object."""

Barrier = Callable[[], Awaitable[None]]
"""Returns once the container's log proved that no later owner had taken it over when this was called, or raises
``Fenced``; see ``segment_service.contracts.data_log.DurableDataLog.check_owner``."""


OnDamage = Callable[[int, int, int, SegmentDamaged], None]
"""Takes the segment's id, and the offset and length of a range in which some byte is damaged."""


class NeededLengths(Protocol):
    """Knows the lengths that Tier 2 must have of the segments of a container, by id."""

    async def wait_known(self) -> None:
        """Wait until ``length`` and ``inactive`` can be asked. A container with a full Tier 1 knows the lengths only
        once Tier 2 has what it holds: nobody may keep a segment from being written while waiting here."""
        ...

    def active(self) -> dict[int, int]:
        """The lengths of the segments in memory that have bytes in Tier 2."""
        ...

    async def length(self, segment_id: int) -> int:
        """The length of this segment, as of now; 0 if nothing of it is needed."""
        ...

    def is_moving(self, segment_id: int) -> bool:
        """Whether the segment is merged into another one in the log, and not known to be in Tier 2: there it may have
        its length still, or nothing any more."""
        ...

    async def inactive(self, first_id: int, count_max: int) -> list[tuple[int, int]]:
        """Ids and lengths of the first ``count_max`` others from ``first_id`` on, in order; empty at the end.
        0 for one that is in memory after all, or gone."""
        ...


@dataclass(frozen=True, slots=True)
class StorageState:
    """The bytes [start_offset, length) of one segment that are in Tier 2.

    ``start_offset`` is exact (the truncation offset); chunks wholly below it are deleted in the background.
    """

    segment_id: int
    start_offset: int
    length: int
    is_sealed: bool


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a container's log by which Tier 2 knows that log again."""

    identity: bytes
    """``contracts.log_identity``."""
    high_water: int
    """Sequence number of the last operation that is known to be durable."""
    next_segment_id: int
    """Durable operations have used the ids below."""


blocking_high_water: Final = 2**62
"""No operation of any log has this number: the high water of a mark that keeps a container from starting."""

LogStateNow = Callable[[], LogState]


@dataclass(frozen=True, slots=True)
class EpochMark:
    """A note in Tier 2 of an owner of the container, about the log that it had."""

    epoch: int
    log: LogState | None
    """``None`` in the marks of programs that wrote none."""
    has_journals: bool = False
    """Whether the journals of changes name all segments of which owners up to this one may have left garbage."""

    @property
    def is_blocking(self) -> bool:
        """Whether a restore of a backup left it that did not end: Tier 2 may have a part of the objects."""
        return self.log is not None and self.log.high_water == blocking_high_water


class SegmentStorage(Protocol):
    """Tier 2 of one container at one epoch, by segment *id* (ids are never reused).

    One caller at a time per segment (the storage writer); reads are concurrent with everything. Each method is
    idempotent in the sense that after an ``UnknownOutcome`` or ``Unavailable`` the caller asks ``state`` and goes on
    from what is really there. Nothing is deleted before ``barrier`` has returned after the manifest without it was
    stored, and nothing whose name carries a higher epoch is ever deleted: then the call raises ``Fenced``.

    ``sequence`` is the last operation of the log whose effect a change is; ``None`` if it may depend on any that is
    durable now. The change shows only after a mark is stored whose high water is at least that: a log that lost the
    operation cannot start beside its effect. Changes that a mark covers do not wait, the others share the next one.
    """

    async def newest_mark(self) -> EpochMark | None:
        """The mark of the highest epoch, its last one. Also before ``start``."""
        ...

    async def first_object(self) -> str:
        """The name of any object of this container; empty without one. Also before ``start``."""
        ...

    async def start(self, epoch: int, barrier: Barrier, log_state: LogStateNow) -> None:
        """Open at the epoch of the container and leave its first mark. ``Fenced`` if another mark carries as high an
        epoch. May be repeated after ``UnknownOutcome`` and ``Unavailable``."""
        ...

    async def mark(self, high_water: int) -> None:
        """See to it that the newest mark has at least this high water, which is durable: store one with the present
        state of the log unless the last one will do."""
        ...

    async def state(self, segment_id: int) -> StorageState | None:
        """The state as the manifests in Tier 2 say now, past any cache; ``None`` if Tier 2 has nothing. Puts without an
        answer that are done later, an earlier owner's too, may change it."""
        ...

    async def settled_state(self, segment_id: int, known_length: int) -> StorageState | None:
        """As ``state``, and what it says beyond ``known_length`` bytes that are not sealed stays, whatever becomes of
        puts without an answer."""
        ...

    async def write(self, segment_id: int, offset: int, data: Sequence[Buffer], sequence: int | None = None) -> None:
        """Add bytes at ``offset``, which must be the segment's length in Tier 2 (0 creates it; else ``BadOffset``)."""
        ...

    async def seal(self, segment_id: int, sequence: int | None = None) -> None: ...

    async def truncate(self, segment_id: int, offset: int, sequence: int | None = None) -> None:
        """Forget what lies below ``offset``. An offset beyond the length in Tier 2 says that the bytes between will
        never come (they were truncated before they were written): the segment then begins and ends there."""
        ...

    async def concat(self, target_id: int, offset: int, source_id: int, sequence: int | None = None) -> None:
        """Move all chunks of the source to the end of the target (``offset`` = target's length in Tier 2):
        first into the target's manifest, then out of the source's. Idempotent."""
        ...

    async def delete(self, segment_id: int, sequence: int | None = None) -> None:
        """Idempotent; also for a segment that never reached Tier 2."""
        ...

    async def read(self, segment_id: int, offset: int, length: int) -> Buffer:
        """Exactly ``length`` bytes; ``SegmentNotFound``/``BadOffset``/``SegmentTruncated`` if they are not there.
        ``SegmentDamaged`` if they fail their checksums or are lost: no byte is given out that was not checked, but for
        chunks that were written without checksums."""
        ...

    def block_around(self, segment_id: int, offset: int) -> tuple[int, int] | None:
        """The start and the end of the bytes that are read together with the one at ``offset``; ``None`` if they are
        not known without asking Tier 2. Reads that begin and end there read nothing twice."""
        ...

    def watch_damage(self, needed_lengths: NeededLengths, callback: OnDamage) -> None:
        """Call this when something that works in the background here finds damage, and delete nothing of a segment that
        has fewer bytes than it needs. Readers and the storage writer get ``SegmentDamaged`` themselves."""
        ...

    @property
    def unswept_segments(self) -> int:
        """Segments whose garbage the last sweep left, as they are damaged or in the middle of a merge."""
        ...

    @property
    def sweep_failures(self) -> int:
        """Sweeps for garbage that failed."""
        ...

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call this when something that works in the background here died: the container must then stop."""
        ...

    async def close(self) -> None: ...
