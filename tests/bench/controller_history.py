"""Measures the truncation and the reading of a stream with a long history, over tables in memory with a store's limits.

``python -m tests.bench.controller_history [--epochs 2000] [--segments 1000]`` makes the records of a stream whose
segments were all replaced in each epoch, and prints milliseconds, table requests and the memory of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import resource
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from controller_service.buckets.history_expiry import HistoryExpiry
from controller_service.service import Controller
from controller_service.store.epochs import duplicate_epoch
from controller_service.store.history import place_in, segments_between
from controller_service.store.history_floor import awaits_expiry
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import (
    CURRENT_EPOCH,
    EpochRecord,
    SealedSegmentRecord,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.serializer import encode
from controller_service.store.versioned_store import ANY_VERSION, Put
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id
from tests.support.controller_in_memory import ControllerParts
from tests.support.fakes.segment_access import InMemorySegment, InMemorySegmentAccess

S, T = "scope", "stream"
bytes_per_segment: Final = 7


class CountingTables(InMemoryVersionedStore):
    """Counts requests, and the bytes that they read."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = 0
        self.bytes = 0

    async def get_many(self, table: str, keys: Sequence[str]) -> Any:
        self.requests += 1
        found = await super().get_many(table, keys)
        self.bytes += sum(len(value.value) for value in found if value is not None)
        return found

    async def remove_many(self, table: str, keys: Sequence[str]) -> None:
        self.requests += 1
        await super().remove_many(table, keys)

    async def put_many(self, table: str, puts: Sequence[Put]) -> list[int]:
        self.requests += 1
        return await super().put_many(table, puts)


class CountedSegments(InMemorySegmentAccess):
    """Has every segment of the stream without keeping it; counts what is deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted = 0

    async def delete_segments(self, segments: Sequence[str]) -> None:
        self.deleted += len(segments)

    def _segment(self, name: str) -> InMemorySegment:
        return self.segments.get(name) or InMemorySegment(0, bytes_per_segment)


async def _build(controller: Controller, tables: CountingTables, epochs: int, segments: int) -> None:
    await controller.store.create_scope(S)
    await controller.parts.workflows.create.create(S, T, StreamConfiguration(ScalingPolicy.fixed(segments)))
    context = await controller.store.open(S, T)
    epoch: EpochRecord = await context.current_epoch()
    for _ in range(1, epochs):
        following = duplicate_epoch(epoch, epoch.epoch + 1, epoch.created_ms + 1_000, epoch)
        following = dataclasses.replace(following, reference_epoch=following.epoch)
        replaced = encode(SealedSegmentRecord(following.epoch, bytes_per_segment))
        puts = [Put(epoch_key(following.epoch).name, encode(following), ANY_VERSION)]
        puts += [Put(sealed_segment_key(old).name, replaced, ANY_VERSION) for old in epoch.segment_ids]
        await tables.put_many(context.metadata_table, puts)
        epoch = following
    await tables.put(context.metadata_table, CURRENT_EPOCH.name, encode(epoch), ANY_VERSION)


async def _expires(controller: Controller) -> bool:
    history = await (await controller.store.open(S, T)).history()
    return awaits_expiry(history) or history.removed_till < history.oldest_epoch


async def _stored(tables: CountingTables) -> tuple[int, int]:
    """The number of the stream's records, and their MiB."""
    stored = [table for name, table in tables._tables.items() if name.startswith(f"{S}/{T}/")]
    values = [found.value for table in stored for found in table.values()]
    return len(values), sum(map(len, values)) >> 20


async def _measure(name: str, tables: CountingTables, work: Callable[[], Awaitable[Any]]) -> Any:
    tables.requests = tables.bytes = 0
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    result = await work()
    spent_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    requests, read_mib = tables.requests, tables.bytes >> 20
    print(f"| {name} | {spent_s:.2f} | {cpu_s:.2f} | {requests:,} | {read_mib:,} | {peak_mib:,} |", flush=True)
    return result


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2_000)
    parser.add_argument("--segments", type=int, default=1_000)
    wanted = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    tables, access = CountingTables(), CountedSegments()
    controller = ControllerParts(tables=tables, access=access).controller()
    await controller.start()
    truncate, last = controller.parts.workflows.truncate, wanted.epochs - 1

    def cut(epoch: int, offset: int = 0) -> dict[int, int]:
        return {segment_id(number, epoch): offset for number in range(wanted.segments)}

    async def between() -> int:
        context = await controller.store.open(S, T)
        first, end = await place_in(context, cut(0)), await place_in(context, cut(last, bytes_per_segment))
        return len(await segments_between(context, first, end))

    async def from_oldest() -> int:
        context = await controller.store.open(S, T)
        first = await place_in(context, cut((await context.history()).oldest_epoch))
        return len(await segments_between(context, first, await place_in(context, cut(last, bytes_per_segment))))

    print("| what | s | CPU s | table requests | MiB read | peak MiB |\n|---|---|---|---|---|---|")
    await _measure("making it", tables, lambda: _build(controller, tables, wanted.epochs, wanted.segments))
    found = await _measure("the segments between its ends", tables, between)
    print(f"  {found:,} segments")
    await _measure("truncating its first half", tables, lambda: truncate.truncate("1", S, T, cut(last // 2)))
    await _measure("truncating to its last epoch", tables, lambda: truncate.truncate("2", S, T, cut(last)))
    print(f"  {access.deleted:,} segments deleted")
    await _measure("the segments of its head", tables, lambda: controller.store.open(S, T))
    expiry, before = HistoryExpiry(controller.store, controller.transactions.records, age_ms=0), await _stored(tables)
    # The first truncation waits first; what the second one left behind is noted when its turn is over.
    while await _expires(controller):
        await _measure("a run that removes its old epochs", tables, lambda: expiry.apply(S, T))
    print("  {:,} records of {:,} MiB before, {:,} of {:,} MiB after".format(*before, *await _stored(tables)))
    await _measure("the segments from its oldest epoch on", tables, from_oldest)
    await controller.stop()


if __name__ == "__main__":
    asyncio.run(main())
