"""Decides how the state of a reader group changes, in pure functions.

Every function gives the state it got if there is nothing to do, so a call may be repeated when its outcome is unknown.
``ReaderOffline`` is raised for a reader that is not, or no more, in the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pravega_common.errors import AlreadyExists, InvalidArgument
from pravega_common.invariants import check
from pravega_common.names import parse_segment_name
from pravega_streams.errors import ReaderOffline
from pravega_streams.readers import checkpoints
from pravega_streams.readers.balance import may_acquire
from pravega_streams.readers.group_state import GroupMember, GroupState, Positions, cuts_of
from pravega_streams.readers.lost_place import NewPlace, place_in

Transition = Callable[[GroupState], GroupState]
Successors = Mapping[str, frozenset[int]]
"""What follows a segment, by qualified name, with the ids of all predecessors of each."""


def add_reader(state: GroupState, member: GroupMember) -> GroupState:
    """``AlreadyExists`` while a reader of that name is online."""
    if state.is_online(member):
        return state
    if member.reader in state.assigned:
        raise AlreadyExists(f"reader {member.reader} is online in this group; take it offline first if it died")
    return replace(
        state,
        assigned={**state.assigned, member.reader: {}},
        incarnations={**state.incarnations, member.reader: member.incarnation},
    )


def remove_reader(state: GroupState, reader: str, positions: Positions | None = None) -> GroupState:
    """Give the reader's segments back, at ``positions`` where given, else at those that it recorded."""
    if reader not in state.assigned:
        return state
    given = positions or {}
    back = {segment: given.get(segment, offset) for segment, offset in state.assigned[reader].items()}
    state = replace(
        state,
        unassigned={**state.unassigned, **back},
        assigned={name: held for name, held in state.assigned.items() if name != reader},
        incarnations={name: number for name, number in state.incarnations.items() if name != reader},
    )
    return checkpoints.without_reader(state, reader, back)


def leave(state: GroupState, member: GroupMember, positions: Positions) -> GroupState:
    """Take a reader offline that asks for it itself; nothing happens if it was taken offline before.

    It does not go back behind what is recorded: others may have read there, and it does not know it yet.
    """
    if not state.is_online(member):
        return state
    held = state.assigned[member.reader]
    reached = {segment: max(positions.get(segment, offset), offset) for segment, offset in held.items()}
    return remove_reader(state, member.reader, reached)


def record(state: GroupState, member: GroupMember, positions: Positions) -> GroupState:
    """Note how far a reader has read. Segments that it does not own any more are left out."""
    held = _held(state, member)
    moved = {segment: max(positions.get(segment, offset), offset) for segment, offset in held.items()}
    if moved != held:
        state = _with_held(state, member, moved)
    return checkpoints.report(state, member.reader, moved)


def acquire(state: GroupState, member: GroupMember) -> GroupState:
    """Take as many unassigned segments as are due to this reader, the oldest first."""
    held = _held(state, member)
    if checkpoints.is_waited_for(state, member.reader):
        return state
    taken = sorted(state.unassigned, key=_age)[: may_acquire(state, member.reader)]
    if not taken:
        return state
    state = _with_held(state, member, {**held, **{segment: state.unassigned[segment] for segment in taken}})
    left = {segment: offset for segment, offset in state.unassigned.items() if segment not in taken}
    return replace(state, unassigned=left)


def release(state: GroupState, member: GroupMember, positions: Positions) -> GroupState:
    """Give segments back for other readers, each at the offset where to go on."""
    held = _held(state, member)
    given = {segment: max(offset, held[segment]) for segment, offset in positions.items() if segment in held}
    if not given or checkpoints.is_waited_for(state, member.reader):
        return state
    state = _with_held(state, member, {segment: offset for segment, offset in held.items() if segment not in given})
    return replace(state, unassigned={**state.unassigned, **given})


def complete(
    state: GroupState, member: GroupMember, segment: str, successors: Mapping[str, frozenset[int]]
) -> GroupState:
    """Replace a segment that is read to its end by its successors.

    A successor is given out when its last predecessor is complete. Without any, the group has read to the end of the
    stream, or to its own end in it.
    """
    held = _held(state, member)
    if segment not in held or checkpoints.is_waited_for(state, member.reader):
        return state
    state = _with_held(state, member, {name: offset for name, offset in held.items() if name != segment})
    if not successors:
        return replace(state, ended={**state.ended, segment: held[segment]})
    done = parse_segment_name(segment)
    future = dict(state.future)
    for successor, predecessors in successors.items():
        check(done.segment_id in predecessors, "not a successor", segment=segment, successor=successor)
        waiting = future.get(successor, predecessors) - {done.segment_id}
        future[successor] = waiting
    ready = {name: 0 for name, waiting in future.items() if not waiting}
    left = {name: waiting for name, waiting in future.items() if waiting}
    return replace(state, future=left, unassigned={**state.unassigned, **ready})


def go_on_at(state: GroupState, member: GroupMember, place: NewPlace) -> GroupState:
    """Take the segments of a stream that are gone from all readers, and give out those where the group goes on.

    Nothing happens if the group has moved in the stream since it was looked at, nor while a checkpoint waits for one of
    those readers. Without a segment to go on with, the group has read to the end of the stream.
    """
    _held(state, member)
    holders = [reader for reader, held in state.assigned.items() if not place.gone.isdisjoint(held)]
    if place_in(state, place.stream) != place.before:
        return state
    if any(checkpoints.is_waited_for(state, reader) for reader in holders):
        return state
    gone = {segment: offset for segment, offset in state.held_segments() if segment in place.gone}

    def left(positions: Positions) -> Positions:
        return {segment: offset for segment, offset in positions.items() if segment not in gone}

    return replace(
        state,
        unassigned={**left(state.unassigned), **place.starts},
        assigned={reader: left(held) for reader, held in state.assigned.items()},
        future={
            segment: waiting
            for segment, waiting in state.future.items()
            if segment not in place.gone and segment not in place.starts
        },
        ended=state.ended if place.starts else {**state.ended, **gone},
    )


def reset(state: GroupState, positions: Positions, future: Successors | None = None) -> GroupState:
    """Begin again at a cut: all readers are offline, and the cut is the start of the group's configuration.

    Complete checkpoints stay, so that a program which fails behind this can begin again at the same one. Those that
    waited for readers are gone with them. ``future``: segments that the cut has not reached, with the ids of the
    predecessors that are still to be read.
    """
    waiting = future or {}
    starts = cuts_of({**positions, **dict.fromkeys(waiting, -1)})
    if starts.keys() != state.config.start.keys():
        raise InvalidArgument(f"a reset needs a cut of each stream of the group: {sorted(state.config.start)}")
    return GroupState(
        replace(state.config, start=starts),
        unassigned=dict(positions),
        future=dict(waiting),
        checkpoints={name: item for name, item in state.checkpoints.items() if item.is_complete},
    )


def segments_of(state: GroupState, member: GroupMember) -> Positions:
    """The segments that a reader owns, with the offsets recorded for them."""
    return _held(state, member)


def _held(state: GroupState, member: GroupMember) -> Positions:
    if not state.is_online(member):
        raise ReaderOffline(
            f"reader {member.reader} is not in its group any more: it was taken offline, or the group was reset"
        )
    return state.assigned[member.reader]


def _with_held(state: GroupState, member: GroupMember, held: Positions) -> GroupState:
    return replace(state, assigned={**state.assigned, member.reader: held})


def _age(segment: str) -> tuple[int, str]:
    return parse_segment_name(segment).segment_id, segment
