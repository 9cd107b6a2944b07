"""A container under random operations and random crashes, and the model that says what must be left afterwards.

Every append writes a block that no other append writes, and advances its segment's writer attribute by compare-and-set.
A call ends *done*, *not done* or *unknown*; after a crash the bytes must be all done blocks, in call order, none of the
blocks not done, and each unknown block whole or not at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from pravega_common.errors import Outcome, PravegaError, SegmentNotFound, Unavailable
from segment_service.container.segment_container import SegmentContainer
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.durable_log.checkpoint_policy import CheckpointPolicy
from segment_service.metadata_table.metadata_table import MetadataTableConfig
from tests.support.containers import ContainerKit, join, read_all
from tests.support.fakes.data_log import AppendFault
from tests.support.fakes.faulty_chunk_storage import FaultRates

T = TypeVar("T")

asked_max = 200
"""Times that Tier 2 is asked: each fails by itself with the fault rates of the kit."""

WRITER = AttributeId(b"writer-number-01")
TARGETS = ("a", "b")


@dataclass
class Item:
    """One call that adds bytes: an append, or the merge of a source."""

    call: asyncio.Future[Any]
    block: bytes = b""
    number: int = 0
    source: str = ""

    @property
    def outcome(self) -> str:
        if not self.call.done():
            return "unknown"
        error = self.call.exception()
        if error is None:
            return "done"
        assert isinstance(error, PravegaError), error
        return "unknown" if error.outcome is Outcome.UNKNOWN else "not done"


@dataclass
class SegmentModel:
    """``known`` is certain; ``items`` were called after it, in this order."""

    known: bytes = b""
    last_number: int = NULL_ATTRIBUTE_VALUE
    next_number: int = 0
    start_offset: int = 0
    items: list[Item] = field(default_factory=list)


class CrashTest:
    """One seed. ``run`` raises ``AssertionError`` when the container does what it must not."""

    def __init__(self, seed: int, make_kit: Callable[..., ContainerKit] = ContainerKit) -> None:
        self.random = random.Random(seed)
        self.kit = make_kit(
            cache_bytes=4 * 1024 * 1024,
            checkpoints=CheckpointPolicy(operations_max=self.random.choice((10, 50, 1_000)), bytes_max=100_000),
            plog_bytes=200_000,
        )
        self.kit.chunks.rates = FaultRates(unavailable=0.05, unknown_done=0.03, unknown_lost=0.03)
        self.kit.write_to_tier2()
        if seed % 2:  # segments leave memory whenever they may
            table = MetadataTableConfig(flush_age_s=0.005, idle_s=0.0, look_s=0.003, active_max=1)
            self.kit.config = replace(self.kit.config, metadata_table=table)
        self.models = {name: SegmentModel() for name in TARGETS}
        self.sources: dict[str, SegmentModel] = {}
        self.zombies: list[SegmentContainer] = []
        self.names = 0
        self.reads: list[tuple[str, asyncio.Task[Any]]] = []

    async def run(self, crashes: int, steps: int) -> None:
        container = await self._open()
        for name in TARGETS:
            await container.create_segment(name)
        for _ in range(crashes):
            for _ in range(self.random.randrange(steps)):
                await self._step(container)
            container = await self._crash(container)
            await self._check(container)
        await container.stop()
        for zombie in self.zombies:
            await self._bury(zombie)

    async def _open(self) -> SegmentContainer:
        while True:
            try:
                return await self.kit.open()
            except PravegaError:
                continue  # an injected fault hit the start itself

    async def _step(self, container: SegmentContainer) -> None:
        choice = self.random.random()
        if choice < 0.45:
            self._append(container, self.random.choice([*TARGETS, *self.sources]))
        elif choice < 0.55:
            await self._create_source(container)
        elif choice < 0.65 and self.sources:
            self._merge(container)
            await asyncio.sleep(0)  # a task's call is made in its first step
        elif choice < 0.72:
            self._truncate(container)
        elif choice < 0.82:
            self._read(container)
        elif choice < 0.84:
            self._start(container.durable_log.checkpoint())
        for _ in range(self.random.choice((0, 0, 1, 5, 30))):
            await asyncio.sleep(0)
        if self.random.random() < 0.03:
            await asyncio.sleep(0.02)  # let the storage writer's clock tick

    def _append(self, container: SegmentContainer, segment: str) -> None:
        model = self.models.get(segment) or self.sources[segment]
        self.names += 1
        size = self.random.choice((0, 10, 100, 3_000, 30_000))
        block = b"<%d:%s>" % (self.names, b"x" * size)
        old = model.next_number or NULL_ATTRIBUTE_VALUE
        model.next_number += 1
        updates = (
            AttributeUpdate(WRITER, AttributeUpdateType.REPLACE_IF_EQUALS, model.next_number, old),
            AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 1),
        )
        call = container.append(segment, [block[:3], block[3:]], updates)
        model.items.append(Item(call, block, model.next_number))

    async def _create_source(self, container: SegmentContainer) -> None:
        self.names += 1
        name = f"source-{self.names}"
        try:
            await container.create_segment(name)
        except PravegaError:
            return
        self.sources[name] = SegmentModel()

    def _merge(self, container: SegmentContainer) -> None:
        name = self.random.choice([*self.sources])
        target = self.random.choice(TARGETS)
        if any(item.source == name for model in self.models.values() for item in model.items):
            return
        call = self._start(container.merge(target, name))
        self.models[target].items.append(Item(call, source=name))

    def _truncate(self, container: SegmentContainer) -> None:
        name = self.random.choice(TARGETS)
        model = self.models[name]
        if len(model.known) > model.start_offset:
            offset = self.random.randrange(model.start_offset, len(model.known))
            model.start_offset = offset  # a caller that got "unknown" must expect it
            self._start(container.truncate(name, offset))

    def _read(self, container: SegmentContainer) -> None:
        name = self.random.choice(TARGETS)
        model = self.models[name]
        offset = self.random.randrange(model.start_offset, len(model.known) + 50_000)
        self.reads.append((name, asyncio.ensure_future(container.read(name, offset, 40_000))))

    def _start(self, call: Awaitable[Any]) -> asyncio.Future[Any]:
        task = asyncio.ensure_future(call)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _crash(self, container: SegmentContainer) -> SegmentContainer:
        """End the owner in one of the ways in which owners end, and open the next."""
        how = self.random.randrange(5)
        if how == 0:
            await container.stop()
        elif how == 1:
            container.fail(RuntimeError("crash"))
        elif how == 2:
            await self._fail_log(container)
        # Otherwise the old owner goes on and is fenced by the next one.
        successor = await self._open()
        if how == 3:
            self.zombies.append(container)  # its storage writer goes on, beside its successor's
        else:
            self._append(container, TARGETS[0])
            for _ in range(5):
                await asyncio.sleep(0)
            await self._bury(container)
        while len(self.zombies) > 1:
            await self._bury(self.zombies.pop(0))
        calls = [item.call for model in (*self.models.values(), *self.sources.values()) for item in model.items]
        if calls:
            _, pending = await asyncio.wait(calls, timeout=5)
            assert not pending, "a call was never answered"
        return successor

    async def _bury(self, container: SegmentContainer) -> None:
        container.fail(RuntimeError("crash"))
        try:
            await container.wait_stopped()
        except (RuntimeError, PravegaError):
            pass

    async def _fail_log(self, container: SegmentContainer) -> None:
        fault = self.random.choice(list(AppendFault))
        self.kit.logs.faults.plan_append(fault, self.random.randrange(1, 6))
        while container.durable_log.is_running:
            self._append(container, self.random.choice(TARGETS))
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(0)

    async def _check(self, container: SegmentContainer) -> None:
        for name, model in list(self.sources.items()):
            await self._check_source(container, name, model)
        for name, model in self.models.items():
            info = await patiently(partial(container.get_info, name))
            assert info.start_offset <= model.start_offset
            content = await read_patiently(container, name, info.start_offset)
            model.start_offset = max(info.start_offset, 0)
            await self._resolve(container, name, model, model.known[: info.start_offset] + content)
        for name, item in ((name, item) for name, item in self.sources.items() if item.known is None):
            raise AssertionError(f"{name} is neither merged nor there: {item}")
        self._check_reads()

    async def _check_source(self, container: SegmentContainer, name: str, model: SegmentModel) -> None:
        try:
            content = await read_patiently(container, name)
        except SegmentNotFound:
            merges = [item for target in self.models.values() for item in target.items if item.source == name]
            assert merges and merges[0].outcome != "not done", f"{name} disappeared without a merge"
            return
        await self._resolve(container, name, model, content)
        for target in self.models.values():
            for item in [item for item in target.items if item.source == name]:
                assert item.outcome != "done", f"{name} was merged and is still there"
                target.items.remove(item)
        if (await patiently(partial(container.get_info, name))).is_sealed:
            del self.sources[name]  # a merge sealed it and went no further

    async def _resolve(self, container: SegmentContainer, name: str, model: SegmentModel, content: bytes) -> None:
        """Explain the content by the calls; afterwards everything in it is known."""
        assert content.startswith(model.known), f"{name}: acknowledged bytes changed"
        position = len(model.known)
        for item in model.items:
            blocks = [item] if not item.source else self.sources[item.source].items
            begin = position
            if item.source:
                known = self.sources[item.source].known
                if not content.startswith(known, position):
                    assert item.outcome != "done", f"{name}: a merge that was done is missing"
                    raise AssertionError(f"{name}: {item.source} is gone, and its bytes are not there")
                position += len(known)
            for block in blocks:
                is_there = bool(block.block) and content.startswith(block.block, position)
                assert is_there or block.outcome != "done", f"{name}: block {block.number} was acknowledged and is lost"
                assert not is_there or block.outcome != "not done", f"{name}: block {block.number} was refused"
                if is_there:
                    position += len(block.block)
                    if not item.source:
                        model.last_number = block.number
            if item.source:
                assert item.outcome != "not done" or position == begin, f"{name}: a refused merge was done"
                del self.sources[item.source]
        assert position == len(content), f"{name}: {len(content) - position} bytes that nobody wrote"
        model.known = content
        model.items = []
        number = await patiently(partial(container.get_attribute, name, WRITER))
        assert number == model.last_number, f"{name}: writer attribute"
        model.next_number = max(model.last_number, 0)

    def _check_reads(self) -> None:
        """Bytes that readers saw, also of the owner before, never change."""
        for name, task in self.reads:
            if task.done() and not task.cancelled() and task.exception() is None:
                result = task.result()
                seen = join(result.data)
                assert self.models[name].known[result.offset : result.offset + len(seen)] == seen, f"{name}: read"
            else:
                task.cancel()
        self.reads = []


async def read_patiently(container: SegmentContainer, segment: str, offset: int = 0) -> bytes:
    """All bytes, however often Tier 2 does not answer."""
    return await patiently(lambda: read_all(container, segment, offset))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, however often Tier 2 does not give one: segments that left memory are looked up there."""
    for _ in range(asked_max):
        try:
            return await ask()
        except Unavailable:
            continue
    raise AssertionError(f"Tier 2 did not answer {asked_max} times")
