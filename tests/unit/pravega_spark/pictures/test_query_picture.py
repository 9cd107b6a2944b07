"""The picture of a streaming query, from the reports that Spark gives."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from pravega_common.errors import InvalidArgument
from pravega_spark import show

SVG = "{http://www.w3.org/2000/svg}"


def progress(batch: int, events: int | None, **more: Any) -> dict[str, Any]:
    latest = {"version": 1, "lag_bytes": batch * 1000, "lag_events": events}
    return {
        "timestamp": f"2026-01-31T12:00:{batch:02}.500Z",
        "batchId": batch,
        "processedRowsPerSecond": 1234.5,
        "durationMs": {"triggerExecution": 700},
        "sources": [{"latestOffset": json.dumps(latest)}],
        **more,
    }


def query(*reports: Any, name: str | None = "q") -> Any:
    return SimpleNamespace(name=name, id="0-1", recentProgress=list(reports))


def drawn(made: Any) -> list[str]:
    return [item.text or "" for item in ElementTree.fromstring(made.svg).iter(f"{SVG}title")]


def test_lag_speed_and_batches() -> None:
    made = show(query(progress(1, 40), json.dumps(progress(2, 20))))
    assert str(made) == "Query q: batch 2, 1,234 rows a second, 20 events behind"
    assert drawn(made) == [
        str(made),
        "12:00:01 UTC, batch 1: 40",
        "12:00:02 UTC, batch 2: 20",
        "12:00:01 UTC, batch 1: 1,234",
        "12:00:02 UTC, batch 2: 1,234",
        "12:00:01 UTC, batch 1: 0.70",
        "12:00:02 UTC, batch 2: 0.70",
    ]


def test_bytes_where_events_are_not_known() -> None:
    made = show(query(progress(1, None), progress(2, 20), name=None))
    assert str(made) == "Query 0-1: batch 2, 1,234 rows a second, 2.0 KiB behind"
    assert drawn(made)[1] == "12:00:01 UTC, batch 1: 1000 B"


def test_a_query_over_other_sources_has_no_lag() -> None:
    made = show(query(progress(1, 1, sources=[{"latestOffset": "17"}], processedRowsPerSecond=None)))
    assert str(made) == "Query q: batch 1, 0 rows a second"
    assert len(drawn(made)) == 3


def test_before_the_first_batch() -> None:
    assert str(show(query())) == "Query q: no batch has been reported yet"


def test_names_are_no_markup() -> None:
    made = show(query(progress(1, 1), name='<script>"&'))
    assert "<script>" not in made.svg
    assert drawn(made)[0].startswith('Query <script>"&')


def test_a_query_takes_no_options() -> None:
    with pytest.raises(InvalidArgument, match="controller"):
        show(query(), controller="tcp://localhost:9090")
