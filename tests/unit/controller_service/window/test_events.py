"""Events are cut out of what was read, whole or not at all, and never more than an answer may have."""

from __future__ import annotations

import base64
import struct

import pytest

from controller_service.service import Controller
from controller_service.window.events import Start, event_bytes_shown_max, events_max, read_events, split_events
from pravega_common.errors import InvalidArgument, UnsupportedOperation


def framed(*events: bytes) -> bytes:
    return b"".join(struct.pack(">ii", 0, len(event)) + event for event in events)


def test_events_come_with_their_offsets() -> None:
    found, following = split_events(framed(b"one", b"", b"three"), 100, newest=False)
    assert [(one.offset, base64.b64decode(one.data)) for one in found] == [(100, b"one"), (111, b""), (119, b"three")]
    assert following == 100 + len(framed(b"one", b"", b"three"))


def test_an_event_that_was_not_read_whole_is_left_for_the_next_answer() -> None:
    data = framed(b"one", b"x" * 50)
    for cut in range(len(framed(b"one")), len(data)):
        found, following = split_events(data[:cut], 0, newest=False)
        assert [one.offset for one in found] == [0] and following == 11


def test_an_event_longer_than_an_answer_reads_is_passed_over() -> None:
    found, following = split_events(framed(b"x" * 50)[:30], 7, newest=False)
    assert [(one.length, one.shown) for one in found] == [(50, 22)] and following == 7 + 58


def test_an_answer_is_bounded() -> None:
    many = framed(*(b"%04d" % number for number in range(events_max + 3)))
    found, following = split_events(many, 0, newest=False)
    assert len(found) == events_max and following == events_max * 12
    newest, following = split_events(many, 0, newest=True)
    assert len(newest) == events_max and newest[0].offset == 36 and following == len(many)
    [long], _ = split_events(framed(b"x" * 10_000), 0, newest=False)
    assert (long.length, long.shown, len(base64.b64decode(long.data))) == (10_000, event_bytes_shown_max, 4_096)


@pytest.mark.parametrize("header", [(1, 3), (0, -1), (0, 1 << 30), (-1, 0)])
def test_a_place_where_no_event_begins_is_refused(header: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="no event begins at offset 5"):
        split_events(struct.pack(">ii", *header) + b"abc", 5, newest=False)


async def test_without_connections_events_are_refused_with_the_reason(controller: Controller) -> None:
    with pytest.raises(UnsupportedOperation, match="no connections"):
        await read_events(controller.window_parts(), "s", "t", "0.0", Start("tail"))
