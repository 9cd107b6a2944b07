"""Kills a child process that hangs, so that the supervisor starts it again.

A frozen process keeps its connections and its port: nothing but the missing answer to a question tells it from one that
works. Redis and MinIO are not asked: one that waits for a slow disk looks the same as one that hangs, and a new one
would have to read everything first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from pravega_common.runtime.clock import Clock

question_period_s: Final = 5.0
"""From one question to the next; each is given up after as long."""
start_silence_max_s: Final = 600.0
"""The same before its first answer: a start may wait for a port, imports or a busy machine."""


class WatchedChild(Protocol):
    """The part of a child that is watched."""

    @property
    def name(self) -> str: ...

    @property
    def process(self) -> asyncio.subprocess.Process | None: ...


class HangWatch:
    """Asks one child again and again, and kills its present process after too many questions without an answer.

    Questions are counted and not seconds, so that a machine that slept, or a supervisor that was stopped, blames
    nobody.
    """

    def __init__(
        self, child: WatchedChild, is_alive: Callable[[], Awaitable[bool]], hung_after_s: float, clock: Clock
    ) -> None:
        self._child = child
        self._is_alive = is_alive
        self._hung_after_s = hung_after_s
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._has_answered = False
        self._unanswered = 0
        self._log = structlog.get_logger(service="hang-watch")

    async def run(self) -> None:
        """Watch until the task is cancelled."""
        while True:
            began_s = self._clock.monotonic_s()
            await self._ask()
            await self._clock.sleep(max(question_period_s - (self._clock.monotonic_s() - began_s), 0.0))

    async def _ask(self) -> None:
        process = self._child.process
        if process is None or process.returncode is not None:
            return
        if process is not self._process:
            self._process, self._has_answered, self._unanswered = process, False, 0
        if await self._is_alive():
            self._has_answered, self._unanswered = True, 0
            return
        self._unanswered += 1
        silent_s = self._unanswered * question_period_s
        limit_s = self._hung_after_s if self._has_answered else max(self._hung_after_s, start_silence_max_s)
        if silent_s >= limit_s and process is self._child.process and process.returncode is None:
            self._log.error("child hangs, killing it", child=self._child.name, pid=process.pid, silent_s=silent_s)
            process.kill()
