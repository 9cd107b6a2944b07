"""Asks the servers of a persistence group the same thing at the same time, and waits for as many as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import structlog

from pravega_common.errors import DataCorruption, Fenced, PravegaError, Unavailable
from pravega_common.invariants import InvariantViolation
from segment_service.plog.append_quorum import majority_of
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import AppendRefused, PlogClient, PlogMissing
from segment_service.plog.redis_connection import ReplyError
from segment_service.plog.server_connections import ServerLost

T = TypeVar("T")
Call = Callable[[int, PlogClient], Awaitable[T]]

straggler_wait_s: Final = 0.1
"""How long the others are waited for once a majority has answered; an operation on three servers rarely needs it."""
away_s: Final = 0.5
"""How long a server that did not answer is asked only if the others are too few."""


@dataclass(slots=True)
class Answers(Generic[T]):
    """The answers of the servers of a group, by their place in it."""

    servers: int
    values: dict[int, T] = field(default_factory=dict)
    errors: dict[int, PravegaError] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """The servers that do not have the plog."""
        return [index for index, error in self.errors.items() if isinstance(error, PlogMissing)]

    @property
    def lost(self) -> int:
        """The number of servers that lost their data."""
        return sum(isinstance(error, ServerLost) for error in self.errors.values())

    @property
    def are_all_known(self) -> bool:
        """Whether every server answered, or is known to be lost."""
        return len(self.values) + len(self.missing) + self.lost == self.servers

    def failure(self, what: str) -> PravegaError:
        """The error of an operation for which too few servers answered."""
        errors = list(self.errors.values())
        for error in errors:
            if isinstance(error, Fenced):
                return error
        corrupt = [error for error in errors if isinstance(error, DataCorruption)]
        if len(corrupt) >= majority_of(self.servers) and self.are_all_known:
            return corrupt[0]
        reasons = "; ".join(str(error) for error in errors) or "no answer in time"
        return Unavailable(f"{what}: {len(self.values)} of {self.servers} servers did it: {reasons}")


def is_away(error: PravegaError) -> bool:
    """Whether an error is about the server and not about what was asked."""
    about_the_plog = isinstance(error, PlogMissing | Fenced | AppendRefused | ReplyError)
    return not about_the_plog


class GroupServers:
    """The clients of the servers of one group, and which of them did not answer lately."""

    def __init__(self, clients: Sequence[PlogClient]) -> None:
        self.clients = tuple(clients)
        self.majority = majority_of(len(clients))
        self.damaged: tuple[set[PlogId], ...] = tuple(set() for _ in clients)
        """For each server the sealed plogs of which a reader found its copy damaged; the repair takes them out."""
        self._away_until_s = [0.0] * len(clients)
        self._stragglers: dict[asyncio.Task[object], int] = {}
        self._lost: dict[int, PravegaError] = {}
        """The servers that were lost when they were last reached; they count as lost while they are not."""
        self._failing: set[int] = set()
        """The servers that failed since they last answered: each is reported once."""
        self._log = structlog.get_logger()

    def __len__(self) -> int:
        return len(self.clients)

    def reset(self) -> None:
        """Drop all connections, and what is still waited for."""
        for task in list(self._stragglers):
            task.cancel()
        for client in self.clients:
            client.reset()

    async def move(self, index: int, address: str) -> None:
        """Let another address take the place of a server: nothing that is known of the old one counts."""
        await self.clients[index].move(address)
        self._away_until_s[index] = 0.0
        self._lost.pop(index, None)
        self._failing.discard(index)
        self.damaged[index].clear()

    def is_near(self, index: int) -> bool:
        """Whether the server answered lately, or was not asked."""
        return self._away_until_s[index] <= asyncio.get_running_loop().time()

    async def ask(
        self, call: Call[T], enough: Callable[[Answers[T]], bool] | None = None, among: Iterable[int] | None = None
    ) -> Answers[T]:
        """Call all, or those ``among``; return once ``enough`` says so (a majority did it, by default) or all ended.

        The last ones are waited for a moment longer; after that they go on by themselves, until ``reset``.
        """
        answers: Answers[T] = Answers(len(self.clients), errors=dict(self._lost))
        is_enough = enough or self.is_majority
        asked = list(range(len(self.clients)) if among is None else among)
        near = [index for index in asked if self.is_near(index)]
        await self._gather(call, near, is_enough, answers)
        if not is_enough(answers):
            await self._gather(call, [index for index in asked if index not in near], is_enough, answers)
        return answers

    def is_majority(self, answers: Answers[T]) -> bool:
        return len(answers.values) >= self.majority

    async def _gather(
        self, call: Call[T], asked: Sequence[int], enough: Callable[[Answers[T]], bool], answers: Answers[T]
    ) -> None:
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(self._call(call, index)): index for index in asked}
        waiting, seen = set(tasks), set[asyncio.Task[T]]()
        try:
            while waiting and not enough(answers):
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self._collect(tasks, waiting, seen, answers)
            if waiting:
                _, waiting = await asyncio.wait(waiting, timeout=straggler_wait_s)
                self._collect(tasks, waiting, seen, answers)
        except BaseException:
            for task in tasks:
                task.cancel()
            raise
        for task, index in tasks.items():
            if task in waiting:
                self._away_until_s[index] = loop.time() + away_s
                self._stragglers[task] = index
                task.add_done_callback(self._straggled)

    async def _call(self, call: Call[T], index: int) -> T:
        return await call(index, self.clients[index])

    def _collect(
        self,
        tasks: dict[asyncio.Task[T], int],
        waiting: set[asyncio.Task[T]],
        seen: set[asyncio.Task[T]],
        answers: Answers[T],
    ) -> None:
        for task, index in tasks.items():
            if task in waiting or task in seen:
                continue
            seen.add(task)
            error = task.exception()
            if error is None:
                answers.values[index] = task.result()
                answers.errors.pop(index, None)
                self._away_until_s[index] = 0.0
                self._failing.discard(index)
                self._lost.pop(index, None)
            elif isinstance(error, PravegaError):
                answers.errors[index] = error
                if is_away(error):
                    self._failed(index, error)
            else:
                raise error

    def _failed(self, index: int, error: PravegaError) -> None:
        self._away_until_s[index] = asyncio.get_running_loop().time() + away_s
        if isinstance(error, ServerLost):
            self._lost[index] = error
        if index not in self._failing:
            self._failing.add(index)
            self._log.warning("a plog server fails", address=self.clients[index].address, error=str(error))

    def _straggled(self, task: asyncio.Task[object]) -> None:
        del self._stragglers[task]
        error = None if task.cancelled() else task.exception()
        if isinstance(error, InvariantViolation):
            raise error
