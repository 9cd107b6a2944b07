"""Publishes how far a reader group has read, so that a stream's retention keeps what the group has not read yet."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from pravega_common.errors import NotFound, PravegaError
from pravega_common.model.reader_groups import GroupRegistration, ReaderGroupRetention
from pravega_common.model.segments import SegmentOffsets
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.group_state import OTHER_CLIENT, GroupState, StreamName, cuts_of

publish_interval_s: Final = 30.0
"""The pause between two publications of a group, as between the Java client's automatic checkpoints."""
_log: Final = logging.getLogger(__name__)

SendCut = Callable[[GroupRegistration, str, str, SegmentOffsets], Awaitable[None]]
"""Sends the cut of a stream to the controller."""


async def group_cuts(cluster: ReaderCluster, state: GroupState) -> dict[StreamName, dict[int, int]]:
    """The positions that a group has recorded, one cut a stream; a stream may be read again from there."""
    positions = {**state.ended, **dict(state.held_segments())}
    return cuts_of(await cluster.whole_cut(positions, state.future))


class CutPublisher:
    """Publishes a group's cuts from one of its readers every ``publish_interval_s``: from the first by name of those of
    this client, as those of the Rust client publish nothing.

    A subscriber without a cut holds nothing back: the first one is published when the group is made.
    """

    def __init__(self, cluster: ReaderCluster, registration: GroupRegistration, send: SendCut) -> None:
        self._cluster = cluster
        self._registration = registration
        self._send = send
        self._due_s = cluster.clock.monotonic_s()
        self._published: dict[StreamName, SegmentOffsets] = {}

    @property
    def is_automatic(self) -> bool:
        """Whether the group publishes by itself."""
        return self._registration.retention is ReaderGroupRetention.AUTOMATIC

    def is_due(self, state: GroupState, reader: str) -> bool:
        """Whether it is this reader's turn to publish."""
        if not self.is_automatic or self._cluster.clock.monotonic_s() < self._due_s:
            return False
        able = (name for name in state.readers if state.incarnations.get(name, OTHER_CLIENT) != OTHER_CLIENT)
        return next(able, None) == reader

    async def publish_recorded(self, state: GroupState) -> None:
        """Publish the recorded positions. A failure is noted, and retention waits where it did until the next turn."""
        self._due_s = self._cluster.clock.monotonic_s() + publish_interval_s
        try:
            await self.publish_state(state)
        except PravegaError as error:
            _log.warning("a cut of reader group %s was not published: %s", self._registration.subscriber, error)

    async def publish_state(self, state: GroupState) -> None:
        """Publish the positions that a group has recorded, as ``publish``; a stream that it has read to its end, and
        that is deleted, needs none."""
        left = {*cuts_of(dict(state.held_segments())), *cuts_of(dict.fromkeys(state.future, 0))}
        await self.publish(await group_cuts(self._cluster, state), ended=cuts_of(state.ended).keys() - left)

    async def publish(
        self, cuts: Mapping[StreamName, SegmentOffsets], *, ended: Collection[StreamName] = frozenset()
    ) -> None:
        """Publish cuts, those that changed. Errors: those of ``ReaderGroupClient.update_cut``, the first of them once
        the cuts of all streams were tried. Of the streams ``ended`` those that are deleted are passed over."""
        failures: list[PravegaError] = []
        for (scope, stream), cut in cuts.items():
            if self._published.get((scope, stream)) == cut:
                continue
            try:
                await self._send(self._registration, scope, stream, cut)
            except PravegaError as error:
                if (scope, stream) not in ended or not await self._is_deleted(scope, stream):
                    failures.append(error)
                    continue
            self._published[scope, stream] = cut
        if failures:
            raise failures[0]

    async def _is_deleted(self, scope: str, stream: str) -> bool:
        try:
            await self._cluster.metadata.head_cut(scope, stream)
        except NotFound:
            return True
        except PravegaError:
            return False
        return False
