"""Cuts connections in the middle of batches to a real store: what is asked again finds its own work, exactly once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from controller_service.segment_access.wire_access import WireSegmentAccess
from pravega_common.errors import SegmentNotFound
from pravega_common.wire import commands as c
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.segment.raw_client import RawClient
from tests.support.proxy import CuttingProxy
from tests.support.store_in_process import FixedEndpoint, running_store
from tests.support.wire_client import WireClient

COUNT = 300
NAMES = [f"scope/stream/{number}.#epoch.0" for number in range(COUNT)]
SOURCES = [f"{name}#transaction.{number:032x}" for number, name in enumerate(NAMES)]
cuts_per_call = 4


class CutOff:
    """A way to a store whose connection is reset now and then, at once or after its answers were lost."""

    def __init__(self, proxy: CuttingProxy, access: WireSegmentAccess, port: int) -> None:
        self.proxy = proxy
        self.access = access
        self.port = port

    async def disturb(self, random: Random) -> None:
        for _ in range(cuts_per_call):
            self.proxy.swallow_answers = random.random() < 0.5
            for _ in range(random.randrange(200)):
                await asyncio.sleep(0)
            self.proxy.swallow_answers = False
            self.proxy.cut()


@pytest.fixture
async def cut_off(tmp_path: Path) -> AsyncIterator[CutOff]:
    async with running_store(tmp_path) as store:
        proxy = CuttingProxy(f"127.0.0.1:{store.port}")
        await proxy.start()
        client = RawClient(FixedEndpoint(Endpoint.parse(proxy.address)), call_time_s=30)
        yield CutOff(proxy, WireSegmentAccess(client), store.port)
        client.close()
        await proxy.stop()


async def append_to_all(port: int, segments: list[str]) -> None:
    """One byte more in each segment than in the one before it."""
    client, writer = await WireClient.connect(port), uuid.uuid4().bytes
    for number, segment in enumerate(segments):
        await client.call(c.SetupAppend(1, writer, segment), c.AppendSetup)
        await client.call(c.AppendBlockEnd(writer, number + 1, bytes(number + 1), 1, 1, 2), c.DataAppended)
    await client.close()


@pytest.mark.parametrize("seed", range(8))
async def test_every_call_on_many_segments_is_done_once(cut_off: CutOff, seed: int) -> None:
    random, access = Random(seed), cut_off.access

    async def disturbed(call: asyncio.Future[object]) -> object:
        await cut_off.disturb(random)
        return await call

    await disturbed(asyncio.ensure_future(access.create_segments([*NAMES, *SOURCES])))
    await append_to_all(cut_off.port, SOURCES)
    await disturbed(asyncio.ensure_future(access.seal_segments(SOURCES)))
    infos = await access.infos(SOURCES)
    assert [(info.length, info.is_sealed) for info in infos] == [(number + 1, True) for number in range(COUNT)]
    merges = [(name, [source]) for name, source in zip(NAMES, SOURCES, strict=True)]
    merged = await disturbed(asyncio.ensure_future(access.merge_batches(merges)))
    assert merged == [[number + 1] for number in range(COUNT)]
    assert [info.length for info in await access.infos(NAMES)] == [number + 1 for number in range(COUNT)]
    await disturbed(asyncio.ensure_future(access.delete_segments(NAMES)))
    for name in random.sample(NAMES, 10):
        with pytest.raises(SegmentNotFound):
            await access.info(name)
    assert cut_off.proxy.connections > cuts_per_call, "connections were lost"
