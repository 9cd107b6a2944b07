"""Reads the envelopes of events as controllers and stores write them."""

from __future__ import annotations

import pytest

from controller_service.event_processors.event_processor import Handling
from controller_service.event_processors.request_events import EventKind, RequestEvents
from pravega_common.errors import DataCorruption, UnsupportedOperation
from pravega_common.model.auto_scale_event import AUTO_SCALE_TYPE, AutoScaleEvent, ScaleDirection

REPORT = AutoScaleEvent("s", "t", 5, ScaleDirection.UP, 1_700_000_000_000, 3, False, 77)


@pytest.fixture
def handled() -> list[AutoScaleEvent]:
    return []


@pytest.fixture
def processor(handled: list[AutoScaleEvent]) -> RequestEvents:
    async def handle(event: AutoScaleEvent) -> None:
        handled.append(event)

    return RequestEvents({AUTO_SCALE_TYPE: EventKind(AutoScaleEvent.from_bytes, handle)})


async def test_a_report_of_a_store_reaches_its_handler(processor: RequestEvents, handled: list[AutoScaleEvent]) -> None:
    event = processor.decode(memoryview(REPORT.to_bytes()))
    assert processor.key_of(event) == "s/t"
    assert processor.merge_key(event) is None
    assert await processor.handle(event) is Handling.DONE
    assert handled == [REPORT]


@pytest.mark.parametrize("data", [b"", b"\0", b"\1\2", b"{}", REPORT.to_bytes()[:-1]])
def test_bytes_that_are_no_event_are_damage(processor: RequestEvents, data: bytes) -> None:
    with pytest.raises(DataCorruption):
        processor.decode(memoryview(data))


def test_an_event_of_another_kind_is_left_to_who_knows_it(processor: RequestEvents) -> None:
    with pytest.raises(UnsupportedOperation, match="type 9"):
        processor.decode(memoryview(b"\0\x09rest"))
