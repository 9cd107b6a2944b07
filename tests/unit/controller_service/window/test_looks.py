"""Looks tell lengths that are known, and say which are not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from controller_service.service import Controller
from controller_service.window import looks
from controller_service.window.looks import look_at, look_at_many
from controller_service.window.parts import WindowParts
from pravega_common.errors import StreamNotFound, Unavailable
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentInfo
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.segment_access import InMemorySegmentAccess


class StoresDown(InMemorySegmentAccess):
    """``is_down``: calls for lengths are refused; ``hangs``: they have no answer."""

    is_down = False
    hangs = False
    calls = 0

    async def infos_found(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        self.calls += 1
        if self.is_down:
            raise Unavailable("no store")
        if self.hangs:
            await asyncio.Event().wait()
        return await super().infos_found(segments)


@pytest.fixture
def access() -> StoresDown:
    return StoresDown()


@pytest.fixture
def parts(access: StoresDown) -> ControllerParts:
    return ControllerParts(access=access)


@pytest.fixture
async def window(controller: Controller) -> WindowParts:
    await controller.store.create_scope("s")
    for name, segments in (("one", 1), ("two", 2)):
        configuration = StreamConfiguration(ScalingPolicy.fixed(segments))
        await controller.parts.workflows.create.create("s", name, configuration)
    return controller.window_parts()


async def test_a_look_has_each_segment_and_their_sum(window: WindowParts, access: StoresDown) -> None:
    access.append(segment_name("s", "two", 0), 30)
    access.append(segment_name("s", "two", 1), 12)
    look = await look_at(window, "s", "two")
    assert look.segments is not None and look.unknown is None
    assert (look.bytes, {one.id: one.bytes for one in look.segments}) == (42, {"0.0": 30, "1.0": 12})
    with pytest.raises(StreamNotFound):
        await look_at(window, "s", "none")


async def test_many_streams_cost_one_request(window: WindowParts, access: StoresDown) -> None:
    access.append(segment_name("s", "two", 1), 12)
    calls = access.calls
    found = await look_at_many(window, [("s", "one"), ("s", "gone"), ("s", "two")])
    assert [(look.stream, look.bytes) for look in found.streams] == [("one", 0), ("two", 12)]
    assert access.calls == calls + 1


async def test_what_stores_do_not_tell_is_unknown_and_not_zero(
    window: WindowParts, access: StoresDown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "look_time_max_s", 0.05)
    for how, reason in (("is_down", "no store"), ("hangs", "did not answer within 0.05 s")):
        setattr(access, how, True)
        look = await look_at(window, "s", "two")
        assert look.bytes is None and look.unknown is not None and reason in look.unknown
        for of_many in (await look_at_many(window, [("s", "one"), ("s", "two")])).streams:
            assert of_many.bytes is None and of_many.unknown is not None and reason in of_many.unknown
        setattr(access, how, False)


async def test_one_segment_that_is_gone_makes_its_stream_alone_unknown(window: WindowParts, access: StoresDown) -> None:
    del access.segments[segment_name("s", "two", 1)]
    found = {look.stream: look for look in (await look_at_many(window, [("s", "one"), ("s", "two")])).streams}
    assert found["one"].bytes == 0 and found["one"].unknown is None
    assert found["two"].bytes is None and found["two"].unknown == "1 segments are not there"


async def test_a_look_asks_for_a_bounded_number_of_segments(
    window: WindowParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "segments_per_look_max", 2)
    found = {look.stream: look for look in (await look_at_many(window, [("s", "one"), ("s", "two")])).streams}
    assert found["one"].bytes == 0
    assert found["two"].bytes is None and found["two"].unknown is not None and "not asked" in found["two"].unknown
