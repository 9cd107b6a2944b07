"""What a reader group has released, while it is configured anew: retention waits there all the time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from controller_service.api.grpc.readers_api import ReadersApi
from controller_service.service import Controller
from controller_service.store.members import ReaderGroupConfig
from controller_service.store.records import SUBSCRIBERS, SubscribersRecord
from controller_service.store.stream_context import StreamContext
from controller_service.workflows import group_subscriptions
from controller_service.workflows.group_subscriptions import cut_segment_bytes
from controller_service.workflows.reader_groups import UPDATE_SUBSCRIBED
from pravega_common.errors import InvalidArgument
from pravega_common.model import table_limits
from pravega_common.model.reader_groups import GroupRegistration, ReaderGroupRetention
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.table_limits import value_bytes_max
from pravega_common.names import segment_id
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import stream_info
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.controller.transport import ControllerTransport
from pravega_streams.errors import ControllerRefused
from tests.support.controller_in_memory import ControllerParts
from tests.unit.controller_service.workflows.test_workflow_crashes import crash_during

GROUP_ID = "11111111-2222-3333-4444-555555555555"
STATUS = pb.UpdateSubscriberStatus


class Group:
    """A group on streams of one segment with 100 bytes each."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.api = ReadersApi()
        self.api.parts = controller.parts

    def config(self, *streams: str) -> ReaderGroupConfig:
        starting: dict[str, dict[int, int]] = {f"scope/{stream}": {} for stream in streams}
        return ReaderGroupConfig(3_000, 30_000, 3, ReaderGroupRetention.MANUAL, starting)

    async def change(self, generation: int, *streams: str) -> None:
        await self.controller.parts.groups.update("scope", "group", GROUP_ID, generation, self.config(*streams))

    async def release(self, stream: str, offset: int, generation: int) -> int:
        request = pb.SubscriberStreamCut(subscriber="scope/group", generation=generation, readerGroupId=GROUP_ID)
        request.streamCut.CopyFrom(pb.StreamCut(streamInfo=stream_info("scope", stream), cut={0: offset}))
        return (await self.api.updateSubscriberStreamCut(request, None)).status

    async def held(self, stream: str) -> dict[int, int] | None:
        """What retention goes by; None where the group does not subscribe."""
        context = await self.controller.store.open("scope", stream, SUBSCRIBERS)
        found = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers.get("scope/group")
        return None if found is None else found.cut


@pytest.fixture
async def group() -> AsyncIterator[Group]:
    """On stream ``one``, of which it has released 60 bytes."""
    parts = ControllerParts()
    controller = parts.controller()
    await controller.start()
    try:
        await controller.store.create_scope("scope")
        for stream in ("one", "two"):
            policy = StreamConfiguration(ScalingPolicy.fixed(1))
            await controller.parts.workflows.create.create("scope", stream, policy)
            parts.access.append(f"scope/{stream}/0.#epoch.0", 100)
        made = Group(controller)
        await controller.parts.groups.create("scope", "group", GROUP_ID, made.config("one"))
        assert await made.release("one", 60, 0) == STATUS.SUCCESS
        yield made
    finally:
        await controller.stop()


async def test_what_is_held_stays_held_when_a_stream_is_added(group: Group) -> None:
    await group.change(0, "one", "two")
    assert (await group.held("one"), await group.held("two")) == ({0: 60}, {})
    assert await group.release("one", 80, 0) == STATUS.GENERATION_MISMATCH
    assert await group.release("one", 80, 1) == STATUS.SUCCESS
    assert await group.held("one") == {0: 80}


async def test_a_group_that_is_configured_anew_may_begin_earlier_once(group: Group) -> None:
    """It was reset to an earlier position, and reads from there again."""
    assert await group.release("one", 20, 0) == STATUS.STREAM_CUT_NOT_VALID
    await group.change(0, "one")
    assert await group.release("one", 20, 1) == STATUS.SUCCESS
    assert await group.release("one", 10, 1) == STATUS.STREAM_CUT_NOT_VALID
    await group.change(1, "one", "two")
    await group.change(2, "one")
    assert (await group.held("one"), await group.held("two")) == ({0: 20}, None)


async def test_a_group_of_the_same_name_that_is_made_later_holds_nothing_yet(group: Group) -> None:
    assert await group.controller.parts.groups.delete("scope", "group", GROUP_ID)
    other = "99999999-2222-3333-4444-555555555555"
    await group.controller.parts.groups.create("scope", "group", other, group.config("one"))
    assert await group.held("one") == {}


async def test_a_controller_that_dies_in_the_change(group: Group) -> None:
    async def change(_: Controller) -> None:
        await group.change(0, "one", "two")

    await crash_during(group.controller, change, UPDATE_SUBSCRIBED)
    assert await group.held("one") == {0: 60}


async def test_a_stream_takes_as_many_subscribers_as_their_positions_fit(group: Group) -> None:
    """One more is refused before anything of it is made, and the others go on giving positions of the largest size."""
    groups, segments = group.controller.parts.groups, 1_000
    await group.controller.parts.workflows.create.create(
        "scope", "wide", StreamConfiguration(ScalingPolicy.fixed(segments))
    )
    fit = value_bytes_max // (segments * cut_segment_bytes)
    for number in range(fit):
        await groups.create("scope", f"group-{number}", GROUP_ID, group.config("wide"))
    with pytest.raises(InvalidArgument, match=f"{fit} subscribers and 1000 segments: .* {value_bytes_max} bytes"):
        await groups.create("scope", "one-more", GROUP_ID, group.config("wide"))
    assert await groups.records.get("scope", "one-more") is None
    with pytest.raises(InvalidArgument, match="cannot subscribe to scope/wide"):
        await group.change(0, "one", "wide")
    assert await group.release("one", 80, 0) == STATUS.SUCCESS
    await groups.create("scope", "group-0", GROUP_ID, group.config("wide"))
    await groups.update("scope", "group-0", GROUP_ID, 0, group.config("wide"))

    async def fill(context: StreamContext) -> None:
        subscribers = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
        cut = {segment_id(number, 1_000): 10**12 for number in range(segments)}
        filled = {name: dataclasses.replace(known, cut=cut) for name, known in subscribers.items()}
        context.stage(SUBSCRIBERS, SubscribersRecord(filled))

    await group.controller.store.update("scope", "wide", fill, SUBSCRIBERS)


async def test_a_group_that_subscribes_no_more_makes_room(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_subscriptions, "value_bytes_max", 300)
    groups = group.controller.parts.groups
    with pytest.raises(InvalidArgument):
        await groups.create("scope", "next", GROUP_ID, group.config("one"))
    await group.change(0, "two")
    await groups.create("scope", "next", GROUP_ID, group.config("one"))


async def test_a_position_that_does_not_fit_stays_and_the_error_says_what_helps(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a stream that got many segments after its subscribers had come. It is no cut that lies too far back."""
    transport = ControllerTransport(f"127.0.0.1:{group.controller.grpc.port}", attempts=1)
    client = ReaderGroupClient(transport)
    registration = GroupRegistration("scope", "group", GROUP_ID, 0, ReaderGroupRetention.MANUAL)
    with monkeypatch.context() as patched:
        patched.setattr(table_limits, "value_bytes_max", 100)
        with pytest.raises(ControllerRefused, match=r"scope/one do not fit .* of scope/group stays .* remove\)"):
            await asyncio.to_thread(client.update_cut, registration, "scope", "one", {0: 80})
    assert await group.held("one") == {0: 60}
    with pytest.raises(InvalidArgument):
        await asyncio.to_thread(client.update_cut, registration, "scope", "one", {0: 20})
    transport.close()
