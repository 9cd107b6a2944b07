"""Tests of the fuzzing drill: that a seed says what is sent, and that the checks see what is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from tests.drills.fuzz import run, watch
from tests.drills.fuzz.cores import CoreShares
from tests.drills.fuzz.frames import FrameMaker, ends_connection, requests_by_type
from tests.drills.fuzz.grpc_peer import CallMaker, methods
from tests.drills.fuzz.rest_peer import RequestMaker
from tests.drills.fuzz.values import Target
from tests.drills.fuzz.wire_peer import PeerCounts, reasons_max

TARGET = Target(
    "own",
    {name: (f"own/{name}/0.#epoch.0",) for name in "ab"},
    ("t",),
    "other",
    ("x",),
    ("y",),
    {"own/a": "token-of-a", "own/b": "token-of-b"},
)


def test_a_seed_says_what_is_sent() -> None:
    def sent(seed: str) -> list[object]:
        frames, calls = FrameMaker(seed, TARGET), CallMaker(seed, TARGET)
        requests = RequestMaker(seed, TARGET, "Basic x", "host:1")
        return [(frames.batch(), calls.call(), requests.request()) for _ in range(300)]

    assert sent("1") == sent("1")
    assert sent("1") != sent("2")


def test_every_kind_of_request_is_sent_about_own_and_other_segments() -> None:
    maker = FrameMaker("1", TARGET)
    frames = [frame for batch in (maker.batch() for _ in range(2_000)) for frame in (*batch.frames, batch.last)]
    types = {codec.frame_type(frame) for frame in frames if len(frame) >= codec.frame_header_bytes}
    assert types >= {kinds[0].type_code for kinds in requests_by_type()}
    for text in (b"own/a/0.#epoch.0", b"other/x/", b"_system/_tables/", b"token-of-a"):
        assert any(text in frame for frame in frames), text


def test_a_stream_that_a_peer_has_sealed_has_no_segments_and_is_met_all_the_same() -> None:
    sealed = replace(TARGET, own_streams={"a": (), "b": ()})
    frames = [frame for batch in (FrameMaker("1", sealed).batch() for _ in range(50)) for frame in batch.frames]
    assert any(b"own/a/" in frame for frame in frames)


def test_every_call_is_made() -> None:
    maker = CallMaker("1", TARGET)
    assert {path for path, _ in (maker.call() for _ in range(3_000))} == methods().keys()


@pytest.mark.parametrize(
    ("cores", "services", "peers"),
    [
        ({4, 1, 2, 3}, {1, 2}, {3, 4}),
        ({0, 1, 2}, {0, 1}, {2}),
        ({0, 1}, {0}, {1}),
        ({3}, {3}, {3}),
        (set(), set(), set()),
    ],
)
def test_peers_have_cores_of_their_own_where_there_are_two(
    cores: set[int], services: set[int], peers: set[int]
) -> None:
    shares = CoreShares.of(cores)
    assert shares == CoreShares(frozenset(services), frozenset(peers))
    assert shares.are_apart == (len(cores) > 1)


@pytest.mark.parametrize(
    ("frame", "ends"),
    [
        (codec.encode(wire.KeepAlive()), False),
        (codec.encode(wire.SealSegment(1, "a/b/0.#epoch.0", "")), False),
        (codec.encode(wire.SealSegment(1, "a/b/0.#epoch.0", ""))[:-1], True),
        (codec.encode(wire.SegmentSealed(1, "a/b/0.#epoch.0")), True),
        (codec.frame_header(4_711, 0), True),
        (codec.frame_header(wire.SealSegment.type_code, 2) + b"ab", True),
    ],
)
def test_it_is_known_what_ends_a_connection(frame: bytes, ends: bool) -> None:
    assert ends_connection(frame) is ends


def test_failures_of_the_server_are_kept_up_to_a_limit() -> None:
    first, second = PeerCounts(), PeerCounts()
    for number in range(reasons_max):
        first.note_failure(f"call {number}")
    second.note_failure("call 1")
    second.note_failure("one more")
    first.add(second)
    assert len(first.reasons) == reasons_max
    assert first.reasons["call 1"] == 2


def test_a_change_is_a_problem() -> None:
    before = {"scopes": "['a']", "events": "1"}
    assert not run.changes(before, dict(before))
    assert run.changes(before, {"scopes": "['a', 'b']", "events": "1"}) == ["scopes changed: ['a'] became ['a', 'b']"]
    assert len(run.changes(before, {"scopes": "['a']"})) == 1


def test_what_nobody_foresaw_is_found_in_logs() -> None:
    lines = ["all is well", "Traceback (most recent call last):", "event='request failed unforeseen' peer=1", "done"]
    assert list(islice(watch.unforeseen_lines(lines), 9)) == lines[1:3]
