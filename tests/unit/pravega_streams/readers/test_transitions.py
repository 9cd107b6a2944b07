"""Tests single transitions of a reader group; ``tests/property/test_reader_group_state.py`` tests their sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pravega_common.errors import AlreadyExists, InvalidArgument, NotFound, Throttled
from pravega_common.model.table_limits import value_bytes_max
from pravega_streams.errors import ReaderOffline
from pravega_streams.readers import checkpoints, transitions
from pravega_streams.readers.balance import should_release
from pravega_streams.readers.group_records import CHECKPOINTS, EntryChange, checkpoint_bytes, value_of
from pravega_streams.readers.group_state import (
    HEAD,
    OTHER_CLIENT,
    GroupConfiguration,
    GroupMember,
    GroupState,
    ReaderCheckpoint,
)

STREAM = ("s", "t")
S0, S1, S2, S3 = (f"s/t/{number}.#epoch.0" for number in range(4))
NEXT = "s/t/9.#epoch.1"
R1, R2, R3 = GroupMember("r1", 1), GroupMember("r2", 2), GroupMember("r3", 3)


def group(*members: GroupMember, segments: tuple[str, ...] = (S0, S1)) -> GroupState:
    state = GroupState(GroupConfiguration({STREAM: HEAD}), dict.fromkeys(segments, 0))
    for member in members:
        state = transitions.add_reader(state, member)
    for member in members:
        state = transitions.acquire(state, member)
    return state


def waiting(state: GroupState, name: str = "c") -> set[str]:
    return set(state.checkpoints[name].waiting)


def test_segments_are_shared_evenly_whoever_comes_first() -> None:
    state = group(R1, segments=(S0, S1, S2, S3))
    assert len(state.assigned["r1"]) == 4
    for member in (R2, R3):
        state = transitions.add_reader(state, member)
    assert should_release(state, "r1") == 2
    state = transitions.release(state, R1, {S2: 5, S3: 6})
    state = transitions.acquire(state, R2)
    assert state.assigned["r2"] == {S2: 5}, "the other one is due to the third reader"
    assert transitions.acquire(state, R3).assigned["r3"] == {S3: 6}


def test_a_reader_with_one_more_gives_it_to_one_that_has_none() -> None:
    state = group(R1, R2, segments=(S0, S1, S2, S3))
    state = transitions.add_reader(state, R3)
    assert [should_release(state, name) for name in ("r1", "r2", "r3")] == [1, 1, 0]
    state = transitions.release(state, R1, {S0: 1})
    assert should_release(state, "r2") == 0
    state = transitions.acquire(state, R1)
    assert len(state.assigned["r1"]) == 1, "what was given back is due to the reader without any"


def test_a_reader_that_waits_for_a_checkpoint_changes_no_owner_before_it_reports() -> None:
    state = checkpoints.initiate(group(R1, R2), "c", 7)
    assert waiting(state) == {"r1", "r2"}
    assert transitions.complete(state, R1, S0, {NEXT: frozenset({0})}) is state
    assert transitions.release(state, R1, {S0: 4}) is state
    more = replace(state, unassigned={S3: 0})
    assert transitions.acquire(more, R1) is more
    state = transitions.record(state, R1, {S0: 4})
    assert waiting(state) == {"r2"}
    state = transitions.complete(state, R1, S0, {NEXT: frozenset({0})})
    assert state.unassigned == {NEXT: 0}
    state = transitions.remove_reader(state, "r2", {S1: 8})
    assert state.checkpoints["c"].positions == {S0: 4, S1: 8}
    assert checkpoints.complete_one(state, "c").is_complete


def test_readers_of_other_clients_are_not_waited_for() -> None:
    state = transitions.record(group(R1, R2), R2, {S1: 3})
    state = replace(state, incarnations={"r1": 1, "r2": OTHER_CLIENT})
    state = checkpoints.initiate(state, "c", 7)
    assert waiting(state) == {"r1"} and state.checkpoints["c"].positions == {S1: 3}
    assert checkpoints.initiate(group(), "c", 7).checkpoints["c"].is_complete


def test_a_cut_knows_the_successors_that_waited() -> None:
    state = group(R1, R2)
    state = transitions.complete(state, R1, S0, {NEXT: frozenset({0, 1})})
    assert state.future == {NEXT: frozenset({1})} and not state.unassigned
    state = checkpoints.initiate(state, "c", 7)
    assert state.checkpoints["c"].future == {NEXT: frozenset({1})}


def test_a_checkpoint_that_would_not_fit_the_table_is_refused() -> None:
    """Its last reader could not report to it, nor look at the group any more."""

    def held_by(reader: str, count: int) -> dict[str, int]:
        return {f"{'s' * 250}/{reader:t<250}/{number}.#epoch.0": 2**63 - 1 for number in range(count)}

    def begun(count: int) -> GroupState:
        held = {member.reader: held_by(member.reader, count) for member in (R1, R2)}
        return checkpoints.initiate(replace(group(R1, R2, segments=()), assigned=held), "c", 7)

    state = begun(490)
    for member in (R1, R2):
        state = transitions.record(state, member, {})
    assert waiting(state) == set()
    size = len(value_of(EntryChange(CHECKPOINTS, "c", state.checkpoints["c"])))
    assert size <= checkpoint_bytes(state.checkpoints["c"]) <= value_bytes_max
    with pytest.raises(InvalidArgument, match=r"a checkpoint of the group's 1020 segments.* with several groups"):
        begun(510)


def test_checkpoints_are_bounded_and_named_once() -> None:
    state = group(R1)
    for number in range(checkpoints.outstanding_max):
        state = checkpoints.initiate(state, f"c{number}", 7)
    with pytest.raises(Throttled):
        checkpoints.initiate(state, "more", 7)
    with pytest.raises(AlreadyExists):
        checkpoints.initiate(state, "c0", 8)
    with pytest.raises(InvalidArgument):
        checkpoints.complete_one(state, "c0")
    with pytest.raises(InvalidArgument):
        checkpoints.initiate(state, "a/b", 7)
    state = transitions.record(checkpoints.discard(state, "c0"), R1, {})
    assert "c0" not in state.checkpoints
    with pytest.raises(NotFound):
        checkpoints.complete_one(state, "c0")
    for number in range(10, 30):
        state = transitions.record(checkpoints.initiate(state, f"c{number}", 7), R1, {})
    assert sorted(state.checkpoints) == [f"c{number}" for number in range(20, 30)]


def test_positions_never_go_back_while_a_reader_lives() -> None:
    state = transitions.record(group(R1), R1, {S0: 10, "s/t/7.#epoch.0": 5})
    assert transitions.record(state, R1, {S0: 9}) is state
    assert state.assigned["r1"] == {S0: 10, S1: 0}
    assert transitions.remove_reader(state, "r1", {S0: 2}).unassigned == {S0: 2, S1: 0}


def test_a_later_reader_of_the_same_name_is_another_one() -> None:
    state = transitions.remove_reader(group(R1), "r1")
    state = transitions.acquire(transitions.add_reader(state, GroupMember("r1", 77)), GroupMember("r1", 77))
    with pytest.raises(ReaderOffline):
        transitions.record(state, R1, {S0: 50})
    assert transitions.leave(state, R1, {S0: 50}) is state
    with pytest.raises(AlreadyExists):
        transitions.add_reader(state, R1)


def test_a_reader_that_leaves_does_not_go_back() -> None:
    """It may have taken a segment without knowing it, while another one was reading there."""
    state = transitions.record(group(R1), R1, {S0: 50})
    assert transitions.leave(state, R1, {S0: 10, S1: 7}).unassigned == {S0: 50, S1: 7}
    assert transitions.remove_reader(state, "r1", {S0: 10}).unassigned[S0] == 10, "who takes it out may"


def test_every_call_may_be_repeated() -> None:
    state = group(R1)
    assert transitions.add_reader(state, R1) is state
    assert transitions.acquire(state, R1) is state
    done = transitions.complete(state, R1, S0, {NEXT: frozenset({0})})
    assert transitions.complete(done, R1, S0, {NEXT: frozenset({0})}) is done
    given = transitions.release(state, R1, {S1: 4})
    assert transitions.release(given, R1, {S1: 4}) is given
    gone = transitions.remove_reader(state, "r1")
    assert transitions.remove_reader(gone, "r1") is gone
    begun = checkpoints.initiate(state, "c", 7)
    assert checkpoints.initiate(begun, "c", 7) is begun
    reported = transitions.record(begun, R1, {})
    assert checkpoints.initiate(reported, "c", 7) is reported


def test_the_numbers_of_checkpoints_follow_those_of_older_clients() -> None:
    state = checkpoints.initiate(group(), "first", 2**32 - 1)
    older = {"counted": ReaderCheckpoint(1 + state.checkpoints["first"].number, frozenset(), {})}
    state = checkpoints.initiate(replace(state, checkpoints={**state.checkpoints, **older}), "last", 0)
    assert sorted(state.checkpoints, key=lambda name: state.checkpoints[name].number) == ["first", "counted", "last"]


def test_a_reset_begins_at_the_cut_without_readers() -> None:
    state = checkpoints.initiate(group(R1), "c", 7)
    reset = transitions.reset(state, {S0: 5, S1: 6})
    assert reset == GroupState(GroupConfiguration({STREAM: {0: 5, 1: 6}}), {S0: 5, S1: 6})
    with pytest.raises(InvalidArgument):
        transitions.reset(state, {})


def test_a_group_begins_again_at_a_checkpoint_as_often_as_it_is_asked_to() -> None:
    """A program that begins there at each of its starts may fail before it has made the next checkpoint."""
    state = checkpoints.initiate(transitions.add_reader(checkpoints.initiate(group(), "done", 7), R1), "waits", 8)
    for _ in range(2):
        state = transitions.reset(state, state.checkpoints["done"].positions)
        assert state.checkpoints.keys() == {"done"} and checkpoints.complete_one(state, "done")


def test_configurations_that_make_no_sense_are_refused() -> None:
    wrong: tuple[tuple[Any, Any, int], ...] = (
        ({}, {}, 3000),
        ({STREAM: "begin"}, {}, 3000),
        ({STREAM: HEAD}, {("s", "other"): {0: 1}}, 3000),
        ({STREAM: HEAD}, {}, 0),
        ({"ab": HEAD}, {}, 3000),
        ({("s", "t", "u"): HEAD}, {}, 3000),
        ({("s", 7): HEAD}, {}, 3000),
        ({STREAM: HEAD}, [STREAM], 3000),
    )
    for start, end, refresh in wrong:
        with pytest.raises(InvalidArgument):
            GroupConfiguration(start, end, refresh)
    assert GroupConfiguration({STREAM: HEAD}, {STREAM: {0: 7}}).end_of(S0) == 7
    assert GroupConfiguration({STREAM: HEAD}).end_of(S0) is None
