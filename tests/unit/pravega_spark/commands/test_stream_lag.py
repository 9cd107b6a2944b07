"""Tests what ``stream list --lag`` and ``stream info`` say of subscribers."""

from __future__ import annotations

from pravega_common.model.stream_lags import DescribedLag, DescribedSubscriber
from pravega_spark.commands.stream_lag import lag_cells, lag_facts, lag_json

NEAR = DescribedSubscriber("s/near", 1_700_000_000_000, 5)
FAR = DescribedSubscriber("s/far", 1_700_000_000_000, 2048)
SILENT = DescribedSubscriber("s/silent", 0, None, unknown="it has not told a position yet")


def lag(*subscribers: DescribedSubscriber, left_out: int = 0) -> DescribedLag:
    return DescribedLag("s", "t", subscribers, left_out)


def test_the_furthest_subscriber_is_shown() -> None:
    assert lag_cells(lag(NEAR)) == ("5 B", "s/near")
    assert lag_cells(lag(NEAR, FAR)) == ("2.0 KiB", "s/far and 1 more")


def test_what_is_not_known_is_no_zero() -> None:
    assert lag_cells(None) == lag_cells(lag()) == ("", "")
    assert lag_cells(lag(SILENT)) == ("unknown", "s/silent")
    assert lag_cells(lag(SILENT, NEAR)) == ("5 B or more", "s/near and 1 more")
    assert lag_cells(lag(NEAR, left_out=7)) == ("5 B or more", "s/near and 7 more")


def test_each_subscriber_has_a_line() -> None:
    lost = DescribedSubscriber("s/lost", 1_700_000_000_000, 9, was_truncated=True)
    lines = dict(lag_facts(lag(NEAR, SILENT, lost, left_out=3)))
    assert lines["lag of s/near"] == "5 B, told 2023-11-14 22:13:20 UTC"
    assert lines["lag of s/silent"] == "it has not told a position yet"
    assert str(lines["lag of s/lost"]).endswith("; a part of it was truncated")
    assert lines["further subscribers"] == 3
    assert lag_facts(lag()) == [("subscribers", "none")]


def test_json_has_null_for_what_is_not_known() -> None:
    (silent,) = lag_json(lag(SILENT))["subscribers"]
    assert (silent["behind_bytes"], silent["updated_ms"], silent["unknown"]) == (None, None, SILENT.unknown)
