"""Has streams know the reader groups that subscribe to them (docs/controller-api.md 7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Final

from controller_service.store.members import ReaderGroupConfig, ReaderGroupRecord, ScopeMembers, ScopeMemberState
from controller_service.store.records import SUBSCRIBERS, SubscriberRecord, SubscribersRecord
from controller_service.store.serializer import encode
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import InvalidArgument, StreamNotFound
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.table_limits import value_bytes_max
from pravega_common.names import scoped_name, split_scoped_name
from pravega_common.runtime.joined import all_ended

cut_segment_bytes: Final = 32
"""Bytes that a segment of a position takes on record, with room for larger offsets and for the segments of a scale."""


class GroupSubscriptions:
    """Settles subscriptions by the record of the group, which every change is written to first.

    A run may stand still before it writes the subscribers of a stream, until the group has changed twice. So each run
    reads the subscribers first, then the record, and writes what that says at the version that was read, also when
    nothing is different: what others made of an earlier record is not written any more then, and this is not once
    others have followed a later one. It makes no difference who runs, nor for which change of the group.
    """

    def __init__(self, store: StreamStore, records: ScopeMembers[ReaderGroupRecord]) -> None:
        self._store = store
        self._records = records

    async def require_room(self, scope: str, group: str, streams: Collection[str]) -> None:
        """``InvalidArgument`` for a stream that does not know the group yet and has more subscribers than its record of
        them holds with the positions of all. Before the group is changed: what settles it afterwards has no way back.
        """
        subscriber = scoped_name(scope, group)

        async def look(name: str) -> None:
            try:
                context = await self._store.open(*split_scoped_name(name), SUBSCRIBERS)
                segments = len((await context.current_epoch()).segments)
            except StreamNotFound:
                # Nothing to subscribe to.
                return
            known = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
            wanted = {**known, subscriber: SubscriberRecord(subscriber, "", 0)}
            if subscriber not in known and _full_bytes(wanted, segments) > value_bytes_max:
                raise InvalidArgument(
                    f"{subscriber} cannot subscribe to {name}, which has {len(known)} subscribers and {segments} "
                    f"segments: the positions of all may take {value_bytes_max} bytes, {cut_segment_bytes} for each "
                    "segment of each; remove subscribers that are not needed (pravega-spark subscriber remove)"
                )

        await all_ended(map(look, streams))

    async def settle(self, scope: str, group: str, streams: Collection[str]) -> None:
        """Have streams (``scope/stream``) know the group as a subscriber if it is one by now, else not. Idempotent.

        One that stays a subscriber keeps its cut: retention waits there until it publishes one of its new generation.
        """
        subscriber = scoped_name(scope, group)

        async def settle_one(name: str) -> None:
            async def change(context: StreamContext) -> None:
                known = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
                record = await self._records.get(scope, group)
                settled = {other: kept for other, kept in known.items() if other != subscriber}
                if record is not None and _is_wanted(record, name):
                    settled[subscriber] = _subscription(subscriber, known.get(subscriber), record)
                await context.put(SUBSCRIBERS, SubscribersRecord(settled))

            try:
                await self._store.update(*split_scoped_name(name), change, SUBSCRIBERS)
            except StreamNotFound:
                # Deleted since: nothing to subscribe to.
                return

        await all_ended(settle_one(name) for name in streams)


def subscribed(config: ReaderGroupConfig) -> tuple[str, ...]:
    """The streams (``scope/stream``) that a group of this configuration subscribes to."""
    return () if config.retention is ReaderGroupRetention.NONE else tuple(config.starting)


def _full_bytes(subscribers: Mapping[str, SubscriberRecord], segments: int) -> int:
    """Bytes of the record once every subscriber has a position in that many segments."""
    without = {name: dataclasses.replace(subscriber, cut={}) for name, subscriber in subscribers.items()}
    return len(encode(SubscribersRecord(without))) + len(subscribers) * segments * cut_segment_bytes


def _is_wanted(record: ReaderGroupRecord, stream: str) -> bool:
    return record.state is not ScopeMemberState.DELETING and stream in subscribed(record.config)


def _subscription(subscriber: str, known: SubscriberRecord | None, record: ReaderGroupRecord) -> SubscriberRecord:
    if known is None or known.group_id != record.group_id:
        return SubscriberRecord(subscriber, record.group_id, record.generation)
    if known.generation == record.generation:
        return known
    # What it released as it was configured before: retention waits there until it publishes a cut again.
    return SubscriberRecord(subscriber, record.group_id, record.generation, known.cut)
