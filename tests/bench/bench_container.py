"""Measures append blocks a second through one container, without a network: ``python -m tests.bench.bench_container``.

The log answers on the next turn of the loop and keeps nothing, Tier 2 is a writer that has everything at once; so what
is measured is validation, packing, checksum, cache and acknowledgement. Prints one JSON object per block size, with
the CPU time of a block beside the rate, since the machine is shared. Best of several rounds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import structlog
import uvloop

from pravega_common.services.base import Service
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import DurableDataLog, LogAddress, LogEntry
from segment_service.contracts.operations import Append
from segment_service.contracts.segment_storage import SegmentStorage
from segment_service.contracts.writer_data_source import WriterDataSource
from tests.support.containers import ContainerKit

rounds: Final = 5
segments: Final = 4
cases: Final = ((1_000, 60_000, 2_000), (10_000, 30_000, 1_000), (100_000, 6_000, 200), (1_000_000, 1_000, 16))
"""Bytes of a block, blocks, blocks in flight."""
writer_id: Final = AttributeId(b"bench-writer-001")


class InstantLog(DurableDataLog):
    """A log that is durable at once and forgets everything."""

    epoch = 1
    is_full = False

    def __init__(self, container_id: int) -> None:
        self._container_id = container_id
        self._frames = 0

    @property
    def container_id(self) -> int:
        return self._container_id

    async def initialize(self, epoch_min: int = 1) -> None:
        pass

    async def check_owner(self) -> None:
        pass

    async def read(self) -> AsyncIterator[LogEntry]:
        nothing: tuple[LogEntry, ...] = ()
        for entry in nothing:
            yield entry

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[LogAddress] = loop.create_future()
        self._frames += 1
        address = LogAddress(0, self._frames)

        def durable() -> None:
            if not future.done():
                future.set_result(address)

        loop.call_soon(durable)
        return future

    async def wait_full(self) -> None:
        await asyncio.Event().wait()

    def relieve(self) -> None:
        pass

    async def truncate(self, up_to: LogAddress) -> None:
        pass

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        pass

    async def note_loss(self) -> None:
        pass

    async def close(self) -> None:
        pass


class InstantWriter(Service):
    """A storage writer whose Tier 2 has everything at once."""

    def __init__(self, source: WriterDataSource, storage: SegmentStorage) -> None:
        super().__init__("instant-writer")
        self._source = source

    async def flush(self, sequence_number: int) -> None:
        """Nothing waits."""

    async def on_start(self) -> None:
        self.spawn(self._run(), "run")

    async def _run(self) -> None:
        after = 0
        while True:
            operations = await self._source.read_operations(after, 10_000)
            ends = {item.segment_id: item.offset + item.length for item in operations if isinstance(item, Append)}
            for segment_id, end in ends.items():
                self._source.storage_length_changed(segment_id, end)
            after = operations[-1].sequence_number
            await self._source.acknowledge(after)


class InstantKit(ContainerKit):
    def make_log(self, container_id: int) -> DurableDataLog:
        return InstantLog(container_id)


async def measure(size: int, count: int, in_flight_max: int) -> dict[str, float]:
    kit = InstantKit(cache_bytes=128 << 20, unflushed_bytes_max=80 << 20)
    kit.writer_factory = InstantWriter
    container = await kit.open()
    names = [f"scope/stream/{number}.#epoch.0" for number in range(segments)]
    for name in names:
        await container.create_segment(name)
    window = asyncio.Semaphore(in_flight_max)
    data = memoryview(bytes(size))
    last = dict.fromkeys(names, NULL_ATTRIBUTE_VALUE)

    def acknowledged(done: asyncio.Future[int]) -> None:
        done.result()
        window.release()

    began, cpu_began = time.perf_counter(), time.process_time()
    for number in range(1, count + 1):
        await window.acquire()
        name = names[number % segments]
        updates = (
            AttributeUpdate(writer_id, AttributeUpdateType.REPLACE_IF_EQUALS, number, last[name]),
            AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 10),
        )
        last[name] = number
        container.append(name, (data,), updates).add_done_callback(acknowledged)
    for _ in range(in_flight_max):
        await window.acquire()
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    await container.stop()
    return {
        "blocks_per_s": round(count / taken),
        "MB_per_s": round(count * size / taken / 1e6),
        "cpu_us_per_block": round(cpu / count * 1e6, 1),
    }


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for size, count, in_flight_max in cases:
        results = [uvloop.run(measure(size, count, in_flight_max)) for _ in range(rounds)]
        best = max(results, key=lambda result: result["blocks_per_s"])
        print(json.dumps({"block_bytes": size, "in_flight": in_flight_max, **best}))


if __name__ == "__main__":
    main()
