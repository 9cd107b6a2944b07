"""How far subscribers are behind, and what of it a controller tells in its metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest

from controller_service.lag import known_subscribers as module
from controller_service.lag.known_subscribers import KnownSubscribers, lag_age_max_s
from controller_service.lag.subscriber_lag import SubscriberLag, lag_problems, stalled_max_s
from controller_service.window import stream_lags
from controller_service.window.stream_lag import lag_of
from controller_service.window.stream_lags import lags_of_many
from pravega_common.errors import InvalidArgument, NotFound, Unavailable
from pravega_common.lag_forms import lag_from, lag_to
from pravega_common.model.segments import SegmentInfo
from pravega_common.model.stream_lags import DescribedLag, streams_per_call_max
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_access import InMemorySegmentAccess
from tests.support.subscriptions import GROUP_ID, SUCCESS, Subscriptions

NOW_MS = 1_700_000_000_000


class CountedStores(InMemorySegmentAccess):
    """Counts the questions about segments, which a test can leave without an answer."""

    questions = 0
    are_down = False

    async def infos_found(self, segments: Sequence[str]) -> list[SegmentInfo | None]:
        self.questions += 1
        if self.are_down:
            raise Unavailable("no store answers")
        return await super().infos_found(segments)


class World:
    """Streams ``scope/one`` and ``scope/two`` of one segment with 100 bytes each, to which groups subscribe."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=NOW_MS)
        self.access = CountedStores()
        self.parts = ControllerParts(clock=self.clock, access=self.access)
        self.controller = self.parts.controller(rest="127.0.0.1:0")
        self.subscriptions = Subscriptions(self.controller)

    @property
    def known(self) -> KnownSubscribers:
        return self.controller.known_subscribers

    async def look(self) -> dict[tuple[str, str], int | None]:
        """The distances that metrics would tell, after an old answer became too old."""
        await self.clock.advance(lag_age_max_s)
        await self.known.look()
        return {(stream, lag.name): lag.behind_bytes for stream, lag, _ in self.known.lags()}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.controller.start()
    for stream in ("one", "two"):
        await made.subscriptions.stream("scope", stream)
        made.access.append(f"scope/{stream}/0.#epoch.0", 100)
    await made.subscriptions.subscribe("scope", "group", "one", "two")
    yield made
    await made.controller.stop()


# ---- one stream ------------------------------------------------------------------------------------------------------


async def test_the_distance_is_from_the_last_position_to_the_tail(world: World) -> None:
    assert await world.subscriptions.release("scope/group", "scope/one", 60) == SUCCESS
    window = world.controller.window_parts()
    found = await lag_of(window, "scope", "one")
    [subscriber] = found.subscribers
    assert (subscriber.name, subscriber.behind_bytes, subscriber.updated_ms) == ("scope/group", 40, NOW_MS)
    assert not found.problems and not found.unknown and found.left_out == 0
    world.access.append("scope/one/0.#epoch.0", 500)
    assert (await lag_of(window, "scope", "one", "scope/group")).subscribers[0].behind_bytes == 540
    with pytest.raises(NotFound, match="scope/one has no subscriber 'scope/nobody'"):
        await lag_of(window, "scope", "one", "scope/nobody")


async def test_what_is_not_known_has_a_reason(world: World) -> None:
    window = world.controller.window_parts()
    [silent] = (await lag_of(window, "scope", "one")).subscribers
    assert (silent.behind_bytes, silent.unknown) == (None, "it has not told a position yet")
    await world.subscriptions.release("scope/group", "scope/one", 60)
    world.access.are_down = True
    found = await lag_of(window, "scope", "one")
    assert found.unknown == ["no store answers"]
    assert (found.subscribers[0].behind_bytes, found.subscribers[0].unknown) == (None, "not known now")


async def test_a_position_before_the_head_is_a_problem(world: World) -> None:
    await world.subscriptions.release("scope/group", "scope/one", 60)
    await world.controller.parts.workflows.truncate.truncate("r", "scope", "one", {0: 70})
    found = await lag_of(world.controller.window_parts(), "scope", "one")
    assert found.subscribers[0].behind_bytes == 40
    assert [problem.code for problem in found.problems] == ["subscriber-truncated"]


def test_a_subscriber_is_stalled_only_with_something_to_read() -> None:
    then = NOW_MS - (stalled_max_s + 1) * 1000
    behind, idle = SubscriberLag("s/behind", then, 5), SubscriberLag("s/idle", then, 0)
    fresh, unknown = SubscriberLag("s/fresh", NOW_MS - 5_000, 5), SubscriberLag("s/unknown", then)
    [problem] = lag_problems([behind, idle, fresh, unknown], NOW_MS)
    assert problem.code == "subscriber-stalled" and "s/behind is 5 B behind" in problem.text
    assert "pravega-spark subscriber remove s/behind" in problem.remedy and not problem.stops_work


# ---- a page of streams -----------------------------------------------------------------------------------------------


async def test_many_streams_are_told_with_one_request_to_the_stores(world: World) -> None:
    await world.subscriptions.stream("scope", "alone")
    await world.subscriptions.release("scope/group", "scope/one", 60)
    asked, window = world.access.questions, world.controller.window_parts()
    names = [("scope", name) for name in ("one", "gone", "alone", "two", "one")]
    one, alone, two = await lags_of_many(window, names)
    assert world.access.questions == asked + 1
    [subscriber] = one.subscribers
    assert (one.stream, subscriber.name, subscriber.behind_bytes) == ("one", "scope/group", 40)
    assert alone == DescribedLag("scope", "alone")
    assert [(each.behind_bytes, each.unknown) for each in two.subscribers] == [(None, "it has not told a position yet")]
    assert await lags_of_many(window, [("scope", "alone")]) == [alone]
    assert world.access.questions == asked + 1, "without subscribers no store is asked"


async def test_a_page_has_a_bounded_number_of_streams(world: World) -> None:
    names = [("scope", str(index)) for index in range(streams_per_call_max + 1)]
    with pytest.raises(InvalidArgument, match="51 streams; one call tells the lag of 50 at most"):
        await lags_of_many(world.controller.window_parts(), names)


async def test_the_distances_of_a_page_read_a_bounded_number_of_segments(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_lags, "segments_read_of_all_max", 1)
    for stream in ("one", "two"):
        await world.subscriptions.release("scope/group", f"scope/{stream}", 60)
    found = await lags_of_many(world.controller.window_parts(), [("scope", "one"), ("scope", "two")])
    assert [one.subscribers[0].behind_bytes for one in found] == [40, None]
    assert found[1].subscribers[0].unknown == "not known now"


async def test_a_page_says_what_the_stores_did_not_tell(world: World) -> None:
    await world.subscriptions.release("scope/group", "scope/one", 60)
    world.access.are_down = True
    [found] = await lags_of_many(world.controller.window_parts(), [("scope", "one")])
    assert found.unknown == "no store answers"
    assert (found.subscribers[0].behind_bytes, found.subscribers[0].unknown) == (None, "not known now")
    assert lag_from(lag_to(found)) == found


# ---- metrics ---------------------------------------------------------------------------------------------------------


async def test_whoever_tells_a_position_is_known(world: World) -> None:
    assert await world.look() == {}
    await world.subscriptions.release("scope/group", "scope/one", 60)
    assert await world.look() == {("scope/one", "scope/group"): 40}
    await world.subscriptions.release("scope/group", "scope/two", 100)
    assert await world.look() == {("scope/one", "scope/group"): 40, ("scope/two", "scope/group"): 0}
    await world.controller.parts.groups.delete("scope", "group", GROUP_ID)
    assert await world.look() == {} and len(world.known) == 0


async def test_an_answer_is_kept_for_a_while_and_nobody_is_asked_unasked(world: World) -> None:
    await world.subscriptions.release("scope/group", "scope/one", 60)
    await world.look()
    asked = world.access.questions
    for _ in range(5):
        await world.known.look()
    await world.clock.advance(10 * lag_age_max_s)
    assert world.access.questions == asked
    await world.known.look()
    assert world.access.questions == asked + 1, "one question for each known stream"


async def test_a_stream_that_cannot_be_asked_keeps_what_was_known(world: World) -> None:
    await world.subscriptions.release("scope/group", "scope/one", 60)
    before = await world.look()
    world.access.are_down = True
    assert await world.look() == before
    world.access.are_down = False
    world.access.append("scope/one/0.#epoch.0", 1)
    assert await world.look() == {("scope/one", "scope/group"): 41}


async def test_there_is_room_for_a_bounded_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "known_max", 1)
    await world.subscriptions.release("scope/group", "scope/one", 60)
    await world.subscriptions.release("scope/group", "scope/two", 60)
    assert await world.look() == {("scope/one", "scope/group"): 40}
    await world.controller.parts.workflows.seal.seal("s", "scope", "one")
    await world.controller.parts.workflows.delete.delete("d", "scope", "one")
    assert await world.look() == {}
    await world.subscriptions.release("scope/group", "scope/two", 70)
    assert await world.look() == {("scope/two", "scope/group"): 30}


async def test_retention_makes_the_subscribers_of_a_dead_controller_known(world: World) -> None:
    other = world.parts.controller()
    await other.start()
    await Subscriptions(other).release("scope/group", "scope/one", 60)
    await other.stop()
    assert (len(other.known_subscribers), len(world.known)) == (1, 0)
    await world.subscriptions.retain("scope", "one")
    await world.controller.retention.run_once()
    assert await world.look() == {("scope/one", "scope/group"): 40}


async def test_metrics_tell_what_is_known(world: World) -> None:
    await world.subscriptions.release("scope/group", "scope/one", 60)
    await world.clock.advance(90)
    assert world.controller.rest is not None
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{world.controller.rest.port}/metrics")
        lines = (await answer.text()).splitlines()
    labels = '{stream="scope/one",subscriber="scope/group"}'
    assert f"pravega_controller_subscriber_behind_bytes{labels} 40.0" in lines
    assert f"pravega_controller_subscriber_stalled_seconds{labels} 90.0" in lines
    assert "pravega_controller_known_subscribers 1.0" in lines
