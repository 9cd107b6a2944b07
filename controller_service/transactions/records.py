"""Defines the stored records of a stream's transactions."""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from pravega_common import names
from pravega_common.errors import DataCorruption
from pravega_common.model.transactions import TransactionState

completed_listed_max: Final = 500
"""Completed transactions of a stream that can be listed (docs/controller-api.md 4.7)."""


@dataclass(frozen=True, slots=True)
class SetReference:
    """The transaction set that a transaction is bound to: the set's sequence number within its sink, never reused."""

    sink: str
    sequence: int


@dataclass(frozen=True, slots=True)
class RegistrationRecord:
    """The batch that a transaction was begun for; while it is undecided its calls keep the transaction open."""

    sink: str
    batch_id: int
    run_id: str


@dataclass(frozen=True, slots=True)
class ActiveTransaction:
    """A transaction that is open, committing or aborting.

    ``segments``: the numbers of its segments, all of the epoch in its id. Times are milliseconds of the wall clock.
    ``commit_time_ms`` is what the writer noted at its commit, with its ``writer_id``.
    """

    state: TransactionState
    created_ms: int
    lease_ms: int
    lease_expiry_ms: int
    execution_expiry_ms: int
    segments: tuple[int, ...]
    writer_id: str = ""
    commit_time_ms: int | None = None
    bound_to: SetReference | None = None
    registration: RegistrationRecord | None = None
    lost: bool = False
    """It was to be committed and lost data; an operator gave it up."""


@dataclass(frozen=True, slots=True)
class MergeTarget:
    """The bytes that one stream segment is to receive in a round.

    The lengths were measured, with every source present, before this record was written and before anything was
    merged. A source that is missing later was therefore merged under this record, and the target must have grown
    by at least as much.
    """

    number: int
    length_before: int
    source_lengths: tuple[int, ...]

    def verify(self, segment: str, lengths_after: Sequence[int]) -> None:
        """``lengths_after[k]``: the target's length after the k-th merge; ``DataCorruption`` when bytes are missing."""
        if len(lengths_after) != len(self.source_lengths):
            raise DataCorruption(f"{segment}: {len(self.source_lengths)} merges were answered by {len(lengths_after)}")
        least = itertools.accumulate(self.source_lengths, initial=self.length_before)
        next(least)
        for merged, (expected, found) in enumerate(zip(least, lengths_after, strict=True)):
            if found < expected:
                raise DataCorruption(
                    f"{segment}: length {found} after merge {merged + 1} of {len(lengths_after)}, at least {expected} "
                    "expected: a transaction segment vanished without having been merged"
                )


@dataclass(frozen=True, slots=True)
class CommittingTransaction:
    id: str
    writer_id: str = ""
    commit_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CommittingRecord:
    """The round that is being made readable; durable before its first merge, gone after its last step.

    ``active_epoch`` is the stream's when the round began. A ``rolling`` round adds two epochs after it
    (docs/controller-api.md 4.5).
    """

    transactions: tuple[CommittingTransaction, ...] = ()
    epoch: int = 0
    active_epoch: int = 0
    rolling: bool = False
    started_ms: int = 0
    targets: tuple[MergeTarget, ...] = ()
    loss_accepted: bool = False
    """An operator lets the round end although bytes are missing."""

    @property
    def is_idle(self) -> bool:
        return not self.transactions

    @property
    def ids(self) -> tuple[uuid.UUID, ...]:
        return tuple(uuid.UUID(hex=item.id) for item in self.transactions)


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    state: TransactionState
    completed_ms: int
    lost: bool = False
    """As of ``ActiveTransaction``."""


NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class CompletedBatches:
    """The spans of time of which completed transactions are kept, by their numbers, oldest first."""

    record_version: ClassVar[int] = 2

    numbers: tuple[int, ...] = ()
    sharded_from: int = NEVER
    """From this number on a span has several tables, before it one."""


_RECENT_ENTRY: Final = struct.Struct("!16sBq")
_RECENT_STATES: Final = (TransactionState.COMMITTED, TransactionState.ABORTED)


@dataclass(frozen=True, slots=True)
class RecentlyCompleted:
    """The last completed transactions of a stream, newest last; 25 bytes each."""

    entries: tuple[tuple[uuid.UUID, CompletedTransaction], ...] = ()

    def adding(self, entries: Iterable[tuple[uuid.UUID, CompletedTransaction]]) -> RecentlyCompleted:
        known = dict(self.entries)
        for identifier, record in entries:
            known.setdefault(identifier, record)
        return RecentlyCompleted(tuple(known.items())[-completed_listed_max:])

    def encode(self) -> bytes:
        return b"".join(
            _RECENT_ENTRY.pack(identifier.bytes, _RECENT_STATES.index(record.state), record.completed_ms)
            for identifier, record in self.entries
        )

    @classmethod
    def decode(cls, data: bytes) -> RecentlyCompleted:
        """``DataCorruption`` for bytes that ``encode`` did not make."""
        try:
            return cls(
                tuple(
                    (uuid.UUID(bytes=identifier), CompletedTransaction(_RECENT_STATES[state], completed_ms))
                    for identifier, state, completed_ms in _RECENT_ENTRY.iter_unpack(data)
                )
            )
        except (struct.error, IndexError) as error:
            raise DataCorruption(f"no list of completed transactions: {data[:80]!r} ({error})") from error


def transaction_segments(scope: str, stream: str, identifier: uuid.UUID, numbers: Iterable[int]) -> list[str]:
    """The names of a transaction's segments: of the epoch in its id, whatever the stream's epoch is by now.

    See docs/controller-api.md 4.2.
    """
    epoch = names.transaction_epoch(identifier)
    return [
        names.transaction_segment_name(names.segment_name(scope, stream, names.segment_id(number, epoch)), identifier)
        for number in numbers
    ]
