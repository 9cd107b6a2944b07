"""Lets one put serve all that wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

Put = Callable[[], Awaitable[None]]


class SharedPut:
    """At most one put at a time, whose end all see that wait for it. A put that fails, fails for all of them; one that
    is cancelled is made by another one that waits."""

    def __init__(self) -> None:
        self._under_way: asyncio.Future[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether there is a put that others may wait for."""
        return self._under_way is not None

    async def join(self, put: Put) -> None:
        """Wait for the put that is under way, or make one. The caller looks then whether that served it."""
        under_way = self._under_way
        if under_way is None:
            await self.make(put)
            return
        await asyncio.wait((under_way,))
        try:
            if not under_way.cancelled():
                under_way.result()
        finally:
            del under_way  # its error has this frame

    async def ended(self) -> None:
        """Return once no put is under way, however it ended."""
        while (under_way := self._under_way) is not None:
            await asyncio.wait((under_way,))

    async def make(self, put: Put) -> None:
        """Make a put; none is under way."""
        under_way = self._under_way = asyncio.get_running_loop().create_future()
        try:
            await put()
            under_way.set_result(None)
        except asyncio.CancelledError:
            under_way.cancel()  # another one that waits does it
            raise
        except BaseException as error:
            under_way.set_exception(error)
            under_way.exception()  # marks it retrieved: nobody may wait
            raise
        finally:
            self._under_way = None
            del under_way  # its error has this frame
