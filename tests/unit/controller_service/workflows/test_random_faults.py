"""Two controllers, calls to store and segments that fail at random, and streams that must come out whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from controller_service.service import Controller
from controller_service.store.in_memory import InMemoryVersionedStore
from pravega_common.errors import Outcome, PravegaError, StreamNotFound
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.runtime.clock import SystemClock
from tests.support.controller_in_memory import ControllerParts
from tests.support.faults import Faulty
from tests.support.stream_audit import audit, requests_left

SEEDS = range(25)
OPERATIONS = 12
ATTEMPTS = 60
pytestmark = pytest.mark.usefixtures("no_log")


async def insist(call: Callable[[], Awaitable[object]]) -> None:
    """Make a call again until it was answered; a refusal is an answer."""
    errors: list[PravegaError] = []
    for _ in range(ATTEMPTS):
        try:
            await call()
            return
        except PravegaError as error:
            if error.outcome is Outcome.REJECTED:
                return
            errors.append(error)
    raise AssertionError(f"no answer: {errors}")


class HastyClock(SystemClock):
    """Waits are a hundredth of what they should be."""

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s / 100)


class Chaos:
    def __init__(self, seed: int, controllers: list[Controller]) -> None:
        self.random = Random(seed)
        self.controllers = controllers
        self.requests = 0

    async def run(self) -> None:
        await insist(lambda: self.any().store.create_scope("s"))
        streams = [self.stream_life(f"t{number}") for number in range(3)]
        await asyncio.gather(*streams)

    def any(self) -> Controller:
        return self.random.choice(self.controllers)

    def new_request(self) -> str:
        self.requests += 1
        return f"chaos-{self.requests}"

    async def stream_life(self, stream: str) -> None:
        for _ in range(OPERATIONS):
            operation = self.random.choice(
                [self.create, self.create, self.update, self.scale, self.scale, self.truncate, self.seal, self.delete]
            )
            await insist(lambda operation=operation: operation(stream))  # type: ignore[misc]

    async def create(self, stream: str) -> None:
        policy = ScalingPolicy.fixed(self.random.randint(1, 3))
        tags = tuple(f"tag{number}" for number in range(self.random.randrange(3)))
        await self.any().parts.workflows.create.create("s", stream, StreamConfiguration(policy, tags=tags))

    async def update(self, stream: str) -> None:
        policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10, 2, self.random.randint(1, 4))
        await self.any().parts.workflows.update.update(self.new_request(), "s", stream, StreamConfiguration(policy))

    async def scale(self, stream: str) -> None:
        controller = self.any()
        current = await (await controller.store.open("s", stream)).current_epoch()
        segment = self.random.choice(current.segments)
        middle = (segment.key_start + segment.key_end) / 2
        ranges = [(segment.key_start, middle), (middle, segment.key_end)]
        await self.any().parts.workflows.scale.start("s", stream, [segment.segment_id], ranges)

    async def truncate(self, stream: str) -> None:
        controller = self.any()
        current = await (await controller.store.open("s", stream)).current_epoch()
        cut = dict.fromkeys(current.segment_ids, 0)
        await self.any().parts.workflows.truncate.truncate(self.new_request(), "s", stream, cut)

    async def seal(self, stream: str) -> None:
        await self.any().parts.workflows.seal.seal(self.new_request(), "s", stream)

    async def delete(self, stream: str) -> None:
        try:
            await self.any().parts.workflows.delete.delete(self.new_request(), "s", stream)
        except StreamNotFound:
            return


@pytest.mark.parametrize("seed", SEEDS)
async def test_streams_are_whole_in_the_end(seed: int) -> None:
    random = Random(seed)
    parts = ControllerParts(clock=HastyClock(), random=Random(seed))
    faulty_tables = Faulty(InMemoryVersionedStore(), random, 0.0)
    faulty_access = Faulty(parts.access, random, 0.0)
    parts.tables, parts.faulty_access = faulty_tables, faulty_access
    controllers = [parts.controller(), parts.controller()]
    for controller in controllers:
        await controller.start()
    try:
        faulty_tables.probability = faulty_access.probability = 0.03
        async with asyncio.timeout(100):
            await Chaos(seed, controllers).run()
        faulty_tables.probability = faulty_access.probability = 0.0
        assert faulty_tables.failures + faulty_access.failures > 0
        for _ in range(2000):
            if not await requests_left(parts.tables):
                break
            await asyncio.sleep(0.01)
        assert await requests_left(parts.tables) == 0
        await audit(controllers[0], parts.access)
    finally:
        for controller in controllers:
            await controller.stop()
