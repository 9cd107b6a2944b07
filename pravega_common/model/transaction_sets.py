"""Defines transaction sets, our controller's extension: several transactions that are decided as one."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from typing import Final

sink_secret_bytes: Final = 32
"""Length of the secret of a sink."""
label_chars_max: Final = 200
"""Characters of a sink's label; further ones are cut off."""
UNNAMED_PREFIX: Final = "write:"
"""Begins the query id of a batch write without a name, which no other write ever has."""


def is_unnamed_write(query_id: str) -> bool:
    return query_id.startswith(UNNAMED_PREFIX)


def label_of(text: str) -> str:
    """Makes a label of any text: one line of characters that a terminal can show, and not too long."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown.strip()[:label_chars_max].strip()


@dataclass(frozen=True, slots=True)
class Sink:
    """A query (stable id) that writes to one destination, ``scope/stream`` or ``scope/*``.

    ``secret``: proves to the controller that the caller may speak for the sink; no part of its name, and never shown.
    ``label``: the name that people gave the query, as of its last batch. It is shown and decides nothing: two sinks may
    have one, and a query may change it.
    """

    query_id: str
    destination: str
    secret: bytes = field(default=b"", repr=False, compare=False)
    label: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SetMember:
    """One transaction of a batch, with what its task wrote to it."""

    scope: str
    stream: str
    transaction_id: uuid.UUID
    partition: int
    events: int = 0
    bytes: int = 0


class SetState(enum.Enum):
    """The state of a transaction set, as the API shows it."""

    NONE = "none"
    """Nothing is on record for the batch."""
    PENDING = "pending"
    COMMITTED = "committed"
    """Decided; its members are being made readable."""
    FINISHED = "finished"
    REFUSED = "refused"


class RegisterStatus(enum.Enum):
    """The answer to the registration of a batch's transactions."""

    REGISTERED = "registered"
    BATCH_DECIDED = "batch_decided"
    FENCED = "fenced"
    TRANSACTION_NOT_OPEN = "transaction_not_open"


class CommitStatus(enum.Enum):
    """The answer to the commit of a transaction set."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already_committed"
    REPLAY_DIFFERS = "replay_differs"
    CHECKPOINT_BEHIND_SINK = "checkpoint_behind_sink"
    FENCED = "fenced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TransactionSet:
    """A batch as the controller has it on record; ``events`` and ``bytes`` are the whole batch's."""

    state: SetState
    batch_id: int
    run_id: str
    members: tuple[SetMember, ...]
    events: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Registration:
    """The controller's answer to a registration."""

    status: RegisterStatus
    detail: str
    last_committed_batch_id: int
    renewed_for_ms: int
    """How long the transactions stay open; register again well before this time is over."""


@dataclass(frozen=True, slots=True)
class SetDecision:
    """The controller's answer to the commit of a set."""

    status: CommitStatus
    detail: str
    recorded: TransactionSet


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """A sink as the controller describes it."""

    sink: Sink
    last_committed_batch_id: int
    run_id: str
    touched_ms: int
    last_set: TransactionSet
