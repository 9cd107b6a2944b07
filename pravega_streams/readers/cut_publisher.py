"""Publishes how far a reader group has read, so that a stream's retention keeps what the group has not read yet."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from pravega_common.errors import NotFound, PravegaError
from pravega_common.model.reader_groups import GroupRegistration, ReaderGroupRetention
from pravega_common.model.segments import SegmentOffsets
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.group_state import OTHER_CLIENT, GroupState, StreamName, cuts_of

publish_interval_s: Final = 30.0
"""The pause between two publications of a group, as between the Java client's automatic checkpoints."""
_log: Final = logging.getLogger(__name__)

Generation = tuple[GroupRegistration, dict[StreamName, SegmentOffsets]]
"""A generation of a group, and the cuts that were published in it."""


class GroupRegistry(Protocol):
    """The controller's knowledge of the groups that are subscribers. Errors of all calls: ``Unavailable``,
    ``UnknownOutcome``, ``AccessDenied``."""

    async def find(self, scope: str, group: str) -> GroupRegistration | None:
        """Return how a group is registered."""
        ...

    async def renew(self, registration: GroupRegistration) -> GroupRegistration:
        """Give a group its next generation, in which its cuts may go back; it keeps what it published until then.

        ``NotFound`` if it is not registered, ``ControllerRefused`` if somebody else changes it at the same time.
        """
        ...

    async def update_cut(self, registration: GroupRegistration, scope: str, stream: str, cut: SegmentOffsets) -> None:
        """Let retention of a stream drop what lies before the cut, as far as this group goes.

        ``ControllerRefused`` if the group has another generation, ``InvalidArgument`` for a cut that lies before the
        one of this generation or is not of the stream, ``NotFound`` for an unknown stream or group.
        """
        ...


async def group_cuts(cluster: ReaderCluster, state: GroupState) -> dict[StreamName, dict[int, int]]:
    """The positions that a group has recorded, one cut a stream; a stream may be read again from there."""
    positions = {**state.ended, **dict(state.held_segments())}
    return cuts_of(await cluster.whole_cut(positions, state.future))


class CutPublisher:
    """Publishes a group's cuts from one of its readers every ``publish_interval_s``: from the first by name of those of
    this client, as those of the Rust client publish nothing.

    A subscriber without a cut holds nothing back: the first one is published when the group is made. Cuts go back only
    with another generation of the group, which is known from then on to all its publishers.
    """

    def __init__(self, cluster: ReaderCluster, registration: GroupRegistration, registry: GroupRegistry) -> None:
        self._cluster = cluster
        self._registration = registration
        self._registry = registry
        self._due_s = cluster.clock.monotonic_s()
        self._published: dict[StreamName, SegmentOffsets] = {}
        self._resets = 0
        """Resets of the group by this client that are under way."""

    @property
    def is_automatic(self) -> bool:
        """Whether the group publishes by itself."""
        return self._registration.retention is ReaderGroupRetention.AUTOMATIC

    def is_due(self, state: GroupState, reader: str) -> bool:
        """Whether it is this reader's turn to publish."""
        if not self.is_automatic or self._resets or self._cluster.clock.monotonic_s() < self._due_s:
            return False
        able = (name for name in state.readers if state.incarnations.get(name, OTHER_CLIENT) != OTHER_CLIENT)
        return next(able, None) == reader

    def publish_recorded(self, state: GroupState) -> Coroutine[Any, Any, None]:
        """Publish the recorded positions, in the generation that the group has at the call, when they are looked up. A
        failure is noted, and retention waits where it did until the next turn."""
        self._due_s = self._cluster.clock.monotonic_s() + publish_interval_s
        return self._publish_recorded(state, self.generation)

    async def _publish_recorded(self, state: GroupState, generation: Generation) -> None:
        try:
            await self.publish_state(state, generation)
        except PravegaError as error:
            # After a reset by another client what was recorded before it may not be published as what comes after it.
            if not await self.is_replaced(generation):
                _log.warning("a cut of reader group %s was not published: %s", generation[0].subscriber, error)

    @property
    def generation(self) -> Generation:
        """The generation of the group in which cuts are published. Who publishes what it looks up takes this before."""
        return self._registration, self._published

    async def is_replaced(self, generation: Generation) -> bool:
        """Whether the group has another generation by now, as after a reset; it is taken over."""
        used, _ = generation
        if self._registration == used:
            try:
                found = await self._registry.find(used.scope, used.group)
            except PravegaError:
                return False
            if found is None or found == used:
                return False
            if not self._resets:
                self._take_over((found, {}))
        return True

    def _take_over(self, generation: Generation) -> None:
        self._registration, self._published = generation
        # The reset may still be under way: what readers of this client know is not to be published behind it.
        self._due_s = self._cluster.clock.monotonic_s() + publish_interval_s

    @asynccontextmanager
    async def going_back(self, state: GroupState) -> AsyncIterator[None]:
        """Publish the positions at which a group begins again, which lie before those that were published. Errors:
        those of ``GroupRegistry.renew`` and of ``publish``; retention then waits where it did before.

        Within the context the group is reset. What this client knows of it until then is of the generation before,
        and is published in no other, however long the reset takes."""
        generation: Generation = await self._registry.renew(self._registration), {}
        self._resets += 1
        try:
            await self.publish_state(state, generation)
            yield
        finally:
            self._resets -= 1
            self._take_over(generation)

    async def publish_state(self, state: GroupState, generation: Generation) -> None:
        """Publish the positions that a group has recorded, as ``publish``; a stream that it has read to its end, and
        that is deleted, needs none. ``generation``: that of the group when the state was looked up or before."""
        left = {*cuts_of(dict(state.held_segments())), *cuts_of(dict.fromkeys(state.future, 0))}
        ended = cuts_of(state.ended).keys() - left
        await self._publish(generation, await group_cuts(self._cluster, state), ended)

    async def publish(self, cuts: Mapping[StreamName, SegmentOffsets]) -> None:
        """Publish cuts, those that changed. Errors: those of ``GroupRegistry.update_cut``, the first of them once
        the cuts of all streams were tried."""
        await self._publish(self.generation, cuts, frozenset())

    async def _publish(
        self, generation: Generation, cuts: Mapping[StreamName, SegmentOffsets], ended: Collection[StreamName]
    ) -> None:
        """Publish cuts in the generation that the group had when they were looked up: none of them may become one of
        the next, which a reset begins meanwhile. Of the streams ``ended`` those that are deleted are passed over."""
        registration, published = generation
        failures: list[PravegaError] = []
        for (scope, stream), cut in cuts.items():
            if published.get((scope, stream)) == cut:
                continue
            try:
                await self._registry.update_cut(registration, scope, stream, cut)
            except PravegaError as error:
                if (scope, stream) not in ended or not await self._is_deleted(scope, stream):
                    failures.append(error)
                    continue
            published[scope, stream] = cut
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
