"""Defines the state of a reader group: an immutable value, which ``transitions.py`` takes from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import parse_segment_name, validate_user_name
from pravega_streams.controller.call_numbers import check_is_cut, checked_mapping, checked_number

T = TypeVar("T")

refresh_time_default_ms: Final = 3_000
"""The pause between two looks of a reader at its group, as in the other clients."""
HEAD: Final = "head"
TAIL: Final = "tail"
Start = SegmentOffsets | str
"""A position to start from: a cut, ``HEAD`` or ``TAIL``."""

StreamName = tuple[str, str]
"""A stream's scope and name."""
Positions = Mapping[str, int]
"""Offsets in bytes by qualified segment name."""


def cuts_of(positions: Positions) -> dict[StreamName, dict[int, int]]:
    """Positions as one cut a stream."""
    cuts: dict[StreamName, dict[int, int]] = {}
    for segment, offset in positions.items():
        name = parse_segment_name(segment)
        cuts.setdefault((name.scope, name.stream), {})[name.segment_id] = offset
    return cuts


def checked_by_stream(what: str, values: Mapping[StreamName, T]) -> dict[StreamName, T]:
    """Returns what is given by stream; ``InvalidArgument`` for what is not, also for one text in the place of scope and
    stream, whose letters would be taken for them."""
    for name in checked_mapping(what, values):
        if not (isinstance(name, tuple) and len(name) == 2 and all(isinstance(part, str) for part in name)):
            raise InvalidArgument(f"{what}: {name!r} is no stream, a pair is needed: (scope, stream)")
    return dict(values)


@dataclass(frozen=True, slots=True)
class GroupConfiguration:
    """The streams of a group, where each starts, and where it ends if it does.

    ``start``: a cut, ``HEAD`` or ``TAIL`` by stream. ``end``: a cut by stream; a stream without one has no end.
    """

    start: Mapping[StreamName, Start]
    end: Mapping[StreamName, SegmentOffsets] = field(default_factory=dict)
    refresh_time_ms: int = refresh_time_default_ms

    def __post_init__(self) -> None:
        if not self.start:
            raise InvalidArgument("a reader group reads 1 stream or more; none is given")
        for what, given in (("starts of a reader group", self.start), ("ends of a reader group", self.end)):
            checked_by_stream(what, given)
        if unread := self.end.keys() - self.start.keys():
            raise InvalidArgument(f"an end is given for streams that the group does not read: {sorted(unread)}")
        checked_number("the refresh time of a reader group in milliseconds", self.refresh_time_ms, minimum=1)
        for cut in self.end.values():
            check_is_cut(cut)
        for stream, start in self.start.items():
            if not isinstance(start, str):
                check_is_cut(start)
            elif start not in (HEAD, TAIL):
                raise InvalidArgument(f"{'/'.join(stream)} starts at {start!r}; '{HEAD}', '{TAIL}' or a cut is needed")

    def end_of(self, segment: str) -> int | None:
        """The offset at which the group stops reading a segment, if it does."""
        name = parse_segment_name(segment)
        return self.end.get((name.scope, name.stream), {}).get(name.segment_id)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A reader as it joined: a later reader of the same name has another incarnation."""

    reader: str
    incarnation: int

    def __post_init__(self) -> None:
        validate_user_name(self.reader, "reader")
        if not 0 < self.incarnation < OTHER_CLIENT:
            raise InvalidArgument(f"incarnation {self.incarnation} must be in 1..{OTHER_CLIENT - 1}")


OTHER_CLIENT: Final = 2**64 - 1
"""The incarnation of every reader of the Rust client and what is built on it: it takes no part in checkpoints."""


@dataclass(frozen=True, slots=True)
class ReaderCheckpoint:
    """A cut through all streams of the group that its readers put together; complete once none is waited for.

    ``number``: larger than those of the checkpoints before it. ``future``: the successors that waited for a predecessor
    when it was begun; their predecessors that had been read
    belong into the cut, at their ends.
    """

    number: int
    waiting: frozenset[str]
    positions: Positions
    future: Mapping[str, frozenset[int]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return not self.waiting


@dataclass(frozen=True, slots=True)
class GroupState:
    """The segments of a group and their owners.

    ``future``: successors of segments that were read, with the ids of the predecessors that are still to be read.
    ``ended``: segments that were read as far as the group reads them and that nothing follows, with that offset.
    """

    config: GroupConfiguration
    unassigned: Positions = field(default_factory=dict)
    assigned: Mapping[str, Positions] = field(default_factory=dict)
    future: Mapping[str, frozenset[int]] = field(default_factory=dict)
    incarnations: Mapping[str, int] = field(default_factory=dict)
    ended: Positions = field(default_factory=dict)
    checkpoints: Mapping[str, ReaderCheckpoint] = field(default_factory=dict)

    @property
    def readers(self) -> list[str]:
        """The readers that are online."""
        return sorted(self.assigned)

    @property
    def is_finished(self) -> bool:
        """Whether everything that the group was to read is read."""
        return not self.future and not any(True for _ in self.held_segments())

    def held_segments(self) -> Iterator[tuple[str, int]]:
        """All segments that are to be read now, assigned or not, with the offsets recorded for them."""
        yield from self.unassigned.items()
        for positions in self.assigned.values():
            yield from positions.items()

    def is_online(self, member: GroupMember) -> bool:
        return member.reader in self.assigned and self.incarnations.get(member.reader) == member.incarnation

    def checked(self) -> GroupState:
        """This state, if every segment stands in one place at most; else ``DataCorruption``."""
        seen: set[str] = set(self.future)
        for segment, offset in self.held_segments():
            if segment in seen or offset < 0:
                raise DataCorruption(f"reader group: {segment} at offset {offset} stands in it twice or below 0")
            seen.add(segment)
        return self
