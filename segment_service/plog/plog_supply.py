"""Makes the plogs that a log stream goes on in, one of them ahead, and frees those that no record names."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import structlog

from pravega_common.errors import DataCorruption, Outcome, PravegaError
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.group_contract import OpenPlog, PersistenceGroupClient
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog import PlogId

proposed_max: Final = 256
"""Plogs of hand-overs that were not recorded which are remembered; the oldest above are left to the next owner."""

SPARE_CREATED: Final = register("plog.stream.spare_created")


@dataclass(slots=True)
class WritePlog:
    """A plog that this owner appends to, or will."""

    number: int
    plog: OpenPlog
    offset: int = 0
    """Where the next frame goes."""
    first_sequence: int = -1
    previous: LogAddress | None = None
    """The frame before its first one."""


class PlogSupply:
    """The plogs of one log stream at one epoch that are made and not in use yet."""

    def __init__(self, stream: str, container_id: int, epoch: int, client: PersistenceClient, first: WritePlog) -> None:
        self.spare: WritePlog | None = None
        """The plog that was made ahead."""
        self._proposed: deque[PlogId] = deque(maxlen=proposed_max)
        """Plogs that hand-overs were to go on in since the last one that was recorded."""
        self._stream = stream
        self._container_id = container_id
        self._epoch = epoch
        self._client = client
        self._next_number = first.number + 1
        self._log = structlog.get_logger(container_id=container_id)

    def group_of(self, plog: WritePlog) -> PersistenceGroupClient:
        return self._client.group_of(plog.plog.plog_id)

    def take_spare(self) -> WritePlog | None:
        spare, self.spare = self.spare, None
        return spare

    async def make_spare(self, active: WritePlog) -> None:
        """Make a plog ahead, for the stream that is in ``active`` now."""
        self.spare = await self._create(active)
        failpoint(SPARE_CREATED)

    async def another(self, unfit: WritePlog | None, active: WritePlog) -> WritePlog:
        """A new plog in the place of one that was made before."""
        if unfit is not None:
            await self.free(unfit.plog.plog_id)
        return await self._create(active)

    async def _create(self, active: WritePlog) -> WritePlog:
        """An empty plog of this owner, under a number of its own, in a group that takes appends."""
        number, self._next_number = self._next_number, self._next_number + 1
        made = await self._client.create_plog(self._container_id, self._stream, number, self._epoch)
        plog = WritePlog(number, made)
        if self.group_of(plog) is not self.group_of(active):
            await self.group_of(plog).open_for_appends()
        return plog

    async def is_fit(self, plog: WritePlog) -> bool:
        """Whether the group of a plog takes appends, and none of its servers was restarted since. If it does not, it
        holds nobody up: the next plog may be in another group."""
        group = self.group_of(plog)
        try:
            await group.open_for_appends()
        except PravegaError as error:
            if error.outcome is Outcome.FENCED:
                raise
            self._log.warning("the group of a plog made ahead takes no appends", group=group.name, error=str(error))
            return False
        return group.is_current(plog.plog)

    def brings_more(self, plog: WritePlog, active: WritePlog) -> bool:
        """Whether more servers are in ``plog``, none of which was restarted since."""
        return plog.plog.members > active.plog.members and self.group_of(plog).is_current(plog.plog)

    async def may_have_room(self) -> bool:
        """Whether a group has memory for a new plog, or nobody can tell of any."""
        looks = [await self._has_room(group) for group in self._client.groups_for_new_plogs]
        return True in looks or set(looks) == {None}

    async def give_up_full_spare(self) -> None:
        """Let the next plog be made in a group that has room, if the spare's has none."""
        spare = self.spare
        if spare is None or len(self._client.groups_for_new_plogs) == 1 or await self._has_room(self.group_of(spare)):
            return
        self.spare = None
        await self.free(spare.plog.plog_id)

    async def _has_room(self, group: PersistenceGroupClient) -> bool | None:
        """``None`` if nobody can tell."""
        try:
            return await group.has_room()
        except PravegaError as error:
            self._log.warning("the memory of a group is not known", group=group.name, error=str(error))
            return None

    def propose(self, plog: WritePlog) -> None:
        """Remember a plog that is about to be recorded: an attempt that fails may have recorded it, so it stays until
        another one is."""
        self._proposed.append(plog.plog.plog_id)

    async def free_proposed(self, named: Collection[PlogId]) -> None:
        """Free the plogs of attempts that failed, once a later one is recorded, but for those that the records name; up
        to the first that cannot be freed now."""
        while self._proposed:
            plog_id = self._proposed[0]
            if plog_id not in named and not await self.free(plog_id):
                return
            self._proposed.popleft()

    async def free(self, plog_id: PlogId) -> bool:
        """Delete a plog that no record names; false if that fails: the next owner's clean-up does it. Servers that lost
        their data had nothing there that the log needs."""
        try:
            await self._client.group_of(plog_id).delete(plog_id, self._container_id, self._epoch)
            return True
        except PravegaError as error:
            if error.outcome is Outcome.REJECTED and not isinstance(error, DataCorruption):
                raise
            self._log.warning("a plog was not deleted", plog_id=str(plog_id), error=str(error))
            return False
