"""Replies without what differs from run to run or is left to the server."""

from __future__ import annotations

import re
from typing import Any

from pravega_common.wire.commands import (
    Command,
    ErrorMessage,
    Hello,
    SegmentCreated,
    StreamSegmentInfo,
    TableEntriesDeltaRead,
    TableEntriesRead,
    TableKeysRead,
    TableSegmentInfo,
    WireTableEntry,
    WireTableKey,
)


def comparable(reply: Command) -> Any:
    """A reply without what differs from run to run or is left to the server."""
    if isinstance(reply, Hello):
        return "Hello"
    if isinstance(reply, StreamSegmentInfo):
        return reply.with_fields(last_modified=0)
    if isinstance(reply, ErrorMessage):
        return reply.with_fields(message="")
    if isinstance(reply, SegmentCreated):
        return reply.with_fields(segment=re.sub(r"(#transient\.\w{32}\.)\w{32}$", r"\1", reply.segment))
    if isinstance(reply, TableKeysRead):
        return (sorted(reply.keys), bool(reply.continuation_token))
    if isinstance(reply, TableEntriesRead):
        return (sorted(plain(reply.entries)), bool(reply.continuation_token))
    if isinstance(reply, TableEntriesDeltaRead):
        return (sorted(plain(reply.entries)), reply.should_clear, reply.reached_end, reply.last_position)
    if isinstance(reply, TableSegmentInfo) and reply.key_length:
        return reply.with_fields(entry_count=0)
    return reply


def plain(entries: tuple[WireTableEntry, ...]) -> list[tuple[WireTableKey, bytes]]:
    return [(entry.key, bytes(entry.value)) for entry in entries]
