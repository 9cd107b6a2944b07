"""Reads the logs of an in-memory store without taking them over: the fake of ``LogSource``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from pravega_common.errors import DataCorruption
from segment_service.contracts.data_log import LogEntry
from tests.support.fakes.data_log import InMemoryLogStore


class InMemoryLogSource:
    """``LogSource`` over an ``InMemoryLogStore``."""

    def __init__(self, logs: InMemoryLogStore) -> None:
        self._logs = logs
        self.before_entry: Callable[[], None] = lambda: None
        """Called before each entry: a test raises what a reading may raise."""

    async def read(self, container_id: int) -> AsyncIterator[LogEntry]:
        damaged = self._logs.container(container_id).damaged
        for entry in self._logs.entries(container_id):
            self.before_entry()
            if entry.address in damaged:
                raise DataCorruption(f"container {container_id}: frame at {entry.address} fails its checksum")
            yield entry
