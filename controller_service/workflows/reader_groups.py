"""Creates, updates and deletes reader groups, with their subscriptions (docs/controller-api.md 7)."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection
from typing import Any, Final

from controller_service.errors import PreconditionFailed, QuotaExceeded
from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.store.members import (
    ReaderGroupConfig,
    ReaderGroupRecord,
    ScopeMemberState,
    group_stream_rollover_bytes,
    reader_groups,
)
from controller_service.store.records import SUBSCRIBERS, StreamState, SubscriberRecord, SubscribersRecord
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.states import no_way_back
from pravega_common.errors import NotFound, StreamNotFound
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import reader_group_stream, scoped_name, split_scoped_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.joined import all_ended

CREATE_KIND: Final = "create_reader_group"
UPDATE_KIND: Final = "update_reader_group"
DELETE_KIND: Final = "delete_reader_group"

ENTRY_ADDED = register("controller.group_entry_added")
STREAM_CREATED = register("controller.group_stream_created")
SUBSCRIBED = register("controller.group_subscribed")
UPDATE_RECORDED = register("controller.group_update_recorded")
UPDATE_SUBSCRIBED = register("controller.group_update_subscribed")
UPDATE_UNSUBSCRIBED = register("controller.group_update_unsubscribed")
DELETION_MARKED = register("controller.group_deletion_marked")
UNSUBSCRIBED = register("controller.group_unsubscribed")
STREAM_SEALED = register("controller.group_stream_sealed")
STREAM_DELETED = register("controller.group_stream_deleted")

digest_chars: Final = 32
"""The length of a configuration's hash in the id of a request, in hexadecimal digits."""

_GROUP_STREAM: Final = StreamConfiguration(ScalingPolicy.fixed(1), rollover_size_bytes=group_stream_rollover_bytes)


class ConfigMismatch(PreconditionFailed):
    """The generation or the id that an update names is not the group's."""


class ReaderGroups:
    def __init__(
        self, store: StreamStore, queue: RequestQueue, create: CreateStream, seal: SealStream, delete: DeleteStream
    ) -> None:
        self.records = reader_groups(store)
        self._store = store
        self._queue = queue
        self._create_stream = create
        self._seal_stream = seal
        self._delete_stream = delete
        queue.register(CREATE_KIND, self._create)
        queue.register(UPDATE_KIND, self._update)
        queue.register(DELETE_KIND, self._delete)

    # ---- what callers ask for ----------------------------------------------------------------------------------------

    async def create(self, scope: str, group: str, group_id: str, config: ReaderGroupConfig) -> ReaderGroupRecord:
        """Create the group and return it as it stands afterwards: the new one, or the one that was there.

        ``ScopeNotFound``; ``StreamNotFound`` if the group would keep data of a stream that does not exist;
        ``QuotaExceeded`` if the scope has no room for the stream of the group.
        """
        if config.retention is not ReaderGroupRetention.NONE:
            for name in config.starting:
                await (await self._store.open(*split_scoped_name(name))).state()
        record = ReaderGroupRecord(group_id, ScopeMemberState.CREATING, 0, config)
        standing, added = await self.records.add(scope, group, record)
        failpoint(ENTRY_ADDED)
        if not added and standing.state is ScopeMemberState.ACTIVE:
            return standing
        await self._run(CREATE_KIND, standing.group_id, scope, group, standing.group_id)
        found = await self.records.get(scope, group)
        if found is None:
            raise NotFound(f"reader group {scope}/{group} was deleted meanwhile")
        return found

    async def update(
        self, scope: str, group: str, group_id: str, generation: int, config: ReaderGroupConfig
    ) -> int | None:
        """The new generation; None if there is no such group; ``ConfigMismatch``."""
        record = await self.records.get(scope, group)
        if record is None or record.state is not ScopeMemberState.ACTIVE:
            return None
        if record.group_id != group_id or record.generation != generation:
            raise ConfigMismatch(f"reader group {scope}/{group} has generation {record.generation}, not {generation}")
        details: dict[str, Any] = {"generation": generation, "config": encode(config).decode()}
        # Two callers may ask for different configurations at one generation: each is a request of its own.
        digest = hashlib.sha256(details["config"].encode()).hexdigest()[:digest_chars]
        await self._run(UPDATE_KIND, f"{group_id}-{generation}-{digest}", scope, group, group_id, details)
        return generation + 1

    async def delete(self, scope: str, group: str, group_id: str) -> bool:
        """False if there is no such group, or it has another id."""
        record = await self.records.get(scope, group)
        if record is None or record.group_id != group_id:
            return False
        await self._run(DELETE_KIND, group_id, scope, group, group_id)
        return True

    async def _run(
        self, kind: str, identity: str, scope: str, group: str, group_id: str, details: dict[str, Any] | None = None
    ) -> None:
        payload = {"scope": scope, "group": group, "group_id": group_id, **(details or {})}
        key = scoped_name(scope, reader_group_stream(group))
        await run_and_wait(self._queue, Request(f"{kind}-{identity}", kind, key, payload))

    # ---- handlers ----------------------------------------------------------------------------------------------------

    async def _create(self, request: Request) -> None:
        scope, group = request.payload["scope"], request.payload["group"]
        record = await self._mine(request)
        if record is None or record.state is not ScopeMemberState.CREATING:
            return
        try:
            await self._create_stream.create_within(scope, reader_group_stream(group), _GROUP_STREAM)
        except QuotaExceeded:
            await self.records.remove(scope, group, record)
            raise
        failpoint(STREAM_CREATED)
        await self._subscribe(scope, group, record)
        failpoint(SUBSCRIBED)
        await self.records.change(
            scope,
            group,
            lambda old: (
                dataclasses.replace(old, state=ScopeMemberState.ACTIVE)
                if old.state is ScopeMemberState.CREATING
                else old
            ),
        )

    async def _update(self, request: Request) -> None:
        scope, group = request.payload["scope"], request.payload["group"]
        config = decode(ReaderGroupConfig, request.payload["config"].encode())
        generation = request.payload["generation"]
        if await self._mine(request) is None:
            raise NotFound(f"reader group {scope}/{group} was deleted meanwhile")

        def advance(old: ReaderGroupRecord) -> ReaderGroupRecord:
            if old.generation != generation:
                return old
            left = set(_subscribed(old.config)) - set(_subscribed(config))
            return dataclasses.replace(
                old, generation=generation + 1, config=config, unsubscribe=tuple({*old.unsubscribe, *left})
            )

        record = await self.records.change(scope, group, advance)
        if record is None or record.generation != generation + 1 or record.config != config:
            raise ConfigMismatch(f"reader group {scope}/{group} was changed by another update")
        failpoint(UPDATE_RECORDED)
        await self._subscribe(scope, group, record)
        failpoint(UPDATE_SUBSCRIBED)
        await self._unsubscribe(scope, group, record.unsubscribe)
        failpoint(UPDATE_UNSUBSCRIBED)
        await self.records.change(scope, group, lambda old: dataclasses.replace(old, unsubscribe=()))

    async def _delete(self, request: Request) -> None:
        record = await self._mine(request)
        if record is not None:
            scope, group = request.payload["scope"], request.payload["group"]
            with no_way_back(f"deletion of reader group {scope}/{group}"):
                await self.delete_within(scope, group, record.group_id)

    async def delete_within(self, scope: str, group: str, group_id: str) -> None:
        """For this and other workflows' handlers. Idempotent."""
        record = await self.records.change(
            scope,
            group,
            lambda old: dataclasses.replace(old, state=ScopeMemberState.DELETING) if old.group_id == group_id else old,
        )
        if record is None or record.group_id != group_id:
            return
        failpoint(DELETION_MARKED)
        await self._unsubscribe(scope, group, {*_subscribed(record.config), *record.unsubscribe})
        failpoint(UNSUBSCRIBED)
        stream = reader_group_stream(group)
        entry = await self._store.entry(scope, stream)
        if entry is not None:
            # A half-made one is deleted without having been sealed: its creation asks whether the group still wants it,
            # so nobody would complete it.
            try:
                if await (await self._store.open(scope, stream)).state() is not StreamState.CREATING:
                    await self._seal_stream.carry_out(scope, stream, entry.stream_id)
            except StreamNotFound:
                # Without records, or gone meanwhile.
                pass
            failpoint(STREAM_SEALED)
            await self._delete_stream.carry_out(scope, stream, entry.stream_id)
            failpoint(STREAM_DELETED)
        await self.records.remove(scope, group, record)

    async def _mine(self, request: Request) -> ReaderGroupRecord | None:
        record = await self.records.get(request.payload["scope"], request.payload["group"])
        return record if record is not None and record.group_id == request.payload["group_id"] else None

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    async def _subscribe(self, scope: str, group: str, record: ReaderGroupRecord) -> None:
        subscriber = scoped_name(scope, group)

        async def add(context: StreamContext) -> None:
            subscribers = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
            known = subscribers.get(subscriber)
            if known is not None and known.group_id == record.group_id and known.generation >= record.generation:
                return
            # What it released as it was configured before: retention waits there until it publishes a cut again.
            kept = known.cut if known is not None and known.group_id == record.group_id else {}
            new = SubscriberRecord(subscriber, record.group_id, record.generation, kept)
            await context.put(SUBSCRIBERS, SubscribersRecord({**subscribers, subscriber: new}))

        await all_ended(self._change_stream(name, add) for name in _subscribed(record.config))

    async def _unsubscribe(self, scope: str, group: str, streams: Collection[str]) -> None:
        subscriber = scoped_name(scope, group)

        async def remove(context: StreamContext) -> None:
            subscribers = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
            if subscriber in subscribers:
                left = {name: record for name, record in subscribers.items() if name != subscriber}
                await context.put(SUBSCRIBERS, SubscribersRecord(left))

        await all_ended(self._change_stream(name, remove) for name in streams)

    async def _change_stream(self, name: str, change: Any) -> None:
        try:
            await self._store.update(*split_scoped_name(name), change, SUBSCRIBERS)
        except StreamNotFound:
            # Deleted since: nothing to subscribe to.
            return


def _subscribed(config: ReaderGroupConfig) -> tuple[str, ...]:
    return () if config.retention is ReaderGroupRetention.NONE else tuple(config.starting)
