"""Checks the arguments of calls about transaction sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from controller_service.sets.transaction_set import MemberRecord, members_max
from pravega_common.errors import InvalidArgument
from pravega_common.names import split_scoped_name

id_chars_max: Final = 500
"""Length of a query id, a destination or a run id."""
batch_id_max: Final = 2**63 - 1

_TRANSACTION = re.compile(r"[0-9a-f]{32}")


def _check_id(what: str, value: str) -> None:
    if not 0 < len(value) <= id_chars_max:
        raise InvalidArgument(f"{what} {value[:40]!r} has {len(value)} characters: it must have 1 to {id_chars_max}")


def check_sink(query_id: str, destination: str) -> None:
    _check_id("query id", query_id)
    _check_id("destination", destination)


def check_batch(query_id: str, destination: str, run_id: str, batch_id: int, members: Sequence[MemberRecord]) -> None:
    """``InvalidArgument`` naming the first value that cannot be."""
    check_sink(query_id, destination)
    _check_id("run id", run_id)
    if not 0 <= batch_id <= batch_id_max:
        raise InvalidArgument(f"batch id {batch_id} must be in 0..{batch_id_max}")
    if len(members) > members_max:
        raise InvalidArgument(f"{len(members)} transactions in one call: at most {members_max} are possible")
    seen = set()
    for member in members:
        split_scoped_name(member.stream)
        if _TRANSACTION.fullmatch(member.transaction) is None:
            raise InvalidArgument(f"transaction {member.transaction[:40]!r} is not an id of 32 hex digits")
        if min(member.partition, member.events, member.bytes) < 0:
            raise InvalidArgument(
                f"partition, events and bytes of transaction {member.transaction} must not be below 0"
            )
        if (member.stream, member.transaction) in seen:
            raise InvalidArgument(f"transaction {member.transaction} of {member.stream} is named twice")
        seen.add((member.stream, member.transaction))


def check_commit(
    query_id: str,
    destination: str,
    run_id: str,
    batch_id: int,
    members: Sequence[MemberRecord],
    events: int,
    size_bytes: int,
) -> None:
    """``InvalidArgument`` also when the members hold more than the batch."""
    check_batch(query_id, destination, run_id, batch_id, members)
    held_events = sum(member.events for member in members)
    held_bytes = sum(member.bytes for member in members)
    if held_events > events or held_bytes > size_bytes:
        raise InvalidArgument(
            f"the members hold {held_events} events of {held_bytes} bytes, more than the batch's {events} events of "
            f"{size_bytes} bytes"
        )
