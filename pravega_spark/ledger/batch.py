"""Defines the batch of a sink: its identity, its registration and its commit.

Each is one value, which passes unchanged from the sink through the gateway to the controller, or to the ledger in a
table segment where the controller cannot decide a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pravega_common.model.transaction_sets import SetMember, SetState, Sink, TransactionSet

UnresolvedPolicy = Literal["fail", "skip", "replay"]
"""The values of option ``on_unresolved_batch``."""
JOB_PREFIX: Final = "job:"
"""Begins the query id of a batch write that option ``job_id`` names."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The name of a batch: its sink, its number, and the run that writes it."""

    sink: Sink
    run_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of {self.sink.query_id} (run {self.run_id}) into {self.sink.destination}"


@dataclass(frozen=True, slots=True)
class BatchRegistration:
    """Transactions to bind to their batch, and to keep open until it is decided; none of a task without a row yet."""

    identity: BatchIdentity
    members: tuple[SetMember, ...]


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """The transaction set of a whole batch, to be committed as one, with the counts of the batch.

    ``on_unresolved``: for stores that may not know whether an earlier attempt was committed.
    """

    identity: BatchIdentity
    members: tuple[SetMember, ...]
    events: int
    size_bytes: int
    on_unresolved: UnresolvedPolicy = "fail"

    def as_set(self, state: SetState) -> TransactionSet:
        """The set as it is recorded; members in the order in which they are committed."""
        ordered = tuple(sorted(self.members, key=lambda member: member.partition))
        return TransactionSet(
            state, self.identity.batch_id, self.identity.run_id, ordered, self.events, self.size_bytes
        )
