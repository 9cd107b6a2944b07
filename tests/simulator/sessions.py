"""A client's connection to a store: requests arrive in order, answers come back, or the connection breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pravega_common.errors import PravegaError, UnknownOutcome
from tests.simulator.network import Network, Pipe
from tests.simulator.store import Store

Work = Callable[[Store], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A result or an error, with the epoch of the container that gave it (0 if none did)."""

    epoch: int
    value: Any = None
    error: PravegaError | None = None


class Session:
    """Requests are done in the order of the calls of ``send``; the futures give an ``Answer`` each."""

    def __init__(self, network: Network, store: Store) -> None:
        self.store = store
        self.is_broken = False
        self._waiting: dict[asyncio.Future[Answer], None] = {}
        self._running: dict[asyncio.Future[Any], None] = {}
        self._there = Pipe(network, store.process, self._arrived)
        self._back = Pipe(network, store.process, self._answered)
        self._loop = network.loop
        store.process.on_death(lambda: self.close("the store died"))

    def send(self, segment: str, work: Work, *, counts_late: Callable[[], bool] = bool) -> asyncio.Future[Answer]:
        """``counts_late``: whether the store still does it when its sender has hung up; by default it does not."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        if self.is_broken:
            answer.set_result(Answer(0, error=UnknownOutcome("the connection is broken")))
        else:
            self._waiting[answer] = None
            self._there.send((segment, work, answer, counts_late))
        return answer

    def close(self, reason: str) -> None:
        """Break the connection: what waits for an answer never gets one."""
        if self.is_broken:
            return
        self.is_broken = True
        waiting, self._waiting = self._waiting, {}
        for answer in waiting:
            if not answer.done():
                answer.set_result(Answer(0, error=UnknownOutcome(reason)))
        if self.store.process.is_alive:
            self.store.process.call_soon(self._cancel_running)

    def _cancel_running(self) -> None:
        for running in list(self._running):
            running.cancel()

    def _arrived(self, item: tuple[str, Work, asyncio.Future[Answer], Callable[[], bool]]) -> None:
        self.store.process.run(self._do, *item)

    def _do(self, segment: str, work: Work, answer: asyncio.Future[Answer], counts_late: Callable[[], bool]) -> None:
        """In the store's process."""
        if self.is_broken and not counts_late():
            return
        try:
            epoch = self.store.segments.container_of(segment).epoch
            running: asyncio.Future[Any] = asyncio.ensure_future(work(self.store))
        except PravegaError as error:
            self._back.send((answer, Answer(0, error=error)))
            return
        if isinstance(running, asyncio.Task):  # an append is not cancelled when its client goes away
            self._running[running] = None
        running.add_done_callback(lambda done: self._done(epoch, done, answer))

    def _done(self, epoch: int, done: asyncio.Future[Any], answer: asyncio.Future[Answer]) -> None:
        self._running.pop(done, None)
        if done.cancelled():
            return
        error = done.exception()
        if not self.store.process.is_alive:
            return
        if error is None:
            self._back.send((answer, Answer(epoch, done.result())))
        elif isinstance(error, PravegaError):
            self._back.send((answer, Answer(epoch, error=error)))
        else:
            self._back.send((answer, Answer(epoch, error=UnknownOutcome(f"unforeseen: {error!r}"))))

    def _answered(self, item: tuple[asyncio.Future[Answer], Answer]) -> None:
        answer, result = item
        self._waiting.pop(answer, None)
        if not answer.done() and not self.is_broken:
            answer.set_result(result)
