"""Spreads streams over the controllers that look after them (docs/controller-api.md 9), as pure functions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pravega_common.hashing import java_string_hash
from pravega_common.names import scoped_name

bucket_count: Final = 128
"""Also the number of controllers above which some have nothing to do."""


def bucket_of(scope: str, stream: str) -> int:
    return (java_string_hash(scoped_name(scope, stream)) & 0x7FFFFFFF) % bucket_count


def buckets_of(member_id: str, live_ids: Collection[str]) -> frozenset[int]:
    """The share of one of the live members; empty for one that is not."""
    members = sorted(live_ids)
    if member_id not in members:
        return frozenset()
    return frozenset(range(members.index(member_id), bucket_count, len(members)))
