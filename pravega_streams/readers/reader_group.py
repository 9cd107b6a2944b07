"""Shares the segments of streams among readers, which may come, go and die."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from pravega_common.errors import InvalidArgument, NotFound, PravegaError, StreamNotFound, Unavailable
from pravega_common.model.segments import SegmentOffsets
from pravega_common.stream_cut import StreamCut
from pravega_streams.controller.call_numbers import checked_mapping, checked_number, checked_text
from pravega_streams.errors import ControllerRefused
from pravega_streams.readers import checkpoints, transitions
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.cut_publisher import CutPublisher, group_cuts
from pravega_streams.readers.event_reader import EventReader
from pravega_streams.readers.group_state import (
    OTHER_CLIENT,
    GroupConfiguration,
    GroupMember,
    GroupState,
    Positions,
    StreamName,
    checked_by_stream,
    cuts_of,
)
from pravega_streams.readers.group_table import GroupTable

checkpoint_time_default_s: Final = 60.0
checkpoint_poll_s: Final = 0.1
unfinished_max: Final = 1_000
"""Readers that could not be made and may be in the group still, which are known for another attempt."""
_log: Final = logging.getLogger(__name__)

Cuts = Mapping[StreamName, SegmentOffsets]
"""A cut of each of several streams, by scope and name."""
Register = Callable[[], Awaitable[CutPublisher]]
"""Registers a group as a subscriber."""


class ReaderGroup:
    """A group of readers that read every event once among them. Made by ``create`` and ``open``.

    Its state is in a table that the Rust client, and the PyPI client with it, understand: readers of both may be in one
    group. Errors: ``NotFound`` for a group that was deleted, and those of ``TableClient``.
    """

    def __init__(self, cluster: ReaderCluster, scope: str, name: str, publisher: CutPublisher | None = None) -> None:
        self.scope = scope
        self.name = name
        self._cluster = cluster
        self._publisher = publisher
        self._table = GroupTable(cluster.tables, scope, name, clock=cluster.clock)
        self._unfinished: dict[str, GroupMember] = {}

    async def create(self, configuration: GroupConfiguration, register: Register | None = None) -> ReaderGroup:
        """Make the group where its streams start, unless it exists already: then it stays as it is, and nothing is
        asked about the configuration, whose cuts may be truncated by now.

        ``InvalidArgument`` for cuts that are not of their streams, and for an end that lies before the start.
        ``StreamNotFound``. ``register``: called once nothing of that stands in the way, before the group is there.
        """
        positions = None if await self._exists() else await self._start_of(configuration)
        if register is not None:
            self._publisher = await register()
        if positions is not None:
            await self._table.create(GroupState(configuration, positions))
        return self

    async def _start_of(self, configuration: GroupConfiguration) -> Positions:
        positions = await self._cluster.start_positions(configuration)
        await self._cluster.check_ends(configuration.end, positions)
        return positions

    async def open(self) -> ReaderGroup:
        """Look at the group, which must exist: ``NotFound``."""
        await self._table.refresh()
        return self

    async def _exists(self) -> bool:
        try:
            await self._table.refresh()
        except NotFound:
            return False
        return True

    async def delete(self) -> bool:
        """Delete the group's state; its readers are offline then. Returns whether it was there."""
        return await self._table.delete()

    @property
    def configuration(self) -> GroupConfiguration:
        """The configuration as it was last seen."""
        return self._table.state.config

    @property
    def publishes_itself(self) -> bool:
        """Whether the group is registered as a subscriber that publishes its positions without being told to."""
        return self._publisher is not None and self._publisher.is_automatic

    # ---- readers

    async def create_reader(self, reader_id: str) -> EventReader:
        """Add a reader; ``AlreadyExists`` while one of that name is online. After another error the call may be
        repeated. Names are to be used again: the group remembers them for some time."""
        member = self._unfinished.pop(reader_id, None) or GroupMember(reader_id, random.randrange(1, OTHER_CLIENT))
        table = GroupTable(self._cluster.tables, self.scope, self.name, clock=self._cluster.clock)
        reader = EventReader(self._cluster, table, member, self._publisher)
        try:
            await table.update(lambda state: transitions.add_reader(state, member))
            await reader.refresh()
        except BaseException:
            await self._take_back(reader, member)
            raise
        return reader

    async def _take_back(self, reader: EventReader, member: GroupMember) -> None:
        """Have a reader leave that could not be made, as segments are due to it; else the next attempt goes on with
        the same member."""
        try:
            await reader.reader_offline()
        except NotFound:
            return  # The group is gone, with its readers.
        except BaseException as error:
            if len(self._unfinished) >= unfinished_max:
                del self._unfinished[next(iter(self._unfinished))]
            self._unfinished[member.reader] = member
            if not isinstance(error, PravegaError):
                raise
            _log.warning(
                "reader %s could not be made and may be in group %s/%s still: create it again, or take it offline: %s",
                *(member.reader, self.scope, self.name, error),
            )

    async def readers_online(self) -> list[str]:
        """The names of the readers that are online, or died without leaving."""
        return (await self._table.refresh()).readers

    async def reader_offline(self, reader_id: str, last_positions: Positions | None = None) -> None:
        """Take a reader out that died; the others take its segments over.

        They go on at ``last_positions`` (offsets by qualified segment name) where it has one, else where the reader
        recorded last. Nothing happens if it is not in the group, nor to a later reader of its name. ``InvalidArgument``
        for other values.
        """
        last = checked_mapping("the last positions of a reader", last_positions or {})
        given = {
            checked_text("a segment of the last positions", segment): checked_number(
                f"the last position in {segment}", offset
            )
            for segment, offset in last.items()
        }
        incarnation = (await self._table.refresh()).incarnations.get(reader_id)

        def transition(state: GroupState) -> GroupState:
            if state.incarnations.get(reader_id) != incarnation:
                return state
            return transitions.remove_reader(state, reader_id, given)

        await self._table.update(transition)

    # ---- positions

    async def get_stream_cuts(self) -> dict[StreamName, StreamCut]:
        """The positions that the readers recorded last, one cut a stream.

        In the middle of a scale that is neither split nor merge alone, and once the stream has forgotten what the group
        waits for, segments may stand in it as not reached (offset -1): no group starts or ends there.
        """
        return _as_stream_cuts(await group_cuts(self._cluster, await self._table.refresh()))

    async def publish_cuts(self, cuts: Cuts | None = None) -> None:
        """Let retention drop what lies before the cuts, by default the recorded positions.

        ``InvalidArgument`` if the group is not registered as a subscriber; ``ControllerRefused`` the first time after
        another client reset the group.
        """
        if self._publisher is None:
            raise InvalidArgument(
                f"reader group {self.scope}/{self.name} is not registered as a subscriber; create it with a retention"
            )
        used = self._publisher.generation
        try:
            if cuts:
                await self._publisher.publish(checked_by_stream("cuts to publish", cuts))
            else:
                await self._publisher.publish_state(await self._table.refresh(), used)
        except ControllerRefused as error:
            if await self._publisher.is_replaced(used):
                raise ControllerRefused(
                    f"reader group {self.scope}/{self.name} was reset since it was looked at, so what was read before "
                    "is not published; call again for what is read since"
                ) from error
            raise

    async def reset(self, cuts: Cuts) -> None:
        """Begin again at a cut of every stream of the group. All readers are offline then and must be created again.

        Of a subscriber retention keeps what comes after the cuts, before anything else is done. ``InvalidArgument`` for
        a cut that is not of its stream, or lies behind the group's end in it; ``StreamNotFound`` once a stream of the
        group is deleted, as nothing can begin there.
        """
        starts = checked_by_stream("cuts of a reset", cuts)
        start = GroupConfiguration(starts, {}, self.configuration.refresh_time_ms)
        try:
            positions = await self._cluster.start_positions(start)
        except StreamNotFound as error:
            raise StreamNotFound(
                f"reader group {self.scope}/{self.name} cannot be reset: {error}; if it was deleted, delete the group "
                "and create it again with cuts of the streams that are left (those of a checkpoint: "
                "wait_for_checkpoint)"
            ) from error
        bounded = {stream: end for stream, end in self.configuration.end.items() if stream in cuts}
        await self._cluster.check_ends(bounded, positions)
        await self._begin_again(positions)

    async def _begin_again(self, positions: Positions, future: transitions.Successors | None = None) -> None:
        async with AsyncExitStack() as until_reset:
            if self._publisher is not None:
                state = transitions.reset(await self._table.refresh(), positions, future)
                await until_reset.enter_async_context(self._publisher.going_back(state))
            await self._table.update(lambda state: transitions.reset(state, positions, future))

    # ---- checkpoints

    async def initiate_checkpoint(self, name: str) -> None:
        """Begin a checkpoint; each reader adds its positions when it looks at the group next."""
        mark = random.getrandbits(checkpoints.MARK_BITS)
        await self._table.update(lambda state: checkpoints.initiate(state, name, mark))

    async def wait_for_checkpoint(
        self, name: str, timeout_s: float = checkpoint_time_default_s
    ) -> dict[StreamName, StreamCut]:
        """The cuts of a checkpoint once all readers are in it; ``Unavailable`` if that takes too long, ``NotFound``."""
        clock = self._cluster.clock
        deadline_s = clock.monotonic_s() + timeout_s
        while True:
            state = await self._table.refresh()
            found = state.checkpoints.get(name)
            if found is None or found.is_complete:
                return await self._cuts_of_checkpoint(state, name)
            if clock.monotonic_s() >= deadline_s:
                raise Unavailable(
                    f"checkpoint {name} of {self.scope}/{self.name} has waited {timeout_s:.0f} s for readers "
                    f"{', '.join(sorted(found.waiting))}; take offline what died"
                )
            await clock.sleep(checkpoint_poll_s)

    async def list_checkpoints(self) -> dict[str, bool]:
        """The checkpoints that the group remembers, oldest first, and whether each is complete."""
        every = (await self._table.refresh()).checkpoints
        return {name: every[name].is_complete for name in sorted(every, key=lambda name: every[name].number)}

    async def discard_checkpoint(self, name: str) -> None:
        """Forget a checkpoint."""
        await self._table.update(lambda state: checkpoints.discard(state, name))

    async def reset_to_checkpoint(self, name: str) -> None:
        """Begin again at a complete checkpoint; as ``reset``."""
        found = checkpoints.complete_one(await self._table.refresh(), name)
        cuts = cuts_of(await self._cluster.whole_cut(found.positions, found.future))
        if all(offset >= 0 for cut in cuts.values() for offset in cut.values()):
            await self.reset(cuts)
            return
        # Such a cut does not say for which segments those that were not reached wait. The checkpoint does.
        for stream, cut in cuts.items():
            await self._cluster.check_cut(stream, cut)
        await self._begin_again(found.positions, found.future)

    async def _cuts_of_checkpoint(self, state: GroupState, name: str) -> dict[StreamName, StreamCut]:
        found = checkpoints.complete_one(state, name)
        return _as_stream_cuts(cuts_of(await self._cluster.whole_cut(found.positions, found.future)))


def _as_stream_cuts(cuts: Cuts) -> dict[StreamName, StreamCut]:
    return {(scope, stream): StreamCut(scope, stream, dict(cut)) for (scope, stream), cut in cuts.items()}
