"""Remembers the stores of segments for code with an event loop."""

from __future__ import annotations

from typing import cast

from pravega_common.names import index_segment_name, segment_name
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.asynchronous import AsyncController
from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.stream_tokens import StreamTokens

HERE, AWAY, NEW = Endpoint("here", 1), Endpoint("away", 2), Endpoint("new", 3)
NAMES = [segment_name("s", "t", number) for number in range(6)]


class Directory:
    """Knows the stores of segments by number, and counts the questions."""

    def __init__(self) -> None:
        self.tokens = StreamTokens(lambda scope, stream: "", needed=False)
        self.owners = {number: AWAY if number % 2 else HERE for number in range(len(NAMES))}
        self.asked: list[int] = []

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        self.asked.append(segment_id)
        return self.owners[segment_id]


async def test_a_store_that_is_away_makes_no_other_address_forgotten() -> None:
    directory = Directory()
    controller = AsyncController(cast("ControllerClient", directory))
    assert [await controller.resolve(name) for name in NAMES] == [HERE, AWAY] * 3
    directory.asked.clear()

    # Containers move together: those of a store that is gone are looked for again at the first sign of it.
    directory.owners |= dict.fromkeys((1, 3, 5), NEW)
    controller.forget(index_segment_name(NAMES[1]))
    assert [await controller.resolve(name) for name in NAMES] == [HERE, NEW] * 3
    assert directory.asked == [1, 3, 5]

    # A call that failed before knows nothing of what was found since, and one about an unknown segment of nothing.
    controller.forget(segment_name("s", "other", 0))
    assert [await controller.resolve(name) for name in NAMES] == [HERE, NEW] * 3
    assert directory.asked == [1, 3, 5]
