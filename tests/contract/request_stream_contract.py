"""Says how every ``RequestStream`` behaves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from pravega_common.errors import SegmentNotFound, SegmentSealed
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from segment_service.traffic.request_stream import RequestStream

SEGMENT = "_system/_requeststream/0.#epoch.0"
MISSING = "_system/_requeststream/1.#epoch.0"


def report(number: int) -> AutoScaleEvent:
    return AutoScaleEvent("scope", "stream", number, ScaleDirection.UP, 1_700_000_000_000, 2, False, -number)


class RequestStreamContract:
    """A subclass gives the fixtures ``stream``, of which ``SEGMENT`` exists; ``stored``, which tells its events; and
    ``seal``, which seals it."""

    async def test_events_are_stored_in_order(
        self, stream: RequestStream, stored: Callable[[], Awaitable[Sequence[AutoScaleEvent]]]
    ) -> None:
        await stream.append(SEGMENT, [report(1), report(2)])
        await stream.append(SEGMENT, [report(3)])
        assert list(await stored()) == [report(1), report(2), report(3)]

    async def test_a_segment_that_is_not_there_is_named(self, stream: RequestStream) -> None:
        with pytest.raises(SegmentNotFound, match=r"1\.#epoch\.0"):
            await stream.append(MISSING, [report(1)])

    async def test_a_sealed_segment_takes_nothing(
        self,
        stream: RequestStream,
        stored: Callable[[], Awaitable[Sequence[AutoScaleEvent]]],
        seal: Callable[[], Awaitable[None]],
    ) -> None:
        await stream.append(SEGMENT, [report(1)])
        await seal()
        with pytest.raises(SegmentSealed):
            await stream.append(SEGMENT, [report(2)])
        assert list(await stored()) == [report(1)]
