"""Subscribes reader groups to streams of a controller, and tells their positions."""

from __future__ import annotations

from dataclasses import replace

from controller_service.api.grpc.readers_api import ReadersApi
from controller_service.service import Controller
from controller_service.store.members import ReaderGroupConfig
from controller_service.store.records import SUBSCRIBERS, SubscribersRecord
from controller_service.store.stream_context import StreamContext
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import split_scoped_name
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import stream_info

GROUP_ID = "11111111-2222-3333-4444-555555555555"
SUCCESS = pb.UpdateSubscriberStatus.SUCCESS


class Subscriptions:
    """Reader groups of one controller; streams have one segment, in epoch 0."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._api = ReadersApi()
        self._api.parts = controller.parts

    async def stream(self, scope: str, stream: str) -> None:
        """Make a stream, and its scope if need be."""
        await self._controller.store.create_scope(scope)
        configuration = StreamConfiguration(ScalingPolicy.fixed(1))
        await self._controller.parts.workflows.create.create(scope, stream, configuration)

    async def retain(self, scope: str, stream: str) -> None:
        """Give a stream a retention policy, which keeps everything."""
        retention = RetentionPolicy(RetentionType.SIZE, 1 << 40)
        configuration = StreamConfiguration(ScalingPolicy.fixed(1), retention)
        await self._controller.parts.workflows.update.update(f"retain-{stream}", scope, stream, configuration)

    async def subscribe(self, scope: str, group: str, *streams: str) -> None:
        """Make a group of a scope that subscribes to streams of it."""
        starting: dict[str, dict[int, int]] = {f"{scope}/{stream}": {} for stream in streams}
        config = ReaderGroupConfig(3_000, 30_000, 3, ReaderGroupRetention.MANUAL, starting)
        await self._controller.parts.groups.create(scope, group, GROUP_ID, config)

    async def release(self, subscriber: str, stream: str, offset: int) -> int:
        """Tell a position of a subscriber in a stream, both by ``scope/name``; the answer's status."""
        request = pb.SubscriberStreamCut(subscriber=subscriber, generation=0, readerGroupId=GROUP_ID)
        cut = pb.StreamCut(streamInfo=stream_info(*split_scoped_name(stream)), cut={0: offset})
        request.streamCut.CopyFrom(cut)
        return (await self._api.updateSubscriberStreamCut(request, None)).status

    async def told_before(self, subscriber: str, stream: str, seconds: int) -> None:
        """Have a subscriber's last position be older."""
        store = self._controller.store

        async def change(context: StreamContext) -> None:
            known = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
            older = replace(known[subscriber], updated_ms=store.clock.wall_ms() - seconds * 1000)
            await context.put(SUBSCRIBERS, SubscribersRecord({**known, subscriber: older}))

        await store.update(*split_scoped_name(stream), change, SUBSCRIBERS)
