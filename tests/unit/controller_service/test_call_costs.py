"""The requests that frequent calls of the controller make: a number that grows is a decision, not an accident."""

from __future__ import annotations

import pytest

from tests.bench.controller_calls import costs_of

TABLE_REQUESTS = {"create stream": 22, "begin": 3, "commit": 15}
"""By call, for any number of segments."""


@pytest.mark.parametrize("width", [1, 8])
async def test_calls_make_these_requests(width: int) -> None:
    costs = await costs_of(width)
    assert {cost.name: cost.tables.total() for cost in costs} == TABLE_REQUESTS
    segments = {cost.name: cost.segments.total() for cost in costs}
    # The mark stream has a segment of its own; a commit measures sources and targets, and merges once a target.
    assert segments == {"create stream": width + 1, "begin": width, "commit": 3 * width}
