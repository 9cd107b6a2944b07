"""Tests that a truncation counts from the head, and is refused where its cut does not lie between head and tail."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pravega_common.errors import InvalidArgument, StreamSealed
from pravega_spark.commands.stream_retention import _bytes_before, _Manner, _Opened, _truncate
from tests.unit.pravega_spark.streams import SCOPE, FakeStreams

EVENT = b"x" * 92  # 100 bytes with its header.


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    made = FakeStreams(tmp_path)
    made.create("t", 2)
    for segment_id in (0, 1):
        made.append("t", segment_id, [EVENT] * 10)
    return made


def opened(streams: FakeStreams) -> _Opened:
    """The client is asked for the head alone, which the gateway tells too."""
    return _Opened(cast(Any, streams.gateway), cast(Any, streams.gateway), SCOPE, "t")


def bytes_before(streams: FakeStreams, wanted: dict[int, int]) -> int:
    return _bytes_before(opened(streams), wanted)


def test_bytes_from_the_head_to_a_cut(streams: FakeStreams) -> None:
    streams.gateway.truncate_stream(SCOPE, "t", {0: 300, 1: 500})
    assert bytes_before(streams, {0: 300, 1: 500}) == 0
    assert bytes_before(streams, {0: 500, 1: 500}) == 200
    left, right = streams.scale("t", [0, 1], [(0.0, 0.5), (0.5, 1.0)])
    assert bytes_before(streams, {left: 0, right: 0}) == 1200


@pytest.mark.parametrize("wanted", [{0: 200, 1: 400}, {0: 200, 1: 500}, {0: 900, 1: 400}])
def test_a_cut_before_the_head_in_a_segment_is_refused(
    streams: FakeStreams, wanted: dict[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    streams.gateway.truncate_stream(SCOPE, "t", {0: 300, 1: 500})
    check_refused(streams, wanted, caplog)


def test_a_cut_in_segments_before_the_head_is_refused(streams: FakeStreams, caplog: pytest.LogCaptureFixture) -> None:
    left, right = streams.scale("t", [0, 1], [(0.0, 0.5), (0.5, 1.0)])
    streams.gateway.truncate_stream(SCOPE, "t", {left: 0, right: 0})
    check_refused(streams, {0: 900, 1: 900}, caplog)


def test_a_cut_behind_the_end_of_a_segment_is_refused(streams: FakeStreams, caplog: pytest.LogCaptureFixture) -> None:
    """It would be the head, and hide what is written next."""
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(InvalidArgument, match=r"is at offset 1001 of segment 1\.#epoch\.0 of s/t, which has 1000 bytes"),
    ):
        bytes_before(streams, {0: 1000, 1: 1001})
    assert not caplog.records


def test_a_truncation_at_the_head_tells_that_it_does_nothing(
    streams: FakeStreams, capsys: pytest.CaptureFixture[str]
) -> None:
    _truncate(opened(streams), {0: 0, 1: 0}, "at head", _Manner(dry_run=False, yes=True, as_json=True))
    told = json.loads(capsys.readouterr().out)
    assert (told["bytes"], told["truncated"]) == (0, False)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_sealed_stream_is_not_truncated(streams: FakeStreams, dry_run: bool) -> None:
    """Controllers refuse it, so a plan of it would be none."""
    sealed = opened(streams)
    controller = SimpleNamespace(current_segments=lambda scope, stream: [])
    client: Any = SimpleNamespace(head_cut=streams.gateway.head_cut, controller=controller)
    told = "stream 's/t' is sealed: its policy stays .*: pravega-spark stream delete s/t$"
    with pytest.raises(StreamSealed, match=told):
        _truncate(replace(sealed, client=client), {0: 500, 1: 500}, "", _Manner(dry_run, yes=True, as_json=True))


def check_refused(streams: FakeStreams, wanted: dict[int, int], caplog: pytest.LogCaptureFixture) -> None:
    """Without a word of data that was lost before it was read, which is a reader's concern."""
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(InvalidArgument, match="lies before the head of s/t: that was cut off already"),
    ):
        bytes_before(streams, wanted)
    assert not caplog.records
