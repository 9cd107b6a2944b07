"""Key-value tables, reader groups and whole scopes: a controller dies between any two durable steps, and the sweep of
another one finishes what was promised."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from controller_service.service import Controller
from controller_service.store import scope_store
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.members import (
    KeyValueTableRecord,
    MemberState,
    ReaderGroupConfig,
    ReaderGroupRecord,
    ReaderGroupRetention,
)
from controller_service.store.records import (
    SUBSCRIBERS,
    ScaleType,
    ScalingPolicy,
    StreamConfiguration,
    SubscribersRecord,
)
from controller_service.workflows import (
    create_stream,
    delete_scope,
    delete_stream,
    key_value_tables,
    reader_groups,
    seal_stream,
    table_request_queue,
)
from pravega_common.names import reader_group_stream, segment_id, table_segment_name
from pravega_common.runtime.failpoints import KNOWN
from tests.support.controller_in_memory import ControllerParts
from tests.support.stream_audit import audit
from tests.unit.controller.test_workflow_crashes import crash_during, settled

Step = Callable[[Controller], Awaitable[object]]

GROUP_ID = "11111111-2222-3333-4444-555555555555"
PARTITIONS = 3


def group_config(*streams: str) -> ReaderGroupConfig:
    return ReaderGroupConfig(3_000, 30_000, 3, ReaderGroupRetention.MANUAL, {name: {} for name in streams})


async def create_table(controller: Controller) -> None:
    new = KeyValueTableRecord(controller.parts.new_id(), 1, MemberState.CREATING, PARTITIONS, 4, 0)
    await controller.parts.tables.create("scope", "table", new)


async def delete_table(controller: Controller) -> None:
    await controller.parts.tables.delete("scope", "table")


async def create_group(controller: Controller) -> None:
    await controller.parts.groups.create("scope", "group", GROUP_ID, group_config("scope/one", "scope/both"))


async def update_group(controller: Controller) -> None:
    record = await controller.parts.groups.records.get("scope", "group")
    if record is not None and record.generation == 0:
        after = group_config("scope/both", "scope/two")
        await controller.parts.groups.update("scope", "group", GROUP_ID, 0, after)


async def delete_group(controller: Controller) -> None:
    await controller.parts.groups.delete("scope", "group", GROUP_ID)


async def delete_everything(controller: Controller) -> None:
    await controller.parts.workflows.delete_scope.delete("scope")


BEFORE: dict[Step, tuple[Step, ...]] = {
    create_table: (),
    delete_table: (create_table,),
    create_group: (),
    update_group: (create_group,),
    delete_group: (create_group, update_group),
    delete_everything: (create_table, create_group),
}
"""What has to be there for each step."""

PROMISED: dict[str, Step] = {
    key_value_tables.SEGMENTS_CREATED: create_table,
    key_value_tables.DELETION_MARKED: delete_table,
    key_value_tables.SEGMENTS_DELETED: delete_table,
    reader_groups.STREAM_CREATED: create_group,
    reader_groups.SUBSCRIBED: create_group,
    reader_groups.UPDATE_RECORDED: update_group,
    reader_groups.UPDATE_SUBSCRIBED: update_group,
    reader_groups.UPDATE_UNSUBSCRIBED: update_group,
    reader_groups.DELETION_MARKED: delete_group,
    reader_groups.UNSUBSCRIBED: delete_group,
    reader_groups.STREAM_SEALED: delete_group,
    reader_groups.STREAM_DELETED: delete_group,
    delete_scope.GROUPS_DELETED: delete_everything,
    delete_scope.STREAMS_DELETED: delete_everything,
    delete_scope.TABLES_DELETED: delete_everything,
    scope_store.RECORD_REMOVED: delete_everything,
}
"""Failpoints behind the point where the work is in the queue: it is finished without being asked for again."""
UNPROMISED: dict[str, Step] = {
    key_value_tables.ENTRY_ADDED: create_table,
    reader_groups.ENTRY_ADDED: create_group,
    delete_scope.CLOSED: delete_everything,
}
"""Before that point: nobody was told anything, and asking again does it."""
WITHIN = [
    (create_stream.RECORDS_WRITTEN, create_group),
    (create_stream.SEGMENTS_CREATED, create_group),
    (seal_stream.MARKED, delete_group),
    (seal_stream.SEGMENTS_SEALED, delete_group),
    (delete_stream.SEGMENTS_DELETED, delete_group),
    (delete_stream.NUMBER_RECORDED, delete_group),
    (seal_stream.SEGMENTS_SEALED, delete_everything),
    (delete_stream.SEGMENTS_DELETED, delete_everything),
    (delete_stream.NUMBER_RECORDED, delete_everything),
    (key_value_tables.SEGMENTS_DELETED, delete_everything),
    (reader_groups.UNSUBSCRIBED, delete_everything),
]
"""In the middle of another workflow that this one carries out."""
OF_THE_QUEUE = [
    (name, step) for name in (table_request_queue.SUBMITTED, table_request_queue.HANDLED) for step in BEFORE
]


def test_every_failpoint_of_these_workflows_is_here() -> None:
    prefixes = ("controller.table_", "controller.group_", "controller.scope_")
    assert {name for name in KNOWN if name.startswith(prefixes)} == {*PROMISED, *UNPROMISED}


@pytest.mark.parametrize(
    ("name", "step"), [*PROMISED.items(), *WITHIN, *OF_THE_QUEUE], ids=lambda value: getattr(value, "__name__", value)
)
async def test_the_sweep_finishes_what_was_promised(name: str, step: Step) -> None:
    parts = ControllerParts()
    second = await crashed_and_swept(parts, name, step)
    try:
        await assert_done(parts, second, step)
        await assert_asking_again_changes_nothing(parts, second, step)
    finally:
        await second.stop()


@pytest.mark.parametrize(("name", "step"), UNPROMISED.items(), ids=lambda value: getattr(value, "__name__", value))
async def test_what_was_not_promised_is_done_when_it_is_asked_for_again(name: str, step: Step) -> None:
    parts = ControllerParts()
    second = await crashed_and_swept(parts, name, step)
    try:
        await assert_asking_again_changes_nothing(parts, second, step)
    finally:
        await second.stop()


async def crashed_and_swept(parts: ControllerParts, name: str, step: Step) -> Controller:
    first = parts.controller()
    await first.start()
    await first.store.create_scope("scope")
    policy = StreamConfiguration(ScalingPolicy(ScaleType.FIXED, 0, 0, 1))
    for stream in ("one", "two", "both"):
        await first.parts.workflows.create.create("scope", stream, policy)
    for earlier in BEFORE[step]:
        await earlier(first)
    await crash_during(first, step, name)
    second = parts.controller()
    await second.start()
    await settled(parts)
    return second


async def assert_asking_again_changes_nothing(parts: ControllerParts, controller: Controller, step: Step) -> None:
    await step(controller)
    await settled(parts)
    await assert_done(parts, controller, step)


async def assert_done(parts: ControllerParts, controller: Controller, step: Step) -> None:
    """Records, segments and subscriptions are what the step and those before it make, and nothing else is left."""
    await audit(controller, parts.access)
    tables, groups = controller.parts.tables.records, controller.parts.groups.records
    table, group = await tables.get("scope", "table"), await groups.get("scope", "group")
    done = (*BEFORE[step], step)
    assert _is_active(table) == (create_table in done and not {delete_table, delete_everything} & set(done))
    assert _is_active(group) == (create_group in done and not {delete_group, delete_everything} & set(done))
    segments = {table_segment_name("scope", "table", segment_id(number, 0)) for number in range(PARTITIONS)}
    assert set(parts.access.tables) == (segments if table is not None else set())
    if step is delete_everything:
        assert await controller.store.scope("scope") is None
        assert not parts.access.segments
        assert isinstance(parts.tables, InMemoryVersionedStore)
        assert not [name for name in parts.tables._tables if name.startswith("scope/")]
        return
    assert (await controller.store.entry("scope", reader_group_stream("group")) is None) == (group is None)
    wanted = set() if group is None else set(group.config.starting)
    assert group is None or not group.unsubscribe
    assert group is None or group.generation == (1 if step is update_group else 0)
    for stream in ("one", "two", "both"):
        context = await controller.store.open("scope", stream, SUBSCRIBERS)
        subscribers = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
        assert ("scope/group" in subscribers) == (f"scope/{stream}" in wanted), stream
        assert all(group is not None and item.generation == group.generation for item in subscribers.values())


def _is_active(record: KeyValueTableRecord | ReaderGroupRecord | None) -> bool:
    assert record is None or record.state is MemberState.ACTIVE
    return record is not None
