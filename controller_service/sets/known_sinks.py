"""Keeps the sinks that called this controller of late, and how they are: for metrics, in bounded work.

Nothing is read while nobody asks. An answer that is too old is made again, by reading the records of these sinks and
no others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog

from controller_service.sets.transaction_set import SetRecordState, SinkRecord
from pravega_common.errors import PravegaError
from pravega_common.model.transaction_sets import is_unnamed_write
from pravega_common.runtime.clock import Clock
from pravega_common.services.looks import Looks

known_max: Final = 100
"""Sinks that are known: a further one takes the place of the one that called longest ago."""
answer_age_max_s: Final = 30.0
"""An answer that is older is made again when somebody asks."""
refresh_time_max_s: Final = 5.0
"""The time of making one: sinks that are not through by then keep what was known of them."""
sinks_at_once_max: Final = 8

ReadSink = Callable[[str, str], Awaitable[SinkRecord | None]]
"""Reads the record of a sink by query id and destination; None if nothing is on record."""


class SinkState(NamedTuple):
    """The state of a sink by the clock of now."""

    query_id: str
    destination: str
    batch_age_s: float | None
    """Since its last committed batch began to be committed; None before the first."""
    open_batches: int
    """Undecided batches with transactions."""
    round_open_s: float
    """How long a batch has been on its way from its commit to being readable; 0 if there is no such batch."""


class KnownSinks:
    """Keeps those whose calls came here, the one that called last at the end."""

    def __init__(self, read: ReadSink, clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._known: dict[tuple[str, str], SinkRecord | None] = {}
        """By query id and destination; None until the first look."""
        self._looks = Looks(
            clock, age_max_s=answer_age_max_s, time_max_s=refresh_time_max_s, at_once_max=sinks_at_once_max
        )
        self._log = structlog.get_logger(service="sinks")

    def __len__(self) -> int:
        return len(self._known)

    def heard_of(self, query_id: str, destination: str) -> None:
        """A call of this sink was answered. Batch writes without a name are left out: they end by themselves."""
        if is_unnamed_write(query_id):
            return
        key = query_id, destination
        self._known[key] = self._known.pop(key, None)
        if len(self._known) > known_max:
            del self._known[next(iter(self._known))]

    def states(self) -> list[SinkState]:
        """The sinks as they were at the last look."""
        now_ms = self._clock.wall_ms()
        return [_state_of(record, now_ms) for record in self._known.values() if record is not None]

    async def look(self) -> None:
        """Look again if the last look is too long ago; never raises, and takes ``refresh_time_max_s`` at most."""
        if not await self._looks.look(lambda: list(self._known), self._look_at):
            self._log.warning("sinks are not all known", sinks=len(self._known))

    async def _look_at(self, key: tuple[str, str]) -> None:
        try:
            record = await self._read(*key)
        except PravegaError as error:
            self._log.info("a sink is not known now", sink=key[0], destination=key[1], error=str(error))
            return
        if record is None:
            self._known.pop(key, None)
        elif key in self._known:
            self._known[key] = record


def _state_of(record: SinkRecord, now_ms: int) -> SinkState:
    last = record.last
    way = record.pending or (last if last is not None and last.state is not SetRecordState.FINISHED else None)
    return SinkState(
        record.query_id,
        record.destination,
        None if last is None else _seconds(now_ms - last.started_ms),
        len(record.open_batches) - len(record.decided_batches),
        0.0 if way is None else _seconds(now_ms - way.started_ms),
    )


def _seconds(milliseconds: int) -> float:
    """Clocks of controllers differ: never below zero."""
    return max(0, milliseconds) / 1000
