"""Drives the state of a reader group through random lives of its readers, on a stream that scales meanwhile.

A step of the machine is one transition, as the table's conditional updates make them: one after the other. The model
keeps the events by segment and the ones delivered; positions count events here, one byte each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pravega_common.names import segment_id, segment_name
from pravega_streams.errors import ReaderOffline
from pravega_streams.readers import checkpoints, transitions
from pravega_streams.readers.balance import should_release
from pravega_streams.readers.group_records import changes_between, maps_of, read_value, state_of, value_of
from pravega_streams.readers.group_state import GroupConfiguration, GroupMember, GroupState

STREAM = ("s", "t")
segments_open_max = 4
events_max = 6


def name_of(identifier: int) -> str:
    return segment_name(*STREAM, identifier)


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lengths = {0: 0, 1: 0}
        self.predecessors: dict[int, frozenset[int]] = {0: frozenset(), 1: frozenset()}
        self.open = [0, 1]
        self.epochs = count(1)
        self.incarnations = count(1)
        config = GroupConfiguration({STREAM: {0: 0, 1: 0}})
        self.state = GroupState(config, unassigned={name_of(0): 0, name_of(1): 0})
        self.members: dict[str, GroupMember] = {}
        self.zombies: list[GroupMember] = []
        self.offsets: dict[str, dict[str, int]] = {}
        """Where each reader stands in its own memory, ahead of what the group knows."""
        self.delivered: Counter[tuple[str, int]] = Counter()
        self.lost: set[tuple[str, int]] = set()
        """Events that a dead reader had, and did not record: they come again."""
        self.checkpoint_names = (f"c{number}" for number in count())

    def go(self, new: GroupState) -> None:
        """Take the new state by the records that are written for it, as another client would."""
        table = {outer: dict(values) for outer, values in maps_of(self.state).items()}
        for change in changes_between(self.state, new):
            table[change.outer].pop(change.inner, None)
            value = read_value(change.outer, value_of(change))
            if value is not None:
                table[change.outer][change.inner] = value
        written = state_of(table)
        assert written is not None and written == new
        self.state = written

    def adopt(self, member: GroupMember) -> None:
        held = transitions.segments_of(self.state, member)
        known = self.offsets[member.reader]
        self.offsets[member.reader] = {segment: known.get(segment, offset) for segment, offset in held.items()}

    # ---- the stream

    @rule(index=st.integers(0, segments_open_max - 1), events=st.integers(1, events_max))
    def write(self, index: int, events: int) -> None:
        self.lengths[self.open[index % len(self.open)]] += events

    @rule(index=st.integers(0, segments_open_max - 1), merge=st.booleans())
    def scale(self, index: int, merge: bool) -> None:
        """Split a segment, or join two."""
        epoch = next(self.epochs)
        if merge and len(self.open) > 1:
            sealed = {self.open[index % len(self.open)], self.open[(index + 1) % len(self.open)]}
            made = 1
        elif len(self.open) < segments_open_max:
            sealed, made = {self.open[index % len(self.open)]}, 2
        else:
            return
        self.open = [item for item in self.open if item not in sealed]
        for number in range(made):
            identifier = segment_id(number, epoch)
            self.lengths[identifier] = 0
            self.predecessors[identifier] = frozenset(sealed)
            self.open.append(identifier)

    # ---- the readers

    @rule(number=st.integers(0, 3))
    def join(self, number: int) -> None:
        reader = f"r{number}"
        if reader in self.state.assigned:
            return
        member = GroupMember(reader, next(self.incarnations))
        self.go(transitions.add_reader(self.state, member))
        self.members[reader], self.offsets[reader] = member, {}

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def refresh(self, data: st.DataObject) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        recorded = transitions.record(self.state, member, self.offsets[member.reader])
        self.go(transitions.acquire(recorded, member))
        self.adopt(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), most=st.integers(1, events_max))
    def read(self, data: st.DataObject, most: int) -> None:
        reader = data.draw(st.sampled_from(sorted(self.members)))
        for segment, offset in self.offsets[reader].items():
            end = min(offset + most, self.length_of(segment))
            for event in range(offset, end):
                self.delivered[segment, event] += 1
            self.offsets[reader][segment] = end

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        most = data.draw(st.one_of(st.just(should_release(self.state, member.reader)), st.integers(0, 2)))
        given = dict(list(self.offsets[member.reader].items())[:most])
        self.go(transitions.release(self.state, member, given))
        self.adopt(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), report=st.booleans())
    def finish(self, data: st.DataObject, report: bool) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        for segment, offset in list(self.offsets[member.reader].items()):
            identifier = self.identifier_of(segment)
            if identifier in self.open or offset < self.length_of(segment):
                continue
            successors = {name_of(n): before for n, before in self.predecessors.items() if identifier in before}
            if report:
                self.go(transitions.record(self.state, member, self.offsets[member.reader]))
            self.go(transitions.complete(self.state, member, segment, successors))
            self.adopt(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), orderly=st.booleans())
    def go_offline(self, data: st.DataObject, orderly: bool) -> None:
        """An orderly leave records the positions; a death leaves those that were recorded last."""
        reader = data.draw(st.sampled_from(sorted(self.members)))
        member = self.members.pop(reader)
        offsets = self.offsets.pop(reader)
        if orderly:
            self.go(transitions.leave(self.state, member, offsets))
            return
        recorded = transitions.segments_of(self.state, member)
        self.lost |= {(s, event) for s, end in offsets.items() for event in range(recorded[s], end)}
        self.go(transitions.remove_reader(self.state, reader))
        self.zombies.append(member)

    @precondition(lambda self: self.zombies)
    @rule()
    def a_reader_believed_dead_changes_nothing(self) -> None:
        member = self.zombies[-1]
        calls: tuple[Callable[[], object], ...] = (
            lambda: transitions.record(self.state, member, {}),
            lambda: transitions.acquire(self.state, member),
            lambda: transitions.release(self.state, member, {name_of(0): 0}),
            lambda: transitions.complete(self.state, member, name_of(0), {}),
        )
        for call in calls:
            try:
                call()
            except ReaderOffline:
                continue
            raise AssertionError("a reader that was taken offline changed the group")
        assert transitions.leave(self.state, member, {}) is self.state

    # ---- checkpoints

    @rule()
    def begin_checkpoint(self) -> None:
        waiting = sum(1 for item in self.state.checkpoints.values() if not item.is_complete)
        if waiting < checkpoints.outstanding_max:
            self.go(checkpoints.initiate(self.state, next(self.checkpoint_names), 0))

    @precondition(lambda self: self.members)
    @rule(index=st.integers(0, segments_open_max - 1), merge=st.booleans(), data=st.data())
    def finish_while_a_checkpoint_waits(self, index: int, merge: bool, data: st.DataObject) -> None:
        """All that a reader could do between the beginning of a checkpoint and its own report, tried before it."""
        self.begin_checkpoint()
        self.scale(index, merge)
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        mine = self.offsets[member.reader]
        for segment in mine:
            for event in range(mine[segment], self.length_of(segment)):
                self.delivered[segment, event] += 1
            mine[segment] = self.length_of(segment)
        self.finish_all(member)
        self.go(transitions.release(self.state, member, dict(list(self.offsets[member.reader].items())[:1])))
        self.adopt(member)
        self.go(transitions.acquire(self.state, member))
        self.adopt(member)
        for reader, other in self.members.items():
            self.go(transitions.record(self.state, other, self.offsets[reader]))

    @invariant()
    def checkpoints_are_cuts(self) -> None:
        """A cut has one of each line of segments: none of its segments comes after another one of them."""
        waited_for = {reader for item in self.state.checkpoints.values() for reader in item.waiting}
        assert waited_for <= self.state.assigned.keys() == self.state.incarnations.keys()
        kept = [item for item in self.state.checkpoints.values() if item.is_complete]
        assert len(kept) <= checkpoints.kept_max
        for item in kept:
            ids = {self.identifier_of(segment) for segment in item.positions}
            for successor, remaining in item.future.items():
                ids |= self.predecessors[self.identifier_of(successor)] - remaining
            assert all(not (self.ancestors(identifier) & ids) for identifier in ids)
            assert self.reached_from(ids) >= set(self.open)
            for segment, offset in item.positions.items():
                assert all(self.delivered[segment, event] for event in range(offset))

    # ---- what must hold

    @invariant()
    def a_segment_has_one_owner_at_most(self) -> None:
        self.state.checked()
        owned = [segment for held in self.offsets.values() for segment in held]
        assert len(owned) == len(set(owned))

    @invariant()
    def nothing_comes_twice_that_was_not_lost(self) -> None:
        again = {event for event, times in self.delivered.items() if times > 1}
        assert again <= self.lost

    @invariant()
    def successors_wait_for_all_predecessors(self) -> None:
        for segment, offset in self.state.held_segments():
            for before in self.predecessors[self.identifier_of(segment)]:
                assert all(self.delivered[name_of(before), event] for event in range(self.lengths[before]))
            assert offset <= self.length_of(segment)

    def teardown(self) -> None:
        """One last reader takes everything over and reads to the end: no event is missing."""
        for reader in list(self.members):
            self.go(transitions.leave(self.state, self.members.pop(reader), self.offsets.pop(reader)))
        member = GroupMember("last", next(self.incarnations))
        self.go(transitions.add_reader(self.state, member))
        self.members["last"], self.offsets["last"] = member, {}
        for _ in range(len(self.lengths) + 1):
            self.go(transitions.acquire(transitions.record(self.state, member, self.offsets["last"]), member))
            self.adopt(member)
            for segment in self.offsets["last"]:
                for event in range(self.offsets["last"][segment], self.length_of(segment)):
                    self.delivered[segment, event] += 1
                self.offsets["last"][segment] = self.length_of(segment)
            self.finish_all(member)
        for identifier, length in self.lengths.items():
            assert all(self.delivered[name_of(identifier), event] for event in range(length))
        assert {self.identifier_of(segment) for segment, _ in self.state.held_segments()} == set(self.open)
        self.nothing_comes_twice_that_was_not_lost()

    def finish_all(self, member: GroupMember) -> None:
        for segment in list(self.offsets[member.reader]):
            identifier = self.identifier_of(segment)
            if identifier not in self.open:
                successors = {name_of(n): before for n, before in self.predecessors.items() if identifier in before}
                self.go(transitions.complete(self.state, member, segment, successors))
        self.adopt(member)

    # ---- helpers

    def length_of(self, segment: str) -> int:
        return self.lengths[self.identifier_of(segment)]

    @staticmethod
    def identifier_of(segment: str) -> int:
        number, _, epoch = segment.rpartition("/")[2].partition(".#epoch.")
        return segment_id(int(number), int(epoch))

    def reached_from(self, ids: set[int]) -> set[int]:
        """The segments that a group reads that starts with these: a successor comes after all its predecessors."""
        reached = set(ids)
        while new := {n for n, before in self.predecessors.items() if before and before <= reached} - reached:
            reached |= new
        return reached

    def ancestors(self, identifier: int) -> set[int]:
        found: set[int] = set()
        for before in self.predecessors[identifier]:
            found |= {before} | self.ancestors(before)
        return found


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
