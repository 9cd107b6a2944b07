"""Finds the positions that a user names, in streams of the fake store."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import InvalidArgument
from pravega_spark.commands import cuts
from pravega_spark.commands.cuts import check_valid, resolve_cut, resolve_position
from tests.unit.pravega_spark.streams import FakeStreams

WRITTEN_MS = 1_700_000_000_000
NOBODY: Any = None
"""A time is found without the client."""


@pytest.mark.parametrize("text", ["1769860800000", "2026-1-31", "12 hours", "1w", " 31.01.2026"])
def test_what_is_meant_as_a_time_is_not_taken_for_a_stream_cut(text: str) -> None:
    message = f"the time '{text}' is no time; write for example 2026-01-31T12:00:00Z, or 12h for twelve hours ago"
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        resolve_position(NOBODY, "", "s", "t", text, as_end=False)


def test_a_wrong_word_is_told_which_positions_there_are() -> None:
    with pytest.raises(
        InvalidArgument, match=r"'yesterday'.*; a position is head, tail, a time such as 2026-.* or 12h, or"
    ):
        resolve_position(NOBODY, "", "s", "t", "yesterday", as_end=False)
    with pytest.raises(
        InvalidArgument, match=r"'begin'.*; a position is head, tail, or a text that pravega-spark stream"
    ):
        resolve_cut(NOBODY, "s", "t", "begin")


@pytest.mark.parametrize("answer", [False, InvalidArgument("the offset in segment 0.#epoch.0: -5 is not possible")])
def test_a_cut_that_is_not_valid_is_told_where_one_is_printed(answer: bool | InvalidArgument) -> None:
    """And not that the stream was made again, which neither a part of a cut nor a changed offset shows."""

    def is_cut_valid(*cut: object) -> bool:
        if isinstance(answer, InvalidArgument):
            raise answer
        return answer

    client: Any = SimpleNamespace(controller=SimpleNamespace(is_cut_valid=is_cut_valid))
    why = answer if answer else "its segments do not cover the keys of the stream, each once"
    told = f"the cut is not valid in s/t: {why}; pravega-spark stream cut s/t prints one that is"
    with pytest.raises(InvalidArgument, match=f"^{re.escape(told)}$"):
        check_valid(client, "s", "t", {0: -5}, "the cut")


def test_an_end_has_all_that_was_written_within_its_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores keep whole milliseconds: what was written at 0.7 ms has the time 0, and is before 0.8 ms."""
    streams = FakeStreams(tmp_path)
    streams.create("t")
    for time_ms in (WRITTEN_MS, WRITTEN_MS + 1_000):
        monkeypatch.setattr(streams.gateway, "now_ms", lambda time_ms=time_ms: time_ms)
        streams.append("t", 0, [b"0123"] * 3)
    monkeypatch.setattr(cuts, "connected_gateway", lambda controller: nullcontext(streams.gateway))

    def position(text: str, *, as_end: bool) -> int:
        return resolve_position(NOBODY, "", "s", "t", text, as_end=as_end)[0]

    assert position("20231114T221321Z", as_end=True) >= 3 * 12
    within = "2023-11-14T22:13:20.0008Z"
    assert position(within, as_end=True) >= 3 * 12
    assert position(within, as_end=False) == 0
