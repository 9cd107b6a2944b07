"""Decides how many segments a reader takes or gives back, so that readers own equally many, give or take one.

The Rust client takes up to the larger share at once and gives back only above it; a group of both clients still comes
to rest, because nobody takes beyond the larger share.
"""

from __future__ import annotations

from pravega_streams.readers.group_state import GroupState


def shares(state: GroupState) -> tuple[int, int]:
    """The smaller and the larger fair number of segments of one reader."""
    count, readers = sum(1 for _ in state.held_segments()), max(1, len(state.assigned))
    return count // readers, -(-count // readers)


def may_acquire(state: GroupState, reader: str) -> int:
    """Count the unassigned segments that are due to a reader; what others lack to the smaller share is left to them."""
    low, high = shares(state)
    mine = len(state.assigned[reader])
    due = max(0, low - mine)
    missing = sum(max(0, low - len(held)) for name, held in state.assigned.items() if name != reader)
    spare = max(0, len(state.unassigned) - due - missing)
    return min(len(state.unassigned), due + min(spare, max(0, high - mine - due)))


def should_release(state: GroupState, reader: str) -> int:
    """Count the segments that a reader should give back for others."""
    low, high = shares(state)
    mine = len(state.assigned[reader])
    if mine > high:
        return mine - high
    missing = sum(max(0, low - len(held)) for held in state.assigned.values())
    return 1 if mine == high > low and missing > len(state.unassigned) else 0
