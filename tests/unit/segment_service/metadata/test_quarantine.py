"""The list of damaged segments: who is in it, why, and when one leaves it."""

from __future__ import annotations

import pytest
import structlog

from pravega_common.errors import DataCorruption
from segment_service.metadata import quarantine
from segment_service.metadata.quarantine import DamagedRange, Quarantine

FIRST, SECOND = DamagedRange(7, 0, 10), DamagedRange(7, 10, 10)


def test_a_segment_leaves_only_when_nothing_of_it_is_damaged() -> None:
    damaged = Quarantine(3)
    assert not damaged
    damaged.add_unreadable(7, "seven", FIRST, "bit")
    damaged.add_unreadable(7, "seven", SECOND, "other bit")
    damaged.hold(7, "seven", "fewer")
    assert list(damaged) == [("seven", "bit")], "the first reason stays"
    assert damaged.unreadable() == [(7, FIRST), (7, SECOND)]
    with pytest.raises(DataCorruption, match="seven is quarantined: bit"):
        damaged.check(7)
    damaged.check(8)
    damaged.remove_unreadable(7, FIRST)
    assert damaged.held_reason(7) == "bit"
    damaged.free(7)
    assert damaged.held_reason(7) is None
    assert damaged.unreadable_reason(7) == "other bit"
    damaged.remove_unreadable(7, SECOND)
    assert not damaged
    damaged.check(7)


def test_what_is_gone_and_what_was_never_there_is_no_error() -> None:
    damaged = Quarantine(3)
    damaged.free(1)
    damaged.remove_unreadable(1, FIRST)
    damaged.forget(1)
    damaged.hold(1, "one", "fewer")
    assert damaged.unreadable_reason(1) is None
    assert damaged.reason(1) == "fewer"
    damaged.forget(1)
    assert damaged.reason(1) is None


def test_a_segment_is_logged_once_and_its_ranges_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "ranges_max", 5)
    with structlog.testing.capture_logs() as log:
        damaged = Quarantine(3)
        for number in range(20):
            damaged.add_unreadable(7, "seven", DamagedRange(7, number, 1), "bit")
        assert len(damaged.unreadable()) == 5
        for _, stored in damaged.unreadable():
            damaged.remove_unreadable(7, stored)
    assert [(one["log_level"], one["event"]) for one in log] == [
        ("error", "segment is quarantined"),
        ("info", "segment is whole again"),
    ]
