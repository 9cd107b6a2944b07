"""Checks which bytes of which segments a batch of events is read from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pravega_streams.batch import events

LATER = 1 << 32 | 2


def test_what_a_cut_has_not_reached_is_read_from_its_beginning_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the cuts of reader groups have segments that wait for the end of others (offset -1)."""
    asked: list[tuple[int, int, int]] = []

    def read_segment(client: Any, name: str, segment_id: int, start: int, end: int) -> list[events.StoredEvent]:
        asked.append((segment_id, start, end))
        return []

    monkeypatch.setattr(events, "read_segment", read_segment)
    between = SimpleNamespace(segments_between=lambda *_: [0, LATER])
    infos = SimpleNamespace(info=lambda _: SimpleNamespace(length=9))
    client: Any = SimpleNamespace(controller=between, segments=infos)
    list(events.read_events(client, "s", "t", {0: 5, LATER: -1}, {0: 9, LATER: 7}))
    list(events.read_events(client, "s", "t", {0: 5}, {0: 9, LATER: -1}))
    assert asked == [(0, 5, 9), (LATER, 0, 7), (0, 5, 9), (LATER, 0, 0)]
