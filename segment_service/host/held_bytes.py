"""Counts bytes that peers make a server hold, and frees itself of the slowest of them when there are too many."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final, Protocol

from pravega_common.runtime.clock import Clock
from segment_service.contracts.segment_store import read_bytes_max

look_s: Final = 0.05
"""Pause between two looks at what peers have taken, while too many replies are unsent."""
stalled_time_max_s: Final = 30.0
"""Time that a peer may take none of its replies while too many are unsent."""


class Holder(Protocol):
    """A connection that holds bytes."""

    def unsent_bytes(self) -> int:
        """Reply bytes that the peer has not taken at this moment."""
        ...

    def cut(self, reason: str) -> None:
        """End the connection now."""
        ...


class OpenFrames:
    """Bytes of frames that have begun and are not complete. Above the limit the longest open one costs its peer the
    connection: that is the slowest, however many bytes it dribbles."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.cut_total = 0
        self._bytes_max = bytes_max
        self._by_holder: OrderedDict[Holder, int] = OrderedDict()

    def note(self, holder: Holder, size: int) -> None:
        """Set the received bytes of the holder's open frame; fewer than before are those of another frame."""
        before = self._by_holder.get(holder, 0)
        self.bytes += size - before
        if size < before:
            del self._by_holder[holder]
        if size:
            self._by_holder[holder] = size
        while self.bytes > self._bytes_max:
            oldest, held = self._by_holder.popitem(last=False)
            self.bytes -= held
            self.cut_total += 1
            oldest.cut(f"unfinished frames hold more than {self._bytes_max} bytes, and this one is open for longest")


class UnsentReplies:
    """Reply bytes that peers have not taken.

    Above the limit nothing more is made for anybody until there is room, first come, first served, and a peer that
    takes nothing for ``stalled_time_max_s`` loses its connection.
    """

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        self.bytes = 0
        self.cut_total = 0
        self._clock = clock
        self._bytes_max = bytes_max
        self._by_holder: dict[Holder, tuple[int, float]] = {}
        """Bytes, and since when they became no fewer."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._full = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._bytes_max

    def note(self, holder: Holder, size: int) -> None:
        before, since_s = self._by_holder.get(holder, (0, 0.0))
        if size == before:
            return
        self.bytes += size - before
        if size:
            self._by_holder[holder] = (size, since_s if size > before > 0 else self._clock.monotonic_s())
        else:
            del self._by_holder[holder]
        if self.is_full:
            self._full.set()

    async def wait_room(self) -> None:
        """Return when there is room for one more reply."""
        if self.is_full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    async def run(self) -> None:
        """While there is no room, look what peers took meanwhile (they do not say so), until cancelled."""
        while True:
            await self._full.wait()
            await self._clock.sleep(look_s)
            for holder in tuple(self._by_holder):
                self.note(holder, holder.unsent_bytes())
            if self.is_full:
                self._cut_stalled()
            self._wake()
            if not self._waiting and not self.is_full:
                self._full.clear()

    def _cut_stalled(self) -> None:
        before_s = self._clock.monotonic_s() - stalled_time_max_s
        for holder in [one for one, (_, since_s) in self._by_holder.items() if since_s < before_s]:
            self.note(holder, 0)
            self.cut_total += 1
            holder.cut(f"no reply was taken for {stalled_time_max_s:.0f} s, and unsent ones fill the server")

    def _wake(self) -> None:
        """Wake as many of those that wait as there is room for."""
        room = self._bytes_max - self.bytes
        while self._waiting and room > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= read_bytes_max
