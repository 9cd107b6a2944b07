"""Creates, updates and deletes reader groups, with their subscriptions (docs/controller-api.md 7)."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Final

from controller_service.errors import MemberBeingDeleted, PreconditionFailed, QuotaExceeded
from controller_service.queue.request_queue import Request, RequestQueue, run_and_wait
from controller_service.store.members import (
    FoundMember,
    ReaderGroupConfig,
    ReaderGroupRecord,
    ScopeMemberState,
    reader_groups,
)
from controller_service.store.serializer import decode, encode
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.group_streams import GroupStreams, is_creating
from controller_service.workflows.group_subscriptions import GroupSubscriptions, subscribed
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.states import no_way_back
from pravega_common.errors import NotFound, VersionConflict
from pravega_common.names import reader_group_stream, scoped_name, split_scoped_name
from pravega_common.runtime.failpoints import failpoint, register

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

digest_chars: Final = 32
"""The length of a configuration's hash in the id of a request, in hexadecimal digits."""


class ConfigMismatch(PreconditionFailed):
    """The generation or the id that an update names is not the group's."""


class ReaderGroups:
    def __init__(
        self, store: StreamStore, queue: RequestQueue, create: CreateStream, seal: SealStream, delete: DeleteStream
    ) -> None:
        self.records = reader_groups(store)
        self._store = store
        self._queue = queue
        self._streams = GroupStreams(store, self.records, create, seal, delete)
        self._subscriptions = GroupSubscriptions(store, self.records)
        queue.register(CREATE_KIND, self._create)
        queue.register(UPDATE_KIND, self._update)
        queue.register(DELETE_KIND, self._delete)

    # ---- what callers ask for ----------------------------------------------------------------------------------------

    async def create(self, scope: str, group: str, group_id: str, config: ReaderGroupConfig) -> ReaderGroupRecord:
        """Create the group and return it as it stands afterwards: the new one, or the one that was there.

        ``ScopeNotFound``; ``StreamNotFound`` if the group would keep data of a stream that does not exist;
        ``QuotaExceeded`` if the scope has no room for the stream of the group; ``InvalidArgument`` if a stream has none
        for the positions of a further group; ``MemberBeingDeleted`` for one of the name that goes: given its record,
        the caller would go on without a group.
        """
        for name in subscribed(config):
            await (await self._store.open(*split_scoped_name(name))).state()
        await self._subscriptions.require_room(scope, group, subscribed(config))
        record = ReaderGroupRecord(group_id, ScopeMemberState.CREATING, 0, config)
        standing, added = await self.records.add(scope, group, record)
        failpoint(ENTRY_ADDED)
        if not added and standing.state is ScopeMemberState.ACTIVE:
            return standing
        if standing.state is ScopeMemberState.DELETING:
            raise MemberBeingDeleted(
                f"reader group {scope}/{group} is being deleted; it can be created again when that has ended"
            )
        # Should the group be gone by then, its record does not tell them.
        details = {"streams": subscribed(standing.config)}
        await self._run(CREATE_KIND, standing.group_id, scope, group, standing.group_id, details)
        found = await self.records.get(scope, group)
        if found is None or found.state is ScopeMemberState.DELETING:
            raise NotFound(f"reader group {scope}/{group} was deleted meanwhile")
        return found

    async def update(
        self, scope: str, group: str, group_id: str, generation: int, config: ReaderGroupConfig
    ) -> int | None:
        """The new generation; None without such a group. ``ConfigMismatch``; ``InvalidArgument`` as in ``create``.

        An update that was done is done: who lost its answer asks again, also another controller.
        """
        record = await self.records.get(scope, group)
        if record is None or record.state is not ScopeMemberState.ACTIVE:
            return None
        was_done = record.generation == generation + 1 and record.config == config
        if record.group_id != group_id or not (record.generation == generation or was_done):
            raise ConfigMismatch(f"reader group {scope}/{group} has generation {record.generation}, not {generation}")
        await self._subscriptions.require_room(scope, group, subscribed(config))
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
        scope, group, group_id = _named(request)
        found = await self.records.find(scope, group)
        if found is None or not is_creating(found.record, group_id):
            await self._end_creation(request, None if found is None else found.record)
            return
        try:
            await self._streams.make(scope, group, group_id)
        except QuotaExceeded:
            await self._refuse(request, found)
            raise
        failpoint(STREAM_CREATED)
        await self._subscriptions.settle(scope, group, subscribed(found.record.config))
        failpoint(SUBSCRIBED)
        # A conflict has the request run again: it leaves nothing of a group that was deleted meanwhile.
        active = dataclasses.replace(found.record, state=ScopeMemberState.ACTIVE)
        await self.records.replace(group, found, active)

    async def _refuse(self, request: Request, found: FoundMember[ReaderGroupRecord]) -> None:
        scope, group, _ = _named(request)
        try:
            await self.records.discard(group, found)
        except VersionConflict:
            # Another run refused the group, too, or had room for it.
            pass
        await self._end_creation(request, await self.records.get(scope, group))

    async def _end_creation(self, request: Request, record: ReaderGroupRecord | None) -> None:
        """Leave nothing of a group that is not there any more, whatever an earlier run came to."""
        scope, group, group_id = _named(request)
        if record is None or record.group_id != group_id or record.state is ScopeMemberState.DELETING:
            # Requests of former versions do not name the streams.
            await self._subscriptions.settle(scope, group, request.payload.get("streams", ()))
            await self._streams.take_back(scope, group, group_id)

    async def _update(self, request: Request) -> None:
        scope, group, group_id = _named(request)
        config = decode(ReaderGroupConfig, request.payload["config"].encode())
        generation = request.payload["generation"]

        def advance(old: ReaderGroupRecord) -> ReaderGroupRecord:
            if not _is_active(old, group_id) or old.generation != generation:
                return old
            left = {*old.unsubscribe, *subscribed(old.config)} - set(subscribed(config))
            return dataclasses.replace(old, generation=generation + 1, config=config, unsubscribe=tuple(sorted(left)))

        found = await self.records.changed(scope, group, advance)
        if found is None or not _is_active(found.record, group_id):
            raise NotFound(f"reader group {scope}/{group} was deleted meanwhile")
        record = found.record
        if record.generation != generation + 1 or record.config != config:
            raise ConfigMismatch(f"reader group {scope}/{group} was changed by another update")
        failpoint(UPDATE_RECORDED)
        await self._subscriptions.settle(scope, group, subscribed(config))
        failpoint(UPDATE_SUBSCRIBED)
        await self._subscriptions.settle(scope, group, record.unsubscribe)
        failpoint(UPDATE_UNSUBSCRIBED)
        if record.unsubscribe:
            await self._forget_left(group, found)

    async def _forget_left(self, group: str, found: FoundMember[ReaderGroupRecord]) -> None:
        try:
            await self.records.replace(group, found, dataclasses.replace(found.record, unsubscribe=()))
        except VersionConflict:
            # Another run of the update did it, or a later one or a deletion took the list over.
            pass

    async def _delete(self, request: Request) -> None:
        scope, group, group_id = _named(request)
        record = await self.records.get(scope, group)
        if record is not None and record.group_id == group_id:
            with no_way_back(f"deletion of reader group {scope}/{group}"):
                await self.delete_within(scope, group, group_id)

    async def delete_within(self, scope: str, group: str, group_id: str) -> None:
        """For this and other workflows' handlers. Idempotent."""
        found = await self.records.changed(
            scope,
            group,
            lambda old: dataclasses.replace(old, state=ScopeMemberState.DELETING) if old.group_id == group_id else old,
        )
        if found is None or found.record.group_id != group_id:
            return
        failpoint(DELETION_MARKED)
        await self._subscriptions.settle(scope, group, {*subscribed(found.record.config), *found.record.unsubscribe})
        failpoint(UNSUBSCRIBED)
        await self._streams.remove(scope, group, group_id)
        try:
            await self.records.discard(group, found)
        except VersionConflict:
            # Another run of the deletion did it. Former versions may have changed the record, which is to go then.
            left = await self.records.get(scope, group)
            if left is not None and left.group_id == group_id and left.state is ScopeMemberState.DELETING:
                raise


def _named(request: Request) -> tuple[str, str, str]:
    """The scope, the group and its id."""
    return request.payload["scope"], request.payload["group"], request.payload["group_id"]


def _is_active(record: ReaderGroupRecord, group_id: str) -> bool:
    return record.group_id == group_id and record.state is ScopeMemberState.ACTIVE
