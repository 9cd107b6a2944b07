"""Counts the frames that calls of the controller send to a segment store, and their milliseconds, over real sockets.

``python -m tests.bench.controller_frames`` prints a table for streams of 1, 8, 64 and 1,000 segments, with batches and
without them, as a plain Pravega is asked. The store runs in this process, with log and Tier 2 in memory.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import structlog

from controller_service.segment_access.wire_access import WireSegmentAccess
from controller_service.service import Controller
from controller_service.store.table_backend import TableVersionedStore
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.wire import commands as c
from pravega_common.wire.versions import EXTENSIONS
from pravega_streams.connection import asynchronous
from pravega_streams.connection.asynchronous import WireConnection
from pravega_streams.connection.requests import MakeCommand
from pravega_streams.table.table_client import TableClient
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually
from tests.support.store_in_process import running_store

WIDTHS: Final = (1, 8, 64, 1_000)
RUNS: Final = 3
"""Of which the quickest counts: others use the machine."""
S: Final = "scope"
_TABLE_PREFIX: Final = "_system/_tables/"


@dataclass
class Frames:
    """About segments, those about tables left out; a batch is one."""

    count: int = 0
    milliseconds: float = 0.0


class Counter:
    """Counts what leaves through all connections of the process."""

    def __init__(self) -> None:
        self.now = Frames()

    def note(self, command: c.Command) -> None:
        if not str(getattr(command, "segment", "")).startswith(_TABLE_PREFIX):
            self.now.count += 1

    @contextmanager
    def attached(self) -> Iterator[None]:
        call = WireConnection.call

        async def counted(connection: WireConnection, make: MakeCommand) -> c.Command:
            self.note(make(0))
            return await call(connection, make)

        WireConnection.call = counted  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            WireConnection.call = call  # type: ignore[method-assign]


class Measured:
    """A controller whose calls are measured."""

    def __init__(self, controller: Controller, counter: Counter) -> None:
        self.controller = controller
        self.counter = counter
        self.costs: dict[str, Frames] = {}

    async def measure(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        self.counter.now = Frames()
        start_s = time.perf_counter()
        result = await work()
        self.counter.now.milliseconds = 1_000 * (time.perf_counter() - start_s)
        self.costs[name] = self.counter.now
        return result

    async def commit(self, stream: str, identifier: uuid.UUID) -> None:
        """Until its events can be read."""
        transactions = self.controller.transactions
        with transactions.completions.expect([identifier]) as expectation:
            await transactions.commit(S, stream, identifier)
            await expectation.all_came


async def costs_of(width: int) -> dict[str, Frames]:
    """Create a stream, begin and commit a transaction, replace all segments, delete the stream; by name."""
    counter = Counter()
    with TemporaryDirectory() as folder, counter.attached():
        async with running_store(Path(folder)) as store:
            access = WireSegmentAccess(store.client)
            parts = ControllerParts(tables=TableVersionedStore(TableClient(store.client)), faulty_access=access)
            controller = parts.controller()
            await controller.start()
            measured = Measured(controller, counter)
            await _measure_all(measured, width)
            await controller.stop()
    return measured.costs


async def _measure_all(measured: Measured, width: int) -> None:
    controller = measured.controller
    workflows, transactions = controller.parts.workflows, controller.transactions
    await controller.store.create_scope(S)
    configuration = StreamConfiguration(ScalingPolicy.fixed(width))
    for stream in ("warm", "stream"):
        await measured.measure("create", partial(workflows.create.create, S, stream, configuration))
        created = await measured.measure("begin", partial(transactions.create, S, stream, 30_000))
        await measured.measure("commit", partial(measured.commit, stream, created.id))
        context = await controller.store.open(S, stream)
        epoch = await context.current_epoch()
        ranges = [(segment.key_start, segment.key_end) for segment in epoch.segments]
        await measured.measure("scale", partial(_scale, controller, stream, epoch.segment_ids, ranges))
        await measured.measure("seal", partial(workflows.seal.seal, uuid.uuid4().hex, S, stream))
        await measured.measure("delete", partial(workflows.delete.delete, uuid.uuid4().hex, S, stream))


async def _scale(controller: Controller, stream: str, ids: Any, ranges: Any) -> None:
    """Until the new segments are the current ones."""
    plan = await controller.parts.workflows.scale.start(S, stream, list(ids), ranges)

    async def is_done() -> bool:
        return (await (await controller.store.open(S, stream)).current_epoch()).epoch == plan.new_epoch

    await eventually(is_done, "the new epoch")


async def _best_of(width: int, extensions: int) -> dict[str, Frames]:
    asynchronous.EXTENSIONS = extensions  # type: ignore[attr-defined]
    runs = [await costs_of(width) for _ in range(RUNS)]
    return {name: min((run[name] for run in runs), key=lambda cost: cost.milliseconds) for name in runs[0]}


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    print("| segments | call | frames, single | ms | frames, batched | ms |\n|---|---|---|---|---|---|")
    for width in WIDTHS:
        plain, batched = await _best_of(width, 0), await _best_of(width, EXTENSIONS)
        for name in plain:
            one, many = plain[name], batched[name]
            print(
                f"| {width:,} | {name} | {one.count:,} | {one.milliseconds:.0f} "
                f"| {many.count:,} | {many.milliseconds:.0f} |"
            )


if __name__ == "__main__":
    asyncio.run(main())
