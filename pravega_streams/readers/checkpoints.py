"""Decides how checkpoints of a reader group begin, are reported to and end.

A checkpoint takes the offsets of unassigned segments, and of readers of other clients, when it begins. Each of our
readers adds the offsets of its own segments, and neither takes, gives back nor completes a segment before it has: so
the cut has every segment once, and nothing behind it was read by then that another reader has given up before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pravega_common.errors import AlreadyExists, InvalidArgument, NotFound, Throttled
from pravega_common.model.table_limits import value_bytes_max
from pravega_common.names import validate_user_name
from pravega_streams.readers.group_records import checkpoint_bytes
from pravega_streams.readers.group_state import OTHER_CLIENT, GroupState, Positions, ReaderCheckpoint

outstanding_max: Final = 3
"""Checkpoints of a group that wait for readers at a time, as in the Java client."""
kept_max: Final = 10
"""Complete checkpoints that a group remembers, the latest ones."""
MARK_BITS: Final = 32
"""The lower bits of a checkpoint's number, which tell the call that began it; those above give its place in order."""
_OFFSET_MAX: Final = 2**63 - 1


def initiate(state: GroupState, name: str, mark: int) -> GroupState:
    """``AlreadyExists`` for a name in use; ``Throttled`` while too many wait for readers; ``InvalidArgument`` for a
    group with more segments than a checkpoint can hold.

    ``mark``: a random number of ``MARK_BITS``, by which a call that is repeated knows the checkpoint that it began.
    """
    validate_user_name(name, "checkpoint")
    if (found := state.checkpoints.get(name)) is not None:
        if found.number % (1 << MARK_BITS) == mark:
            return state
        raise AlreadyExists(f"the group has a checkpoint {name} already")
    outstanding = [item for item in state.checkpoints.values() if not item.is_complete]
    if len(outstanding) >= outstanding_max:
        raise Throttled(f"{outstanding_max} checkpoints of the group wait for readers; wait for one or discard it")
    others = {reader for reader in state.assigned if state.incarnations.get(reader, OTHER_CLIENT) == OTHER_CLIENT}
    waiting = frozenset(state.assigned.keys() - others)
    positions = {**state.ended, **state.unassigned}
    for reader in others:
        positions.update(state.assigned[reader])
    place = 1 + max((item.number >> MARK_BITS for item in state.checkpoints.values()), default=0)
    begun = ReaderCheckpoint(place << MARK_BITS | mark, waiting, positions, dict(state.future))
    _check_size(state, begun)
    return _with(state, {**state.checkpoints, name: begun})


def _check_size(state: GroupState, begun: ReaderCheckpoint) -> None:
    """Refuse a checkpoint that would be larger than a value of the table once all readers are in it: a reader whose
    report does not fit cannot look at its group any more."""
    segments = [*begun.positions, *(segment for reader in begun.waiting for segment in state.assigned[reader])]
    size = checkpoint_bytes(replace(begun, positions=dict.fromkeys(segments, _OFFSET_MAX)))
    if size > value_bytes_max:
        raise InvalidArgument(
            f"a checkpoint of the group's {len(set(segments))} segments may take {size} bytes, and the group's table "
            f"holds {value_bytes_max} in a value; read the streams with several groups"
        )


def report(state: GroupState, reader: str, positions: Positions) -> GroupState:
    """Add the offsets of a reader's segments to all checkpoints that wait for it."""
    if not is_waited_for(state, reader):
        return state
    return _with(state, {name: _reported(item, reader, positions) for name, item in state.checkpoints.items()})


def without_reader(state: GroupState, reader: str, positions: Positions) -> GroupState:
    """Take the offsets at which a reader left for its report."""
    return report(state, reader, positions)


def is_waited_for(state: GroupState, reader: str) -> bool:
    """Whether a checkpoint waits for the reader, which must then report before it changes owners."""
    return any(reader in item.waiting for item in state.checkpoints.values())


def discard(state: GroupState, name: str) -> GroupState:
    """Forget a checkpoint, complete or not."""
    if name not in state.checkpoints:
        return state
    return replace(state, checkpoints={key: item for key, item in state.checkpoints.items() if key != name})


def complete_one(state: GroupState, name: str) -> ReaderCheckpoint:
    """A complete checkpoint; ``NotFound``, or ``InvalidArgument`` while readers are waited for."""
    found = state.checkpoints.get(name)
    if found is None:
        raise NotFound(f"the group has no checkpoint {name}; it keeps the latest {kept_max}")
    if not found.is_complete:
        raise InvalidArgument(f"checkpoint {name} waits for readers: {sorted(found.waiting)}")
    return found


def _reported(item: ReaderCheckpoint, reader: str, positions: Positions) -> ReaderCheckpoint:
    if reader not in item.waiting:
        return item
    return replace(item, waiting=item.waiting - {reader}, positions={**item.positions, **positions})


def _with(state: GroupState, every: Mapping[str, ReaderCheckpoint]) -> GroupState:
    """Keep those that wait and the latest complete ones."""
    complete = sorted((item.number, name) for name, item in every.items() if item.is_complete)
    dropped = {name for _, name in complete[: max(0, len(complete) - kept_max)]}
    return replace(state, checkpoints={name: item for name, item in every.items() if name not in dropped})
