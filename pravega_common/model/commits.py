"""Defines the commit order of a stream and its obstacles, as operators see them."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass

from pravega_common.model.transactions import TransactionState


class ObstacleKind(enum.Enum):
    """The reason why the commits of a stream cannot go on."""

    LOST_TRANSACTION = "lost_transaction"
    """A segment or the record of a transaction is gone, and nothing of it was merged: it can be given up."""
    STRAY_ENTRY = "stray_entry"
    """A transaction is in the commit order, and neither committing nor committed: it can be given up."""
    SHORT_MERGE = "short_merge"
    """A round was begun, and a segment of the stream lacks bytes: the loss can be accepted."""
    LOST_SEGMENT = "lost_segment"
    """A segment, or a record, of the stream itself is gone: no command helps."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why the commits of a stream cannot go on."""

    kind: ObstacleKind
    detail: str
    transaction: uuid.UUID | None = None
    """Set for the first two kinds."""


@dataclass(frozen=True, slots=True)
class WaitingTransaction:
    """A transaction that is open, committing or aborting."""

    transaction_id: uuid.UUID
    state: TransactionState
    created_ms: int
    is_merging: bool
    """Whether it belongs to the round that is being merged."""


@dataclass(frozen=True, slots=True)
class Commits:
    """The commit order of a stream."""

    waiting: int
    """Transactions in the commit order."""
    merging: int
    """Transactions of these that are in the round that is being merged."""
    obstacles: tuple[Obstacle, ...]
    transactions: tuple[WaitingTransaction, ...]
