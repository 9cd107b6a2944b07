"""The requests that frequent calls of the controller make: a number that grows is a decision, not an accident."""

from __future__ import annotations

import pytest

from tests.bench.controller_calls import costs_of
from tests.bench.controller_frames import costs_of as frames_of

TABLE_REQUESTS = {"create stream": 25, "begin": 3, "commit": 15}
"""By call, for any number of segments. A creation ends by reading its scope, for a quota that came meanwhile."""


@pytest.mark.parametrize("width", [1, 8])
async def test_calls_make_these_requests(width: int) -> None:
    costs = await costs_of(width)
    assert {cost.name: cost.tables.total() for cost in costs} == TABLE_REQUESTS
    segments = {cost.name: cost.segments.total() for cost in costs}
    # The mark stream has a segment of its own; a commit measures sources and targets, and merges once a target.
    assert segments == {"create stream": width + 1, "begin": width, "commit": 3 * width}


@pytest.mark.parametrize("width", [1, 64])
async def test_frames_do_not_grow_with_the_segments(width: int) -> None:
    """To one store; the mark stream and the plan of a scale are calls of their own."""
    frames = {name: cost.count for name, cost in (await frames_of(width)).items()}
    assert frames == {"create": 2, "begin": 1, "commit": 2, "scale": 3, "seal": 1, "delete": 3}
