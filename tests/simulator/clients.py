"""Calls the owner of a segment, as often as it takes, and keeps the outcomes apart: the base of all clients."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Protocol

from pravega_common.errors import DataCorruption, Outcome, SegmentNotFound
from segment_service.contracts.segment_store import ReadResult
from tests.simulator.history import History, SegmentHistory
from tests.simulator.network import Network
from tests.simulator.sessions import Answer, Session, Work
from tests.simulator.settings import Settings
from tests.simulator.store import Store
from tests.simulator.trace import Trace

call_time_max_s = 15.0


class World(Protocol):
    """The run, as its clients see it."""

    settings: Settings
    network: Network
    history: History
    is_ending: bool
    """No new work; what was begun is brought to an end."""

    @property
    def is_busy(self) -> bool:
        """Whether enough was made for the time that has passed."""
        ...

    def made(self, length: int) -> None:
        """Counts an event, or an entry of a table, that a client is going to send."""
        ...

    def owner_of(self, segment: str) -> Store | None: ...

    def epoch_of(self, segment: str) -> int:
        """The epoch of the last owner of the segment's container that came up."""
        ...

    def zombies(self) -> list[Store]:
        """Stores that are alive and own nothing any more."""
        ...

    trace: Trace

    def event_acked(self, segment: str, epoch: int) -> None: ...

    def is_damaged(self, segment: str) -> bool:
        """Whether an object of the segment in Tier 2 was damaged."""
        ...

    def corruption_seen(self, segment: str, error: DataCorruption) -> bool:
        """A call was refused because data is damaged or gone. Whether it will always be: this segment is damaged."""
        ...


class GivenUp(Exception):
    """The segment is damaged, and says so."""


class Client:
    """One client with one connection."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rng = random.Random(f"{world.settings.seed} {name}")
        self._session: Session | None = None

    async def pause(self, longest_s: float = 0.5) -> None:
        await asyncio.sleep(self.rng.uniform(0.01, longest_s))

    async def session(self, segment: str) -> Session:
        """The connection, to the owner of the segment, or now and then to somebody who was."""
        while True:
            store = self.world.owner_of(segment)
            zombies = self.world.zombies()
            if zombies and self.rng.random() < 0.1:
                store = self.rng.choice(zombies)
            if store is not None and store.process.is_alive:
                break
            await self.pause()
        if self._session is None or self._session.is_broken or self._session.store is not store:
            self.hang_up()
            self._session = Session(self.world.network, store)
        return self._session

    def hang_up(self) -> None:
        if self._session is not None:
            self._session.close("the client hung up")

    async def call(
        self,
        segment: str,
        work: Work,
        *,
        time_max_s: float = call_time_max_s,
        counts_late: Callable[[], bool] = bool,
    ) -> Answer:
        """One call; without an answer in time the connection is given up and the outcome unknown."""
        session = await self.session(segment)
        answer = session.send(segment, work, counts_late=counts_late)
        limit = asyncio.get_running_loop().call_later(time_max_s, session.close, "no answer in time")
        try:
            result = await answer
        finally:
            limit.cancel()
        self.tell(segment, session.store, result)
        self.end_if_damaged(segment, result)
        return result

    def end_if_damaged(self, segment: str, answer: Answer) -> None:
        """``GivenUp`` if the store refuses for good: the segment is damaged."""
        if isinstance(answer.error, DataCorruption) and self.world.corruption_seen(segment, answer.error):
            raise GivenUp(segment)

    async def look(self, segment: str) -> Answer:
        """``get_info`` of the owner, or that the segment does not exist."""
        while True:
            answer = await self.insist(segment, lambda store: store.segments.get_info(segment))
            if self.is_fresh(segment, answer):
                return answer

    def is_fresh(self, segment: str, answer: Answer) -> bool:
        """Whether the answer comes from the last owner; an earlier one that lives on may know less."""
        return answer.epoch >= self.world.epoch_of(segment)

    async def insist(self, segment: str, work: Work, *already: type[Exception]) -> Answer:
        """Repeat a call until it is done, or refused by the last owner. ``already``: after an unknown outcome these
        errors mean done."""
        was_unknown = False
        while True:
            answer = await self.call(segment, work)
            error = answer.error
            if error is None:
                return answer
            if error.outcome is Outcome.REJECTED and not self.is_fresh(segment, answer):
                await self.pause()
                continue
            if isinstance(error, already) and was_unknown:
                return Answer(answer.epoch)
            was_unknown = was_unknown or error.outcome is Outcome.UNKNOWN
            if error.outcome is Outcome.REJECTED and not isinstance(error, DataCorruption):
                return answer
            await self.pause()

    def tell(self, segment: str, store: Store, answer: Answer, what: str = "") -> None:
        """Put an answer into a trace that is kept in detail."""
        if self.world.trace.in_detail:
            value = answer.value
            if isinstance(value, ReadResult):
                value = f"{value.length} bytes from {value.offset}, at tail: {value.at_tail}"
            result = str(value)[:200] if answer.error is None else repr(answer.error)
            where = f"{store.name}, epoch {answer.epoch}"
            self.world.trace.note(f"    {self.name}: {segment} at {where}: {what} {result}")

    async def learn_id(self, segment: SegmentHistory) -> None:
        name = segment.name
        answer = await self.look(name)
        if not self.missing(segment, answer) and answer.value is not None:
            segment.segment_id = answer.value.segment_id

    def missing(self, segment: SegmentHistory, answer: Answer) -> bool:
        """Whether the store says that the segment does not exist; a violation if it must."""
        if not isinstance(answer.error, SegmentNotFound):
            return False
        if not segment.may_be_gone and answer.epoch >= segment.created_epoch > 0:
            segment.violated("lost", f"the segment is gone in epoch {answer.epoch}")
        return True
