"""A controller tells in its metrics of the sinks that called it of late, and reads nothing else for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from controller_service.service import Controller
from controller_service.sets import known_sinks as module
from controller_service.sets.known_sinks import KnownSinks, SinkState, answer_age_max_s
from controller_service.sets.transaction_set import SetRecord, SetRecordState, SinkRecord
from pravega_common.errors import Unavailable
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.clock import ManualClock

NOW_MS = 1_700_000_000_000
D = "scope/stream"


def committed(state: SetRecordState, batch: int = 7) -> SetRecord:
    return SetRecord(1, batch, "run", (), 0, 0, state, NOW_MS)


class World:
    """Records by query id, and the reads of them."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall_ms=NOW_MS)
        self.records: dict[str, SinkRecord] = {}
        self.reads: list[str] = []
        self.is_down = False
        self.known = KnownSinks(self.read, self.clock)

    async def read(self, query_id: str, destination: str) -> SinkRecord | None:
        self.reads.append(query_id)
        if self.is_down:
            raise Unavailable("no store answers")
        assert destination == D
        return self.records.get(query_id)

    async def look(self) -> list[SinkState]:
        """The states that metrics would tell, after an old answer became too old."""
        await self.clock.advance(answer_age_max_s)
        await self.known.look()
        return self.known.states()


@pytest.fixture
def world() -> World:
    return World()


async def test_a_sink_has_the_age_of_its_last_batch_and_its_open_ones(world: World) -> None:
    finished = committed(SetRecordState.FINISHED)
    world.records["q"] = SinkRecord("q", D, last=finished, open_batches=(7, 8, 9))
    world.known.heard_of("q", D)
    assert await world.look() == [SinkState("q", D, 30.0, 2, 0.0)]
    await world.clock.advance(5)
    assert world.known.states()[0].batch_age_s == 35.0


@pytest.mark.parametrize("state", [SetRecordState.COMMITTED, SetRecordState.ORDERED])
async def test_a_batch_that_is_not_readable_is_an_open_round(world: World, state: SetRecordState) -> None:
    world.records["q"] = SinkRecord("q", D, last=committed(state))
    world.known.heard_of("q", D)
    assert await world.look() == [SinkState("q", D, 30.0, 0, 30.0)]


async def test_a_pending_set_is_an_open_round_without_a_batch(world: World) -> None:
    world.records["q"] = SinkRecord("q", D, pending=committed(SetRecordState.PENDING))
    world.known.heard_of("q", D)
    assert await world.look() == [SinkState("q", D, None, 0, 30.0)]


async def test_nothing_is_read_but_for_a_question_and_not_too_often(world: World) -> None:
    world.records["q"] = SinkRecord("q", D)
    for _ in range(5):
        world.known.heard_of("q", D)
    await world.clock.advance(1_000)
    assert world.reads == []
    await world.known.look()
    await world.known.look()
    assert world.reads == ["q"]


async def test_a_sink_that_is_gone_is_forgotten_and_one_that_cannot_be_read_is_kept(world: World) -> None:
    world.records["q"] = SinkRecord("q", D)
    world.known.heard_of("q", D)
    before = await world.look()
    world.is_down = True
    assert await world.look() == before != []
    world.is_down = False
    del world.records["q"]
    assert await world.look() == [] and len(world.known) == 0


async def test_the_one_that_called_longest_ago_makes_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "known_max", 2)
    for query_id in ("a", "b", "a", "c"):
        world.records[query_id] = SinkRecord(query_id, D)
        world.known.heard_of(query_id, D)
    assert [state.query_id for state in await world.look()] == ["a", "c"]


async def test_batch_writes_without_a_name_are_left_out(world: World) -> None:
    world.known.heard_of("write:0123", D)
    assert len(world.known) == 0


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    made = ControllerParts().controller(rest="127.0.0.1:0")
    await made.start()
    yield made
    await made.stop()


async def test_metrics_tell_what_is_known(controller: Controller) -> None:
    await controller.sets.commit("q", D, "run", 0, [], 0, 0)
    controller.known_sinks.heard_of("q", D)
    assert controller.rest is not None
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{controller.rest.port}/metrics")
        lines = (await answer.text()).splitlines()
    labels = '{destination="scope/stream",sink="q"}'
    assert f"pravega_controller_sink_open_batches{labels} 0.0" in lines
    assert f"pravega_controller_sink_round_open_seconds{labels} 0.0" in lines
    assert any(line.startswith(f"pravega_controller_sink_batch_age_seconds{labels} ") for line in lines)
    assert "pravega_controller_known_sinks 1.0" in lines
