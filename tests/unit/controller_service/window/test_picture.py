"""The picture of a stream has each segment once, with its epochs, keys and fate, and is bounded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from controller_service.service import Controller
from controller_service.window import picture as picture_module
from controller_service.window.answers import StreamPicture
from controller_service.window.parts import WindowParts
from controller_service.window.picture import chosen_epochs, columns_max
from controller_service.window.stream_facts import picture
from pravega_common.errors import InvalidArgument
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id, segment_name
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.history import stream_with_history


@pytest.fixture
def window(controller: Controller) -> WindowParts:
    return controller.window_parts()


async def scale(controller: Controller, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> None:
    before = (await (await controller.store.open("s", "t")).current_epoch()).epoch
    await controller.parts.workflows.scale.start("s", "t", seal, ranges)

    async def scaled() -> bool:
        context = await controller.store.open("s", "t")
        return (await context.current_epoch()).epoch > before and (await context.state()).value == "active"

    await eventually(scaled)


async def create(controller: Controller, segments: int) -> None:
    await controller.store.create_scope("s")
    await controller.parts.workflows.create.create("s", "t", StreamConfiguration(ScalingPolicy.fixed(segments)))


async def test_a_split_segment_ends_where_its_parts_begin(
    parts: ControllerParts, controller: Controller, window: WindowParts
) -> None:
    await create(controller, 2)
    parts.access.append(segment_name("s", "t", 0), 100)
    parts.access.append(segment_name("s", "t", 1), 7)
    await scale(controller, [0], [(0.0, 0.25), (0.25, 0.5)])
    found = await picture(window, "s", "t", None, None)
    assert [(one.epoch, one.segments, one.splits) for one in found.epochs] == [(0, 2, 0), (1, 3, 1)]
    segments = {one.id: one for one in found.segments}
    assert segments.keys() == {"0.0", "1.0", "2.1", "3.1"}
    old = segments["0.0"]
    assert (old.first_column, old.last_column, old.fate, old.bytes) == (0, 0, "sealed", 100)
    assert old.ended_ms == found.epochs[1].created_ms
    kept = segments["1.0"]
    assert (kept.first_column, kept.last_column, kept.fate, kept.bytes, kept.ended_ms) == (0, 1, "active", 7, None)
    assert (segments["2.1"].key_start, segments["2.1"].key_end, segments["2.1"].first_column) == (0.0, 0.25, 1)
    assert found.fold == 1 and found.left_out == 0 and found.unknown is None


async def test_what_lies_before_the_head_is_truncated(controller: Controller, window: WindowParts) -> None:
    await create(controller, 2)
    await scale(controller, [0], [(0.0, 0.25), (0.25, 0.5)])
    cut = {1: 0, segment_id(2, 1): 0, segment_id(3, 1): 0}
    await controller.parts.workflows.truncate.truncate("r", "s", "t", cut)
    fates = {one.id: one.fate for one in (await picture(window, "s", "t", None, None)).segments}
    assert fates == {"0.0": "truncated", "1.0": "active", "2.1": "active", "3.1": "active"}


async def test_segments_of_a_sealed_stream_are_sealed(controller: Controller, window: WindowParts) -> None:
    await create(controller, 1)
    await controller.parts.workflows.seal.seal("r", "s", "t")
    assert [one.fate for one in (await picture(window, "s", "t", None, None)).segments] == ["sealed"]


async def test_a_length_that_no_store_tells_is_left_out_with_the_reason(
    parts: ControllerParts, controller: Controller, window: WindowParts
) -> None:
    await create(controller, 2)
    del parts.access.segments[segment_name("s", "t", 1)]
    found = await picture(window, "s", "t", None, None)
    assert {one.id: one.bytes for one in found.segments} == {"0.0": 0, "1.0": None}
    assert found.unknown == "1 segments are not there"


async def test_a_span_of_epochs(parts: ControllerParts, controller: Controller, window: WindowParts) -> None:
    await stream_with_history(parts, controller, "s", "t", 4, 30)
    found = await picture(window, "s", "t", 10, 14)
    assert [one.epoch for one in found.epochs] == [10, 11, 12, 13, 14]
    assert covers_each_column(found)
    with pytest.raises(InvalidArgument, match="epochs 0 to 29"):
        await picture(window, "s", "t", 3, 30)
    with pytest.raises(InvalidArgument):
        await picture(window, "s", "t", 5, 4)


def covers_each_column(found: StreamPicture) -> bool:
    """Whether the rectangles of each column have every key once."""
    for column in range(len(found.epochs)):
        edge = 0.0
        there = [one for one in found.segments if one.first_column <= column <= one.last_column]
        for segment in sorted(there, key=lambda one: one.key_start):
            if segment.key_start != edge:
                return False
            edge = segment.key_end
        if edge != 1.0:
            return False
    return True


async def test_a_long_history_is_folded_and_still_covers_every_key(
    parts: ControllerParts, controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_module, "columns_max", 12)
    await stream_with_history(parts, controller, "s", "t", 5, 40)
    found = await picture(window, "s", "t", None, None)
    assert len(found.epochs) <= 12 and found.fold == 4 and found.epochs[-1].epoch == 39
    assert covers_each_column(found)


async def test_too_many_rectangles_leave_old_epochs_out(
    parts: ControllerParts, controller: Controller, window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_module, "rectangles_max", 20)
    await stream_with_history(parts, controller, "s", "t", 8, 40)
    found = await picture(window, "s", "t", None, None)
    assert len(found.segments) <= 20
    assert found.left_out == found.epochs[0].epoch > 0
    assert found.epochs[-1].epoch == 39 and covers_each_column(found)


@pytest.mark.parametrize(
    ("first", "last", "segments", "count", "fold"),
    [
        (0, 0, 1, 1, 1),
        (0, columns_max - 1, 500, columns_max, 1),
        (0, columns_max, 500, 101, 2),
        (5, 10_000, 4_500, 33, 303),
    ],
)
def test_epochs_are_spread_evenly_and_bounded(first: int, last: int, segments: int, count: int, fold: int) -> None:
    numbers, distance = chosen_epochs(first, last, segments)
    assert (len(numbers), distance) == (count, fold)
    assert numbers[-1] == last and numbers[0] >= first
    assert len(numbers) * segments <= picture_module.segments_read_max
