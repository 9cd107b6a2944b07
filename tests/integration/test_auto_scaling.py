"""Lets a stream scale by its traffic on a standalone with two stores: up under load, down again without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from tests.support.cluster import client, running_cluster
from tests.support.eventually import eventually
from tests.support.quick_scaling import QUICK_SCALING

__all__ = ["client"]

SCOPE = "scaling"
KEYS = 24
events_per_round = 48
up_time_max_s = 90.0
down_time_max_s = 120.0
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in QUICK_SCALING.items():
            patch.setenv(name, value)
        folder: Path = tmp_path_factory.mktemp("scaling")
        yield stack.enter_context(running_cluster(folder, segment_stores=2))


class Load:
    """Numbered events of some keys; every one of them is durable when ``write`` returns."""

    def __init__(self, client: StreamClient, stream: str) -> None:
        self.client = client
        self.stream = stream
        self.written = 0
        self.most = 1
        self.writer = EventWriter(client, SCOPE, stream)

    def segments(self) -> int:
        return len(self.client.controller.current_segments(SCOPE, self.stream))

    def write(self) -> None:
        for _ in range(events_per_round):
            self.writer.write(b"%d" % self.written, f"key-{self.written % KEYS}")
            self.written += 1
        self.writer.flush()

    def commit(self) -> None:
        transaction = TransactionalWriter(self.client, SCOPE, self.stream).begin()
        for _ in range(events_per_round):
            transaction.write(b"%d" % self.written, f"key-{self.written % KEYS}")
            self.written += 1
        transaction.commit()

    def check_events(self) -> None:
        """Every event once, those of a key in order."""
        numbers = [int(event.data) for event in read_events(self.client, SCOPE, self.stream)]
        assert sorted(numbers) == list(range(self.written))
        for key in range(KEYS):
            mine = [number for number in numbers if number % KEYS == key]
            assert mine == sorted(mine)


def new_load(client: StreamClient, stream: str, policy: ScalingPolicy) -> Load:
    client.controller.create_stream(SCOPE, stream, StreamConfiguration(policy))
    return Load(client, stream)


async def grows(load: Load, segments: int, *, by_transactions: bool = False) -> None:
    async def is_larger() -> bool:
        await asyncio.to_thread(load.commit if by_transactions else load.write)
        return load.segments() >= segments

    await eventually(is_larger, f"{segments} segments under load", up_time_max_s)


async def test_a_stream_goes_up_under_load_and_down_when_it_is_idle(client: StreamClient) -> None:
    load = new_load(client, "events", ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 30, 2, 1))
    await grows(load, 4)
    load.check_events()
    await eventually(lambda: load.segments() == 1, "one segment without load", down_time_max_s)
    load.write()
    load.check_events()
    await grows(load, 2)
    load.check_events()


async def test_a_stream_by_bytes_has_its_minimum_when_it_is_idle(client: StreamClient) -> None:
    load = new_load(client, "bytes", ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 1, 3, 2))
    await grows(load, 4)
    await eventually(lambda: load.segments() == 2, "the minimum without load", down_time_max_s)
    load.check_events()


async def test_transactions_are_traffic(client: StreamClient) -> None:
    load = new_load(client, "transactions", ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 20, 2, 1))
    await grows(load, 2, by_transactions=True)
    load.check_events()


async def test_a_fixed_stream_stays_as_it_is(client: StreamClient) -> None:
    fixed = new_load(client, "fixed", ScalingPolicy.fixed(1))
    load = new_load(client, "beside", ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 30, 2, 1))

    async def other_grows() -> bool:
        await asyncio.to_thread(fixed.write)
        await asyncio.to_thread(load.write)
        return load.segments() >= 2

    await eventually(other_grows, "the stream beside the fixed one", up_time_max_s)
    assert fixed.segments() == 1
    fixed.check_events()
