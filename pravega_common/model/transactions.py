"""Defines the states and answers of a transaction on one stream."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass

from pravega_common.model.segments import SegmentRange


class TransactionState(enum.Enum):
    """The state of a transaction. The values are stored."""

    UNKNOWN = "unknown"
    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"


class PingStatus(enum.Enum):
    """The answer to the renewal of a transaction's lease."""

    OK = "ok"
    LEASE_TOO_LARGE = "lease_too_large"
    MAX_EXECUTION_TIME_EXCEEDED = "max_execution_time_exceeded"
    SCALE_GRACE_TIME_EXCEEDED = "scale_grace_time_exceeded"
    """Sent by old controllers only."""
    DISCONNECTED = "disconnected"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NewTransaction:
    """A transaction that was just begun.

    The ids of ``segments`` are generalised to the transaction's epoch, for the names of the transaction segments.
    """

    transaction_id: uuid.UUID
    segments: tuple[SegmentRange, ...]
