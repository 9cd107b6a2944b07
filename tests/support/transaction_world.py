"""Runs a controller's transactions in memory: instances die at a chosen operation, and time runs by itself."""

from __future__ import annotations

import asyncio
import heapq
import inspect
import itertools
import uuid
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from random import Random
from typing import Any, TypeVar

from controller_service.buckets.history_expiry import HistoryExpiry
from controller_service.buckets.stream_retention import StreamRetention
from controller_service.errors import PreconditionFailed
from controller_service.policies.auto_scale import AutoScaleLimits
from controller_service.queue.table_request_queue import TableRequestQueue
from controller_service.segment_access.second_deletion import SecondDeletion
from controller_service.sets.transaction_set import MemberRecord
from controller_service.sets.transaction_set_service import TransactionSetService
from controller_service.store.byte_limits import ByteLimitsRecord
from controller_service.store.epochs import initial_epoch
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.records import (
    CONFIGURATION,
    STATE,
    ConfigurationRecord,
    EpochRecord,
    SealedSegmentRecord,
    SegmentRecord,
    StateRecord,
    StreamState,
    epoch_key,
    sealed_segment_key,
)
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.store.versioned_store import VersionedStore
from controller_service.store.writer_marks import WriterMarks
from controller_service.transactions.commit_marks import CommitMarks
from controller_service.transactions.lifecycle import CreatedTransaction, TransactionService
from controller_service.transactions.records import transaction_segments
from controller_service.workflows.auto_scale import AutoScale
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_scope import DeleteScope
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.key_value_tables import KeyValueTables
from controller_service.workflows.reader_groups import ReaderGroups
from controller_service.workflows.remove_stream import StreamRemoval
from controller_service.workflows.scale_stream import ScaleStream
from controller_service.workflows.scope_quota import SetScopeQuota
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.truncate_stream import TruncateStream
from controller_service.workflows.update_stream import UpdateStream
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import is_transaction_segment
from pravega_common.runtime.failpoints import arm, disarm_all
from tests.support.fakes.cpo import InMemoryCPO
from tests.support.fakes.segment_access import InMemorySegmentAccess, OneByOne

T = TypeVar("T")

WORKING: ContextVar[str] = ContextVar("WORKING", default="")
"""The name of the instance whose work the present task does."""

event_bytes = 10
retention_period_ms = 60_000
history_ms = 3_600_000


class Crashed(BaseException):
    """The process is gone. Not an ``Exception``: nothing may handle it."""


class VirtualClock:
    """Time that jumps to the next sleeper whenever ``run`` finds nothing else to do."""

    def __init__(self) -> None:
        self._now_s = 1_000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()
        self.agrees = True
        """Whether the time of day is taken for right."""

    def monotonic_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self._now_s * 1000)

    def is_right(self) -> bool:
        return self.agrees

    async def sleep(self, delay_s: float) -> None:
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + delay_s, next(self._tickets), waiter))
        await waiter

    def _jump(self) -> None:
        while self._sleepers:
            at_s, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                self._now_s = max(self._now_s, at_s)
                waiter.set_result(None)
                return
        self._now_s += 0.1

    async def run(self, work: Awaitable[T], limit_s: float = 3_600.0) -> T:
        """The result of ``work``, moving time while it waits; ``TimeoutError`` after ``limit_s`` of such time."""
        task = asyncio.ensure_future(work)
        end_s = self._now_s + limit_s
        # Nothing here waits for the outside world: when no callback is ready, everybody sleeps.
        ready: Any = getattr(asyncio.get_running_loop(), "_ready", None)
        try:
            while not task.done():
                await asyncio.sleep(0)
                if task.done():
                    return task.result()
                if ready:
                    continue
                if self._now_s > end_s:
                    raise TimeoutError(f"not done after {limit_s} s of virtual time")
                self._jump()
            return task.result()
        finally:
            if not task.done():
                task.cancel()

    def skip(self, delta_s: float) -> None:
        """Move the time without waking anybody in between."""
        self._now_s += delta_s

    async def pass_time(self, delta_s: float) -> None:
        await self.run(self.sleep(delta_s), delta_s + 1)


class CrashSwitch:
    """Counts the operations of one instance and crashes it at a chosen one, before or after its effect."""

    def __init__(self, crash_at: int | None = None, after_effect: bool = False) -> None:
        self.count = 0
        self.crashed = False
        self._crash_at = crash_at
        self._after_effect = after_effect

    def crash_after(self, calls: int, after_effect: bool) -> None:
        """At the n-th operation from now."""
        self._crash_at, self._after_effect = self.count + calls, after_effect

    async def call(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(0)
        if self.crashed:
            raise Crashed
        self.count += 1
        last = self.count == self._crash_at
        if last and not self._after_effect:
            self.crash()
        result = await work(*args, **kwargs)
        if last:
            self.crash()
        return result

    def crash(self) -> None:
        self.crashed = True
        raise Crashed


class CrashingProxy(OneByOne):
    """A proxy of any object, whose coroutine methods go through a crash switch."""

    def __init__(self, inner: Any, switch: CrashSwitch) -> None:
        self._inner = inner
        self._switch = switch

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._switch.call(method, *args, **kwargs)

        return call


class EventSegments(InMemorySegmentAccess):
    """Segments that remember which events they hold, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: dict[str, list[str]] = {}

    def write(self, segment: str, event: str) -> None:
        self.append(segment, event_bytes)
        self.events.setdefault(segment, []).append(event)

    async def delete_segments(self, segments: Sequence[str]) -> None:
        await super().delete_segments(segments)
        for name in segments:
            self.events.pop(name, None)

    async def merge_batch(self, target: str, sources: Sequence[str]) -> list[int]:
        lengths = await super().merge_batch(target, sources)
        for source in sources:
            self.events.setdefault(target, []).extend(self.events.pop(source, []))
        return lengths

    def stream_events(self, scope: str, stream: str) -> dict[str, list[str]]:
        """Events by stream segment, transactions' own segments left out."""
        return {
            name: list(self.events.get(name, []))
            for name in self.segments
            if name.startswith(f"{scope}/{stream}/") and not is_transaction_segment(name)
        }

    def transaction_segments(self) -> list[str]:
        return [name for name in self.segments if is_transaction_segment(name)]


class Instance:
    """One controller process."""

    def __init__(self, world: World, name: str, switch: CrashSwitch) -> None:
        self.world = world
        self.name = name
        self.switch = switch
        store: Any = CrashingProxy(world.store, switch)
        segments: Any = CrashingProxy(world.segments, switch)
        self.segments = segments
        self.streams = StreamStore(store, world.clock, world.new_id, name)
        self.queue = TableRequestQueue(store, name, world.clock, world.live_owners)
        again = SecondDeletion(self.queue, segments, world.clock)
        self.transactions = TransactionService(
            store=store,
            streams=self.streams,
            segments=segments,
            queue=self.queue,
            clock=world.clock,
            listener=CommitMarks(WriterMarks(self.streams)),
            again=again,
            live_owners=world.live_owners,
        )
        self.sets = TransactionSetService(transactions=self.transactions, store=store, clock=world.clock)
        queue, streams = self.queue, self.streams
        removal = StreamRemoval(streams, segments, self.transactions, again)
        self.create = CreateStream(streams, segments, queue, removal)
        self.update = UpdateStream(streams, segments, queue)
        self.scale = ScaleStream(streams, segments, queue)
        self.auto_scale = AutoScale(streams, segments, self.scale, world.clock, AutoScaleLimits(cooldown_ms=0))
        self.truncate = TruncateStream(streams, segments, queue, again)
        self.seal = SealStream(streams, segments, queue, self.transactions)
        self.delete = DeleteStream(streams, queue, removal)
        self.groups = ReaderGroups(streams, queue, self.create, self.seal, self.delete)
        self.tables = KeyValueTables(streams, segments, queue, again)
        cpo: Any = CrashingProxy(world.cpo, switch)
        limits = ByteLimitsRecord(streams, cpo)
        self.delete_scope = DeleteScope(streams, queue, self.seal, self.delete, self.groups, self.tables, limits)
        self.quota = SetScopeQuota(streams, queue, limits, world.new_id)
        self.retention = StreamRetention(streams, segments, self.truncate, retention_period_ms)
        self.expiry = HistoryExpiry(streams, self.transactions.records, history_ms)

    async def start(self) -> None:
        WORKING.set(self.name)
        self.world.live.add(self.name)
        for service in (self.queue, self.transactions, self.sets):
            await service.start()

    async def kill(self) -> None:
        disarm_all()
        self.switch.crashed = True
        self.world.live.discard(self.name)
        for service in (self.sets, self.transactions, self.queue):
            await asyncio.gather(service.stop(), return_exceptions=True)

    def die_at(self, failpoint: str) -> None:
        """Failpoints belong to the process: no other instance may get there first."""
        arm(failpoint, self.switch.crash)


class World:
    """The state that survives the instances: tables, segments and time."""

    def __init__(self, seed: int = 0, store: VersionedStore | None = None) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.store: VersionedStore = store or InMemoryVersionedStore()
        self.segments = EventSegments()
        self.cpo = InMemoryCPO(self.clock)
        self.streams = StreamStore(self.store, self.clock, self.new_id)
        self.live: set[str] = set()
        self._names = itertools.count(1)
        self.instances: list[Instance] = []

    def new_id(self) -> str:
        return uuid.UUID(int=self.random.getrandbits(128)).hex

    async def live_owners(self) -> set[str]:
        return set(self.live)

    async def instance(self, switch: CrashSwitch | None = None) -> Instance:
        """A started controller; time runs while it starts."""
        instance = self.add_instance(switch)
        await self.run(instance.start())
        return instance

    def add_instance(self, switch: CrashSwitch | None = None) -> Instance:
        """A controller whose services the test starts itself."""
        instance = Instance(self, f"c{next(self._names)}", switch or CrashSwitch())
        self.instances.append(instance)
        return instance

    async def run(self, work: Awaitable[T], limit_s: float = 3_600.0) -> T:
        return await self.clock.run(work, limit_s)

    async def close(self) -> None:
        for instance in self.instances:
            await self.run(instance.kill())

    async def create_stream(self, scope: str, stream: str, segments: int = 2) -> None:
        await self.streams.create_system_tables()
        await self.streams.create_scope(scope)
        await self.streams.add_entry(scope, stream, ())
        epoch = initial_epoch(0, segments, self.clock.wall_ms())
        policy = ScalingPolicy.fixed(segments)

        async def write(context: StreamContext) -> None:
            await context.put(STATE, StateRecord(StreamState.ACTIVE))
            await context.put(CONFIGURATION, ConfigurationRecord(StreamConfiguration(policy)))
            await context.put(epoch_key(0), epoch)
            context.stage_current(epoch)

        await self.streams.update(scope, stream, write)
        await self.segments.create_segments(epoch.names(scope, stream))

    async def move_state(self, scope: str, stream: str, state: StreamState) -> None:
        await self.streams.update(scope, stream, lambda context: context.move_state(state))

    async def scale_to_one(self, scope: str, stream: str) -> EpochRecord:
        """Replace all segments by one, as a finished scale leaves the records."""
        old = await (await self.streams.open(scope, stream)).current_epoch()
        number = max(segment.number for segment in old.segments) + 1
        now_ms = old.created_ms + 1
        new = EpochRecord(
            old.epoch + 1, old.epoch + 1, (SegmentRecord(number, old.epoch + 1, now_ms, 0.0, 1.0),), now_ms
        )
        await self.segments.create_segments(new.names(scope, stream))

        async def change(context: StreamContext) -> None:
            await context.put(epoch_key(new.epoch), new)
            for segment in old.segments:
                size = self.segments.segments[segment.name(scope, stream)].length
                await context.put(sealed_segment_key(segment.segment_id), SealedSegmentRecord(new.epoch, size))
            context.stage_current(new)

        await self.streams.update(scope, stream, change)
        await self.segments.seal_segments(old.names(scope, stream))
        return new

    async def begin(
        self, instance: Instance, scope: str, stream: str, label: str, lease_ms: int = 30_000
    ) -> CreatedTransaction:
        """A transaction with one event ``<label>`` in each of its segments."""
        created = await self.run(instance.transactions.create(scope, stream, lease_ms))
        self.write(scope, stream, created, label)
        return created

    def write(self, scope: str, stream: str, created: CreatedTransaction, label: str) -> None:
        """One event in each segment of a transaction."""
        numbers = [segment.number for segment in created.segments]
        for name in transaction_segments(scope, stream, created.id, numbers):
            self.segments.write(name, label)

    async def end_all(self, instance: Instance, scope: str, stream: str) -> bool:
        """One step of what the sealing of a stream does to its transactions."""
        context = await instance.streams.open(scope, stream)
        return await instance.transactions.end_all(scope, stream, context.stream_id)

    async def put_epoch(self, scope: str, stream: str, number: int) -> None:
        """Put an epoch of one segment on record that nobody planned."""
        segment = SegmentRecord(99, number, 1, 0.0, 1.0)
        record = EpochRecord(number, number, (segment,), 1)
        await self.streams.update(scope, stream, lambda context: context.put(epoch_key(number), record))

    async def split(self, instance: Instance, scope: str, stream: str) -> None:
        """Begin to replace the first segment by two halves, as a client's call does; a refusal is an answer."""
        current = await (await instance.streams.open(scope, stream)).current_epoch()
        first = current.segments[0]
        middle = (first.key_start + first.key_end) / 2
        ranges = [(first.key_start, middle), (middle, first.key_end)]
        try:
            await instance.scale.start(scope, stream, [first.segment_id], ranges)
        except PreconditionFailed:
            return

    async def readable(self, scope: str, stream: str) -> list[str]:
        """The events in the segments of all epochs on record: what a reader from the start comes to see."""
        context = await self.streams.open(scope, stream)
        names: dict[str, None] = {}
        for number in range((await context.history()).oldest_epoch, (await context.current_epoch()).epoch + 1):
            names |= dict.fromkeys((await context.epoch(number)).names(scope, stream))
        return [event for name in names for event in self.segments.events.get(name, [])]

    async def member(
        self, instance: Instance, scope: str, stream: str, label: str, partition: int, lease_ms: int = 30_000
    ) -> MemberRecord:
        created = await self.begin(instance, scope, stream, label, lease_ms)
        return MemberRecord(f"{scope}/{stream}", created.id.hex, partition, 1, event_bytes)
