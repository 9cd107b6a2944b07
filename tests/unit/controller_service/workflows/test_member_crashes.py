"""Key-value tables, reader groups and whole scopes: a controller dies between any two durable steps, and the sweep of
another one finishes what was promised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller_service.queue import table_request_queue
from controller_service.service import Controller
from controller_service.store import scope_store
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.members import (
    KeyValueTableRecord,
    ReaderGroupConfig,
    ReaderGroupRecord,
    ScopeMemberState,
)
from controller_service.store.records import SUBSCRIBERS, ScopeRecord, SubscribersRecord
from controller_service.workflows import (
    create_stream,
    delete_scope,
    group_streams,
    key_value_tables,
    reader_groups,
    remove_stream,
    seal_stream,
)
from controller_service.workflows.reader_groups import ConfigMismatch
from pravega_common.errors import ScopeNotEmpty, ScopeNotFound, VersionConflict
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import reader_group_stream, segment_id, table_segment_name
from pravega_common.runtime.failpoints import KNOWN
from tests.support.controller_in_memory import ControllerParts
from tests.support.stream_audit import audit
from tests.unit.controller_service.workflows.test_workflow_crashes import crash_during, settled

Step = Callable[[Controller], Awaitable[object]]

GROUP_ID = "11111111-2222-3333-4444-555555555555"
PARTITIONS = 3
STREAM = StreamConfiguration(ScalingPolicy.fixed(1))


def group_config(*streams: str) -> ReaderGroupConfig:
    return ReaderGroupConfig(3_000, 30_000, 3, ReaderGroupRetention.MANUAL, {name: {} for name in streams})


async def create_table(controller: Controller) -> None:
    new = KeyValueTableRecord(controller.parts.new_id(), 1, ScopeMemberState.CREATING, PARTITIONS, 4, 0)
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


async def delete_empty(controller: Controller) -> None:
    try:
        await controller.parts.workflows.delete_scope.delete_if_empty(controller.parts.new_id(), "empty")
    except ScopeNotFound:
        return


async def delete_everything(controller: Controller) -> None:
    await controller.parts.workflows.delete_scope.delete("scope")


BEFORE: dict[Step, tuple[Step, ...]] = {
    create_table: (),
    delete_table: (create_table,),
    create_group: (),
    update_group: (create_group,),
    delete_group: (create_group, update_group),
    delete_empty: (),
    delete_everything: (create_table, create_group),
}
"""What has to be there for each step."""

PROMISED: dict[str, Step] = {
    key_value_tables.NUMBER_CHOSEN: create_table,
    key_value_tables.SEGMENTS_CREATED: create_table,
    key_value_tables.DELETION_MARKED: delete_table,
    key_value_tables.SEGMENTS_DELETED: delete_table,
    key_value_tables.NUMBER_RECORDED: delete_table,
    reader_groups.STREAM_CREATED: create_group,
    reader_groups.SUBSCRIBED: create_group,
    reader_groups.UPDATE_RECORDED: update_group,
    reader_groups.UPDATE_SUBSCRIBED: update_group,
    reader_groups.UPDATE_UNSUBSCRIBED: update_group,
    reader_groups.DELETION_MARKED: delete_group,
    reader_groups.UNSUBSCRIBED: delete_group,
    group_streams.STREAM_MARKED: delete_group,
    group_streams.STREAM_SEALED: delete_group,
    group_streams.STREAM_DELETED: delete_group,
    delete_scope.CLOSED_TO_LOOK: delete_empty,
    delete_scope.CLOSED: delete_everything,
    delete_scope.GROUPS_DELETED: delete_everything,
    delete_scope.STREAMS_DELETED: delete_everything,
    delete_scope.TABLES_DELETED: delete_everything,
    scope_store.RECORD_REMOVED: delete_everything,
}
"""Failpoints behind the point where the work is in the queue: it is finished without being asked for again."""
UNPROMISED: dict[str, Step] = {
    key_value_tables.ENTRY_ADDED: create_table,
    reader_groups.ENTRY_ADDED: create_group,
}
"""Before that point: nobody was told anything, and asking again does it."""
WITHIN = [
    (scope_store.RECORD_REMOVED, delete_empty),
    (create_stream.RECORDS_WRITTEN, create_group),
    (create_stream.SEGMENTS_CREATED, create_group),
    (seal_stream.MARKED, delete_group),
    (seal_stream.SEGMENTS_SEALED, delete_group),
    (remove_stream.SEGMENTS_DELETED, delete_group),
    (remove_stream.NUMBER_RECORDED, delete_group),
    (seal_stream.SEGMENTS_SEALED, delete_everything),
    (remove_stream.SEGMENTS_DELETED, delete_everything),
    (remove_stream.NUMBER_RECORDED, delete_everything),
    (key_value_tables.SEGMENTS_DELETED, delete_everything),
    (key_value_tables.NUMBER_RECORDED, delete_everything),
    (reader_groups.UNSUBSCRIBED, delete_everything),
]
"""In the middle of another workflow that this one carries out."""
OF_THE_QUEUE = [
    (name, step) for name in (table_request_queue.SUBMITTED, table_request_queue.HANDLED) for step in BEFORE
]


def test_every_failpoint_of_these_workflows_is_here() -> None:
    prefixes = ("controller.table_", "controller.group_", "controller.scope_")
    known = {name for name in KNOWN if name.startswith(prefixes)}
    assert known == {*PROMISED, *UNPROMISED, delete_scope.OPENED_AGAIN}


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
    await first.store.create_scope("empty")
    for stream in ("one", "two", "both"):
        await first.parts.workflows.create.create("scope", stream, STREAM)
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
    if step is delete_empty:
        assert await is_gone(parts, controller, "empty")
    if step is delete_everything:
        assert await is_gone(parts, controller, "scope")
        assert not parts.access.segments
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


async def is_gone(parts: ControllerParts, controller: Controller, scope: str) -> bool:
    assert isinstance(parts.tables, InMemoryVersionedStore)
    left = [name for name in parts.tables._tables if name.startswith(f"{scope}/")]
    return await controller.store.scope(scope) is None and not left


@pytest.mark.parametrize("name", [delete_scope.CLOSED_TO_LOOK, delete_scope.OPENED_AGAIN])
async def test_a_scope_that_is_not_empty_after_all_is_open_whoever_dies(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream came between the first look and the closing."""
    parts = ControllerParts()
    first = parts.controller()
    await first.start()
    await first.store.create_scope("scope")
    looks = iter([True])
    look = first.store.scope_is_empty

    async def come_between(scope: str, record: ScopeRecord) -> bool:
        if next(looks, False):
            assert await first.parts.workflows.create.create(scope, "between", STREAM)
            return True
        return await look(scope, record)

    monkeypatch.setattr(first.store, "scope_is_empty", come_between)
    deletion = first.parts.workflows.delete_scope
    await crash_during(first, lambda _: deletion.delete_if_empty("request", "scope"), name)
    second = parts.controller()
    await second.start()
    try:
        await settled(parts)
        with pytest.raises(ScopeNotEmpty, match="scope scope has streams"):
            await second.parts.workflows.delete_scope.delete_if_empty("again", "scope")
        assert await second.parts.workflows.create.create("scope", "another", STREAM)
        await audit(second, parts.access)
    finally:
        await second.stop()


async def test_who_closed_a_scope_alone_opens_it(controller: Controller) -> None:
    store = controller.store
    await store.create_scope("scope")
    record = await store.scope("scope")
    assert record is not None
    assert await store.close_scope("scope", "another scope of the name", "one") is None
    one = await store.close_scope("scope", record.scope_id, "one")
    two = await store.close_scope("scope", record.scope_id, "two")
    assert one is not None and two is not None and two == await store.close_scope("scope", record.scope_id, "two")
    for call in (store.reopen_scope("scope", *one), store.remove_scope("scope", record.scope_id, one[1])):
        with pytest.raises(VersionConflict):
            await call
    await store.reopen_scope("scope", *two)
    assert await store.still_usable("scope", record)
    for_good = await store.close_scope("scope", record.scope_id)
    assert for_good == await store.close_scope("scope", record.scope_id, "one")
    with pytest.raises(ScopeNotFound):
        await controller.parts.workflows.create.create("scope", "late", STREAM)


def _is_active(record: KeyValueTableRecord | ReaderGroupRecord | None) -> bool:
    assert record is None or record.state is ScopeMemberState.ACTIVE
    return record is not None


async def test_of_two_configurations_at_one_generation_one_is_refused(controller: Controller) -> None:
    await controller.store.create_scope("scope")
    for name in ("one", "both", "two"):
        assert await controller.parts.workflows.create.create("scope", name, STREAM)
    await create_group(controller)
    groups = controller.parts.groups
    configs = [group_config("scope/one"), group_config("scope/two"), group_config("scope/one")]
    outcomes = await asyncio.gather(
        *(groups.update("scope", "group", GROUP_ID, 0, config) for config in configs), return_exceptions=True
    )
    record = await groups.records.get("scope", "group")
    assert record is not None and record.generation == 1
    for config, outcome in zip(configs, outcomes, strict=True):
        if config == record.config:
            assert outcome == 1
        else:
            assert isinstance(outcome, ConfigMismatch)


async def test_an_update_whose_answer_was_lost_answers_the_same_again(controller: Controller) -> None:
    """A client repeats it, at another controller perhaps, and names the generation that it knows."""
    await controller.store.create_scope("scope")
    for name in ("one", "both", "two"):
        assert await controller.parts.workflows.create.create("scope", name, STREAM)
    await create_group(controller)
    groups = controller.parts.groups
    for _ in range(2):
        assert await groups.update("scope", "group", GROUP_ID, 0, group_config("scope/two")) == 1
    for generation, config in ((0, group_config("scope/one")), (2, group_config("scope/two"))):
        with pytest.raises(ConfigMismatch):
            await groups.update("scope", "group", GROUP_ID, generation, config)
    assert await groups.update("scope", "group", GROUP_ID, 1, group_config("scope/one")) == 2
    with pytest.raises(ConfigMismatch):
        await groups.update("scope", "group", GROUP_ID, 0, group_config("scope/two"))
