"""Decides how often and how long a log stream repeats what it needs in order to go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from tenacity import wait_exponential

from pravega_common.errors import Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.deadline import Deadline
from pravega_common.services.retrying import retrying

retry_delay_first_s: Final = 0.02
retry_delay_max_s: Final = 1.0


class Patience:
    """The pauses and time limits of one log stream; a limit ends it with ``Unavailable``."""

    def __init__(self, container_id: int, clock: Clock, heal_time_max_s: float) -> None:
        self._container_id = container_id
        self._clock = clock
        self._heal_time_max_s = heal_time_max_s
        self._stuck_since: Deadline | None = None
        self._stuck_delay_s = retry_delay_first_s
        self._full_delay_s = retry_delay_first_s
        self._log = structlog.get_logger(container_id=container_id)

    def acknowledged(self) -> None:
        """Hear that an append was acknowledged: the log makes progress."""
        self._stuck_since = None
        self._full_delay_s = retry_delay_first_s

    def nothing_waits(self) -> None:
        """Hear that a hand-over left no append to be done: the time limit begins again."""
        self._stuck_since = None

    async def after_full(self) -> None:
        """Pause before a hand-over once a server that was full has room: a server at its very limit has room and
        refuses in turns, and each hand-over leaves a record. A full server is no reason to give up."""
        await self._clock.sleep(self._full_delay_s)
        self._full_delay_s = min(self._full_delay_s * 2, retry_delay_max_s)
        self._stuck_since = None

    async def before_hand_over(self) -> None:
        """Pause ever longer while appends make no progress; ``Unavailable`` once they made none for too long."""
        if self._stuck_since is None:
            self._stuck_since = Deadline.after(self._clock, self._heal_time_max_s)
            self._stuck_delay_s = retry_delay_first_s
        elif self._stuck_since.expired:
            raise Unavailable(f"container {self._container_id}: appends made no progress; the log gave up")
        else:
            await self._clock.sleep(self._stuck_delay_s)
            self._stuck_delay_s = min(self._stuck_delay_s * 2, retry_delay_max_s)

    async def repeat(self, action: Callable[[], Awaitable[None]], is_over: Callable[[], bool]) -> None:
        """Repeat an action until it succeeds, for as long as the log may take to heal and is not over."""
        deadline = Deadline.after(self._clock, self._heal_time_max_s)
        back_off = wait_exponential(multiplier=retry_delay_first_s, max=retry_delay_max_s)

        def warn(error: BaseException) -> None:
            self._log.warning("healing the log", error=str(error), left_s=deadline.remaining_s)

        attempts = retrying(
            self._clock,
            wait=lambda state: min(back_off(state), deadline.remaining_s),
            stop=lambda: deadline.expired or is_over(),
            on_error=warn,
        )
        async for attempt in attempts:
            with attempt:
                await action()
