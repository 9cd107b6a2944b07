"""Remembers the plogs that one server was to delete and has not: it was slow, away, or cut off in between."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import PravegaError
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import PlogClient

left_max: Final = 10_000
"""Plogs that are remembered for one server; the oldest ones above are left to the clean-up of the next owner."""
deletions_at_once_max: Final = 256
"""Plogs that one call of ``delete`` deletes, so that it takes less than a second."""


class LeftCopies:
    """The plogs of one log on one server that no record names, and that are there as far as is known."""

    def __init__(self, server: PlogClient) -> None:
        self._server = server
        self._left: dict[PlogId, tuple[int, int]] = {}
        """Container and epoch of each deletion, the oldest one first."""

    def note(self, plog_id: PlogId, container_id: int, epoch: int) -> None:
        """Remember a deletion that was not done, or whose answer did not come."""
        self._left[plog_id] = container_id, epoch
        while len(self._left) > left_max:
            del self._left[next(iter(self._left))]

    def forget(self) -> None:
        """Another server took the place of this one: it has none of them."""
        self._left.clear()

    async def delete(self) -> None:
        """Delete what is left on a server that was just reached; what fails is left to a later call."""
        for plog_id, (container_id, epoch) in list(self._left.items())[:deletions_at_once_max]:
            try:
                await self._server.delete(plog_id, container_id, epoch)
            except PravegaError:
                return
            self._left.pop(plog_id, None)
