"""The lag of a query, from every form in which Spark gives its progress."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pravega_spark import Lag, lag


class Progress:
    def __init__(self, made: dict[str, Any]) -> None:
        self.json = json.dumps(made)


def made(*latest: Any) -> dict[str, Any]:
    return {"sources": [{"description": "x", "latestOffset": item} for item in latest]}


OURS = {"version": 1, "streams": {"s/t": {"0": 5}}, "lag_bytes": 70, "lag_events": 5}


@pytest.mark.parametrize("wrap", [dict, json.dumps, Progress])
def test_all_forms_of_a_progress(wrap: Any) -> None:
    assert lag(wrap(made(OURS))) == Lag(70, 5)
    assert lag(wrap(made(json.dumps(OURS)))) == Lag(70, 5)


def test_several_sources() -> None:
    without = {"lag_bytes": 1}
    assert lag(made(OURS, OURS, None, 17, "18")) == Lag(140, 10)
    assert lag(made(OURS, without)) == Lag(71, None)


def test_nothing_known() -> None:
    assert lag(None) is None
    assert lag({}) is None
    assert lag(made(None)) is None
