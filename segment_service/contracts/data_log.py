"""Defines the contract of Tier 1: a totally ordered, fenced, durable log of data frames for one container."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, Protocol

from segment_service.contracts.buffer import Buffer

frame_bytes_max: Final = 1024 * 1024
"""Bytes of one data frame, header and trailer included."""
frames_in_flight_max: Final = 4
frames_in_flight_bytes_max: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, order=True)
class LogAddress:
    """The beginning of a frame in the log. Ordered over the whole life of the log, over all its epochs."""

    plog_number: int
    """Position of the plog in the log stream, from 0, never reused."""
    offset: int
    """Byte offset inside the plog."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A frame as it is read back."""

    address: LogAddress
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Replication:
    """Compares the copies of a log with what they should be; empty for a log of one copy."""

    under_replicated_plogs: int = 0
    """Plogs that some server is not known to have whole."""
    servers_out: Mapping[str, str] = field(default_factory=dict)
    """The addresses of the servers that do not take part, and why."""


CheckOwner = Callable[[], Awaitable[None]]
"""``DurableDataLog.check_owner``."""


class DurableDataLog(Protocol):
    """One container's log. At most one instance, the one with the highest epoch, can append at any time.

    Order: frames are durable, visible to ``read`` and acknowledged in the order of the ``append`` calls. If an
    append fails, every later one fails too: the log is then over (``Fenced``, ``Unavailable``, ``UnknownOutcome``)
    and its owner goes offline. A broken connection or a restarted server is healed inside, at the same epoch,
    within ``heal_time_max_s`` of the implementation; the owner only sees a slow append.
    An unknown append is never acknowledged by guess: it is read back after a fence and either acked or written again.
    """

    @property
    def container_id(self) -> int: ...

    @property
    def epoch(self) -> int:
        """The epoch of this instance, from ``initialize`` on; greater than that of every earlier owner."""
        ...

    async def initialize(self, epoch_min: int = 1) -> None:
        """Take an epoch of at least ``epoch_min``, fence every earlier owner, find the end of the log. ``Fenced`` if
        somebody came later, ``DataCorruption`` if the log has less than ``note_loss`` noted. No frame is written,
        changed or deleted."""
        ...

    async def check_owner(self) -> None:
        """Return only if no later owner had taken the log over when this was called, so that one reads what is in
        Tier 2 by then; ``Fenced`` if one had. Adds no frame and needs no room: a full log answers too."""
        ...

    def read(self) -> AsyncIterator[LogEntry]:
        """All frames from the truncation point to the end found by ``initialize``; called once, before any append.

        ``DataCorruption`` on bytes that fail their checksum, their sequence or their chain: never skipped.
        """
        ...

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        """Append the joined buffers (≤ ``frame_bytes_max``) as one frame; registers at once, in call order.

        ``checksum``: the CRC32C of the frame, from a caller that has it; the log then does not look at the bytes for
        its own. Entries are held against it when they are read, so with a wrong one the frame is damaged.
        The future gives the frame's address once it is durable. The buffers must never change while somebody holds a
        view on them: a server that is slower than the majority may be sent them after the future is done.
        The caller keeps to ``frames_in_flight_max`` and ``frames_in_flight_bytes_max``.
        """
        ...

    @property
    def replication(self) -> Replication:
        """The state of the copies as the owner last saw it; asks nobody."""
        ...

    @property
    def groups(self) -> Set[str]:
        """The names of the persistence groups that hold some of the log or may get its next plog; none for a log in
        files."""
        ...

    @property
    def failures_total(self) -> int:
        """Times that the servers failed an append, or did not answer it, and the log went on in another plog."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether appends wait because the servers have no memory for them. They go on once there is some; the log is
        not over."""
        ...

    async def wait_full(self) -> None:
        """Wait until ``is_full``."""
        ...

    def relieve(self) -> None:
        """Let the frames that wait now exceed the memory that servers allow. The owner calls it while the log is full
        and Tier 2 has all that is durable: a checkpoint among these frames, or behind them, then lets it truncate."""
        ...

    async def truncate(self, up_to: LogAddress) -> None:
        """Forget all frames before ``up_to``, which must be the address of a frame that begins with a checkpoint.

        The new truncation point is durable before anything is deleted. Space is freed in whole plogs.
        """
        ...

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call this when the log is over by itself (fenced, not healed in time, damaged, broken inside), also while
        nobody appends. The futures of the failed appends may end before or after."""
        ...

    async def note_loss(self) -> None:
        """Note how much was acknowledged, apart from the frames: the owner found some of them lost, and no later one is
        to go on unaware. Also after ``close``, which may do it already; an error means that it is not noted."""
        ...

    async def close(self) -> None:
        """Stop; appends not yet acknowledged end with ``UnknownOutcome``. May be called twice."""
        ...
