"""Decides where retention truncates a stream (docs/controller-api.md 3.11), as pure functions.

A *reference* is a stream cut that was taken at the tail, with the time of that and the stream's bytes up to it. Its
*value* is its age in milliseconds (TIME) or the bytes written since (SIZE). References are given oldest first.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.store.records import RetentionReference, SegmentRecord
from controller_service.store.stream_cuts import CoveredKeys, PlacedCut, is_at_or_after
from pravega_common.model.retention import RetentionPolicy, RetentionType

unlimited: Final = (1 << 63) - 1

Value = tuple[int, RetentionReference]


class Relation(enum.Enum):
    BEFORE = "before"
    EQUAL_OR_AFTER = "equal or after"
    OVERLAPS = "overlaps"
    """Ahead in one part of the key space, behind in another."""


class TruncationBound(enum.Enum):
    """Truncate where the slowest subscriber is, segment by segment."""

    SUBSCRIBERS = "subscribers"


Target = RetentionReference | TruncationBound | None
"""Where to truncate; None: nowhere."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The references that matter for a policy, each with its value."""

    minimum: Value | None
    """The youngest that keeps at least the policy's minimum."""
    maximum: Value | None
    """The oldest that keeps no more than the maximum and no less than the minimum; else ``minimum``."""
    beyond: Value | None
    """The youngest that keeps the maximum or more."""


@dataclass(frozen=True, slots=True)
class BoundFacts:
    """The position of the subscribers' lower bound among the references."""

    retained: int
    """Bytes from the bound to the newest reference, below 0 if the bound is later. Matters for SIZE only."""
    minimum: Relation
    """``Candidates.minimum`` against the bound; anything without a minimum."""
    beyond: Relation
    """The bound against ``Candidates.beyond``; anything without one."""
    newest_before: RetentionReference | None
    """The newest reference that no part of the bound lies before."""


def compare(first: PlacedCut, second: PlacedCut) -> Relation:
    """``first`` against ``second``: by offset where both have the same segment, by id where others share keys.

    A segment not reached yet (offset below 0) stands only for the keys in which its own cut has reached nothing else.
    """
    if is_at_or_after(first, second):
        return Relation.EQUAL_OR_AFTER
    return Relation.BEFORE if is_at_or_after(second, first) else Relation.OVERLAPS


def lower_bound(cuts: Iterable[PlacedCut]) -> dict[int, int]:
    """The cut that no part of any of ``cuts`` lies before; empty without cuts.

    Per segment the smallest offset. An older segment takes precedence over newer ones of the same keys: they are left
    out, or count as not reached (-1) where they have keys that nothing older covers.
    """
    offsets: dict[int, int] = {}
    segments: dict[int, SegmentRecord] = {}
    for placed in cuts:
        segments.update(placed.segments)
        for identifier, offset in placed.cut.items():
            offsets[identifier] = min(offset, offsets.get(identifier, offset))
    bound: dict[int, int] = {}
    older = CoveredKeys()
    for identifier in sorted(offsets):
        segment = segments[identifier]
        if not older.overlap(segment.key_start, segment.key_end):
            bound[identifier] = offsets[identifier]
        elif not older.cover(segment.key_start, segment.key_end):
            bound[identifier] = -1
        older.add(segment.key_start, segment.key_end)
    return bound


def limits(policy: RetentionPolicy) -> tuple[int, int]:
    """Minimum and maximum. A maximum that was never set arrives as 0 and means no limit; one below the minimum counts
    as the minimum, which is kept in any case."""
    return policy.minimum, max(policy.minimum, policy.maximum or unlimited)


def candidates(policy: RetentionPolicy, references: Sequence[RetentionReference], now_ms: int) -> Candidates:
    """``references`` oldest first, ``now_ms`` in milliseconds since 1970."""
    if not references:
        return Candidates(None, None, None)
    least, most = limits(policy)
    newest = references[-1]
    is_time = policy.retention_type is RetentionType.TIME
    if is_time:
        kept = [now_ms - recorded_ms for recorded_ms in _recorded(references, now_ms)]
    else:
        kept = [newest.size_till - reference.size_till for reference in references]
    values = list(zip(kept, references, strict=True))
    enough = [value for value in values if value[0] >= least]
    minimum = enough[-1] if enough else None
    within = [value for value in enough if value[0] <= most]
    beyond = [value for value in values if value[0] >= most]
    return Candidates(minimum, within[0] if within else minimum, beyond[-1] if beyond else None)


def _recorded(references: Sequence[RetentionReference], now_ms: int) -> list[int]:
    """The latest times at which they may have been recorded: what has an earlier time than one before it, as a clock
    was behind for a while, perhaps another controller's, was recorded before the next one. Times that are still to come
    are of a clock that was ahead, and tell of no other one."""
    behind: set[RetentionReference] = set()
    latest_ms = 0
    for reference in references:
        if reference.recorded_ms < latest_ms:
            behind.add(reference)
        elif reference.recorded_ms <= now_ms:
            latest_ms = reference.recorded_ms
    recorded: list[int] = []
    next_ms = now_ms
    for reference in reversed(references):
        recorded.append(next_ms if reference in behind else reference.recorded_ms)
        next_ms = min(recorded[-1], now_ms)
    return recorded[::-1]


def decide(policy: RetentionPolicy, found: Candidates, bound: BoundFacts | None) -> Target:
    """The target of the truncation. There is no ``bound`` without subscribers and until one has released something."""
    if bound is None:
        return _reference(found.minimum)
    if policy.retention_type is RetentionType.SIZE:
        return _by_size(policy, found, bound)
    return _by_time(found, bound)


def _by_size(policy: RetentionPolicy, found: Candidates, bound: BoundFacts) -> Target:
    least, most = limits(policy)
    if bound.retained < least:
        if found.minimum is None:
            return None
        return found.minimum[1] if bound.minimum is Relation.BEFORE else bound.newest_before
    if bound.retained >= most and found.maximum is not None and found.maximum[0] < bound.retained:
        return found.maximum[1]
    return TruncationBound.SUBSCRIBERS


def _by_time(found: Candidates, bound: BoundFacts) -> Target:
    if found.minimum is None:
        return None
    if bound.minimum is Relation.BEFORE:
        return found.minimum[1]
    if found.beyond is None or bound.beyond is Relation.EQUAL_OR_AFTER:
        return bound.newest_before if bound.minimum is Relation.OVERLAPS else TruncationBound.SUBSCRIBERS
    return _reference(found.maximum) if bound.beyond is Relation.BEFORE else found.beyond[1]


def _reference(value: Value | None) -> RetentionReference | None:
    return None if value is None else value[1]
