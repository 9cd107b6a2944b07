"""Makes and removes the streams that carry the state of reader groups (docs/controller-api.md 7).

Stream and group have records in different tables, and a run may stand still between two steps until the group is gone
and another one of its name has a stream of its own. So a run that takes over a stream, or marks one for its removal,
reads the entry of the stream first, then the record of the group, and writes the entry at the version that was read.
All of them write, so of those that read one version only the first one succeeds: a stream that a group took over is not
marked for an earlier group any more, and a stream that is marked is not taken over.

A stream that is not there has no version. So a run that puts an entry looks at the record of the group afterwards, and
takes the stream back if the group went meanwhile. The entry has the id of the group, so that the next run of the
request finds the stream if this one dies before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from controller_service.store.members import (
    ReaderGroupRecord,
    ScopeMembers,
    ScopeMemberState,
    group_stream_rollover_bytes,
)
from controller_service.store.records import StreamEntry, StreamState
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.states import no_way_back
from pravega_common.errors import StreamNotFound, Unavailable, VersionConflict
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import reader_group_stream
from pravega_common.runtime.failpoints import failpoint, register

STREAM_MARKED = register("controller.group_stream_marked")
STREAM_SEALED = register("controller.group_stream_sealed")
STREAM_DELETED = register("controller.group_stream_deleted")

_GROUP_STREAM: Final = StreamConfiguration(ScalingPolicy.fixed(1), rollover_size_bytes=group_stream_rollover_bytes)

MayGo = Callable[[StreamEntry, ReaderGroupRecord | None], bool]
"""Whether a stream is to be removed, by its entry and the record of the group that is read after it."""


class GroupStreams:
    """For the handlers of requests, which repeat it."""

    def __init__(
        self,
        store: StreamStore,
        records: ScopeMembers[ReaderGroupRecord],
        create: CreateStream,
        seal: SealStream,
        delete: DeleteStream,
    ) -> None:
        self._store = store
        self._records = records
        self._create = create
        self._seal = seal
        self._delete = delete

    async def make(self, scope: str, group: str, group_id: str) -> None:
        """Create the stream of a group that is being created, or take over the one that stands.

        ``QuotaExceeded`` for a scope that has no room for it; ``VersionConflict`` if the group is not being created any
        more, ``Unavailable`` while another stream of the name is being deleted: the caller looks at the records again.
        """
        stream = reader_group_stream(group)
        segments = _GROUP_STREAM.scaling.min_segments
        entry, added = await self._store.add_entry(scope, stream, (), segments, group_id)
        standing = None if added else await self._store.listed(scope, stream)
        record = await self._records.get(scope, group)
        if not is_creating(record, group_id):
            raise VersionConflict(f"reader group {scope}/{group} was created or deleted meanwhile")
        if standing is not None and not standing.entry.deleting:
            entry = dataclasses.replace(standing.entry, group_id=group_id)
            await self._store.replace_entry(standing, entry)
        if entry.deleting or not await self._create.carry_out(scope, stream, entry.stream_id, _GROUP_STREAM):
            # Not by waiting: who began to delete it may have died.
            await self._carry_out_removal(scope, stream, entry.stream_id)
            raise Unavailable(f"stream {scope}/{stream} was being deleted")

    async def remove(self, scope: str, group: str, group_id: str) -> None:
        """Remove the stream of a group that is being deleted, also one that a client made; no later group's stream."""

        def may_go(entry: StreamEntry, record: ReaderGroupRecord | None) -> bool:
            return record is not None and record.group_id == group_id and record.state is ScopeMemberState.DELETING

        await self._remove_if(scope, group, may_go)

    async def take_back(self, scope: str, group: str, group_id: str) -> None:
        """Remove the stream that the creation of a group made or took over, unless a group has it."""

        def may_go(entry: StreamEntry, record: ReaderGroupRecord | None) -> bool:
            has_it = record is not None and record.state is ScopeMemberState.ACTIVE
            return entry.group_id == group_id and not has_it and not is_creating(record, group_id)

        await self._remove_if(scope, group, may_go)

    async def _remove_if(self, scope: str, group: str, may_go: MayGo) -> None:
        """Remove the stream of a group's name, also one that another run has marked."""
        stream = reader_group_stream(group)

        async def mark() -> StreamEntry | None:
            found = await self._store.listed(scope, stream)
            if found is None:
                return None
            if found.entry.deleting:
                return found.entry
            if not may_go(found.entry, await self._records.get(scope, group)):
                return None
            marked = dataclasses.replace(found.entry, deleting=True)
            await self._store.replace_entry(found, marked)
            return marked

        marked = await self._store.compare_and_set(f"entry of stream {scope}/{stream}", mark)
        if marked is not None:
            failpoint(STREAM_MARKED)
            await self._carry_out_removal(scope, stream, marked.stream_id)

    async def _carry_out_removal(self, scope: str, stream: str, stream_id: str) -> None:
        """Seal and delete a stream that is marked, or gone already."""
        with no_way_back(f"deletion of stream {scope}/{stream}"):
            # A half-made one is deleted without having been sealed: its creation asks whether the group still wants it,
            # so nobody would complete it.
            try:
                if await (await self._store.open(scope, stream)).state() is not StreamState.CREATING:
                    await self._seal.carry_out(scope, stream, stream_id)
            except StreamNotFound:
                # Without records, or gone meanwhile.
                pass
            failpoint(STREAM_SEALED)
            await self._delete.carry_out(scope, stream, stream_id)
            failpoint(STREAM_DELETED)


def is_creating(record: ReaderGroupRecord | None, group_id: str) -> bool:
    """Whether the group of this id is there and its creation is not finished."""
    return record is not None and record.group_id == group_id and record.state is ScopeMemberState.CREATING
