"""Lists the controller's workflows as scripts of one call each, with what must be true afterwards.

``python -m tests.support.workflow_steps`` prints the table of workflows and their failpoints, at each of which
``tests/unit/controller_service/workflows/test_two_live_controllers.py`` disturbs the controller that works.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from controller_service.errors import QuotaExceeded
from controller_service.sets.transaction_set import MemberRecord, SetRecord, SetRecordState, Verdict
from controller_service.store.history_floor import epochs_before_head_max
from controller_service.store.members import (
    KeyValueTableRecord,
    ReaderGroupConfig,
    ScopeMemberState,
)
from controller_service.store.records import RETENTION_SET, SUBSCRIBERS, StreamState, SubscribersRecord
from controller_service.transactions.lifecycle import CreatedTransaction
from pravega_common.errors import ScopeNotEmpty, ScopeNotFound, StreamNotFound
from pravega_common.model.auto_scale_event import AutoScaleEvent, ScaleDirection
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.scope_quota import ScopeQuota
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id, table_segment_name
from pravega_common.runtime import failpoints
from pravega_common.services.cluster.byte_limits import BYTE_LIMITS_KEY, AllByteLimits, ByteLimits
from tests.support.transaction_world import CrashSwitch, Instance, World, event_bytes, history_ms

S: Final = "scope"
T: Final = "stream"
U: Final = "other"
GROUP_ID: Final = "11111111-2222-3333-4444-555555555555"
TWO: Final = StreamConfiguration(ScalingPolicy.fixed(2))
THREE: Final = StreamConfiguration(
    ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 7, 2, 3), RetentionPolicy(RetentionType.TIME, 1 << 40), ("tag",)
)

EXPIRED_EPOCHS: Final = 3

DISTURBANCES: Final = ("dies", "cut off", "stands still")
"""The ways in which each step is disturbed: the controller dies, the call to it is cancelled, or the controller stands
still until its lease is over."""
NEEDS_OLD_VERSION: Final = {"transaction_commit.made_rolling"}
"""A step that only a round of a version before the marks of rounds leads to."""
OPERATORS: Final = {"transaction_repair.given_up", "transaction_repair.loss_accepted"}
"""Steps of remedies that an operator carries out on lost data: ``tests/unit/controller_service/repair``."""
WATERMARKS: Final = {
    "controller.watermark_appended",
    "controller.watermark_marked",
    "controller.watermark_stream_created",
}
"""Steps of a periodic job, which ``tests/unit/controller_service/watermarks`` interrupts beside another instance."""


@dataclass
class Scene:
    """A world with two live controllers, and what the script of a workflow keeps between its parts."""

    world: World
    first: Instance
    second: Instance
    created: list[CreatedTransaction] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Events that must be readable in the end."""

    async def run(self, work: Awaitable[object]) -> None:
        await self.world.run(work, 600)

    async def make_stream(self, stream: str, configuration: StreamConfiguration = TWO) -> None:
        await self.run(self.second.create.create(S, stream, configuration))

    async def write(self, stream: str) -> None:
        """One event into each active segment."""
        epoch = await (await self.world.streams.open(S, stream)).current_epoch()
        for name in epoch.names(S, stream):
            self.world.segments.write(name, f"{stream}-{epoch.epoch}")
            self.expected.append(f"{stream}-{epoch.epoch}")

    async def scale(self, stream: str) -> None:
        await self.run(self.world.split(self.second, S, stream))
        await self.world.clock.pass_time(5)

    async def begin(self, stream: str, label: str) -> CreatedTransaction:
        created = await self.world.begin(self.second, S, stream, label)
        self.created.append(created)
        return created

    def live(self) -> Instance:
        """A controller that still runs."""
        return self.second if self.first.switch.crashed else self.first

    def held(self, stream: str) -> list[str]:
        """Every event that a segment of the stream holds."""
        return [event for events in self.world.segments.stream_events(S, stream).values() for event in events]

    async def state(self, stream: str) -> StreamState:
        return await (await self.world.streams.open(S, stream)).state()


Script = Callable[[Scene], Awaitable[None]]
Act = Callable[[Scene, Instance], Awaitable[object]]


@dataclass(frozen=True)
class Workflow:
    """``act`` is one call of a client, which may be made again, also on another controller."""

    name: str
    prepare: Script
    act: Act
    check: Script


# ---- streams ---------------------------------------------------------------------------------------------------------


async def nothing(scene: Scene) -> None:
    """No preparation."""


async def a_stream(scene: Scene, configuration: StreamConfiguration = TWO) -> None:
    await scene.make_stream(T, configuration)
    await scene.write(T)


async def a_scaled_stream(scene: Scene) -> None:
    await a_stream(scene)
    await scene.scale(T)
    await scene.write(T)


async def create(scene: Scene, one: Instance) -> object:
    return await one.create.create(S, T, TWO)


async def is_active(scene: Scene) -> None:
    assert await scene.state(T) is StreamState.ACTIVE


async def update(scene: Scene, one: Instance) -> None:
    await one.update.update(scene.world.new_id(), S, T, THREE)


async def is_updated(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    assert (await context.configuration()).configuration == THREE
    names = (await context.current_epoch()).names(S, T)
    assert [scene.world.segments.segments[name].target_rate for name in names] == [7, 7, 7]


async def split(scene: Scene, one: Instance) -> object:
    if (await (await one.streams.open(S, T)).current_epoch()).epoch == 0:
        await scene.world.split(one, S, T)
    return None


async def is_scaled(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    epoch = await context.current_epoch()
    assert (epoch.epoch, len(epoch.segments), await context.state()) == (1, 3, StreamState.ACTIVE)


async def a_stream_to_scale(scene: Scene) -> None:
    """One segment, and a policy by rate; its store reports on it."""
    await a_stream(scene, StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 7, 4, 1)))


def report(scene: Scene, segment: int, direction: ScaleDirection, splits: int = 0) -> AutoScaleEvent:
    return AutoScaleEvent(S, T, segment, direction, scene.world.clock.wall_ms(), splits, False, 1)


async def split_hot(scene: Scene, one: Instance) -> object:
    await one.auto_scale.handle(report(scene, 0, ScaleDirection.UP, 3))
    return None


async def is_split(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    epoch = await context.current_epoch()
    assert (epoch.epoch, len(epoch.segments), await context.state()) == (1, 3, StreamState.ACTIVE)


async def a_stream_to_shrink(scene: Scene) -> None:
    """Three segments, two more than the policy's minimum."""
    await a_stream_to_scale(scene)
    await scene.run(split_hot(scene, scene.second))
    await scene.world.clock.pass_time(5)
    await scene.write(T)


async def merge_cold(scene: Scene, one: Instance) -> object:
    for segment in (segment_id(1, 1), segment_id(2, 1)):
        await one.auto_scale.handle(report(scene, segment, ScaleDirection.DOWN))
    return None


async def is_merged(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    epoch = await context.current_epoch()
    assert (epoch.epoch, len(epoch.segments), await context.state()) == (2, 2, StreamState.ACTIVE)


async def truncate(scene: Scene, one: Instance) -> None:
    current = await (await one.streams.open(S, T)).current_epoch()
    await one.truncate.truncate(scene.world.new_id(), S, T, dict.fromkeys(current.segment_ids, 0))


async def is_truncated(scene: Scene) -> None:
    scene.expected.remove(f"{T}-0")
    current = await (await scene.world.streams.open(S, T)).current_epoch()
    names = [name for name in scene.world.segments.segments if name.startswith(f"{S}/{T}/")]
    assert sorted(names) == sorted(current.names(S, T))


async def a_stream_with_transactions(scene: Scene) -> None:
    await a_stream(scene)
    for label in ("a", "b"):
        await scene.begin(T, label)


async def seal(scene: Scene, one: Instance) -> None:
    await one.seal.seal(scene.world.new_id(), S, T)


async def is_sealed(scene: Scene) -> None:
    assert await scene.state(T) is StreamState.SEALED


async def a_sealed_stream(scene: Scene) -> None:
    await a_scaled_stream(scene)
    await scene.run(seal(scene, scene.second))


async def delete(scene: Scene, one: Instance) -> object:
    try:
        await one.delete.delete(scene.world.new_id(), S, T)
    except StreamNotFound:
        return None
    return None


async def is_gone(scene: Scene) -> None:
    scene.expected.clear()
    assert await scene.world.streams.entry(S, T) is None
    assert scene.world.segments.segments == {}


async def a_stream_to_shorten(scene: Scene) -> None:
    """Two references to its tail are there, of which the first goes once it is truncated at the second."""
    await a_stream(scene, StreamConfiguration(ScalingPolicy.fixed(2), RetentionPolicy(RetentionType.SIZE, 10)))
    for _ in range(2):
        await scene.run(scene.second.retention.apply(S, T))
        await scene.world.clock.pass_time(70)
        await scene.write(T)
    await scene.scale(T)


async def retain(scene: Scene, one: Instance) -> object:
    return await one.retention.apply(S, T)


async def is_shorter(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    assert (await context.truncation()).cut
    record = await context.read(RETENTION_SET)
    assert record is not None and (len(record.references), record.dropped) == (2, ())
    scene.expected = scene.held(T)


async def a_stream_of_expired_epochs(scene: Scene) -> None:
    """Truncated at its tail, long enough ago."""
    await a_stream(scene)
    for _ in range(EXPIRED_EPOCHS + epochs_before_head_max):
        await scene.scale(T)
    await scene.write(T)
    await scene.run(truncate(scene, scene.second))
    scene.expected.remove(f"{T}-0")
    await scene.world.clock.pass_time(history_ms / 1000)


async def expire(scene: Scene, one: Instance) -> object:
    return await one.expiry.apply(S, T)


async def is_without_old_epochs(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    history = await context.history()
    assert (history.oldest_epoch, history.removed_till) == (EXPIRED_EPOCHS, EXPIRED_EPOCHS)


# ---- key-value tables, reader groups, scopes -------------------------------------------------------------------------


async def create_table(scene: Scene, one: Instance) -> object:
    new = KeyValueTableRecord(scene.world.new_id(), 1, ScopeMemberState.CREATING, 3, 4, 0)
    return await one.tables.create(S, "table", new)


async def has_table(scene: Scene) -> None:
    record = await scene.live().tables.records.get(S, "table")
    assert record is not None and record.state is ScopeMemberState.ACTIVE
    assert sorted(scene.world.segments.tables) == [table_segment_name(S, "table", number) for number in range(3)]


async def a_table(scene: Scene) -> None:
    await scene.run(create_table(scene, scene.second))


async def delete_table(scene: Scene, one: Instance) -> object:
    return await one.tables.delete(S, "table")


async def has_no_table(scene: Scene) -> None:
    assert scene.world.segments.tables == {}


def group_config(*streams: str) -> ReaderGroupConfig:
    starting: dict[str, dict[int, int]] = {f"{S}/{stream}": {} for stream in streams}
    return ReaderGroupConfig(3_000, 30_000, 3, ReaderGroupRetention.MANUAL, starting)


async def two_streams(scene: Scene) -> None:
    for stream in (T, U):
        await scene.make_stream(stream)


async def create_group(scene: Scene, one: Instance) -> object:
    return await one.groups.create(S, "group", GROUP_ID, group_config(T))


async def subscribers(scene: Scene, stream: str) -> list[str]:
    context = await scene.world.streams.open(S, stream, SUBSCRIBERS)
    return list((await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers)


async def has_group(scene: Scene) -> None:
    record = await scene.live().groups.records.get(S, "group")
    assert record is not None and record.state is ScopeMemberState.ACTIVE
    assert [await subscribers(scene, stream) for stream in (T, U)] == [[f"{S}/group"], []]


async def a_group(scene: Scene) -> None:
    await two_streams(scene)
    await scene.run(create_group(scene, scene.second))


async def update_group(scene: Scene, one: Instance) -> object:
    record = await one.groups.records.get(S, "group")
    if record is not None and record.generation == 0:
        await one.groups.update(S, "group", GROUP_ID, 0, group_config(U))
    return None


async def has_new_group(scene: Scene) -> None:
    record = await scene.live().groups.records.get(S, "group")
    assert record is not None and (record.generation, record.unsubscribe) == (1, ())
    assert [await subscribers(scene, stream) for stream in (T, U)] == [[], [f"{S}/group"]]


async def delete_group(scene: Scene, one: Instance) -> object:
    return await one.groups.delete(S, "group", GROUP_ID)


async def has_no_group(scene: Scene) -> None:
    assert await scene.live().groups.records.get(S, "group") is None
    assert [await subscribers(scene, stream) for stream in (T, U)] == [[], []]


async def a_full_scope(scene: Scene) -> None:
    await a_group(scene)
    await a_table(scene)
    await scene.begin(T, "a")


async def delete_scope(scene: Scene, one: Instance) -> None:
    await one.delete_scope.delete(S)


async def has_no_scope(scene: Scene) -> None:
    scene.expected.clear()
    assert await scene.world.streams.scope(S) is None
    assert (scene.world.segments.segments, scene.world.segments.tables) == ({}, {})
    assert await byte_limits(scene) == {}


async def delete_empty_scope(scene: Scene, one: Instance) -> object:
    try:
        await one.delete_scope.delete_if_empty(scene.world.new_id(), S)
    except ScopeNotFound:
        return None
    return None


async def delete_filling_scope(scene: Scene, one: Instance) -> object:
    """Somebody adds a stream between the first look and the closing."""
    looked = one.delete_scope._require_empty

    async def look_and_add(scope: str, record: object) -> None:
        one.delete_scope._require_empty = looked  # type: ignore[method-assign]
        await scene.world.streams.add_entry(S, T, ())

    one.delete_scope._require_empty = look_and_add  # type: ignore[method-assign]
    try:
        await one.delete_scope.delete_if_empty(scene.world.new_id(), S)
    except ScopeNotEmpty:
        return None
    finally:
        one.delete_scope._require_empty = looked  # type: ignore[method-assign]
    return None


async def has_open_scope(scene: Scene) -> None:
    record = await scene.world.streams.scope(S)
    assert record is not None and not record.deleting
    assert await byte_limits(scene) == {S: ByteLimits(bytes_out=100_000)}
    await scene.run(create(scene, scene.live()))


# ---- quotas ----------------------------------------------------------------------------------------------------------


def quota_of(streams: int, segments: int) -> Script:
    async def set_it(scene: Scene) -> None:
        await scene.run(scene.second.quota.set(S, ScopeQuota(streams, segments)))

    return set_it


def before(*scripts: Script) -> Script:
    """Several preparations, in this order."""

    async def run(scene: Scene) -> None:
        for script in scripts:
            await script(scene)

    return run


async def limited_bytes(scene: Scene) -> None:
    await scene.run(scene.second.quota.set(S, ScopeQuota(bytes_out=100_000)))


async def set_quota(scene: Scene, one: Instance) -> None:
    await one.quota.set(S, ScopeQuota(2, 4, bytes_in=100_000))


async def byte_limits(scene: Scene) -> Mapping[str, ByteLimits]:
    """The limits as the stores read them."""
    return AllByteLimits.decode(await scene.world.cpo.get_constant(BYTE_LIMITS_KEY)).scopes


async def has_quota(scene: Scene) -> None:
    """The numbers are compared with the streams by ``audit_streams``."""
    described = await scene.live().quota.describe(S)
    assert described.is_counted and described.quota == ScopeQuota(2, 4, bytes_in=100_000)
    assert await byte_limits(scene) == {S: ByteLimits(bytes_in=100_000)}


async def a_forgotten_count(scene: Scene) -> None:
    """A stream that was counted, and deleted while there was no quota."""
    await quota_of(5, 5)(scene)
    await scene.make_stream(U)
    await scene.run(scene.second.quota.set(S, ScopeQuota()))
    await scene.run(scene.second.seal.seal(scene.world.new_id(), S, U))
    await scene.run(scene.second.delete.delete(scene.world.new_id(), S, U))


async def a_half_made_stream(scene: Scene) -> None:
    """The room that it looked for was taken by another one."""
    await scene.make_stream(U)
    await scene.world.streams.add_entry(S, T, ())
    await quota_of(1, 5)(scene)


async def refuse(scene: Scene, one: Instance) -> object:
    try:
        await one.create.create(S, T, TWO)
    except QuotaExceeded:
        return None
    raise AssertionError("the quota does not admit the stream")


async def is_not_there(scene: Scene) -> None:
    assert await scene.world.streams.entry(S, T) is None


async def refuse_table(scene: Scene, one: Instance) -> object:
    try:
        await create_table(scene, one)
    except QuotaExceeded:
        return None
    raise AssertionError("the quota does not admit the table")


async def refuse_split(scene: Scene, one: Instance) -> object:
    try:
        await scene.world.split(one, S, T)
    except QuotaExceeded:
        return None
    raise AssertionError("the quota does not admit the scale")


async def is_not_scaled(scene: Scene) -> None:
    context = await scene.world.streams.open(S, T)
    assert ((await context.current_epoch()).epoch, await context.state()) == (0, StreamState.ACTIVE)


# ---- transactions ----------------------------------------------------------------------------------------------------


async def create_transaction(scene: Scene, one: Instance) -> object:
    return await one.transactions.create(S, T, 10_000)


async def has_no_transactions(scene: Scene) -> None:
    """Those that nobody used came to their end."""
    assert scene.world.segments.transaction_segments() == []


async def a_transaction(scene: Scene) -> None:
    await a_stream(scene)
    await scene.begin(T, "a")


async def a_transaction_of_an_old_epoch(scene: Scene) -> None:
    await a_transaction(scene)
    await scene.scale(T)


async def commit(scene: Scene, one: Instance) -> object:
    assert await one.transactions.commit(S, T, scene.created[0].id)
    return None


async def is_committed(scene: Scene) -> None:
    scene.expected += ["a"] * len(scene.created[0].segments)
    await has_no_transactions(scene)


async def abort(scene: Scene, one: Instance) -> object:
    assert await one.transactions.abort(S, T, scene.created[0].id)
    return None


async def is_aborted(scene: Scene) -> None:
    await has_no_transactions(scene)


def _member(created: CreatedTransaction, stream: str) -> MemberRecord:
    return MemberRecord(f"{S}/{stream}", created.id.hex, 0, 1, event_bytes)


async def a_batch(scene: Scene) -> None:
    """Two transactions that are to be committed, and one that is registered beside them."""
    await two_streams(scene)
    for stream, label in ((T, "a"), (U, "b"), (U, "orphan")):
        await scene.begin(stream, label)
    orphan = _member(scene.created[2], U)
    await scene.run(scene.second.sets.register("query", f"{S}/*", "run", 0, [orphan]))


async def register_member(scene: Scene, one: Instance) -> object:
    return await one.sets.register("query", f"{S}/*", "run", 0, [_member(scene.created[0], T)])


async def commit_batch(scene: Scene, one: Instance) -> object:
    members = [_member(scene.created[0], T), _member(scene.created[1], U)]
    answer = await one.sets.commit("query", f"{S}/*", "run", 0, members, 2, 20)
    assert answer.verdict in (Verdict.COMMITTED, Verdict.ALREADY_COMMITTED)
    return None


async def is_batch_committed(scene: Scene) -> None:
    answer = await scene.live().sets.get("query", f"{S}/*", 0)
    assert isinstance(answer.decision, SetRecord) and answer.decision.state is SetRecordState.FINISHED
    scene.expected += ["a"] * 2 + ["b"] * 2
    await has_no_transactions(scene)


async def commit_lost_batch(scene: Scene, one: Instance) -> object:
    """One of the members is aborted already."""
    await one.transactions.abort(S, U, scene.created[1].id)
    members = [_member(scene.created[0], T), _member(scene.created[1], U)]
    answer = await one.sets.commit("query", f"{S}/*", "run", 0, members, 2, 20)
    assert answer.verdict is Verdict.REFUSED
    return None


async def is_batch_refused(scene: Scene) -> None:
    """Its transactions came to their end; nothing of it is readable."""
    await scene.world.clock.pass_time(900)
    await has_no_transactions(scene)


def _flow(name: str, prepare: Script, act: Act, check: Script) -> Workflow:
    return Workflow(name, prepare, act, check)


WORKFLOWS: Final = (
    _flow("create stream", nothing, create, is_active),
    _flow("update stream", a_stream, update, is_updated),
    _flow("scale stream", a_stream, split, is_scaled),
    _flow("split hot segment", a_stream_to_scale, split_hot, is_split),
    _flow("merge cold segments", a_stream_to_shrink, merge_cold, is_merged),
    _flow("truncate stream", a_scaled_stream, truncate, is_truncated),
    _flow("seal stream", a_stream_with_transactions, seal, is_sealed),
    _flow("delete stream", a_sealed_stream, delete, is_gone),
    _flow("retention", a_stream_to_shorten, retain, is_shorter),
    _flow("expire epochs", a_stream_of_expired_epochs, expire, is_without_old_epochs),
    _flow("create table", nothing, create_table, has_table),
    _flow("delete table", a_table, delete_table, has_no_table),
    _flow("create group", two_streams, create_group, has_group),
    _flow("update group", a_group, update_group, has_new_group),
    _flow("delete group", a_group, delete_group, has_no_group),
    _flow("delete scope", before(limited_bytes, a_full_scope), delete_scope, has_no_scope),
    _flow("delete empty scope", limited_bytes, delete_empty_scope, has_no_scope),
    _flow("refuse to delete scope", limited_bytes, delete_filling_scope, has_open_scope),
    _flow("set a quota", before(a_forgotten_count, a_table, a_stream), set_quota, has_quota),
    _flow("create stream, quota", quota_of(1, 2), create, is_active),
    _flow("refuse stream, quota", a_half_made_stream, refuse, is_not_there),
    _flow("update stream, quota", before(quota_of(1, 3), a_stream), update, is_updated),
    _flow("scale stream, quota", before(quota_of(1, 3), a_stream), split, is_scaled),
    _flow("refuse scale, quota", before(quota_of(1, 2), a_stream), refuse_split, is_not_scaled),
    _flow("merge cold segments, quota", before(quota_of(1, 3), a_stream_to_shrink), merge_cold, is_merged),
    _flow("delete stream, quota", before(quota_of(1, 3), a_sealed_stream), delete, is_gone),
    _flow("create group, quota", before(quota_of(3, 5), two_streams), create_group, has_group),
    _flow("create table, quota", quota_of(0, 3), create_table, has_table),
    _flow("refuse table, quota", quota_of(1, 2), refuse_table, has_no_table),
    _flow("delete table, quota", before(quota_of(0, 3), a_table), delete_table, has_no_table),
    _flow("create transaction", a_stream, create_transaction, has_no_transactions),
    _flow("commit", a_transaction, commit, is_committed),
    _flow("commit, rolling", a_transaction_of_an_old_epoch, commit, is_committed),
    _flow("abort", a_transaction, abort, is_aborted),
    _flow("register for a batch", a_batch, register_member, is_batch_refused),
    _flow("commit batch", a_batch, commit_batch, is_batch_committed),
    _flow("refuse batch", a_batch, commit_lost_batch, is_batch_refused),
)


def controller_failpoints() -> set[str]:
    """The names of the failpoints in ``controller_service``."""
    prefixes = ("controller.", "transaction_")
    return {name for name in failpoints.KNOWN if name.startswith(prefixes)}


async def scene_of_two(switches: tuple[CrashSwitch, CrashSwitch] | None = None, seed: int = 0) -> Scene:
    """A world with the scope, and two controllers that are started."""
    world = World(seed)
    await world.streams.create_system_tables()
    await world.streams.create_scope(S)
    first, second = switches or (CrashSwitch(), CrashSwitch())
    return Scene(world, await world.instance(first), await world.instance(second))


async def steps_of(workflow: Workflow) -> list[str]:
    """The failpoints that an undisturbed run comes by, in their order."""
    scene = await scene_of_two()
    await workflow.prepare(scene)
    found: dict[str, None] = {}
    for name in controller_failpoints():
        failpoints.arm(name, partial(found.setdefault, name))
    try:
        await scene.run(workflow.act(scene, scene.first))
        await scene.world.clock.pass_time(30)
    finally:
        failpoints.disarm_all()
        await scene.world.close()
    return list(found)


async def table() -> str:
    """Workflows with their failpoints, as Markdown."""
    rows = [f"| {item.name} | {', '.join(f'`{step}`' for step in await steps_of(item))} |" for item in WORKFLOWS]
    return "\n".join(["| workflow | steps |", "|---|---|", *rows])


async def summary() -> str:
    """The number of cases that the tests make of the table."""
    steps = sum([len(await steps_of(item)) for item in WORKFLOWS])
    kinds = ", ".join(DISTURBANCES)
    return f"{len(WORKFLOWS)} workflows, {steps} steps; at each step: {kinds} ({steps * len(DISTURBANCES)} cases)"


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print(asyncio.run(table()))
    print(f"\n{asyncio.run(summary())}")
