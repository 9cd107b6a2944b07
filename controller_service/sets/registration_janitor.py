"""Removes registrations that nothing leads to any more, a page of the table at a time.

Registrations end with their batch. Those that a task writes after that, since it was slow, it removes itself; if its
controller dies in between, they are found here.
"""

from __future__ import annotations

from typing import Final

from controller_service.sets.sink_store import FoundRegistration, SinkStore
from pravega_common.errors import VersionConflict
from pravega_common.runtime.joined import all_ended

registration_idle_ms: Final = 24 * 3600 * 1000
"""A registration that is younger is left alone; a batch without calls ends after eleven minutes."""


class RegistrationJanitor:
    """Each look costs the same, however many registrations there are: one page, and the sinks of its old entries."""

    def __init__(self, sinks: SinkStore) -> None:
        self._sinks = sinks
        self._token = b""

    async def look(self, now_ms: int) -> None:
        """Look at the next page of the table, after the last one at the first again."""
        page, self._token = await self._sinks.registrations_page(self._token)
        idle = [found for found in page if now_ms - found.touched_ms > registration_idle_ms]
        await all_ended(map(self._remove_if_lost, idle))

    async def _remove_if_lost(self, found: FoundRegistration) -> None:
        sink = await self._sinks.read(found.sink)
        if sink is not None and found.batch_id in sink.record.open_batches:
            return
        try:
            await self._sinks.remove_registration(found)
        except VersionConflict:
            return  # a task called just now
