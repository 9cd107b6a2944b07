"""A controller that dies at any failpoint of a workflow, and another that finds what it left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from controller_service.queue import table_request_queue
from controller_service.service import Controller
from controller_service.store.records import StreamState
from controller_service.workflows import (
    create_stream,
    remove_stream,
    scale_stream,
    seal_stream,
    truncate_stream,
    update_stream,
)
from pravega_common.errors import PravegaError, StreamNotFound
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.runtime.failpoints import arm
from tests.support.controller_in_memory import ControllerParts
from tests.support.stream_audit import audit, requests_left

TWO = StreamConfiguration(ScalingPolicy.fixed(2))
THREE = StreamConfiguration(ScalingPolicy.fixed(3), RetentionPolicy(RetentionType.SIZE, 1000), ("tag",), 0, 7)

Step = Callable[[Controller], Awaitable[object]]


class Crash(BaseException):
    """Ends the process, as far as a test can: nothing catches it."""


async def create(controller: Controller) -> None:
    await controller.parts.workflows.create.create("scope", "stream", TWO)


async def update(controller: Controller) -> None:
    await controller.parts.workflows.update.update("again", "scope", "stream", THREE)


async def scale(controller: Controller) -> None:
    current = await (await controller.store.open("scope", "stream")).current_epoch()
    if current.epoch < 2:
        first = current.segments[0]
        middle = (first.key_start + first.key_end) / 2
        ranges = [(first.key_start, middle), (middle, first.key_end)]
        await controller.parts.workflows.scale.start("scope", "stream", [first.segment_id], ranges)
    for _ in range(500):
        context = await controller.store.open("scope", "stream")
        if (await context.current_epoch()).epoch == 2 and await context.state() is StreamState.ACTIVE:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the scale does not end")


async def truncate(controller: Controller) -> None:
    current = await (await controller.store.open("scope", "stream")).current_epoch()
    cut = dict.fromkeys(current.segment_ids, 0)
    await controller.parts.workflows.truncate.truncate("again", "scope", "stream", cut)


async def seal(controller: Controller) -> None:
    await controller.parts.workflows.seal.seal("again", "scope", "stream")


async def delete(controller: Controller) -> None:
    try:
        await controller.parts.workflows.delete.delete("again", "scope", "stream")
    except StreamNotFound:
        return


STEPS: tuple[Step, ...] = (create, update, scale, truncate, seal, delete)

FAILPOINTS: dict[str, Step] = {
    create_stream.ENTRY_ADDED: create,
    create_stream.RECORDS_WRITTEN: create,
    create_stream.SEGMENTS_CREATED: create,
    update_stream.CONFIGURATION_WRITTEN: update,
    update_stream.POLICY_PUSHED: update,
    scale_stream.PLANNED: scale,
    scale_stream.SEGMENTS_CREATED: scale,
    scale_stream.EPOCH_WRITTEN: scale,
    scale_stream.SEGMENTS_SEALED: scale,
    scale_stream.EPOCH_MOVED: scale,
    truncate_stream.ACCEPTED: truncate,
    truncate_stream.SEGMENTS_TRUNCATED: truncate,
    truncate_stream.SEGMENTS_DELETED: truncate,
    truncate_stream.COMPLETED: truncate,
    seal_stream.MARKED: seal,
    seal_stream.SEGMENTS_SEALED: seal,
    remove_stream.MARKED: delete,
    remove_stream.SEGMENTS_DELETED: delete,
    remove_stream.NUMBER_RECORDED: delete,
}
CASES = list(FAILPOINTS.items()) + [
    (name, step) for name in (table_request_queue.SUBMITTED, table_request_queue.HANDLED) for step in STEPS
]


def test_every_failpoint_of_the_workflows_is_here() -> None:
    from pravega_common.runtime.failpoints import KNOWN

    prefixes = ("create_stream", "update_stream", "update_", "scale_", "truncate_", "seal_", "delete_")
    known = {name for name in KNOWN if name.startswith("controller.") and name[11:].startswith(prefixes)}
    assert known == set(FAILPOINTS)


@pytest.mark.parametrize(("name", "crashing"), CASES, ids=lambda value: getattr(value, "__name__", value))
async def test_another_controller_completes_the_work(name: str, crashing: Step) -> None:
    parts = ControllerParts()
    first = parts.controller()
    await first.start()
    await first.store.create_scope("scope")
    index = STEPS.index(crashing)
    for step in STEPS[:index]:
        await step(first)
        await audit(first, parts.access)
    await crash_during(first, crashing, name)
    second = parts.controller()
    await second.start()
    try:
        for step in STEPS[index:]:
            await step(second)
            await settled(parts)
            await audit(second, parts.access)
        assert not parts.access.segments
    finally:
        await second.stop()


async def test_a_policy_reaches_the_segments_after_a_crash() -> None:
    parts = ControllerParts()
    first = parts.controller()
    await first.start()
    await first.store.create_scope("scope")
    await create(first)
    policy = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 77, 2, 2)

    async def change_policy(controller: Controller) -> None:
        await controller.parts.workflows.update.update("again", "scope", "stream", StreamConfiguration(policy))

    await crash_during(first, change_policy, update_stream.CONFIGURATION_WRITTEN)
    second = parts.controller()
    await second.start()
    await settled(parts)
    epoch = await (await second.store.open("scope", "stream")).current_epoch()
    segments = [parts.access.segments[name] for name in epoch.names("scope", "stream")]
    assert [(item.scale_type, item.target_rate) for item in segments] == [(ScaleType.EVENTS_PER_SECOND, 77)] * 2
    await second.stop()


async def crash_during(controller: Controller, step: Step, name: str) -> None:
    crashed = asyncio.Event()

    def crash() -> None:
        crashed.set()
        raise Crash(name)

    arm(name, crash)
    work = asyncio.ensure_future(step(controller))
    async with asyncio.timeout(10):
        await crashed.wait()
    arm(name, lambda: None)
    controller.fail(Crash(name))
    with pytest.raises(Crash):
        await controller.wait_stopped()
    work.cancel()
    try:
        await work
    except (asyncio.CancelledError, Crash, PravegaError):
        pass


async def settled(parts: ControllerParts) -> None:
    for _ in range(1000):
        if not await requests_left(parts.tables):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("requests are left")
